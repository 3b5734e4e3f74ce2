//! Ways to authenticate: what a client may guess, and what a login came to.

/// The plugin a client names in its login, for which it sends a proof at once where it can.
///
/// A right guess saves a round trip; after a wrong one the server asks for another plugin, and any of these is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Plugin {
    /// `mysql_native_password`: what MariaDB begins with whatever the account uses.
    #[default]
    NativePassword,
    /// `caching_sha2_password`: what `MySQL` begins with since 8.0.
    CachingSha2Password,
    /// `client_ed25519` of MariaDB; its challenge comes only after the login, so that nothing is saved.
    Ed25519,
    /// `parsec` of MariaDB since 11.6; the same holds.
    Parsec,
}

impl Plugin {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::NativePassword, Self::CachingSha2Password, Self::Ed25519, Self::Parsec];

    /// The name on the wire.
    pub const fn name(self) -> &'static [u8] {
        match self {
            Self::NativePassword => super::native_password::NAME,
            Self::CachingSha2Password => super::caching_sha2::NAME,
            Self::Ed25519 => super::ed25519::NAME,
            Self::Parsec => super::parsec::NAME,
        }
    }

    pub(super) fn of_name(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|plugin| plugin.name() == name)
    }
}

/// What a client said to prove who it is, and the server accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AuthMethod {
    /// Nothing: the account has no password, or the server looks at something else, such as the socket's user.
    Empty,
    /// `mysql_native_password`.
    NativePassword,
    /// `caching_sha2_password`, from the server's cache.
    CachingSha2Fast,
    /// `caching_sha2_password`, with the clear password over TLS or a unix socket.
    CachingSha2FullPrivate,
    /// `caching_sha2_password`, with the password encrypted with the server's RSA key.
    CachingSha2FullRsa,
    /// `client_ed25519`.
    Ed25519,
    /// `parsec`.
    Parsec {
        /// Iterations of PBKDF2.
        iterations: u32,
    },
    /// `mysql_clear_password`, over TLS.
    ClearPassword,
}

impl AuthMethod {
    /// A short, stable name. Both full exchanges of `caching_sha2_password` share one: the encryption beside it tells
    /// them apart.
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
