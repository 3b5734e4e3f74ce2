//! A channel as the server of a TLS handshake.

use crate::tls::{Acceptor, Handshake};
use crate::{Channel, Error, Received};

/// How far a handshake is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It is over, and what the client has said behind it is there as plaintext.
    Done,
    /// The client must go on.
    NeedInput,
}

impl Channel {
    /// Is the server of a TLS handshake from here on. What was received and not consumed is the client's part of it, and
    /// never taken for plaintext.
    pub fn accept_tls(&mut self, acceptor: &Acceptor) -> Result<(), Error> {
        let mut session = acceptor.session()?;
        let early = self.input();
        session.feed(early);
        let bytes = early.len();
        self.consume(bytes);
        self.session = Some(session);
        Ok(())
    }

    /// Goes on with the handshake, after [`Self::accept_tls`] and whenever something has come.
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

    /// The common name of the certificate that a client has shown and that was verified.
    pub fn peer_common_name(&self) -> Option<String> {
        self.session.as_ref()?.peer_common_name()
    }
}
