//! Assigning server connections to clients.

use super::{Activity, ClientConnection, ClientStage, DeferredWork, Worker};
use crate::log::Level;
use crate::protocol::{AcquiredState, CancelToken, Protocol, ProtocolRequest, ProtocolSession};
use crate::refusal::Refusal;
use crate::slab::Id;

const MAX_PROCESS: u32 = i32::MAX.cast_unsigned();

impl<P: Protocol> Worker<P> {
    /// Assigns a connection that was reset to a client that waits.
    pub(super) fn assign(&mut self, client: Id, server: Id) {
        if !self.start_session(client, server, AcquiredState::Reset) {
            self.return_to_pool(server);
        }
    }

    /// Assigns a connection that was not reset to a client that waits with a command. The reset is pipelined
    /// in front of that command.
    pub(super) fn assign_unreset(&mut self, client: Id, server: Id) {
        if !self.start_session(client, server, AcquiredState::ResetPending) {
            self.reset_kept(server);
        }
    }

    /// Returns false if the client has left or could not use the connection, which is unchanged and has no client.
    fn start_session(&mut self, client_id: Id, server_id: Id, acquired: AcquiredState) -> bool {
        let Some(backend) = self.servers.open_mut(server_id) else { return true };
        let Some(client) = self.clients.get_mut(client_id) else { return false };
        if !matches!(client.stage, ClientStage::Queued { .. }) {
            return false;
        }
        let Some(request) = client.stage.take_request() else { return false };
        let to_server = backend.channel.output();
        let session = match self.protocol.start_session(request, acquired, &mut backend.state, to_server) {
            Ok(session) => session,
            Err(failed) => {
                to_server.clear();
                let refusal = Refusal::settings_failed(&failed.error);
                failed.request.refuse(&refusal, client.channel.output());
                self.refused(client_id, &refusal);
                return false;
            }
        };
        let awaits_settings = session.awaits_settings();
        self.services.metrics.waits.add(self.now.duration_since(client.since));
        client.stage = ClientStage::Active(server_id);
        client.last_server = Some(server_id);
        backend.activity = Activity::Session { client: client_id, session };
        if !awaits_settings {
            self.report_start(client_id, server_id);
        } else if let Err(error) = backend.channel.send() {
            self.server_lost(server_id, Some(&error));
        } else {
            self.watch_server(server_id);
        }
        true
    }

    /// Tells a client that its login is complete, or that it may go on.
    pub(super) fn report_start(&mut self, client_id: Id, server_id: Id) {
        let Some(ClientConnection { channel, cancel_token: Some(_), .. }) = self.clients.get_mut(client_id)
        else {
            return self.greet(client_id, server_id);
        };
        if let Some(backend) = self.servers.open(server_id)
            && let Some(session) = backend.session()
            && session.report_changed_settings(&backend.state, channel.output()).is_err()
        {
            return self.close_client(client_id, "cannot be sent its settings");
        }
        self.deferred.push(DeferredWork::Client(client_id));
    }

    fn greet(&mut self, client_id: Id, server_id: Id) {
        let Some(cancel_token) = self.new_cancel_token() else {
            return self.refuse(client_id, &Refusal::new(*b"XX000", "OpenSSL has no random bytes"));
        };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Activity::Session { session, .. } = &mut backend.activity else { return };
        client.cancel_token = Some(cancel_token);
        self.by_process.insert(cancel_token.process_id, client_id);
        let greeted = session.greet(&backend.state, cancel_token, client.channel.output());
        if greeted.is_err() || client.channel.send().is_err() {
            return self.close_client(client_id, "went away");
        }
        self.watch_client(client_id);
        self.services.metrics.sessions.increment();
        self.log.event(
            Level::Debug,
            "session",
            &[("client", &client_id.index), ("server_connection", &server_id.index)],
        );
        self.deferred.push(DeferredWork::Park(client_id, server_id));
        self.schedule_unread(client_id);
    }

    /// A new cancel token, with a process ID that no other client of this worker has.
    pub(super) fn new_cancel_token(&mut self) -> Option<CancelToken> {
        loop {
            let token_bytes: [u8; 8] = self.random.take()?;
            // Some drivers read it as a signed number, and take 0 for none.
            let process_id = self.own_process_id(u32::from_be_bytes(*token_bytes.first_chunk()?) >> 1);
            if process_id != 0 && process_id <= MAX_PROCESS && !self.by_process.contains_key(&process_id) {
                return Some(CancelToken { process_id, secret: *token_bytes.last_chunk()? });
            }
        }
    }

    /// The nearest process ID of this worker: the remainder names the worker.
    fn own_process_id(&self, near: u32) -> u32 {
        let (threads, thread) = (self.shared.threads() as u32, self.shared.thread as u32);
        near - near % threads + thread
    }

    /// The worker whose clients have process IDs like this one.
    pub(super) fn worker_of(&self, process_id: u32) -> usize {
        process_id as usize % self.shared.threads()
    }
}
