//! Credentials and options of a login.

use ciphertoll_vocabulary::ReadPreference;

use std::sync::Arc;

use crate::{mongodb::codec::compression::Compressor, scram::KeyCache, secret::Secret};

/// Credentials and connection options. Made once and shared by all connects.
#[derive(Clone)]
pub struct MongoDbLogin {
    /// May be empty if no password is used.
    pub user: String,
    /// Unused by mechanisms without a password.
    pub password: Secret,
    /// The database that authenticates the user.
    pub auth_source: String,
    /// The default database of commands.
    pub database: String,
    pub mechanism: Mechanism,
    /// Which members of a replica set may be read from. Sent to the connected server if it would refuse reads
    /// otherwise.
    pub read_preference: ReadPreference,
    pub tls: MongoDbTlsMode,
    /// The compressor offered to the server; for the negotiated one see
    /// `MongoDbServerInfo::compressor`. The login itself is not compressed.
    pub compressor: Option<Compressor>,
    /// The client's name in the server's log; empty for none.
    pub application_name: String,
    /// The SCRAM keys of this password, derived by the first connect. A login with another password needs its
    /// own cache.
    pub keys: Arc<KeyCache>,
}

impl MongoDbLogin {
    /// A login in plaintext with [`Mechanism::Negotiated`], authenticated by `admin`, for the database
    /// `test`.
    pub fn new(user: &str, password: Secret) -> Self {
        Self {
            user: user.to_owned(),
            password,
            auth_source: "admin".to_owned(),
            database: "test".to_owned(),
            mechanism: Mechanism::default(),
            read_preference: ReadPreference::default(),
            tls: MongoDbTlsMode::Plain,
            compressor: None,
            application_name: "ciphertoll".to_owned(),
            keys: Arc::new(KeyCache::new()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MongoDbTlsMode {
    Plain,
    /// TLS from the first byte.
    Tls,
}

/// The authentication mechanism.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mechanism {
    /// No authentication.
    None,
    ScramSha256,
    ScramSha1,
    /// With the TLS client certificate (`MONGODB-X509`).
    X509,
    /// SCRAM with the strongest digest that the server offers for the user.
    #[default]
    Negotiated,
}

/// The minimum of SCRAM iterations that the authentication specification requires.
pub const MIN_ITERATIONS: u32 = 4096;
