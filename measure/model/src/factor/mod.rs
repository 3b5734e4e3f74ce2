//! Factors and their levels. All share one grammar: `LEVEL = NAME ('+' KEY ['=' VALUE])*`. Names are closed sets and
//! matched whole; parser and printer are inverse (property-tested).

mod at_rest;
mod auth;
mod bounded;
mod compressor;
mod driver;
mod link;
mod pace;
mod path;
mod plain;
mod proxies;
mod proxy;
mod proxy_program;
mod scale;
mod server;
mod tls_path;
mod tunnel;
mod url;
mod workload;

pub use at_rest::{AtRest, NO_AES_128, Tde, TdeCipher, TdeTarget};
pub use auth::{Auth, ChannelBinding, Iterations};
pub use ciphertoll_vocabulary::{
    Engine, Group, QueryLanguage, ReadPreference, ServerKey, Suite, TlsLibrary, TlsParameters, TlsVersion,
    Verification,
};
pub use compressor::Compressor;
pub use driver::{Driver, DriverName};
pub use link::{Link, LinkShape};
pub use pace::{Pace, Percent};
pub use path::Path;
pub use plain::{Clients, Ctx};
pub use proxy::{Proxy, ProxyFront, ProxyProgram};
pub use proxy_program::{
    PoolMode, ProxyConfiguration, ProxyDefinition, ProxyListen, ProxyProtocol, ProxySite, ProxySource,
    SocketAuth,
};
pub use scale::{RelativeScale, Scale, ScaleBase, ScaleLevel};
pub(crate) use server::parse_engine;
pub use server::{DebianRelease, ServerLevel};
pub use tls_path::{ChainLength, ClientCertificate, Resumption, TlsPath, TlsStart};
pub use tunnel::{OpenVpnCipher, SshCipher, SshSession, SshTunnel, Tunnel};
pub use url::documents::{DocumentsLogin, DocumentsUrl, LoginMechanism, SetConnection};
pub use url::{ServerUrl, TlsDemand, UrlError, UrlFileContent, UrlFileOption, UrlHost, UrlPlace, UrlTls};
pub use workload::{Bytes, ConnectionUse, Dataset, FindAny, Queries, Workload, YcsbMix};

use std::cmp::Reverse;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use self::bounded::{as_number, bounded};
use crate::labelled;

labelled! {
    /// A factor. Its label is the command-line flag, the TOML key and the JSON field. The order is that of a cell's id.
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Factor {
        Server = "server",
        Path = "path",
        Auth = "auth",
        Ctx = "ctx",
        Driver = "driver",
        Link = "link",
        AtRest = "at-rest",
        Workload = "workload",
        Clients = "clients",
        Scale = "scale",
        Pace = "pace",
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
    UnknownModifier { factor: &'static str, name: String, modifier: String },
    #[error("the URL of {name} cannot be used: {error}")]
    Url {
        /// The server's name.
        name: String,
        error: UrlError,
    },
    #[error("{factor} \"{text}\" is out of range: {expected}")]
    OutOfRange { factor: &'static str, text: String, expected: &'static str },
}

impl LevelError {
    pub(crate) fn out_of_range(factor: &'static str, text: &str, expected: &'static str) -> Self {
        Self::OutOfRange { factor, text: text.to_owned(), expected }
    }
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

/// Parses `NAME+MODIFIER+…`: `level` parses the name, `modified` applies a modifier if it exists.
pub(crate) fn parse_modified<T>(
    factor: Factor,
    text: &str,
    level: impl FnOnce(&str) -> Result<T, LevelError>,
    modified: impl Fn(T, &str) -> Result<Option<T>, LevelError>,
) -> Result<T, LevelError> {
    let mut parts = text.split('+');
    let name = parts.next().unwrap_or_default();
    parts.try_fold(level(name)?, |level, modifier| {
        modified(level, modifier)?.ok_or_else(|| unknown_modifier(factor.label(), name, modifier))
    })
}

fn unknown_modifier(factor: &'static str, name: &str, modifier: &str) -> LevelError {
    LevelError::UnknownModifier { factor, name: name.to_owned(), modifier: modifier.to_owned() }
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

/// Prints and parses a type of `labelled` as its label.
macro_rules! as_label {
    ($level:ident of $factor:expr) => {
        impl std::fmt::Display for $level {
            fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                formatter.write_str(self.label())
            }
        }

        impl std::str::FromStr for $level {
            type Err = $crate::LevelError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                $crate::factor::match_name($factor, text, &Self::ALL, Self::label)
            }
        }

        $crate::factor::as_text!($level);
    };
}
pub(crate) use as_label;
