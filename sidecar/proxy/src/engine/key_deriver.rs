//! Key derivation for logins to the server, on a separate thread: PBKDF2 takes seconds if the server requires
//! many iterations, and workers have other clients to serve.

use ciphertoll_net::Connecting;
use ciphertoll_wire::scram::KeyDerivation;

use crate::on_demand::OnDemandThread;
use crate::slab::Id;

/// Sends work to the thread that derives keys.
///
/// The queue has at most one entry per server connection that is being opened. Entries of connections that
/// were given up are skipped.
#[derive(Clone)]
pub(super) struct KeyDeriver(OnDemandThread<(KeyDerivation, Id)>);

impl KeyDeriver {
    /// `report` is called, on the thread, for each server connection whose keys are derived.
    pub(super) fn new(report: impl Fn(Id) + Send + 'static) -> Self {
        Self(OnDemandThread::new("derive-keys", move |(derivation, server): (KeyDerivation, Id)| {
            derivation.run();
            report(server);
        }))
    }

    /// Derives the keys that a connect waits for, if any.
    pub(super) fn derive(&self, server: Id, connecting: &mut Connecting) {
        if let Some(derivation) = connecting.take_key_derivation() {
            // If no thread can be started, the connect fails after `connect-time`.
            let _ = self.0.add((derivation, server));
        }
    }
}
