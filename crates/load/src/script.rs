//! A script made ready to run: its indices checked, its texts cut where numbers go.

use std::fmt::Write as _;
use std::ops::Range;

use ciphertoll_model::{Engine, Script, StatementProtocol};
use ciphertoll_wire::session::{Prepared, ServerInfo, Value};

use crate::Error;
use crate::draw::{Draws, Values};

/// Parameters that are passed on without allocating; the workloads have at most four.
const STACK_PARAMETERS: usize = 8;

/// A script made ready to run, shared by a thread's clients.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) draws: Draws,
    pub(crate) steps: Vec<Step>,
    /// SQL to prepare on each connection.
    pub(crate) to_prepare: Vec<String>,
    pub(crate) retry_on: Vec<String>,
    pub(crate) min_row_bytes: u64,
}

/// What is sent at once.
#[derive(Debug)]
pub(crate) enum Step {
    /// The statement's place among those to prepare, and the variables it takes.
    Prepared { place: usize, variables: Vec<usize> },
    /// Text and the numbers in it.
    Text(Vec<Piece>),
}

/// A part of a text.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Piece {
    Literal(String),
    /// The number of this variable.
    Number(usize),
}

/// A placeholder: where it stands, and which of the step's parameters it is for.
type Placeholder = (Range<usize>, usize);

impl Program {
    pub(crate) fn of(engine: Engine, script: &Script) -> Result<Self, Error> {
        Self::checked(engine, script, None).map_err(Error::Script)
    }

    /// The first step alone, as text whatever it is in the script: what a connection is opened for.
    pub(crate) fn first_as_text(engine: Engine, script: &Script) -> Result<Self, Error> {
        let first = script.steps.first().cloned().into_iter().collect();
        let script = Script { steps: first, ..script.clone() };
        Self::checked(engine, &script, Some(StatementProtocol::Text)).map_err(Error::Script)
    }

    fn checked(engine: Engine, script: &Script, protocol: Option<StatementProtocol>) -> Result<Self, String> {
        if script.steps.is_empty() {
            return Err("it has no step".to_owned());
        }
        let draws = Draws::of(&script.variables)?;
        let mut to_prepare: Vec<String> = Vec::new();
        let mut steps = Vec::with_capacity(script.steps.len());
        for (number, step) in script.steps.iter().enumerate() {
            let wrong = |what: &str| format!("step {number} {what}");
            let statement = script.statements.get(step.statement).ok_or_else(|| wrong("has no statement"))?;
            let protocol = protocol.unwrap_or(statement.protocol);
            for &variable in &step.parameters {
                let is_number =
                    draws.is_number(variable).ok_or_else(|| wrong("takes what is no variable"))?;
                if !is_number && protocol == StatementProtocol::Text {
                    return Err(wrong("writes what is no number into its text"));
                }
            }
            let placeholders = placeholders(engine, &statement.sql);
            let expected = placeholders.iter().map(|(_, parameter)| parameter + 1).max().unwrap_or(0);
            if expected != step.parameters.len() {
                let given = step.parameters.len();
                return Err(wrong(&format!("has {given} parameters where its statement takes {expected}")));
            }
            steps.push(match protocol {
                StatementProtocol::Text => Step::Text(pieces(&statement.sql, placeholders, &step.parameters)),
                StatementProtocol::Prepared => {
                    let known = to_prepare.iter().position(|sql| *sql == statement.sql);
                    let place = known.unwrap_or_else(|| {
                        to_prepare.push(statement.sql.clone());
                        to_prepare.len() - 1
                    });
                    Step::Prepared { place, variables: step.parameters.clone() }
                }
            });
        }
        Ok(Self {
            draws,
            steps,
            to_prepare,
            retry_on: script.retry_on.clone(),
            min_row_bytes: script.min_row_bytes,
        })
    }

    /// Appends the message of a step to `out`; `sql` is room for its text.
    #[inline]
    pub(crate) fn encode(
        &self,
        step: usize,
        values: &Values,
        server: &ServerInfo,
        prepared: &[Prepared],
        (out, sql): (&mut Vec<u8>, &mut String),
    ) -> Result<(), ciphertoll_net::Error> {
        match &self.steps[step] {
            Step::Prepared { place, variables } => {
                let value = |variable: &usize| self.draws.value(*variable, values);
                // What most workloads repeat: no room to clear for parameters that are not there.
                if let [variable] = variables.as_slice() {
                    return Ok(server.encode_execute(out, &prepared[*place], &[value(variable)])?);
                }
                if variables.len() > STACK_PARAMETERS {
                    let parameters: Vec<_> = variables.iter().map(value).collect();
                    return Ok(server.encode_execute(out, &prepared[*place], &parameters)?);
                }
                let mut parameters = [Value::Null; STACK_PARAMETERS];
                for (parameter, variable) in parameters.iter_mut().zip(variables) {
                    *parameter = value(variable);
                }
                server.encode_execute(out, &prepared[*place], &parameters[..variables.len()])?;
            }
            Step::Text(pieces) => encode_text(pieces, values, server, (out, sql))?,
        }
        Ok(())
    }
}

fn encode_text(
    pieces: &[Piece],
    values: &Values,
    server: &ServerInfo,
    (out, sql): (&mut Vec<u8>, &mut String),
) -> Result<(), ciphertoll_net::Error> {
    if let [Piece::Literal(text)] = pieces {
        return Ok(server.encode_query(out, text)?);
    }
    write_text(pieces, values, sql);
    Ok(server.encode_query(out, sql)?)
}

