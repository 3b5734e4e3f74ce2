//! The tables of `SHOW`, apart from statistics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::num::NonZeroUsize;
use std::time::Instant;

use ciphertoll_net::Peer;
use jiff::{SignedDuration, Timestamp};

use super::table::{ConsoleTable, row};
use crate::console_facts::Facts;
use crate::console_rules::CONSOLE;
use crate::engine::{ClientState, ClientView, ServerState, ServerView};
use crate::operations::Operations;
use crate::upstream::KnownName;

/// The state of the proxy at one moment.
pub(super) struct Snapshot {
    pub(super) facts: std::sync::Arc<Facts>,
    pub(super) operations: std::sync::Arc<Operations>,
    pub(super) clients: Vec<ClientView>,
    pub(super) servers: Vec<ServerView>,
    /// When the console's own sessions began, by their process IDs.
    pub(super) sessions: Vec<(u32, Instant)>,
    pub(super) now: Instant,
}

/// Which rows of `SHOW SOCKETS` are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Sockets {
    All,
    Active,
}

const SOCKET_TYPES: &str = "ssssssisiTTiiississii";
const SOCKET_NAMES: &str = "type user database replication state addr port local_addr local_port connect_time \
    request_time wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id";
const DEBUG_TYPES: &str = "ssssssisiTTiiississiiiiiiiii";
const DEBUG_NAMES: &str = "type user database replication state addr port local_addr local_port connect_time \
    request_time wait wait_us close_needed ptr link remote_pid tls application_name prepared_statements id \
    recv_pos pkt_pos pkt_remain send_pos send_remain pkt_avail send_avail";

/// Not known by the proxy, and not used by PgBouncer's own tools.
const NO_BUFFERS: u32 = 0;

#[derive(Default)]
struct PoolCounts {
    active: u64,
    waiting: u64,
    longest_wait_us: u64,
    servers: BTreeMap<&'static str, u64>,
}

impl Snapshot {
    pub(super) fn pools(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(
            "ssiiiiiiiiiiiiiss",
            "database user cl_active cl_waiting cl_active_cancel_req cl_waiting_cancel_req sv_active \
             sv_active_cancel sv_being_canceled sv_idle sv_used sv_tested sv_login maxwait maxwait_us pool_mode \
             load_balance_hosts",
        );
        for ((database, user), counts) in self.pool_counts() {
            let servers = |state: &str| counts.servers.get(state).copied().unwrap_or_default();
            table.push(row![
                database,
                user,
                counts.active,
                counts.waiting,
                0_u32,
                0_u32,
                servers("active"),
                0_u32,
                servers("being_canceled"),
                servers("idle"),
                0_u32,
                servers("tested"),
                servers("new"),
                counts.longest_wait_us / 1_000_000,
                counts.longest_wait_us % 1_000_000,
                self.facts.pool_mode(),
                Option::<&str>::None,
            ]);
        }
        let (none, sessions) = (0_u32, self.sessions.len());
        table.push(row![
            CONSOLE,
            CONSOLE,
            sessions,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            none,
            "statement",
            Option::<&str>::None,
        ]);
        table
    }

    /// By database and user.
    fn pool_counts(&self) -> BTreeMap<(&str, &str), PoolCounts> {
        let mut pools: BTreeMap<(&str, &str), PoolCounts> = BTreeMap::new();
        for client in &self.clients {
            let Some((user, database)) = &client.login else { continue };
            let pool = pools.entry((database, user)).or_default();
            match client.state {
                ClientState::Active | ClientState::Parked => pool.active += 1,
                ClientState::Waiting => {
                    pool.waiting += 1;
                    pool.longest_wait_us = pool.longest_wait_us.max(self.waited_us(client));
                }
                ClientState::LoggingIn | ClientState::Cancelling | ClientState::Leaving => {}
            }
        }
        for server in &self.servers {
            let pool = pools.entry((&server.database, &server.user)).or_default();
            *pool.servers.entry(state_of_server(server.state)).or_default() += 1;
        }
        pools
    }

    pub(super) fn clients(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(SOCKET_TYPES, SOCKET_NAMES);
        for client in &self.clients {
            let state = match client.state {
                ClientState::Active => "active",
                ClientState::Parked => "idle",
                ClientState::Waiting => "waiting",
                ClientState::Cancelling => "active_cancel_req",
                ClientState::LoggingIn | ClientState::Leaving => continue,
            };
            table.push(self.client_row(client, state));
        }
        self.push_sessions(&mut table);
        table
    }

