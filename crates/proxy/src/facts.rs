//! What is known of a PostgreSQL connection.

use ciphertoll_wire::postgres::relay::ConnectionStatements;
use ciphertoll_wire::postgres::{CancelKey, Parameters, PostgresServerInfo};

/// What the server has said of a connection, and what its sessions have done to it since it was reset.
pub struct Facts {
    /// Its settings, as far as the server reports them.
    pub(crate) parameters: Parameters,
    /// The same as they are after a reset.
    pub(crate) base: Parameters,
    pub(crate) prepared: ConnectionStatements,
    /// For requests to cancel; none where the server gave none.
    pub(crate) cancel: Option<(u32, CancelKey)>,
}

impl Facts {
    /// A connection that has been logged in to.
    pub fn new(info: PostgresServerInfo) -> Self {
        let cancel = Some((info.process_id, info.cancel_key));
        Self { cancel, ..Self::of(info.parameters) }
    }

    /// A connection with these settings.
    pub(crate) fn of(parameters: Parameters) -> Self {
        Self { base: parameters.clone(), parameters, prepared: ConnectionStatements::default(), cancel: None }
    }
}
