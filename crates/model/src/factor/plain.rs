//! Factors whose levels are a bare name or number.

use std::fmt;
use std::str::FromStr;

use super::{Factor, LevelError, as_number, as_text, match_name};

/// Declares a closed set of names with `ALL`, `label()`, printing, parsing and serialisation by label.
macro_rules! named_levels {
    ($(#[$doc:meta])* $name:ident of $factor:ident { $($(#[$level_doc:meta])* $level:ident = $label:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$level_doc])* $level),+ }

        impl $name {
            /// Every level, in the order of help and reports.
            pub const ALL: &'static [Self] = &[$(Self::$level),+];

            pub fn label(self) -> &'static str {
                match self { $(Self::$level => $label),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str(self.label())
            }
        }

        impl FromStr for $name {
            type Err = LevelError;

            fn from_str(text: &str) -> Result<Self, LevelError> {
                match_name(Factor::$factor.label(), text, Self::ALL, |level| level.label().to_owned())
            }
        }

        as_text!($name);
    };
}

named_levels! {
    /// When the client's TLS context is built, which can cost more than the handshake.
    Ctx of Ctx {
        /// A new context with a CA file for each connect, as in libmysqlclient and libpq.
        PerConnect = "per-connect",
        /// One context for the whole process.
        Shared = "shared",
        /// A new context for each connect, which also loads the system's trust store.
        PerConnectSystemCa = "per-connect-systemca",
    }
}

/// The number of concurrent clients: 1–256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clients(u16);

impl Clients {
    pub const ONE: Self = Self(1);
    pub const MAX: u16 = 256;

    pub fn new(count: u16) -> Option<Self> {
        (1..=Self::MAX).contains(&count).then_some(Self(count))
    }

    pub fn count(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Clients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for Clients {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        text.parse().ok().and_then(Self::new).ok_or_else(|| LevelError::OutOfRange {
            factor: Factor::Clients.label(),
            text: text.to_owned(),
            expected: "a whole number from 1 to 256",
        })
    }
}

as_number!(Clients: Clients::count);
