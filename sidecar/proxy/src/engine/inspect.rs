//! Answers other threads: status, health, new settings.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::backend::{Activity, Backend, ServerConnection, ServerStage};
use super::client::ClientStage;
use super::control::ControlHandle;
use super::control_request::{ControlRequest, Health, PreparedSettings};
use super::worker::Worker;
use crate::group_limits::{ANY_USER, GroupLimit};
use crate::group_status::GroupStatus;
use crate::protocol::{PoolKey, Protocol};
use crate::status::{
    CertificateStatus, ClientStates, PoolStatus, Status, StatusCounters, StatusLimits, ThreadStatus,
};
use crate::upstream::CertificateExpiry;

/// A connect within this time shows that the server is reachable.
const LATELY: Duration = Duration::from_secs(30);

impl<P: Protocol> Worker<P> {
    pub(super) fn control(&self) -> ControlHandle<P> {
        ControlHandle {
            mailboxes: Arc::clone(&self.shared.mailboxes),
            metrics: Arc::clone(&self.env.services.metrics),
            console: Arc::clone(&self.env.services.console),
        }
    }

    /// The other side may have given up waiting.
    pub(super) fn answer(&mut self, request: ControlRequest<P>) {
        match request {
            ControlRequest::Status(reply) => drop(reply.send(self.status())),
            ControlRequest::Health(reply) => drop(reply.send(self.health())),
            ControlRequest::ApplySettings(prepared, reply) => {
                self.apply_settings(*prepared);
                let _ = reply.send(());
            }
            ControlRequest::Sockets(reply) => {
                let is_listening = !self.env.is_ending();
                let _ = reply.send(is_listening.then(|| self.acceptor.sockets().ok()).flatten());
            }
            ControlRequest::HandOver(reply) => drop(reply.send(self.hand_over())),
            ControlRequest::Console(request) => self.answer_console(request),
            ControlRequest::PasswordFetched => self.password_fetched(),
        }
    }

    /// Whether new clients would be served. If that is not known, a connection is opened to find out.
    fn health(&mut self) -> Health {
        if self.env.is_ending() {
            return Health::Stopping;
        }
        let (up, opening) = self.pool.read(|pool| (pool.has_connection(), pool.is_opening()));
        let is_recent = |moment: Instant| self.env.now.duration_since(moment) < LATELY;
        let opened = self.shared.server_health.read(|server_health| server_health.connects.opened);
        if up || opened.is_some_and(is_recent) {
            return Health::Well;
        }
        let Some(key) = self.env.protocol.default_keys().first().cloned() else { return Health::NoServer };
        if self.env.operations.is_paused(key.database()) {
            return Health::Paused;
        }
        if !opening {
            self.open_in_advance(&key);
        }
        Health::NoServer
    }

    /// Applies new settings between two turns. Sessions are not affected. A connection that was opened with other
    /// credentials is closed at once if it is idle, otherwise when its client releases it or another client would
    /// get it.
    fn apply_settings(&mut self, prepared: PreparedSettings<P>) {
        let PreparedSettings { access, protocol, upstream, limits, log, version } = prepared;
        self.env.protocol.reload(protocol);
        if upstream.fingerprint != self.env.upstream.fingerprint {
            self.env.protocol.forget_learned();
        }
        self.env.upstream = upstream;
        self.env.access = access;
        self.pool.with(|pool| pool.set_limits(limits.server_connections, limits.groups.clone()));
        self.env.limits = limits;
        self.restart_timing(self.env.is_timed);
        self.recount_clients();
        self.env.log = log;
        self.env.version = version;
        self.env.connect_look_ups();
        for id in self.servers.ids() {
            if let Some(server) = self.servers.get_mut(id) {
                server.check_settings(&self.env);
            }
            if self.servers.open(id).and_then(Backend::idle_since).is_some()
                && let Some(reason) = self.obsolete_reason(id)
            {
                self.close_server(id, reason);
            }
        }
        for id in self.clients.ids() {
            let Some(client) = self.clients.get(id) else { continue };
            if let ClientStage::Queued { request, .. } = &client.stage
                && let Err(refusal) = self.env.protocol.pool_key(request)
            {
                self.refuse(id, &refusal);
            }
        }
        // Connects may wait for a command that is not run any more.
        self.password_fetched();
        self.agenda.check_unserved = true;
    }

