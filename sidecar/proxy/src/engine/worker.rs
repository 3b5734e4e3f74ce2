//! A worker: a thread with its readiness loop, its clients and its server connections. This module says in which order
//! events, deferred work and timeouts are handled; [`super::client_actions`], [`super::server_actions`] and
//! [`super::session_actions`] carry out what the state machines return.

use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Error, Readiness, Ready, Received};

use super::accept::{AcceptedClient, Acceptor};
use super::agenda::{Agenda, DeferredWork, TICK};
use super::backend::ServerConnection;
use super::cancel_request::CancelRequest;
use super::cancel_tokens::CancelTokens;
use super::client::Client;
use super::environment::Environment;
use super::exclusive::ExclusiveDatabases;
use super::flow::{TokenKind, parse_token};
use super::mailbox::{MAILBOX, WorkerMessage};
use super::shared_state::{SharedPool, SharedState};
use super::signals::{FIRST_SIGNAL_TASK, SIGNALS, SignalTask, TaskThread};
use super::usage::UsageTotals;
use crate::log::Level;
use crate::pool::ConnectionPool;
use crate::protocol::Protocol;
use crate::slab::Slab;

/// How often deferred work is done before the sockets are looked at again.
const ROUNDS: usize = 4;

/// One worker thread of a proxy, for clients and a server of one protocol.
pub(crate) struct Worker<P: Protocol> {
    pub(super) env: Environment<P>,
    pub(super) shared: SharedState<P>,
    pub(super) pool: SharedPool<P>,
    pub(super) acceptor: Acceptor,
    pub(super) clients: Slab<Client<P>>,
    pub(super) servers: Slab<ServerConnection<P>>,
    pub(super) cancels: Slab<CancelRequest>,
    pub(super) tokens: CancelTokens,
    pub(super) exclusive: ExclusiveDatabases,
    pub(super) agenda: Agenda,
    pub(super) usage: UsageTotals,
    /// How many clients and server connections have got a number.
    pub(super) numbers: u32,
    /// Only on the first worker.
    pub(super) signals: Option<Channel>,
    /// Only on the first worker, in the order of [`SignalTask::ALL`].
    pub(super) signal_tasks: [Option<TaskThread>; SignalTask::ALL.len()],
    /// Only on the first worker, see [`super::ServerWorkers::on_tick`].
    pub(super) ticker: Option<Ticker>,
}

/// Starts work of other threads that is due.
pub(super) type Ticker = Box<dyn FnMut(Instant) + Send>;

impl<P: Protocol> Worker<P> {
    /// Serves until the proxy is stopped. Returns how many clients were cut off.
    pub(super) fn serve(&mut self) -> Result<usize, Error> {
        self.resume_accepting();
        let mut ready = Vec::new();
        loop {
            if self.shared.must_stop() {
                return Ok(self.clients.len());
            }
            if self.env.is_ending() && self.shared.clients() == 0 && self.shared.close_mailbox() {
                for server in self.servers.ids() {
                    self.close_server(server, "the proxy is stopping");
                }
                return Ok(self.env.drain.as_ref().map_or(0, |drain| drain.cut_off));
            }
            self.turn(&mut ready)?;
        }
    }

    fn turn(&mut self, ready: &mut Vec<(usize, Readiness)>) -> Result<(), Error> {
        let reported = |event: Ready| (event.key, event.readiness);
        match self.agenda.until(self.acceptor.paused_until()) {
            Some(until) => ready.extend(self.env.reactor.wait_until(until)?.map(reported)),
            None => ready.extend(self.env.reactor.wait(Duration::ZERO)?.map(reported)),
        }
        self.env.now = Instant::now();
        // First, so that what another worker's client leaves behind is not handed to a client that has run
        // out of time.
        self.cut_off_clients();
        // Servers first: a connection that has just ended must not be assigned to a client that has just
        // connected.
        ready.sort_by_key(|(token, _)| parse_token(*token).0 != TokenKind::Server);
        for (token, readiness) in ready.drain(..) {
            self.handle_event(token, readiness);
        }
        if self.acceptor.paused_until().is_some_and(|until| self.env.now >= until) {
            self.resume_accepting();
        }
        if self.env.now >= self.agenda.next_tick {
            self.tick();
            self.agenda.next_tick = self.env.now + TICK;
        } else if self.agenda.next_search.is_some_and(|next| self.env.now >= next) {
            self.tick_hosts();
        }
        self.finish_turn();
        Ok(())
    }

