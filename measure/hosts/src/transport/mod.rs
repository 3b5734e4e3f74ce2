//! Ways to a host: commands whose stdin and stdout are those of an agent there.

mod bootstrap;
mod exec;
mod kubernetes;
mod ssh;

use std::path::Path;
use std::process::Command;

use ciphertoll_model::{LoadHosts, ServerHost};
use ciphertoll_record::Ledger;

pub use self::bootstrap::Bootstrap;
pub(crate) use self::bootstrap::{Announcement, announcement};
pub use self::exec::ExecTransport;
pub use self::ssh::SshTransport;
use crate::HostError;

/// A way to one host.
pub trait HostTransport: Send {
    /// The host's name in records and messages.
    fn name(&self) -> &str;

    /// The command that starts an agent on the host. Its stdin and stdout are the agent's, perhaps after a
    /// [`Bootstrap`]; its last line on stderr explains a failure. Called again if the host is lost; it may then wait for a
    /// new host, until `is_interrupted`.
    fn command(&mut self, is_interrupted: &dyn Fn() -> bool) -> Result<Command, HostError>;

    /// The node of a cluster that the host is on.
    fn node(&self) -> Option<&str> {
        None
    }
}

/// While hosts are created.
pub struct Waiting<'a> {
    /// Gets a line whenever something changes.
    pub progress: &'a mut dyn FnMut(&str),
    pub is_interrupted: &'a dyn Fn() -> bool,
}

/// What transports need of the coordinator.
#[derive(Clone, Copy)]
pub struct TransportContext<'a> {
    /// This program, which is copied to hosts that lack it.
    pub program: &'a Path,
    pub bootstrap: &'a Bootstrap,
    /// For effects that outlive this process and end with no connection, such as a Job of a cluster.
    pub ledger: &'a Ledger,
}

/// The transports of all hosts, in the order in which the user named them. Hosts of the same name get numbers. Pods are
/// created now.
pub fn transports(
    hosts: &[LoadHosts],
    context: &TransportContext<'_>,
    waiting: &mut Waiting<'_>,
) -> Result<Vec<Box<dyn HostTransport>>, HostError> {
    let mut all: Vec<Box<dyn HostTransport>> = Vec::new();
    for hosts in hosts {
        match hosts {
            LoadHosts::Ssh(names) => {
                for name in names {
                    let label = unused_name(name.as_str(), &all);
                    all.push(Box::new(SshTransport::new(label, name, context)));
                }
            }
            LoadHosts::Exec(prefix) => {
                let label = unused_name(prefix.short_name(), &all);
                all.push(Box::new(ExecTransport::new(label, prefix, context)));
            }
            LoadHosts::Kubernetes(hosts) => {
                for mut pod in kubernetes::create_pods(hosts, context.ledger, waiting)? {
                    pod.set_name(unused_name(pod.name(), &all));
                    all.push(Box::new(pod));
                }
            }
        }
    }
    Ok(all)
}

/// Checks hosts that are not created yet, without creating them.
pub fn check_uncreated(hosts: &[LoadHosts]) -> Result<(), HostError> {
    for hosts in hosts {
        if let LoadHosts::Kubernetes(hosts) = hosts {
            kubernetes::check(hosts)?;
        }
    }
    Ok(())
}

/// The transport of a server's host.
pub fn transport_of_server(host: &ServerHost, context: &TransportContext<'_>) -> Box<dyn HostTransport> {
    match host {
        ServerHost::Ssh(name) => Box::new(SshTransport::new(name.to_string(), name, context)),
        ServerHost::Exec(prefix) => {
            Box::new(ExecTransport::new(prefix.short_name().to_owned(), prefix, context))
        }
    }
}

/// `name`, or with the lowest number that makes it unique.
pub fn unused_name(name: &str, used: &[Box<dyn HostTransport>]) -> String {
    let is_used = |name: &str| used.iter().any(|other| other.name() == name);
    if !is_used(name) {
        return name.to_owned();
    }
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    numbered.into_iter().find(|name| !is_used(name)).unwrap_or_default()
}
