//! Keys that are paused.

use std::collections::BTreeSet;

use super::*;

impl Model {
    pub(super) fn pause(&mut self, at: usize) {
        self.pauses.insert(KEYS[at % KEYS.len()]);
        self.send_pauses();
    }

    pub(super) fn resume(&mut self, at: usize) {
        self.pauses.remove(KEYS[at % KEYS.len()]);
        self.send_pauses();
    }

    pub(super) fn send_pauses(&mut self) {
        self.next += 1;
        for mailbox in &mut self.mailboxes {
            mailbox.push_back(WorkerMessage::Pause(u64::from(self.next), self.pauses.clone()));
        }
    }

    /// A worker reads a rule: it closes its connections that are paused and have no client.
    pub(super) fn read_pauses(&mut self, thread: usize, version: u64, pauses: BTreeSet<Name>) {
        let rule = pauses.clone();
        self.pool.set_paused(version, move |key| rule.contains(key));
        if version > self.pauses_of_pool.0 {
            self.pauses_of_pool = (version, pauses.clone());
        }
        let is_unused = |number: &Number, key: &Name, state: &ServerState| {
            let has_client = matches!(state, ServerState::Busy(_) | ServerState::Resetting);
            number.thread() == thread && pauses.contains(key) && !has_client
        };
        let all = self.connections.iter();
        let unused: Vec<Number> =
            all.filter(|(number, (key, state))| is_unused(number, key, state)).map(|(n, _)| *n).collect();
        for connection in unused {
            self.close(connection);
        }
        let (ours, others) =
            self.opening.drain(..).partition(|(opener, key)| *opener == thread && pauses.contains(key));
        self.opening = others;
        let ours: Vec<(usize, Name)> = ours;
        for (_, key) in ours {
            self.pool.opened(&key);
            self.pool.closed(&key, None);
        }
        self.pauses_read[thread] = pauses;
        self.check_unserved[thread] = true;
    }

    /// The pool gives nothing to a client of a paused key, and opens nothing for it.
    pub(super) fn check_not_paused(&self, key: Name) {
        assert!(!self.pauses_of_pool.1.contains(key), "{key} is paused");
    }
}
