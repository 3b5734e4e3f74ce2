//! `ClientHello` (RFC 8446, 4.1.2), and its key shares (4.2.8): what the client has computed before it knows which
//! group the server selects.

use crate::tls::extensions::{Extensions, KEY_SHARE};
use crate::tls::fields::{array, bytes, long_vector, number, short_vector, vector};
use crate::tls::group::NamedGroup;
use crate::tls::messages::CLIENT_HELLO;
use crate::tls::records::HANDSHAKE;

const RANDOM_BYTES: usize = 32;
/// Clients send one to three. More are ignored.
const MAX_KEY_SHARES: usize = 8;

/// A public key for a group that the client offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyShare {
    pub group: NamedGroup,
    pub bytes: u16,
}

/// The key shares in a client's first bytes, at most eight; none in a ClientHello up to TLS 1.2. `None` if the bytes
/// do not begin with a whole ClientHello in one record, as every client sends it.
pub fn key_shares(mut flight: &[u8]) -> Option<Vec<KeyShare>> {
    let [content_type, _version @ ..]: [u8; 3] = array(&mut flight)?;
    let mut record = vector(&mut flight)?;
    let [message_type] = array(&mut record)?;
    if content_type != HANDSHAKE || message_type != CLIENT_HELLO {
        return None;
    }
    for extension in ClientHello::parse(long_vector(&mut record)?)?.extensions {
        let (kind, mut content) = extension?;
        if kind == KEY_SHARE {
            return shares(vector(&mut content)?);
        }
    }
    Some(Vec::new())
}

/// The fields of a message's body that are of use.
#[derive(Debug, Clone)]
pub(crate) struct ClientHello<'a> {
    pub(crate) legacy_version: u16,
    pub(crate) session_id: &'a [u8],
    pub(crate) suites: &'a [u8],
    pub(crate) extensions: Extensions<'a>,
}

impl<'a> ClientHello<'a> {
    /// Parses the body of a message; `None` if it is malformed. The content of extensions is not checked.
    pub(crate) fn parse(mut body: &'a [u8]) -> Option<Self> {
        let legacy_version = number(&mut body)?;
        bytes(&mut body, RANDOM_BYTES)?;
        let session_id = short_vector(&mut body)?;
        let suites = vector(&mut body)?;
        let _compressions = short_vector(&mut body)?;
        let extensions = Extensions::at_end_of(body)?;
        Some(Self { legacy_version, session_id, suites, extensions })
    }
}

/// The key shares of a list; `None` if it is malformed.
pub(crate) fn shares(mut list: &[u8]) -> Option<Vec<KeyShare>> {
    let mut shares = Vec::new();
    while !list.is_empty() && shares.len() < MAX_KEY_SHARES {
        let group = NamedGroup(number(&mut list)?);
        let key = vector(&mut list)?;
        // A vector has at most 65,535 bytes.
        shares.push(KeyShare { group, bytes: u16::try_from(key.len()).ok()? });
    }
    Some(shares)
}
