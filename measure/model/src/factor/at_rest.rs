//! What encrypts a server's files.

use std::fmt;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, as_text, match_name, parse_modified};
use crate::labelled;

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

labelled! {
    /// The cipher for pages.
    #[derive(Default)]
    pub enum TdeCipher {
        /// AES-256-XTS.
        #[default]
        Aes256 = "aes256",
        /// AES-128-XTS: only in records of earlier builds.
        Aes128 = "aes128",
        /// No encryption: the library is loaded, and files are plaintext.
        Null = "null",
    }
}

labelled! {
    /// The processor instructions that the cipher uses.
    #[derive(Default)]
    pub enum TdeTarget {
        /// The best available.
        #[default]
        Best = "best",
        /// None specific to AES.
        Portable = "portable",
        /// AES-NI: one block at a time.
        AesNi = "aesni",
        /// VAES: several blocks at a time.
        Vaes = "vaes",
    }
}

/// Why a level with AES-128 is not measured.
pub const NO_AES_128: &str = "pages are encrypted with AES-256-XTS only: at-rest=tde";

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
            (Self::Tde(Tde { cipher: TdeCipher::Aes128, .. }), Engine::Postgres) => {
                Some(NO_AES_128.to_owned())
            }
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
    fn with(self, modifier: &str) -> Option<Self> {
        let usual = Self::default();
        let changed = match modifier.split_once('=')? {
            ("cipher", value) if self.cipher == usual.cipher => {
                let cipher = TdeCipher::ALL.into_iter().find(|cipher| cipher.label() == value)?;
                Self { cipher, ..self }
            }
            ("target", value) if self.target == usual.target => {
                let target = TdeTarget::ALL.into_iter().find(|target| target.label() == value)?;
                Self { target, ..self }
            }
            _ => return None,
        };
        let chooses_for_nothing = changed.cipher == TdeCipher::Null && changed.target != usual.target;
        (changed != self && !chooses_for_nothing).then_some(changed)
    }
}

impl fmt::Display for AtRest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())?;
        let Self::Tde(Tde { cipher, target }) = self else { return Ok(()) };
        let usual = Tde::default();
        if *cipher != usual.cipher {
            write!(formatter, "+cipher={}", cipher.label())?;
        }
        if *target != usual.target {
            write!(formatter, "+target={}", target.label())?;
        }
        Ok(())
    }
}

impl FromStr for AtRest {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        let level = |name: &str| match_name(Factor::AtRest.label(), name, Self::ALL, Self::name);
        parse_modified(Factor::AtRest, text, level, |level, modifier| {
            Ok(match level {
                Self::Tde(tde) => tde.with(modifier).map(Self::Tde),
                Self::None | Self::Native | Self::Gocryptfs | Self::Fscrypt | Self::AsIs => None,
            })
        })
    }
}

as_text!(AtRest);
