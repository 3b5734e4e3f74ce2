//! The bytes of a handshake, counted where the TLS library reads and writes them.

/// The size of a completed handshake, as `openssl s_client` counts it: records with their headers, without bytes of the
/// database's protocol. OpenSSL takes no byte that follows the handshake; rustls takes session tickets, too, if a server
/// sends them before the client has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeSize {
    pub read_bytes: u64,
    /// Includes the client's Finished.
    pub written_bytes: u64,
    /// The server's first flight: what it sends between two flights of the client, without a HelloRetryRequest.
    pub first_flight_bytes: u64,
}

/// Counts until the handshake is complete.
#[derive(Default)]
pub(super) struct HandshakeMeter {
    read_bytes: u64,
    written_bytes: u64,
    /// What had arrived when the current flight began.
    before_flight: u64,
    /// A HelloRetryRequest, which may precede the flight with the certificates, and the end of TLS 1.2, which follows
    /// it, are shorter.
    longest_flight: u64,
    size: Option<HandshakeSize>,
}

impl HandshakeMeter {
    #[inline]
    pub(super) fn read(&mut self, bytes: usize) {
        if self.size.is_none() {
            self.read_bytes += bytes as u64;
        }
    }

    /// `unread` bytes have arrived that the library has not read: OpenSSL answers a HelloRetryRequest before it reads
    /// the `ChangeCipherSpec` behind it.
    #[inline]
    pub(super) fn written(&mut self, bytes: &[u8], unread: usize) {
        /// rustls writes it as soon as it has read the ServerHello: the server's flight goes on.
        const CHANGE_CIPHER_SPEC: &[u8] = &[20, 3, 3, 0, 1, 1];
        if self.size.is_some() {
            return;
        }
        self.written_bytes += bytes.len() as u64;
        if bytes != CHANGE_CIPHER_SPEC {
            self.end_flight(self.read_bytes + unread as u64);
        }
    }

    /// Ends the count; called again, it changes nothing.
    pub(super) fn complete(&mut self) {
        if self.size.is_some() {
            return;
        }
        self.end_flight(self.read_bytes);
        self.size = Some(HandshakeSize {
            read_bytes: self.read_bytes,
            written_bytes: self.written_bytes,
            first_flight_bytes: self.longest_flight,
        });
    }

    /// `None` before the handshake is complete.
    pub(super) fn size(&self) -> Option<HandshakeSize> {
        self.size
    }

    fn end_flight(&mut self, arrived_bytes: u64) {
        self.longest_flight = self.longest_flight.max(arrived_bytes.saturating_sub(self.before_flight));
        self.before_flight = arrived_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flight_with_the_certificates_is_the_first() {
        let mut meter = HandshakeMeter::default();
        meter.written(&[0; 300], 0);
        // A HelloRetryRequest.
        meter.read(93);
        meter.written(&[0; 350], 6);
        meter.read(6);
        meter.read(5);
        meter.read(1_000);
        assert_eq!(meter.size(), None);
        meter.written(&[20, 3, 3, 0, 1, 1], 0);
        meter.read(500);
        meter.written(&[0; 80], 0);
        meter.complete();
        // The protocol in TLS is not counted.
        meter.read(4_000);
        meter.written(&[0; 4_000], 0);
        meter.complete();
        let size = HandshakeSize { read_bytes: 1_604, written_bytes: 736, first_flight_bytes: 1_505 };
        assert_eq!(meter.size(), Some(size));
    }

    #[test]
    fn a_server_that_finishes_last_has_two_flights() {
        let mut meter = HandshakeMeter::default();
        meter.written(&[0; 200], 0);
        meter.read(1_200);
        meter.written(&[0; 120], 0);
        meter.read(51);
        meter.complete();
        let size = HandshakeSize { read_bytes: 1_251, written_bytes: 320, first_flight_bytes: 1_200 };
        assert_eq!(meter.size(), Some(size));
    }
}
