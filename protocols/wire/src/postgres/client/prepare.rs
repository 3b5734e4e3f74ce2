//! The response to `Parse`, optionally `Describe`, and `Sync`.

use crate::{
    postgres::{
        client::exchange::{Exchange, ExchangeEvent, RowHandling},
        codec::column::{Column, parse_parameter_description, parse_row_description},
        error::Error,
    },
    response::Response,
};

/// The description of a prepared statement. Empty without a `Describe`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatementDescription {
    /// The OIDs of the parameter types.
    pub parameter_types: Vec<u32>,
    /// The columns of its result.
    pub columns: Vec<Column>,
}

/// Reads the response to one `Parse`, optionally `Describe` of the statement, and `Sync`. After an error the
/// same holds as for [`super::PostgresResponseReader`].
#[derive(Debug, Clone)]
pub struct PostgresPrepareReader {
    exchange: Exchange,
    /// Whether `ParseComplete` has arrived.
    is_parsed: bool,
    prepared: StatementDescription,
}

impl PostgresPrepareReader {
    /// Reads the response to one `Sync`.
    pub fn new() -> Self {
        // Rows are refused; none can come.
        let exchange = Exchange::new(RowHandling::Whole { limit_bytes: 0 });
        Self { exchange, is_parsed: false, prepared: StatementDescription::default() }
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        *self = Self::new();
    }

    /// Takes whole messages from the front of `input`. The description is returned once.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<StatementDescription>, Error> {
        loop {
            let event = match self.exchange.step(input)? {
                ExchangeEvent::NeedInput => return Ok(Response::NeedInput),
                ExchangeEvent::End if self.is_parsed => {
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

    fn take(&mut self, event: &ExchangeEvent<'_>) -> Result<(), Error> {
        match event {
            ExchangeEvent::Parsed => self.is_parsed = true,
            ExchangeEvent::Parameters(payload) => {
                self.prepared.parameter_types = parse_parameter_description(payload)?;
            }
            ExchangeEvent::Columns(payload) => {
                let fields = parse_row_description(payload)?;
                self.prepared.columns = fields.into_iter().map(Column::from).collect();
            }
            ExchangeEvent::Notice(_) => {}
            _ => {
                return Err(Error::protocol("response to Parse", "an unexpected message"));
            }
        }
        Ok(())
    }
}

impl Default for PostgresPrepareReader {
    fn default() -> Self {
        Self::new()
    }
}
