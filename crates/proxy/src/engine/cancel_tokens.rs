//! The tokens that clients were given to cancel their commands with.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use crate::protocol::CancelToken;
use crate::random::RandomBytes;
use crate::slab::Id;

const MAX_PROCESS: u32 = i32::MAX.cast_unsigned();

pub(super) struct CancelTokens {
    thread: u32,
    threads: u32,
    /// Clients by the process ID that the proxy sent to them.
    clients: HashMap<u32, Id, BuildHasherDefault<ProcessIdHasher>>,
    random: RandomBytes,
}

/// Process IDs are random, and clients do not choose them: they need no hash.
#[derive(Default)]
struct ProcessIdHasher(u64);

impl Hasher for ProcessIdHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0 << 8 | u64::from(*byte);
        }
    }

    fn write_u32(&mut self, process_id: u32) {
        // The hash table uses the upper bits, too.
        self.0 = u64::from(process_id) << 32 | u64::from(process_id);
    }
}

impl CancelTokens {
    pub(super) fn of_thread(thread: usize, threads: usize) -> Self {
        Self {
            thread: thread as u32,
            threads: threads.max(1) as u32,
            clients: HashMap::default(),
            random: RandomBytes::default(),
        }
    }

    /// A token with a process ID that no other client of this worker has; `None` if OpenSSL has no random bytes.
    pub(super) fn create(&mut self) -> Option<CancelToken> {
        loop {
            let token_bytes: [u8; 8] = self.random.take()?;
            // Some drivers read it as a signed number, and take 0 for none.
            let near = u32::from_be_bytes(*token_bytes.first_chunk()?) >> 1;
            // The remainder names the worker.
            let process_id = near - near % self.threads + self.thread;
            if process_id != 0 && process_id <= MAX_PROCESS && !self.clients.contains_key(&process_id) {
                return Some(CancelToken { process_id, secret: *token_bytes.last_chunk()? });
            }
        }
    }

    pub(super) fn insert(&mut self, token: CancelToken, client: Id) {
        self.clients.insert(token.process_id, client);
    }

    pub(super) fn remove(&mut self, token: CancelToken) {
        self.clients.remove(&token.process_id);
    }

    pub(super) fn client(&self, process_id: u32) -> Option<Id> {
        self.clients.get(&process_id).copied()
    }

    /// The worker whose clients have process IDs like this one.
    pub(super) fn worker_of(&self, process_id: u32) -> usize {
        (process_id % self.threads) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_id_names_the_worker_and_one_client() {
        let mut tokens = CancelTokens::of_thread(2, 3);
        for _ in 0..1_000 {
            let token = tokens.create().unwrap();
            assert!(token.process_id > 0 && token.process_id <= MAX_PROCESS);
            assert_eq!((tokens.worker_of(token.process_id), tokens.client(token.process_id)), (2, None));
        }
    }
}
