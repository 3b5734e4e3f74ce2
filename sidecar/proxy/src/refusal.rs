//! Errors that are sent to clients.

use ciphertoll_net::Error;
use ciphertoll_wire::postgres::server::{Report, write_error};
use ciphertoll_wire::postgres::{self, Severity};
use ciphertoll_wire::{mysql, session};

/// An error message with its SQL state ("PostgreSQL Error Codes").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub sqlstate: [u8; 5],
    /// MySQL's error number, if a server gave one.
    pub number: Option<u16>,
    pub message: String,
}

impl Refusal {
    /// `protocol_violation`.
    pub const PROTOCOL: [u8; 5] = *b"08P01";
    /// `sqlclient_unable_to_establish_sqlconnection`.
    pub const NO_SERVER: [u8; 5] = *b"08001";
    /// `connection_failure`.
    pub const LOST: [u8; 5] = *b"08006";
    /// `feature_not_supported`.
    pub const UNSUPPORTED: [u8; 5] = *b"0A000";
    /// `invalid_parameter_value`.
    pub const PARAMETER: [u8; 5] = *b"22023";
    /// `invalid_authorization_specification`.
    pub const WHO: [u8; 5] = *b"28000";
    /// The setting is unknown.
    pub const NO_PARAMETER: [u8; 5] = *b"42704";
    /// `invalid_password`.
    pub const PASSWORD: [u8; 5] = *b"28P01";
    /// `too_many_connections`.
    pub const FULL: [u8; 5] = *b"53300";
    /// `admin_shutdown`.
    pub const STOPPING: [u8; 5] = *b"57P01";

    pub fn new(sqlstate: [u8; 5], message: impl Into<String>) -> Self {
        Self { sqlstate, number: None, message: message.into() }
    }

    pub fn stopping() -> Self {
        Self::new(Self::STOPPING, "the proxy is shutting down")
    }

    /// An error of the server in its own words; `None` for any other error.
    pub fn from_server(error: &session::Error) -> Option<Self> {
        match error {
            session::Error::Postgres(postgres::Error::Server { sqlstate, message, .. }) => {
                Some(Self::new(<[u8; 5]>::try_from(sqlstate.as_bytes()).ok()?, message.clone()))
            }
            session::Error::MySql(mysql::Error::Server { code, sql_state, message }) => {
                let sqlstate = <[u8; 5]>::try_from(sql_state.as_bytes()).ok()?;
                Some(Self { number: Some(*code), ..Self::new(sqlstate, message.clone()) })
            }
            _ => None,
        }
    }

    pub fn from_client(error: &session::Error) -> Self {
        let sqlstate = match error {
            session::Error::MySql(mysql::Error::NotPooled { .. }) => Self::UNSUPPORTED,
            _ => Self::PROTOCOL,
        };
        Self::new(sqlstate, error.to_string())
    }

    pub fn connect_failed(error: &Error) -> Self {
        let said = if let Error::Protocol(error) = error { Self::from_server(error) } else { None };
        said.unwrap_or_else(|| {
            let reason = match error {
                // The reason may have words of a command.
                Error::NoPassword { user, .. } => format!("no password for {user}: the log has the reason"),
                error => Self::reason(error),
            };
            Self::new(Self::NO_SERVER, format!("the proxy cannot connect to the server: {reason}"))
        })
    }

    /// The error, and the setting that can avoid it, if there is one.
    pub fn reason(error: &Error) -> String {
        match error {
            Error::Protocol(session::Error::Postgres(postgres::Error::IterationsTooMany { .. })) => {
                format!("{error} (limits.max-scram-iterations)")
            }
            _ => error.to_string(),
        }
    }

    pub fn settings_failed(error: &session::Error) -> Self {
        Self::from_server(error).unwrap_or_else(|| Self::new(Self::PARAMETER, error.to_string()))
    }

    /// Appends the error message. The connection ends after it.
    pub fn write(&self, out: &mut Vec<u8>) {
        // A NUL would end the text.
        let message = self.message.replace('\0', "?");
        let report =
            Report { severity: Severity::Fatal, sqlstate: self.sqlstate, message: message.as_bytes() };
        // Fails only for a message of more than a gigabyte.
        let _ = write_error(out, &report);
    }
}
