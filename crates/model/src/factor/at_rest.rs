//! What encrypts a server's files.

use std::fmt;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, as_text, match_name, split_modifiers, unknown_modifier};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtRest {
    None,
    /// The server itself encrypts pages, logs and temporary files before it writes them.
    Native,
    /// gocryptfs, a user-space file system; the page cache holds plaintext.
    Gocryptfs,
    /// An encrypted ext4 directory; the page cache holds plaintext.
    Fscrypt,
    /// ciphertoll's library, preloaded into an unmodified `PostgreSQL`: encrypts pages as they are written.
    Tde(Tde),
    /// Unchanged, for a server at a URL.
    AsIs,
}

/// Settings of ciphertoll's library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tde {
    pub cipher: TdeCipher,
    pub target: TdeTarget,
}

/// The cipher for pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TdeCipher {
    /// AES-256-XTS.
    #[default]
    Aes256,
    /// AES-128-XTS.
    Aes128,
    /// No encryption: the library is loaded, and files are plaintext.
    Null,
}

/// The processor instructions that the cipher uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TdeTarget {
    /// The best available.
    #[default]
    Best,
    /// None specific to AES.
    Portable,
    /// AES-NI: one block at a time.
    AesNi,
    /// VAES: several blocks at a time.
    Vaes,
}

impl AtRest {
    /// Every level without modifiers, in the order of help and reports.
    pub const ALL: &'static [Self] = &[
        Self::None,
        Self::Native,
        Self::Gocryptfs,
        Self::Fscrypt,
        Self::Tde(Tde { cipher: TdeCipher::Aes256, target: TdeTarget::Best }),
        Self::AsIs,
    ];

    /// Whether no plaintext is found in the files.
    pub fn encrypts(self) -> bool {
        match self {
            Self::None | Self::AsIs => false,
            Self::Native | Self::Gocryptfs | Self::Fscrypt => true,
            Self::Tde(tde) => tde.cipher != TdeCipher::Null,
        }
    }

    /// Why `engine` does not support this, if so. Requirements on its version and plugins are checked later.
    pub fn impossible(self, engine: Engine) -> Option<String> {
        let name = engine.display_name();
        match (self, engine) {
            (Self::Native, Engine::Postgres) => Some(format!(
                "{name} does not encrypt its files itself; for {name}: at-rest={}; under any \
                 server: at-rest={}",
                Self::Tde(Tde::default()),
                Self::Gocryptfs
            )),
            (Self::Native, Engine::MongoDb) => Some(format!(
                "{name} encrypts its files in its Enterprise edition only: at-rest={}",
                Self::Gocryptfs
            )),
            (Self::Native, Engine::FerretDb) => {
                Some(format!("{name} does not encrypt its files itself: at-rest={}", Self::Gocryptfs))
            }
            (Self::Tde(_), Engine::MariaDb | Engine::MySql) => {
                Some(format!("{name} encrypts its files itself: at-rest={}", Self::Native))
            }
            (Self::Tde(_), Engine::MongoDb | Engine::FerretDb) => Some(format!(
                "it supports {} only, not {name}: at-rest={}",
                Engine::Postgres.display_name(),
                Self::Gocryptfs
            )),
            (Self::AsIs, _) => Some("as-is is for servers at a URL: name a level of at-rest".to_owned()),
            (Self::None | Self::Gocryptfs | Self::Fscrypt, _)
            | (Self::Native, Engine::MariaDb | Engine::MySql)
            | (Self::Tde(_), Engine::Postgres) => None,
        }
    }

    /// Its name without modifiers.
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Native => "native",
            Self::Gocryptfs => "gocryptfs",
            Self::Fscrypt => "fscrypt",
            Self::Tde(_) => "tde",
            Self::AsIs => "as-is",
        }
    }
}

impl Tde {
    /// Applies a modifier, each at most once. Without encryption there are no instructions to choose.
    fn with(mut self, modifier: &str) -> Option<Self> {
        match (modifier.split_once('=')?, self) {
            (("cipher", value), Self { cipher: TdeCipher::Aes256, target }) => {
                self.cipher = match value {
                    "aes128" => TdeCipher::Aes128,
                    "null" if target == TdeTarget::Best => TdeCipher::Null,
                    _ => return None,
                };
            }
            (
                ("target", value),
                Self { cipher: TdeCipher::Aes256 | TdeCipher::Aes128, target: TdeTarget::Best },
            ) => {
                self.target = match value {
                    "portable" => TdeTarget::Portable,
                    "aesni" => TdeTarget::AesNi,
                    "vaes" => TdeTarget::Vaes,
                    _ => return None,
                };
            }
            _ => return None,
        }
        Some(self)
    }
}

impl fmt::Display for AtRest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        let Self::Tde(Tde { cipher, target }) = self else { return Ok(()) };
        formatter.write_str(match cipher {
            TdeCipher::Aes256 => "",
            TdeCipher::Aes128 => "+cipher=aes128",
            TdeCipher::Null => "+cipher=null",
        })?;
        formatter.write_str(match target {
            TdeTarget::Best => "",
            TdeTarget::Portable => "+target=portable",
            TdeTarget::AesNi => "+target=aesni",
            TdeTarget::Vaes => "+target=vaes",
        })
    }
}

impl FromStr for AtRest {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let (name, mut modifiers) = split_modifiers(text);
        let level = match_name(Factor::AtRest.label(), name, Self::ALL, |level| level.name().to_owned())?;
        modifiers.try_fold(level, |level, modifier| {
            let changed = match level {
                Self::Tde(tde) => tde.with(modifier).map(Self::Tde),
                Self::None | Self::Native | Self::Gocryptfs | Self::Fscrypt | Self::AsIs => None,
            };
            changed.ok_or_else(|| unknown_modifier(Factor::AtRest.label(), name, modifier))
        })
    }
}

as_text!(AtRest);
