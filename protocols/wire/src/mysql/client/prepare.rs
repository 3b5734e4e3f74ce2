//! `COM_STMT_PREPARE` Response.

use crate::{
    mysql::{
        codec::{capabilities::Capabilities, err::refuse_err, packet::PacketReader, prepare_ok::PrepareOk},
        error::Error,
    },
    response::Response,
};

/// Reads one response to `COM_STMT_PREPARE`. After an error the same holds as for
/// [`super::MySqlResponseReader`].
#[derive(Debug, Clone)]
pub struct MySqlPrepareReader {
    capabilities: Capabilities,
    packets: PacketReader,
    state: State,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Head,
    /// Definitions of parameters and columns, and the EOF after each kind. They are skipped.
    Definitions {
        prepared: PrepareOk,
        left: u32,
    },
    Ended(PrepareOk),
    Failed,
}

impl MySqlPrepareReader {
    /// `capabilities`: those negotiated on the connection.
    pub fn new(capabilities: Capabilities) -> Self {
        Self { capabilities, packets: PacketReader::for_response(), state: State::Head }
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        self.packets = PacketReader::for_response();
        self.state = State::Head;
    }

    /// Takes whole packets from the front of `input`.
    pub fn step(&mut self, input: &mut &[u8]) -> Result<Response<PrepareOk>, Error> {
        let response = self.try_step(input);
        if response.is_err() {
            self.state = State::Failed;
        }
        response
    }

    fn try_step(&mut self, input: &mut &[u8]) -> Result<Response<PrepareOk>, Error> {
        loop {
            match self.state {
                State::Definitions { prepared, left: 0 } => self.state = State::Ended(prepared),
                State::Ended(prepared) => return Ok(Response::Done(prepared)),
                State::Failed => return Err(Error::NotReset),
                State::Head | State::Definitions { .. } => {
                    let Some(payload) = self.packets.take(input, "response to PREPARE")? else {
                        return Ok(Response::NeedInput);
                    };
                    refuse_err(payload)?;
                    self.packet(payload)?;
                }
            }
        }
    }

    fn packet(&mut self, payload: &[u8]) -> Result<(), Error> {
        if let State::Definitions { left, .. } = &mut self.state {
            *left = left.saturating_sub(1);
            return Ok(());
        }
        let prepared = PrepareOk::parse(payload)?;
        self.state = State::Definitions { prepared, left: prepared.definitions(self.capabilities) };
        Ok(())
    }
}
