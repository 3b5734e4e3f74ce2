//! The answer to `Parse`, perhaps `Describe`, and `Sync`.

use super::{
    Column, Error, Response,
    column::{parse_parameter_description, parse_row_description},
    exchange::{Event, Exchange, Rows},
};

/// A statement that the server has prepared. Without a `Describe` nothing is known of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prepared {
    /// The types of its parameters.
    pub parameter_types: Vec<u32>,
    /// The columns it returns.
    pub columns: Vec<Column>,
}

/// Reads one answer to `Parse`, perhaps `Describe` of the statement, and `Sync`.
///
/// What holds for [`super::ResponseReader`] after its end holds here too.
#[derive(Debug, Clone)]
pub struct PrepareReader {
    exchange: Exchange,
    parsed: Parsed,
    prepared: Prepared,
}

/// Whether the server has said that the statement is prepared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parsed {
    NotYet,
    Yes,
}

impl PrepareReader {
    /// Reads the answer to one `Sync`.
    pub fn new() -> Self {
        // No rows come; if they do, they are refused.
        let exchange = Exchange::new(Rows::Whole { limit_bytes: 0 }, 1);
        Self { exchange, parsed: Parsed::NotYet, prepared: Prepared::default() }
    }

    /// Makes it ready for the next command's answer.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Takes whole messages from the front of `input`; what is known of the statement is handed over once.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<Prepared>, Error> {
        loop {
            let event = match self.exchange.step(input)? {
                Event::NeedInput => return Ok(Response::NeedInput),
                Event::End if self.parsed == Parsed::Yes => {
                    return Ok(Response::Done(std::mem::take(&mut self.prepared)));
                }
                event => self.take(&event),
            };
            if event.is_err() {
                self.exchange.fail();
            }
            event?;
        }
    }

    fn take(&mut self, event: &Event<'_>) -> Result<(), Error> {
        match event {
            Event::Parsed => self.parsed = Parsed::Yes,
            Event::Parameters(payload) => {
                self.prepared.parameter_types = parse_parameter_description(payload)?;
            }
            Event::Columns(payload) => {
                let fields = parse_row_description(payload)?;
                self.prepared.columns = fields.into_iter().map(Column::from).collect();
            }
            Event::Notice(_) => {}
            _ => {
                return Err(Error::Protocol {
                    message: "answer to Parse",
                    reason: "a message that does not belong there",
                });
            }
        }
        Ok(())
    }
}

impl Default for PrepareReader {
    fn default() -> Self {
        Self::new()
    }
}
