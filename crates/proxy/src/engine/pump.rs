//! Passes bytes between a client and its connection, with at most one read of either side in memory.

use ciphertoll_net::{Channel, Error, Received};
use ciphertoll_wire::relay::Goodbye;
use ciphertoll_wire::session;

use super::mailbox::WorkerMessage;
use super::{Activity, Backend, ClientConnection, ClientStage, DeferredWork, HeldBack, Worker};
use crate::metrics::Counter;
use crate::protocol::{FromClient, Protocol, ProtocolSession, SessionPhase, SettingsResult};
use crate::refusal::Refusal;
use crate::slab::Id;

/// Reads of one side per turn.
const READS: usize = 16;

enum ToServer {
    /// All bytes that were there are passed on, or wait for the server.
    Waits,
    More,
    /// Other connections must be closed before these bytes are passed on.
    Exclusive(FromClient),
    Left,
    ChangeUser,
    Violated(session::Error),
    ServerLost(Error),
}

enum ToClient {
    Waits,
    More,
    ClientLost,
    ServerLost(Option<Error>),
    Broken(session::Error),
    SettingsApplied,
    CanDetach,
    NeedsQuery,
    Pinned(&'static str),
    Refused(session::Error),
}

impl<P: Protocol> Worker<P> {
    pub(super) fn pump_to_server(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let ClientStage::Active(server_id) = client.stage else { return };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        client.channel.borrow(&mut self.spare);
        let outcome = pass_to_server(client, backend, &self.services.metrics.bytes_to_server);
        if let ToServer::Left = outcome {
            // Its last message and whatever follows it.
            let bytes = client.channel.input().len();
            client.channel.consume(bytes);
        }
        client.channel.give_back(&mut self.spare);
        self.watch_server(server_id);
        match outcome {
            ToServer::Waits => {}
            ToServer::More => self.deferred.push(DeferredWork::Client(id)),
            ToServer::Exclusive(processed) => self.pass_exclusive(id, server_id, &processed),
            ToServer::Left => self.close_client(id, "left"),
            ToServer::ChangeUser => self.change_user(id),
            ToServer::Violated(error) => self.refuse(id, &Refusal::from_client(&error)),
            ToServer::ServerLost(error) => self.send_failed(server_id, &error),
        }
    }

    /// Passes on a command that needs exclusive access to a database, after closing its idle connections.
    fn pass_exclusive(&mut self, client_id: Id, server_id: Id, processed: &FromClient) {
        for target in &processed.exclusive {
            self.shared.broadcast(|| WorkerMessage::CloseUnused(target.clone()));
            self.close_unused(target.clone());
        }
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let Some(backend) = self.servers.open_mut(server_id) else { return };
        let sent = forward(&mut client.channel, &mut backend.channel, processed)
            .and_then(|()| backend.channel.send());
        self.watch_server(server_id);
        match sent {
            Ok(_) => self.deferred.push(DeferredWork::Client(client_id)),
            Err(error) => self.send_failed(server_id, &error),
        }
    }

    /// The server takes no more bytes, but it may have sent the reason.
    fn send_failed(&mut self, id: Id, error: &Error) {
        self.pump_to_client(id);
        if self.servers.open(id).is_some() {
            self.server_lost(id, Some(error));
        }
    }

