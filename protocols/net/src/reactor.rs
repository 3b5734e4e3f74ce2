//! The readiness loop: edge-triggered; a socket is registered once and never re-armed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::{Channel, Error, Listener, Readiness};

/// Events per wait; further ones are delivered by the next wait.
const EVENTS: usize = 512;

/// The timer's key. Channels are numbered from 0 and never reach it.
const TIMER: Token = Token(usize::MAX);

pub struct Reactor {
    poll: Poll,
    events: Events,
    timer: Option<ReactorTimer>,
}

/// Ends a reactor's wait from any thread.
pub struct WakeHandle(Waker);

/// A timerfd, because epoll's timeout has a resolution of milliseconds.
struct ReactorTimer {
    timer: TimerFd,
    /// `None` after it has expired.
    at: Option<Instant>,
}

#[derive(Clone, Copy, Debug)]
pub struct Ready {
    pub key: usize,
    pub readiness: Readiness,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchedEvents {
    /// Received bytes or the end of the stream.
    Reading,
    Both,
}

/// When a listener with connections is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// Once: all connections must be accepted then.
    Edge,
    /// By every wait, as long as a connection is there.
    Level,
}

impl WatchedEvents {
    fn interest(self) -> Interest {
        match self {
            Self::Reading => Interest::READABLE,
            Self::Both => Interest::READABLE | Interest::WRITABLE,
        }
    }
}

impl Reactor {
    pub fn new() -> Result<Self, Error> {
        let poll = Poll::new().map_err(Error::socket("cannot open an epoll instance"))?;
        Ok(Self { poll, events: Events::with_capacity(EVENTS), timer: None })
    }

    /// Watches `channel` until its socket is closed. On unix sockets, room to send is announced after each read of the
    /// peer: [`Self::watch`] can add it when it is needed.
    pub fn register(&self, channel: &mut Channel, key: usize, events: WatchedEvents) -> Result<(), Error> {
        self.poll
            .registry()
            .register(&mut SourceFd(&channel.socket.as_raw_fd()), Token(key), events.interest())
            .map_err(Error::socket("cannot watch a socket"))
    }

    /// Changes what a registered channel waits for. Conditions that already hold are reported again.
    pub fn watch(&self, channel: &mut Channel, key: usize, events: WatchedEvents) -> Result<(), Error> {
        self.poll
            .registry()
            .reregister(&mut SourceFd(&channel.socket.as_raw_fd()), Token(key), events.interest())
            .map_err(Error::socket("cannot watch a socket"))
    }

    /// Stops watching `channel` if it is watched. It may then be registered with another reactor.
    pub fn deregister(&self, channel: &mut Channel) -> Result<(), Error> {
        match self.poll.registry().deregister(&mut SourceFd(&channel.socket.as_raw_fd())) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::socket("cannot cease to watch a socket")(error))
            }
            _ => Ok(()),
        }
    }

    /// A handle by which another thread ends a wait; the wait reports this key as readable. A reactor can have one.
    pub fn wake_handle(&self, key: usize) -> Result<WakeHandle, Error> {
        Waker::new(self.poll.registry(), Token(key))
            .map(WakeHandle)
            .map_err(Error::socket("cannot make a waker"))
    }

    /// Watches a listener for connections. If other reactors watch it, too, each connection wakes one of them.
    pub fn register_listener(&self, listener: &Listener, key: usize, trigger: Trigger) -> Result<(), Error> {
        let trigger = match trigger {
            Trigger::Edge => EpollFlags::EPOLLET,
            Trigger::Level => EpollFlags::empty(),
        };
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLEXCLUSIVE | trigger;
        let event = EpollEvent::new(flags, key as u64);
        let added = self.epoll().and_then(|epoll| Ok(epoll.add(listener.descriptor(), event)?));
        added.map_err(Error::socket("cannot watch a listener"))
    }

    /// Stops watching a listener, which can be registered again.
    pub fn deregister_listener(&self, listener: &Listener) -> Result<(), Error> {
        let deleted = self.epoll().and_then(|epoll| Ok(epoll.delete(listener.descriptor())?));
        deleted.map_err(Error::socket("cannot cease to watch a listener"))
    }

    /// mio does not support EPOLLEXCLUSIVE. This descriptor refers to the same epoll instance.
    fn epoll(&self) -> io::Result<Epoll> {
        self.poll.registry().as_fd().try_clone_to_owned().map(Epoll)
    }

    /// Ends a wait at `at`, to the microsecond, if no channel ends it earlier. Replaces the time set before, which
    /// may still end one wait.
    pub fn wake_at(&mut self, at: Instant) -> Result<(), Error> {
        let timer = match &mut self.timer {
            Some(timer) if timer.at == Some(at) => return Ok(()),
            Some(timer) => timer,
            empty => empty.insert(ReactorTimer { timer: ReactorTimer::open(&self.poll)?, at: None }),
        };
        // A time of zero would disarm the timer.
        let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(left));
        // Setting the timer also resets its expiry, so each expiry is an edge without a read.
        timer.timer.set(once, TimerSetTimeFlags::empty()).map_err(ReactorTimer::error)?;
        timer.at = Some(at);
        Ok(())
    }

    /// Waits until a channel is ready, or until `at`. For many waits with the same `at` this is cheaper than a timeout,
    /// for which the kernel starts and stops a timer in each wait.
    pub fn wait_until(&mut self, at: Instant) -> Result<impl Iterator<Item = Ready> + '_, Error> {
        self.wake_at(at)?;
        self.poll(None)
    }

    /// Waits until a channel is ready or `timeout` (rounded up to milliseconds) has passed.
    pub fn wait(&mut self, timeout: Duration) -> Result<impl Iterator<Item = Ready> + '_, Error> {
        self.poll(Some(timeout))
    }

    fn poll(&mut self, timeout: Option<Duration>) -> Result<impl Iterator<Item = Ready> + '_, Error> {
        match self.poll.poll(&mut self.events, timeout) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            result => result.map_err(Error::socket("cannot wait for sockets"))?,
        }
        if let Some(timer) = &mut self.timer
            && self.events.iter().any(|event| event.token() == TIMER)
        {
            timer.at = None;
        }
        Ok(self.events.iter().filter(|event| event.token() != TIMER).map(|event| Ready {
            key: event.token().0,
            readiness: if event.is_error() || event.is_read_closed() && event.is_write_closed() {
                Readiness::Gone
            } else if event.is_read_closed() {
                Readiness::ReadableToEnd
            } else if event.is_readable() {
                Readiness::Readable
            } else {
                Readiness::Writable
            },
        }))
    }
}

impl WakeHandle {
    /// Ends the current wait, or the next one.
    pub fn wake(&self) -> Result<(), Error> {
        self.0.wake().map_err(Error::socket("cannot wake a reactor"))
    }
}

impl ReactorTimer {
    fn open(poll: &Poll) -> Result<TimerFd, Error> {
        let flags = TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC;
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, flags).map_err(Self::error)?;
        let descriptor = timer.as_fd().as_raw_fd();
        poll.registry()
            .register(&mut SourceFd(&descriptor), TIMER, Interest::READABLE)
            .map_err(Error::socket("cannot watch a timer"))?;
        Ok(timer)
    }

    fn error(errno: nix::errno::Errno) -> Error {
        Error::Socket { doing: "cannot set a timer", source: errno.into() }
    }
}

#[cfg(test)]
mod tests;
