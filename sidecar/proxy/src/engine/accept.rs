//! Accepting clients: which listeners are watched, also when the machine runs out of file descriptors or memory.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Error, Fault, Listener, Peer, Reactor, Trigger};

use super::backoff::Backoff;
use super::flow::{TokenKind, token_of};
use super::signals::{FIRST_SIGNAL_TASK, SignalTask};
use crate::settings::ListenAddress;

/// Number of the first listener, after the signals and the mailbox.
const FIRST_LISTENER: usize = FIRST_SIGNAL_TASK + SignalTask::ALL.len();
/// Clients that are told at once that the server cannot be reached.
const REFUSED_AT_ONCE: usize = 64;
/// At most one log line about failures per interval.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The listeners of one worker, which are watched only while clients can be accepted.
pub(super) struct Acceptor {
    listeners: Vec<Listener>,
    is_watching: bool,
    /// Clients that are counted, but cannot be greeted before the server is known.
    early_clients: Vec<(Box<Channel>, Peer)>,
    /// Pauses while the machine lacks resources.
    backoff: Backoff,
    failures: UnloggedFailures,
}

/// What has come of a listener's readiness.
pub(super) enum AcceptedClient {
    Client(Channel, Peer),
    /// Another worker was faster, or the client has left.
    None,
    Failed(Error),
}

impl Acceptor {
    pub(super) fn new(listeners: Vec<Listener>) -> Self {
        Self {
            listeners,
            is_watching: false,
            early_clients: Vec::new(),
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(1)),
            failures: UnloggedFailures::default(),
        }
    }

    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        self.listeners.iter().filter_map(Listener::address)
    }

    pub(super) fn sockets(&self) -> io::Result<Vec<OwnedFd>> {
        self.listeners.iter().map(|listener| listener.descriptor().try_clone_to_owned()).collect()
    }

    /// The files of these unix sockets are removed in the end.
    pub(super) fn own_files(&mut self, addresses: &[ListenAddress]) {
        for (listener, address) in self.listeners.iter_mut().zip(addresses) {
            if let ListenAddress::Unix(path) = address {
                listener.own_file(path);
            }
        }
    }

    /// The same listeners, for another worker.
    pub(super) fn share(&self) -> Result<Vec<Listener>, Error> {
        self.listeners.iter().map(Listener::try_clone).collect()
    }

    /// Watches the listeners, unless the machine still lacks resources.
    pub(super) fn watch(&mut self, reactor: &Reactor, now: Instant) -> Result<(), Error> {
        if self.is_watching || self.backoff.is_paused(now) {
            return Ok(());
        }
        self.backoff.resume();
        for (at, listener) in self.listeners.iter().enumerate() {
            let token = token_of(TokenKind::Fixed, FIRST_LISTENER + at);
            reactor.register_listener(listener, token, Trigger::Level)?;
        }
        self.is_watching = true;
        Ok(())
    }

    /// Leaves clients in the accept queue.
    pub(super) fn pause(&mut self, reactor: &Reactor) {
        if std::mem::take(&mut self.is_watching) {
            for listener in &self.listeners {
                // It fails only for a listener that is not watched.
                let _ = reactor.deregister_listener(listener);
            }
        }
    }

    /// When the listeners will be watched again; `None` unless the machine lacks resources.
    pub(super) fn paused_until(&self) -> Option<Instant> {
        self.backoff.until()
    }

    /// Accepts one client of the listener with this number. While resources are lacking, no more are accepted.
    pub(super) fn accept(&mut self, number: usize, reactor: &Reactor, now: Instant) -> AcceptedClient {
        let at = number.checked_sub(FIRST_LISTENER);
        let Some(listener) = at.and_then(|at| self.listeners.get_mut(at)) else {
            return AcceptedClient::None;
        };
        match listener.accept() {
            Ok(None) => AcceptedClient::None,
            Ok(Some((channel, peer))) => {
                self.backoff.succeeded();
                AcceptedClient::Client(channel, peer)
            }
            Err(error) => {
                if error.fault() == Fault::Host {
                    self.pause(reactor);
                    self.backoff.failed(now);
                }
                AcceptedClient::Failed(error)
            }
        }
    }

    /// Accepts clients that are only told why they cannot be served.
    pub(super) fn accept_waiting(&mut self) -> Vec<(Box<Channel>, Peer)> {
        let mut clients = Vec::new();
        for listener in &mut self.listeners {
            while let Ok(Some((channel, peer))) = listener.accept() {
                clients.push((Box::new(channel), peer));
                if clients.len() >= REFUSED_AT_ONCE {
                    break;
                }
            }
        }
        clients
    }

    pub(super) fn add_early(&mut self, channel: Box<Channel>, peer: Peer) {
        self.early_clients.push((channel, peer));
    }

    pub(super) fn take_early(&mut self) -> Vec<(Box<Channel>, Peer)> {
        std::mem::take(&mut self.early_clients)
    }

    /// Counts a failure. Returns the number of failures if a log line is due.
    pub(super) fn count_failure(&mut self, now: Instant) -> Option<u64> {
        self.failures.add(now)
    }

    /// Closes the listeners; another process has the sockets and their files.
    pub(super) fn hand_over(&mut self, reactor: &Reactor) {
        self.listeners.iter_mut().for_each(Listener::leave_file);
        self.stop(reactor);
    }

    /// Closes the listeners. Those of other workers refer to the same sockets, which would still be reported.
    pub(super) fn stop(&mut self, reactor: &Reactor) {
        self.pause(reactor);
        self.listeners.clear();
    }
}

/// Failures to accept that are not logged yet.
#[derive(Default)]
struct UnloggedFailures {
    count: u64,
    logged: Option<Instant>,
}

impl UnloggedFailures {
    fn add(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_INTERVAL) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_together() {
        let (mut failures, now) = (UnloggedFailures::default(), Instant::now());
        assert_eq!(failures.add(now), Some(1));
        assert_eq!((0..5).filter_map(|_| failures.add(now)).count(), 0);
        assert_eq!(failures.add(now + LOG_INTERVAL), Some(6));
    }

    #[test]
    fn a_paused_listener_keeps_its_clients() {
        let (mut reactor, now) = (Reactor::new().unwrap(), Instant::now());
        let listener = Listener::tcp(([127, 0, 0, 1], 0).into()).unwrap();
        let address = listener.address().unwrap();
        let mut acceptor = Acceptor::new(vec![listener]);
        let mut is_reported = |acceptor: &mut Acceptor, action: fn(&mut Acceptor, &Reactor, Instant)| {
            action(acceptor, &reactor, now);
            reactor.wait(Duration::from_millis(50)).unwrap().count() > 0
        };
        let _client = std::net::TcpStream::connect(address).unwrap();
        let watch = |acceptor: &mut Acceptor, reactor: &Reactor, now| acceptor.watch(reactor, now).unwrap();
        assert!(is_reported(&mut acceptor, watch));
        assert!(!is_reported(&mut acceptor, |acceptor, reactor, _| acceptor.pause(reactor)));
        assert!(is_reported(&mut acceptor, watch));
        assert!(matches!(acceptor.accept(FIRST_LISTENER, &reactor, now), AcceptedClient::Client(..)));
        assert!(matches!(acceptor.accept(FIRST_LISTENER, &reactor, now), AcceptedClient::None));
    }
}
