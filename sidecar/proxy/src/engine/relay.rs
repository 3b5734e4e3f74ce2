//! Passes bytes between a client and its connection, with at most one read of either side in memory.

use ciphertoll_net::{Channel, Error, Received};
use ciphertoll_wire::relay::{Departure, Goodbye};
use ciphertoll_wire::session;

use super::backend::{Activity, Backend};
use super::client::Client;
use super::flow::{HeldBack, READS};
use crate::metrics::Counter;
use crate::protocol::{FromClient, Protocol, ProtocolSession, SessionPhase, SettingsResult};

/// What the worker must do after the client's bytes were passed on.
pub(super) enum ToServer {
    /// All bytes that were there are passed on, or wait for the server.
    Waits,
    More,
    /// Other connections must be closed before these bytes are passed on.
    Exclusive(FromClient),
    /// The client sends nothing more.
    Left,
    /// The same, but it is sent what the server still answers.
    Leaves(Goodbye),
    ChangeUser,
    Violated(session::Error),
    ServerLost(Error),
}

/// What the worker must do after the server's bytes were passed on.
pub(super) enum ToClient {
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

pub(super) fn is_full<P: Protocol>(backend: &Backend<P>) -> bool {
    backend.session().is_some_and(ProtocolSession::is_full)
}

pub(super) fn pass_to_server<P: Protocol>(
    client: &mut Client<P>,
    backend: &mut Backend<P>,
    bytes: &Counter,
) -> ToServer {
    let Activity::Session { session, .. } = &mut backend.activity else { return ToServer::Waits };
    for _ in 0..READS {
        if backend.channel.is_blocked() || session.awaits_settings() || session.is_full() {
            client.flow.unread = true;
            return ToServer::Waits;
        }
        let has_more = std::mem::take(&mut client.flow.unread);
        // Bytes that were held back come first, or ever more would accumulate.
        let received = if std::mem::take(&mut client.flow.held_back) == HeldBack::Nothing {
            let Ok(received) = client.channel.receive_input() else { return ToServer::Left };
            received
        } else if has_more {
            Received::MoreLikely
        } else {
            Received::Drained
        };
        let mut inserted = false;
        let goodbye = loop {
            let processed = match session.process_client(client.channel.input(), &mut backend.state) {
                Ok(processed) => processed,
                Err(error) => return ToServer::Violated(error),
            };
            bytes.add(processed.pass_bytes as u64);
            backend.usage.received_bytes += processed.pass_bytes as u64;
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
        if let Some(end) = end_of(client, goodbye, received, session.departure()) {
            return end;
        }
        if session.awaits_settings() {
            // No edge reports bytes that are held back here.
            client.flow.unread = received == Received::MoreLikely;
            if !client.channel.input().is_empty() {
                client.flow.held_back = HeldBack::Something;
            }
            return ToServer::Waits;
        }
        match received {
            Received::MoreLikely => {}
            Received::Drained if client.flow.has_ended() => {}
            Received::Drained | Received::WouldBlock | Received::Closed => return ToServer::Waits,
        }
    }
    ToServer::More
}

/// How the client's stream or session ends with these bytes; `None` if it goes on.
fn end_of<P: Protocol>(
    client: &mut Client<P>,
    goodbye: Goodbye,
    received: Received,
    departure: Departure,
) -> Option<ToServer> {
    let is_over = goodbye == Goodbye::Said || goodbye == Goodbye::None && received == Received::Closed;
    match (goodbye, departure) {
        _ if is_over && (client.flow.is_gone() || departure == Departure::Now) => Some(ToServer::Left),
        _ if is_over => Some(ToServer::Leaves(goodbye)),
        (Goodbye::ChangeUser, Departure::WhenAnswered) => {
            // Its earlier commands are answered first.
            client.flow.unread = true;
            client.flow.held_back = HeldBack::Something;
            client.flow.awaits_answers = true;
            Some(ToServer::Waits)
        }
        (Goodbye::ChangeUser, _) => Some(ToServer::ChangeUser),
        (Goodbye::None | Goodbye::Said, _) => None,
    }
}

pub(super) fn pass_to_client<P: Protocol>(
    client: &mut Client<P>,
    backend: &mut Backend<P>,
    bytes: &Counter,
) -> ToClient {
    let Backend { channel, state, flow, activity, usage, .. } = backend;
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
            usage.sent_bytes += processed.pass_bytes as u64;
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
            Received::Drained if flow.has_ended() => {}
            Received::Drained | Received::WouldBlock => return ToClient::Waits,
        }
    }
    ToClient::More
}

/// Carries out the session's decision. What is inserted is sent together with what follows.
pub(super) fn forward(
    client: &mut Channel,
    server: &mut Channel,
    processed: &FromClient,
) -> Result<(), Error> {
    pass(client, server, processed.pass_bytes)?;
    client.consume(processed.drop_bytes);
    server.output().extend_from_slice(&processed.insert);
    Ok(())
}

fn pass(from: &mut Channel, to: &mut Channel, bytes: usize) -> Result<(), Error> {
    if bytes == 0 { Ok(()) } else { from.pass_to(to, bytes).map(|_| ()) }
}
