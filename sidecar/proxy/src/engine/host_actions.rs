//! Several hosts: which one a connection is opened to, the question for its role before a client gets the connection, and
//! the search while no host has the role.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ciphertoll_net::{Error, WatchedEvents};
use ciphertoll_wire::relay::Departure;

use super::agenda::SEARCH_TICK;
use super::backend::{Activity, Backend, ServerConnection, ServerStage};
use super::flow::TokenKind;
use super::host_link::{HostLink, LinkPhase, LinkPurpose, answer_limit};
use super::mailbox::WorkerMessage;
use super::password_use::PasswordUse;
use super::shared_state::Discovery;
use super::worker::Worker;
use crate::hosts::{HostSummary, News, RoleKind, ServerRole, SharedHosts, TargetSession, Verdict};
use crate::log::Level;
use crate::login_hosts::is_final;
use crate::protocol::{PoolKey, Protocol, ProtocolSession};
use crate::refusal::Refusal;
use crate::slab::Id;
use crate::status::HostStatus;

/// After this time, a connect that is not answered is given up if another host can be used.
const ANSWER_TIME: Duration = Duration::from_secs(1);
const LOST_ADDRESS: &str = "its address was removed from the name of its host";

impl<P: Protocol> Worker<P> {
    /// Opens a connection to one of several hosts: now, or when one can be tried. The pool has counted it.
    pub(super) fn search(&mut self, key: &P::Key, since: Instant) {
        let id = self.insert_linked(key, LinkPurpose::Clients, since);
        self.seek(id);
    }

    fn insert_linked(&mut self, key: &P::Key, purpose: LinkPurpose, since: Instant) -> Id {
        let number = self.next_number();
        let mut server = ServerConnection::connecting(key.clone(), number, &self.env);
        server.link = Some(Box::new(HostLink::searching(purpose, since)));
        self.servers.insert(server)
    }

    fn seek(&mut self, id: Id) {
        let Some(hosts) = self.env.hosts.clone() else { return };
        let Some(key) = self.servers.get(id).map(|server| server.key.clone()) else { return };
        if self.env.protocol.connect_plan(&key).is_none() {
            let reason = "this user is no longer configured".to_owned();
            let error = Error::Unresolved { name: key.user().to_owned(), reason };
            return self.connect_failed(&key, Some(id), &error);
        }
        let now = self.env.now;
        while let Some(host) = hosts.with(|all| all.choose(now, random_number())) {
            match self.dial(id, host) {
                Ok(()) => return,
                Err(error) if hosts.is_plain() || is_final(&error) => {
                    return self.connect_failed(&key, Some(id), &error);
                }
                Err(error) => self.host_failed(&hosts, host, &error),
            }
        }
        if let Some(link) = self.link_mut(id) {
            link.host = None;
        }
    }

    /// Begins a connect to this host.
    fn dial(&mut self, id: Id, host: usize) -> Result<(), Error> {
        let Some(hosts) = self.env.hosts.clone() else { return Err(Error::Closed) };
        let Some(server) = self.servers.get_mut(id) else { return Err(Error::Closed) };
        if let Some(link) = &mut server.link {
            (link.host, link.epoch) = (Some(host), hosts.epoch(host));
        }
        // The search may have begun with an earlier password.
        server.password = PasswordUse::of(self.env.protocol.password_cell(&server.key));
        let plan = self.env.protocol.connect_plan(&server.key).ok_or(Error::Closed)?;
        let (mut connecting, at) = self.env.upstream.open_at(host, plan)?;
        self.env.register(connecting.channel(), TokenKind::Server, id.index, WatchedEvents::Both)?;
        if let Some(link) = &mut server.link {
            (link.at, link.dialed) = (Some(at), self.env.now);
        }
        server.start_connect(connecting, &self.env);
        Ok(())
    }

    /// A connect was given up for a reason other than its host. Returns whether the pool counts it.
    pub(super) fn give_up(&self, server: &ServerConnection<P>) -> bool {
        let Some(link) = server.link.as_deref() else { return true };
        if let Some((hosts, host)) = self.env.hosts.as_ref().zip(link.host) {
            hosts.with(|all| all.given_up(host));
        }
        link.purpose == LinkPurpose::Clients
    }

