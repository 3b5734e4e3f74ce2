//! The messages between workers, and their mailboxes.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ciphertoll_net::{Channel, Error, Peer, Reactor, WakeHandle};
use ciphertoll_wire::relay::Vacate;

use super::backend::ServerConnection;
use super::control_request::ControlRequest;
use super::flow::{TokenKind, token_of};
use crate::protocol::Protocol;
use crate::refusal::Refusal;
use crate::slab::Id;

/// After the signals.
pub(super) const MAILBOX: usize = 1;

pub(super) enum WorkerMessage<P: Protocol> {
    /// From a thread that is not a worker.
    Control(ControlRequest<P>),
    /// Serve a new client, which is counted already.
    NewClient(Box<Channel>, Peer),
    /// Serve a reserved connection to clients that wait: release it again, or reset it first.
    ReleaseReserved(Id),
    /// Close a connection to make room for one of this key.
    Evict(Id, P::Key),
    /// Take over an idle connection for this client of the receiving worker.
    TakeServer(Box<ServerConnection<P>>, Id),
    /// Tell a client that no connection could be opened.
    ConnectFailed(Id, Refusal),
    /// Cancel the command of the client with this process ID. The requester is counted already.
    Cancel {
        requester: Box<Channel>,
        process_id: u32,
        key: Vec<u8>,
    },
    CloseUnused(Vacate),
    /// A host can be used that could not before, or was left.
    HostsChanged,
    /// Continue a connect: its keys are derived.
    KeysDerived(Id),
    /// Continue a handshake: what it has waited for is known. With the label of the outcome.
    LookedUp(Id, &'static str),
    Learn(P::Learned),
    /// Drain clients until this time, and cut off the others.
    Stop(Instant),
}

pub(super) struct Mailbox<P: Protocol> {
    /// `None` if the worker has ended.
    messages: Mutex<Option<Vec<WorkerMessage<P>>>>,
    bell: WakeHandle,
}

impl<P: Protocol> Mailbox<P> {
    pub(super) fn of(reactor: &Reactor) -> Result<Self, Error> {
        let bell = reactor.wake_handle(token_of(TokenKind::Fixed, MAILBOX))?;
        Ok(Self { messages: Mutex::new(Some(Vec::new())), bell })
    }

    fn messages(&self) -> MutexGuard<'_, Option<Vec<WorkerMessage<P>>>> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a message and wakes the worker; returns the message if the worker has ended.
    #[must_use]
    pub(super) fn send(&self, message: WorkerMessage<P>) -> Option<WorkerMessage<P>> {
        let mut mailbox = self.messages();
        let Some(messages) = &mut *mailbox else { return Some(message) };
        messages.push(message);
        // Earlier messages have woken the worker, which has not read them yet.
        if messages.len() == 1 {
            self.wake();
        }
        None
    }

    pub(super) fn wake(&self) {
        // It fails only if the counter of the eventfd is full, and then the worker is awake.
        let _ = self.bell.wake();
    }

    pub(super) fn take_all(&self) -> Vec<WorkerMessage<P>> {
        self.messages().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Closes the mailbox if it is empty. Returns whether it is closed.
    pub(super) fn close(&self) -> bool {
        let mut messages = self.messages();
        messages.take_if(|messages| messages.is_empty());
        messages.is_none()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::postgres::Postgres;

    fn stop() -> WorkerMessage<Postgres> {
        WorkerMessage::Stop(Instant::now())
    }

    fn wake_ups(reactor: &mut Reactor) -> usize {
        reactor.wait(Duration::ZERO).unwrap().count()
    }

    #[test]
    fn a_mailbox_wakes_its_worker_once_until_it_is_read_and_loses_no_message() {
        let mut reactor = Reactor::new().unwrap();
        let mailbox = Mailbox::<Postgres>::of(&reactor).unwrap();
        for round in 1..=3 {
            for _ in 0..round {
                assert!(mailbox.send(stop()).is_none());
            }
            assert_eq!((wake_ups(&mut reactor), wake_ups(&mut reactor)), (1, 0));
            // No second wake-up before it is empty.
            assert!(mailbox.send(stop()).is_none());
            assert_eq!((wake_ups(&mut reactor), mailbox.take_all().len()), (0, round + 1));
        }
    }

    #[test]
    fn a_closed_mailbox_takes_no_messages_and_one_with_messages_stays_open() {
        let reactor = Reactor::new().unwrap();
        let mailbox = Mailbox::<Postgres>::of(&reactor).unwrap();
        assert!(mailbox.send(stop()).is_none());
        assert!(!mailbox.close());
        assert_eq!(mailbox.take_all().len(), 1);
        assert!(mailbox.close() && mailbox.close());
        assert!(matches!(mailbox.send(stop()), Some(WorkerMessage::Stop(_))));
        assert!(mailbox.take_all().is_empty());
    }
}
