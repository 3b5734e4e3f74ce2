//! The link between the workers and the console, whose commands run on separate threads: where clients of the
//! console go, what its commands have decided, and how waiting commands learn that something has changed.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ciphertoll_net::{Channel, Peer};

use crate::console_facts::Facts;
use crate::console_rules::{ConsoleLogin, Role};
use crate::operations::Operations;

/// Sessions and requests at a time; further ones are refused.
pub(crate) const MAX_SESSIONS: usize = 16;
/// With this number in progress, no further session begins that may only use `SHOW`.
const MAX_STATS_SESSIONS: usize = 10;
/// A client of the console. Its connection no longer belongs to a worker.
pub(crate) struct ConsoleClient {
    pub(crate) channel: Channel,
    pub(crate) login: ConsoleLogin,
    pub(crate) peer: Peer,
    /// What the client must present to cancel its commands, with the process ID of its session.
    pub(crate) secret: [u8; 4],
    pub(crate) session: SessionGuard,
}

/// Opens a session of the console on a separate thread.
type Door = Box<dyn Fn(ConsoleClient) + Send + Sync>;
/// Reads the settings again; returns whether they are in force.
type Reload = Box<dyn Fn() -> bool + Send + Sync>;

#[derive(Default)]
pub(crate) struct ConsoleLink {
    decided: Mutex<Decided>,
    /// Counts connections that workers have closed since an operator's first command.
    closed: Mutex<u64>,
    closing: Condvar,
    sessions: Mutex<HashMap<u32, Session>>,
    door: OnceLock<Door>,
    reload: OnceLock<Reload>,
    facts: Mutex<Option<Arc<Facts>>>,
    /// Commands so far.
    commands: AtomicU64,
}

/// What the commands have decided. While this is locked, no other command can change it.
#[derive(Default)]
pub(crate) struct Decided {
    pub(crate) operations: Arc<Operations>,
    /// Another process has the sockets, so a change of this process's state would surprise the operator.
    pub(crate) is_handed_over: bool,
}

struct Session {
    /// `None` for a request by HTTP, which cannot be cancelled.
    secret: Option<[u8; 4]>,
    is_cancelled: bool,
    began: Instant,
}