    pub(super) fn link(&self, id: Id) -> Option<&HostLink> {
        self.servers.get(id)?.link.as_deref()
    }

    fn link_mut(&mut self, id: Id) -> Option<&mut HostLink> {
        self.servers.get_mut(id)?.link.as_deref_mut()
    }

    /// Whether the host must confirm its role before a client gets this connection.
    pub(super) fn is_stale(&self, id: Id) -> bool {
        let Some(hosts) = &self.env.hosts else { return false };
        self.link(id).is_some_and(|link| link.is_stale(hosts))
    }

    /// Whether a connect waits until a host can be tried.
    pub(super) fn is_searching(&self, id: Id) -> bool {
        self.link(id).is_some_and(|link| link.host.is_none())
    }

    /// After a failed connect another host is tried. Returns false if the client that has waited longest must be told.
    pub(super) fn search_on(&mut self, key: &P::Key, id: Option<Id>, error: &Error) -> bool {
        let Some(hosts) = self.env.hosts.clone() else { return false };
        let Some(id) = id else { return false };
        let Some(&HostLink { host: Some(host), purpose, since, .. }) = self.link(id) else { return false };
        let is_final = is_final(error);
        if is_final {
            let now = self.env.now;
            hosts.with(|all| all.refused(host, now));
        } else {
            self.env.upstream.failed_at(host);
            self.host_failed(&hosts, host, error);
        }
        let is_poll = purpose == LinkPurpose::Poll;
        if !is_poll && (is_final || hosts.is_plain()) {
            return false;
        }
        self.env.metrics().connect_failed(error);
        self.servers.remove(id);
        self.agenda.next_search.get_or_insert(self.env.now + SEARCH_TICK);
        self.search_again(key, purpose, since);
        true
    }

    /// A connect has not led to a connection.
    fn search_again(&mut self, key: &P::Key, purpose: LinkPurpose, since: Instant) {
        // The pool does not count connects for other purposes.
        if purpose != LinkPurpose::Clients {
            return;
        }
        if self.env.operations.is_paused(key.database()) {
            // The clients wait on, and what follows the pause opens connections for them.
            self.uncount_connect(key);
        } else {
            self.search(key, since);
        }
    }

