//! Factors and their levels. One grammar for all: `LEVEL = NAME ('+' KEY ['=' VALUE])*`; names
//! are closed sets matched whole, and parser and printer are inverse (property-tested).

mod at_rest;
mod auth;
mod chain_length;
mod compressor;
mod driver;
mod link;
mod pace;
mod path;
mod plain;
mod proxy;
mod scale;
mod server;
mod tunnel;
mod url;
mod workload;

pub use at_rest::{AtRest, Tde, TdeCipher, TdeTarget};
pub use auth::{Auth, ChannelBinding, Iterations};
pub use chain_length::ChainLength;
pub use ciphertoll_vocabulary::{
    Engine, Group, QueryLanguage, ReadPreference, ServerKey, Suite, TlsLibrary, TlsVersion, Verification,
};
pub use compressor::Compressor;
pub use driver::{Driver, DriverName};
pub use link::{Link, LinkShape};
pub use pace::{Pace, Percent};
pub use path::{ClientCertificate, Path, Resumption, TlsPath, TlsStart};
pub use plain::{Clients, Ctx};
pub use proxy::{PoolMode, Proxy, ProxyFront, ProxyProgram};
pub use scale::{RelativeScale, Scale, ScaleLevel, Whole};
pub(crate) use server::parse_engine;
pub use server::ServerLevel;
pub use tunnel::{OpenVpnCipher, SshCipher, SshSession, SshTunnel, Tunnel};
pub use url::documents::{DocumentsLogin, DocumentsUrl, LoginMechanism, SetConnection};
pub use url::{ServerUrl, TlsDemand, UrlError, UrlFileContent, UrlFileOption, UrlHost, UrlPlace, UrlTls};
pub use workload::{Bytes, ConnectionUse, Dataset, Workload, YcsbMix};

use std::cmp::Reverse;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// What can be varied. The label is the command line's flag, the TOML key and the JSON field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    /// Which database server, which build.
    Server,
    /// How the bytes get there.
    Path,
    /// How the client proves who it is.
    Auth,
    /// Who builds the client's TLS context, and when.
    Ctx,
    /// Whose client code.
    Driver,
    /// Which network lies between.
    Link,
    /// What encrypts the files.
    AtRest,
    /// What the clients do.
    Workload,
    /// How many clients.
    Clients,
    /// How much data.
    Scale,
    /// Whether clients wait for answers or follow a schedule.
    Pace,
}

impl Factor {
    /// Every factor, in the order in which a cell's id names them.
    pub const ALL: [Self; 11] = [
        Self::Server,
        Self::Path,
        Self::Auth,
        Self::Ctx,
        Self::Driver,
        Self::Link,
        Self::AtRest,
        Self::Workload,
        Self::Clients,
        Self::Scale,
        Self::Pace,
    ];

    /// The flag's name without its dashes.
    pub fn label(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Path => "path",
            Self::Auth => "auth",
            Self::Ctx => "ctx",
            Self::Driver => "driver",
            Self::Link => "link",
            Self::AtRest => "at-rest",
            Self::Workload => "workload",
            Self::Clients => "clients",
            Self::Scale => "scale",
            Self::Pace => "pace",
        }
    }
}

/// A level that could not be understood. The user's fault; one line says what and what is nearest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    /// The name is not one of the factor's.
    #[error("unknown {factor} \"{text}\"; {}", hint(.nearest.as_deref(), .known))]
    UnknownName {
        /// The factor's label.
        factor: &'static str,
        /// What was written.
        text: String,
        /// The closest known name, if any is close.
        nearest: Option<String>,
        /// Every known name.
        known: Vec<String>,
    },
    /// The name is known, a modifier is not.
    #[error("{factor} \"{name}\" takes no modifier \"+{modifier}\"")]
    UnknownModifier {
        /// The factor's label.
        factor: &'static str,
        /// The level's name.
        name: String,
        /// The modifier as written.
        modifier: String,
    },
    /// Where a server is cannot be understood.
    #[error("the URL of {name} cannot be used: {error}")]
    Url {
        /// The server's name.
        name: String,
        /// Why.
        error: UrlError,
    },
    /// The value lies outside what the factor takes.
    #[error("{factor} \"{text}\" is out of range: {expected}")]
    OutOfRange {
        /// The factor's label.
        factor: &'static str,
        /// What was written.
        text: String,
        /// What is taken.
        expected: &'static str,
    },
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    nearest.map_or_else(
        || format!("it is one of: {}", known.join(", ")),
        |name| format!("did you mean \"{name}\"?"),
    )
}