/// Counts a session of the console until it is dropped.
pub(crate) struct SessionGuard {
    link: Arc<ConsoleLink>,
    pub(crate) process_id: u32,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // All values are valid even if a thread panicked while it held the lock.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ConsoleLink {
    pub(crate) fn decided(&self) -> MutexGuard<'_, Decided> {
        lock(&self.decided)
    }

    pub(crate) fn operations(&self) -> Arc<Operations> {
        Arc::clone(&self.decided().operations)
    }

    /// Counts a new session; `None` if there are too many. `secret` is what a client must present to cancel its command.
    pub(crate) fn begin_session(
        self: &Arc<Self>,
        process_id: u32,
        secret: Option<[u8; 4]>,
        role: Role,
    ) -> Option<SessionGuard> {
        let most = match role {
            Role::Admin => MAX_SESSIONS,
            // Users who may only use `SHOW` must not lock operators out.
            Role::Stats => MAX_STATS_SESSIONS,
        };
        let mut sessions = lock(&self.sessions);
        if sessions.len() >= most || sessions.contains_key(&process_id) {
            return None;
        }
        sessions.insert(process_id, Session { secret, is_cancelled: false, began: Instant::now() });
        Some(SessionGuard { link: Arc::clone(self), process_id })
    }

    /// The same for a request that has no process ID.
    pub(crate) fn begin_request(self: &Arc<Self>, role: Role) -> Option<SessionGuard> {
        (0..=MAX_SESSIONS as u32).find_map(|process_id| self.begin_session(process_id, None, role))
    }

    /// Cancels the command of the session with this process ID and key. Returns whether there is one.
    pub(crate) fn cancel(&self, process_id: u32, key: &[u8]) -> bool {
        let mut sessions = lock(&self.sessions);
        let Some(session) = sessions.get_mut(&process_id) else { return false };
        let is_its_key = session
            .secret
            .is_some_and(|secret| key.len() == secret.len() && openssl::memcmp::eq(key, &secret));
        session.is_cancelled |= is_its_key;
        drop(sessions);
        self.notify();
        is_its_key
    }

    pub(crate) fn set_door(&self, door: impl Fn(ConsoleClient) + Send + Sync + 'static) {
        // It is set once, at the start.
        let _ = self.door.set(Box::new(door));
    }

    pub(crate) fn enter(&self, client: ConsoleClient) {
        if let Some(door) = self.door.get() {
            door(client);
        }
    }

    pub(crate) fn set_reload(&self, reload: impl Fn() -> bool + Send + Sync + 'static) {
        // It is set once, at the start.
        let _ = self.reload.set(Box::new(reload));
    }

    /// The settings that the console shows; `None` before the start is complete.
    pub(crate) fn facts(&self) -> Option<Arc<Facts>> {
        lock(&self.facts).clone()
    }

    pub(crate) fn set_facts(&self, facts: Facts) {
        *lock(&self.facts) = Some(Arc::new(facts));
    }

    pub(crate) fn count_command(&self) {
        self.commands.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn commands(&self) -> u64 {
        self.commands.load(Ordering::Relaxed)
    }

    /// When the sessions of PostgreSQL clients began, by their process IDs.
    pub(crate) fn sessions(&self) -> Vec<(u32, Instant)> {
        let sessions = lock(&self.sessions);
        let by_listener = sessions.iter().filter(|(_, session)| session.secret.is_some());
        by_listener.map(|(process_id, session)| (*process_id, session.began)).collect()
    }

    /// Reads the settings again; returns whether they are in force.
    pub(crate) fn reload(&self) -> bool {
        self.reload.get().is_some_and(|reload| reload())
    }

    /// A connection was closed, or a command was cancelled: commands that wait look again.
    pub(crate) fn notify(&self) {
        *lock(&self.closed) += 1;
        self.closing.notify_all();
    }

    /// The number of notices so far.
    pub(crate) fn notices(&self) -> u64 {
        *lock(&self.closed)
    }

    /// Waits for the next notice after `seen`, for at most `timeout`.
    pub(crate) fn await_notice(&self, seen: u64, timeout: Duration) {
        let is_old = |closed: &mut u64| *closed == seen;
        drop(self.closing.wait_timeout_while(lock(&self.closed), timeout, is_old));
    }
}

impl SessionGuard {
    /// Whether the client has cancelled its command. The next one begins anew.
    pub(crate) fn take_cancelled(&self) -> bool {
        let mut sessions = lock(&self.link.sessions);
        sessions.get_mut(&self.process_id).is_some_and(|session| std::mem::take(&mut session.is_cancelled))
    }
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        lock(&self.link.sessions).remove(&self.process_id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_cancelled_by_its_own_key_only() {
        let link = Arc::new(ConsoleLink::default());
        let session = link.begin_session(7, Some(*b"key7"), Role::Admin).unwrap();
        assert!(link.begin_session(7, Some(*b"twin"), Role::Admin).is_none());
        for (process_id, key) in [(7, &b"key8"[..]), (8, b"key7"), (7, b"key7x"), (7, b"")] {
            assert!(!link.cancel(process_id, key) && !session.take_cancelled());
        }
        assert!(link.cancel(7, b"key7"));
        assert!(session.take_cancelled() && !session.take_cancelled());
        drop(session);
        assert!(!link.cancel(7, b"key7"));
    }

    #[test]
    fn the_number_of_sessions_is_bounded() {
        let link = Arc::new(ConsoleLink::default());
        let mut all: Vec<_> =
            (0..MAX_STATS_SESSIONS).map(|_| link.begin_request(Role::Stats).unwrap()).collect();
        assert!(link.begin_request(Role::Stats).is_none());
        all.extend((MAX_STATS_SESSIONS..MAX_SESSIONS).map(|_| link.begin_request(Role::Admin).unwrap()));
        assert!(link.begin_request(Role::Admin).is_none());
        assert!(!link.cancel(all[0].process_id, b""));
        drop(all);
        assert!(link.begin_request(Role::Stats).is_some());
    }
}
