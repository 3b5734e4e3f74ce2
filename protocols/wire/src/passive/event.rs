//! The words of an observed connection.

use std::fmt;

use ciphertoll_vocabulary::Engine;

use crate::passive::account::Account;

/// The next bytes of one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    Bytes(&'a [u8]),
    /// So many were sent, and not captured.
    Missing(u64),
}

/// A protocol that databases speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DatabaseProtocol {
    Postgres,
    /// MySQL and MariaDB.
    MySql,
    MongoDb,
}

/// What happened, in the order of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The server's first message, where the server speaks first.
    Greeting,
    /// The server has no TLS, or does not want it; the client may go on without.
    TlsRefused,
    /// GSSAPI encryption begins: nothing more is visible.
    GssEncryption,
    /// The connection asks the server to cancel a query of another one.
    Cancel,
    /// The client logs in without encryption.
    LoginStarted,
    /// The client names a user, in a login or to become another one; only if names are read.
    Account(Account),
    /// The client has sent what this method asks for, or the server wants nothing.
    Login(AuthMethod),
    /// An answer of the server that may be the last one of the login, where only the client's next message tells.
    LoginAnswer,
    LoggedIn,
    /// A request that the server executes.
    Query,
    /// The first message of the server's answer to a query.
    Answer,
    /// The server refused the client before it was logged in.
    Refused(FailureCode),
    /// The client said that it closes the connection.
    Terminate,
    /// Messages are compressed: their number is known, and nothing else.
    Compressed,
    /// The bytes are not of this protocol, or too many are missing: nothing more is read.
    Lost,
}

/// How a client proves who it is, in the words of the server's manual: `scram-sha-256`, `caching_sha2_password`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AuthMethod(Box<str>);

/// How a password travels in a login that is not encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PasswordOnWire {
    /// As it is.
    Clear,
    /// Hashed with MD5 or SHA-1 and a nonce: can be guessed at billions a second.
    WeakHash,
    /// A proof by a slow hash or a signature.
    Proof,
    /// None: certificates, the operating system, or nobody asked.
    None,
    /// The method is not known here.
    Unknown,
}

/// The server's code of an error: an SQLSTATE, or a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureCode {
    SqlState([u8; 5]),
    Number(u32),
}

impl DatabaseProtocol {
    pub const ALL: [Self; 3] = [Self::Postgres, Self::MySql, Self::MongoDb];

    /// As options name it.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::MySql => "mysql",
            Self::MongoDb => "mongodb",
        }
    }

    /// The protocol of an engine.
    #[must_use]
    pub fn of(engine: Engine) -> Self {
        match engine {
            Engine::Postgres => Self::Postgres,
            Engine::MariaDb | Engine::MySql => Self::MySql,
            Engine::MongoDb | Engine::FerretDb => Self::MongoDb,
        }
    }
}

impl AuthMethod {
    /// The longest name of a plugin or mechanism that is kept.
    const MAX_BYTES: usize = 64;

    /// A name from the wire: what cannot be part of one is replaced.
    #[must_use]
    pub fn named(name: &[u8]) -> Self {
        let name = &name[..name.len().min(Self::MAX_BYTES)];
        let plain = |byte: &u8| match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-' => char::from(*byte),
            b'A'..=b'Z' => char::from(byte.to_ascii_lowercase()),
            _ => '?',
        };
        Self(name.iter().map(plain).collect())
    }

    #[must_use]
    pub fn label(&self) -> &str {
        &self.0
    }

    /// How the password travels, if nothing encrypts it.
    #[must_use]
    pub fn password(&self) -> PasswordOnWire {
        match &*self.0 {
            "password" | "mysql_clear_password" | "dialog" | "plain" => PasswordOnWire::Clear,
            "md5" | "mysql_native_password" | "mysql_old_password" => PasswordOnWire::WeakHash,
            "scram-sha-256"
            | "scram-sha-256-plus"
            | "scram-sha-1"
            | "caching_sha2_password"
            | "sha256_password"
            | "client_ed25519"
            | "parsec"
            | "oauthbearer" => PasswordOnWire::Proof,
            "none" | "trust" | "gss" | "sspi" | "auth_gssapi_client" | "gssapi" | "mongodb-x509" => {
                PasswordOnWire::None
            }
            _ => PasswordOnWire::Unknown,
        }
    }
}

impl fmt::Display for AuthMethod {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl fmt::Display for FailureCode {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SqlState(state) => state.iter().try_for_each(|byte| {
                let shown = if byte.is_ascii_alphanumeric() { char::from(*byte) } else { '?' };
                write!(formatter, "{shown}")
            }),
            Self::Number(number) => number.fmt(formatter),
        }
    }
}
