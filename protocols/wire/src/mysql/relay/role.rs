//! The role of a server, as it reports it itself.

use crate::response::Row;

/// What a server says of itself, see [`super::InternalCommand::ask_role`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportedRole {
    ReadWrite,
    /// One of `read_only`, `super_read_only` and `innodb_read_only`.
    ReadOnly,
    /// A member of a cluster that is not in sync with it: Galera, Group Replication.
    NotReady,
    /// It has not reported `read_only`.
    Unknown,
}

/// Of `wsrep_local_state`: the member is in sync with its cluster.
const SYNCED: &str = "4";

impl ReportedRole {
    /// From rows of names and values.
    pub(crate) fn of(rows: &[Row]) -> Self {
        let value = |name: &str| {
            rows.iter().find_map(|row| match row.as_slice() {
                [Some(own), Some(value)] if own.eq_ignore_ascii_case(name.as_bytes()) => {
                    std::str::from_utf8(value).ok()
                }
                _ => None,
            })
        };
        let is = |name: &str, expected: &str| {
            value(name).is_some_and(|value| value.eq_ignore_ascii_case(expected))
        };
        let has_cluster =
            is("wsrep_on", "ON") && value("wsrep_provider").is_some_and(|provider| provider != "none");
        let is_synced = is("wsrep_ready", "ON") && is("wsrep_local_state", SYNCED);
        let is_member = value("group_member_state").is_some_and(|state| state != "OFFLINE");
        // Newer servers have other values than ON, all of which restrict writes.
        let is_off = |name: &str| value(name).is_none() || is(name, "OFF") || is(name, "0");
        if value("read_only").is_none() {
            Self::Unknown
        } else if has_cluster && !is_synced || is_member && !is("group_member_state", "ONLINE") {
            Self::NotReady
        } else if ["read_only", "super_read_only", "innodb_read_only"].into_iter().all(is_off) {
            Self::ReadWrite
        } else {
            Self::ReadOnly
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> ReportedRole {
        let row =
            |(name, value): &(&str, &str)| [name, value].map(|text| Some(text.as_bytes().to_vec())).to_vec();
        ReportedRole::of(&pairs.iter().map(row).collect::<Vec<Row>>())
    }

    #[test]
    fn a_server_that_restricts_writes_in_any_way_is_read_only() {
        assert_eq!(of(&[]), ReportedRole::Unknown);
        assert_eq!(of(&[("read_only", "OFF")]), ReportedRole::ReadWrite);
        for value in ["ON", "1", "NO_LOCK_NO_ADMIN"] {
            assert_eq!(of(&[("read_only", value)]), ReportedRole::ReadOnly);
            for name in ["super_read_only", "innodb_read_only"] {
                assert_eq!(of(&[("read_only", "OFF"), (name, value)]), ReportedRole::ReadOnly);
            }
        }
    }

    #[test]
    fn a_member_of_a_cluster_must_be_in_sync() {
        let galera = [("read_only", "OFF"), ("wsrep_on", "ON"), ("wsrep_provider", "/lib/galera.so")];
        let with = |more: &[(&str, &str)]| of(&[&galera[..], more].concat());
        assert_eq!(with(&[]), ReportedRole::NotReady);
        assert_eq!(with(&[("wsrep_ready", "ON"), ("wsrep_local_state", "4")]), ReportedRole::ReadWrite);
        assert_eq!(with(&[("wsrep_ready", "OFF"), ("wsrep_local_state", "4")]), ReportedRole::NotReady);
        assert_eq!(with(&[("wsrep_ready", "ON"), ("wsrep_local_state", "2")]), ReportedRole::NotReady);
        // MariaDB without a cluster reports the variables, too.
        let alone = [("read_only", "OFF"), ("wsrep_on", "OFF"), ("wsrep_ready", "OFF")];
        assert_eq!(of(&alone), ReportedRole::ReadWrite);
        let group = |state| of(&[("read_only", "OFF"), ("group_member_state", state)]);
        assert_eq!(group("ONLINE"), ReportedRole::ReadWrite);
        assert_eq!(group("RECOVERING"), ReportedRole::NotReady);
        assert_eq!(group("OFFLINE"), ReportedRole::ReadWrite, "it does not take part");
    }
}
