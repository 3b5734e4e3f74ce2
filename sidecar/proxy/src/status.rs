//! The status of a proxy, as JSON and as text.

use std::collections::BTreeMap;
use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::group_status::GroupStatus;

/// The status of a process: that of its only server, or of several with names.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ProxyStatus {
    Several { servers: Vec<Status> },
    One(Box<Status>),
}

/// The status of the connections to one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Of several servers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub version: String,
    pub server: String,
    /// Start time in seconds since 1970.
    pub started_unix_s: i64,
    pub draining: bool,
    /// Whether the console has paused all databases.
    #[serde(default)]
    pub paused: bool,
    /// Databases that the console has paused by name.
    #[serde(default)]
    pub paused_databases: Vec<String>,
    /// Databases whose new clients are refused.
    #[serde(default)]
    pub disabled_databases: Vec<String>,
    pub clients: ClientStates,
    pub limits: StatusLimits,
    /// By user and database.
    pub pools: Vec<PoolStatus>,
    /// Users that have limits.
    #[serde(default)]
    pub users: Vec<GroupStatus>,
    /// Databases that have limits.
    #[serde(default)]
    pub databases: Vec<GroupStatus>,
    pub threads: Vec<ThreadStatus>,
    pub counts: StatusCounters,
    /// Opened server connections by the group of their key exchange; `none` without TLS.
    #[serde(default)]
    pub groups: BTreeMap<String, u64>,
    pub certificates: Vec<CertificateStatus>,
    /// Of users whose password comes from a command.
    #[serde(default)]
    pub passwords: Vec<PasswordStatus>,
    /// Empty unless there are several hosts, a role is needed, or names are watched.
    #[serde(default)]
    pub hosts: Vec<HostStatus>,
}

/// A host of the server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HostStatus {
    pub host: String,
    /// As the server has told it last: `read-write`, `read-only`, `standby`, `not-ready`; `unknown`, or `not-asked` if no
    /// role is needed.
    pub role: String,
    /// Whether it can be used: `usable`, `doubtful`, `unfit`, `unreachable`, `left`, `superseded`,
    /// `untried`.
    pub standing: String,
    /// Time since it has told its role.
    pub confirmed_s: Option<f64>,
    pub timeline: Option<u32>,
    /// How often it was doubted.
    pub doubts: u64,
    pub connections: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatus {
    pub clients: usize,
    /// Including connections that are being opened.
    pub server_connections: usize,
    /// Whether it accepts clients: until the proxy stops or hands them over.
    #[serde(default)]
    pub accepts: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStates {
    /// In their handshake.
    pub logging_in: usize,
    pub queued: usize,
    /// With a server connection.
    pub in_session: usize,
    /// Between transactions, without a server connection.
    pub parked: usize,
    /// With a pending cancel request, or unsent output before they are closed.
    pub leaving: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusLimits {
    pub clients: usize,
    /// Clients that wait for a server connection.
    pub queued: usize,
    pub server_connections: usize,
}

/// The connections of one user to one database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    pub user: String,
    pub database: String,
    pub idle: usize,
    /// Used by a client.
    pub busy: usize,
    /// Kept for a client between transactions, until another client needs one.
    pub kept: usize,
    /// Being reset or checked.
    pub resetting: usize,
    pub opening: usize,
    pub waiting: usize,
    /// The age of the oldest connection.
    pub oldest_s: f64,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusCounters {
    pub sessions: u64,
    pub refused: u64,
    pub opened: u64,
    pub failed: u64,
    pub closed: u64,
    pub pins: u64,
    pub steals: u64,
    pub moves: u64,
    pub reloads: u64,
    pub reloads_failed: u64,
    /// Changes from one host to another.
    #[serde(default)]
    pub failovers: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    pub file: String,
    /// When the first of them expires, in seconds since 1970.
    pub expires_unix_s: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordStatus {
    pub user: String,
    /// Successful runs of its command since the start.
    pub fetched: u64,
    pub failed: u64,
    /// When the current password expires, in seconds since 1970.
    pub expires_unix_s: Option<i64>,
}

impl From<Vec<Status>> for ProxyStatus {
    fn from(mut servers: Vec<Status>) -> Self {
        match servers.pop() {
            Some(only) if servers.is_empty() && only.name.is_none() => Self::One(Box::new(only)),
            last => Self::Several { servers: servers.into_iter().chain(last).collect() },
        }
    }
}

impl Display for ProxyStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::One(status) => status.fmt(out),
            Self::Several { servers } => {
                for (at, status) in servers.iter().enumerate() {
                    let blank = if at == 0 { "" } else { "\n" };
                    writeln!(
                        out,
                        "{blank}server              {}",
                        status.name.as_deref().unwrap_or_default()
                    )?;
                    status.fmt(out)?;
                }
                Ok(())
            }
        }
    }
}

