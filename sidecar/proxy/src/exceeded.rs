//! Time limits that a client has exceeded.

use std::time::Duration;

use crate::duration::HumanDuration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timeout {
    /// A command; the server is asked to cancel it.
    Query,
    /// The server has not cancelled a command in time.
    NotCancelled,
    Transaction,
    IdleInTransaction,
    Idle,
}

/// A time limit, and its setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub timeout: Timeout,
    pub limit: Duration,
}

impl Timeout {
    /// Its label in the metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::NotCancelled => "not_cancelled",
            Self::Transaction => "transaction",
            Self::IdleInTransaction => "idle_transaction",
            Self::Idle => "client_idle",
        }
    }

    fn setting(self) -> &'static str {
        match self {
            Self::Query | Self::NotCancelled => "query-time",
            Self::Transaction => "transaction-time",
            Self::IdleInTransaction => "idle-transaction-time",
            Self::Idle => "client-idle-time",
        }
    }
}

impl Exceeded {
    /// The setting and its value, for messages.
    pub fn setting(self) -> String {
        format!("{} of the proxy: {}", self.timeout.setting(), HumanDuration::from(self.limit))
    }
}