    /// Passes a server's bytes to the client, or reads them if there is none.
    pub(super) fn pump_to_client(&mut self, id: Id) {
        let Some(backend) = self.servers.open_mut(id) else { return };
        let Activity::Session { client: client_id, .. } = backend.activity else {
            return self.read_unassigned(id);
        };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let was_full = is_full(backend);
        backend.channel.borrow(&mut self.spare);
        let outcome = pass_to_client(client, backend, &self.services.metrics.bytes_to_client);
        backend.channel.give_back(&mut self.spare);
        if was_full && !is_full(backend) {
            self.deferred.push(DeferredWork::Client(client_id));
        }
        self.watch_client(client_id);
        match outcome {
            ToClient::Waits => {}
            ToClient::More => self.deferred.push(DeferredWork::Server(id)),
            ToClient::ClientLost => self.close_client(client_id, "went away"),
            ToClient::ServerLost(error) => self.server_lost(id, error.as_ref()),
            ToClient::Broken(error) => self.server_lost(id, Some(&Error::Protocol(error))),
            ToClient::SettingsApplied => {
                self.report_start(client_id, id);
                self.deferred.push(DeferredWork::Server(id));
            }
            ToClient::CanDetach => self.park(client_id, id),
            ToClient::NeedsQuery => self.query_settings(id),
            ToClient::Pinned(reason) => {
                self.log_pin(client_id, id, reason);
                self.deferred.push(DeferredWork::Server(id));
            }
            ToClient::Refused(error) => self.refuse(client_id, &Refusal::settings_failed(&error)),
        }
    }
}

fn is_full<P: Protocol>(backend: &Backend<P>) -> bool {
    backend.session().is_some_and(ProtocolSession::is_full)
}

fn pass_to_server<P: Protocol>(
    client: &mut ClientConnection<P>,
    backend: &mut Backend<P>,
    bytes: &Counter,
) -> ToServer {
    let Activity::Session { session, .. } = &mut backend.activity else { return ToServer::Waits };
    for _ in 0..READS {
        if backend.channel.is_blocked() || session.awaits_settings() || session.is_full() {
            client.flow.unread = true;
            return ToServer::Waits;
        }
        client.flow.unread = false;
        // Bytes that were held back come first, or ever more would accumulate.
        let received = if std::mem::take(&mut client.flow.held_back) == HeldBack::Something {
            Received::MoreLikely
        } else {
            let Ok(received) = client.channel.receive_input() else { return ToServer::Left };
            received
        };
        let mut inserted = false;
        let goodbye = loop {
            let processed = match session.process_client(client.channel.input(), &mut backend.state) {
                Ok(processed) => processed,
                Err(error) => return ToServer::Violated(error),
            };
            bytes.add(processed.pass_bytes as u64);
            if !processed.exclusive.is_empty() {
                return ToServer::Exclusive(processed);
            }
            if let Err(error) = forward(&mut client.channel, &mut backend.channel, &processed) {
                return ToServer::ServerLost(error);
            }
            inserted &= processed.pass_bytes == 0;
            if processed.insert.is_empty() {
                break processed.goodbye;
            }
            inserted = true;
        };
        // Nothing followed what was inserted, so it is sent now.
        if inserted && let Err(error) = backend.channel.send() {
            return ToServer::ServerLost(error);
        }
        if session.is_full() {
            // The rest waits, and so does the end of the client's stream.
            client.flow.unread = true;
            if !client.channel.input().is_empty() {
                client.flow.held_back = HeldBack::Something;
            }
            return ToServer::Waits;
        }
        match (goodbye, received) {
            (Goodbye::Said, _) | (Goodbye::None, Received::Closed) => return ToServer::Left,
            (Goodbye::Anew, _) => return ToServer::ChangeUser,
            (Goodbye::None, _) => {}
        }
        if session.awaits_settings() {
            // No edge reports bytes that are held back here.
            let is_emptied = matches!(received, Received::Drained | Received::WouldBlock);
            client.flow.unread = !is_emptied || !client.channel.input().is_empty();
            return ToServer::Waits;
        }
        match received {
            Received::MoreLikely => {}
            Received::Drained if client.flow.ended => {}
            Received::Drained | Received::WouldBlock | Received::Closed => return ToServer::Waits,
        }
    }
    ToServer::More
}

fn pass_to_client<P: Protocol>(
    client: &mut ClientConnection<P>,
    backend: &mut Backend<P>,
    bytes: &Counter,
) -> ToClient {
    let Backend { channel, state, flow, activity, .. } = backend;
    let Activity::Session { session, .. } = activity else { return ToClient::Waits };
    for _ in 0..READS {
        if client.channel.is_blocked() {
            flow.unread = true;
            return ToClient::Waits;
        }
        flow.unread = false;
        let received = match channel.receive_input() {
            Ok(received) => received,
            Err(Error::Closed) => return ToClient::ServerLost(None),
            Err(error) => return ToClient::ServerLost(Some(error)),
        };
        loop {
            let processed = match session.process_server(channel.input(), state) {
                Ok(processed) => processed,
                Err(error) => return ToClient::Broken(error),
            };
            channel.consume(processed.skip_bytes);
            for patch in &processed.patches {
                channel.overwrite(patch.at, &patch.bytes);
            }
            bytes.add(processed.pass_bytes as u64);
            if pass(channel, &mut client.channel, processed.pass_bytes).is_err() {
                return ToClient::ClientLost;
            }
            channel.consume(processed.drop_bytes);
            if !processed.insert.is_empty() {
                client.channel.output().extend_from_slice(&processed.insert);
                if client.channel.send().is_err() {
                    return ToClient::ClientLost;
                }
            }
            let result = match (processed.settings_result, processed.phase) {
                (SettingsResult::Refused(error), _) => Some(ToClient::Refused(error)),
                (SettingsResult::None | SettingsResult::Applied, SessionPhase::CanDetach) => {
                    Some(ToClient::CanDetach)
                }
                // The client has not been told that it may go on, so nothing of its own can follow.
                (SettingsResult::Applied, _) => Some(ToClient::SettingsApplied),
                (SettingsResult::None, SessionPhase::NeedsQuery) => Some(ToClient::NeedsQuery),
                (SettingsResult::None, SessionPhase::Pinned(reason)) => Some(ToClient::Pinned(reason)),
                (SettingsResult::None, SessionPhase::Active) => None,
            };
            if let Some(result) = result {
                // An edge reports what arrives after the socket was emptied.
                let is_emptied = matches!(received, Received::Drained | Received::WouldBlock);
                flow.unread = !is_emptied || !channel.input().is_empty();
                return result;
            }
            if processed.drop_bytes == 0 {
                break;
            }
        }
        match received {
            Received::Closed => return ToClient::ServerLost(None),
            Received::MoreLikely => {}
            Received::Drained if flow.ended => {}
            Received::Drained | Received::WouldBlock => return ToClient::Waits,
        }
    }
    ToClient::More
}

/// Carries out the session's decision. What is inserted is sent together with what follows.
fn forward(client: &mut Channel, server: &mut Channel, processed: &FromClient) -> Result<(), Error> {
    pass(client, server, processed.pass_bytes)?;
    client.consume(processed.drop_bytes);
    server.output().extend_from_slice(&processed.insert);
    Ok(())
}

fn pass(from: &mut Channel, to: &mut Channel, bytes: usize) -> Result<(), Error> {
    if bytes == 0 { Ok(()) } else { from.pass_to(to, bytes).map(|_| ()) }
}
