//! `Certificate` up to TLS 1.2 (RFC 5246, 7.4.2).

use crate::tls::fields::{bytes, long_vector};

/// The bytes of a message that are read.
pub(crate) const MAX_CERTIFICATE_BYTES: usize = 64 << 10;
const MAX_CERTIFICATES: usize = 10;
/// A longer message has a certificate: a client without one sends an empty list.
pub(crate) const EMPTY_LIST_BYTES: usize = 3;

/// The DER of the chain at the start of a message's body, the server's own certificate first. At most ten are returned;
/// a certificate that is not whole ends the chain.
pub(crate) fn certificates(mut start: &[u8]) -> Vec<Vec<u8>> {
    let Some(_list_length) = bytes(&mut start, EMPTY_LIST_BYTES) else { return Vec::new() };
    let next = || long_vector(&mut start).map(<[u8]>::to_vec);
    std::iter::from_fn(next).take(MAX_CERTIFICATES).collect()
}
