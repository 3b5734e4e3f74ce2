//! Names that become arguments of `ssh` and `kubectl`: none may be taken for an option.

use std::fmt;
use std::str::FromStr;

use super::HostsError;

/// A host as `ssh` takes it: a name of its configuration, an address, or `USER@` before either.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(String);

/// A name of Kubernetes: a DNS label.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KubernetesName(String);

/// Longer names fit into no DNS message.
const MAX_HOST_BYTES: usize = 255;
const MAX_LABEL_BYTES: usize = 63;
const MAX_IMAGE_BYTES: usize = 512;

impl HostName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for HostName {
    type Err = HostsError;

    fn from_str(name: &str) -> Result<Self, HostsError> {
        match host_problem(name) {
            Some(reason) => Err(HostsError::Name { name: name.to_owned(), reason }),
            None => Ok(Self(name.to_owned())),
        }
    }
}

fn host_problem(name: &str) -> Option<&'static str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-@:%".contains(c);
    let (user, host) = name.rsplit_once('@').map_or((None, name), |(user, host)| (Some(user), host));
    if host.is_empty() || user.is_some_and(str::is_empty) {
        return Some("it is empty");
    }
    if name.len() > MAX_HOST_BYTES {
        return Some("it is too long");
    }
    if host.starts_with('-') || name.starts_with('-') {
        return Some("it begins with \"-\", so that ssh would take it for an option");
    }
    if !name.chars().all(is_allowed) {
        return Some("use letters, digits and . _ - @ : % (ports and all else: in ~/.ssh/config)");
    }
    None
}

impl fmt::Display for HostName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl KubernetesName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for KubernetesName {
    type Err = &'static str;

    fn from_str(name: &str) -> Result<Self, &'static str> {
        let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        let is_label = !name.is_empty()
            && name.len() <= MAX_LABEL_BYTES
            && name.chars().all(is_allowed)
            && !name.starts_with('-')
            && !name.ends_with('-');
        if is_label {
            Ok(Self(name.to_owned()))
        } else {
            Err(
                "a namespace has 1 to 63 lower-case letters, digits and \"-\", which is neither first nor last",
            )
        }
    }
}

impl fmt::Display for KubernetesName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// Why `context` is no context of a kubeconfig. Managed clusters have names with `/`, `:` and `@`.
pub(super) fn context_problem(context: &str) -> Option<&'static str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-@:/".contains(c);
    let is_usable = !context.is_empty()
        && context.len() <= MAX_HOST_BYTES
        && context.chars().all(is_allowed)
        && !context.starts_with(['-', '/']);
    (!is_usable).then_some("a context has letters, digits and . _ - @ : /, and does not begin with \"-\"")
}

/// Why `image` is no reference of a container image.
pub(super) fn image_problem(image: &str) -> Option<&'static str> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-@:/".contains(c);
    let is_usable = !image.is_empty()
        && image.len() <= MAX_IMAGE_BYTES
        && image.chars().all(is_allowed)
        && image.starts_with(|c: char| c.is_ascii_alphanumeric());
    (!is_usable).then_some("an image is written as REGISTRY/NAME:TAG or REGISTRY/NAME@sha256:DIGEST")
}
