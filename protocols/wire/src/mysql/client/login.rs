//! Credentials and options of a login.

use crate::{
    mysql::{auth::Plugin, codec::command::StatementsPerQuery},
    secret::Secret,
};

/// Credentials and connection options. Made once and shared by all connects.
///
/// [`MySqlLogin::new`] sets the defaults:
///
/// ```
/// # use ciphertoll_wire::{Secret, mysql::{MySqlLogin, MySqlTlsMode, Plugin}};
/// let login = MySqlLogin {
///     encryption: MySqlTlsMode::Tls,
///     plugin: Plugin::CachingSha2Password,
///     ..MySqlLogin::new("toll", Secret::new(b"correct horse".to_vec()))
/// };
/// ```
#[derive(Clone)]
pub struct MySqlLogin {
    pub user: String,
    /// Empty for none.
    pub password: Secret,
    /// The default database.
    pub database: Option<String>,
    pub encryption: MySqlTlsMode,
    pub transport: Transport,
    /// The plugin to offer first.
    pub plugin: Plugin,
    pub statements: StatementsPerQuery,
}

impl MySqlLogin {
    /// A login in plaintext over TCP with `mysql_native_password` and no default database.
    pub fn new(user: impl Into<String>, password: Secret) -> Self {
        Self {
            user: user.into(),
            password,
            database: None,
            encryption: MySqlTlsMode::Plain,
            transport: Transport::default(),
            plugin: Plugin::default(),
            statements: StatementsPerQuery::default(),
        }
    }
}

/// Whether the connection is encrypted. There is no opportunistic mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MySqlTlsMode {
    Plain,
    /// TLS is required.
    Tls,
    /// The TLS request and the ClientHello are sent together, before the greeting arrives. TLS is required.
    EagerTls,
}

/// The transport, as far as authentication depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Transport {
    /// Without TLS, others may read along.
    #[default]
    Tcp,
    /// Private although it is not encrypted.
    UnixSocket,
}