/// Finds the one of `all` that is called `text`. The error calls it a `what` and suggests the nearest name.
pub(crate) fn match_name<T: Copy, L: Into<String>>(
    what: &'static str,
    text: &str,
    all: &[T],
    label: impl Fn(T) -> L,
) -> Result<T, LevelError> {
    let label = |level| -> String { label(level).into() };
    if let Some(found) = all.iter().find(|&&level| label(level) == text) {
        return Ok(*found);
    }
    if let Some((name, modifier)) = text.split_once('+')
        && all.iter().any(|&level| label(level) == name)
    {
        return Err(unknown_modifier(what, name, modifier));
    }
    let known: Vec<String> = all.iter().map(|&level| label(level)).collect();
    Err(LevelError::UnknownName {
        factor: what,
        text: text.to_owned(),
        nearest: nearest(text, strongest_first(known.clone())),
        known,
    })
}

/// A level's name and its modifiers.
pub(crate) fn split_modifiers(text: &str) -> (&str, std::str::Split<'_, char>) {
    let mut parts = text.split('+');
    (parts.next().unwrap_or_default(), parts)
}

pub(crate) fn unknown_modifier(what: &'static str, name: &str, modifier: &str) -> LevelError {
    LevelError::UnknownModifier {
        factor: what,
        name: name.to_owned(),
        modifier: modifier.to_owned(),
    }
}

/// The one of `names` that `text` was most likely meant to be, if any is close: what `text` is the beginning of, else what
/// takes the fewest edits. Of several that are equally close, the first: callers put what protects most first.
pub fn nearest(text: &str, names: impl Iterator<Item = String>) -> Option<String> {
    const CLOSE_ENOUGH: f64 = 0.7;
    let edits = |name: &str| if name.starts_with(text) { 0 } else { strsim::osa_distance(text, name) };
    names.filter(|name| strsim::jaro_winkler(text, name) >= CLOSE_ENOUGH).min_by_key(|name| edits(name))
}

/// Puts what protects most first, so that a suggestion never leads to a weaker level where a stronger one is as close. Levels
/// without protection come last. Of the others, larger numbers are newer versions, longer keys or more iterations.
fn strongest_first(mut names: Vec<String>) -> impl Iterator<Item = String> {
    const UNPROTECTED: [&str; 5] = ["plain", "unix", "none", "openvpn-none", "trust"];
    let numbers = |name: &str| -> Vec<u32> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    names.sort_by_cached_key(|name| (UNPROTECTED.contains(&name.as_str()), Reverse(numbers(name))));
    names.into_iter()
}

/// Reads text, or a number as if it were quoted: a person writes `clients = [1, 8]` and `budget = 90`.
pub(crate) fn deserialize_text<'de, T, D>(deserializer: D) -> Result<T, D::Error>
where
    T: FromStr<Err: fmt::Display>,
    D: Deserializer<'de>,
{
    deserializer.deserialize_any(TextVisitor(PhantomData))
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: FromStr<Err: fmt::Display>> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("text or a number")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_f64<E: de::Error>(self, number: f64) -> Result<T, E> {
        self.visit_str(&number.to_string())
    }
}

/// Implements `Serialize`, `Deserialize` and `JsonSchema` as the text that `Display` prints and
/// `FromStr` reads, so that a level looks the same everywhere.
macro_rules! as_text {
    ($($level:ty),+) => {$(
        impl serde::Serialize for $level {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> serde::Deserialize<'de> for $level {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::factor::deserialize_text(deserializer)
            }
        }

        impl schemars::JsonSchema for $level {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($level).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string" })
            }
        }
    )+};
}
pub(crate) use as_text;

/// Implements `Serialize`, `Deserialize` and `JsonSchema` as a whole number; one in quotes is read, too.
macro_rules! as_number {
    ($($level:ident : $number:path),+) => {$(
        impl serde::Serialize for $level {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_u64(u64::from($number(*self)))
            }
        }

        impl<'de> serde::Deserialize<'de> for $level {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                $crate::factor::deserialize_text(deserializer)
            }
        }

        impl schemars::JsonSchema for $level {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($level).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "integer", "minimum": 1 })
            }
        }
    )+};
}
pub(crate) use as_number;
