use std::ops::{BitAnd, BitOr};

/// Capability flags ("Capabilities Flags"). The upper 32 bits are MariaDB's extended flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Capabilities(u64);

impl Capabilities {
    /// `CLIENT_LONG_PASSWORD`. MariaDB calls it `CLIENT_MYSQL` and clears it to announce extended flags.
    pub const LONG_PASSWORD: Self = Self(1);
    /// `CLIENT_FOUND_ROWS`: an UPDATE counts matched rows instead of changed ones.
    pub const FOUND_ROWS: Self = Self(1 << 1);
    /// `CLIENT_LONG_FLAG`: two bytes of flags per column.
    pub const LONG_FLAG: Self = Self(1 << 2);
    /// `CLIENT_CONNECT_WITH_DB`: the login names a database.
    pub const CONNECT_WITH_DB: Self = Self(1 << 3);
    /// `CLIENT_COMPRESS`: packets are wrapped in zlib-compressed packets.
    pub const COMPRESS: Self = Self(1 << 5);
    /// `CLIENT_LOCAL_FILES`: the server may request a file from the client.
    pub const LOCAL_FILES: Self = Self(1 << 7);
    /// `CLIENT_IGNORE_SPACE`: `sql_mode` has `IGNORE_SPACE`.
    pub const IGNORE_SPACE: Self = Self(1 << 8);
    /// `CLIENT_PROTOCOL_41`: the protocol since 4.1, the only supported one.
    pub const PROTOCOL_41: Self = Self(1 << 9);
    /// `CLIENT_INTERACTIVE`: `interactive_timeout` replaces `wait_timeout`.
    pub const INTERACTIVE: Self = Self(1 << 10);
    /// `CLIENT_SSL`: TLS after an `SSLRequest`.
    pub const SSL: Self = Self(1 << 11);
    /// `CLIENT_TRANSACTIONS`: status flags in OK and EOF.
    pub const TRANSACTIONS: Self = Self(1 << 13);
    /// `CLIENT_SECURE_CONNECTION` (or `CLIENT_RESERVED2`): authentication since 4.1.
    pub const SECURE_CONNECTION: Self = Self(1 << 15);
    /// `CLIENT_MULTI_STATEMENTS`: a `COM_QUERY` may have several statements.
    pub const MULTI_STATEMENTS: Self = Self(1 << 16);
    /// `CLIENT_MULTI_RESULTS`: a `COM_QUERY` may return several result sets.
    pub const MULTI_RESULTS: Self = Self(1 << 17);
    /// `CLIENT_PS_MULTI_RESULTS`: a `COM_STMT_EXECUTE` may return several result sets.
    pub const PS_MULTI_RESULTS: Self = Self(1 << 18);
    /// `CLIENT_PLUGIN_AUTH`: authentication plugins are named.
    pub const PLUGIN_AUTH: Self = Self(1 << 19);
    /// `CLIENT_PLUGIN_AUTH_LENENC_CLIENT_DATA`: the authentication response has a length-encoded length.
    pub const PLUGIN_AUTH_LENENC: Self = Self(1 << 21);
    /// `CLIENT_SESSION_TRACK`: an OK may report changes of session state.
    pub const SESSION_TRACK: Self = Self(1 << 23);
    /// `CLIENT_DEPRECATE_EOF`: no EOF after column definitions, an OK after rows.
    pub const DEPRECATE_EOF: Self = Self(1 << 24);
    /// `CLIENT_ZSTD_COMPRESSION_ALGORITHM`: as [`Self::COMPRESS`], with another algorithm.
    pub const ZSTD_COMPRESSION: Self = Self(1 << 26);
    /// `CLIENT_QUERY_ATTRIBUTES`: queries and executes have attributes.
    pub const QUERY_ATTRIBUTES: Self = Self(1 << 27);
    /// `MARIADB_CLIENT_PROGRESS`: long statements report their progress.
    pub const PROGRESS: Self = Self(1 << 32);
    /// `MARIADB_CLIENT_STMT_BULK_OPERATIONS`: `COM_STMT_BULK_EXECUTE`.
    pub const BULK_OPERATIONS: Self = Self(1 << 34);
    /// `MARIADB_CLIENT_EXTENDED_METADATA`: more fields in column definitions.
    pub const EXTENDED_METADATA: Self = Self(1 << 35);
    /// `MARIADB_CLIENT_CACHE_METADATA`: unchanged column definitions are omitted.
    pub const CACHE_METADATA: Self = Self(1 << 36);
    /// `MARIADB_CLIENT_BULK_UNIT_RESULTS`: a bulk execute returns one result per row of parameters.
    pub const BULK_UNIT_RESULTS: Self = Self(1 << 37);

    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The lower 32 bits are the flags that MySQL and MariaDB share.
    pub const fn bits(self) -> u64 {
        self.0
    }

    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether any of MariaDB's extended flags is set.
    pub(crate) fn is_extended(self) -> bool {
        self.0 >> 32 != 0
    }

    /// Combines the lower half with MariaDB's extended half.
    pub(crate) fn from_halves(low: u32, extended: u32) -> Self {
        let low = Self(u64::from(low));
        // A MySQL peer sends filler in place of MariaDB's flags: the upper half counts only without this
        // flag.
        if low.contains(Self::LONG_PASSWORD) { low } else { Self(low.0 | u64::from(extended) << 32) }
    }

    /// The lower half, and the extended half, or zero if that must not be sent.
    pub(crate) fn halves(self) -> (u32, u32) {
        let extended = if self.contains(Self::LONG_PASSWORD) { 0 } else { (self.0 >> 32) as u32 };
        (self.0 as u32, extended)
    }
}

impl BitOr for Capabilities {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitAnd for Capabilities {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

/// The capabilities that client and server can negotiate through a relay that changes no bytes. Login
/// capabilities are excluded, and compression, which would hide the messages.
pub const RELAYED: Capabilities = Capabilities::FOUND_ROWS
    .with(Capabilities::LONG_FLAG)
    .with(Capabilities::LOCAL_FILES)
    .with(Capabilities::IGNORE_SPACE)
    .with(Capabilities::INTERACTIVE)
    .with(Capabilities::TRANSACTIONS)
    .with(Capabilities::MULTI_STATEMENTS)
    .with(Capabilities::MULTI_RESULTS)
    .with(Capabilities::PS_MULTI_RESULTS)
    .with(Capabilities::SESSION_TRACK)
    .with(Capabilities::DEPRECATE_EOF)
    .with(Capabilities::QUERY_ATTRIBUTES)
    .with(Capabilities::PROGRESS)
    .with(Capabilities::BULK_OPERATIONS)
    .with(Capabilities::EXTENDED_METADATA)
    .with(Capabilities::CACHE_METADATA)
    .with(Capabilities::BULK_UNIT_RESULTS);
