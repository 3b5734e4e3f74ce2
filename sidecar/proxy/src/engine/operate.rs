//! Carries out what operators ask of a worker: pauses, new connections, the end of clients, and what the console shows.

use std::sync::Arc;

use ciphertoll_net::Channel;
use ciphertoll_net::tls::Negotiated;

use super::backend::{Activity, Backend, ServerConnection, ServerStage};
use super::client::{Client, ClientStage};
use super::console_request::ConsoleRequest;
use super::shared_state::Discovery;
use super::usage::{UsageByDatabase, add_usage};
use super::views::{ClientPage, ClientState, ClientView, PAGE, ServerState, ServerView};
use super::worker::Worker;
use crate::console_link::{ConsoleClient, SessionGuard};
use crate::console_rules::{CONSOLE, ConsoleLogin, LoginProof, Role, not_allowed};
use crate::log::Level;
use crate::operations::{KILLED, Operations, Scope};
use crate::protocol::{PoolKey, Protocol, ProtocolRequest};
use crate::refusal::Refusal;
use crate::slab::Id;

impl<P: Protocol> Worker<P> {
    /// The other side may have given up waiting.
    pub(super) fn answer_console(&mut self, request: ConsoleRequest) {
        match request {
            ConsoleRequest::Apply(operations, reply) => {
                self.apply_operations(operations);
                let _ = reply.send(());
            }
            ConsoleRequest::CountOpen(scope, reply) => {
                let count = self.pool.read(|pool| pool.open_of(|key| scope.covers(key.database())));
                let _ = reply.send(count);
            }
            ConsoleRequest::CountClosing(scope, reply) => drop(reply.send(self.count_closing(&scope))),
            ConsoleRequest::Clients(from, reply) => drop(reply.send(self.client_page(from))),
            ConsoleRequest::Servers(reply) => drop(reply.send(self.server_views())),
            ConsoleRequest::Usage(reply) => {
                let _ = reply.send(self.usage.view(self.env.now, self.usage_until_now()));
            }
            ConsoleRequest::Names(reply) => drop(reply.send(self.env.upstream.known_names())),
            ConsoleRequest::Kill(scope, reply) => {
                self.kill(&scope);
                let _ = reply.send(());
            }
            ConsoleRequest::KillClient(number, reply) => drop(reply.send(self.kill_client(number))),
            ConsoleRequest::Stop(wait, reply) => {
                self.begin_stop(wait);
                let _ = reply.send(());
            }
            ConsoleRequest::RefuseWaiting(reply) => {
                self.refuse_waiting_clients();
                let _ = reply.send(());
            }
        }
    }

    /// Closes the connections that must not be used any more and that no client uses. The others are closed when their
    /// clients release them.
    fn apply_operations(&mut self, operations: Arc<Operations>) {
        if operations.version() <= self.env.operations.version() {
            return;
        }
        let rule = Arc::clone(&operations);
        let is_paused = move |key: &P::Key| rule.is_paused(key.database());
        self.pool.with(|pool| pool.set_paused(operations.version(), is_paused));
        self.env.operations = operations;
        for id in self.servers.ids() {
            let Some(server) = self.servers.get(id) else { continue };
            let Some(reason) = server.operators_reason(&self.env) else { continue };
            match &server.stage {
                ServerStage::Connecting { .. } => self.abandon_connect(id, reason),
                ServerStage::Open(_) if server.is_opening() => self.abandon_connect(id, reason),
                ServerStage::Open(backend) => match backend.activity {
                    Activity::Idle { .. } | Activity::Kept { .. } => self.close_server(id, reason),
                    Activity::Session { .. }
                    | Activity::AwaitingCancel { .. }
                    | Activity::Resetting { .. } => {}
                },
            }
        }
        self.agenda.check_unserved = true;
        self.resume_accepting();
    }

