//! Key derivation for logins to the server, on a separate thread: PBKDF2 takes seconds if the server requires
//! many iterations, and workers have other clients to serve.

use std::io;
use std::sync::mpsc::{self, Sender};
use std::thread;

use ciphertoll_net::Connecting;
use ciphertoll_wire::scram::KeyDerivation;

use crate::slab::Id;

/// Sends work to the thread that derives keys, which ends when all clones are dropped.
///
/// The queue has at most one entry per server connection that is being opened. Entries of connections that
/// were given up are skipped.
#[derive(Clone)]
pub(super) struct KeyDeriver(Sender<(KeyDerivation, Id)>);

impl KeyDeriver {
    /// `report` is called, on the new thread, for each server connection whose keys are derived.
    pub(super) fn start(report: impl Fn(Id) + Send + 'static) -> io::Result<Self> {
        let (sender, jobs) = mpsc::channel::<(KeyDerivation, Id)>();
        let work = move || {
            for (derivation, server) in jobs {
                derivation.run();
                report(server);
            }
        };
        thread::Builder::new().name("derive-keys".to_owned()).spawn(work)?;
        Ok(Self(sender))
    }

    /// Derives the keys that a connect waits for, if any.
    pub(super) fn derive(&self, server: Id, connecting: &mut Connecting) {
        if let Some(derivation) = connecting.take_key_derivation() {
            // If the thread has ended, the connect fails after `connect-time`.
            let _ = self.0.send((derivation, server));
        }
    }
}
