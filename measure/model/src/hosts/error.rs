//! Errors of load hosts, and the kinds that they name.

/// The text names no hosts.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HostsError {
    #[error("\"{text}\" names no load host; write {}", usage(.known))]
    NoKind { text: String, known: &'static [&'static str] },
    #[error("unknown kind of host \"{kind}:\"; {}", hint(.nearest.as_deref(), .known))]
    UnknownKind { kind: String, nearest: Option<String>, known: &'static [&'static str] },
    #[error("host name \"{name}\": {reason}")]
    Name { name: String, reason: &'static str },
    #[error("host \"{name}\" is listed twice")]
    Twice { name: String },
    #[error("exec:{text}: {reason}")]
    Command { text: String, reason: &'static str },
    #[error("k8s:{text}: {reason}")]
    Kubernetes { text: String, reason: String },
}

pub(super) const SSH: &str = "ssh";
pub(super) const EXEC: &str = "exec";
pub(super) const KUBERNETES: &str = "k8s";
pub(super) const LOAD_KINDS: &[&str] = &[SSH, EXEC, KUBERNETES];
pub(super) const SERVER_KINDS: &[&str] = &[SSH, EXEC];

fn usage(kinds: &[&str]) -> String {
    let example = |kind: &&str| match *kind {
        SSH if kinds.len() == LOAD_KINDS.len() => "ssh:HOST[,HOST…]",
        SSH => "ssh:HOST",
        EXEC => "exec:COMMAND",
        _ => "k8s:[CONTEXT/]NAMESPACE",
    };
    kinds.iter().map(example).collect::<Vec<_>>().join(" or ")
}

fn hint(nearest: Option<&str>, known: &[&str]) -> String {
    nearest.map_or_else(|| format!("write {}", usage(known)), |name| format!("did you mean \"{name}:\"?"))
}
