//! What a `ClientHello` offers.

use crate::tls::client_hello::{ClientHello, KeyShare, shares};
use crate::tls::extensions::{
    KEY_SHARE, PRE_SHARED_KEY, SERVER_NAME, SESSION_TICKET, SIGNATURE_ALGORITHMS, SUPPORTED_GROUPS,
    SUPPORTED_VERSIONS,
};
use crate::tls::fields::{number, short_vector, vector};
use crate::tls::group::NamedGroup;
use crate::tls::signature::SignatureScheme;

const TLS_1_3: u16 = 0x0304;
/// IANA has about 350 suites. More are ignored.
const MAX_SUITES: usize = 512;
/// Of groups and of signature schemes; clients offer up to 30. More are ignored.
const MAX_PARAMETERS: usize = 64;

/// A client's offer, without GREASE (RFC 8701). Lists are in the client's order and have at most 512 suites, 64 groups,
/// 64 signature schemes and eight key shares. Names of servers and protocols are not kept.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct ClientOffer {
    /// The highest version, such as `0x0304` for TLS 1.3.
    pub version: u16,
    pub suites: Vec<u16>,
    pub groups: Vec<NamedGroup>,
    pub key_shares: Vec<KeyShare>,
    pub signatures: Vec<SignatureScheme>,
    pub has_server_name: bool,
    /// The client offers to resume a session: by a ticket, by a pre-shared key or, up to TLS 1.2, by a session ID.
    /// The ID of a client of TLS 1.3 may be one of TLS 1.2, or random for compatibility (RFC 8446, D.4): it does not
    /// count.
    pub offers_session: bool,
}

impl ClientOffer {
    /// Parses the body of a message; `None` if it is malformed.
    pub(crate) fn parse(body: &[u8]) -> Option<Self> {
        let hello = ClientHello::parse(body)?;
        let mut offer = Self {
            version: hello.legacy_version,
            suites: numbers(hello.suites, MAX_SUITES)?,
            ..Self::default()
        };
        for extension in hello.extensions {
            let (kind, content) = extension?;
            offer.add_extension(kind, content)?;
        }
        offer.offers_session |= offer.version < TLS_1_3 && !hello.session_id.is_empty();
        Some(offer)
    }

    /// Allocated memory.
    #[must_use]
    pub fn heap_bytes(&self) -> usize {
        self.suites.capacity() * size_of::<u16>()
            + self.groups.capacity() * size_of::<NamedGroup>()
            + self.key_shares.capacity() * size_of::<KeyShare>()
            + self.signatures.capacity() * size_of::<SignatureScheme>()
    }

    fn add_extension(&mut self, kind: u16, mut content: &[u8]) -> Option<()> {
        let content = &mut content;
        match kind {
            SERVER_NAME => self.has_server_name = true,
            SUPPORTED_GROUPS => {
                let groups = numbers(vector(content)?, MAX_PARAMETERS)?;
                self.groups = groups.into_iter().map(NamedGroup).collect();
            }
            SIGNATURE_ALGORITHMS => {
                let schemes = numbers(vector(content)?, MAX_PARAMETERS)?;
                self.signatures = schemes.into_iter().map(SignatureScheme).collect();
            }
            SUPPORTED_VERSIONS => {
                let versions = numbers(short_vector(content)?, MAX_PARAMETERS)?;
                self.version = versions.into_iter().max().unwrap_or(self.version);
            }
            KEY_SHARE => {
                self.key_shares = shares(vector(content)?)?;
                self.key_shares.retain(|share| !is_grease(share.group.0));
            }
            SESSION_TICKET => self.offers_session |= !content.is_empty(),
            PRE_SHARED_KEY => self.offers_session = true,
            _ => {}
        }
        Some(())
    }
}

/// The first numbers of a list, without GREASE; `None` if it is malformed.
fn numbers(mut list: &[u8], most: usize) -> Option<Vec<u16>> {
    let mut numbers = Vec::new();
    while !list.is_empty() && numbers.len() < most {
        let number = number(&mut list)?;
        if !is_grease(number) {
            numbers.push(number);
        }
    }
    Some(numbers)
}

/// Whether a client made the number up to see that servers ignore it: `0x0a0a`, `0x1a1a` up to `0xfafa` (RFC 8701).
fn is_grease(number: u16) -> bool {
    let [high, low] = number.to_be_bytes();
    high == low && low & 0x0f == 0x0a
}
