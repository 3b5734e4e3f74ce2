//! `ServerHello` (RFC 8446, 4.1.3; RFC 5246, 7.4.1.3), as far as it shows what was negotiated.

use crate::tls::extensions::{Extensions, KEY_SHARE, PRE_SHARED_KEY, SUPPORTED_VERSIONS};
use crate::tls::fields::{array, number, short_vector};
use crate::tls::group::NamedGroup;

/// A post-quantum key share has 1.1 KB. A longer `ServerHello` is ignored.
pub(crate) const MAX_SERVER_HELLO_BYTES: usize = 16 << 10;
/// SHA-256 of "HelloRetryRequest": the random of a `ServerHello` that is a HelloRetryRequest (RFC 8446,
/// 4.1.3).
const RETRY_RANDOM: [u8; 32] = [
    0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11, 0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91, 0xc2,
    0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e, 0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c,
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerHello {
    /// Whether it is a HelloRetryRequest.
    pub(crate) is_retry: bool,
    pub(crate) version: u16,
    pub(crate) cipher_suite: u16,
    pub(crate) group: Option<NamedGroup>,
    /// The server accepts a pre-shared key of TLS 1.3.
    pub(crate) accepts_psk: bool,
}

impl ServerHello {
    /// Parses the body of a message; `None` if it is malformed.
    pub(crate) fn parse(mut body: &[u8]) -> Option<Self> {
        let version = number(&mut body)?;
        let random: [u8; 32] = array(&mut body)?;
        let _session_id = short_vector(&mut body)?;
        let cipher_suite = number(&mut body)?;
        let [_compression] = array(&mut body)?;
        let is_retry = random == RETRY_RANDOM;
        let mut hello = Self { is_retry, version, cipher_suite, group: None, accepts_psk: false };
        for extension in Extensions::at_end_of(body)? {
            let (kind, mut content) = extension?;
            match kind {
                SUPPORTED_VERSIONS => hello.version = number(&mut content)?,
                KEY_SHARE => hello.group = Some(NamedGroup(number(&mut content)?)),
                PRE_SHARED_KEY => hello.accepts_psk = true,
                _ => {}
            }
        }
        Some(hello)
    }
}
