//! What is known of a server connection, whichever client uses it.

use ciphertoll_wire::postgres::relay::{ConnectionStatements, PipelinedCommit};
use ciphertoll_wire::postgres::server::{
    Authentication, write_authentication, write_backend_key_data, write_parameter_status,
    write_ready_for_query,
};
use ciphertoll_wire::postgres::sql::Remains;
use ciphertoll_wire::postgres::{CancelKey, Error, Parameters, PostgresServerInfo, TransactionStatus};

use crate::hosts::ServerRole;
use crate::protocol::CancelToken;

/// The length of `BackendKeyData` and `ReadyForQuery`.
pub(super) const READY_BYTES: usize = 13 + 6;
/// Settings that the server reports and that clients cannot change.
const FIXED: [&str; 6] = [
    "server_version",
    "server_encoding",
    "is_superuser",
    "session_authorization",
    "integer_datetimes",
    "in_hot_standby",
];

/// Whether clients cannot change a setting that the server reports.
pub(super) fn is_fixed(name: &[u8]) -> bool {
    FIXED.iter().any(|fixed| name.eq_ignore_ascii_case(fixed.as_bytes()))
}

/// What the server has reported about a connection, and what its sessions have done to it since its reset.
pub struct BackendState {
    /// Settings that the server reports.
    pub(crate) parameters: Parameters,
    /// Their values after a reset.
    pub(crate) base: Parameters,
    pub(crate) prepared: ConnectionStatements,
    /// What sessions may have left since the last reset, beside prepared statements and reported settings.
    pub(crate) remains: Remains,
    /// The custom settings that exist on the connection: see `StartupRequest::custom_settings`.
    pub(crate) custom_settings: u64,
    /// Whether a session may have used temporary tables. Then `temp_buffers` cannot be set any more.
    pub(super) may_have_temporary: bool,
    /// Whether `base` has changed since the protocol was told.
    pub(super) has_new_base: bool,
    pub(super) commit: PipelinedCommit,
    /// For cancel requests.
    pub(crate) cancel: Option<(u32, CancelKey)>,
    pub(super) greeting: Greeting,
    /// What the server has told when it was asked last.
    pub(super) role: Option<ServerRole>,
}

/// The part of a greeting that depends on the reported settings only.
#[derive(Default)]
pub(super) struct Greeting {
    pub(super) bytes: Vec<u8>,
    /// Of the settings in it.
    pub(super) digest: u64,
}

impl Greeting {
    pub(super) fn new(parameters: &Parameters) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        write_authentication(&mut bytes, &Authentication::Ok)?;
        for (name, value) in parameters.iter() {
            write_parameter_status(&mut bytes, name, value)?;
        }
        Ok(Self { bytes, digest: parameters.digest() })
    }

    /// Appends the end of a login.
    pub(super) fn write(&self, cancel_token: CancelToken, out: &mut Vec<u8>) -> Result<(), Error> {
        out.reserve(self.bytes.len() + READY_BYTES);
        out.extend_from_slice(&self.bytes);
        write_backend_key_data(out, cancel_token.process_id, &cancel_token.secret)?;
        write_ready_for_query(out, TransactionStatus::Idle);
        Ok(())
    }
}

impl BackendState {
    pub fn new(info: PostgresServerInfo) -> Self {
        let cancel = Some((info.process_id, info.cancel_key));
        Self { cancel, commit: info.commit, ..Self::of(info.parameters) }
    }

    pub(crate) fn of(parameters: Parameters) -> Self {
        Self {
            base: parameters.clone(),
            commit: PipelinedCommit::default(),
            parameters,
            prepared: ConnectionStatements::default(),
            remains: Remains::Nothing,
            custom_settings: 0,
            may_have_temporary: false,
            has_new_base: false,
            cancel: None,
            greeting: Greeting::default(),
            role: None,
        }
    }

    /// Settings are about to be set. Those that the server does not report cannot be set back.
    pub(super) fn record_set<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) {
        if names.into_iter().any(|name| self.base.get(name.as_bytes()).is_none()) {
            self.remains = Remains::Anything;
        }
    }
}

/// How a session has left its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResetContext {
    pub(crate) transaction: TransactionStatus,
    pub(crate) remains: Remains,
    /// Whether a time limit of the session may cancel the reset. Another client's command must not be behind it.
    pub(crate) has_short_timeout: bool,
}
