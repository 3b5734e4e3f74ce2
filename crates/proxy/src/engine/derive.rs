//! Key derivation for logins to the server, on a thread of its own: PBKDF2 takes seconds if the server asks for many
//! iterations, and the serving threads have other clients.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use ciphertoll_net::Connecting;
use ciphertoll_wire::scram::KeyDerivation;

use super::post::{Letter, Post};
use super::{Proxy, Server, ServerStage};
use crate::dialect::Dialect;
use crate::slab::Id;

/// The way to the thread that derives keys, which ends with the last of its clones.
///
/// The queue has at most one entry for each server connection that is being opened. Those that were given up meanwhile are
/// skipped.
#[derive(Clone)]
pub(super) struct Deriver(Sender<Job>);

struct Job {
    derivation: KeyDerivation,
    /// The thread that opens the connection, and the connection.
    thread: usize,
    server: Id,
}

impl Deriver {
    pub(super) fn start<D: Dialect>(posts: Arc<[Post<D>]>) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel();
        thread::Builder::new().name("derive-keys".to_owned()).spawn(move || work(&jobs, &posts))?;
        Ok(Self(sender))
    }
}

fn work<D: Dialect>(jobs: &Receiver<Job>, posts: &[Post<D>]) {
    for Job { derivation, thread, server } in jobs {
        derivation.run();
        if let Some(post) = posts.get(thread) {
            // A thread that has ended opens no connections.
            let _ = post.send(Letter::KeysDerived(server));
        }
    }
}

impl<D: Dialect> Proxy<D> {
    /// Has keys derived that a connection waits for, if it does.
    pub(super) fn derive_keys(&self, id: Id, connecting: &mut Connecting) {
        if let Some(derivation) = connecting.take_key_derivation() {
            let job = Job { derivation, thread: self.commons.thread, server: id };
            // If the thread has ended, the connection is given up after `connect-time`.
            let _ = self.ops.deriver.0.send(job);
        }
    }

    /// A connection that is being opened can go on.
    pub(super) fn keys_derived(&mut self, id: Id) {
        if let Some(Server { stage: ServerStage::Connecting { .. }, .. }) = self.servers.get(id) {
            self.go_on_connecting(id, Connecting::resume);
        }
    }
}
