//! Connections that were seen, and how many of them each process had, in bounded memory.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

use super::owner::SocketOwner;
use super::table::ClientSocket;

/// Distinct connections of one process from one address to one server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeenClient {
    pub client: IpAddr,
    pub server: SocketAddr,
    #[serde(flatten)]
    pub owner: SocketOwner,
    pub connections: u64,
}

/// Further combinations of client, server and process are not counted.
pub(crate) const MOST_CLIENTS: usize = 10_000;
/// Further connections are not counted while so many are open.
const MOST_CONNECTIONS: usize = 200_000;
/// A connection that so many samples did not show has ended. One alone may miss it: the table changes while it is read.
const FORGOTTEN_AFTER: u64 = 8;
/// A socket whose owner so many searches did not find has none that can be seen.
const MOST_SEARCHES: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct ConnectionCounts {
    sample: u64,
    known: HashMap<ClientSocket, KnownConnection>,
    clients: HashMap<(IpAddr, SocketAddr, SocketOwner), u64>,
}

#[derive(Clone, Copy, Debug)]
struct KnownConnection {
    last_sample: u64,
    /// How often its owner has been searched for; the most, if it was found.
    searches: u8,
}

impl ConnectionCounts {
    pub(crate) fn begin_sample(&mut self) {
        self.sample += 1;
        let oldest = self.sample.saturating_sub(FORGOTTEN_AFTER);
        self.known.retain(|_, known| known.last_sample >= oldest);
    }

    /// A connection that is in the table. Returns whether its owner is to be searched for.
    pub(crate) fn is_unknown(&mut self, socket: ClientSocket) -> bool {
        let is_full = self.known.len() >= MOST_CONNECTIONS;
        let known = match self.known.get_mut(&socket) {
            Some(known) => known,
            None if is_full => return false,
            None => self.known.entry(socket).or_insert(KnownConnection { last_sample: 0, searches: 0 }),
        };
        known.last_sample = self.sample;
        known.searches < MOST_SEARCHES
    }

    pub(crate) fn found(&mut self, socket: ClientSocket, owner: SocketOwner) {
        let Some(known) = self.known.get_mut(&socket) else { return };
        known.searches = MOST_SEARCHES;
        let client = (socket.client.ip(), socket.server, owner);
        let is_full = self.clients.len() >= MOST_CLIENTS;
        match self.clients.get_mut(&client) {
            Some(connections) => *connections += 1,
            None if is_full => {}
            None => drop(self.clients.insert(client, 1)),
        }
    }

    pub(crate) fn not_found(&mut self, socket: ClientSocket) {
        if let Some(known) = self.known.get_mut(&socket) {
            known.searches = known.searches.saturating_add(1);
        }
    }

    /// Those with most connections first.
    pub(crate) fn clients(&self) -> Vec<SeenClient> {
        let mut clients: Vec<_> = self
            .clients
            .iter()
            .map(|((client, server, owner), connections)| SeenClient {
                client: *client,
                server: *server,
                owner: owner.clone(),
                connections: *connections,
            })
            .collect();
        clients.sort_by(|one, other| {
            let key = |seen: &SeenClient| (Reverse(seen.connections), seen.client, seen.server);
            key(one).cmp(&key(other)).then_with(|| one.owner.cmp(&other.owner))
        });
        clients
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(number: u32) -> ClientSocket {
        let client = SocketAddr::from((number.to_be_bytes(), 40_000));
        ClientSocket { client, server: ([10, 0, 0, 5], 5432).into(), inode: u64::from(number) }
    }

    fn owner(name: &str) -> SocketOwner {
        SocketOwner { name: name.to_owned(), container: None, unit: None }
    }

    #[test]
    fn a_connection_is_counted_once() {
        let mut counts = ConnectionCounts::default();
        for _ in 0..3 {
            counts.begin_sample();
            if counts.is_unknown(socket(1)) {
                counts.found(socket(1), owner("shop"));
            }
        }
        assert_eq!(counts.clients()[0].connections, 1);
        // Another socket with the same ports.
        let again = ClientSocket { inode: 77, ..socket(1) };
        assert!(counts.is_unknown(again));
        counts.found(again, owner("shop"));
        assert_eq!(counts.clients()[0].connections, 2);
    }

    #[test]
    fn an_owner_that_cannot_be_seen_is_not_searched_for_ever() {
        let mut counts = ConnectionCounts::default();
        let mut searches = 0;
        for _ in 0..5 {
            counts.begin_sample();
            if counts.is_unknown(socket(1)) {
                searches += 1;
                counts.not_found(socket(1));
            }
        }
        assert_eq!((searches, counts.clients().len()), (usize::from(MOST_SEARCHES), 0));
    }

    #[test]
    fn connections_that_have_ended_are_forgotten() {
        let mut counts = ConnectionCounts::default();
        counts.begin_sample();
        assert!(counts.is_unknown(socket(1)));
        for _ in 0..=FORGOTTEN_AFTER {
            assert_eq!(counts.known.len(), 1);
            counts.begin_sample();
        }
        assert_eq!(counts.known.len(), 0);
    }

    #[test]
    fn memory_is_bounded() {
        let mut counts = ConnectionCounts::default();
        counts.begin_sample();
        for number in 0..MOST_CONNECTIONS as u32 + 10 {
            if counts.is_unknown(socket(number)) {
                counts.found(socket(number), owner("shop"));
            }
        }
        assert_eq!((counts.known.len(), counts.clients.len()), (MOST_CONNECTIONS, MOST_CLIENTS));
        // Those that are known still count.
        counts.begin_sample();
        assert!(!counts.is_unknown(socket(1)));
    }
}
