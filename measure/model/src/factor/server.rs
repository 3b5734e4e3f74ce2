//! The server: `[LABEL:]ENGINE[-VERSION][=DIR]` to start one, or `NAME=URL` for an existing one.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Engine, Factor, LevelError, ServerUrl, as_text, match_name};
use crate::labelled;

labelled! {
    /// A Debian release whose programs can be fetched. As a label of a server it selects the release's build:
    /// `debian-13:postgres-17`.
    pub enum DebianRelease {
        Trixie = "debian-13",
        /// The newest packages, which change from day to day.
        Sid = "debian-sid",
    }
}

impl DebianRelease {
    /// Its name in the archive.
    pub const fn suite(self) -> &'static str {
        match self {
            Self::Trixie => "trixie",
            Self::Sid => "sid",
        }
    }

    pub const fn display_name(self) -> &'static str {
        match self {
            Self::Trixie => "Debian 13",
            Self::Sid => "Debian sid",
        }
    }
}

/// Finds the engine that is called `text`.
pub(crate) fn parse_engine(text: &str) -> Result<Engine, LevelError> {
    match_name(Factor::Server.label(), text, &Engine::ALL, Engine::label)
}

/// The server to start, such as `mariadb`, `mariadb-10.11`, `stock:mariadb=/opt/mariadb`; or an existing one, such as
/// `staging=postgres://app@db.example/shop`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServerLevel {
    /// Distinguishes two builds of one engine, and is printed instead of the engine.
    pub label: Option<String>,
    pub engine: Engine,
    /// Prefix of the build's version, in whole components.
    pub version: Option<String>,
    /// Where to search, instead of PATH and the system's directories.
    pub directory: Option<PathBuf>,
    /// The address of an existing server, which has a label, but neither version nor directory.
    pub url: Option<Box<ServerUrl>>,
}

impl ServerLevel {
    /// The newest build of `engine` on this machine.
    pub fn of(engine: Engine) -> Self {
        Self { label: None, engine, version: None, directory: None, url: None }
    }

    /// The server at `url` with the label `name`.
    pub fn at(name: &str, url: ServerUrl) -> Result<Self, LevelError> {
        let (label, engine) = (Some(identifier(name, name)?), url.engine());
        Ok(Self { label, url: Some(Box::new(url)), ..Self::of(engine) })
    }

    /// The Debian release whose build the label selects, if it names one.
    pub fn release(&self) -> Option<DebianRelease> {
        let label = self.label.as_deref().filter(|_| self.url.is_none() && self.directory.is_none())?;
        DebianRelease::ALL.into_iter().find(|release| release.label() == label)
    }

    /// The name in a cell's id: the label, else engine and version. A release has several servers, so its label does not
    /// name one.
    pub fn short_name(&self) -> String {
        match (&self.label, &self.version) {
            (Some(_), _) if self.release().is_some() => self.to_string(),
            (Some(label), _) => label.clone(),
            (None, Some(version)) => format!("{}-{version}", self.engine.label()),
            (None, None) => self.engine.label().to_owned(),
        }
    }

    /// Whether version `found` matches: `10.11` matches 10.11.19, but not 10.1.
    pub fn accepts_version(&self, found: &str) -> bool {
        self.version.as_deref().is_none_or(|wanted| {
            found
                .strip_prefix(wanted)
                .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
        })
    }
}

impl fmt::Display for ServerLevel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let (Some(name), Some(url)) = (&self.label, &self.url) {
            return write!(formatter, "{name}={url}");
        }
        if let Some(label) = &self.label {
            write!(formatter, "{label}:")?;
        }
        formatter.write_str(self.engine.label())?;
        if let Some(version) = &self.version {
            write!(formatter, "-{version}")?;
        }
        if let Some(directory) = &self.directory {
            write!(formatter, "={}", directory.display())?;
        }
        Ok(())
    }
}

impl FromStr for ServerLevel {
    type Err = LevelError;

    fn from_str(text: &str) -> Result<Self, LevelError> {
        if let Some((name, url)) = text.split_once('=')
            && url.contains("://")
        {
            let unusable = |error| LevelError::Url { name: name.to_owned(), error };
            return Self::at(name, url.parse().map_err(unusable)?);
        }
        let (rest, directory) = match text.split_once('=') {
            Some((_, "")) => return Err(out_of_range(text, "a directory after =")),
            Some((rest, directory)) => (rest, Some(PathBuf::from(directory))),
            None => (text, None),
        };
        let (label, rest) = match rest.split_once(':') {
            Some((label, rest)) => (Some(identifier(label, text)?), rest),
            None => (None, rest),
        };
        let (engine, version) = match rest.split_once('-') {
            Some((engine, version)) => (engine, Some(version_number(version, text)?)),
            None => (rest, None),
        };
        let engine = parse_engine(engine)?;
        Ok(Self { label, engine, version, directory, url: None })
    }
}

fn identifier(label: &str, text: &str) -> Result<String, LevelError> {
    let valid =
        !label.is_empty() && label.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
    if valid {
        Ok(label.to_owned())
    } else {
        Err(out_of_range(text, "a label of letters, digits, '-', '_' and '.'"))
    }
}

fn version_number(version: &str, text: &str) -> Result<String, LevelError> {
    let valid =
        version.split('.').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    if valid { Ok(version.to_owned()) } else { Err(out_of_range(text, "a version such as 10.11 after -")) }
}

fn out_of_range(text: &str, expected: &'static str) -> LevelError {
    LevelError::out_of_range(Factor::Server.label(), text, expected)
}

as_text!(ServerLevel);
