//! This program's end of the socket to `ciphertoll tde exec`.

#![expect(unsafe_code, reason = "a packet is sent by a system call on an inherited descriptor")]

use ciphertoll_tde::handshake::{HANDSHAKE_FD, HandshakeMessage, HandshakeStatus};
use libc::c_int;

use crate::raw;

/// The socket, if this program was started by `tde exec`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake(Option<c_int>);

impl Handshake {
    /// The one that the environment names.
    pub(crate) fn inherited() -> Self {
        let number = std::env::var(HANDSHAKE_FD).ok().and_then(|number| number.parse().ok());
        Self(number.filter(|&number| number > libc::STDERR_FILENO))
    }

    /// The programs that this one starts do not inherit the socket.
    pub(crate) fn keep_from_children(self) {
        if let Some(socket) = self.0 {
            raw::close_on_exec(socket);
        }
    }

    /// Nothing more will be said.
    pub(crate) fn close(&mut self) {
        if let Some(socket) = self.0.take() {
            raw::close(socket);
        }
    }

    /// Whoever was listening may be gone, and what takes the number's place may be no socket: errors are ignored.
    pub(crate) fn say(self, status: HandshakeStatus) {
        let Some(socket) = self.0 else { return };
        let packet = HandshakeMessage { process: std::process::id(), status }.encode();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: a buffer with its length, which is only read.
        unsafe { libc::send(socket, packet.as_ptr().cast(), packet.len(), flags) };
    }

    /// Says why this program ends, where its standard error may be a log that nobody looks at.
    pub(crate) fn refused(self, why: &[u8]) {
        let stderr = raw::identity(libc::STDERR_FILENO);
        self.say(HandshakeStatus::Refused { stderr, why: String::from_utf8_lossy(why).into_owned() });
    }
}
