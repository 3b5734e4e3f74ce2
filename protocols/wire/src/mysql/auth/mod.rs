//! Authentication plugins: what a client may offer first, and how a login was authenticated.

pub mod caching_sha2;
pub mod clear_password;
pub mod ed25519;
pub mod native_password;
pub mod parsec;

pub(crate) mod rsa_key;

/// The plugin that a client names in its login, with a proof if the greeting's nonce suffices.
///
/// A right guess saves a round trip. After a wrong one the server requests another plugin, and any of these
/// is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Plugin {
    /// `mysql_native_password`: what MariaDB requests first for every account.
    #[default]
    NativePassword,
    /// `caching_sha2_password`: what MySQL requests first since 8.0.
    CachingSha2Password,
    /// `client_ed25519` of MariaDB. Its challenge comes only after the login, so no round trip is saved.
    Ed25519,
    /// `parsec` of MariaDB since 11.6. No round trip is saved, as with `client_ed25519`.
    Parsec,
}

impl Plugin {
    pub const ALL: [Self; 4] = [Self::NativePassword, Self::CachingSha2Password, Self::Ed25519, Self::Parsec];

    /// The name in the protocol.
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::NativePassword => native_password::NAME,
            Self::CachingSha2Password => caching_sha2::NAME,
            Self::Ed25519 => ed25519::NAME,
            Self::Parsec => parsec::NAME,
        }
    }

    pub(crate) fn of_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }
}

/// How the server authenticated the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MySqlAuthMethod {
    /// No proof was sent: the account has no password, or the server checks something else, such as the user
    /// of the socket.
    Empty,
    NativePassword,
    /// `caching_sha2_password`, answered from the server's cache.
    CachingSha2Fast,
    /// `caching_sha2_password`, with the cleartext password over TLS or a unix socket.
    CachingSha2FullPrivate,
    /// `caching_sha2_password`, with the password encrypted with the server's RSA key.
    CachingSha2FullRsa,
    Ed25519,
    Parsec {
        /// Iterations of PBKDF2.
        iterations: u32,
    },
    /// `mysql_clear_password`, over TLS.
    ClearPassword,
}

impl MySqlAuthMethod {
    /// A short, stable name. Both full exchanges of `caching_sha2_password` share one; the encryption of the
    /// connection distinguishes them.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::NativePassword => "native",
            Self::CachingSha2Fast => "caching-sha2",
            Self::CachingSha2FullPrivate | Self::CachingSha2FullRsa => "caching-sha2-full",
            Self::Ed25519 => "ed25519",
            Self::Parsec { .. } => "parsec",
            Self::ClearPassword => "clear",
        }
    }
}
