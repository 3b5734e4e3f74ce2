//! Compiles a script: checks its indices, splits its texts at the placeholders.

use std::fmt::Write as _;
use std::ops::Range;
use std::sync::Arc;

use ciphertoll_model::{Engine, QueryLanguage, Script, ScriptStep, StatementProtocol};
use ciphertoll_wire::mongodb::{self, CommandTemplate};
use ciphertoll_wire::session::{PreparedStatement, ServerInfo, Value};
use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::Error;
use crate::draw::{Draws, Values};
use crate::ycsb::Inserts;

/// Parameters passed without allocating; the workloads have at most eleven.
const STACK_PARAMETERS: usize = 12;

/// A compiled script, shared by a thread's clients.
#[derive(Debug)]
pub(crate) struct CompiledScript {
    draws: Draws,
    /// Alternative transactions, at least one.
    branches: Vec<CompiledBranch>,
    pub(crate) to_prepare: Vec<String>,
    retry_on: Vec<String>,
    language: QueryLanguage,
}

#[derive(Debug)]
struct CompiledBranch {
    /// Its weight plus the weights of the branches before it.
    until: u64,
    steps: Vec<CompiledStep>,
    variables: Vec<usize>,
    min_row_bytes: u64,
}

/// A branch and a step of it, by number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StepIndex {
    branch: usize,
    step: usize,
}

#[derive(Debug)]
pub(crate) enum CompiledStep {
    /// Index of the prepared statement, and its variables.
    Prepared {
        place: usize,
        variables: Vec<usize>,
    },
    Text(Vec<TextPiece>),
    /// A command of a document database, and its variables.
    Document {
        template: CommandTemplate,
        variables: Vec<usize>,
    },
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TextPiece {
    Literal(String),
    Number(usize),
}

/// A placeholder: its range, and which of the step's parameters it stands for.
type Placeholder = (Range<usize>, usize);

impl CompiledScript {
    /// Compiles a script. All threads of a trial share the same inserts.
    pub(crate) fn of(engine: Engine, script: &Script, inserts: Arc<Inserts>) -> Result<Self, Error> {
        compile(engine, script, inserts, None).map_err(Error::Script)
    }

    /// Compiles every step as text: the queries of a short-lived connection.
    pub(crate) fn as_text(engine: Engine, script: &Script, inserts: Arc<Inserts>) -> Result<Self, Error> {
        compile(engine, script, inserts, Some(StatementProtocol::Text)).map_err(Error::Script)
    }

    pub(crate) fn values(&self) -> Values {
        self.draws.values()
    }

    /// Draws the next transaction and its variables; returns its first step.
    #[inline]
    pub(crate) fn draw(&self, random: &mut Pcg64Mcg, values: &mut Values) -> StepIndex {
        let branch = match self.branches.as_slice() {
            // No choice.
            [] | [_] => 0,
            [.., last] => {
                let weight = random.random_range(0..last.until);
                self.branches.partition_point(|branch| branch.until <= weight)
            }
        };
        self.draws.draw(&self.branches[branch].variables, random, values);
        StepIndex { branch, step: 0 }
    }

    #[inline]
    pub(crate) fn step(&self, place: StepIndex) -> &CompiledStep {
        &self.branches[place.branch].steps[place.step]
    }

    /// The next step; `None` after a transaction's last.
    #[inline]
    pub(crate) fn next(&self, place: StepIndex) -> Option<StepIndex> {
        let step = place.step + 1;
        (step < self.branches[place.branch].steps.len()).then_some(StepIndex { step, ..place })
    }

    /// Checks that a transaction that ended at `place` received as many bytes as it must.
    #[inline]
    pub(crate) fn check(&self, place: StepIndex, row_bytes: u64) -> Result<(), Error> {
        let least = self.branches[place.branch].min_row_bytes;
        if row_bytes >= least {
            return Ok(());
        }
        Err(match self.language {
            QueryLanguage::Sql => Error::ShortAnswer { bytes: row_bytes, least },
            QueryLanguage::Documents => Error::MissingDocument { bytes: row_bytes, least },
        })
    }

    /// A transaction has succeeded: the records that it inserted now exist.
    #[inline]
    pub(crate) fn acknowledge(&self, place: StepIndex, values: &Values) {
        self.draws.acknowledge(&self.branches[place.branch].variables, values);
    }

