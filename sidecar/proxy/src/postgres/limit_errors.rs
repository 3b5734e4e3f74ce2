//! Errors of limits in PostgreSQL's words, with the proxy's setting.

use ciphertoll_wire::postgres::Severity;
use ciphertoll_wire::postgres::server::{Report, write_notice};

use crate::exceeded::{Exceeded, Timeout};
use crate::group_limits::GroupKind;
use crate::refusal::Refusal;

/// `query_canceled`.
const CANCELLED: [u8; 5] = *b"57014";
/// `transaction_timeout`.
const TRANSACTION: [u8; 5] = *b"25P04";
/// `idle_in_transaction_session_timeout`.
const IDLE_IN_TRANSACTION: [u8; 5] = *b"25P03";
/// `idle_session_timeout`.
const IDLE: [u8; 5] = *b"57P05";

pub(super) fn too_many_clients(kind: GroupKind, name: &str, limit: usize) -> Refusal {
    let what = match kind {
        GroupKind::User => "role",
        GroupKind::Database => "database",
    };
    let message = format!("too many connections for {what} \"{name}\" (max-clients of the proxy: {limit})");
    Refusal::new(Refusal::FULL, message)
}

pub(super) fn timed_out(exceeded: Exceeded) -> Refusal {
    let (sqlstate, reason) = match exceeded.timeout {
        Timeout::Query => (CANCELLED, "canceling statement due to statement timeout"),
        Timeout::NotCancelled => {
            (CANCELLED, "terminating connection because the server did not cancel a command")
        }
        Timeout::Transaction => (TRANSACTION, "terminating connection due to transaction timeout"),
        Timeout::IdleInTransaction => {
            (IDLE_IN_TRANSACTION, "terminating connection due to idle-in-transaction timeout")
        }
        Timeout::Idle => (IDLE, "terminating connection due to idle-session timeout"),
    };
    Refusal::new(sqlstate, format!("{reason} ({})", exceeded.setting()))
}

/// The server's error will say that the user has cancelled the command: a warning before it gives the reason.
pub(super) fn write_reason(exceeded: Exceeded, out: &mut Vec<u8>) {
    let message = timed_out(exceeded).message;
    let report = Report { severity: Severity::Warning, sqlstate: CANCELLED, message: message.as_bytes() };
    // Fails only for a message of more than a gigabyte.
    let _ = write_notice(out, &report);
}
