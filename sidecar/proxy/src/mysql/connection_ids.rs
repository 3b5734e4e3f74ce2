//! Connection IDs. A client is greeted before it has a server connection, so it gets an ID of the proxy's
//! own. Other clients use that ID to kill its command, and the registry translates it to the server's.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ciphertoll_wire::mysql::relay;
use foldhash::HashMap;

use crate::protocol::PendingKill;

/// The proxy's IDs start here and end below 2^31, because some drivers read them as signed numbers. Servers
/// count from 1 and do not get this far.
pub(crate) const FIRST_ID: u32 = 1 << 30;

/// Shared by all sessions of a proxy.
// Used by all workers.
#[derive(Clone, Debug, Default)]
pub struct ConnectionIds(Arc<Mutex<Registry>>);

#[derive(Debug, Default)]
struct Registry {
    next: u32,
    clients: HashMap<u32, Arc<ClientRecord>>,
}

/// What other clients know of a client.
#[derive(Debug)]
struct ClientRecord {
    kill: AtomicKill,
    server: Mutex<ServerSide>,
}

#[derive(Debug)]
struct ServerSide {
    /// The server's ID of the client's connection; `None` between transactions.
    number: Option<u32>,
    /// `KILL` commands for this session that are on their way to the server.
    kills: usize,
}

/// A [`PendingKill`] as a number.
#[derive(Debug, Default)]
struct AtomicKill(AtomicU8);

/// A client in the registry; it is removed when dropped.
#[derive(Debug)]
pub(super) struct RegisteredClient {
    connection_ids: ConnectionIds,
    number: u32,
    record: Arc<ClientRecord>,
    /// The targets of this client's own `KILL` commands that are not answered yet.
    kills_sent: Vec<Arc<ClientRecord>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillTarget {
    /// A server connection with this ID.
    Backend(u32),
    /// A client without a connection. It has been notified.
    Notified,
    Unknown,
}

impl AtomicKill {
    /// A kill of the connection outweighs one of the query.
    fn raise(&self, kill: PendingKill) {
        self.0.fetch_max(kill as u8, Ordering::AcqRel);
    }

    fn get(&self) -> PendingKill {
        let kinds = [PendingKill::None, PendingKill::Query, PendingKill::Connection];
        kinds[usize::from(self.0.load(Ordering::Acquire))]
    }

    fn clear_query_kill(&self) {
        let (query, none) = (PendingKill::Query as u8, PendingKill::None as u8);
        let _ = self.0.compare_exchange(query, none, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl ConnectionIds {
    pub fn next_id(&self) -> u32 {
        let mut registry = self.registry();
        let number = registry.next;
        registry.next = number.wrapping_add(1);
        (number % FIRST_ID) | FIRST_ID
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a client; its connection, if it has one, has the server's ID `server_number`.
    pub(super) fn register(&self, number: u32, server_number: Option<u32>) -> RegisteredClient {
        let server = Mutex::new(ServerSide { number: server_number, kills: 0 });
        let record = Arc::new(ClientRecord { kill: AtomicKill::default(), server });
        self.registry().clients.insert(number, Arc::clone(&record));
        RegisteredClient { connection_ids: self.clone(), number, record, kills_sent: Vec::new() }
    }
}

impl ClientRecord {
    fn server(&self) -> MutexGuard<'_, ServerSide> {
        self.server.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RegisteredClient {
    pub(super) fn set_backend(&self, server_number: Option<u32>) {
        self.record.server().number = server_number;
    }

    pub(super) fn resolve_kill(&mut self, number: u32, what: relay::KillTarget) -> KillTarget {
        let Some(target) = self.connection_ids.registry().clients.get(&number).map(Arc::clone) else {
            return KillTarget::Unknown;
        };
        let mut server = target.server();
        if let Some(server_number) = server.number {
            server.kills += 1;
            drop(server);
            self.kills_sent.push(target);
            return KillTarget::Backend(server_number);
        }
        target.kill.raise(match what {
            relay::KillTarget::Query => PendingKill::Query,
            relay::KillTarget::Connection => PendingKill::Connection,
        });
        KillTarget::Notified
    }

    /// The kill that another client has requested while this one had no connection.
    pub(super) fn pending_kill(&self) -> PendingKill {
        self.record.kill.get()
    }

    /// The client has no command that could be cancelled, or its command was cancelled.
    pub(super) fn clear_query_kill(&self) {
        self.record.kill.clear_query_kill();
    }

    /// All of this client's commands are answered, so its `KILL`s are done.
    pub(super) fn kills_answered(&mut self) {
        for target in self.kills_sent.drain(..) {
            let mut server = target.server();
            server.kills = server.kills.saturating_sub(1);
        }
    }

    /// Whether a `KILL` for this session's connection is on its way, which could hit the connection's next
    /// client. If not, none will be sent there any more: another worker could send one before the session is
    /// dropped.
    pub(super) fn has_kill_in_flight(&self) -> bool {
        let mut server = self.record.server();
        if server.kills == 0 {
            server.number = None;
        }
        server.kills > 0
    }
}

impl Drop for RegisteredClient {
    fn drop(&mut self) {
        // Unanswered `KILL`s by this client may still take effect.
        self.connection_ids.registry().clients.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_in_flight_until_it_is_answered() {
        let connection_ids = ConnectionIds::default();
        let (first, second) = (connection_ids.next_id(), connection_ids.next_id());
        assert!(first >= FIRST_ID && second >= FIRST_ID && first != second);
        let (target, mut killer) =
            (connection_ids.register(first, Some(11)), connection_ids.register(second, Some(12)));
        let what = relay::KillTarget::Query;
        assert_eq!(
            (killer.resolve_kill(first, what), killer.resolve_kill(7, what)),
            (KillTarget::Backend(11), KillTarget::Unknown)
        );
        assert!(target.has_kill_in_flight() && !killer.has_kill_in_flight());
        killer.kills_answered();
        assert!(!target.has_kill_in_flight());
        // After this check, the connection cannot be killed.
        assert_eq!(killer.resolve_kill(first, what), KillTarget::Notified);
        target.set_backend(Some(11));
        // An unanswered kill may take effect at any time.
        assert_eq!(killer.resolve_kill(first, what), KillTarget::Backend(11));
        drop(killer);
        assert!(target.has_kill_in_flight());
        drop(target);
        assert_eq!(connection_ids.register(second, Some(12)).resolve_kill(first, what), KillTarget::Unknown);
    }

    #[test]
    fn a_client_without_a_connection_is_notified_of_a_kill() {
        let connection_ids = ConnectionIds::default();
        let (target, mut killer) = (
            connection_ids.register(FIRST_ID + 1, Some(11)),
            connection_ids.register(FIRST_ID + 2, Some(12)),
        );
        target.set_backend(None);
        assert_eq!(target.pending_kill(), PendingKill::None);
        assert_eq!(killer.resolve_kill(FIRST_ID + 1, relay::KillTarget::Query), KillTarget::Notified);
        assert_eq!((target.pending_kill(), target.has_kill_in_flight()), (PendingKill::Query, false));
        target.clear_query_kill();
        assert_eq!(target.pending_kill(), PendingKill::None);
        killer.resolve_kill(FIRST_ID + 1, relay::KillTarget::Connection);
        killer.resolve_kill(FIRST_ID + 1, relay::KillTarget::Query);
        target.clear_query_kill();
        assert_eq!(target.pending_kill(), PendingKill::Connection);
        target.set_backend(Some(13));
        assert_eq!(killer.resolve_kill(FIRST_ID + 1, relay::KillTarget::Query), KillTarget::Backend(13));
    }
}
