//! A client and a server connection find each other.

use super::{Client, ClientStage, Duty, Proxy, Server, ServerStage, Turn};
use crate::dialect::{Dialect, Place, Session, Start, Ticket, Wanted};
use crate::log::Level;
use crate::refusal::Refusal;
use crate::slab::Id;

/// A process number and a secret.
const CANCEL_KEY_BYTES: usize = 8;
const MAX_PROCESS: u32 = i32::MAX.cast_unsigned();
/// For so many clients that nobody notices what drawing them costs.
const RANDOM_BYTES: usize = 64 * CANCEL_KEY_BYTES;

/// Whether a client has a connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Begun {
    Yes,
    /// It is not there any more, or could not have it: the connection is as before, and nobody's.
    No,
}

impl<D: Dialect> Proxy<D> {
    /// Gives a server connection that was reset and awaits commands to a client that waits.
    pub(super) fn attach(&mut self, client: Id, server: Id) {
        if self.begin(client, server, Place::Fresh) == Begun::No {
            self.hand_over(server);
        }
    }

    /// Gives a connection that was another one's, and has not been reset, to a client that waits for it with something to
    /// say.
    pub(super) fn take_over(&mut self, client: Id, server: Id) {
        if self.begin(client, server, Place::Taken) == Begun::No {
            self.take_away(server);
        }
    }

    fn begin(&mut self, client_id: Id, server_id: Id, place: Place) -> Begun {
        let server = self.servers.get_mut(server_id);
        let Some(Server { stage: ServerStage::Up(backend), .. }) = server else { return Begun::Yes };
        let Some(client) = self.clients.get_mut(client_id) else { return Begun::No };
        let wanted = match std::mem::replace(&mut client.stage, ClientStage::Flushing) {
            ClientStage::Queued { wanted, .. } => wanted,
            other => {
                client.stage = other;
                return Begun::No;
            }
        };
        let to_server = backend.channel.output();
        let session = match self.dialect.begin(wanted, place, &mut backend.facts, to_server) {
            Ok(session) => session,
            Err((wanted, error)) => {
                to_server.clear();
                let refusal = Refusal::not_set(&error);
                wanted.refuse(&refusal, client.channel.output());
                self.refused(client_id, &refusal);
                return Begun::No;
            }
        };
        let start = session.start();
        self.ops.metrics.waits.add(self.now.duration_since(client.since));
        client.stage = ClientStage::Attached(server_id);
        client.home = Some(server_id);
        backend.duty = Duty::Session { client: client_id, session };
        match start {
            Start::Now => self.welcome(client_id, server_id),
            Start::WhenSet => {
                if let Err(error) = backend.channel.send() {
                    self.server_lost(server_id, Some(&error));
                } else {
                    self.watch_server(server_id);
                }
            }
        }
        Begun::Yes
    }

    /// Tells a client that it is in, or may go on.
    pub(super) fn welcome(&mut self, client_id: Id, server_id: Id) {
        let Some(Client { channel, ticket: Some(_), .. }) = self.clients.get_mut(client_id) else {
            return self.greet(client_id, server_id);
        };
        if let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get(server_id)
            && let Duty::Session { session, .. } = &backend.duty
            && session.greet_again(&backend.facts, channel.output()).is_err()
        {
            return self.client_gone(client_id, "cannot be told of its settings");
        }
        self.again.push(Turn::Up(client_id));
    }

    fn greet(&mut self, client_id: Id, server_id: Id) {
        let Some(ticket) = self.new_ticket() else {
            return self.refuse(client_id, &Refusal::new(*b"XX000", "OpenSSL has no random bytes"));
        };
        let server = self.servers.get_mut(server_id);
        let Some(Server { stage: ServerStage::Up(backend), .. }) = server else { return };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Duty::Session { session, .. } = &mut backend.duty else { return };
        client.ticket = Some(ticket);
        self.by_process.insert(ticket.process_id, client_id);
        let greeted = session.greet(&backend.facts, ticket, client.channel.output());
        if greeted.is_err() || client.channel.send().is_err() {
            return self.client_gone(client_id, "went away");
        }
        self.watch_client(client_id);
        self.ops.metrics.sessions.up();
        self.log.event(
            Level::Debug,
            "session",
            &[("client", &client_id.index), ("server_connection", &server_id.index)],
        );
        self.again.push(Turn::Part(client_id, server_id));
        self.catch_up(client_id);
    }

    /// What a client must show to cancel; no two clients are told the same process.
    pub(super) fn new_ticket(&mut self) -> Option<Ticket> {
        loop {
            if self.random.is_empty() {
                // Many at once: each draw costs OpenSSL a system call.
                self.random.resize(RANDOM_BYTES, 0);
                openssl::rand::rand_bytes(&mut self.random).ok()?;
            }
            let drawn = self.random.split_off(self.random.len() - CANCEL_KEY_BYTES);
            // Some drivers take it for a signed number, and some for the lack of one if it is 0.
            let process_id = self.own_process(u32::from_be_bytes(*drawn.first_chunk()?) >> 1);
            if process_id != 0 && process_id <= MAX_PROCESS && !self.by_process.contains_key(&process_id) {
                return Some(Ticket { process_id, secret: *drawn.last_chunk()? });
            }
        }
    }

    /// One of this thread's near this one: whose a client is is seen by what it was told.
    fn own_process(&self, near: u32) -> u32 {
        let (threads, thread) = (self.commons.threads() as u32, self.commons.thread as u32);
        near - near % threads + thread
    }

    /// The thread whose clients are told such.
    pub(super) fn thread_of(&self, process_id: u32) -> usize {
        process_id as usize % self.commons.threads()
    }
}