/// Writes the text with its numbers in place of what was in `sql`.
fn write_text(pieces: &[Piece], values: &Values, sql: &mut String) {
    sql.clear();
    for piece in pieces {
        match piece {
            Piece::Literal(text) => sql.push_str(text),
            // Writing to a string does not fail.
            Piece::Number(variable) => {
                let _ = write!(sql, "{}", values.number(*variable));
            }
        }
    }
}

/// Cuts a text at its placeholders.
fn pieces(sql: &str, placeholders: Vec<Placeholder>, variables: &[usize]) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut rest = 0;
    let literal = |range: Range<usize>| (!range.is_empty()).then(|| Piece::Literal(sql[range].to_owned()));
    for (range, parameter) in placeholders {
        pieces.extend(literal(rest..range.start));
        pieces.push(Piece::Number(variables[parameter]));
        rest = range.end;
    }
    pieces.extend(literal(rest..sql.len()));
    pieces
}

/// The placeholders of a statement, but for those within quotes.
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
                // PostgreSQL takes no more parameters than that.
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
mod tests {
    use ciphertoll_model::{Draw, Statement, Step as ModelStep};
    use proptest::prelude::*;

    use super::*;

    fn script(sql: &str, protocol: StatementProtocol, parameters: &[usize]) -> Script {
        Script {
            statements: vec![Statement { sql: sql.to_owned(), protocol }],
            variables: vec![
                Draw::Uniform { first: 7, last: 7 },
                Draw::Uniform { first: -5, last: -5 },
                Draw::DigitGroups { groups: 1 },
            ],
            steps: vec![ModelStep { statement: 0, parameters: parameters.to_vec() }],
            retry_on: Vec::new(),
            min_row_bytes: 0,
        }
    }

    /// The text that is sent for the script's one step.
    fn sent(engine: Engine, sql: &str, parameters: &[usize]) -> String {
        use rand::SeedableRng;
        let program = Program::of(engine, &script(sql, StatementProtocol::Text, parameters)).unwrap();
        let mut values = program.draws.values();
        program.draws.draw(&mut rand_pcg::Pcg64Mcg::seed_from_u64(1), &mut values);
        let Step::Text(pieces) = &program.steps[0] else { panic!("it is text") };
        let mut text = "what was there before".to_owned();
        write_text(pieces, &values, &mut text);
        text
    }

    #[test]
    fn numbers_are_written_where_the_placeholders_stand() {
        let (mariadb, postgres) = (Engine::MariaDb, Engine::Postgres);
        assert_eq!(sent(mariadb, "SELECT 1", &[]), "SELECT 1");
        assert_eq!(sent(mariadb, "a = ? AND b = ?", &[0, 1]), "a = 7 AND b = -5");
        assert_eq!(sent(mariadb, "a = '?' AND b = ? + $1", &[1]), "a = '?' AND b = -5 + $1");
        assert_eq!(sent(postgres, "a = $1 AND b = $2", &[0, 1]), "a = 7 AND b = -5");
        assert_eq!(sent(postgres, "$2-$1-$2", &[0, 1]), "-5-7--5");
        assert_eq!(sent(postgres, "'$1', \"$9\", $, $0, ? $1", &[0]), "'$1', \"$9\", $, $0, ? 7");
    }

    #[test]
    fn a_statement_is_prepared_once() {
        let prepared = script("SELECT ?", StatementProtocol::Prepared, &[0]);
        let again = ModelStep { statement: 0, parameters: vec![1] };
        let script = Script { steps: vec![prepared.steps[0].clone(), again], ..prepared };
        let program = Program::of(Engine::MariaDb, &script).unwrap();
        assert_eq!(program.to_prepare, ["SELECT ?"]);
        assert_eq!(program.steps.len(), 2);
        assert_eq!(Program::first_as_text(Engine::MariaDb, &script).unwrap().to_prepare.len(), 0);
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let refused = |script: &Script| Program::of(Engine::MariaDb, script).unwrap_err().to_string();
        let text = |sql, parameters| script(sql, StatementProtocol::Text, parameters);
        let said = |what: &str| format!("the trial's script cannot be run: {what}");
        assert_eq!(
            refused(&text("SELECT ?", &[])),
            said("step 0 has 0 parameters where its statement takes 1")
        );
        assert_eq!(refused(&text("SELECT ?", &[9])), said("step 0 takes what is no variable"));
        assert_eq!(refused(&text("SELECT ?", &[2])), said("step 0 writes what is no number into its text"));
        assert_eq!(refused(&Script { statements: vec![], ..text("", &[]) }), said("step 0 has no statement"));
        assert_eq!(refused(&Script { steps: vec![], ..text("", &[]) }), said("it has no step"));
    }

    proptest! {
        #[test]
        fn whatever_the_text_its_pieces_join(sql in "[a-z?$'\"0-9é ]{0,40}") {
            for engine in Engine::ALL {
                let found = placeholders(engine, &sql);
                let originals: Vec<_> = found.iter().map(|(range, _)| sql[range.clone()].to_owned()).collect();
                let variables: Vec<_> = (0..=usize::from(u16::MAX)).collect();
                let mut originals = originals.into_iter();
                let joined: String = pieces(&sql, found, &variables).into_iter().map(|piece| match piece {
                    Piece::Literal(text) => text,
                    Piece::Number(_) => originals.next().unwrap(),
                }).collect();
                prop_assert_eq!(&joined, &sql);
            }
        }
    }
}
