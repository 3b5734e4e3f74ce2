//! What a message changes once the server has confirmed it.

use std::sync::Arc;

use crate::postgres::{
    relay::session_follower::statements::{ClientStatement, OnConnection},
    sql::effects::Effects,
};

/// What a message to the server changes, or what its answer is for.
#[derive(Debug)]
pub(crate) enum Note {
    Query(QueryNote),
    /// The client's `Parse`.
    Parse {
        name: Vec<u8>,
        statement: Arc<ClientStatement>,
    },
    /// A `Parse` of the proxy.
    InsertedParse {
        name: Vec<u8>,
        what: OnConnection,
        failure: Failure,
        error_text: ErrorText,
    },
    /// The client's `Close`.
    Close {
        name: Vec<u8>,
    },
    InsertedClose {
        name: Vec<u8>,
    },
    /// Another message of the proxy.
    Inserted,
    Describe(DescribeNote),
    /// A `Bind` of a portal that may have effects, or replaces one that has.
    Bind {
        portal: Vec<u8>,
        statement: Option<Arc<ClientStatement>>,
    },
    /// An `Execute` of a portal that may have effects.
    Execute {
        portal: Vec<u8>,
    },
    /// A `Sync` of the proxy.
    InsertedSync,
    /// A message of the proxy that fails in place of the client's next one, which gets this error.
    Refusal {
        error: Vec<u8>,
    },
}

#[derive(Debug)]
pub(crate) struct QueryNote {
    pub(super) effects: Effects,
    /// How many of the deallocations the server has confirmed.
    pub(super) deallocated: usize,
    /// The error in place of "prepared statement does not exist", or of "current transaction is aborted".
    pub(super) error: Option<Vec<u8>>,
}

/// Who is told that a `Parse` of the proxy has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The client: the error is that of its own next message.
    Answered,
    /// The same, and that message is a `Describe`, whose answer has begun with the types of the parameters.
    OfDescribe,
    /// A `Sync` of the proxy follows.
    Kept,
}

/// In which encoding the server sends an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorText {
    /// In that of the client.
    Client,
    /// Perhaps in another one: the client gets the characters of ASCII only.
    Other,
}

#[derive(Debug)]
pub(crate) struct DescribeNote {
    pub(super) name: Vec<u8>,
    pub(super) statement: Arc<ClientStatement>,
    /// As they arrive.
    pub(super) parameter_types: Option<Vec<u8>>,
    pub(super) purpose: DescribePurpose,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DescribePurpose {
    /// The client has asked.
    Client,
    /// The proxy has asked, to know the statement's shape.
    Learn,
    /// The proxy has prepared the statement again, and compares.
    Verify,
}

impl Note {
    /// Whether the client must not get the answer.
    pub(super) fn is_hidden(&self) -> bool {
        match self {
            Self::InsertedParse { .. } | Self::InsertedClose { .. } | Self::Inserted | Self::InsertedSync => {
                true
            }
            Self::Describe(describe) => describe.purpose != DescribePurpose::Client,
            Self::Query(_)
            | Self::Parse { .. }
            | Self::Close { .. }
            | Self::Bind { .. }
            | Self::Execute { .. }
            | Self::Refusal { .. } => false,
        }
    }
}