    fn host_failed(&self, hosts: &SharedHosts, host: usize, error: &Error) {
        let (reason, now) = (Refusal::reason(error), self.env.now);
        if hosts.with(|all| all.failed(host, reason.clone(), now)) {
            let label = hosts.label(host);
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("host", &label), ("reason", &reason)];
            self.env.log.event(Level::Warn, "host-failed", &fields);
        }
    }

    /// Asks a new connection for its role. Returns false if no client needs to wait for that.
    pub(super) fn confirm_first(&mut self, id: Id) -> bool {
        let Some(hosts) = self.env.hosts.clone() else { return false };
        let now = self.env.now;
        let Some(link) = self.link_mut(id).filter(|link| link.phase == LinkPhase::Opening) else {
            return false;
        };
        let Some(host) = link.host else { return false };
        if hosts.target() != TargetSession::Any {
            self.ask(id);
            return true;
        }
        let role = ServerRole { kind: RoleKind::NotAsked, timeline: None };
        let (epoch, news) = hosts.with(|all| {
            let epoch = all.epoch(host);
            (epoch, all.confirm(host, epoch, role, now).1)
        });
        (link.epoch, link.phase) = (epoch, LinkPhase::InUse);
        let is_poll = link.purpose == LinkPurpose::Poll;
        self.report(&hosts, host, role, news);
        is_poll && self.close_poll(id)
    }

    /// Asks the server for its role. The connection is not available until it has answered.
    pub(super) fn ask(&mut self, id: Id) {
        let Some(hosts) = self.env.hosts.clone() else { return };
        let Some(link) = self.link_mut(id) else { return };
        let Some(host) = link.host else { return };
        link.asked = Some(hosts.epoch(host));
        if hosts.target() == TargetSession::Any {
            self.send_command(id, P::ping);
        } else {
            self.send_command(id, P::ask_role);
        }
        let limit = self.env.now + answer_limit(&self.env);
        if let Some(Backend { activity: Activity::Resetting { until, .. }, .. }) = self.servers.open_mut(id) {
            *until = limit;
        }
    }

    /// A command of the proxy was answered. Returns false if the connection cannot be made available now.
    pub(super) fn role_confirmed(&mut self, id: Id) -> bool {
        let Some(hosts) = self.env.hosts.clone() else { return true };
        let Some(ServerConnection { link: Some(link), stage: ServerStage::Open(backend), .. }) =
            self.servers.get_mut(id)
        else {
            return true;
        };
        let Some((host, epoch)) = link.host.zip(link.asked.take()) else { return true };
        let (is_opening, is_poll) = (link.phase == LinkPhase::Opening, link.purpose == LinkPurpose::Poll);
        let told = self.env.protocol.take_role(&mut backend.state);
        let Some(role) = told.or((hosts.target() == TargetSession::Any).then_some(NOT_ASKED)) else {
            self.close_server(id, "its server does not tell its role");
            return false;
        };
        let now = self.env.now;
        let (verdict, news) = hosts.with(|all| all.confirm(host, epoch, role, now));
        match verdict {
            Verdict::SecondChoice if is_opening => {}
            Verdict::Usable | Verdict::SecondChoice => (link.epoch, link.phase) = (epoch, LinkPhase::InUse),
            Verdict::AskAgain | Verdict::Unfit(_) => {}
        }
        self.report(&hosts, host, role, news);
        if is_opening {
            self.opening_confirmed(id, &verdict, is_poll);
            return false;
        }
        if let Verdict::Unfit(reason) = verdict {
            self.close_server(id, reason);
        }
        !matches!(verdict, Verdict::Unfit(_))
    }

    /// The server has told its role on a new connection.
    fn opening_confirmed(&mut self, id: Id, verdict: &Verdict, is_poll: bool) {
        match verdict {
            Verdict::Usable if is_poll && self.close_poll(id) => {}
            Verdict::Usable => self.connect_done(id),
            Verdict::AskAgain => self.ask(id),
            Verdict::SecondChoice | Verdict::Unfit(_) => self.abandon(id),
        }
    }

    /// Closes a connection that has shown the role of its host, unless a client waits for one and there is room. Returns
    /// whether it did.
    fn close_poll(&mut self, id: Id) -> bool {
        let Some(key) = self.servers.get(id).map(|server| server.key.clone()) else { return false };
        let is_needed = self.pool.with(|pool| pool.has_waiting(&key) && pool.open_in_advance(&key));
        if !is_needed {
            self.abandon(id);
        }
        !is_needed
    }

    /// Gives up a new connection whose host cannot be used.
    fn abandon(&mut self, id: Id) {
        let Some(server) = self.servers.remove(id) else { return };
        if let ServerStage::Open(mut backend) = server.stage {
            self.env.protocol.terminate(backend.channel.output());
            // The server notices the end in any case.
            let _ = backend.channel.close();
        }
        if let Some(link) = server.link {
            self.search_again(&server.key, link.purpose, link.since);
        }
    }

    /// A connection that was being opened has ended. Returns false if it was open.
    pub(super) fn opening_lost(&mut self, id: Id, error: Option<&Error>) -> bool {
        let is_over = self.env.is_ending() && self.shared.clients() == 0;
        let Some(server) = self.servers.get(id).filter(|_| !is_over) else { return false };
        let is_opening = server.link.as_ref().is_some_and(|link| link.phase == LinkPhase::Opening);
        if !is_opening || !matches!(server.stage, ServerStage::Open(_)) {
            return false;
        }
        let key = server.key.clone();
        self.connect_failed(&key, Some(id), error.unwrap_or(&Error::Closed));
        true
    }

    /// Closes a connection that must not be used, or asks it for its role first. Returns false if it can be used.
    pub(super) fn check_host(&mut self, id: Id) -> bool {
        let Some(hosts) = self.env.hosts.clone() else { return false };
        let Some(server) = self.servers.get_mut(id) else { return false };
        let Some(link) = server.link.as_deref_mut() else { return false };
        let Some(host) = link.host else { return false };
        if link.at.as_mut().is_some_and(|at| self.env.upstream.has_lost(host, at)) {
            self.close_server(id, LOST_ADDRESS);
            return true;
        }
        if !link.is_stale(&hosts) {
            return false;
        }
        match hosts.with(|all| all.unusable_reason(host)) {
            Some(reason) => self.close_server(id, reason),
            None => self.ask(id),
        }
        true
    }

    /// A connection that must be asked was assigned to a client, which waits for the answer.
    pub(super) fn refresh_for(&mut self, client: Id, server: Id) {
        let is_queued = self.clients.get(client).is_some_and(super::client::Client::is_queued);
        if is_queued && let Some(key) = self.servers.get(server).map(|server| server.key.clone()) {
            let now = self.env.now;
            self.pool.with(|pool| pool.wait_for(&key, server, client, now));
        }
        self.return_to_pool(server);
    }

    /// The reason for closing a connection whose server has not told its role in time.
    pub(super) fn fell_silent(&self, id: Id) -> Option<&'static str> {
        let (hosts, link) = (self.env.hosts.as_ref()?, self.link(id)?);
        let (host, epoch) = link.host.zip(link.asked)?;
        hosts.with(|all| all.fell_silent(host, epoch, self.env.now));
        Some("it did not answer in time")
    }

    fn report(&mut self, hosts: &Arc<SharedHosts>, host: usize, role: ServerRole, news: News) {
        let label = hosts.label(host);
        if news.is_new_role && role.kind != RoleKind::NotAsked {
            let timeline =
                role.timeline.map_or_else(|| "unknown".to_owned(), |timeline| timeline.to_string());
            let fields: [(&str, &dyn std::fmt::Display); 3] =
                [("host", &label), ("role", &role.kind.label()), ("timeline", &timeline)];
            self.env.log.event(Level::Info, "host-role", &fields);
        }
        if news.is_rival {
            let fields: [(&str, &dyn std::fmt::Display); 2] =
                [("host", &label), ("reason", &"another server has the role and is used")];
            self.env.log.event(Level::Warn, "host-superseded", &fields);
        }
        if let Some(left) = news.left {
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("from", &hosts.label(left)), ("to", &label)];
            self.env.log.event(Level::Warn, "failover", &fields);
        }
        if news.is_found || news.left.is_some() {
            self.shared.broadcast(|| WorkerMessage::HostsChanged);
            self.hosts_changed();
        }
    }

    /// A host can be used that could not before: connects that wait begin, and sessions on servers that were left end.
    pub(super) fn hosts_changed(&mut self) {
        let Some(hosts) = self.env.hosts.clone() else { return };
        for id in self.servers.ids() {
            if self.is_searching(id) {
                self.seek(id);
            } else if hosts.target().is_of_one_server() && self.waits_for_another(&hosts, id) {
                self.try_another(id);
            } else if let Some(host) = self.link(id).and_then(|link| link.host)
                && let Some(client) = self.servers.open(id).and_then(Backend::client)
                && hosts.with(|all| all.is_left(host))
            {
                self.cut_session(client, id);
            }
        }
    }

    /// Gives up a connect whose host does not answer.
    fn try_another(&mut self, id: Id) {
        let Some((server, link)) = self.servers.get(id).zip(self.link(id)) else { return };
        let (key, seconds) = (server.key.clone(), self.env.now.duration_since(link.since).as_secs());
        self.search_on(&key, Some(id), &Error::TimedOut { seconds });
    }

    /// Whether a connect for clients has not got an answer from its host, while another one can be used.
    fn waits_for_another(&self, hosts: &SharedHosts, id: Id) -> bool {
        let Some((server, link)) = self.servers.get(id).zip(self.link(id)) else { return false };
        let is_connecting = matches!(server.stage, ServerStage::Connecting { .. });
        is_connecting
            && link.purpose == LinkPurpose::Clients
            && link.host.is_some_and(|host| hosts.with(|all| !all.is_usable(host) && !all.is_searching()))
    }

    /// Ends the session of a client on a server whose successor has taken its role: its writes would be lost.
    fn cut_session(&mut self, client: Id, server: Id) {
        if let Some(backend) = self.servers.open(server) {
            // A command that is still on its way must not arrive later. On Unix sockets, no data is in
            // transit.
            let _ = backend.channel.discard_unsent();
        }
        let message = "another server has taken the role of the one that this session used";
        let can_send_error = self
            .served_client(client)
            .is_some_and(|served| served.session().is_some_and(ProtocolSession::can_send_error));
        if can_send_error {
            self.refuse(client, &Refusal::new(Refusal::STOPPING, message));
        } else {
            self.close_client(client, message);
        }
    }

    /// What the time requires.
    pub(super) fn tick_hosts(&mut self) {
        let Some(hosts) = self.env.hosts.clone() else { return };
        if self.shared.thread == 0 {
            self.env.upstream.refresh();
        }
        let mut searching = None;
        for id in self.servers.ids() {
            let Some(server) = self.servers.get(id) else { continue };
            if self.is_searching(id) {
                if self.has_no_use(id) {
                    let key = server.key.clone();
                    let error = Error::Unresolved { name: self.env.server.clone(), reason: hosts.describe() };
                    self.connect_failed(&key, Some(id), &error);
                } else {
                    searching = Some(server.key.clone());
                    self.seek(id);
                }
            } else if self.is_not_accepted(id) {
                let key = server.key.clone();
                let source = io::ErrorKind::TimedOut.into();
                self.connect_failed(&key, Some(id), &Error::Socket { doing: "cannot connect", source });
            } else if self.waits_for_another(&hosts, id) && self.has_waited(id) {
                self.try_another(id);
            } else if self.has_vanished(id) {
                self.cut_link(id);
            } else if let Some(client) = self.client_to_move(&hosts, id) {
                self.cut_session(client, id);
            } else {
                self.tick_link(&hosts, id);
            }
        }
        self.agenda.next_search = self.is_any_unanswered().then(|| self.env.now + SEARCH_TICK);
        if hosts.is_plain() || self.env.is_ending() {
            return;
        }
        // A connect that waits for one host must not keep the others from being tried.
        let searching = searching.or_else(|| self.connecting_key(&hosts));
        let for_look_ups =
            || self.env.protocol.default_keys().first().filter(|_| hosts.has_look_ups()).cloned();
        if let Some(key) = searching.or_else(for_look_ups) {
            self.probe_all(&hosts, &key);
        }
        self.poll(&hosts);
        let next = hosts.with(|all| all.is_searching().then(|| all.next_attempt()).flatten());
        let next = next.map(|next| next.max(self.env.now + SEARCH_TICK));
        self.agenda.next_search = self.agenda.next_search.or(next);
    }

    /// The client of a session on a server that has lost its role, if all its commands are answered.
    fn client_to_move(&self, hosts: &SharedHosts, id: Id) -> Option<Id> {
        let host = self.link(id)?.host?;
        let backend = self.servers.open(id)?;
        let (client, session) = backend.client().zip(backend.session())?;
        let is_answered = session.departure() == Departure::Now;
        (is_answered && hosts.with(|all| all.is_to_be_left(host))).then_some(client)
    }

    fn has_waited(&self, id: Id) -> bool {
        self.link(id).is_some_and(|link| self.env.now.duration_since(link.since) >= ANSWER_TIME)
    }

    /// Whether a connect that waits for a host is no longer needed by anything.
    fn has_no_use(&self, id: Id) -> bool {
        let Some((server, link)) = self.servers.get(id).zip(self.link(id)) else { return false };
        let is_discovering = self.shared.server_health.read(|health| health.discovery) == Discovery::Running
            && self.env.now.duration_since(link.since) < self.env.limits.queue;
        !is_discovering && !self.pool.read(|pool| pool.has_waiting(&server.key))
    }

    /// The key of a connect that is in progress while no host is known to be usable.
    fn connecting_key(&self, hosts: &SharedHosts) -> Option<P::Key> {
        if !hosts.with(|all| all.is_searching()) {
            return None;
        }
        let is_opening = |server: &&ServerConnection<P>| {
            server
                .link
                .as_ref()
                .is_some_and(|link| link.phase == LinkPhase::Opening && link.purpose == LinkPurpose::Clients)
        };
        self.servers.values().find(is_opening).map(|server| server.key.clone())
    }

    /// Tries all hosts that can be tried, while none is known to be usable.
    fn probe_all(&mut self, hosts: &SharedHosts, key: &P::Key) {
        let now = self.env.now;
        if !self.may_probe(key) {
            return;
        }
        for _ in hosts.labels() {
            let next = hosts.with(|all| if all.is_searching() { all.choose(now, 0) } else { None });
            let Some(host) = next else { return };
            self.probe(key, host);
        }
    }

    /// Asks a host for its role if it has not reported it for a long time, so that a second primary is
    /// noticed.
    fn poll(&mut self, hosts: &SharedHosts) {
        let (now, health) = (self.env.now, self.env.limits.health);
        if self.shared.thread != 0 || health.is_zero() {
            return;
        }
        if let Some(key) = self.env.protocol.default_keys().first().cloned()
            && self.may_probe(&key)
            && let Some(host) = hosts.with(|all| all.poll(now, health))
        {
            self.probe(&key, host);
        }
    }

    /// Not during a pause, when no connection is opened, and not before there is a password.
    fn may_probe(&self, key: &P::Key) -> bool {
        !self.env.operations.is_paused(key.database()) && self.env.protocol.connect_plan(key).is_some()
    }

    /// A connection in addition to those of the pool: it is closed if no client waits for it.
    fn probe(&mut self, key: &P::Key, host: usize) {
        let id = self.insert_linked(key, LinkPurpose::Poll, self.env.now);
        if let Err(error) = self.dial(id, host) {
            self.connect_failed(key, Some(id), &error);
        }
    }

    /// Idle connections to addresses that a name has lost are closed. A server that has reported another role is doubted.
    fn tick_link(&mut self, hosts: &SharedHosts, id: Id) {
        let Some(ServerConnection { key, link: Some(link), stage: ServerStage::Open(backend), .. }) =
            self.servers.get_mut(id)
        else {
            return;
        };
        let Some(host) = link.host else { return };
        let is_other = self.env.protocol.reported_standby(&backend.state).is_some_and(|is_standby| {
            let role = hosts.with(|all| all.role(host));
            role.is_some_and(|role| (role.kind == RoleKind::Standby) != is_standby)
        });
        if is_other && hosts.target() != TargetSession::Any {
            link.doubt("it has reported another role", &self.env);
        }
        let is_idle = matches!(backend.activity, Activity::Idle { .. });
        if is_idle
            && link.at.as_mut().is_some_and(|at| self.env.upstream.has_lost(host, at))
            && self.pool.with(|pool| pool.take_idle(key, id))
        {
            self.close_server(id, LOST_ADDRESS);
        }
    }
}