    /// This worker's part, and what is the same for all.
    fn status(&self) -> Status {
        let metrics = &self.env.services.metrics;
        let certificate = |expiry: &CertificateExpiry| CertificateStatus {
            file: expiry.file.display().to_string(),
            expires_unix_s: expiry.at_unix_s,
        };
        let client_certificates = self.env.access.tls.iter().flat_map(|tls| &tls.expiries);
        Status {
            name: None,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            server: self.env.server.clone(),
            started_unix_s: self.env.services.started.as_second(),
            draining: self.env.is_ending(),
            paused: self.env.operations.is_all_paused(),
            paused_databases: self.env.operations.paused_databases().iter().cloned().collect(),
            disabled_databases: self.env.operations.disabled_databases().iter().cloned().collect(),
            clients: self.clients_by_stage(),
            limits: StatusLimits {
                clients: self.env.limits.clients,
                queued: self.env.limits.queued,
                server_connections: self.env.limits.server_connections,
            },
            pools: self.pools(),
            users: self.users(),
            databases: self.groups(&self.env.limits.groups.databases, PoolKey::database),
            threads: vec![ThreadStatus {
                clients: self.clients.len(),
                server_connections: self.servers.len(),
                accepts: !self.env.is_ending(),
            }],
            counts: StatusCounters {
                sessions: metrics.sessions.get(),
                refused: metrics.refusals.total(),
                opened: metrics.opened.get(),
                failed: metrics.failed.total(),
                closed: metrics.closed.total(),
                pins: metrics.pins.total(),
                steals: metrics.steals.get(),
                moves: metrics.moves.get(),
                reloads: metrics.reloads.get(),
                reloads_failed: metrics.reloads_failed.get(),
                failovers: self.env.hosts.as_ref().map_or(0, |hosts| hosts.with(|all| all.failovers())),
            },
            groups: metrics.groups.counts(),
            certificates: client_certificates.chain(&self.env.upstream.expiries).map(certificate).collect(),
            passwords: metrics.passwords.status(),
            hosts: self.host_status(),
        }
    }

    fn clients_by_stage(&self) -> ClientStates {
        let mut clients = ClientStates::default();
        for client in self.clients.values() {
            *match client.stage {
                ClientStage::Handshake(_) | ClientStage::TlsHandshake(_) => &mut clients.logging_in,
                ClientStage::Queued { .. } => &mut clients.queued,
                ClientStage::Active(_) => &mut clients.in_session,
                ClientStage::Parked { .. } => &mut clients.parked,
                ClientStage::Cancelling | ClientStage::Flushing => &mut clients.leaving,
            } += 1;
        }
        clients
    }

    /// The connections that the pool counts: without those that only ask a host for its role.
    fn pooled_servers(&self) -> impl Iterator<Item = &ServerConnection<P>> {
        self.servers.values().filter(|server| !server.is_poll())
    }

    fn users(&self) -> Vec<GroupStatus> {
        let limits = &self.env.limits.groups.users;
        let is_named = |key: &P::Key| limits.contains_key(key.user());
        let mut users = self.groups(limits, |key| if is_named(key) { key.user() } else { ANY_USER });
        // The limits of any user do not hold for those.
        for any in users.iter_mut().filter(|user| user.name == ANY_USER) {
            // Each of them may have as many.
            (any.pool_size, any.max_clients) = (None, None);
        }
        users.retain(|user| limits.get(&user.name).is_some_and(|limit| *limit != GroupLimit::default()));
        users
    }

    /// The groups that have these limits. `name_of` is the name of a key's group.
    fn groups(
        &self,
        limits: &BTreeMap<String, GroupLimit>,
        name_of: impl Fn(&P::Key) -> &str,
    ) -> Vec<GroupStatus> {
        let new = |(name, limit): (&String, &GroupLimit)| (name.clone(), GroupStatus::new(name, limit));
        let mut groups: BTreeMap<String, GroupStatus> = limits.iter().map(new).collect();
        if groups.is_empty() {
            return Vec::new();
        }
        for server in self.pooled_servers() {
            if let Some(group) = groups.get_mut(name_of(&server.key)) {
                group.connections += 1;
            }
        }
        for client in self.clients.values() {
            let key = match &client.stage {
                ClientStage::Queued { key, .. } | ClientStage::Parked { key, .. } => Some(key),
                ClientStage::Active(server) => self.servers.get(*server).map(|server| &server.key),
                _ => None,
            };
            if let Some(group) = key.and_then(|key| groups.get_mut(name_of(key))) {
                group.clients += 1;
                group.waiting += usize::from(client.is_queued());
            }
        }
        groups.into_values().collect()
    }

    fn pools(&self) -> Vec<PoolStatus> {
        let mut pools: BTreeMap<(&str, &str), PoolStatus> = BTreeMap::new();
        let empty = |key: &P::Key| PoolStatus {
            user: key.user().to_owned(),
            database: key.database().to_owned(),
            ..PoolStatus::default()
        };
        let now = Instant::now();
        for server in self.pooled_servers() {
            let key = &server.key;
            let pool = pools.entry((key.user(), key.database())).or_insert_with(|| empty(key));
            pool.oldest_s = pool.oldest_s.max(now.duration_since(server.opened_at).as_secs_f64());
            *match &server.stage {
                ServerStage::Connecting { .. } => &mut pool.opening,
                ServerStage::Open(backend) => match backend.activity {
                    Activity::Idle { .. } => &mut pool.idle,
                    Activity::Session { .. } => &mut pool.busy,
                    Activity::Kept { .. } => &mut pool.kept,
                    Activity::AwaitingCancel { .. } | Activity::Resetting { .. } => &mut pool.resetting,
                },
            } += 1;
        }
        for client in self.clients.values() {
            if let ClientStage::Queued { key, .. } = &client.stage {
                pools.entry((key.user(), key.database())).or_insert_with(|| empty(key)).waiting += 1;
            }
        }
        pools.into_values().collect()
    }
}