    /// Ends a connect. Clients that wait for it wait on.
    fn abandon_connect(&mut self, id: Id, reason: &str) {
        let Some(server) = self.servers.remove(id) else { return };
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("server_connection", &id.index), ("reason", &reason)];
        self.env.log.event(Level::Info, "connect-abandoned", &fields);
        if self.give_up(&server) {
            self.uncount_connect(&server.key);
        }
    }

    /// A connect that the pool counts has ended and is not replaced.
    pub(super) fn uncount_connect(&mut self, key: &P::Key) {
        self.shared.replace_discovery(Discovery::Running, Discovery::NotStarted);
        self.pool.with(|pool| {
            pool.opened(key);
            pool.closed(key, None);
        });
        self.tell_console();
        self.agenda.check_unserved = true;
    }

    /// Wakes commands that wait for the end of a connection, which the pool no longer counts.
    pub(super) fn tell_console(&self) {
        if self.env.operations.version() > 0 {
            self.env.services.console.notify();
        }
    }

    /// Counts the usage of a connection that this worker is about to lose.
    pub(super) fn move_usage(&mut self, server: &mut ServerConnection<P>) {
        if let ServerStage::Open(backend) = &mut server.stage {
            let usage = std::mem::take(&mut backend.usage);
            add_usage(&mut self.usage.ended, server.key.database(), usage);
        }
    }

    fn usage_until_now(&self) -> UsageByDatabase {
        let mut usage = self.usage.ended.clone();
        for server in self.servers.values() {
            if let ServerStage::Open(backend) = &server.stage {
                add_usage(&mut usage, server.key.database(), backend.usage);
            }
        }
        usage
    }

    /// Remembers the usage for averages, if the console is on.
    pub(super) fn measure_usage(&mut self) {
        if self.env.access.console.is_some() && self.usage.is_period_over(self.env.now) {
            let usage = self.usage_until_now();
            self.usage.begin_period(self.env.now, usage);
        }
    }

    fn count_closing(&self, scope: &Scope) -> usize {
        let is_closing = |server: &&ServerConnection<P>| {
            scope.covers(server.key.database()) && server.must_close(&self.env)
        };
        self.servers.values().filter(is_closing).count()
    }

    fn kill(&mut self, scope: &Scope) {
        for id in self.clients.ids() {
            if self.database_of(id).is_some_and(|database| scope.covers(database)) {
                self.end_client(id);
            }
        }
        for id in self.servers.ids() {
            let Some(server) = self.servers.get(id) else { continue };
            if scope.covers(server.key.database()) {
                match server.stage {
                    ServerStage::Connecting { .. } => self.abandon_connect(id, KILLED),
                    ServerStage::Open(_) if server.is_opening() => self.abandon_connect(id, KILLED),
                    ServerStage::Open(_) => self.close_server(id, KILLED),
                }
            }
        }
    }

    /// The database of a client that has logged in.
    fn database_of(&self, id: Id) -> Option<&str> {
        self.key_of(self.clients.get(id)?).map(PoolKey::database)
    }

    fn key_of<'a>(&'a self, client: &'a Client<P>) -> Option<&'a P::Key> {
        match &client.stage {
            ClientStage::Queued { key, .. } | ClientStage::Parked { key, .. } => Some(key),
            ClientStage::Active(server) => self.servers.get(*server).map(|server| &server.key),
            _ => None,
        }
    }

    fn kill_client(&mut self, number: u32) -> bool {
        let is_it = |id: &Id| self.clients.get(*id).is_some_and(|client| client.origin.number == number);
        let found = self.clients.ids().into_iter().find(is_it);
        if let Some(id) = found {
            self.end_client(id);
        }
        found.is_some()
    }

    /// Disconnects a client, and closes the connection that serves it.
    fn end_client(&mut self, id: Id) {
        let server = match self.clients.get(id).map(|client| &client.stage) {
            Some(ClientStage::Active(server)) => Some(*server),
            _ => None,
        };
        let refusal = Refusal::new(Refusal::STOPPING, "admin forced disconnect");
        if let Some(connection) = server.and_then(|server| self.servers.get_mut(server)) {
            // No other client may get it meanwhile.
            connection.is_killed = true;
        }
        self.end_session(id, &refusal);
        if let Some(server) = server {
            self.close_server(server, KILLED);
        }
    }

    fn refuse_waiting_clients(&mut self) {
        for id in self.clients.ids() {
            if self.clients.get(id).is_some_and(Client::is_queued) {
                self.refuse(id, &Refusal::stopping());
            }
        }
    }

    fn client_page(&self, from: usize) -> ClientPage {
        let ids = self.clients.ids_from(from, PAGE);
        let next = ids.next;
        let view = |id: &Id| self.clients.get(*id).map(|client| self.client_view(*id, client));
        ClientPage { clients: ids.ids.iter().filter_map(view).collect(), next }
    }

    fn client_view(&self, id: Id, client: &Client<P>) -> ClientView {
        let state = match client.stage {
            ClientStage::Handshake(_) | ClientStage::TlsHandshake(_) => ClientState::LoggingIn,
            ClientStage::Queued { .. } => ClientState::Waiting,
            ClientStage::Active(_) => ClientState::Active,
            ClientStage::Parked { .. } => ClientState::Parked,
            ClientStage::Cancelling => ClientState::Cancelling,
            ClientStage::Flushing => ClientState::Leaving,
        };
        let server = match client.stage {
            ClientStage::Active(server) => Some(server),
            _ => None,
        };
        let of_server = || self.application_name(self.servers.open(server?)?);
        let of_request = client.waiting_request().and_then(ProtocolRequest::application_name);
        let key = self.key_of(client);
        ClientView {
            number: client.origin.number,
            index: id.index,
            login: key.map(|key| (key.user().to_owned(), key.database().to_owned())),
            replication: key.and_then(PoolKey::replication),
            state,
            peer: client.origin.peer,
            connected: client.origin.connected,
            since: client.since,
            server: server.map(|server| server.index),
            tls: tls_text(&client.channel),
            application_name: of_request.or_else(of_server).unwrap_or_default(),
        }
    }

    fn application_name(&self, backend: &Backend<P>) -> Option<String> {
        self.env.protocol.application_name(&backend.state)
    }

    fn server_views(&self) -> Vec<ServerView> {
        let view = |id: Id| {
            let server = self.servers.get(id)?;
            let (state, backend) = match &server.stage {
                ServerStage::Connecting { .. } => (ServerState::Opening, None),
                ServerStage::Open(backend) => (state_of(&backend.activity), Some(backend)),
            };
            let client = backend.and_then(|backend| backend.client());
            let name =
                backend.filter(|_| client.is_some()).and_then(|backend| self.application_name(backend));
            Some(ServerView {
                number: server.number,
                index: id.index,
                host: server.link.as_ref().and_then(|link| link.host),
                user: server.key.user().to_owned(),
                database: server.key.database().to_owned(),
                replication: server.key.replication(),
                state,
                opened: server.opened_at,
                client: client.map(|client| client.index),
                must_close: server.must_close(&self.env),
                process: backend.and_then(|backend| self.env.protocol.server_process(&backend.state)),
                tls: backend.map(|backend| tls_text(&backend.channel)).unwrap_or_default(),
                application_name: name.unwrap_or_default(),
            })
        };
        self.servers.ids().into_iter().filter_map(view).collect()
    }

    /// Hands a client that has logged in to the console, if that is what it asks for. Returns whether it has.
    pub(super) fn enter_console(&mut self, id: Id, request: &P::Request) -> bool {
        let Some(login) = self.env.protocol.console_login(request) else { return false };
        let rules = self.env.access.console.as_ref();
        // Without the console, the server may have such a database. It is not for clients without any other proof.
        if rules.is_none() && login.proof == LoginProof::Authentication {
            return false;
        }
        let Some(peer) = self.clients.get(id).and_then(|client| client.origin.peer) else { return true };
        let role = rules.and_then(|rules| rules.role(&login, peer));
        let (session, secret) = match self.begin_console_session(&login, role) {
            Ok(begun) => begun,
            Err(refusal) => {
                self.refuse_login(id, request, &refusal);
                return true;
            }
        };
        if let Some(Client { mut channel, .. }) = self.clients.remove(id) {
            if self.env.reactor.deregister(&mut channel).is_ok() {
                self.env.services.console.enter(ConsoleClient { channel, login, peer, secret, session });
            }
            self.client_removed();
        }
        true
    }

    fn begin_console_session(
        &mut self,
        login: &ConsoleLogin,
        role: Option<Role>,
    ) -> Result<(SessionGuard, [u8; 4]), Refusal> {
        let role = role.ok_or_else(|| Refusal::new(Refusal::WHO, not_allowed(&login.user)))?;
        let token =
            self.tokens.create().ok_or_else(|| Refusal::new(*b"XX000", "OpenSSL has no random bytes"))?;
        let session = self.env.services.console.begin_session(token.process_id, Some(token.secret), role);
        let full = || Refusal::new(Refusal::FULL, format!("too many sessions of \"{CONSOLE}\""));
        Ok((session.ok_or_else(full)?, token.secret))
    }

    fn refuse_login(&mut self, id: Id, request: &P::Request, refusal: &Refusal) {
        if let Some(client) = self.clients.get_mut(id) {
            request.refuse(refusal, client.channel.output());
            self.refused(id, refusal);
        }
    }
}

fn state_of<P: Protocol>(activity: &Activity<P>) -> ServerState {
    match activity {
        Activity::Idle { .. } | Activity::Kept { .. } => ServerState::Idle,
        Activity::Session { .. } => ServerState::Active,
        Activity::AwaitingCancel { .. } => ServerState::AwaitingCancel,
        Activity::Resetting { .. } => ServerState::Resetting,
    }
}

/// As PgBouncer shows it: version and cipher suite.
fn tls_text(channel: &Channel) -> String {
    let text = |Negotiated { version, suite, .. }| format!("{}/{suite}", version.replace("tls", "TLSv"));
    channel.negotiated().map(text).unwrap_or_default()
}