impl<P: Protocol> Worker<P> {
    /// The hosts, with this worker's connections.
    pub(super) fn host_status(&self) -> Vec<HostStatus> {
        let Some(hosts) = &self.env.hosts else { return Vec::new() };
        let summaries: Vec<HostSummary> = hosts.with(|all| all.summaries().collect());
        let count = |at: usize| {
            let is_here = |server: &&ServerConnection<P>| {
                let link = server.link.as_ref().filter(|_| matches!(server.stage, ServerStage::Open(_)));
                link.is_some_and(|link| link.host == Some(at))
            };
            self.servers.values().filter(is_here).count()
        };
        let status = |(at, (host, summary)): (usize, (&String, HostSummary))| HostStatus {
            host: host.clone(),
            role: summary.role.to_owned(),
            standing: summary.standing.to_owned(),
            confirmed_s: summary.confirmed.map(|moment| self.env.now.duration_since(moment).as_secs_f64()),
            timeline: summary.timeline,
            doubts: summary.doubts,
            connections: count(at),
        };
        hosts.labels().iter().zip(summaries).enumerate().map(status).collect()
    }
}

const NOT_ASKED: ServerRole = ServerRole { kind: RoleKind::NotAsked, timeline: None };

/// For the order of hosts: each process draws another sequence.
fn random_number() -> usize {
    RandomState::new().build_hasher().finish() as usize
}

#[cfg(test)]
mod tests;
