//! Counters, and their output in the Prometheus text format (0.0.4).

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ciphertoll_net::{Error, Fault};

use self::passwords::PasswordMetrics;
use crate::group_status::GroupStatus;
use crate::log::Log;
use crate::operations::{KILLED, PAUSED, RECONNECT};
use crate::status::Status;

const PREFIX: &str = "ciphertoll_proxy_";
const WAITS: [Duration; 5] = [
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(100),
    Duration::from_secs(1),
    Duration::from_secs(10),
];
/// SQL states come from servers, too. Any further ones are counted together.
const MAX_LABELS: usize = 64;
const OTHER: &str = "other";

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn increment(&self) {
        self.add(1);
    }

    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Counters by the value of one label.
#[derive(Debug, Default)]
pub struct LabelledCounter(Mutex<BTreeMap<String, u64>>);

impl LabelledCounter {
    pub fn increment(&self, label: &str) {
        // The counters are valid even if a thread panicked while it held the lock.
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let label = if counts.len() < MAX_LABELS || counts.contains_key(label) { label } else { OTHER };
        *counts.entry(label.to_owned()).or_default() += 1;
    }

    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn total(&self) -> u64 {
        self.counts().values().sum()
    }
}

#[derive(Debug, Default)]
pub struct WaitHistogram {
    /// The last bucket has no upper bound.
    buckets: [Counter; WAITS.len() + 1],
    sum_us: Counter,
}

impl WaitHistogram {
    pub fn add(&self, waited: Duration) {
        let bucket = WAITS.iter().position(|end| waited <= *end).unwrap_or(WAITS.len());
        self.buckets[bucket].increment();
        self.sum_us.add(waited.as_micros() as u64);
    }

    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }
}

#[derive(Debug, Default)]
pub struct Metrics {
    pub clients: Counter,
    pub sessions: Counter,
    /// Time from login, or from the first command of a transaction, to a server connection.
    pub waits: WaitHistogram,
    pub refusals: LabelledCounter,
    /// Clients whose user was looked up, by outcome.
    pub auth_queries: LabelledCounter,
    pub opened: Counter,
    /// Opened server connections by the group of their key exchange; `none` without TLS.
    pub groups: LabelledCounter,
    pub failed: LabelledCounter,
    /// Server connections that have ended, by reason.
    pub closed: LabelledCounter,
    pub resets: Counter,
    /// Connections that went to another client without a reset, because their session had left nothing.
    pub skipped_resets: Counter,
    pub pins: LabelledCounter,
    /// Kept connections that were handed to another client.
    pub steals: Counter,
    /// Server connections that have moved to another worker.
    pub moves: Counter,
    pub checks: Counter,
    pub cancels_sent: Counter,
    /// Cancel requests for a command that waited for a connection.
    pub cancels_waiting: Counter,
    /// Cancel requests with a wrong key or without a command to cancel.
    pub cancels_dropped: Counter,
    /// Cancel requests that did not reach the server.
    pub cancels_failed: Counter,
    /// Time limits that clients have exceeded, by limit.
    pub timeouts: LabelledCounter,
    pub bytes_to_server: Counter,
    pub bytes_to_client: Counter,
    pub reloads: Counter,
    pub reloads_failed: Counter,
    /// Replaced certificates that are in use.
    pub files_applied: Counter,
    /// Replaced certificates that cannot be used.
    pub files_failed: Counter,
    pub passwords: PasswordMetrics,
}

impl Metrics {
    pub fn connect_failed(&self, error: &Error) {
        self.failed.increment(match (error, error.fault()) {
            (Error::TimedOut { .. }, _) => "timeout",
            (Error::Unresolved { .. }, _) => "name",
            (Error::NoPassword { .. }, _) => "password",
            (Error::Protocol(_), _) => "refused",
            (_, Fault::Tls) => "tls",
            (_, Fault::Host) => "host",
            (_, Fault::Server) => "unreachable",
            (_, Fault::Caller) => "settings",
        });
    }

    /// Counts a closed server connection by the reason in the log.
    pub fn closed(&self, reason: &str) {
        let known = REASONS.iter().find(|(text, _)| reason.starts_with(text));
        self.closed.increment(known.map_or("unknown_state", |(_, label)| label));
    }
}

