//! The socket to `ciphertoll tde exec`.

#![expect(unsafe_code, reason = "a packet is sent by a system call on an inherited descriptor")]

use ciphertoll_tde::handshake::{HANDSHAKE_FD, HandshakeMessage, HandshakeStatus};
use libc::c_int;

use crate::raw;

/// The socket, if this program was started by `tde exec`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Handshake(Option<c_int>);

impl Handshake {
    /// The socket that the environment names.
    pub(crate) fn inherited() -> Self {
        let number = std::env::var(HANDSHAKE_FD).ok().and_then(|number| number.parse().ok());
        Self(number.filter(|&number| number > libc::STDERR_FILENO))
    }

    /// Prevents programs that this one starts from inheriting the socket.
    pub(crate) fn keep_from_children(self) {
        if let Some(socket) = self.0 {
            raw::close_on_exec(socket);
        }
    }

    pub(crate) fn close(&mut self) {
        if let Some(socket) = self.0.take() {
            raw::close(socket);
        }
    }

    /// Ignores errors: the receiver may have exited, and the descriptor may have been reused.
    pub(crate) fn send(self, status: HandshakeStatus) {
        let Some(socket) = self.0 else { return };
        let packet = HandshakeMessage { process: std::process::id(), status }.encode();
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: a buffer with its length, which is only read.
        unsafe { libc::send(socket, packet.as_ptr().cast(), packet.len(), flags) };
    }

    /// Reports why this program exits. Its standard error may be a log file.
    pub(crate) fn send_refusal(self, why: &[u8]) {
        let stderr = raw::identity(libc::STDERR_FILENO);
        self.send(HandshakeStatus::Refused { stderr, why: String::from_utf8_lossy(why).into_owned() });
    }
}
