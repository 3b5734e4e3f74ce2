//! A socket, with or without TLS, and its buffers.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use ciphertoll_wire::session::Response;
use socket2::Socket;

use crate::buffer::Buffer;
use crate::tls::TlsSession;
use crate::{Error, Readiness, silence, socket, tls};

/// A connection: plaintext on this side, plaintext or TLS on the network.
pub struct Channel {
    pub(crate) socket: Socket,
    /// Boxed because it is large and a channel is moved with every event.
    pub(crate) session: Option<Box<dyn TlsSession>>,
    incoming: Buffer,
    outgoing: Vec<u8>,
    /// Bytes of the outgoing buffer (the TLS session's, if there is one) that are sent already.
    sent: usize,
    flushed: Sent,
}

/// Buffers shared by many channels, so that an idle channel holds none.
#[derive(Default)]
pub struct SpareBuffers {
    incoming: Vec<Buffer>,
    outgoing: Vec<Vec<u8>>,
}

impl SpareBuffers {
    /// More than the channels that usually hold input or output for a moment.
    const MAX: usize = 8;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// Bytes were received and the socket is empty: wait for the next edge.
    Drained,
    /// Bytes were received and there may be more: receive again.
    MoreLikely,
    WouldBlock,
    Closed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    All,
    /// The socket is full: send again when it is writable.
    Blocked,
}

impl Channel {
    /// A channel over a connected socket, without TLS.
    pub(crate) fn over(socket: Socket) -> Self {
        Self {
            socket,
            session: None,
            incoming: Buffer::default(),
            outgoing: Vec::new(),
            sent: 0,
            flushed: Sent::All,
        }
    }

    pub fn from_unix(stream: UnixStream) -> Result<Self, Error> {
        stream.set_nonblocking(true).map_err(Error::socket("cannot make the socket non-blocking"))?;
        Ok(Self::over(OwnedFd::from(stream).into()))
    }

    /// The other end, as the kernel knows it; `None` for a Unix socket.
    pub fn peer_address(&self) -> Result<Option<SocketAddr>, Error> {
        let peer = self.socket.peer_addr().map_err(Error::socket("cannot get the address of the peer"))?;
        Ok(peer.as_socket())
    }

    /// Ends the connection if the peer's machine acknowledges nothing for this long, whether or not anything is sent. Only
    /// for TCP.
    pub fn limit_silence(&self, limit: Duration) -> Result<(), Error> {
        socket::limit_silence(&self.socket, limit)
    }

    /// Finds a peer that has vanished while nothing is sent, in a little more than this time. Only for TCP.
    pub fn probe_when_idle(&self, limit: Duration) -> Result<(), Error> {
        socket::probe_when_idle(&self.socket, limit)
    }

    /// Whether the peer's machine has not acknowledged what was sent, even when it was sent again.
    pub fn is_unanswered(&self) -> bool {
        silence::is_unanswered(&self.socket)
    }

    /// When the connection is closed, the kernel drops what the peer has not received, and sends nothing more.
    pub fn discard_unsent(&self) -> Result<(), Error> {
        self.socket.set_linger(Some(Duration::ZERO)).map_err(Error::socket("cannot set SO_LINGER"))
    }