/// The reason for closing a connection that keeps a command such as `DROP DATABASE` from running.
pub(crate) const EXCLUSIVE_ACCESS: &str = "a command needs exclusive access to the database";
/// The reason for closing a connection that serves one client only.
pub(crate) const DEDICATED_CLIENT_LEFT: &str = "its replication client has left";

/// Reasons in the log and their labels. Any other reason describes an unknown state of a session.
const REASONS: [(&str, &str); 19] = [
    ("it was idle for too long", "idle"),
    ("it is old", "age"),
    ("makes room for another", "evicted"),
    (EXCLUSIVE_ACCESS, "vacated"),
    ("the proxy is stopping", "stopping"),
    ("a request to cancel", "cancel"),
    ("it was not reset in time", "reset"),
    ("it did not answer in time", "check"),
    ("it was opened with old settings", "reloaded"),
    ("the limit of server connections was lowered", "surplus"),
    (DEDICATED_CLIENT_LEFT, "replication"),
    (PAUSED, "paused"),
    (RECONNECT, "reconnect"),
    (KILLED, "killed"),
    ("its server does not have the role", "role"),
    ("another server has taken the role", "role"),
    ("its server does not tell its role", "role"),
    ("its server does not answer", "role"),
    ("its address was removed", "address"),
];

/// The metrics of servers. Those of several have their server's name as a label.
pub(crate) fn render(servers: &[(&Metrics, &Status)]) -> String {
    let mut text = Exposition::default();
    for (metrics, status) in servers {
        text.server.clone_from(&status.name);
        write_server(&mut text, metrics, status);
    }
    // Metrics of the whole process.
    text.server = None;
    if let Some((_, status)) = servers.first() {
        text.family("build_info", "gauge", "Always 1.");
        text.sample(&[("version", &status.version)], 1);
        text.gauge(
            "start_time_seconds",
            "Start time of the proxy in seconds since 1970.",
            status.started_unix_s,
        );
    }
    text.counter(
        "log_lines_dropped_total",
        "Log lines dropped because stderr was not read in time.",
        Log::dropped(),
    );
    text.finish()
}

fn write_server(text: &mut Exposition, metrics: &Metrics, status: &Status) {
    text.gauge("draining", "Whether the proxy is stopping.", u8::from(status.draining));
    let paused = usize::from(status.paused) + status.paused_databases.len();
    text.gauge("pauses", "Pauses by the console in force: of all databases, and of single ones.", paused);
    text.gauge(
        "disabled_databases",
        "Databases whose new clients are refused, by the console.",
        status.disabled_databases.len(),
    );
    text.gauge("threads", "Number of worker threads.", status.threads.len());
    write_clients(text, metrics, status);
    write_servers(text, metrics, status);
    write_groups(text, status);
    let reloads = [("done", &metrics.reloads), ("failed", &metrics.reloads_failed)];
    text.counters("reloads_total", "Reloads of the settings.", "outcome", values(reloads));
    let files = [("done", &metrics.files_applied), ("failed", &metrics.files_failed)];
    text.counters(
        "certificate_reloads_total",
        "Certificates that were replaced on disk, see the option watch-files.",
        "outcome",
        values(files),
    );
    write_passwords(text, status);
    text.family(
        "certificate_expiry_timestamp_seconds",
        "gauge",
        "Time when the first certificate of a file expires, in seconds since 1970.",
    );
    for certificate in &status.certificates {
        text.sample(&[("file", &certificate.file)], certificate.expires_unix_s);
    }
}

