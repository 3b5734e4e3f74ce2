//! Queries inside TLS: turns of direction, without those of the login.
//!
//! Records show their length and direction only. A turn begins when the client sends after the server has sent. Servers
//! answer logins with messages of known lengths, so the login's turns can be told from queries. What a client sends before it has
//! the answer to its last query is the same turn; a statement that is prepared first, or a COPY, counts as two.

use ciphertoll_wire::passive::{ConnectionSide, DatabaseProtocol};

/// A PostgreSQL server ends a login with its settings: 298 bytes from 9.6, 356 from 14. Its requests for a proof take less, and so
/// do most refusals.
const POSTGRES_SETTINGS_BYTES: u32 = 280;
/// What ends a client's handshake in TLS 1.3, behind a certificate, with SHA-256 and SHA-384. Logins to MySQL and MongoDB are
/// longer; that to PostgreSQL is told by its end.
const FINISHED_BYTES: [u32; 2] = [4 + 32, 4 + 48];
/// An alert, such as that of a close; messages of databases are longer.
const MAX_ALERT_BYTES: u32 = 2;
/// A message that ends a session: `Terminate`, or `COM_QUIT`. All others are longer, but for `Sync`, `COM_PING` and the like.
const TERMINATE_BYTES: u32 = 5;
/// PostgreSQL's requests to cancel a query: with a key of 4 bytes, and with one of 32 bytes, from protocol 3.2 on. Startup messages
/// are longer than the first, and servers answer them.
const CANCEL_REQUEST_BYTES: [u32; 2] = [12 + 4, 12 + 32];
/// The turns of the longest login: the startup message, and three messages of SCRAM.
const MAX_LOGIN_TURNS: u32 = 4;
/// MySQL's request for the password itself, with its header: `caching_sha2_password` has no hash of it in its cache.
const MYSQL_FULL_AUTH_BYTES: u32 = 4 + 2;
/// MySQL's answer that ends a login, with its header, and what it may say of the session. A refusal is longer.
const MYSQL_OK_BYTES: std::ops::RangeInclusive<u32> = 11..=24;
/// An answer to a login that names another plugin, with a nonce: header, marker, the plugin's name, 21 bytes.
const MYSQL_SWITCH_BYTES: std::ops::RangeInclusive<u32> = 35..=80;
/// What a client sends to that: a header, and a hash by SHA-1 or SHA-256; or 64 bytes of a signature.
const MYSQL_SWITCHED_BYTES: [u32; 3] = [4 + 20, 4 + 32, 4 + 64];
/// Commands of MongoDB logins, and the servers' replies to them: the shortest reply ends the login.
const MONGODB_SASL_BYTES: std::ops::RangeInclusive<u32> = 90..=360;
const MONGODB_SASL_REPLY_BYTES: std::ops::RangeInclusive<u32> = 70..=360;

/// Counts the turns of one connection after its handshake.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    protocol: Option<DatabaseProtocol>,
    /// The last side that sent.
    last: Option<ConnectionSide>,
    /// Turns that the server has answered.
    answered: u32,
    /// Of the current turn: the client's first record, and the server's last and longest.
    client_bytes: u32,
    server_bytes: u32,
    longest_bytes: u32,
    login: LoginProgress,
}

/// How far the login is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LoginProgress {
    /// The current turn is part of it.
    Turn,
    /// The server's answer looks like a request for another plugin's proof; the client's next message tells.
    MayContinue,
    Done,
}

/// What a record was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing new.
    Goes,
    /// An alert: no message.
    Alert,
    /// The server's answer that ends the login.
    LoggedIn,
    /// The client begins another turn.
    Query,
    /// The client begins another turn. The one before was taken for one of the login, and was a query.
    SecondQuery,
    /// The server begins to answer a turn.
    Answer,
}

impl Turns {
    #[must_use]
    pub(crate) fn new(protocol: Option<DatabaseProtocol>) -> Self {
        let login = if protocol.is_some() { LoginProgress::Turn } else { LoginProgress::Done };
        Self { protocol, last: None, answered: 0, client_bytes: 0, server_bytes: 0, longest_bytes: 0, login }
    }

    /// The next record; `bytes` is its length before encryption.
    pub(crate) fn record(&mut self, side: ConnectionSide, bytes: u32) -> Turn {
        let is_finished = self.answered == 0 && FINISHED_BYTES.contains(&bytes);
        if bytes <= MAX_ALERT_BYTES {
            return Turn::Alert;
        }
        if side == ConnectionSide::Client && is_finished {
            // What came before it was the client's certificate and its signature.
            self.last = None;
            return Turn::Goes;
        }
        match side {
            ConnectionSide::Client => self.client(bytes),
            ConnectionSide::Server => self.server(bytes),
        }
    }

    fn client(&mut self, bytes: u32) -> Turn {
        if self.last == Some(ConnectionSide::Client) {
            return Turn::Goes;
        }
        let follows_answer = self.last.replace(ConnectionSide::Client).is_some();
        let mut was_query = false;
        if follows_answer && self.login == LoginProgress::Turn {
            was_query = self.was_query();
            self.end_login_turn(bytes);
        }
        if self.login == LoginProgress::MayContinue {
            let continues = MYSQL_SWITCHED_BYTES.contains(&bytes);
            self.login = if continues { LoginProgress::Turn } else { LoginProgress::Done };
        }
        (self.client_bytes, self.server_bytes, self.longest_bytes) = (bytes, 0, 0);
        match self.login {
            LoginProgress::Done if was_query => Turn::SecondQuery,
            LoginProgress::Done if bytes != TERMINATE_BYTES => Turn::Query,
            _ => Turn::Goes,
        }
    }