    /// Reads once from the socket and decrypts.
    pub fn receive(&mut self) -> Result<Received, Error> {
        let filled = match &mut self.session {
            Some(session) => session.fill(&self.socket),
            None => fill(&mut self.incoming, &self.socket),
        };
        let filled = match filled {
            Ok(filled) => filled,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Received::WouldBlock),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(Received::MoreLikely),
            Err(source) => return Err(Error::Socket { doing: "cannot receive", source }),
        };
        if filled.bytes == 0 {
            return Ok(Received::Closed);
        }
        // A read that did not fill the buffer has emptied the socket (epoll(7), edge-triggered).
        Ok(if filled.bytes < filled.room { Received::Drained } else { Received::MoreLikely })
    }

    /// Decrypts what was received; does nothing without TLS.
    pub(crate) fn decrypt(&mut self) -> Result<(), Error> {
        let Some(session) = &mut self.session else { return Ok(()) };
        match session.decrypt(&mut self.incoming)? {
            tls::Decrypted::Closed if self.incoming.is_empty() => Err(Error::Closed),
            tls::Decrypted::Closed | tls::Decrypted::All => Ok(()),
        }
    }

    /// Plaintext received and not consumed.
    pub fn input(&self) -> &[u8] {
        self.incoming.unread()
    }

    /// Replaces the bytes of [`Channel::input`] from `at` on.
    ///
    /// # Panics
    ///
    /// If the input is shorter.
    pub fn overwrite(&mut self, at: usize, bytes: &[u8]) {
        self.incoming.unread_mut()[at..at + bytes.len()].copy_from_slice(bytes);
    }

    /// Removes the first `bytes` of [`Channel::input`].
    pub fn consume(&mut self, bytes: usize) {
        self.incoming.consume(bytes);
    }

    /// Plaintext to send: append, then call [`Channel::send`].
    pub fn output(&mut self) -> &mut Vec<u8> {
        &mut self.outgoing
    }

    pub fn buffers(&mut self) -> (&[u8], &mut Vec<u8>) {
        (self.incoming.unread(), &mut self.outgoing)
    }

    pub fn send(&mut self) -> Result<Sent, Error> {
        self.flushed = match &mut self.session {
            None => flush(&self.socket, &mut self.outgoing, &mut self.sent)?,
            Some(session) => {
                if !self.outgoing.is_empty() {
                    session.encrypt(&self.outgoing)?;
                    self.outgoing.clear();
                }
                flush(&self.socket, session.outgoing(), &mut self.sent)?
            }
        };
        Ok(self.flushed)
    }

    /// Whether the socket was full at the last send, so that unsent bytes remain here.
    pub fn is_blocked(&self) -> bool {
        self.flushed == Sent::Blocked
    }

    /// Receives once and decrypts, appending to the unconsumed input.
    pub fn receive_input(&mut self) -> Result<Received, Error> {
        let received = self.receive()?;
        match received {
            Received::Drained | Received::MoreLikely => self.decrypt()?,
            Received::WouldBlock | Received::Closed => {}
        }
        Ok(received)
    }

    /// Sends the first `bytes` of this channel's input through `to`, after its pending output, and consumes them.
    /// They are copied only if they are encrypted or the socket is full.
    pub fn pass_to(&mut self, to: &mut Self, bytes: usize) -> Result<Sent, Error> {
        let input = &self.incoming.unread()[..bytes];
        let sent = to.send_with(input);
        self.incoming.consume(bytes);
        sent
    }

    fn send_with(&mut self, bytes: &[u8]) -> Result<Sent, Error> {
        if !self.outgoing.is_empty() || self.is_blocked() {
            self.outgoing.extend_from_slice(bytes);
            return self.send();
        }
        if let Some(session) = &mut self.session {
            session.encrypt(bytes)?;
            return self.send();
        }
        let mut left = bytes;
        while !left.is_empty() {
            match socket::send(&self.socket, left) {
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.outgoing.extend_from_slice(left);
                    self.flushed = Sent::Blocked;
                    return Ok(Sent::Blocked);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::Socket { doing: "cannot send", source }),
            }
        }
        Ok(Sent::All)
    }

    /// Uses buffers of `spare` for input and output, if this channel has none.
    pub fn borrow(&mut self, spare: &mut SpareBuffers) {
        if !self.incoming.has_room()
            && let Some(buffer) = spare.incoming.pop()
        {
            self.incoming = buffer;
        }
        self.borrow_output(spare);
    }

    /// The same for output only.
    pub fn borrow_output(&mut self, spare: &mut SpareBuffers) {
        if self.outgoing.capacity() == 0
            && let Some(buffer) = spare.outgoing.pop()
        {
            self.outgoing = buffer;
        }
    }

    /// Keeps unread input, which must wait, in a buffer of its size, and returns the others.
    pub fn shrink_input(&mut self, spare: &mut SpareBuffers) {
        if self.incoming.is_full_size() {
            keep(&mut spare.incoming, self.incoming.shrink());
        }
        self.give_back_output(spare);
    }

    /// Returns empty buffers.
    pub fn give_back(&mut self, spare: &mut SpareBuffers) {
        if self.incoming.is_empty() && self.incoming.has_room() {
            let buffer = std::mem::take(&mut self.incoming);
            if buffer.is_full_size() {
                keep(&mut spare.incoming, buffer);
            }
        }
        self.give_back_output(spare);
    }

    fn give_back_output(&mut self, spare: &mut SpareBuffers) {
        if self.outgoing.is_empty() && self.outgoing.capacity() > 0 {
            keep(&mut spare.outgoing, std::mem::take(&mut self.outgoing));
        }
    }

    /// Sends the output and, with TLS, a `close_notify`; then closes without waiting.
    pub fn close(mut self) -> Result<(), Error> {
        if let Some(session) = &mut self.session {
            session.encrypt(&self.outgoing)?;
            self.outgoing.clear();
            session.close_notify();
        }
        // The connection is no longer needed, so bytes that a full socket does not take may be lost.
        self.send().map(|_| ())
    }

    /// Sends the output and, with TLS, a `close_notify`; then ends this direction of the connection, unless the socket is
    /// full.
    pub fn end_output(&mut self) -> Result<Sent, Error> {
        if let Some(session) = &mut self.session {
            session.encrypt(&self.outgoing)?;
            self.outgoing.clear();
            session.close_notify();
        }
        let sent = self.send()?;
        if sent == Sent::All {
            self.socket.shutdown(Shutdown::Write).map_err(Error::socket("cannot end the output"))?;
        }
        Ok(sent)
    }

    /// Sends the remaining output, then receives until `step` returns a response or the socket is empty. Returns
    /// `None` if the response is incomplete; on a blocking channel only if interrupted.
    pub fn read_response<T, E: Into<Error>>(
        &mut self,
        readiness: Readiness,
        mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, E>,
    ) -> Result<Option<T>, Error> {
        // One edge may announce both, room to send and bytes to receive: the first needs no edge of its own.
        self.send()?;
        if readiness == Readiness::Writable {
            return Ok(None);
        }
        loop {
            let received = self.receive()?;
            if received == Received::Closed {
                return Err(Error::Closed);
            }
            self.decrypt()?;
            if let Response::Done(value) = self.digest(&mut step)? {
                return Ok(Some(value));
            }
            let may_continue = match received {
                Received::MoreLikely => true,
                Received::Drained => readiness.is_end(),
                Received::WouldBlock | Received::Closed => false,
            };
            if !may_continue {
                return Ok(None);
            }
        }
    }

    /// Lets `step` parse the input.
    #[inline]
    pub(crate) fn digest<T, E: Into<Error>>(
        &mut self,
        step: &mut impl FnMut(&mut &[u8]) -> Result<Response<T>, E>,
    ) -> Result<Response<T>, Error> {
        let mut input = self.input();
        let before = input.len();
        let response = step(&mut input);
        let consumed = before - input.len();
        // Also after an error: once the server has refused, the connection awaits the next command.
        self.consume(consumed);
        response.map_err(Into::into)
    }

    pub fn has_tls(&self) -> bool {
        self.session.is_some()
    }

    /// The negotiated TLS parameters; `None` without TLS.
    pub fn negotiated(&self) -> Option<tls::Negotiated> {
        self.session.as_ref()?.negotiated()
    }

    /// The size of the TLS handshake; `None` without TLS.
    pub fn handshake_size(&self) -> Option<tls::HandshakeSize> {
        self.session.as_ref()?.handshake_size()
    }

    /// The bytes that one TCP segment of the connection holds, without options; `None` on a unix socket.
    pub fn segment_bytes(&self) -> Option<u32> {
        self.socket.tcp_mss().ok().filter(|bytes| *bytes > 0)
    }
}

fn keep<T>(spare: &mut Vec<T>, buffer: T) {
    if spare.len() < SpareBuffers::MAX {
        spare.push(buffer);
    }
}

fn fill(buffer: &mut Buffer, socket: &Socket) -> io::Result<tls::Filled> {
    let space = buffer.space();
    let room = space.len();
    let bytes = socket::receive(socket, space)?;
    buffer.filled(bytes);
    Ok(tls::Filled { bytes, room })
}

fn flush(socket: &Socket, outgoing: &mut Vec<u8>, sent: &mut usize) -> Result<Sent, Error> {
    while *sent < outgoing.len() {
        match socket::send(socket, &outgoing[*sent..]) {
            Ok(bytes) => *sent += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Blocked),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(source) => return Err(Error::Socket { doing: "cannot send", source }),
        }
    }
    outgoing.clear();
    *sent = 0;
    Ok(Sent::All)
}
