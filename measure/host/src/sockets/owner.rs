//! Names of a process: its program, and the container or the service that it runs in.

use serde::{Deserialize, Serialize};

/// Who has a socket.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SocketOwner {
    /// As the kernel names the process, which may choose it.
    pub name: String,
    /// The beginning of the ID of its container; of LXC, the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its systemd service, if it is in no container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// More than the kernel keeps of any process that can have a socket.
const MOST_NAME_CHARS: usize = 16;
/// Longer names of services and LXC containers are not read.
const MOST_PLACE_BYTES: usize = 100;
/// What container programs print of an ID.
const SHORT_ID: usize = 12;
const ID: usize = 64;
/// What systemd's scopes of containers have in front of the ID.
const SCOPES: [&str; 7] =
    ["docker-", "cri-containerd-", "containerd-", "crio-", "libpod-", "nerdctl-", "podman-"];
/// Control groups of LXC: the container's name follows.
const LXC: [&str; 2] = ["lxc.payload.", "lxc.payload:"];
/// Control groups of LXC whose child is the container's name.
const LXC_PARENTS: [&str; 2] = ["lxc", "lxc.payload"];

impl SocketOwner {
    /// Of a process with this `/proc/PID/comm` and `/proc/PID/cgroup`.
    pub(crate) fn new(comm: &[u8], cgroup: &str) -> Self {
        let paths = || cgroup.lines().filter_map(|line| line.splitn(3, ':').nth(2));
        let container = paths().find_map(container);
        let unit = if container.is_none() { paths().find_map(unit) } else { None };
        Self { name: name(comm), container, unit }
    }
}

fn name(comm: &[u8]) -> String {
    let comm = String::from_utf8_lossy(comm.strip_suffix(b"\n").unwrap_or(comm));
    let is_printable = |c: char| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric();
    let printable = |c: char| if is_printable(c) { c } else { '?' };
    let name: String = comm.chars().map(printable).take(MOST_NAME_CHARS).collect();
    if name.is_empty() { "?".to_owned() } else { name }
}

/// The innermost container of a control group.
fn container(path: &str) -> Option<String> {
    let mut components = path.rsplit('/').peekable();
    while let Some(component) = components.next() {
        let parent = components.peek().copied().unwrap_or_default();
        if let Some(container) = id(component).or_else(|| lxc(parent, component)) {
            return Some(container);
        }
    }
    None
}

/// `docker-3f2a….scope`, `3f2a…`, `kubepods-….slice:cri-containerd:3f2a…`.
fn id(component: &str) -> Option<String> {
    let component = component.strip_suffix(".scope").unwrap_or(component);
    let component = component.rsplit(':').next().unwrap_or(component);
    let id = SCOPES.iter().find_map(|scope| component.strip_prefix(scope)).unwrap_or(component);
    let is_id = id.len() == ID && id.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    is_id.then(|| id[..SHORT_ID].to_owned())
}

/// `lxc.payload.web`, `lxc/web`.
fn lxc(parent: &str, component: &str) -> Option<String> {
    let payload = LXC.iter().find_map(|prefix| component.strip_prefix(prefix));
    let child = LXC_PARENTS.contains(&parent).then_some(component);
    payload.or(child).filter(|name| is_plain(name)).map(str::to_owned)
}

/// The innermost service of a control group.
fn unit(path: &str) -> Option<String> {
    let unit = path.rsplit('/').find(|component| component.ends_with(".service") && is_plain(component));
    unit.map(str::to_owned)
}

/// Whether it has only characters that names of units may have.
fn is_plain(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b":-_.\\@".contains(&byte);
    !name.is_empty() && name.len() <= MOST_PLACE_BYTES && name.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests;
