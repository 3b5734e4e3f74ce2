//! The key shares of a `ClientHello` (RFC 8446, 4.1.2 and 4.2.8): what the client has computed before it knows which
//! group the server selects.

use crate::tls::fields::{array, bytes, vector};
use crate::tls::group::NamedGroup;

/// `ContentType` and `HandshakeType` (RFC 8446, 5.1 and 4).
const HANDSHAKE: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const EXTENSION_KEY_SHARE: u16 = 51;
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
    let [message_type, high, middle, low] = array(&mut record)?;
    if content_type != HANDSHAKE || message_type != CLIENT_HELLO {
        return None;
    }
    let length = u32::from_be_bytes([0, high, middle, low]) as usize;
    let mut extensions = extensions(bytes(&mut record, length)?)?;
    while !extensions.is_empty() {
        let kind = u16::from_be_bytes(array(&mut extensions)?);
        let mut content = vector(&mut extensions)?;
        if kind == EXTENSION_KEY_SHARE {
            return shares(vector(&mut content)?);
        }
    }
    Some(Vec::new())
}

/// The extensions at the end of a message's body; empty if it has none.
fn extensions(mut body: &[u8]) -> Option<&[u8]> {
    let body = &mut body;
    let _version: [u8; 2] = array(body)?;
    bytes(body, RANDOM_BYTES)?;
    let [session_id_bytes] = array(body)?;
    bytes(body, usize::from(session_id_bytes))?;
    let _suites = vector(body)?;
    let [compressions] = array(body)?;
    bytes(body, usize::from(compressions))?;
    if body.is_empty() { Some(&[]) } else { vector(body) }
}

fn shares(mut list: &[u8]) -> Option<Vec<KeyShare>> {
    let mut shares = Vec::new();
    while !list.is_empty() && shares.len() < MAX_KEY_SHARES {
        let group = NamedGroup(u16::from_be_bytes(array(&mut list)?));
        let key = vector(&mut list)?;
        // A vector has at most 65,535 bytes.
        shares.push(KeyShare { group, bytes: u16::try_from(key.len()).ok()? });
    }
    Some(shares)
}