    /// Does deferred work, and serves waiting clients, so that the worker does not sleep while something can be done.
    fn finish_turn(&mut self) {
        for _ in 0..ROUNDS {
            let mut deferred = self.agenda.take_deferred();
            for work in deferred.drain(..) {
                match work {
                    DeferredWork::Client(client) => self.continue_client(client),
                    DeferredWork::Server(server) => self.relay_to_client(server),
                    DeferredWork::Park(client, server) => self.park_early(client, server),
                }
            }
            self.agenda.give_back(deferred);
            while std::mem::take(&mut self.agenda.check_unserved) {
                self.serve_waiting();
            }
            if !self.agenda.has_deferred() {
                break;
            }
        }
        self.clients.settle();
        self.servers.settle();
        self.cancels.settle();
    }

    fn handle_event(&mut self, token: usize, readiness: Readiness) {
        match parse_token(token) {
            (TokenKind::Fixed, SIGNALS) => self.handle_signals(),
            (TokenKind::Fixed, MAILBOX) => self.read_messages(),
            (TokenKind::Fixed, number) => {
                match number.checked_sub(FIRST_SIGNAL_TASK).and_then(|at| SignalTask::ALL.get(at)) {
                    Some(task) => self.start_task(*task),
                    None => self.accept(number),
                }
            }
            (TokenKind::Client, index) => {
                if let Some(id) = self.clients.at(index) {
                    self.client_ready(id, readiness);
                }
            }
            (TokenKind::Server, index) => {
                if let Some(id) = self.servers.at(index) {
                    self.server_ready(id, readiness);
                }
            }
            (TokenKind::Cancel, index) => {
                if let Some(id) = self.cancels.at(index) {
                    self.cancel_ready(id, readiness);
                }
            }
        }
    }

    /// Accepts one client of a listener, which is reported again if there are more.
    fn accept(&mut self, listener: usize) {
        if self.env.drain.is_some() || !self.is_server_known() {
            return self.acceptor.pause(&self.env.reactor);
        }
        match self.acceptor.accept(listener, &self.env.reactor, self.env.now) {
            AcceptedClient::Client(channel, peer) => self.accept_client(channel, peer),
            AcceptedClient::None => {}
            AcceptedClient::Failed(error) => self.accept_failed(&error),
        }
    }

    pub(super) fn accept_failed(&mut self, error: &Error) {
        if let Some(failures) = self.acceptor.count_failure(self.env.now) {
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("reason", error), ("failures", &failures)];
            self.env.log.event(Level::Warn, "accept-failed", &fields);
        }
    }

    /// Watches the listeners and starts clients that came too early, if the server is known.
    pub(super) fn resume_accepting(&mut self) {
        if self.env.drain.is_some() || !self.is_server_known() {
            return;
        }
        for (channel, peer) in self.acceptor.take_early() {
            self.start_client(*channel, peer);
        }
        if let Err(error) = self.acceptor.watch(&self.env.reactor, self.env.now) {
            self.accept_failed(&error);
        }
    }

    fn start_task(&mut self, task: SignalTask) {
        let Some(TaskThread { signals, thread }) = &mut self.signal_tasks[task as usize] else { return };
        // Several count as one; at the end of the stream none has arrived.
        let _ = signals.receive_input();
        let arrived = signals.input().len();
        signals.consume(arrived);
        if arrived > 0
            && let Err(error) = thread.add_unless_waiting(())
        {
            let fields: [(&str, &dyn std::fmt::Display); 2] = [("signal", &task.name()), ("reason", &error)];
            self.env.log.event(Level::Warn, "signal-ignored", &fields);
        }
    }

    fn handle_signals(&mut self) {
        let Some(channel) = &mut self.signals else { return };
        let received = channel.receive_input();
        let signals = channel.input().len();
        channel.consume(signals);
        if signals == 0 && !matches!(received, Ok(Received::Closed)) {
            return;
        }
        let wait = match self.env.drain {
            None if signals <= 1 => self.env.limits.drain,
            _ => Duration::ZERO,
        };
        self.begin_stop(wait);
    }

    /// Numbers of clients and of server connections are unique among all workers, and fit into 31 bits.
    pub(super) fn next_number(&mut self) -> u32 {
        self.numbers = self.numbers.wrapping_add(1);
        let threads = self.shared.threads() as u32;
        self.numbers.wrapping_mul(threads).wrapping_add(self.shared.thread as u32) & i32::MAX.cast_unsigned()
    }

    /// Gives clients this time to leave.
    pub(super) fn begin_stop(&mut self, wait: Duration) {
        let clients = self.shared.clients();
        let open = self.pool.read(ConnectionPool::open);
        let seconds = wait.as_secs_f64();
        let fields: [(&str, &dyn std::fmt::Display); 3] =
            [("clients", &clients), ("server_connections", &open), ("wait_s", &seconds)];
        self.env.log.event(Level::Info, "stopping", &fields);
        // Once notified, a service manager ends the process after its own timeout.
        if wait <= self.env.limits.drain {
            self.env.services.notifier.stopping();
        }
        let until = self.env.now + wait;
        self.shared.broadcast(|| WorkerMessage::Stop(until));
        self.stop(until);
    }
}