impl Status {
    /// What the console has changed, if anything.
    fn write_operations(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.paused {
            writeln!(out, "paused              all databases")?;
        }
        let list = |names: &[String]| {
            names.iter().map(|name| name.escape_debug().to_string()).collect::<Vec<_>>().join(", ")
        };
        if !self.paused_databases.is_empty() {
            writeln!(out, "paused              {}", list(&self.paused_databases))?;
        }
        if !self.disabled_databases.is_empty() {
            writeln!(out, "disabled            {}", list(&self.disabled_databases))?;
        }
        Ok(())
    }

    /// Adds the status of another worker of the same proxy.
    #[must_use]
    pub fn merge(mut self, other: Self) -> Self {
        self.clients.add(other.clients);
        for (own, other) in self.hosts.iter_mut().zip(&other.hosts) {
            own.connections += other.connections;
        }
        self.threads.extend(other.threads);
        GroupStatus::merge(&mut self.users, other.users);
        GroupStatus::merge(&mut self.databases, other.databases);
        for pool in other.pools {
            match self.pools.iter_mut().find(|own| own.user == pool.user && own.database == pool.database) {
                Some(own) => own.add(&pool),
                None => self.pools.push(pool),
            }
        }
        self.pools.sort_by(|a, b| (&a.user, &a.database).cmp(&(&b.user, &b.database)));
        self
    }
}

impl ClientStates {
    fn add(&mut self, other: Self) {
        self.logging_in += other.logging_in;
        self.queued += other.queued;
        self.in_session += other.in_session;
        self.parked += other.parked;
        self.leaving += other.leaving;
    }

    /// The states by the names that the metrics use.
    pub fn by_state(&self) -> [(&'static str, usize); 5] {
        let Self { logging_in, queued, in_session, parked, leaving } = *self;
        [
            ("logging_in", logging_in),
            ("queued", queued),
            ("in_session", in_session),
            ("parked", parked),
            ("leaving", leaving),
        ]
    }
}

impl PoolStatus {
    fn add(&mut self, other: &Self) {
        self.idle += other.idle;
        self.busy += other.busy;
        self.kept += other.kept;
        self.resetting += other.resetting;
        self.opening += other.opening;
        self.waiting += other.waiting;
        self.oldest_s = self.oldest_s.max(other.oldest_s);
    }