fn write_clients(text: &mut Exposition, metrics: &Metrics, status: &Status) {
    text.family("clients", "gauge", "Clients by state.");
    for (state, count) in status.clients.by_state() {
        text.sample(&[("state", &state)], count);
    }
    text.gauge("clients_max", "Maximum number of clients.", status.limits.clients);
    text.counter("clients_total", "Clients that have connected.", metrics.clients.get());
    text.counter("sessions_total", "Sessions that have started.", metrics.sessions.get());
    text.counters("refusals_total", "Refused clients by SQL state.", "sqlstate", metrics.refusals.counts());
    text.counters(
        "auth_queries_total",
        "Clients whose user was looked up, by outcome.",
        "outcome",
        metrics.auth_queries.counts(),
    );
    text.family("queue_wait_seconds", "histogram", "Time that clients have waited for a server connection.");
    let mut below = 0;
    for (bucket, end) in metrics.waits.buckets.iter().zip(WAITS) {
        below += bucket.get();
        text.named("queue_wait_seconds_bucket", &[("le", &end.as_secs_f64())], below);
    }
    let count = metrics.waits.count();
    text.named("queue_wait_seconds_bucket", &[("le", &"+Inf")], count);
    text.named("queue_wait_seconds_sum", &[], metrics.waits.sum_us.get() as f64 / 1e6);
    text.named("queue_wait_seconds_count", &[], count);
    let bytes = [("to_server", &metrics.bytes_to_server), ("to_client", &metrics.bytes_to_client)];
    text.counters("bytes_total", "Bytes passed between clients and server.", "direction", values(bytes));
    let cancels = [
        ("sent", &metrics.cancels_sent),
        ("waiting", &metrics.cancels_waiting),
        ("dropped", &metrics.cancels_dropped),
        ("failed", &metrics.cancels_failed),
    ];
    text.counters("cancels_total", "Cancel requests.", "outcome", values(cancels));
    text.counters(
        "timeouts_total",
        "Exceeded time limits of sessions, by limit.",
        "kind",
        metrics.timeouts.counts(),
    );
}

fn write_servers(text: &mut Exposition, metrics: &Metrics, status: &Status) {
    text.family("server_connections", "gauge", "Server connections by user, database and state.");
    for pool in &status.pools {
        for (state, count) in pool.by_state() {
            let labels: [(&str, &dyn Display); 3] =
                [("user", &pool.user), ("database", &pool.database), ("state", &state)];
            text.sample(&labels, count);
        }
    }
    text.gauge(
        "server_connections_max",
        "Maximum number of server connections.",
        status.limits.server_connections,
    );
    text.counter("connects_total", "Opened server connections.", metrics.opened.get());
    text.counters(
        "connect_groups_total",
        "Opened server connections by key exchange group.",
        "group",
        metrics.groups.counts(),
    );
    text.counters("connect_failures_total", "Failed connects by reason.", "reason", metrics.failed.counts());
    text.counters(
        "closed_total",
        "Server connections that have ended, by reason.",
        "reason",
        metrics.closed.counts(),
    );
    text.counter("resets_total", "Resets of server connections.", metrics.resets.get());
    text.counter(
        "skipped_resets_total",
        "Connections handed on without a reset, see the option reset.",
        metrics.skipped_resets.get(),
    );
    text.counters(
        "pins_total",
        "Clients pinned to their server connection, by reason.",
        "reason",
        metrics.pins.counts(),
    );
    text.counter(
        "steals_total",
        "Kept server connections that were handed to another client.",
        metrics.steals.get(),
    );
    text.counter("moves_total", "Server connections moved from one thread to another.", metrics.moves.get());
    // Dashboards may have it.
    text.counter("client_moves_total", "Always 0: a client stays with its thread.", 0);
    write_hosts(text, status);
    text.counter("checks_total", "Health checks of idle server connections.", metrics.checks.get());
}

/// Users and databases that have limits.
fn write_groups(text: &mut Exposition, status: &Status) {
    let families: [(&'static str, &'static str, &str, GroupValue); 5] = [
        ("user_connections", "database_connections", "Server connections", |group| Some(group.connections)),
        (
            "user_connections_max",
            "database_connections_max",
            "Maximum number of server connections",
            |group| group.pool_size,
        ),
        ("user_clients", "database_clients", "Clients", |group| Some(group.clients)),
        ("user_clients_max", "database_clients_max", "Maximum number of clients", |group| group.max_clients),
        ("user_waiting", "database_waiting", "Clients that wait for a server connection", |group| {
            Some(group.waiting)
        }),
    ];
    for (of_user, of_database, help, value) in families {
        for (kind, name, groups) in
            [("user", of_user, &status.users), ("database", of_database, &status.databases)]
        {
            text.family(name, "gauge", &format!("{help} of each {kind} that has limits."));
            for group in groups {
                if let Some(value) = value(group) {
                    text.sample(&[(kind, &group.name)], value);
                }
            }
        }
    }
}

