//! Factors and their levels. All share one grammar: `LEVEL = NAME ('+' KEY ['=' VALUE])*`. Names are closed sets and
//! matched whole; parser and printer are inverse (property-tested).

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
pub use scale::{RelativeScale, Scale, ScaleBase, ScaleLevel};
pub use server::ServerLevel;
pub(crate) use server::parse_engine;
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

/// A factor. Its label is the command-line flag, the TOML key and the JSON field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Factor {
    /// The database server and build.
    Server,
    /// How bytes get from client to server.
    Path,
    /// The authentication method.
    Auth,
    /// Who builds the client's TLS context, and when.
    Ctx,
    /// The client code.
    Driver,
    /// The network between client and server.
    Link,
    /// What encrypts the server's files.
    AtRest,
    /// What the clients do.
    Workload,
    /// The number of clients.
    Clients,
    /// The amount of data.
    Scale,
    /// Closed or open loop.
    Pace,
}

impl Factor {
    /// Every factor, in the order of a cell's id.
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

/// A level that does not parse: a usage error, explained in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LevelError {
    #[error("unknown {factor} \"{text}\"; {}", hint(.nearest.as_deref(), .known))]
    UnknownName {
        /// What the name was to be: a factor's label, or a part of a level.
        factor: &'static str,
        text: String,
        /// The closest known name, if any is close.
        nearest: Option<String>,
        known: Vec<String>,
    },
    /// The name is known, a modifier is not.
    #[error("{factor} \"{name}\" takes no modifier \"+{modifier}\"")]
    UnknownModifier {
        /// The factor's label.
        factor: &'static str,
        /// The level's name.
        name: String,
        modifier: String,
    },
    /// A server's URL does not parse.
    #[error("the URL of {name} cannot be used: {error}")]
    Url {
        /// The server's name.
        name: String,
        error: UrlError,
    },
    /// The value is out of range.
    #[error("{factor} \"{text}\" is out of range: {expected}")]
    OutOfRange {
        /// The factor's label.
        factor: &'static str,
        text: String,
        /// The accepted range.
        expected: &'static str,
    },
}

fn hint(nearest: Option<&str>, known: &[String]) -> String {
    nearest.map_or_else(
        || format!("it is one of: {}", known.join(", ")),
        |name| format!("did you mean \"{name}\"?"),
    )
}

/// Finds the element of `all` with the label `text`. The error calls it a `what` and suggests the nearest label.
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

/// Splits a level into its name and its modifiers.
pub(crate) fn split_modifiers(text: &str) -> (&str, std::str::Split<'_, char>) {
    let mut parts = text.split('+');
    (parts.next().unwrap_or_default(), parts)
}

pub(crate) fn unknown_modifier(what: &'static str, name: &str, modifier: &str) -> LevelError {
    LevelError::UnknownModifier { factor: what, name: name.to_owned(), modifier: modifier.to_owned() }
}

/// The one of `names` that `text` most likely stands for, if any is close: a name that begins with `text`, else the
/// one with the fewest edits. Of equally close names the first is chosen, so callers put the strongest protection
/// first.
pub fn nearest(text: &str, names: impl Iterator<Item = String>) -> Option<String> {
    const CLOSE_ENOUGH: f64 = 0.7;
    let edits = |name: &str| if name.starts_with(text) { 0 } else { strsim::osa_distance(text, name) };
    names.filter(|name| strsim::jaro_winkler(text, name) >= CLOSE_ENOUGH).min_by_key(|name| edits(name))
}

/// Sorts the strongest protection first, so that no suggestion leads to a weaker level than necessary. Levels without
/// protection come last. Larger numbers are newer versions, longer keys or more iterations.
fn strongest_first(mut names: Vec<String>) -> impl Iterator<Item = String> {
    const UNPROTECTED: [&str; 5] = ["plain", "unix", "none", "openvpn-none", "trust"];
    let numbers = |name: &str| -> Vec<u32> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    names.sort_by_cached_key(|name| (UNPROTECTED.contains(&name.as_str()), Reverse(numbers(name))));
    names.into_iter()
}

/// Accepts numbers like quoted text, as users write `clients = [1, 8]` and `budget = 90`.
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

/// Implements `Serialize`, `Deserialize` and `JsonSchema` through `Display` and `FromStr`.
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

/// Implements `Serialize`, `Deserialize` and `JsonSchema` as an integer; quoted integers are accepted, too.
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
