//! What threads ask of one another, and the boxes that it is put into.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ciphertoll_net::{Channel, Error, Peer, Reactor, WakeHandle};
use ciphertoll_wire::relay::Vacate;

use super::orders::Order;
use super::{Kind, Server, key_of};
use crate::dialect::Dialect;
use crate::refusal::Refusal;
use crate::slab::Id;

/// Behind the signals.
pub(super) const POST: usize = 1;

/// What a thread is to do.
pub(super) enum Letter<D: Dialect> {
    /// For a thread that serves nobody.
    Order(Order<D>),
    /// Serves one who has come, and is counted already.
    Newcomer(Box<Channel>, Peer),
    /// Gives back once more, or first resets, this connection of its own, which is *coming* for those that wait.
    GiveBack(Id),
    /// Closes this connection of its own, so that there is room for one of that key.
    Evict(Id, D::Key),
    /// Takes this connection, for that client of its own.
    Take(Box<Server<D>>, Id),
    /// Tells this client of its own that no connection could be opened.
    NotOpened(Id, Refusal),
    /// Ends the command of the client of its own that was told these. Who asks for that is counted already.
    Cancel { requester: Box<Channel>, process_id: u32, key: Vec<u8> },
    /// Closes connections to this database that no client has.
    Vacate(Vacate),
    /// Goes on with this connection of its own, which is being opened: its keys were derived.
    KeysDerived(Id),
    /// Knows what another thread has learnt.
    Learn(D::Lore),
    /// Stops; whoever has not left by then is cut off.
    Stop(Instant),
}

/// The letters to one thread.
pub(super) struct Post<D: Dialect> {
    letters: Mutex<Letters<D>>,
    bell: WakeHandle,
}

enum Letters<D: Dialect> {
    Open(Vec<Letter<D>>),
    /// The thread has ended.
    Closed,
}

impl<D: Dialect> Post<D> {
    /// For the thread that waits with this reactor.
    pub(super) fn of(reactor: &Reactor) -> Result<Self, Error> {
        let bell = reactor.wake_handle(key_of(Kind::Fixed, POST))?;
        Ok(Self { letters: Mutex::new(Letters::Open(Vec::new())), bell })
    }

    fn letters(&self) -> MutexGuard<'_, Letters<D>> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the thread wake for a letter; it is given back if there is no such thread any more.
    #[must_use]
    pub(super) fn send(&self, letter: Letter<D>) -> Option<Letter<D>> {
        let first = match &mut *self.letters() {
            Letters::Closed => return Some(letter),
            Letters::Open(letters) => {
                letters.push(letter);
                letters.len() == 1
            }
        };
        // For those behind the first it has rung, and the thread has not come to look yet.
        if first {
            self.ring();
        }
        None
    }

    /// Has the thread wake.
    pub(super) fn ring(&self) {
        // The counter of an eventfd that is full has rung.
        let _ = self.bell.wake();
    }

    /// All that has come, for the thread itself.
    pub(super) fn open(&self) -> Vec<Letter<D>> {
        match &mut *self.letters() {
            Letters::Closed => Vec::new(),
            Letters::Open(letters) => std::mem::take(letters),
        }
    }

    /// Takes no letters any more, if there are none; whether that is so.
    pub(super) fn close(&self) -> bool {
        let mut letters = self.letters();
        let is_empty = match &*letters {
            Letters::Closed => true,
            Letters::Open(letters) => letters.is_empty(),
        };
        if is_empty {
            *letters = Letters::Closed;
        }
        is_empty
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::postgres::Postgres;

    fn stop() -> Letter<Postgres> {
        Letter::Stop(Instant::now())
    }

    fn rings(reactor: &mut Reactor) -> usize {
        reactor.wait(Duration::ZERO).unwrap().count()
    }

    #[test]
    fn a_box_rings_once_until_it_is_emptied_and_no_letter_is_lost() {
        let mut reactor = Reactor::new().unwrap();
        let post = Post::<Postgres>::of(&reactor).unwrap();
        for round in 1..=3 {
            for _ in 0..round {
                assert!(post.send(stop()).is_none());
            }
            assert_eq!((rings(&mut reactor), rings(&mut reactor)), (1, 0));
            // Not before it is empty.
            assert!(post.send(stop()).is_none());
            assert_eq!((rings(&mut reactor), post.open().len()), (0, round + 1));
        }
    }

    #[test]
    fn who_has_ended_takes_no_letters_and_nobody_ends_with_some() {
        let reactor = Reactor::new().unwrap();
        let post = Post::<Postgres>::of(&reactor).unwrap();
        assert!(post.send(stop()).is_none());
        assert!(!post.close());
        assert_eq!(post.open().len(), 1);
        assert!(post.close() && post.close());
        assert!(matches!(post.send(stop()), Some(Letter::Stop(_))));
        assert!(post.open().is_empty());
    }
}
