//! Ways to a host: commands whose stdin and stdout are those of an agent there.

mod bootstrap;
mod exec;
mod host_transport;
mod kubernetes;
mod ssh;

use ciphertoll_model::{LoadHosts, ServerHost};

pub use self::bootstrap::Bootstrap;
pub(crate) use self::bootstrap::{Announcement, announcement};
pub use self::exec::ExecTransport;
pub use self::host_transport::{HostTransport, TransportContext, Waiting};
pub use self::ssh::SshTransport;
use crate::HostError;

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
