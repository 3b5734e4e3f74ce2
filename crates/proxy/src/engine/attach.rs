//! A client and a server connection find each other.

use std::sync::Arc;

use ciphertoll_wire::postgres::server::{
    Authentication, write_authentication, write_backend_key_data, write_parameter_status,
    write_ready_for_query,
};
use ciphertoll_wire::postgres::{CancelKey, Error, Parameters, TransactionStatus};

use super::{Client, ClientStage, Duty, Proxy, Server, ServerStage};
use crate::log::Level;
use crate::pool::{Asked, PoolKey};
use crate::refusal::Refusal;
use crate::session::{Session, Start};
use crate::slab::Id;

/// A process number and a secret.
const CANCEL_KEY_BYTES: usize = 8;
/// For so many clients that nobody notices what drawing them costs.
const RANDOM_BYTES: usize = 64 * CANCEL_KEY_BYTES;

impl Proxy {
    /// Gives a server connection that awaits commands to a client that waits.
    pub(super) fn attach(&mut self, client_id: Id, server_id: Id) {
        let server = self.servers.get_mut(server_id);
        let Some(Server { stage: ServerStage::Up(backend), .. }) = server else { return };
        let Some(Client { stage, .. }) = self.clients.get_mut(client_id) else {
            return self.hand_over(server_id);
        };
        let ClientStage::Queued { wanted, .. } = stage else { return self.hand_over(server_id) };
        let session = match Session::begin(wanted, &mut backend.parameters, backend.channel.output()) {
            Ok(session) => session,
            Err(error) => {
                backend.channel.output().clear();
                self.refuse(client_id, &Refusal::new(Refusal::PARAMETER, error.to_string()));
                return self.hand_over(server_id);
            }
        };
        let start = session.start();
        *stage = ClientStage::Attached(server_id);
        backend.duty = Duty::Session { client: client_id, session };
        match start {
            Start::Now => self.greet(client_id, server_id),
            Start::WhenSet => {
                if let Err(error) = backend.channel.send() {
                    self.server_lost(server_id, Some(&error));
                } else {
                    self.watch_server(server_id);
                }
            }
        }
    }

    /// Tells a client that it is in.
    pub(super) fn greet(&mut self, client_id: Id, server_id: Id) {
        let Some((process_id, secret)) = self.new_cancel_key() else {
            return self.refuse(client_id, &Refusal::new(*b"XX000", "OpenSSL has no random bytes"));
        };
        let server = self.servers.get(server_id);
        let Some(Server { stage: ServerStage::Up(backend), .. }) = server else { return };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        client.process_id = process_id;
        client.secret = secret;
        self.by_process.insert(process_id, client_id);
        let out = client.channel.output();
        let greeted = write_greeting(out, &backend.parameters, process_id, secret);
        if greeted.is_err() || client.channel.send().is_err() {
            return self.client_gone(client_id, "went away");
        }
        self.watch_client(client_id);
        self.log.event(
            Level::Debug,
            "session",
            &[("client", &client_id.index), ("server_connection", &server_id.index)],
        );
        self.catch_up(client_id);
    }

    /// What a client must show to cancel; no two clients are told the same process.
    fn new_cancel_key(&mut self) -> Option<(u32, [u8; 4])> {
        loop {
            if self.random.is_empty() {
                // Many at once: each draw costs OpenSSL a system call.
                self.random.resize(RANDOM_BYTES, 0);
                openssl::rand::rand_bytes(&mut self.random).ok()?;
            }
            let drawn = self.random.split_off(self.random.len() - CANCEL_KEY_BYTES);
            // Some drivers take it for a signed number, and some for the lack of one if it is 0.
            let process_id = u32::from_be_bytes(*drawn.first_chunk()?) >> 1;
            if process_id != 0 && !self.by_process.contains_key(&process_id) {
                return Some((process_id, *drawn.last_chunk()?));
            }
        }
    }

    /// Does what the pool has said for those that wait.
    pub(super) fn open_as(&mut self, key: &Arc<PoolKey>, mut asked: Asked<Id>) {
        loop {
            match asked {
                Asked::Open => return self.open_server(key),
                Asked::Evict(server) => {
                    self.close_server(server, "makes room for another database");
                    asked = self.pool.refill(key);
                }
                Asked::Take(_) | Asked::Wait => return,
            }
        }
    }

    /// Opens connections as long as clients wait for some and there may be more.
    pub(super) fn relieve(&mut self) {
        while let Some(key) = self.pool.in_want() {
            match self.pool.refill(&key) {
                Asked::Take(_) | Asked::Wait => return,
                asked => self.open_as(&key, asked),
            }
        }
    }
}

fn write_greeting(
    out: &mut Vec<u8>,
    parameters: &Parameters,
    process_id: u32,
    secret: [u8; 4],
) -> Result<(), Error> {
    write_authentication(out, &Authentication::Ok)?;
    for (name, value) in parameters.iter() {
        write_parameter_status(out, name, value)?;
    }
    if let Some(key) = CancelKey::new(secret.to_vec()) {
        write_backend_key_data(out, process_id, &key)?;
    }
    write_ready_for_query(out, TransactionStatus::Idle);
    Ok(())
}
