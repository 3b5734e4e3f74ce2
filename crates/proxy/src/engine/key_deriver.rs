//! Key derivation for logins to the server, on a separate thread: PBKDF2 takes seconds if the server requires
//! many iterations, and workers have other clients to serve.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;

use ciphertoll_net::Connecting;
use ciphertoll_wire::scram::KeyDerivation;

use super::mailbox::{Mailbox, WorkerMessage};
use super::{ServerConnection, ServerStage, Worker};
use crate::pool::WorkerBound;
use crate::protocol::Protocol;
use crate::slab::Id;

/// Sends work to the thread that derives keys, which ends when all clones are dropped.
///
/// The queue has at most one entry per server connection that is being opened. Entries of connections that
/// were given up are skipped.
#[derive(Clone)]
pub(super) struct KeyDeriver(Sender<(KeyDerivation, Id)>);

impl KeyDeriver {
    pub(super) fn start<P: Protocol>(mailboxes: Arc<[Mailbox<P>]>) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<(KeyDerivation, Id)>();
        let work = move || {
            for (derivation, server) in jobs {
                derivation.run();
                if let Some(mailbox) = mailboxes.get(server.thread()) {
                    // A worker that has ended opens no connections.
                    let _ = mailbox.send(WorkerMessage::KeysDerived(server));
                }
            }
        };
        thread::Builder::new().name("derive-keys".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }
}

impl<P: Protocol> Worker<P> {
    /// Hands over the key derivation that a connecting server connection waits for, if any.
    pub(super) fn derive_keys(&self, id: Id, connecting: &mut Connecting) {
        if let Some(derivation) = connecting.take_key_derivation() {
            // If the thread has ended, the connect fails after `connect-time`.
            let _ = self.services.key_deriver.0.send((derivation, id));
        }
    }

    pub(super) fn keys_derived(&mut self, id: Id) {
        if let Some(ServerConnection { stage: ServerStage::Connecting { .. }, .. }) = self.servers.get(id) {
            self.continue_connect(id, Connecting::resume);
        }
    }
}
