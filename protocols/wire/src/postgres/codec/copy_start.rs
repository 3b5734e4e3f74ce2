//! `CopyInResponse` and `CopyOutResponse`: the start of a COPY.

use crate::postgres::{
    codec::{
        column::ValueFormat,
        reader::{Reader, put_u16},
    },
    error::Error,
};

/// The start of a COPY: `CopyInResponse` if the server waits for data, `CopyOutResponse` if it sends them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyStart {
    pub format: ValueFormat,
    pub columns: u16,
}

impl CopyStart {
    /// Parses the payload of either message.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "start of a COPY");
        let format = ValueFormat::from_code(reader.u8()?.into());
        let format = format.ok_or_else(|| reader.error("an unknown format"))?;
        let columns = reader.u16()?;
        // The columns' formats, which equal the overall format.
        reader.bytes(usize::from(columns) * size_of::<u16>())?;
        reader.end()?;
        Ok(Self { format, columns })
    }

    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.format.code() as u8);
        put_u16(out, self.columns);
        for _ in 0..self.columns {
            put_u16(out, self.format.code());
        }
    }
}
