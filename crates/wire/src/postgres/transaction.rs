//! `ReadyForQuery`: the server awaits commands, in a transaction or not.

use super::{Error, codec::Reader};

/// Where the session stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TransactionStatus {
    /// In no transaction.
    #[default]
    Idle,
    /// In a transaction.
    InTransaction,
    /// In a transaction that an error has doomed; all but its end is refused.
    Failed,
}

impl TransactionStatus {
    /// Reads the payload of a `ReadyForQuery`.
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

    /// The byte that stands for it.
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::InTransaction => b'T',
            Self::Failed => b'E',
        }
    }
}