    fn push_sessions(&self, table: &mut ConsoleTable) {
        for (process_id, began) in &self.sessions {
            let time = wall_time(self.now, *began);
            let (zero, unknown) = (0_u32, Option::<&str>::None);
            table.push(row![
                "C",
                CONSOLE,
                CONSOLE,
                "none",
                "active",
                unknown,
                unknown,
                unknown,
                unknown,
                time.clone(),
                time,
                zero,
                zero,
                zero,
                format!("console-{process_id}"),
                "",
                unknown,
                "",
                "",
                zero,
                *process_id,
            ]);
        }
    }

    fn client_row(&self, client: &ClientView, state: &str) -> Vec<super::table::Cell> {
        let (user, database) =
            client.login.as_ref().map_or(("(nouser)", "(nodb)"), |(user, database)| (user, database));
        let (address, port, process) = match client.peer {
            Some(Peer::Address(address)) => (Some(address.ip().to_string()), Some(address.port()), None),
            Some(Peer::Process { pid, .. }) => {
                (Some("unix".to_owned()), Some(self.facts.port()), u32::try_from(pid).ok())
            }
            None => (None, None, None),
        };
        let is_unix = matches!(client.peer, Some(Peer::Process { .. }));
        let local = if is_unix { Some(("unix".to_owned(), self.facts.port())) } else { self.tcp_listener() };
        let waited = if client.state == ClientState::Waiting { self.waited_us(client) } else { 0 };
        row![
            "C",
            user,
            database,
            client.replication.unwrap_or("none"),
            state,
            address,
            port.map(u32::from),
            local.as_ref().map(|(address, _)| address.as_str()),
            local.as_ref().map(|(_, port)| u32::from(*port)),
            wall_time(self.now, client.connected),
            wall_time(self.now, client.since),
            waited / 1_000_000,
            waited % 1_000_000,
            0_u32,
            client_name(client.index),
            client.server.map(server_name).unwrap_or_default(),
            process.unwrap_or(0),
            client.tls.as_str(),
            client.application_name.as_str(),
            0_u32,
            client.number,
        ]
    }

    fn tcp_listener(&self) -> Option<(String, u16)> {
        let listener = self.facts.tcp_listener()?;
        (!listener.ip().is_unspecified()).then(|| (listener.ip().to_string(), listener.port()))
    }

    pub(super) fn servers(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(SOCKET_TYPES, SOCKET_NAMES);
        for server in &self.servers {
            table.push(self.server_row(server, state_of_server(server.state)));
        }
        table
    }

    fn server_row(&self, server: &ServerView, state: &str) -> Vec<super::table::Cell> {
        let (host, port) = self.facts.host(server.host).unzip();
        let opened = wall_time(self.now, server.opened);
        row![
            "S",
            server.user.as_str(),
            server.database.as_str(),
            server.replication.unwrap_or("none"),
            state,
            host,
            port.map(u32::from),
            Option::<&str>::None,
            Option::<u32>::None,
            opened.clone(),
            opened,
            0_u32,
            0_u32,
            server.must_close,
            server_name(server.index),
            server.client.map(client_name).unwrap_or_default(),
            server.process.unwrap_or(0),
            server.tls.as_str(),
            server.application_name.as_str(),
            0_u32,
            server.number,
        ]
    }

    pub(super) fn sockets(&self, which: Sockets) -> ConsoleTable {
        let mut table = ConsoleTable::new(DEBUG_TYPES, DEBUG_NAMES);
        let mut push = |mut row: Vec<super::table::Cell>| {
            row.extend(std::iter::repeat_n(NO_BUFFERS.into(), DEBUG_TYPES.len() - SOCKET_TYPES.len()));
            table.push(row);
        };
        for client in &self.clients {
            let state = match client.state {
                ClientState::Active => "cl_active",
                _ if which == Sockets::Active => continue,
                ClientState::Parked => "cl_active",
                ClientState::Waiting => "cl_waiting",
                ClientState::LoggingIn => "cl_login",
                ClientState::Cancelling => "cl_active_cancel",
                ClientState::Leaving => continue,
            };
            push(self.client_row(client, state));
        }
        for server in &self.servers {
            let state = match server.state {
                ServerState::Active => "sv_active",
                _ if which == Sockets::Active => continue,
                ServerState::Idle => "sv_idle",
                ServerState::Resetting => "sv_tested",
                ServerState::AwaitingCancel => "sv_being_canceled",
                ServerState::Opening => "sv_login",
            };
            push(self.server_row(server, state));
        }
        table
    }

