//! `ServerHello` (RFC 8446, 4.1.3; RFC 5246, 7.4.1.3), as far as it shows what was negotiated.

use crate::tls::fields::{array, bytes, vector};
use crate::tls::group::NamedGroup;

/// SHA-256 of "HelloRetryRequest": the random of a `ServerHello` that is a HelloRetryRequest (RFC 8446,
/// 4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];
const EXTENSION_SUPPORTED_VERSIONS: u16 = 43;
const EXTENSION_KEY_SHARE: u16 = 51;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerHello {
    /// Whether it is a HelloRetryRequest.
    pub(crate) is_retry: bool,
    pub(crate) version: u16,
    pub(crate) cipher_suite: u16,
    pub(crate) group: Option<NamedGroup>,
}

impl ServerHello {
    /// Parses the body of a message; `None` if it is malformed.
    pub(crate) fn parse(mut body: &[u8]) -> Option<Self> {
        let body = &mut body;
        let mut version = u16::from_be_bytes(array(body)?);
        let random: [u8; 32] = array(body)?;
        let [session_id_bytes] = array(body)?;
        bytes(body, usize::from(session_id_bytes))?;
        let cipher_suite = u16::from_be_bytes(array(body)?);
        let [_compression] = array(body)?;
        let mut group = None;
        // A server without extensions omits even their length.
        let mut extensions = if body.is_empty() { &[][..] } else { vector(body)? };
        while !extensions.is_empty() {
            let kind = u16::from_be_bytes(array(&mut extensions)?);
            let mut content = vector(&mut extensions)?;
            match kind {
                EXTENSION_SUPPORTED_VERSIONS => version = u16::from_be_bytes(array(&mut content)?),
                EXTENSION_KEY_SHARE => group = Some(NamedGroup(u16::from_be_bytes(array(&mut content)?))),
                _ => {}
            }
        }
        Some(Self { is_retry: random == RETRY_RANDOM, version, cipher_suite, group })
    }
}
