//! The authentication: how the client proves who it is.

use std::fmt;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, Path, as_text, match_name, split_modifiers, unknown_modifier};

/// How the client proves who it is: equal in every arm of a contrast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Auth {
    /// No proof is asked for; on MySQL and MariaDB, an account with an empty password.
    Trust,
    /// SCRAM-SHA-256 (RFC 7677) with a verifier of so many iterations.
    Scram {
        /// Iterations of PBKDF2, as the server stores them.
        iterations: Iterations,
        /// Whether the proof is bound to the TLS channel.
        binding: ChannelBinding,
    },
    /// SCRAM-SHA-1, `MongoDB`'s older one; of how many iterations is for the server to say.
    ScramSha1,
    /// `PostgreSQL`'s salted MD5.
    Md5,
    /// `mysql_native_password`.
    Native,
    /// `caching_sha2_password` with a warm cache: the fast exchange.
    CachingSha2,
    /// MariaDB's `ed25519`.
    Ed25519,
    /// MariaDB's `parsec`, from 11.6.
    Parsec,
    /// A client certificate and nothing else.
    Cert,
    /// Whatever a server at a URL asks for.
    AsAsked,
}

/// Iterations of a SCRAM verifier: 1–10,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iterations(u32);

/// Whether SCRAM's proof is bound to the TLS channel it travels in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelBinding {
    /// SCRAM-SHA-256, on any path.
    Unbound,
    /// SCRAM-SHA-256-PLUS by `tls-server-end-point`: what libpq prefers over TLS.
    ServerEndPoint,
}

impl Iterations {
    /// What `PostgreSQL` stores unless told otherwise.
    pub const POSTGRES_DEFAULT: Self = Self(4096);
    /// What `MongoDB` and `FerretDB` store unless told otherwise.
    pub const MONGODB_DEFAULT: Self = Self(15_000);
    /// The least that `MongoDB` stores.
    const MONGODB_LEAST: Self = Self(5_000);
    /// More than anybody waits for.
    const MAX: u32 = 10_000_000;

