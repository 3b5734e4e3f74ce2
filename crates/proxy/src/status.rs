//! How a proxy stands: what it says of itself, and how people read it.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

/// How a proxy stands at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its version.
    pub version: String,
    /// Where the server is.
    pub server: String,
    /// When it was started, in seconds since 1970.
    pub started_unix_s: i64,
    /// Whether it is stopping.
    pub draining: bool,
    /// Clients that there are.
    pub clients: Clients,
    /// How many of each there may be.
    pub limits: Most,
    /// Server connections and who waits for them, by user and database.
    pub pools: Vec<PoolStatus>,
    /// What each thread has.
    pub threads: Vec<ThreadStatus>,
    /// What was counted from the start on.
    pub counts: Counts,
    /// Certificates that were read from files.
    pub certificates: Vec<CertificateStatus>,
}

/// What one thread has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadStatus {
    /// Clients that it serves.
    pub clients: usize,
    /// Server connections, also those that it opens.
    pub server_connections: usize,
}

/// Clients by what they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clients {
    /// They have not said who they are.
    pub logging_in: usize,
    /// They wait for a server connection.
    pub queued: usize,
    /// They have one.
    pub in_session: usize,
    /// They have none, as they are between transactions.
    pub parked: usize,
    /// They ask for another one's end, or take what they were told last.
    pub leaving: usize,
}

/// How many there may be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Most {
    /// Clients.
    pub clients: usize,
    /// Clients that wait for others' connections.
    pub queued: usize,
    /// Server connections.
    pub server_connections: usize,
}

/// The connections of one user to one database.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The role.
    pub user: String,
    /// The database.
    pub database: String,
    /// Connections that a client can have at once.
    pub idle: usize,
    /// Connections that a client has.
    pub busy: usize,
    /// Connections that are as a client between transactions has left them, and its own until somebody needs one.
    pub kept: usize,
    /// Connections that are being reset or checked.
    pub resetting: usize,
    /// Connections that are being opened.
    pub opening: usize,
    /// Clients that wait.
    pub waiting: usize,
    /// The age of the oldest connection.
    pub oldest_s: f64,
}

/// What was counted from the start on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Sessions that have begun.
    pub sessions: u64,
    /// Clients that were refused.
    pub refused: u64,
    /// Server connections that were opened.
    pub opened: u64,
    /// Server connections that could not be opened.
    pub failed: u64,
    /// Server connections that have ended.
    pub closed: u64,
    /// Clients that keep their connections beyond a transaction.
    pub pins: u64,
    /// Kept connections that were reset for somebody else.
    pub steals: u64,
    /// Server connections that have gone from one thread to another.
    pub moves: u64,
    /// Times that settings were read again.
    pub reloads: u64,
    /// Times that they could not be used.
    pub reloads_failed: u64,
}

/// Certificates of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateStatus {
    /// The file.
    pub file: String,
    /// When the first of them is over, in seconds since 1970.
    pub expires_unix_s: i64,
}

impl Status {
    /// What these two threads, or more, have of the same proxy.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.clients.add(other.clients);
        self.threads.extend(other.threads);
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

impl Clients {
    fn add(&mut self, other: Self) {
        self.logging_in += other.logging_in;
        self.queued += other.queued;
        self.in_session += other.in_session;
        self.parked += other.parked;
        self.leaving += other.leaving;
    }

    /// Names as in metrics.
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

