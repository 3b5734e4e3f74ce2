//! `COM_STMT_PREPARE` Response.

use super::{Capabilities, Error, Response, codec::Reader, err::refuse_err, packet::PacketReader};

const HEADER: u8 = 0x00;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrepareOk {
    /// The server's identifier of the statement, for `COM_STMT_EXECUTE`.
    pub statement_id: u32,
    pub params: u16,
    pub columns: u16,
}

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
        Self { capabilities, packets: PacketReader::answer(), state: State::Head }
    }

    /// Prepares for the next response.
    pub fn reset(&mut self) {
        self.packets = PacketReader::answer();
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
                    let Some(payload) = self.packets.take(input, "answer to PREPARE")? else {
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

impl PrepareOk {
    /// The number of packets that follow: definitions of parameters and columns, and the EOF after each kind.
    pub(super) fn definitions(self, capabilities: Capabilities) -> u32 {
        let ends_in_eof = !capabilities.contains(Capabilities::DEPRECATE_EOF);
        [self.params, self.columns]
            .into_iter()
            .filter(|&count| count > 0)
            .map(|count| u32::from(count) + u32::from(ends_in_eof))
            .sum()
    }

    /// Parses a payload (`COM_STMT_PREPARE_OK`).
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "answer to PREPARE");
        if reader.u8()? != HEADER {
            return Err(reader.error("wrong first byte"));
        }
        let statement_id = reader.u32()?;
        let columns = reader.u16()?;
        let params = reader.u16()?;
        Ok(Self { statement_id, params, columns })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        out.extend_from_slice(&self.statement_id.to_le_bytes());
        out.extend_from_slice(&self.columns.to_le_bytes());
        out.extend_from_slice(&self.params.to_le_bytes());
        out.extend_from_slice(&[0; 3]);
    }
}
