//! The state of a PostgreSQL connection.

use ciphertoll_wire::postgres::relay::ConnectionStatements;
use ciphertoll_wire::postgres::{CancelKey, Parameters, PostgresServerInfo};

/// What the server has reported about a connection, and what its sessions have done to it since its reset.
pub struct BackendState {
    /// Settings that the server reports.
    pub(crate) parameters: Parameters,
    /// Their values after a reset.
    pub(crate) base: Parameters,
    pub(crate) prepared: ConnectionStatements,
    /// For cancel requests.
    pub(crate) cancel: Option<(u32, CancelKey)>,
}

impl BackendState {
    pub fn new(info: PostgresServerInfo) -> Self {
        let cancel = Some((info.process_id, info.cancel_key));
        Self { cancel, ..Self::of(info.parameters) }
    }

    pub(crate) fn of(parameters: Parameters) -> Self {
        Self { base: parameters.clone(), parameters, prepared: ConnectionStatements::default(), cancel: None }
    }
}
