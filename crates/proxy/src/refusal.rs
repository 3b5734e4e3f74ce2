//! What a client is told that is not let in, or not let go on.

use ciphertoll_net::Error;
use ciphertoll_wire::postgres::server::{Report, write_error};
use ciphertoll_wire::postgres::{self, Severity};
use ciphertoll_wire::{mysql, session};

/// A reason, with its SQL state ("PostgreSQL Error Codes").
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The SQL state.
    pub sqlstate: [u8; 5],
    /// MySQL's number for it, where a server has given one.
    pub number: Option<u16>,
    /// One sentence.
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
    /// `invalid_password`.
    pub const PASSWORD: [u8; 5] = *b"28P01";
    /// `too_many_connections`.
    pub const FULL: [u8; 5] = *b"53300";
    /// `admin_shutdown`.
    pub const STOPPING: [u8; 5] = *b"57P01";

    /// A refusal with this state.
    pub fn new(sqlstate: [u8; 5], message: impl Into<String>) -> Self {
        Self { sqlstate, number: None, message: message.into() }
    }

    /// A server's refusal in its own words; none where it has not refused.
    pub fn of_server(error: &session::Error) -> Option<Self> {
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

    /// Why a client is not let go on that does not keep to its protocol.
    pub fn of_client(error: &session::Error) -> Self {
        let sqlstate = match error {
            session::Error::MySql(mysql::Error::NotPooled { .. }) => Self::UNSUPPORTED,
            _ => Self::PROTOCOL,
        };
        Self::new(sqlstate, error.to_string())
    }

    /// Why a connection could not be opened.
    pub fn not_opened(error: &Error) -> Self {
        let said = if let Error::Protocol(error) = error { Self::of_server(error) } else { None };
        said.unwrap_or_else(|| {
            let reason = Self::reason(error);
            Self::new(Self::NO_SERVER, format!("the proxy cannot connect to the server: {reason}"))
        })
    }

    /// What went wrong, and the setting that is responsible, if there is one.
    pub fn reason(error: &Error) -> String {
        match error {
            Error::Protocol(session::Error::Postgres(postgres::Error::IterationsTooMany { .. })) => {
                format!("{error} (limits.max-scram-iterations)")
            }
            _ => error.to_string(),
        }
    }

    /// Why a client's settings were not made.
    pub fn not_set(error: &session::Error) -> Self {
        Self::of_server(error).unwrap_or_else(|| Self::new(Self::PARAMETER, error.to_string()))
    }

    /// Appends the message that says it; the connection ends after it.
    pub fn write(&self, out: &mut Vec<u8>) {
        // A NUL would end the text for its reader.
        let message = self.message.replace('\0', "?");
        let report =
            Report { severity: Severity::Fatal, sqlstate: self.sqlstate, message: message.as_bytes() };
        // Only a message of a gigabyte could not be written.
        let _ = write_error(out, &report);
    }
}
