//! What neither library reports, read from the bytes of the handshake.

use std::borrow::Cow;

use ciphertoll_wire::tls::{Flight, FlightObserver, KeyShare, NamedGroup, SignatureScheme, key_shares};

use ciphertoll_vocabulary::TlsVersion;

/// A client's view of a handshake.
#[derive(Default)]
pub(super) struct ObservedHandshake {
    server: FlightObserver,
    /// Of the client's first hello; `None` before it was sent.
    shares: Option<Vec<KeyShare>>,
}

impl ObservedHandshake {
    /// Reads the client's first flight; later ones are ignored.
    pub(super) fn sent(&mut self, flight: &[u8]) {
        if self.shares.is_none() && !flight.is_empty() {
            self.shares = Some(key_shares(flight).unwrap_or_default());
        }
    }

    pub(super) fn received(&mut self, bytes: &[u8]) {
        if !self.server.finished() {
            self.server.feed(bytes);
        }
    }

    pub(super) fn flight(&self) -> Flight {
        self.server.flight()
    }

    /// The server's signature scheme in a full handshake of `version` with a certificate's `key`.
    pub(super) fn signature(&self, version: &str, key: &str) -> Option<Cow<'static, str>> {
        let by_key = || SignatureScheme::of_key(key).filter(|_| version == TlsVersion::Tls13.label());
        self.flight().signature.or_else(by_key).map(SignatureScheme::label)
    }

    pub(super) fn unused_shares(&self, selected: Option<NamedGroup>) -> Vec<KeyShare> {
        let is_unused = |share: &&KeyShare| Some(share.group) != selected;
        self.shares.iter().flatten().filter(is_unused).copied().collect()
    }
}
