//! The one readiness loop: edge-triggered, each socket registered once and never re-armed.

use std::io;
use std::time::Duration;

use mio::{Events, Interest, Poll, Token};

use crate::{Channel, Error};

/// Events taken per wait; more wait for the next.
const EVENTS: usize = 512;

/// Tells which channels can go on.
pub struct Reactor {
    poll: Poll,
    events: Events,
}

/// A channel that can go on.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// The key it was registered under.
    pub key: usize,
    /// What it can do.
    pub readiness: Readiness,
}

/// What a channel can do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// Send; nothing has come.
    Writable,
    /// Receive.
    Readable,
    /// Receive what is left; then comes the end, and no further edge will tell of it.
    ReadableToEnd,
}

impl Reactor {
    /// A reactor that knows no channel.
    pub fn new() -> Result<Self, Error> {
        let poll = Poll::new().map_err(Error::socket("cannot open an epoll instance"))?;
        Ok(Self { poll, events: Events::with_capacity(EVENTS) })
    }

    /// Watches `channel` for as long as it lives. Closing its socket ends the watch.
    pub fn register(&self, channel: &mut Channel, key: usize) -> Result<(), Error> {
        self.poll
            .registry()
            .register(channel.socket.source(), Token(key), Interest::READABLE | Interest::WRITABLE)
            .map_err(Error::socket("cannot watch a socket"))
    }

    /// Waits until a channel can go on or `timeout` has passed.
    pub fn wait(&mut self, timeout: Duration) -> Result<impl Iterator<Item = Ready> + '_, Error> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            result => result.map_err(Error::socket("cannot wait for sockets"))?,
        }
        Ok(self.events.iter().map(|event| Ready {
            key: event.token().0,
            readiness: if event.is_read_closed() || event.is_error() {
                Readiness::ReadableToEnd
            } else if event.is_readable() {
                Readiness::Readable
            } else {
                Readiness::Writable
            },
        }))
    }
}
