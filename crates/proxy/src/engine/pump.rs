//! Bytes from one side to the other, without more of either than one read in memory.

use ciphertoll_net::{Channel, Error, Received, SpareBuffer};
use ciphertoll_wire::relay::Goodbye;
use ciphertoll_wire::session;

use super::{Backend, Client, ClientStage, Duty, KeptBack, Proxy, Server, ServerStage, Turn};
use crate::dialect::{Dialect, FromClient, News, Session, Start, Then};
use crate::metrics::Counter;
use crate::refusal::Refusal;
use crate::slab::Id;

/// Reads that one side gets before others are served.
const READS: usize = 16;

/// What has become of a client's bytes.
enum Up {
    /// All that was there has been passed on, or has to wait for the server.
    Waits,
    /// There is more.
    More,
    /// Other connections must be closed before this is passed on.
    Vacates(FromClient),
    Left,
    /// It logs in anew.
    Anew,
    Violated(session::Error),
    ServerLost(Error),
}

/// What has become of a server's bytes.
enum Down {
    Waits,
    More,
    ClientLost,
    ServerLost(Option<Error>),
    Broken(session::Error),
    Begins,
    Rests,
    Asks,
    Pinned(&'static str),
    Refused(session::Error),
}

impl<D: Dialect> Proxy<D> {
    /// Passes on what a client says.
    pub(super) fn pump_up(&mut self, id: Id) {
        let Some(client) = self.clients.get_mut(id) else { return };
        let ClientStage::Attached(server_id) = client.stage else { return };
        let server = self.servers.get_mut(server_id);
        let Some(Server { stage: ServerStage::Up(backend), .. }) = server else { return };
        let outcome = up(client, backend, &mut self.spare, &self.ops.metrics.bytes_up);
        self.watch_server(server_id);
        match outcome {
            Up::Waits => {}
            Up::More => self.again.push(Turn::Up(id)),
            Up::Vacates(taken) => self.pass_on_vacated(id, server_id, &taken),
            Up::Left => self.client_gone(id, "left"),
            Up::Anew => self.log_in_anew(id),
            Up::Violated(error) => self.refuse(id, &Refusal::of_client(&error)),
            Up::ServerLost(error) => self.server_lost_up(server_id, &error),
        }
    }

    /// Passes on what needs databases without connections, having closed those that no client has.
    fn pass_on_vacated(&mut self, client_id: Id, server_id: Id, taken: &FromClient) {
        self.vacate(&taken.vacates);
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let server = self.servers.get_mut(server_id);
        let Some(Server { stage: ServerStage::Up(backend), .. }) = server else { return };
        let sent =
            forward(&mut client.channel, &mut backend.channel, taken).and_then(|()| backend.channel.send());
        self.watch_server(server_id);
        match sent {
            Ok(_) => self.again.push(Turn::Up(client_id)),
            Err(error) => self.server_lost_up(server_id, &error),
        }
    }

    /// The server takes no more: but it may have said why.
    fn server_lost_up(&mut self, id: Id, error: &Error) {
        self.pump_down(id);
        if self.backend(id).is_some() {
            self.server_lost(id, Some(error));
        }
    }