    /// Configured databases, and other databases that clients have named or operators have changed.
    fn database_names(&self) -> BTreeSet<&str> {
        let of_users = self.facts.users.iter().map(|(_, database)| database.as_str());
        let of_clients = self
            .clients
            .iter()
            .filter_map(|client| client.login.as_ref())
            .map(|(_, database)| database.as_str());
        let of_servers = self.servers.iter().map(|server| server.database.as_str());
        let changed = self.operations.paused_databases().iter().chain(self.operations.disabled_databases());
        of_users.chain(of_clients).chain(of_servers).chain(changed.map(String::as_str)).collect()
    }

    /// Configured users, and all others that have clients or server connections.
    fn user_names(&self) -> BTreeSet<&str> {
        let configured = self.facts.users.iter().map(|(user, _)| user.as_str());
        let logins = self.clients.iter().filter_map(|client| client.login.as_ref());
        let of_servers = self.servers.iter().map(|server| server.user.as_str());
        configured.chain(logins.map(|(user, _)| user.as_str())).chain(of_servers).collect()
    }

    pub(super) fn databases(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(
            "ssissiiiissiiiiii",
            "name host port database force_user pool_size min_pool_size reserve_pool_size server_lifetime pool_mode \
             load_balance_hosts max_connections current_connections max_client_connections \
             current_client_connections paused disabled",
        );
        let limits = &self.facts.limits;
        let (none, zero) = (Option::<&str>::None, 0_u32);
        // Several hosts may have several ports, which the column `port` cannot show.
        let (host, port) = self.facts.host(None).unwrap_or_else(|| (self.facts.hosts_label(), 0));
        for name in self.database_names() {
            let servers = self.servers.iter().filter(|server| server.database == name).count();
            let is_its = |client: &&ClientView| client.login.as_ref().is_some_and(|(_, of)| of == name);
            let own = limits.groups.databases.get(name).copied().unwrap_or_default();
            table.push(row![
                name,
                host.as_str(),
                u32::from(port),
                name,
                none,
                limits.server_connections,
                self.facts.warm(name),
                zero,
                limits.age.as_secs(),
                none,
                self.facts.load_balance(),
                limit_or_zero(own.connections),
                servers,
                limit_or_zero(own.clients),
                self.clients.iter().filter(is_its).count(),
                self.operations.is_paused(name),
                self.operations.is_disabled(name),
            ]);
        }
        table.push(row![
            CONSOLE,
            none,
            u32::from(self.facts.port()),
            CONSOLE,
            CONSOLE,
            2_u32,
            zero,
            zero,
            zero,
            "statement",
            none,
            zero,
            zero,
            zero,
            self.sessions.len(),
            zero,
            zero,
        ]);
        table
    }

    pub(super) fn users(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(
            "ssssiiii",
            "name pool_size reserve_pool_size pool_mode max_user_connections current_connections \
             max_user_client_connections current_client_connections",
        );
        for name in self.user_names() {
            let servers = self.servers.iter().filter(|server| server.user == name).count();
            let is_its = |client: &&ClientView| client.login.as_ref().is_some_and(|(user, _)| user == name);
            let own = self.facts.limits.groups.of_user(name).copied().unwrap_or_default();
            table.push(row![
                name,
                "",
                "",
                Option::<&str>::None,
                limit_or_zero(own.connections),
                servers,
                limit_or_zero(own.clients),
                self.clients.iter().filter(is_its).count(),
            ]);
        }
        table.push(row![CONSOLE, "", "", Option::<&str>::None, 0_u32, 0_u32, 0_u32, self.sessions.len()]);
        table
    }

    pub(super) fn lists(&self, dns_names: usize) -> ConsoleTable {
        let logging_in = self.clients.iter().filter(|client| client.state == ClientState::LoggingIn).count();
        let mut table = ConsoleTable::new("si", "list items");
        for (list, items) in [
            ("databases", self.database_names().len() + 1),
            ("users", self.user_names().len() + 1),
            ("peers", 0),
            ("pools", self.pool_counts().len() + 1),
            ("peer_pools", 0),
            ("free_clients", 0),
            ("used_clients", self.clients.len() + self.sessions.len()),
            ("login_clients", logging_in),
            ("free_servers", 0),
            ("used_servers", self.servers.len()),
            ("dns_names", dns_names),
            ("dns_zones", 0),
            ("dns_queries", 0),
            ("dns_pending", 0),
        ] {
            table.push(row![list, items]);
        }
        table
    }