    /// The states by the names that the metrics use.
    pub fn by_state(&self) -> [(&'static str, usize); 5] {
        let Self { idle, busy, kept, resetting, opening, .. } = *self;
        [("idle", idle), ("busy", busy), ("kept", kept), ("resetting", resetting), ("opening", opening)]
    }
}

impl Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, limits, counts, .. } = self;
        let open: usize = self.pools.iter().flat_map(PoolStatus::by_state).map(|(_, count)| count).sum();
        let stopping = if self.draining { ", stopping" } else { "" };
        writeln!(out, "ciphertoll-proxy {} to {}{stopping}", self.version, self.server)?;
        writeln!(out, "started             {}", date(self.started_unix_s))?;
        self.write_operations(out)?;
        writeln!(
            out,
            "clients             {} in session, {} queued, {} logging in, {} leaving; at most {}",
            clients.in_session, clients.queued, clients.logging_in, clients.leaving, limits.clients
        )?;
        if clients.parked > 0 || counts.steals > 0 {
            writeln!(
                out,
                "                    {} parked between transactions; since the start: {} pinned, {} kept connections handed over",
                clients.parked, counts.pins, counts.steals
            )?;
        }
        writeln!(out, "server connections  {open} of {}", limits.server_connections)?;
        for (kind, groups) in [("user", &self.users), ("database", &self.databases)] {
            groups.iter().try_for_each(|group| writeln!(out, "{}", group.line(kind)))?;
        }
        if self.threads.len() > 1 {
            let each = |thread: &ThreadStatus| format!("{}/{}", thread.clients, thread.server_connections);
            let each: Vec<String> = self.threads.iter().map(each).collect();
            let (count, each) = (each.len(), each.join(", "));
            let accepting = self.threads.iter().filter(|thread| thread.accepts).count();
            writeln!(
                out,
                "threads             {count}, with clients/connections {each}; {accepting} accept clients; \
                 {} connections moved",
                counts.moves
            )?;
        }
        writeln!(out, "since the start     {} sessions, {} refused", counts.sessions, counts.refused)?;
        writeln!(
            out,
            "                    {} connections opened, {} failed to open, {} closed",
            counts.opened, counts.failed, counts.closed
        )?;
        writeln!(out, "                    {} reloads, {} failed", counts.reloads, counts.reloads_failed)?;
        if !self.groups.is_empty() {
            let groups = self.groups.iter().map(|(group, count)| format!("{group} {count}"));
            writeln!(out, "key exchanges       {}", groups.collect::<Vec<_>>().join(", "))?;
        }
        for CertificateStatus { file, expires_unix_s } in &self.certificates {
            writeln!(out, "certificate         {file} expires {}", date(*expires_unix_s))?;
        }
        for PasswordStatus { user, fetched, failed, expires_unix_s } in &self.passwords {
            let expires = expires_unix_s.map_or_else(String::new, |at| format!(" expires {},", date(at)));
            writeln!(
                out,
                "password            {}{expires} fetched {fetched} times, {failed} failed",
                user.escape_debug()
            )?;
        }
        for host in &self.hosts {
            let HostStatus { host, role, standing, connections, confirmed_s, .. } = host;
            let confirmed = confirmed_s.map_or_else(String::new, |age| format!(", confirmed {age:.0} s ago"));
            writeln!(
                out,
                "host                {host} {role}, {standing}, {connections} connections{confirmed}"
            )?;
        }
        if self.pools.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        write_pools(&self.pools, out)
    }
}

fn write_pools(pools: &[PoolStatus], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let row = |pool: &PoolStatus| {
        // A line end in a name must not start another row.
        let names = [&pool.user, &pool.database].map(|name| name.escape_debug().to_string());
        let states = pool.by_state().map(|(_, count)| count.to_string());
        [&names[..], &states, &[pool.waiting.to_string(), format!("{:.0} s", pool.oldest_s)]].concat()
    };
    let states = PoolStatus::default().by_state().map(|(state, _)| state);
    let heading = [&["user", "database"][..], &states, &["waiting", "oldest"]].concat();
    let mut rows = vec![heading.iter().map(ToString::to_string).collect::<Vec<_>>()];
    rows.extend(pools.iter().map(row));
    let widths: Vec<usize> = (0..heading.len())
        .map(|at| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or_default())
        .collect();
    for row in rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(at, (cell, width))| match at {
            0 | 1 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        writeln!(out, "{}", cells.collect::<Vec<_>>().join("  "))?;
    }
    Ok(())
}

