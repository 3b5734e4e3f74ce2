//! What a client asks for in its login.

use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::change_user::ChangeUser;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::RELAYED;
use ciphertoll_wire::mysql::server::write_ok;
use ciphertoll_wire::mysql::{Capabilities, Error, Terms};

use super::carried::{Carried, Told};
use super::front::Way;
use super::numbers::Numbers;
use super::shared::escapes;
use crate::dialect::{Admission, Order};
use crate::refusal::Refusal;

/// Compression, under which nobody between could follow what is said.
const COMPRESSIONS: [Capabilities; 2] = [Capabilities::COMPRESS, Capabilities::ZSTD_COMPRESSION];
/// What the longest name of a server is shorter than.
const MAX_NAME_BYTES: usize = 1024;

/// Who a client is, and the session that it wants.
#[derive(Debug)]
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
    /// What its session has made since, where sessions are parted.
    pub(super) carried: Option<Box<Carried>>,
    /// How it has come in; none before that is known.
    pub entry: Option<Entry>,
}

/// How a client has come in: what it has to show again if it logs in anew.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub(crate) admission: Admission,
    pub(super) way: Way,
    /// The challenge of its greeting.
    pub(super) nonce: [u8; NONCE_BYTES],
}

// What a client asks for in its login: what it has become since is nobody's business.
impl PartialEq for Wanted {
    fn eq(&self, other: &Self) -> bool {
        let key = |wanted: &Self| (wanted.terms, wanted.connection_id, wanted.sequence);
        self.user == other.user && self.database == other.database && key(self) == key(other)
    }
}

impl Eq for Wanted {}

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
            carried: None,
            entry: None,
        })
    }

    /// Reads what one asks for who was let in on these terms, and logs in anew.
    pub(super) fn change(change: &ChangeUser<'_>, terms: Terms, connection_id: u32) -> Result<Self, Refusal> {
        let character_set = match change.character_set.map(u8::try_from) {
            None => terms.character_set,
            Some(Ok(number)) => number,
            Some(Err(_)) => {
                let message = "a login has one byte for the character set, and so has a change of the user";
                return Err(Refusal::new(Refusal::UNSUPPORTED, message));
            }
        };
        Ok(Self {
            user: text(change.user, "user")?,
            database: Some(text(change.database, "database")?).filter(|name| !name.is_empty()),
            terms: Terms { character_set, ..terms },
            connection_id,
            sequence: 0,
            carried: None,
            entry: None,
        })
    }
}

impl Wanted {
    /// Appends the word that it may begin, of a server whose sessions begin with this status.
    pub(super) fn greet(&mut self, status: u16, numbers: &Numbers, out: &mut Vec<u8>) -> Result<(), Error> {
        write_ok(out, self.sequence, &OkPacket { status, ..OkPacket::default() })?;
        let listed = numbers.list(self.connection_id, None);
        self.carried = Some(Box::new(Carried::new(listed, escapes(status), Told::Begun)));
        Ok(())
    }

    /// Whether it has been told that it may begin.
    pub(super) fn was_greeted(&self) -> bool {
        self.carried.as_ref().is_some_and(|carried| carried.told == Told::Begun)
    }

    /// What others want to become of it.
    pub(super) fn order(&self) -> Order {
        self.carried.as_ref().map_or(Order::None, |carried| carried.listed.order())
    }

    /// Nothing of it is to be cancelled any more.
    pub(super) fn forget_cancel(&self) {
        if let Some(carried) = &self.carried {
            carried.listed.forget_cancel();
        }
    }
}

fn text(bytes: &[u8], what: &str) -> Result<String, Refusal> {
    let name = if bytes.len() <= MAX_NAME_BYTES { str::from_utf8(bytes).ok() } else { None };
    let refusal = || Refusal::new(Refusal::WHO, format!("the {what}'s name is too long, or not UTF-8"));
    name.map(ToOwned::to_owned).ok_or_else(refusal)
}
