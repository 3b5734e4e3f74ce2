//! Adds parts to the script of a workload, in any query language.

use ciphertoll_model::{Draw, Script, ScriptStatement, ScriptStep};

/// A step of the script; its statement is added unless an earlier step has it.
pub(crate) fn add_step(script: &mut Script, statement: ScriptStatement, parameters: &[usize]) -> ScriptStep {
    let statements = &mut script.statements;
    let statement = statements.iter().position(|known| *known == statement).unwrap_or_else(|| {
        statements.push(statement);
        statements.len() - 1
    });
    ScriptStep { statement, parameters: parameters.to_vec() }
}

pub(crate) fn add_variable(script: &mut Script, draw: Draw) -> usize {
    script.variables.push(draw);
    script.variables.len() - 1
}
