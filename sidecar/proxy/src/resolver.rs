//! A name that is resolved on a separate thread: clients must not wait for a resolver, which may take seconds.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::Error;

/// When a connection is opened, a name that was resolved longer ago is resolved again.
pub(crate) const RESOLVE_INTERVAL: Duration = Duration::from_secs(5);

/// Clones share the addresses.
#[derive(Clone)]
pub(crate) struct Resolver {
    found: Arc<FoundAddresses>,
    refresh: Sender<()>,
    requested: Instant,
    /// The index of the next address to try.
    next_address: usize,
    name: String,
    pub(crate) interval: Duration,
}

#[derive(Default)]
struct FoundAddresses {
    addresses: Mutex<Vec<SocketAddr>>,
    /// How often other addresses were found than before.
    changes: AtomicU64,
}

impl FoundAddresses {
    fn lock(&self) -> MutexGuard<'_, Vec<SocketAddr>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Old addresses are better than none.
    fn replace(&self, newer: io::Result<Vec<SocketAddr>>) {
        let Some(newer) = newer.ok().filter(|newer| !newer.is_empty()) else { return };
        let mut addresses = self.lock();
        let is_same = addresses.len() == newer.len() && newer.iter().all(|newer| addresses.contains(newer));
        *addresses = newer;
        if !is_same {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }
}

impl Resolver {
    pub(crate) fn look_up(name: &str, port: u16) -> Self {
        let found = Arc::new(FoundAddresses::default());
        found.replace(resolve(name, port));
        let (refresh, requests) = mpsc::channel();
        let (shared, host) = (Arc::clone(&found), name.to_owned());
        // The loop ends when the sender is dropped.
        thread::spawn(move || {
            while requests.recv().is_ok() {
                shared.replace(resolve(&host, port));
                // Several requests meanwhile are one.
                while requests.try_recv().is_ok() {}
            }
        });
        let (requested, interval) = (Instant::now(), RESOLVE_INTERVAL);
        Self { found, refresh, requested, next_address: 0, name: name.to_owned(), interval }
    }

    pub(crate) fn refresh_if_old(&mut self) {
        if self.requested.elapsed() > self.interval {
            self.requested = Instant::now();
            // The thread ends only when this sender is dropped.
            let _ = self.refresh.send(());
        }
    }

    pub(crate) fn next(&mut self) -> Result<SocketAddr, Error> {
        self.refresh_if_old();
        let found = self.found.lock();
        if found.is_empty() {
            let reason = "it has no address; it is resolved again every few seconds".to_owned();
            return Err(Error::Unresolved { name: self.name.clone(), reason });
        }
        Ok(found[self.next_address % found.len()])
    }

    pub(crate) fn use_next(&mut self) {
        self.next_address = self.next_address.wrapping_add(1);
    }

    /// The name, the seconds until a connect looks it up again, and its addresses.
    pub(crate) fn known(&self) -> (String, u64, Vec<SocketAddr>) {
        let ttl = self.interval.saturating_sub(self.requested.elapsed());
        (self.name.clone(), ttl.as_secs(), self.found.lock().clone())
    }

    pub(crate) fn changes(&self) -> u64 {
        self.found.changes.load(Ordering::Acquire)
    }

    pub(crate) fn has(&self, address: &SocketAddr) -> bool {
        self.found.lock().contains(address)
    }
}

fn resolve(name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok((name, port).to_socket_addrs()?.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_lost_only_if_others_were_found() {
        let found = FoundAddresses::default();
        let [one, two]: [SocketAddr; 2] =
            ["192.0.2.1:5432", "192.0.2.2:5432"].map(|text| text.parse().unwrap());
        let changes = || found.changes.load(Ordering::Acquire);
        found.replace(Ok(vec![one, two]));
        assert_eq!(changes(), 1);
        found.replace(Ok(vec![two, one]));
        assert_eq!(changes(), 1, "another order is no change");
        found.replace(Ok(Vec::new()));
        found.replace(Err(io::Error::other("no resolver")));
        assert_eq!((changes(), found.lock().len()), (1, 2));
        found.replace(Ok(vec![two]));
        assert_eq!((changes(), found.lock().clone()), (2, vec![two]));
    }
}