fn date(unix_s: i64) -> String {
    jiff::Timestamp::from_second(unix_s).map_or_else(|_| unix_s.to_string(), |time| time.to_string())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn example() -> Status {
        Status {
            version: "1.2.3".to_owned(),
            server: "db:5432".to_owned(),
            clients: ClientStates { queued: 2, in_session: 1, ..ClientStates::default() },
            limits: StatusLimits { clients: 10, queued: 5, server_connections: 20 },
            pools: vec![PoolStatus {
                user: "app".to_owned(),
                database: "a\"b\\\n".to_owned(),
                idle: 4,
                busy: 1,
                oldest_s: 61.5,
                ..PoolStatus::default()
            }],
            users: vec![GroupStatus {
                name: "app".to_owned(),
                connections: 5,
                clients: 3,
                pool_size: Some(15),
                ..GroupStatus::default()
            }],
            groups: BTreeMap::from([("p256".to_owned(), 1), ("x25519mlkem768".to_owned(), 6)]),
            certificates: vec![CertificateStatus {
                file: "/ca.pem".to_owned(),
                expires_unix_s: 1_800_000_000,
            }],
            passwords: vec![PasswordStatus {
                user: "app".to_owned(),
                fetched: 3,
                failed: 1,
                expires_unix_s: Some(1_800_000_000),
            }],
            ..Status::default()
        }
    }

    #[test]
    fn the_status_is_shown_as_text() {
        let text = example().to_string();
        assert!(text.contains("server connections  5 of 20\n"), "{text}");
        assert!(
            text.contains("user                app: 5 connections of 15, 3 clients, 0 waiting\n"),
            "{text}"
        );
        assert!(text.contains("key exchanges       p256 1, x25519mlkem768 6\n"), "{text}");
        assert!(text.contains("/ca.pem expires 2027-01-15T08:00:00Z\n"), "{text}");
        let password = "password            app expires 2027-01-15T08:00:00Z, fetched 3 times, 1 failed\n";
        assert!(text.contains(password), "{text}");
        let rows: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(
            rows,
            [
                r#"app   a\"b\\\n     4     1     0          0        0        0    62 s"#,
                "user  database  idle  busy  kept  resetting  opening  waiting  oldest",
            ]
        );
    }

    #[test]
    fn the_load_of_workers_is_added_up() {
        let one = Status {
            threads: vec![ThreadStatus { clients: 3, server_connections: 5, accepts: true }],
            ..example()
        };
        assert!(!one.to_string().contains("threads"), "{one}");
        let mut other = one.clone();
        other.pools.push(PoolStatus { user: "aaa".to_owned(), idle: 1, ..PoolStatus::default() });
        other.pools[0].oldest_s = 99.0;
        let both = one.merge(other);
        assert_eq!(both.users.iter().map(|user| user.connections).collect::<Vec<_>>(), [10]);
        assert_eq!((both.clients.queued, both.clients.in_session, both.threads.len()), (4, 2, 2));
        let pools: Vec<_> = both.pools.iter().map(|pool| (pool.user.as_str(), pool.idle)).collect();
        assert_eq!(pools, [("aaa", 1), ("app", 8)]);
        assert!(both.pools[1].oldest_s > 98.0);
        assert!(
            both.to_string().contains(
                "threads             2, with clients/connections 3/5, 3/5; 2 accept clients; 0 conn"
            )
        );
    }

    #[test]
    fn the_status_is_read_back_from_json() {
        let json = serde_json::to_string(&example()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), example());
    }

    #[test]
    fn one_server_has_no_name_and_several_are_a_list() {
        let named = |name: &str| Status { name: Some(name.to_owned()), ..example() };
        let one = ProxyStatus::from(vec![example()]);
        assert_eq!(serde_json::to_string(&one).unwrap(), serde_json::to_string(&example()).unwrap());
        let two = ProxyStatus::from(vec![named("orders"), named("users")]);
        for status in [one, two.clone(), ProxyStatus::from(vec![named("orders")])] {
            let json = serde_json::to_string(&status).unwrap();
            assert_eq!(serde_json::from_str::<ProxyStatus>(&json).unwrap(), status);
        }
        let text = two.to_string();
        assert!(
            text.starts_with("server              orders\nciphertoll-proxy 1.2.3 to db:5432\n"),
            "{text}"
        );
        assert!(text.contains("\n\nserver              users\n"), "{text}");
    }
}
