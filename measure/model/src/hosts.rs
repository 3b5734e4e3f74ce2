//! Hosts that generate load, and the host whose CPU is the server's: how they are reached, as written on the command
//! line.

mod error;
mod names;
mod words;

use std::fmt;
use std::str::FromStr;

use crate::factor::{as_text, nearest};

pub use self::error::HostsError;
use self::error::{EXEC, KUBERNETES, LOAD_KINDS, SERVER_KINDS, SSH};
pub use self::names::{HostName, KubernetesName};
use self::words::{join, split};

/// How one or more load hosts are reached: `ssh:HOST[,HOST…]`, `exec:COMMAND` or `k8s:[CONTEXT/]NAMESPACE[+…]`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LoadHosts {
    /// By the user's own `ssh` and its configuration.
    Ssh(Vec<HostName>),
    /// By a command that connects its stdin and stdout with those of a program on the host.
    Exec(ExecPrefix),
    /// Pods of a Kubernetes cluster, by the user's own `kubectl`.
    Kubernetes(KubernetesHosts),
}

/// How the host of a server at a URL is reached: `ssh:HOST` or `exec:COMMAND`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerHost {
    Ssh(HostName),
    Exec(ExecPrefix),
}

/// A command that is put before a program, such as `docker exec -i load1`. It is started without a shell. `env` is the
/// local machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecPrefix(Vec<String>);

/// The pods of an Indexed Job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesHosts {
    /// The context of the user's kubeconfig; its current one if absent.
    pub context: Option<String>,
    pub namespace: KubernetesName,
    pub pods: u16,
    /// The image that contains ciphertoll; the release's if absent.
    pub image: Option<String>,
}

/// Pods without `+pods=`.
const DEFAULT_PODS: u16 = 4;
pub const MAX_PODS: u16 = 1_000;

/// Splits `KIND:REST` and checks the kind.
fn split_kind<'a>(
    text: &'a str,
    known: &'static [&'static str],
) -> Result<(&'static str, &'a str), HostsError> {
    let no_kind = || HostsError::NoKind { text: text.to_owned(), known };
    let (kind, rest) = text.split_once(':').ok_or_else(no_kind)?;
    match known.iter().find(|&&name| name == kind) {
        Some(kind) => Ok((kind, rest)),
        None => Err(HostsError::UnknownKind {
            kind: kind.to_owned(),
            nearest: nearest(kind, known.iter().map(|&name| name.to_owned())),
            known,
        }),
    }
}

/// A host that is listed twice would generate load twice. A command may be repeated: it can start two processes.
pub(crate) fn check_twice(all: &[LoadHosts]) -> Result<(), HostsError> {
    let names = all.iter().flat_map(|hosts| match hosts {
        LoadHosts::Ssh(names) => names.as_slice(),
        LoadHosts::Exec(_) | LoadHosts::Kubernetes(_) => &[],
    });
    let names: Vec<&HostName> = names.collect();
    match names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        Some((_, name)) => Err(HostsError::Twice { name: name.to_string() }),
        None => Ok(()),
    }
}

impl LoadHosts {
    /// How many hosts these are.
    pub fn count(&self) -> usize {
        match self {
            Self::Ssh(names) => names.len(),
            Self::Exec(_) => 1,
            Self::Kubernetes(hosts) => usize::from(hosts.pods),
        }
    }

    /// Whether a private server of the coordinator's machine, which listens on loopback, may be reachable from these
    /// hosts: a command may as well start a process on this machine.
    pub fn may_share_loopback(&self) -> bool {
        matches!(self, Self::Exec(_))
    }
}

impl ExecPrefix {
    pub fn new(words: Vec<String>) -> Option<Self> {
        let is_usable = words.first().is_some_and(|program| !program.is_empty())
            && words.iter().all(|word| !word.contains(char::is_control));
        is_usable.then_some(Self(words))
    }

    /// The program and its arguments.
    pub fn words(&self) -> &[String] {
        &self.0
    }

    /// A short name: the last word without options of the program, such as the container's name.
    pub fn short_name(&self) -> &str {
        let named = self.0.iter().skip(1).rfind(|word| !word.starts_with('-') && !word.contains('='));
        named.or(self.0.first()).map_or("", String::as_str)
    }
}

impl fmt::Display for ExecPrefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&join(&self.0))
    }
}

impl FromStr for ExecPrefix {
    type Err = HostsError;

