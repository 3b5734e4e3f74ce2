//! What a client asks for in its login.

use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::relay::RELAYED;
use ciphertoll_wire::mysql::{Capabilities, Terms};

use crate::refusal::Refusal;

/// Compression, under which nobody between could follow what is said.
const COMPRESSIONS: [Capabilities; 2] = [Capabilities::COMPRESS, Capabilities::ZSTD_COMPRESSION];
/// What the longest name of a server is shorter than.
const MAX_NAME_BYTES: usize = 1024;

/// Who a client is, and the session that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The account.
    pub user: String,
    /// The database; none where the client names none.
    pub database: Option<String>,
    /// What it was offered and takes of that: its server connection has agreed on the same.
    pub terms: Terms,
    /// The number that it was greeted with.
    pub connection_id: u32,
    /// The number of the packet in which it is told how that went.
    pub sequence: u8,
}

impl Wanted {
    /// Reads what can be granted of what was `offered`, or says what cannot.
    pub(super) fn read(
        login: &HandshakeResponse<'_>,
        offered: Capabilities,
        connection_id: u32,
    ) -> Result<Self, Refusal> {
        let asked = login.head.capabilities;
        if COMPRESSIONS.iter().any(|compression| asked.contains(*compression)) {
            let message = "compression was not offered, and does not go through this proxy";
            return Err(Refusal::new(Refusal::UNSUPPORTED, message));
        }
        let database = login.database.map(|name| text(name, "database")).transpose()?;
        Ok(Self {
            user: text(login.user, "user")?,
            database: database.filter(|name| !name.is_empty()),
            terms: Terms { capabilities: asked & offered & RELAYED, character_set: login.head.character_set },
            connection_id,
            sequence: 0,
        })
    }
}

fn text(bytes: &[u8], what: &str) -> Result<String, Refusal> {
    let name = if bytes.len() <= MAX_NAME_BYTES { str::from_utf8(bytes).ok() } else { None };
    let refusal = || Refusal::new(Refusal::WHO, format!("the {what}'s name is too long, or not UTF-8"));
    name.map(ToOwned::to_owned).ok_or_else(refusal)
}
