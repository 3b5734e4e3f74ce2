//! Credentials and options of a login, and how the server authenticated it.

use crate::secret::Secret;

/// Credentials and connection options. Made once and shared by all connects.
#[derive(Clone)]
pub struct PostgresLogin {
    pub user: String,
    /// Unused if the server requests none.
    pub password: Secret,
    /// `None`: the database named like the user.
    pub database: Option<String>,
    pub encryption: PostgresTlsMode,
    pub channel_binding: ChannelBinding,
    /// Parameters of the startup message, such as `options`; they replace our own of the same names.
    pub startup: Vec<(String, String)>,
}

/// Whether the connection is encrypted. There is no opportunistic mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PostgresTlsMode {
    Plain,
    /// An `SSLRequest`. TLS is required.
    Tls,
    /// The `SSLRequest` and the ClientHello are sent together. TLS is required. Since PostgreSQL 17.
    EagerTls,
    /// TLS from the first byte, with ALPN [`DIRECT_TLS_ALPN`]. Since PostgreSQL 17.
    DirectTls,
}

/// The ALPN protocol, without which servers refuse TLS from the first byte.
pub const DIRECT_TLS_ALPN: &[u8] = b"postgresql";

/// Whether SCRAM is bound to the TLS channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum ChannelBinding {
    /// SCRAM-SHA-256, over TLS, too.
    #[default]
    Disabled,
    /// SCRAM-SHA-256-PLUS if the server offers it and `PostgresConnect::bind_channel` was called, else what
    /// the server requests. This is libpq's default.
    Preferred,
    /// Only SCRAM-SHA-256-PLUS. `PostgresConnect::bind_channel` must be called after the TLS handshake.
    Required,
}

/// How the server authenticated the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PostgresAuthMethod {
    /// No credentials requested: `trust`, `peer`, or the TLS client certificate.
    None,
    /// The cleartext password, inside TLS.
    Cleartext,
    /// MD5 of the password and a salt.
    Md5,
    Scram {
        /// Iterations of the key derivation, which the server chose.
        iterations: u32,
        channel_binding: Bound,
    },
}

impl PostgresAuthMethod {
    /// A short, stable name, such as `scram-4096+plus`.
    pub fn label(self) -> String {
        match self {
            Self::None => "trust".to_owned(),
            Self::Cleartext => "cleartext".to_owned(),
            Self::Md5 => "md5".to_owned(),
            Self::Scram { iterations, channel_binding: Bound::Nothing } => format!("scram-{iterations}"),
            Self::Scram { iterations, channel_binding: Bound::ServerEndPoint } => {
                format!("scram-{iterations}+plus")
            }
        }
    }
}

/// The channel binding of a SCRAM exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Bound {
    Nothing,
    /// The server's certificate (`tls-server-end-point`).
    ServerEndPoint,
}
