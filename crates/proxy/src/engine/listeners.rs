//! The places where clients come to.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use ciphertoll_net::{Error, Listener, Reactor};

use super::{Kind, key_of};
use crate::settings::{Listen, StartError, Uids};

/// The first of them, behind the signals and the letters.
const LISTENERS: usize = 2;

/// Listens at all places, or none.
pub(super) fn open(places: &[Listen], uids: &Uids) -> Result<Vec<Listener>, StartError> {
    let open = |place: &Listen| {
        let host = |source| StartError::Host { what: place.to_string(), source };
        match place {
            Listen::Unix(path) => {
                let mode = uids.mode();
                make_directory(path, mode)?;
                Listener::unix(path, mode)
            }
            Listen::Tcp(address) => Listener::tcp(*address),
        }
        .map_err(host)
    };
    places.iter().map(open).collect()
}

/// The same places for one more thread.
pub(super) fn share(listeners: &[Listener]) -> Result<Vec<Listener>, Error> {
    listeners.iter().map(Listener::try_clone).collect()
}

/// Watches them: alone, or so that one of several threads wakes.
pub(super) fn watch(listeners: &mut [Listener], reactor: &Reactor, threads: usize) -> Result<(), Error> {
    for (at, listener) in listeners.iter_mut().enumerate() {
        let key = key_of(Kind::Fixed, LISTENERS + at);
        match threads {
            1 => reactor.register_listener(listener, key)?,
            _ => reactor.register_shared_listener(listener, key)?,
        }
    }
    Ok(())
}

/// Makes the directory of the socket, if it is missing, for us or, where others may come, to be passed through.
fn make_directory(socket: &Path, mode_of_socket: u32) -> Result<(), StartError> {
    let Some(directory) = socket.parent() else { return Ok(()) };
    let mode = if mode_of_socket == 0o600 { 0o700 } else { 0o711 };
    match DirBuilder::new().mode(mode).create(directory) {
        Err(source) if fs::metadata(directory).is_err() => {
            Err(StartError::Directory { path: directory.to_owned(), source })
        }
        // It is made, or was there.
        _ => Ok(()),
    }
}
