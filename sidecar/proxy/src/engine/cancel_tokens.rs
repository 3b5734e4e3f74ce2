//! The tokens that clients were given to cancel their commands with.

use foldhash::HashMap;

use crate::protocol::{CancelBy, CancelToken};
use crate::random::RandomBytes;
use crate::slab::Id;

const MAX_PROCESS: u32 = i32::MAX.cast_unsigned();

pub(super) struct CancelTokens {
    cancel_by: CancelBy,
    thread: u32,
    threads: u32,
    /// Clients by the process ID that the proxy sent to them.
    clients: HashMap<u32, Id>,
    random: RandomBytes,
}

impl CancelTokens {
    pub(super) fn for_workers(cancel_by: CancelBy, threads: usize) -> Vec<Self> {
        let of_worker = |thread: usize| Self {
            cancel_by,
            thread: thread as u32,
            threads: threads.max(1) as u32,
            clients: HashMap::default(),
            random: RandomBytes::default(),
        };
        (0..threads).map(of_worker).collect()
    }

    /// A token with a process ID that no other client has; `None` if OpenSSL has no random bytes. If clients cancel by
    /// commands, they are not told it, and it finds none.
    pub(super) fn create(&mut self) -> Option<CancelToken> {
        if self.cancel_by == CancelBy::Command {
            return Some(CancelToken { process_id: 0, secret: [0; 4] });
        }
        loop {
            let token_bytes: [u8; 8] = self.random.take()?;
            // Some drivers read it as a signed number, and take 0 for none.
            let near = u32::from_be_bytes(*token_bytes.first_chunk()?) >> 1;
            // The remainder names the worker.
            let process_id = near - near % self.threads + self.thread;
            let is_used = self.clients.contains_key(&process_id);
            if process_id != 0 && process_id <= MAX_PROCESS && !is_used {
                return Some(CancelToken { process_id, secret: *token_bytes.last_chunk()? });
            }
        }
    }

    pub(super) fn insert(&mut self, token: CancelToken, client: Id) {
        if self.cancel_by == CancelBy::Token {
            self.clients.insert(token.process_id, client);
        }
    }

    pub(super) fn remove(&mut self, token: CancelToken) {
        self.clients.remove(&token.process_id);
    }

    pub(super) fn client(&self, process_id: u32) -> Option<Id> {
        self.clients.get(&process_id).copied()
    }

    /// The worker that has given this process ID to a client, and has that client.
    pub(super) fn worker_of(&self, process_id: u32) -> usize {
        (process_id % self.threads) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slab::Slab;

    #[test]
    fn the_process_id_names_the_worker_and_one_client() {
        let mut tokens = CancelTokens::for_workers(CancelBy::Token, 3).remove(2);
        for _ in 0..1_000 {
            let token = tokens.create().unwrap();
            assert!(token.process_id > 0 && token.process_id <= MAX_PROCESS);
            assert_eq!((tokens.worker_of(token.process_id), tokens.client(token.process_id)), (2, None));
        }
    }

    #[test]
    fn clients_that_cancel_by_commands_are_not_found() {
        let mut tokens = CancelTokens::for_workers(CancelBy::Command, 2);
        let mut slab = Slab::of_thread(0, 2);
        let token = tokens[0].create().unwrap();
        tokens[0].insert(token, slab.insert(()));
        assert_eq!(tokens[0].client(token.process_id), None);
        tokens[0].remove(token);
    }
}
