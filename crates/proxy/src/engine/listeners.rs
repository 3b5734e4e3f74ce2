//! The addresses that clients connect to.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use ciphertoll_net::{Error, Listener, Reactor};

use super::{TokenKind, token_of};
use crate::settings::{AllowedUids, ListenAddress, StartError};

/// Number of the first listener, after the signals and the mailbox.
const LISTENERS: usize = 2;

/// Listens on all addresses, or none.
pub(super) fn open(addresses: &[ListenAddress], uids: &AllowedUids) -> Result<Vec<Listener>, StartError> {
    let open = |address: &ListenAddress| {
        let host = |source| StartError::Host { what: address.to_string(), source };
        match address {
            ListenAddress::Unix(path) => {
                let mode = uids.mode();
                make_directory(path, mode)?;
                Listener::unix(path, mode)
            }
            ListenAddress::Tcp(address) => Listener::tcp(*address),
        }
        .map_err(host)
    };
    addresses.iter().map(open).collect()
}

/// Clones the listeners for another worker.
pub(super) fn share(listeners: &[Listener]) -> Result<Vec<Listener>, Error> {
    listeners.iter().map(Listener::try_clone).collect()
}

/// Registers the listeners. With several workers, an edge wakes only one of them.
pub(super) fn watch(listeners: &mut [Listener], reactor: &Reactor, threads: usize) -> Result<(), Error> {
    for (at, listener) in listeners.iter_mut().enumerate() {
        let key = token_of(TokenKind::Fixed, LISTENERS + at);
        match threads {
            1 => reactor.register_listener(listener, key)?,
            _ => reactor.register_shared_listener(listener, key)?,
        }
    }
    Ok(())
}

/// Creates the directory of a socket if it is missing. Other users may pass through it if they may use the
/// socket.
fn make_directory(socket: &Path, mode_of_socket: u32) -> Result<(), StartError> {
    let Some(directory) = socket.parent() else { return Ok(()) };
    let mode = if mode_of_socket == 0o600 { 0o700 } else { 0o711 };
    match DirBuilder::new().mode(mode).create(directory) {
        Err(source) if fs::metadata(directory).is_err() => {
            Err(StartError::Directory { path: directory.to_owned(), source })
        }
        // Created, or it existed.
        _ => Ok(()),
    }
}
