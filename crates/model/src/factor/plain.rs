//! The factors whose levels are a bare name or a bare number.

use std::fmt;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, as_number, as_text, match_name};

/// A closed set of names: `ALL`, `label()`, printing, parsing and serialisation as the label.
macro_rules! named_levels {
    ($(#[$doc:meta])* $name:ident of $factor:ident { $($(#[$level_doc:meta])* $level:ident = $label:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$level_doc])* $level),+ }

        impl $name {
            /// Every level, in the order in which help and reports list them.
            pub const ALL: &'static [Self] = &[$(Self::$level),+];

            /// The one name of this level.
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
                match_name(Factor::$factor, text, Self::ALL, |level| level.label().to_owned())
            }
        }

        as_text!($name);
    };
}

named_levels! {
    /// Who builds the client's TLS context, and when. It can cost more than the handshake.
    Ctx of Ctx {
        /// A new context with one CA file for each connect: what libmysqlclient and libpq do.
        PerConnect = "per-connect",
        /// One context for the life of the process.
        Shared = "shared",
        /// A new context for each connect that also loads the system's trust store.
        PerConnectSystemCa = "per-connect-systemca",
    }
}

named_levels! {
    /// What encrypts the server's files.
    AtRest of AtRest {
        /// Nothing.
        None = "none",
        /// The server itself, before a page, a log or a temporary file goes to the system.
        Native = "native",
        /// An encrypting file system in user space under all its files; the system's memory of them is in the clear.
        Gocryptfs = "gocryptfs",
        /// Whatever a server at a URL has.
        AsIs = "as-is",
    }
}

impl AtRest {
    /// Why no server of `engine` can have its files encrypted like this, if so. What depends on its version and its
    /// plugins, only the server knows.
    pub fn impossible(self, engine: Engine) -> Option<String> {
        let name = engine.display_name();
        match (self, engine) {
            (Self::Native, Engine::Postgres) => Some(format!(
                "{name} as it comes encrypts none of its files itself; what does it under any server: at-rest={}",
                Self::Gocryptfs
            )),
            (Self::Native, Engine::MongoDb) => Some(format!(
                "{name} encrypts its files in its Enterprise edition only: at-rest={}",
                Self::Gocryptfs
            )),
            (Self::Native, Engine::FerretDb) => {
                Some(format!("{name} encrypts none of its files itself: at-rest={}", Self::Gocryptfs))
            }
            (Self::AsIs, _) => {
                Some("a private server's files are as they are told to be: say how".to_owned())
            }
            (Self::None | Self::Gocryptfs, _) | (Self::Native, Engine::MariaDb | Engine::MySql) => None,
        }
    }
}

/// How many clients work at once: 1–256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Clients(u16);

impl Clients {
    /// One client.
    pub const ONE: Self = Self(1);
    /// The most that one trial drives.
    pub const MAX: u16 = 256;

    /// The count, if it is in range.
    pub fn new(count: u16) -> Option<Self> {
        (1..=Self::MAX).contains(&count).then_some(Self(count))
    }

    /// The count.
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

/// Rows in a workload's largest table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Scale(u32);

impl Scale {
    /// Small enough to load in a second, large enough not to live in one page.
    pub const DEFAULT: Self = Self(10_000);
    /// As few as a server reads through in a moment.
    pub const FEW: Self = Self(100);
    /// The most rows a template is filled with.
    pub const MAX: u32 = 100_000_000;
    /// Accounts of one of pgbench's branches.
    pub const ROWS_PER_BRANCH: u32 = 100_000;

    /// Number of rows.
    pub fn rows(self) -> u32 {
        self.0
    }

    /// pgbench's accounts come in hundred thousands: the least such number that is enough.
    #[must_use]
    pub fn in_whole_branches(self) -> Self {
        Self(self.0.div_ceil(Self::ROWS_PER_BRANCH) * Self::ROWS_PER_BRANCH)
    }

    /// pgbench's scale factor: its branches.
    pub fn branches(self) -> u32 {
        self.0.div_ceil(Self::ROWS_PER_BRANCH)
    }
}

impl fmt::Display for Scale {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl FromStr for Scale {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        match text.parse() {
            Ok(rows) if (1..=Self::MAX).contains(&rows) => Ok(Self(rows)),
            _ => Err(LevelError::OutOfRange {
                factor: Factor::Scale.label(),
                text: text.to_owned(),
                expected: "a number of rows from 1 to 100000000",
            }),
        }
    }
}

as_number!(Clients: Clients::count, Scale: Scale::rows);
