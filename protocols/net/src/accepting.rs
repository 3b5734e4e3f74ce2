//! The server side of a TLS handshake on a channel.

use crate::tls::{Acceptor, Handshake};
use crate::{Channel, Error, Received};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// Complete; early application data is decrypted already.
    Done,
    NeedInput,
}

impl Channel {
    /// Becomes the server of a TLS handshake. Input received and not consumed is part of the handshake, and is never
    /// taken for plaintext.
    pub fn accept_tls(&mut self, acceptor: &Acceptor) -> Result<(), Error> {
        let mut session = acceptor.session()?;
        let early = self.input();
        session.feed(early);
        let bytes = early.len();
        self.consume(bytes);
        self.session = Some(session);
        Ok(())
    }

    /// Continues the handshake. Call this after [`Self::accept_tls`] and whenever the channel is readable.
    pub fn shake_hands(&mut self) -> Result<Accepted, Error> {
        loop {
            let Some(session) = &mut self.session else { return Ok(Accepted::NeedInput) };
            let handshake = session.handshake();
            // An alert tells the client why, so it is sent before the error is returned.
            let sent = self.send();
            if handshake? == Handshake::Done {
                sent?;
                self.decrypt()?;
                return Ok(Accepted::Done);
            }
            sent?;
            match self.receive()? {
                Received::Drained | Received::MoreLikely => {}
                Received::WouldBlock => return Ok(Accepted::NeedInput),
                Received::Closed => return Err(Error::Closed),
            }
        }
    }

    /// The common name of the client's verified certificate.
    pub fn peer_common_name(&self) -> Option<String> {
        self.session.as_ref()?.peer_common_name()
    }
}