    /// Whether the transaction must be retried after this error.
    pub(crate) fn is_conflict(&self, refusal: &ciphertoll_wire::session::Error) -> bool {
        self.retry_on.iter().any(|code| refusal.is_refusal(code))
    }

    /// The statement that rolls back a transaction before a retry. A failed command of a document database has
    /// changed nothing, so it needs none.
    pub(crate) fn rollback(&self) -> Option<&'static str> {
        match self.language {
            QueryLanguage::Sql => Some("ROLLBACK"),
            QueryLanguage::Documents => None,
        }
    }

    /// Appends the message of a step to `out`; `sql` is a buffer for its text.
    #[inline]
    pub(crate) fn encode(
        &self,
        place: StepIndex,
        values: &Values,
        server: &ServerInfo,
        prepared: &[PreparedStatement],
        (out, sql): (&mut Vec<u8>, &mut String),
    ) -> Result<(), ciphertoll_net::Error> {
        match self.step(place) {
            CompiledStep::Prepared { place, variables } => {
                self.with_values(variables, values, |parameters| {
                    Ok(server.encode_execute(out, &prepared[*place], parameters)?)
                })
            }
            CompiledStep::Text(pieces) => {
                if let [TextPiece::Literal(text)] = pieces.as_slice() {
                    return Ok(server.encode_query(out, text)?);
                }
                write_text(pieces, values, sql);
                Ok(server.encode_query(out, sql)?)
            }
            CompiledStep::Document { template, variables } => match server {
                ServerInfo::MongoDb(server) => self.with_values(variables, values, |parameters| {
                    Ok(server.encode(out, template, parameters)?)
                }),
                // The login matches the engine that the script was compiled for.
                ServerInfo::MySql(_) | ServerInfo::Postgres(_) => {
                    Err(mongodb::Error::NoPreparedStatements.into())
                }
            },
        }
    }

    /// Calls `encode` with the values of variables; a few need no allocation.
    #[inline]
    fn with_values<T>(
        &self,
        variables: &[usize],
        values: &Values,
        encode: impl FnOnce(&[Value<'_>]) -> T,
    ) -> T {
        let value = |variable: &usize| self.draws.value(*variable, values);
        // The most frequent case: no array to initialise.
        if let [variable] = variables {
            return encode(&[value(variable)]);
        }
        if variables.len() > STACK_PARAMETERS {
            return encode(&variables.iter().map(value).collect::<Vec<_>>());
        }
        let mut parameters = [Value::Null; STACK_PARAMETERS];
        for (parameter, variable) in parameters.iter_mut().zip(variables) {
            *parameter = value(variable);
        }
        encode(&parameters[..variables.len()])
    }
}

/// Compiles a script; `protocol` overrides how its statements are sent.
fn compile(
    engine: Engine,
    script: &Script,
    inserts: Arc<Inserts>,
    protocol: Option<StatementProtocol>,
) -> Result<CompiledScript, String> {
    let draws = Draws::of(&script.variables, inserts)?;
    let mut compiler = Compiler { engine, script, protocol, draws, to_prepare: Vec::new() };
    let branches = compiler.branches()?;
    let Compiler { draws, to_prepare, .. } = compiler;
    let (retry_on, language) = (script.retry_on.clone(), engine.query_language());
    Ok(CompiledScript { draws, branches, to_prepare, retry_on, language })
}

struct Compiler<'a> {
    engine: Engine,
    script: &'a Script,
    protocol: Option<StatementProtocol>,
    draws: Draws,
    to_prepare: Vec<String>,
}

impl Compiler<'_> {
    fn branches(&mut self) -> Result<Vec<CompiledBranch>, String> {
        let script = self.script;
        if script.branches.is_empty() {
            let steps = self.steps(&script.steps, "")?;
            let min_row_bytes = script.min_row_bytes;
            return Ok(vec![CompiledBranch { until: 1, steps, variables: self.draws.all(), min_row_bytes }]);
        }
        if !script.steps.is_empty() {
            return Err("it has both steps and branches".to_owned());
        }
        let mut branches = Vec::with_capacity(script.branches.len());
        let mut until = 0;
        for (number, branch) in script.branches.iter().enumerate() {
            until += u64::from(branch.weight);
            let steps = self.steps(&branch.steps, &format!("branch {number}, "))?;
            let taken = branch.steps.iter().flat_map(|step| step.parameters.iter().copied());
            let variables = self.draws.needed_for(taken);
            branches.push(CompiledBranch { until, steps, variables, min_row_bytes: branch.min_row_bytes });
        }
        if until == 0 {
            return Err("its branches have no weight".to_owned());
        }
        Ok(branches)
    }

