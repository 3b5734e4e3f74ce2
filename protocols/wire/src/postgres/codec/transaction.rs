//! `ReadyForQuery`: the server awaits commands.

use crate::postgres::{codec::reader::Reader, error::Error};

/// The transaction status of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TransactionStatus {
    #[default]
    Idle,
    InTransaction,
    /// In a failed transaction, in which all commands except its end are refused.
    Failed,
}

impl TransactionStatus {
    /// Parses the payload of a `ReadyForQuery`.
    pub fn parse(payload: &[u8]) -> Result<Self, Error> {
        let mut reader = Reader::new(payload, "ReadyForQuery");
        let status = match reader.u8()? {
            b'I' => Self::Idle,
            b'T' => Self::InTransaction,
            b'E' => Self::Failed,
            _ => return Err(reader.error("an unknown transaction status")),
        };
        reader.end()?;
        Ok(status)
    }

    /// The protocol's byte.
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}
