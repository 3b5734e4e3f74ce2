//! What encrypts a server's files.

use std::fmt;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, as_text, match_name, split_modifiers, unknown_modifier};

/// What encrypts the server's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AtRest {
    /// Nothing.
    None,
    /// The server itself, before a page, a log or a temporary file goes to the system.
    Native,
    /// An encrypting file system in user space under all its files; the system's memory of them is in the clear.
    Gocryptfs,
    /// An encrypted directory of the kernel's ext4 under all its files; the system's memory of them is in the clear.
    Fscrypt,
    /// ciphertoll's own library under an unmodified `PostgreSQL`: pages are encrypted on their way out of its memory.
    Tde(Tde),
    /// Whatever a server at a URL has.
    AsIs,
}

/// How the library encrypts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tde {
    /// By what.
    pub cipher: TdeCipher,
    /// By which of a processor's instructions.
    pub target: TdeTarget,
}

/// What pages are encrypted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TdeCipher {
    /// AES-256-XTS.
    #[default]
    Aes256,
    /// AES-128-XTS.
    Aes128,
    /// Nothing: the library stands where it always does, and the files are in the clear.
    Null,
}

/// Which instructions a cipher uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TdeTarget {
    /// The best that the processor has.
    #[default]
    Best,
    /// None that are made for AES.
    Portable,
    /// Those of x86-64 for AES, one block at a time.
    AesNi,
    /// Those for several blocks at a time.
    Vaes,
}

impl AtRest {
    /// Every level without modifiers, in the order in which help and reports list them.
    pub const ALL: &'static [Self] = &[
        Self::None,
        Self::Native,
        Self::Gocryptfs,
        Self::Fscrypt,
        Self::Tde(Tde { cipher: TdeCipher::Aes256, target: TdeTarget::Best }),
        Self::AsIs,
    ];

    /// Whether what is written can be read nowhere in the files.
    pub fn encrypts(self) -> bool {
        match self {
            Self::None | Self::AsIs => false,
            Self::Native | Self::Gocryptfs | Self::Fscrypt => true,
            Self::Tde(tde) => tde.cipher != TdeCipher::Null,
        }
    }

    /// Why no server of `engine` can have its files encrypted like this, if so. What depends on its version and its
    /// plugins, only the server knows.
    pub fn impossible(self, engine: Engine) -> Option<String> {
        let name = engine.display_name();
        match (self, engine) {
            (Self::Native, Engine::Postgres) => Some(format!(
                "{name} as it comes encrypts none of its files itself; what does it for {name}: at-rest={}; under any \
                 server: at-rest={}",
                Self::Tde(Tde::default()),
                Self::Gocryptfs
            )),
            (Self::Native, Engine::MongoDb) => Some(format!(
                "{name} encrypts its files in its Enterprise edition only: at-rest={}",
                Self::Gocryptfs
            )),
            (Self::Native, Engine::FerretDb) => {
                Some(format!("{name} encrypts none of its files itself: at-rest={}", Self::Gocryptfs))
            }
            (Self::Tde(_), Engine::MariaDb | Engine::MySql) => {
                Some(format!("{name} encrypts its files itself: at-rest={}", Self::Native))
            }
            (Self::Tde(_), Engine::MongoDb | Engine::FerretDb) => Some(format!(
                "it knows the files of {} only, not those of {name}: at-rest={}",
                Engine::Postgres.display_name(),
                Self::Gocryptfs
            )),
            (Self::AsIs, _) => {
                Some("a private server's files are as they are told to be: say how".to_owned())
            }
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
    /// Takes each modifier once. Where nothing is encrypted there are no instructions to choose.
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