    fn server(&mut self, bytes: u32) -> Turn {
        // Session tickets come before the client has sent anything.
        let begins = self.last == Some(ConnectionSide::Client);
        if self.last.is_none() {
            return Turn::Goes;
        }
        self.last = Some(ConnectionSide::Server);
        self.answered += u32::from(begins);
        self.server_bytes = bytes;
        self.longest_bytes = self.longest_bytes.max(bytes);
        let is_postgres = self.protocol == Some(DatabaseProtocol::Postgres);
        if self.login == LoginProgress::Turn && is_postgres && self.longest_bytes >= POSTGRES_SETTINGS_BYTES {
            self.login = LoginProgress::Done;
            return Turn::LoggedIn;
        }
        if begins && self.login == LoginProgress::Done { Turn::Answer } else { Turn::Goes }
    }

    /// What the last turn was, if nothing follows it and the login did not end before: with MongoDB and MySQL, only the end tells.
    pub(crate) fn last(&self) -> Turn {
        let is_answered = self.last == Some(ConnectionSide::Server);
        match self.login {
            _ if self.protocol == Some(DatabaseProtocol::MySql) => {
                if self.has_mysql_login_ended() {
                    Turn::LoggedIn
                } else {
                    Turn::Goes
                }
            }
            _ if self.protocol != Some(DatabaseProtocol::MongoDb) => Turn::Goes,
            LoginProgress::Turn if is_answered && self.was_query() => Turn::Query,
            // Without authentication the login is the driver's first message.
            LoginProgress::Turn if is_answered && self.answered == 1 => Turn::LoggedIn,
            _ => Turn::Goes,
        }
    }

    /// Whether a client that sent no query has logged in: it is told so, says goodbye, or has got an answer to a `COM_PING`. One that
    /// is refused says nothing more.
    fn has_mysql_login_ended(&self) -> bool {
        match self.last {
            Some(ConnectionSide::Client) => self.answered > 0 && self.client_bytes == TERMINATE_BYTES,
            Some(ConnectionSide::Server) if self.login == LoginProgress::Done => self.answered > 1,
            Some(ConnectionSide::Server) => MYSQL_OK_BYTES.contains(&self.server_bytes),
            None => false,
        }
    }

    /// Whether the client has only asked the server to cancel a query, which the server does not answer. To be asked at the end.
    #[must_use]
    pub(crate) fn is_cancel_request(&self) -> bool {
        let is_request = CANCEL_REQUEST_BYTES.contains(&self.client_bytes);
        self.protocol == Some(DatabaseProtocol::Postgres)
            && self.last == Some(ConnectionSide::Client)
            && self.answered == 0
            && is_request
    }

    /// Whether the last turn, which was taken for one of the login, cannot have been one: MongoDB's driver sends its first message,
    /// and then those of SASL, if it authenticates at all.
    fn was_query(&self) -> bool {
        let is_reply = MONGODB_SASL_REPLY_BYTES.contains(&self.longest_bytes);
        let is_sasl = is_sasl(self.client_bytes) && is_reply;
        self.protocol == Some(DatabaseProtocol::MongoDb) && self.answered > 1 && !is_sasl
    }

    /// The client sends again, so many bytes: what did the server's answer mean?
    fn end_login_turn(&mut self, client_bytes: u32) {
        let goes_on = match self.protocol {
            Some(DatabaseProtocol::Postgres) => self.answered < MAX_LOGIN_TURNS,
            Some(DatabaseProtocol::MySql) if self.server_bytes == MYSQL_FULL_AUTH_BYTES => true,
            Some(DatabaseProtocol::MySql) if MYSQL_SWITCH_BYTES.contains(&self.server_bytes) => {
                self.login = LoginProgress::MayContinue;
                return;
            }
            Some(DatabaseProtocol::MongoDb) => {
                self.answered < MAX_LOGIN_TURNS && !self.was_query() && is_sasl(client_bytes)
            }
            Some(DatabaseProtocol::MySql) | None => false,
        };
        if !goes_on {
            self.login = LoginProgress::Done;
        }
    }
}

fn is_sasl(bytes: u32) -> bool {
    MONGODB_SASL_BYTES.contains(&bytes)
}

/// What encryption adds to a record's content: `None` if that depends on the content (CBC).
#[must_use]
pub(crate) fn overhead_bytes(version: u16, suite: u16) -> Option<u32> {
    const TLS_1_3: u16 = 0x0304;
    /// An authentication tag, and the record's real type.
    const TAG_AND_TYPE: u32 = 16 + 1;
    const NONCE_AND_TAG: u32 = 8 + 16;
    const TAG: u32 = 16;
    if version >= TLS_1_3 {
        return Some(TAG_AND_TYPE);
    }
    match suite {
        // AES-GCM, alone or with (EC)DHE (RFC 5288, RFC 5289).
        0x009c..=0x00a7 | 0xc02b..=0xc032 => Some(NONCE_AND_TAG),
        // ChaCha20-Poly1305 (RFC 7905).
        0xcca8..=0xccae => Some(TAG),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