    /// Names as in metrics.
    pub fn by_state(&self) -> [(&'static str, usize); 5] {
        let Self { idle, busy, kept, resetting, opening, .. } = *self;
        [("idle", idle), ("busy", busy), ("kept", kept), ("resetting", resetting), ("opening", opening)]
    }
}

/// As a person reads it.
impl Display for Status {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { clients, limits, counts, .. } = self;
        let open: usize = self.pools.iter().flat_map(PoolStatus::by_state).map(|(_, count)| count).sum();
        let stopping = if self.draining { ", stopping" } else { "" };
        writeln!(out, "ciphertoll-proxy {} to {}{stopping}", self.version, self.server)?;
        writeln!(out, "started             {}", date(self.started_unix_s))?;
        writeln!(
            out,
            "clients             {} in session, {} queued, {} logging in, {} leaving; at most {}",
            clients.in_session, clients.queued, clients.logging_in, clients.leaving, limits.clients
        )?;
        if clients.parked > 0 || counts.steals > 0 {
            writeln!(
                out,
                "                    {} between transactions; {} pinned, {} connections handed on since the start",
                clients.parked, counts.pins, counts.steals
            )?;
        }
        writeln!(out, "server connections  {open} of {}", limits.server_connections)?;
        if self.threads.len() > 1 {
            let each = |thread: &ThreadStatus| format!("{}/{}", thread.clients, thread.server_connections);
            let each: Vec<String> = self.threads.iter().map(each).collect();
            let (count, each) = (each.len(), each.join(", "));
            writeln!(
                out,
                "threads             {count}, with clients/connections {each}; {} connections moved",
                counts.moves
            )?;
        }
        writeln!(out, "since the start     {} sessions, {} refused", counts.sessions, counts.refused)?;
        writeln!(
            out,
            "                    {} connections opened, {} not to be had, {} ended",
            counts.opened, counts.failed, counts.closed
        )?;
        writeln!(
            out,
            "                    {} reloads, {} that could not be used",
            counts.reloads, counts.reloads_failed
        )?;
        for CertificateStatus { file, expires_unix_s } in &self.certificates {
            writeln!(out, "certificate         {file} until {}", date(*expires_unix_s))?;
        }
        if self.pools.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        write_pools(&self.pools, out)
    }
}

const COLUMNS: [&str; 9] =
    ["user", "database", "idle", "busy", "kept", "resetting", "opening", "waiting", "oldest"];

fn write_pools(pools: &[PoolStatus], out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let row = |pool: &PoolStatus| {
        let PoolStatus { idle, busy, kept, resetting, opening, waiting, oldest_s, .. } = pool;
        // A line end in a name would be another row.
        let name = |name: &str| name.escape_debug().to_string();
        [
            name(&pool.user),
            name(&pool.database),
            idle.to_string(),
            busy.to_string(),
            kept.to_string(),
            resetting.to_string(),
            opening.to_string(),
            waiting.to_string(),
            format!("{oldest_s:.0} s"),
        ]
    };
    let mut rows = vec![COLUMNS.map(ToOwned::to_owned)];
    rows.extend(pools.iter().map(row));
    let widths: Vec<usize> = (0..COLUMNS.len())
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
            clients: Clients { queued: 2, in_session: 1, ..Clients::default() },
            limits: Most { clients: 10, queued: 5, server_connections: 20 },
            pools: vec![PoolStatus {
                user: "app".to_owned(),
                database: "a\"b\\\n".to_owned(),
                idle: 4,
                busy: 1,
                oldest_s: 61.5,
                ..PoolStatus::default()
            }],
            certificates: vec![CertificateStatus {
                file: "/ca.pem".to_owned(),
                expires_unix_s: 1_800_000_000,
            }],
            ..Status::default()
        }
    }

    #[test]
    fn people_read_a_table() {
        let text = example().to_string();
        assert!(text.contains("server connections  5 of 20\n"), "{text}");
        assert!(text.contains("/ca.pem until 2027-01-15T08:00:00Z\n"), "{text}");
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
    fn what_threads_have_is_added_up() {
        let one = Status { threads: vec![ThreadStatus { clients: 3, server_connections: 5 }], ..example() };
        assert!(!one.to_string().contains("threads"), "{one}");
        let mut other = one.clone();
        other.pools.push(PoolStatus { user: "aaa".to_owned(), idle: 1, ..PoolStatus::default() });
        other.pools[0].oldest_s = 99.0;
        let both = one.and(other);
        assert_eq!((both.clients.queued, both.clients.in_session, both.threads.len()), (4, 2, 2));
        let pools: Vec<_> = both.pools.iter().map(|pool| (pool.user.as_str(), pool.idle)).collect();
        assert_eq!(pools, [("aaa", 1), ("app", 8)]);
        assert!(both.pools[1].oldest_s > 98.0);
        assert!(
            both.to_string().contains("threads             2, with clients/connections 3/5, 3/5; 0 conn")
        );
    }

    #[test]
    fn programs_read_the_same_back() {
        let json = serde_json::to_string(&example()).unwrap();
        assert_eq!(serde_json::from_str::<Status>(&json).unwrap(), example());
    }
}
