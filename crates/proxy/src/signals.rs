//! Signals that a thread of its own handles, each a byte on a stream.

use std::io::{self, Read};
use std::os::unix::net::UnixStream;

/// Waits for the next signal; `None` at the end of the stream. Signals that have arrived meanwhile count as one.
pub(crate) fn next_signal(signals: &mut UnixStream) -> Option<()> {
    let mut bytes = [0; 64];
    loop {
        match signals.read(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(0) | Err(_) => return None,
            Ok(_) => return Some(()),
        }
    }
}
