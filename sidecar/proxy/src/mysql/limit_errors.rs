//! Errors of limits in the words of MySQL and MariaDB, with the proxy's setting.

use ciphertoll_wire::mysql::relay::ServerProduct;

use crate::exceeded::{Exceeded, Timeout};
use crate::group_limits::GroupKind;
use crate::refusal::Refusal;

/// The first version of MySQL that tells an idle client why it is disconnected.
const TELLS_IDLE_CLIENTS: [u32; 3] = [8, 0, 24];

pub(super) fn too_many_clients(kind: GroupKind, name: &str, limit: usize) -> Refusal {
    match kind {
        // ER_USER_LIMIT_REACHED.
        GroupKind::User => {
            let message = format!(
                "User '{name}' has exceeded the 'max-clients' resource of the proxy (limit: {limit})"
            );
            error(1226, *b"42000", message)
        }
        // ER_CON_COUNT_ERROR.
        GroupKind::Database => {
            let message =
                format!("Too many connections to the database '{name}' (max-clients of the proxy: {limit})");
            error(1040, *b"08004", message)
        }
    }
}

/// `None` if the server disconnects a client without a message. `version` is the server's, as in its greeting.
pub(super) fn timed_out(exceeded: Exceeded, version: &[u8]) -> Option<Refusal> {
    let setting = exceeded.setting();
    match exceeded.timeout {
        // ER_QUERY_INTERRUPTED.
        Timeout::Query | Timeout::NotCancelled | Timeout::Transaction => {
            Some(error(1317, *b"70100", format!("Query execution was interrupted ({setting})")))
        }
        // ER_CLIENT_INTERACTION_TIMEOUT.
        Timeout::IdleInTransaction | Timeout::Idle => tells_idle_clients(version).then(|| {
            let message =
                format!("The client was disconnected by the proxy because of inactivity ({setting})");
            error(4031, *b"HY000", message)
        }),
    }
}

fn error(number: u16, sqlstate: [u8; 5], message: String) -> Refusal {
    Refusal { sqlstate, number: Some(number), message }
}

fn tells_idle_clients(version: &[u8]) -> bool {
    let Ok(version) = std::str::from_utf8(version) else { return false };
    let numbers = version.split(|character: char| !character.is_ascii_digit());
    let numbers: Vec<u32> = numbers.take(3).map_while(|number| number.parse().ok()).collect();
    ServerProduct::of(version) == ServerProduct::MySql && numbers.as_slice() >= &TELLS_IDLE_CLIENTS[..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_newer_versions_of_mysql_tell_idle_clients_why_they_are_disconnected() {
        for version in ["8.0.24", "8.0.36-0ubuntu0.22.04.1", "8.4.0", "9.7.0"] {
            assert!(tells_idle_clients(version.as_bytes()), "{version}");
        }
        for version in ["8.0.23", "5.7.44-log", "5.5.5-10.11.6-MariaDB-0+deb12u1", "11.8.2-MariaDB", ""] {
            assert!(!tells_idle_clients(version.as_bytes()), "{version}");
        }
    }
}