    /// Without the descriptors and the cancel keys, which belong to the process and to the clients.
    pub(super) fn fds(&self) -> ConsoleTable {
        let mut table = ConsoleTable::new(
            "issssiqisssssbb",
            "fd task user database addr port cancel link client_encoding std_strings datestyle timezone password \
             scram_client_key scram_server_key",
        );
        let none = Option::<&str>::None;
        let mut push = |task: &str,
                        user: Option<&str>,
                        database: Option<&str>,
                        address: Option<String>,
                        port: Option<u16>| {
            table.push(row![
                none,
                task,
                user,
                database,
                address,
                port.map(u32::from),
                none,
                none,
                none,
                none,
                none,
                none,
                none,
                none,
                none,
            ]);
        };
        for client in &self.clients {
            let login = client.login.as_ref();
            let (address, port) = match client.peer {
                Some(Peer::Address(address)) => (address.ip().to_string(), address.port()),
                _ => ("unix".to_owned(), self.facts.port()),
            };
            let (user, database) = login.map(|(user, database)| (user.as_str(), database.as_str())).unzip();
            push("client", user, database, Some(address), Some(port));
        }
        for server in &self.servers {
            let (host, port) = self.facts.host(server.host).unzip();
            push("server", Some(&server.user), Some(&server.database), host, port);
        }
        table
    }

    fn waited_us(&self, client: &ClientView) -> u64 {
        self.now.saturating_duration_since(client.since).as_micros() as u64
    }
}

/// As PgBouncer shows a limit: zero if there is none.
fn limit_or_zero(limit: Option<NonZeroUsize>) -> usize {
    limit.map_or(0, NonZeroUsize::get)
}

pub(super) fn config(facts: &Facts) -> ConsoleTable {
    let mut table = ConsoleTable::new("ssss", "key value default changeable");
    for setting in facts.config() {
        let changeable = if setting.is_changeable { "yes" } else { "no" };
        table.push(row![setting.key, setting.value, setting.default, changeable]);
    }
    table
}

pub(super) fn state(operations: &Operations) -> ConsoleTable {
    let is_paused = operations.is_all_paused();
    let mut table = ConsoleTable::new("ss", "key value");
    for (key, holds) in [("active", !is_paused), ("paused", is_paused), ("suspended", false)] {
        table.push(row![key, if holds { "yes" } else { "no" }]);
    }
    table
}

pub(super) fn version() -> ConsoleTable {
    let mut table = ConsoleTable::new("s", "version");
    table.push(row![concat!("ciphertoll-proxy ", env!("CARGO_PKG_VERSION"), " (console of PgBouncer 1.25)")]);
    table
}

pub(super) fn peers() -> ConsoleTable {
    ConsoleTable::new("isii", "peer_id host port pool_size")
}

pub(super) fn peer_pools() -> ConsoleTable {
    ConsoleTable::new("iiiii", "peer_id cl_active_cancel_req cl_waiting_cancel_req sv_active_cancel sv_login")
}

/// The memory of the process: the proxy does not have PgBouncer's object caches.
pub(super) fn memory() -> ConsoleTable {
    let mut table = ConsoleTable::new("siiii", "name size used free memtotal");
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = resident.and_then(|text| text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    if let Some(kilobytes) = kilobytes {
        table.push(row!["resident", 1024_u32, kilobytes, 0_u32, kilobytes * 1024]);
    }
    table
}

pub(super) fn dns_hosts(names: Vec<KnownName>) -> ConsoleTable {
    let mut table = ConsoleTable::new("sqs", "hostname ttl addrs");
    for KnownName { name, ttl_s, addresses } in names {
        let addresses: Vec<String> = addresses.iter().map(|address| address.ip().to_string()).collect();
        table.push(row![name, ttl_s, addresses.join(",")]);
    }
    table
}

pub(super) fn dns_zones() -> ConsoleTable {
    ConsoleTable::new("sqi", "zonename serial count")
}

fn state_of_server(state: ServerState) -> &'static str {
    match state {
        ServerState::Opening => "new",
        ServerState::Idle => "idle",
        ServerState::Active => "active",
        ServerState::AwaitingCancel => "being_canceled",
        ServerState::Resetting => "tested",
    }
}

/// As the log numbers it: `client=12`.
fn client_name(index: usize) -> String {
    format!("client-{index}")
}

/// As the log numbers it: `server_connection=3`.
fn server_name(index: usize) -> String {
    format!("server-{index}")
}

/// A time of the monotonic clock in PgBouncer's format.
fn wall_time(now: Instant, then: Instant) -> String {
    let ago = SignedDuration::try_from(now.saturating_duration_since(then)).unwrap_or_default();
    let then = Timestamp::now().checked_sub(ago).unwrap_or_default();
    then.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

#[cfg(test)]
mod tests;
