//! The one readiness loop: edge-triggered, each socket registered once and never re-armed.

use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, Instant};

use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use nix::sys::epoll::{Epoll, EpollEvent, EpollFlags};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

use crate::{Channel, Error, Listener};

/// Events taken per wait; more wait for the next.
const EVENTS: usize = 512;

/// The timer's key, which no channel has: they are counted from 0.
const TIMER: Token = Token(usize::MAX);

/// Tells which channels can go on.
pub struct Reactor {
    poll: Poll,
    events: Events,
    alarm: Option<Alarm>,
}

/// Ends a reactor's wait, from any thread.
pub struct Bell(Waker);

/// A timer, as epoll's own timeout is in whole milliseconds.
struct Alarm {
    timer: TimerFd,
    at: Instant,
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

/// What a channel is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watch {
    /// Bytes, or their end.
    Reading,
    /// Room to send, too.
    Both,
}

impl Reactor {
    /// A reactor that knows no channel.
    pub fn new() -> Result<Self, Error> {
        let poll = Poll::new().map_err(Error::socket("cannot open an epoll instance"))?;
        Ok(Self { poll, events: Events::with_capacity(EVENTS), alarm: None })
    }

    /// Watches `channel` for as long as it lives. Closing its socket ends the watch.
    pub fn register(&self, channel: &mut Channel, key: usize) -> Result<(), Error> {
        self.poll
            .registry()
            .register(channel.socket.source(), Token(key), Interest::READABLE | Interest::WRITABLE)
            .map_err(Error::socket("cannot watch a socket"))
    }

    /// Watches `channel` for what comes, and not for room to send: on unix sockets each read of the peer's would tell of
    /// that. [`Self::watch`] adds it where it is waited for.
    pub fn register_reading(&self, channel: &mut Channel, key: usize) -> Result<(), Error> {
        self.poll
            .registry()
            .register(channel.socket.source(), Token(key), Interest::READABLE)
            .map_err(Error::socket("cannot watch a socket"))
    }

    /// Changes what a registered channel is watched for. What is the case already is told of again.
    pub fn watch(&self, channel: &mut Channel, key: usize, watch: Watch) -> Result<(), Error> {
        let interest = match watch {
            Watch::Reading => Interest::READABLE,
            Watch::Both => Interest::READABLE | Interest::WRITABLE,
        };
        self.poll
            .registry()
            .reregister(channel.socket.source(), Token(key), interest)
            .map_err(Error::socket("cannot watch a socket"))
    }

    /// Watches `channel` no more: it can be registered elsewhere then.
    pub fn deregister(&self, channel: &mut Channel) -> Result<(), Error> {
        self.poll
            .registry()
            .deregister(channel.socket.source())
            .map_err(Error::socket("cannot cease to watch a socket"))
    }

    /// What another thread rings to have a wait end with this key, ready to be read. A reactor can have one.
    pub fn bell(&self, key: usize) -> Result<Bell, Error> {
        Waker::new(self.poll.registry(), Token(key)).map(Bell).map_err(Error::socket("cannot make a bell"))
    }

    /// Watches a listener that other reactors watch, too: of those that wait, one connection wakes one.
    pub fn register_shared_listener(&self, listener: &Listener, key: usize) -> Result<(), Error> {
        let error = Error::socket("cannot watch a listener");
        // mio does not know the flag. The descriptor is another one, of the same epoll instance.
        let epoll = match self.poll.registry().as_fd().try_clone_to_owned() {
            Ok(descriptor) => Epoll(descriptor),
            Err(source) => return Err(error(source)),
        };
        let flags = EpollFlags::EPOLLIN | EpollFlags::EPOLLET | EpollFlags::EPOLLEXCLUSIVE;
        let added = epoll.add(listener.descriptor(), EpollEvent::new(flags, key as u64));
        added.map_err(|errno| error(errno.into()))
    }

    /// Watches a listener for connections; a wait tells of the first one of several only.
    pub fn register_listener(&self, listener: &mut Listener, key: usize) -> Result<(), Error> {
        self.poll
            .registry()
            .register(listener.source(), Token(key), Interest::READABLE)
            .map_err(Error::socket("cannot watch a listener"))
    }

    /// Has a wait end at `at`, to the microsecond, if no channel ends it sooner; in place of what was
    /// asked for before. A wait may still end for that.
    pub fn wake_at(&mut self, at: Instant) -> Result<(), Error> {
        let timer = match &mut self.alarm {
            Some(alarm) if alarm.at == at => return Ok(()),
            Some(alarm) => {
                alarm.at = at;
                &alarm.timer
            }
            empty => &empty.insert(Alarm { timer: Alarm::timer(&self.poll)?, at }).timer,
        };
        // A time of zero would take the alarm away.
        let left = at.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let once = Expiration::OneShot(TimeSpec::from_duration(left));
        // Setting it anew also forgets that it went off, so that nobody need read it and each alarm is an edge.
        timer.set(once, TimerSetTimeFlags::empty()).map_err(Alarm::error)
    }