    /// The number, if it is in range.
    pub fn new(number: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl Auth {
    /// One of each kind, as help and errors list them.
    pub const ALL: [Self; 11] = [
        Self::Trust,
        Self::scram(Iterations::POSTGRES_DEFAULT),
        Self::scram(Iterations(1)),
        Self::ScramSha1,
        Self::Md5,
        Self::Native,
        Self::CachingSha2,
        Self::Ed25519,
        Self::Parsec,
        Self::Cert,
        Self::AsAsked,
    ];

    /// SCRAM-SHA-256 without channel binding.
    pub const fn scram(iterations: Iterations) -> Self {
        Self::Scram { iterations, binding: ChannelBinding::Unbound }
    }

    /// What a new account of `engine` has unless told otherwise.
    pub fn default_of(engine: Engine) -> Self {
        match engine {
            Engine::MariaDb => Self::Native,
            Engine::MySql => Self::CachingSha2,
            Engine::Postgres => Self::scram(Iterations::POSTGRES_DEFAULT),
            Engine::MongoDb | Engine::FerretDb => Self::scram(Iterations::MONGODB_DEFAULT),
        }
    }

    /// Why no server of `engine` can be logged in to like this over `path`, if so. What depends on the
    /// server's version, only the server knows.
    pub fn impossible(self, engine: Engine, path: Path) -> Option<String> {
        let engine_name = engine.display_name();
        match (self, engine) {
            (Self::CachingSha2, Engine::MariaDb | Engine::Postgres | Engine::MongoDb | Engine::FerretDb) => {
                Some(format!("{engine_name} has no caching_sha2_password: it is MySQL's"))
            }
            (Self::Native, Engine::Postgres | Engine::MongoDb | Engine::FerretDb) => {
                Some(format!("{engine_name} has no {self}: it is MySQL's and MariaDB's"))
            }
            (
                Self::Ed25519 | Self::Parsec,
                Engine::MySql | Engine::Postgres | Engine::MongoDb | Engine::FerretDb,
            ) => Some(format!("{engine_name} has no {self}: it is MariaDB's")),
            (Self::Scram { .. }, Engine::MariaDb | Engine::MySql) => {
                Some(format!("{engine_name} has no {self}: it is PostgreSQL's and MongoDB's"))
            }
            (Self::Md5, Engine::MariaDb | Engine::MySql | Engine::MongoDb | Engine::FerretDb) => {
                Some(format!("{engine_name} has no {self}: it is PostgreSQL's"))
            }
            (Self::ScramSha1, Engine::MariaDb | Engine::MySql | Engine::Postgres) => {
                Some(format!("{engine_name} has no {self}: it is MongoDB's"))
            }
            (
                Self::Scram { binding: ChannelBinding::ServerEndPoint, .. },
                Engine::MongoDb | Engine::FerretDb,
            ) => Some(format!("{engine_name} binds no proof to a TLS channel: that is PostgreSQL's")),
            (Self::Scram { iterations, .. }, Engine::FerretDb)
                if iterations != Iterations::MONGODB_DEFAULT =>
            {
                Some(format!(
                    "{engine_name} stores keys of {} iterations, which cannot be chosen: {}",
                    Iterations::MONGODB_DEFAULT.number(),
                    Self::default_of(engine)
                ))
            }
            (Self::Scram { iterations, .. }, Engine::MongoDb) if iterations < Iterations::MONGODB_LEAST => {
                Some(format!(
                    "{engine_name} stores keys of no fewer than {} iterations",
                    Iterations::MONGODB_LEAST.number()
                ))
            }
            (Self::Cert, Engine::FerretDb) => Some(format!(
                "{engine_name} lets nobody in by a certificate (MONGODB-X509): that is MongoDB's"
            )),
            (Self::Cert, _) if path.as_tls().is_none() => {
                Some("a client certificate is shown in a TLS handshake, and this path has none".to_owned())
            }
            (Self::Scram { binding: ChannelBinding::ServerEndPoint, .. }, _) if path.as_tls().is_none() => {
                Some("channel binding needs a TLS channel, and this path has none".to_owned())
            }
            _ => None,
        }
    }
}

impl fmt::Display for Auth {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Scram { iterations, binding } => {
                write!(formatter, "scram-{}", iterations.0)?;
                return match binding {
                    ChannelBinding::Unbound => Ok(()),
                    ChannelBinding::ServerEndPoint => formatter.write_str("+plus"),
                };
            }
            Self::Trust => "trust",
            Self::ScramSha1 => "scram-sha1",
            Self::Md5 => "md5",
            Self::Native => "native",
            Self::CachingSha2 => "caching-sha2",
            Self::Ed25519 => "ed25519",
            Self::Parsec => "parsec",
            Self::Cert => "cert",
            Self::AsAsked => "as-asked",
        };
        formatter.write_str(name)
    }
}

impl FromStr for Auth {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let (name, mut modifiers) = split_modifiers(text);
        let number = name.strip_prefix("scram-").filter(|number| *number != "sha1");
        let auth = match number {
            Some(number) => Self::scram(parse_iterations(number, text)?),
            None => match_name(Factor::Auth.label(), name, &Self::ALL, |auth| auth.to_string())?,
        };
        modifiers.try_fold(auth, |auth, modifier| match (auth, modifier) {
            (Self::Scram { iterations, .. }, "plus") => {
                Ok(Self::Scram { iterations, binding: ChannelBinding::ServerEndPoint })
            }
            _ => Err(unknown_modifier(Factor::Auth.label(), name, modifier)),
        })
    }
}

fn parse_iterations(number: &str, text: &str) -> Result<Iterations, LevelError> {
    number.parse().ok().and_then(Iterations::new).ok_or_else(|| LevelError::OutOfRange {
        factor: Factor::Auth.label(),
        text: text.to_owned(),
        expected: "1 to 10000000 iterations after scram-",
    })
}

as_text!(Auth);
