//! Authentication methods.

use std::fmt;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, Path, as_text, bounded, match_name, parse_modified};

/// The authentication method; the same in all arms of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Auth {
    /// No authentication; on MySQL and MariaDB, an account with an empty password.
    Trust,
    /// SCRAM-SHA-256 (RFC 7677).
    Scram {
        /// PBKDF2 iterations of the stored verifier.
        iterations: Iterations,
        binding: ChannelBinding,
    },
    /// SCRAM-SHA-1, `MongoDB`'s older method, with the server's number of iterations.
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
    /// Only a client certificate.
    Cert,
    /// As a server at a URL requests it.
    AsAsked,
}

bounded! {
    /// Iterations of a SCRAM verifier. More would be impractically slow.
    Iterations(u32) up to 10_000_000, read by number
}

/// Whether the SCRAM proof is bound to the TLS channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ChannelBinding {
    /// SCRAM-SHA-256, on any path.
    Unbound,
    /// SCRAM-SHA-256-PLUS by `tls-server-end-point`: libpq's preference over TLS.
    ServerEndPoint,
}

impl Iterations {
    /// `PostgreSQL`'s default.
    pub const POSTGRES_DEFAULT: Self = Self(4096);
    /// The default of `MongoDB` and `FerretDB`.
    pub const MONGODB_DEFAULT: Self = Self(15_000);
    /// The minimum of `MongoDB`.
    const MONGODB_LEAST: Self = Self(5_000);
}

impl Auth {
    /// One of each kind, in the order of help and errors.
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

    /// The default for a new account of `engine`.
    pub fn default_of(engine: Engine) -> Self {
        match engine {
            Engine::MariaDb => Self::Native,
            Engine::MySql => Self::CachingSha2,
            Engine::Postgres => Self::scram(Iterations::POSTGRES_DEFAULT),
            Engine::MongoDb | Engine::FerretDb => Self::scram(Iterations::MONGODB_DEFAULT),
        }
    }

    /// Why `engine` does not support this over `path`, if so. Requirements on its version are checked later.
    pub fn impossible(self, engine: Engine, path: Path) -> Option<String> {
        let engine_name = engine.display_name();
        match (self, engine) {
            (Self::CachingSha2, engine) if engine != Engine::MySql => {
                Some(format!("{engine_name} has no caching_sha2_password: it is MySQL's"))
            }
            (Self::Native, Engine::Postgres | Engine::MongoDb | Engine::FerretDb) => {
                Some(format!("{engine_name} has no {self}: it is MySQL's and MariaDB's"))
            }
            (Self::Ed25519 | Self::Parsec, engine) if engine != Engine::MariaDb => {
                Some(format!("{engine_name} has no {self}: it is MariaDB's"))
            }
            (Self::Scram { .. }, Engine::MariaDb | Engine::MySql) => {
                Some(format!("{engine_name} has no {self}: it is PostgreSQL's and MongoDB's"))
            }
            (Self::Md5, engine) if engine != Engine::Postgres => {
                Some(format!("{engine_name} has no {self}: it is PostgreSQL's"))
            }
            (Self::ScramSha1, Engine::MariaDb | Engine::MySql | Engine::Postgres) => {
                Some(format!("{engine_name} has no {self}: it is MongoDB's"))
            }
            (
                Self::Scram { binding: ChannelBinding::ServerEndPoint, .. },
                Engine::MongoDb | Engine::FerretDb,
            ) => Some(format!("{engine_name} has no channel binding: it is PostgreSQL's")),
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
            (Self::Cert, Engine::FerretDb) => {
                Some(format!("{engine_name} has no login by certificate (MONGODB-X509): it is MongoDB's"))
            }
            (Self::Cert, _) if path.as_tls().is_none() => {
                Some("a client certificate needs TLS, and this path has none".to_owned())
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
        let level = |name: &str| {
            let Some(number) = name.strip_prefix("scram-").filter(|number| *number != "sha1") else {
                return match_name(Factor::Auth.label(), name, &Self::ALL, |auth| auth.to_string());
            };
            let iterations = number.parse().ok().and_then(Iterations::new);
            iterations.map(Self::scram).ok_or_else(|| {
                let expected = "1 to 10000000 iterations after scram-";
                LevelError::out_of_range(Factor::Auth.label(), text, expected)
            })
        };
        parse_modified(Factor::Auth, text, level, |auth, modifier| {
            Ok(match (auth, modifier) {
                (Self::Scram { iterations, .. }, "plus") => {
                    Some(Self::Scram { iterations, binding: ChannelBinding::ServerEndPoint })
                }
                _ => None,
            })
        })
    }
}

as_text!(Auth);
