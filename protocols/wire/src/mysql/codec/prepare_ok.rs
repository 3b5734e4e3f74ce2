//! `COM_STMT_PREPARE_OK`: the first packet of the response to `COM_STMT_PREPARE`.

use crate::mysql::{
    codec::{capabilities::Capabilities, reader::Reader},
    error::Error,
};

const HEADER: u8 = 0x00;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrepareOk {
    /// The server's identifier of the statement, for `COM_STMT_EXECUTE`.
    pub statement_id: u32,
    pub params: u16,
    pub columns: u16,
    pub warnings: u16,
}

impl PrepareOk {
    /// The number of packets that follow: definitions of parameters and columns, and the EOF after each kind.
    pub(crate) fn definitions(self, capabilities: Capabilities) -> u32 {
        let ends_in_eof = !capabilities.contains(Capabilities::DEPRECATE_EOF);
        [self.params, self.columns]
            .into_iter()
            .filter(|&count| count > 0)
            .map(|count| u32::from(count) + u32::from(ends_in_eof))
            .sum()
    }

    /// Parses a payload (`COM_STMT_PREPARE_OK`).
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "response to PREPARE");
        if reader.u8()? != HEADER {
            return Err(reader.error("wrong first byte"));
        }
        let statement_id = reader.u32()?;
        let columns = reader.u16()?;
        let params = reader.u16()?;
        // A filler; the first servers of this protocol sent no warnings.
        let warnings = if reader.is_empty() { 0 } else { reader.u8().and_then(|_| reader.u16())? };
        Ok(Self { statement_id, params, columns, warnings })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(HEADER);
        out.extend_from_slice(&self.statement_id.to_le_bytes());
        out.extend_from_slice(&self.columns.to_le_bytes());
        out.extend_from_slice(&self.params.to_le_bytes());
        out.push(0);
        out.extend_from_slice(&self.warnings.to_le_bytes());
    }
}