    fn from_str(text: &str) -> Result<Self, HostsError> {
        let failed = |reason| HostsError::Command { text: text.to_owned(), reason };
        Self::new(split(text).map_err(failed)?).ok_or_else(|| failed("it has no command"))
    }
}

impl fmt::Display for LoadHosts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(names) => {
                let names: Vec<&str> = names.iter().map(HostName::as_str).collect();
                write!(formatter, "{SSH}:{}", names.join(","))
            }
            Self::Exec(prefix) => write!(formatter, "{EXEC}:{prefix}"),
            Self::Kubernetes(hosts) => write!(formatter, "{KUBERNETES}:{hosts}"),
        }
    }
}

impl FromStr for LoadHosts {
    type Err = HostsError;

    fn from_str(text: &str) -> Result<Self, HostsError> {
        let (kind, rest) = split_kind(text, LOAD_KINDS)?;
        Ok(match kind {
            SSH => {
                let names: Vec<HostName> = rest.split(',').map(str::parse).collect::<Result<_, _>>()?;
                let hosts = Self::Ssh(names);
                check_twice(std::slice::from_ref(&hosts))?;
                hosts
            }
            EXEC => Self::Exec(rest.parse()?),
            _ => Self::Kubernetes(rest.parse()?),
        })
    }
}

impl fmt::Display for ServerHost {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh(name) => write!(formatter, "{SSH}:{name}"),
            Self::Exec(prefix) => write!(formatter, "{EXEC}:{prefix}"),
        }
    }
}

impl FromStr for ServerHost {
    type Err = HostsError;

    fn from_str(text: &str) -> Result<Self, HostsError> {
        let (kind, rest) = split_kind(text, SERVER_KINDS)?;
        Ok(if kind == SSH { Self::Ssh(rest.parse()?) } else { Self::Exec(rest.parse()?) })
    }
}

impl fmt::Display for KubernetesHosts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { context, namespace, pods, image } = self;
        if let Some(context) = context {
            write!(formatter, "{context}/")?;
        }
        write!(formatter, "{namespace}")?;
        if *pods != DEFAULT_PODS {
            write!(formatter, "+pods={pods}")?;
        }
        match image {
            Some(image) => write!(formatter, "+image={image}"),
            None => Ok(()),
        }
    }
}

impl FromStr for KubernetesHosts {
    type Err = HostsError;

    fn from_str(text: &str) -> Result<Self, HostsError> {
        let failed = |reason: String| HostsError::Kubernetes { text: text.to_owned(), reason };
        let (place, modifiers) = match text.split_once('+') {
            Some((place, modifiers)) => (place, Some(modifiers)),
            None => (text, None),
        };
        let (context, namespace) = match place.rsplit_once('/') {
            Some((context, namespace)) => (Some(context), namespace),
            None => (None, place),
        };
        if let Some(reason) = context.and_then(names::context_problem) {
            return Err(failed(reason.to_owned()));
        }
        let namespace = namespace.parse().map_err(|reason: &str| failed(reason.to_owned()))?;
        let context = context.map(ToOwned::to_owned);
        let mut hosts = Self { context, namespace, pods: DEFAULT_PODS, image: None };
        for modifier in modifiers.into_iter().flat_map(|modifiers| modifiers.split('+')) {
            hosts.modify(modifier).map_err(failed)?;
        }
        Ok(hosts)
    }
}

impl KubernetesHosts {
    fn modify(&mut self, modifier: &str) -> Result<(), String> {
        const KEYS: [&str; 2] = ["pods", "image"];
        match modifier.split_once('=') {
            Some(("pods", count)) => {
                let pods = count.parse().ok().filter(|pods| (1..=MAX_PODS).contains(pods));
                self.pods = pods.ok_or_else(|| format!("pods must be 1 to {MAX_PODS}, not {count}"))?;
            }
            Some(("image", image)) => {
                if let Some(reason) = names::image_problem(image) {
                    return Err(reason.to_owned());
                }
                self.image = Some(image.to_owned());
            }
            _ => {
                let key = modifier.split('=').next().unwrap_or_default();
                let hint = match nearest(key, KEYS.into_iter().map(ToOwned::to_owned)) {
                    Some(nearest) => format!("did you mean +{nearest}=?"),
                    None => "the modifiers are +pods= and +image=".to_owned(),
                };
                return Err(format!("unknown modifier +{modifier}; {hint}"));
            }
        }
        Ok(())
    }
}

as_text!(LoadHosts, ServerHost);

#[cfg(test)]
mod tests;