    /// Waits until a channel can go on or `timeout` has passed; that in whole milliseconds, rounded up.
    pub fn wait(&mut self, timeout: Duration) -> Result<impl Iterator<Item = Ready> + '_, Error> {
        match self.poll.poll(&mut self.events, Some(timeout)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => self.events.clear(),
            result => result.map_err(Error::socket("cannot wait for sockets"))?,
        }
        Ok(self.events.iter().filter(|event| event.token() != TIMER).map(|event| Ready {
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

impl Bell {
    /// Ends the wait, or the next one if nobody waits.
    pub fn ring(&self) -> Result<(), Error> {
        self.0.wake().map_err(Error::socket("cannot ring a bell"))
    }
}

impl Alarm {
    fn timer(poll: &Poll) -> Result<TimerFd, Error> {
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
mod tests {
    use super::*;

    /// Far longer than any wait here should take.
    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn wakes_at_the_moment_and_not_before() {
        let mut reactor = Reactor::new().unwrap();
        // More than once: each alarm must be an edge, though nobody reads the timer.
        for micros in [300, 1_500, 40] {
            let at = Instant::now() + Duration::from_micros(micros);
            reactor.wake_at(at).unwrap();
            assert_eq!(reactor.wait(LONG).unwrap().count(), 0);
            let woke = Instant::now();
            assert!(woke >= at, "{:?} too soon", at - woke);
            assert!(woke - at < LONG / 2);
        }
    }

    #[test]
    fn a_moment_that_has_passed_wakes_at_once() {
        let mut reactor = Reactor::new().unwrap();
        let began = Instant::now();
        reactor.wake_at(began).unwrap();
        assert_eq!(reactor.wait(LONG).unwrap().count(), 0);
        assert!(began.elapsed() < LONG / 2);
    }

    #[test]
    fn a_bell_ends_a_wait_from_another_thread_and_is_not_forgotten() {
        let mut reactor = Reactor::new().unwrap();
        let bell = reactor.bell(7).unwrap();
        for _ in 0..2 {
            std::thread::scope(|scope| {
                scope.spawn(|| bell.ring().unwrap());
                let keys: Vec<usize> = reactor.wait(LONG).unwrap().map(|ready| ready.key).collect();
                assert_eq!(keys, [7]);
            });
        }
        bell.ring().unwrap();
        bell.ring().unwrap();
        assert_eq!(reactor.wait(LONG).unwrap().count(), 1);
        assert_eq!(reactor.wait(Duration::ZERO).unwrap().count(), 0);
    }

    #[test]
    fn two_reactors_share_a_listener_and_none_of_its_connections_is_lost() {
        let mut reactors = [Reactor::new().unwrap(), Reactor::new().unwrap()];
        let first = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let mut listeners = [first.try_clone().unwrap(), first];
        for (reactor, listener) in reactors.iter().zip(&listeners) {
            reactor.register_shared_listener(listener, 3).unwrap();
        }
        let address = listeners[0].address().unwrap();
        let _client = std::net::TcpStream::connect(address).unwrap();
        // Which of the two is told is the kernel's to say, and when.
        let until = Instant::now() + LONG;
        while reactors.iter_mut().all(|reactor| reactor.wait(Duration::ZERO).unwrap().count() == 0) {
            assert!(Instant::now() < until, "nobody is told");
        }
        let accepted = listeners.iter_mut().filter_map(|listener| listener.accept().unwrap()).count();
        assert_eq!(accepted, 1);
    }

    #[test]
    fn a_channel_goes_from_one_reactor_to_another() {
        let (mut first, mut second) = (Reactor::new().unwrap(), Reactor::new().unwrap());
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut channel = Channel::from_unix(ours).unwrap();
        first.register_reading(&mut channel, 1).unwrap();
        first.deregister(&mut channel).unwrap();
        io::Write::write_all(&mut theirs, b"x").unwrap();
        assert_eq!(first.wait(Duration::ZERO).unwrap().count(), 0);
        // What came between the two is told of.
        second.register_reading(&mut channel, 2).unwrap();
        let keys: Vec<usize> = second.wait(LONG).unwrap().map(|ready| ready.key).collect();
        assert_eq!(keys, [2]);
    }

    #[test]
    fn the_last_word_counts() {
        let mut reactor = Reactor::new().unwrap();
        let began = Instant::now();
        reactor.wake_at(began + LONG).unwrap();
        reactor.wake_at(began + Duration::from_millis(1)).unwrap();
        assert_eq!(reactor.wait(LONG).unwrap().count(), 0);
        assert!(began.elapsed() < LONG / 2);
    }
}
