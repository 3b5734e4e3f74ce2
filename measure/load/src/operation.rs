//! An operation of a client, and when an open loop's schedule wanted it.

use std::time::{Duration, Instant};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Operation {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) statements: u64,
    /// How often it was rolled back and retried.
    pub(crate) retries: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DueOperation {
    pub(crate) client: usize,
    pub(crate) intended: Instant,
    /// How late the load process was although the client was free.
    pub(crate) lag: Duration,
}
