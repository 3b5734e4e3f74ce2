//! What all clients have seen, and which errors were to be expected.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long after a kill an error may still come from it, on a busy machine.
const KILL_GRACE: Duration = Duration::from_secs(5);
/// The same after the restart of a server: clients wait for a connection for up to 10 s.
const RESTART_GRACE: Duration = Duration::from_secs(15);

/// What explains an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// A connection was killed on the server shortly before.
    Kill,
    /// The server is being restarted, or was shortly before.
    Restart,
    /// Nothing: the soak fails.
    Unexplained,
}

#[derive(Debug, Default)]
pub struct Tally {
    pub answers: AtomicU64,
    pub connects: AtomicU64,
    /// Answers without their nonce, or with another client's setting.
    pub wrong: AtomicU64,
    pub connected: AtomicU64,
    /// Connections that were killed on the server.
    pub killed: AtomicU64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    kills: Vec<Instant>,
    restarts: Vec<Restart>,
    errors: BTreeMap<Cause, u64>,
    /// Each message, and how often it came.
    messages: BTreeMap<(Cause, String), u64>,
}

#[derive(Clone, Copy, Debug)]
struct Restart {
    ended: Option<Instant>,
}

impl Tally {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn note_kill(&self, connections: usize) {
        self.seen().kills.push(Instant::now());
        self.killed.fetch_add(connections as u64, Ordering::Relaxed);
    }

    pub fn note_restart_begins(&self) {
        self.seen().restarts.push(Restart { ended: None });
    }

    pub fn note_restart_ends(&self) {
        if let Some(restart) = self.seen().restarts.last_mut() {
            restart.ended = Some(Instant::now());
        }
    }

    /// An error of a client that was served without one at `last_served`: what happened since then may have caused it.
    pub fn note_error(&self, message: &str, last_served: Instant) {
        let mut seen = self.seen();
        let cause = cause(&seen, last_served);
        *seen.errors.entry(cause).or_default() += 1;
        *seen.messages.entry((cause, message.to_owned())).or_default() += 1;
    }

    pub fn errors(&self, cause: Cause) -> u64 {
        self.seen().errors.get(&cause).copied().unwrap_or_default()
    }

    /// Each message with its cause and count.
    pub fn messages(&self) -> Vec<String> {
        let seen = self.seen();
        seen.messages.iter().map(|((cause, text), count)| format!("{cause:?} × {count}: {text}")).collect()
    }
}

fn cause(seen: &Seen, last_served: Instant) -> Cause {
    let is_since = |moment: Instant, grace: Duration| moment + grace > last_served;
    let by_restart = |restart: &Restart| restart.ended.is_none_or(|ended| is_since(ended, RESTART_GRACE));
    if seen.restarts.iter().any(by_restart) {
        return Cause::Restart;
    }
    if seen.kills.iter().any(|kill| is_since(*kill, KILL_GRACE)) { Cause::Kill } else { Cause::Unexplained }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_explained_by_what_happened_since_the_client_was_served() {
        let tally = Tally::default();
        let now = Instant::now();
        tally.note_error("first", now);
        tally.note_kill(2);
        tally.note_error("second", now);
        tally.note_restart_begins();
        tally.note_error("third", now);
        tally.note_restart_ends();
        tally.note_error("third", now);
        let counts = [Cause::Kill, Cause::Restart, Cause::Unexplained].map(|cause| tally.errors(cause));
        assert_eq!(counts, [1, 2, 1]);
        assert_eq!(tally.messages().len(), 3);
        assert_eq!(cause(&tally.seen(), now + KILL_GRACE * 2), Cause::Restart);
        assert_eq!(cause(&tally.seen(), now + RESTART_GRACE * 2), Cause::Unexplained);
    }
}