/// Metrics of users whose password comes from a command.
fn write_passwords(text: &mut Exposition, status: &Status) {
    text.family("password_fetches_total", "counter", "Runs of a password-command by user and result.");
    for password in &status.passwords {
        for (result, count) in [("done", password.fetched), ("failed", password.failed)] {
            text.sample(&[("user", &password.user), ("result", &result)], count);
        }
    }
    text.family(
        "password_expiry_timestamp_seconds",
        "gauge",
        "Time when the password of a user expires, in seconds since 1970.",
    );
    for password in &status.passwords {
        if let Some(at) = password.expires_unix_s {
            text.sample(&[("user", &password.user)], at);
        }
    }
}

type GroupValue = fn(&GroupStatus) -> Option<usize>;

/// Writes samples of hosts only if there are several, if a role is needed, or if names are watched.
fn write_hosts(text: &mut Exposition, status: &Status) {
    text.counter("failovers_total", "Changes from one host to another.", status.counts.failovers);
    text.family("host_info", "gauge", "Always 1: the role and the standing of each host.");
    for host in &status.hosts {
        text.sample(&[("host", &host.host), ("role", &host.role), ("standing", &host.standing)], 1);
    }
    text.family("host_usable", "gauge", "Whether a host can be used.");
    for host in &status.hosts {
        text.sample(&[("host", &host.host)], u8::from(host.standing == "usable"));
    }
    text.family("host_connections", "gauge", "Open server connections by host.");
    for host in &status.hosts {
        text.sample(&[("host", &host.host)], host.connections);
    }
    text.family("host_confirmed_seconds", "gauge", "Time since a host has confirmed its role.");
    for host in &status.hosts {
        if let Some(age) = host.confirmed_s {
            text.sample(&[("host", &host.host)], age);
        }
    }
    text.family("host_doubts_total", "counter", "Events after which a host had to confirm its role.");
    for host in &status.hosts {
        text.sample(&[("host", &host.host)], host.doubts);
    }
}

fn values<const N: usize>(counters: [(&'static str, &Counter); N]) -> [(&'static str, u64); N] {
    counters.map(|(label, counter)| (label, counter.get()))
}

/// The output by metric families: the samples of a family follow each other.
#[derive(Default)]
struct Exposition {
    families: Vec<Family>,
    /// The family of the next samples.
    current: usize,
    /// The server of the next samples, if there are several.
    server: Option<String>,
}

struct Family {
    name: &'static str,
    text: String,
}

impl Exposition {
    fn finish(self) -> String {
        self.families.into_iter().map(|family| family.text).collect()
    }

    fn gauge(&mut self, name: &'static str, help: &str, value: impl Display) {
        self.family(name, "gauge", help);
        self.sample(&[], value);
    }

    fn counter(&mut self, name: &'static str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(&[], value);
    }

    fn counters<L: Display>(
        &mut self,
        name: &'static str,
        help: &str,
        label: &str,
        values: impl IntoIterator<Item = (L, u64)>,
    ) {
        self.family(name, "counter", help);
        for (value, count) in values {
            self.sample(&[(label, &value)], count);
        }
    }

    fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        let known = self.families.iter().position(|family| family.name == name);
        self.current = known.unwrap_or_else(|| {
            let text = format!("# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}\n");
            self.families.push(Family { name, text });
            self.families.len() - 1
        });
    }

    fn sample(&mut self, labels: &[(&str, &dyn Display)], value: impl Display) {
        if let Some(Family { name, .. }) = self.families.get(self.current) {
            self.named(name, labels, value);
        }
    }

    fn named(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let label = |(name, value): (&str, &dyn Display)| format!("{name}=\"{}\"", escaped(value));
        let server = self.server.as_ref().map(|server| label(("server_name", server)));
        let labels: Vec<String> = server.into_iter().chain(labels.iter().copied().map(label)).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        if let Some(Family { text, .. }) = self.families.get_mut(self.current) {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{PREFIX}{name}{labels} {value}");
        }
    }
}

/// Clients choose the names of databases.
fn escaped(value: &dyn Display) -> String {
    value.to_string().replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

mod passwords;

#[cfg(test)]
mod tests;
