//! The places where clients come to.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use ciphertoll_net::{Listener, Reactor};

use super::{Kind, key_of};
use crate::settings::{Listen, StartError, Uids};

/// The first of them, behind the signals and the orders.
const LISTENERS: usize = 2;

/// Listens at all places, or none.
pub(super) fn open(places: &[Listen], uids: &Uids, reactor: &Reactor) -> Result<Vec<Listener>, StartError> {
    let open = |(at, place): (usize, &Listen)| {
        let host = |source| StartError::Host { what: place.to_string(), source };
        let mut listener = match place {
            Listen::Unix(path) => {
                let mode = uids.mode();
                make_directory(path, mode)?;
                Listener::unix(path, mode)
            }
            Listen::Tcp(address) => Listener::tcp(*address),
        }
        .map_err(host)?;
        reactor.register_listener(&mut listener, key_of(Kind::Fixed, LISTENERS + at)).map_err(host)?;
        Ok(listener)
    };
    places.iter().enumerate().map(open).collect()
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