    fn steps(&mut self, steps: &[ScriptStep], of: &str) -> Result<Vec<CompiledStep>, String> {
        if steps.is_empty() {
            return Err(format!("{of}it has no step"));
        }
        let compiled = |(number, step)| self.step(step).map_err(|what| format!("{of}step {number} {what}"));
        steps.iter().enumerate().map(compiled).collect()
    }

    fn step(&mut self, step: &ScriptStep) -> Result<CompiledStep, String> {
        let statement = self.script.statements.get(step.statement).ok_or("refers to no statement")?;
        let protocol = self.protocol.unwrap_or(statement.protocol);
        let is_sql = self.engine.query_language() == QueryLanguage::Sql;
        for &variable in &step.parameters {
            let is_number = self.draws.is_number(variable).ok_or("refers to no variable")?;
            if is_sql && !is_number && protocol == StatementProtocol::Text {
                return Err("writes a variable into its text that is not a number".to_owned());
            }
        }
        let variables = step.parameters.clone();
        if !is_sql {
            let template = CommandTemplate::parse(&statement.sql)
                .map_err(|error| format!("is not a command: {error}"))?;
            same_count(template.parameters(), variables.len())?;
            return Ok(CompiledStep::Document { template, variables });
        }
        let placeholders = placeholders(self.engine, &statement.sql);
        let expected = placeholders.iter().map(|(_, parameter)| parameter + 1).max().unwrap_or(0);
        same_count(expected, variables.len())?;
        Ok(match protocol {
            StatementProtocol::Text => {
                CompiledStep::Text(pieces(&statement.sql, placeholders, &step.parameters))
            }
            StatementProtocol::Prepared => {
                let known = self.to_prepare.iter().position(|sql| *sql == statement.sql);
                let place = known.unwrap_or_else(|| {
                    self.to_prepare.push(statement.sql.clone());
                    self.to_prepare.len() - 1
                });
                CompiledStep::Prepared { place, variables }
            }
        })
    }
}

fn same_count(expected: usize, given: usize) -> Result<(), String> {
    if expected == given {
        return Ok(());
    }
    Err(format!("has {given} parameters where its statement takes {expected}"))
}

/// Replaces the content of `sql` by the text with its numbers.
fn write_text(pieces: &[TextPiece], values: &Values, sql: &mut String) {
    sql.clear();
    for piece in pieces {
        match piece {
            TextPiece::Literal(text) => sql.push_str(text),
            // Writing to a string does not fail.
            TextPiece::Number(variable) => {
                let _ = write!(sql, "{}", values.number(*variable));
            }
        }
    }
}

/// Splits a text at its placeholders.
fn pieces(sql: &str, placeholders: Vec<Placeholder>, variables: &[usize]) -> Vec<TextPiece> {
    let mut pieces = Vec::new();
    let mut rest = 0;
    let literal =
        |range: Range<usize>| (!range.is_empty()).then(|| TextPiece::Literal(sql[range].to_owned()));
    for (range, parameter) in placeholders {
        pieces.extend(literal(rest..range.start));
        pieces.push(TextPiece::Number(variables[parameter]));
        rest = range.end;
    }
    pieces.extend(literal(rest..sql.len()));
    pieces
}

/// The placeholders of a statement outside of quotes.
fn placeholders(engine: Engine, sql: &str) -> Vec<Placeholder> {
    let mut found: Vec<Placeholder> = Vec::new();
    let mut quote = None;
    let mut bytes = sql.bytes().enumerate().peekable();
    while let Some((at, byte)) = bytes.next() {
        if let Some(open) = quote {
            quote = (byte != open).then_some(open);
            continue;
        }
        match byte {
            b'\'' | b'"' | b'`' => quote = Some(byte),
            b'?' if engine != Engine::Postgres => found.push((at..at + 1, found.len())),
            b'$' if engine == Engine::Postgres => {
                let mut end = at + 1;
                while bytes.next_if(|(_, byte)| byte.is_ascii_digit()).is_some() {
                    end += 1;
                }
                // PostgreSQL's limit.
                if let Ok(number @ 1..) = sql[at + 1..end].parse::<u16>() {
                    found.push((at..end, usize::from(number) - 1));
                }
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests;