    /// Passes on what a server says to a client, or reads it where there is none.
    pub(super) fn pump_down(&mut self, id: Id) {
        let Some(Server { stage: ServerStage::Up(backend), .. }) = self.servers.get_mut(id) else { return };
        let Duty::Session { client: client_id, .. } = backend.duty else { return self.read_own(id) };
        let Some(client) = self.clients.get_mut(client_id) else { return };
        let was_full = is_full(backend);
        let outcome = down(client, backend, &mut self.spare, &self.ops.metrics.bytes_down);
        if was_full && !is_full(backend) {
            self.again.push(Turn::Up(client_id));
        }
        self.watch_client(client_id);
        match outcome {
            Down::Waits => {}
            Down::More => self.again.push(Turn::Down(id)),
            Down::ClientLost => self.client_gone(client_id, "went away"),
            Down::ServerLost(error) => self.server_lost(id, error.as_ref()),
            Down::Broken(error) => self.server_lost(id, Some(&Error::Protocol(error))),
            Down::Begins => {
                self.welcome(client_id, id);
                self.again.push(Turn::Down(id));
            }
            Down::Rests => self.part(client_id, id),
            Down::Asks => self.ask_for_settings(id),
            Down::Pinned(reason) => {
                self.pinned(client_id, id, reason);
                self.again.push(Turn::Down(id));
            }
            Down::Refused(error) => self.refuse(client_id, &Refusal::not_set(&error)),
        }
    }
}

fn is_full<D: Dialect>(backend: &Backend<D>) -> bool {
    matches!(&backend.duty, Duty::Session { session, .. } if session.is_full())
}

fn up<D: Dialect>(
    client: &mut Client<D>,
    backend: &mut Backend<D>,
    spare: &mut SpareBuffer,
    bytes: &Counter,
) -> Up {
    client.channel.borrow(spare);
    let outcome = up_reads(client, backend, bytes);
    if let Up::Left = outcome {
        // Its goodbye, and whatever it may have said after that.
        let bytes = client.channel.input().len();
        client.channel.consume(bytes);
    }
    client.channel.give_back(spare);
    outcome
}

fn up_reads<D: Dialect>(client: &mut Client<D>, backend: &mut Backend<D>, bytes: &Counter) -> Up {
    let Duty::Session { session, .. } = &mut backend.duty else { return Up::Waits };
    for _ in 0..READS {
        if backend.channel.is_blocked() || session.start() == Start::WhenSet || session.is_full() {
            client.flow.unread = true;
            return Up::Waits;
        }
        client.flow.unread = false;
        // What is here comes first, or ever more would be.
        let received = if std::mem::take(&mut client.flow.kept_back) == KeptBack::Something {
            Received::MoreLikely
        } else {
            let Ok(received) = client.channel.receive_input() else { return Up::Left };
            received
        };
        let mut inserted = false;
        let goodbye = loop {
            let taken = match session.client_said(client.channel.input(), &mut backend.facts) {
                Ok(taken) => taken,
                Err(error) => return Up::Violated(error),
            };
            bytes.add(taken.pass_bytes as u64);
            if !taken.vacates.is_empty() {
                return Up::Vacates(taken);
            }
            if let Err(error) = forward(&mut client.channel, &mut backend.channel, &taken) {
                return Up::ServerLost(error);
            }
            inserted &= taken.pass_bytes == 0;
            if taken.insert.is_empty() {
                break taken.goodbye;
            }
            inserted = true;
        };
        // Nothing has come behind it.
        if inserted && let Err(error) = backend.channel.send() {
            return Up::ServerLost(error);
        }
        if session.is_full() {
            // The rest waits, and so does the news that the client has closed its side.
            client.flow.unread = true;
            if !client.channel.input().is_empty() {
                client.flow.kept_back = KeptBack::Something;
            }
            return Up::Waits;
        }
        match (goodbye, received) {
            (Goodbye::Said, _) | (Goodbye::None, Received::Closed) => return Up::Left,
            (Goodbye::Anew, _) => return Up::Anew,
            (Goodbye::None, _) => {}
        }
        if session.start() == Start::WhenSet {
            // Of what is kept back here no edge will tell.
            let is_emptied = matches!(received, Received::Drained | Received::WouldBlock);
            client.flow.unread = !is_emptied || !client.channel.input().is_empty();
            return Up::Waits;
        }
        match received {
            Received::MoreLikely => {}
            Received::Drained if client.flow.ended => {}
            Received::Drained | Received::WouldBlock | Received::Closed => return Up::Waits,
        }
    }
    Up::More
}

fn down<D: Dialect>(
    client: &mut Client<D>,
    backend: &mut Backend<D>,
    spare: &mut SpareBuffer,
    bytes: &Counter,
) -> Down {
    backend.channel.borrow(spare);
    let outcome = down_reads(client, backend, bytes);
    backend.channel.give_back(spare);
    outcome
}

fn down_reads<D: Dialect>(client: &mut Client<D>, backend: &mut Backend<D>, bytes: &Counter) -> Down {
    let Backend { channel, facts, flow, duty, .. } = backend;
    let Duty::Session { session, .. } = duty else { return Down::Waits };
    for _ in 0..READS {
        if client.channel.is_blocked() {
            flow.unread = true;
            return Down::Waits;
        }
        flow.unread = false;
        let received = match channel.receive_input() {
            Ok(received) => received,
            Err(Error::Closed) => return Down::ServerLost(None),
            Err(error) => return Down::ServerLost(Some(error)),
        };
        loop {
            let taken = match session.server_said(channel.input(), facts) {
                Ok(taken) => taken,
                Err(error) => return Down::Broken(error),
            };
            channel.consume(taken.skip_bytes);
            for patch in &taken.patches {
                channel.overwrite(patch.at, &patch.bytes);
            }
            bytes.add(taken.pass_bytes as u64);
            if pass(channel, &mut client.channel, taken.pass_bytes).is_err() {
                return Down::ClientLost;
            }
            channel.consume(taken.drop_bytes);
            if !taken.insert.is_empty() {
                client.channel.output().extend_from_slice(&taken.insert);
                if client.channel.send().is_err() {
                    return Down::ClientLost;
                }
            }
            let come_to = match (taken.news, taken.then) {
                (News::Refused(error), _) => Some(Down::Refused(error)),
                (News::None | News::Begins, Then::Rests) => Some(Down::Rests),
                // Nothing of the session's own can have come behind: the client has not been told that it may begin.
                (News::Begins, _) => Some(Down::Begins),
                (News::None, Then::Asks) => Some(Down::Asks),
                (News::None, Then::Pinned(reason)) => Some(Down::Pinned(reason)),
                (News::None, Then::GoesOn) => None,
            };
            if let Some(come_to) = come_to {
                // Of what comes after an empty socket an edge will tell.
                let is_emptied = matches!(received, Received::Drained | Received::WouldBlock);
                flow.unread = !is_emptied || !channel.input().is_empty();
                return come_to;
            }
            if taken.drop_bytes == 0 {
                break;
            }
        }
        match received {
            Received::Closed => return Down::ServerLost(None),
            Received::MoreLikely => {}
            Received::Drained if flow.ended => {}
            Received::Drained | Received::WouldBlock => return Down::Waits,
        }
    }
    Down::More
}

/// Does with a client's bytes what was said of them. What is inserted goes with what comes behind it.
fn forward(client: &mut Channel, server: &mut Channel, taken: &FromClient) -> Result<(), Error> {
    pass(client, server, taken.pass_bytes)?;
    client.consume(taken.drop_bytes);
    server.output().extend_from_slice(&taken.insert);
    Ok(())
}

fn pass(from: &mut Channel, to: &mut Channel, bytes: usize) -> Result<(), Error> {
    if bytes == 0 { Ok(()) } else { from.pass_to(to, bytes).map(|_| ()) }
}
