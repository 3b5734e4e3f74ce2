//! Hosts that the user's own `ssh` reaches, with its configuration: keys, jump hosts, user names.

use std::process::Command;

use ciphertoll_model::HostName;

use super::bootstrap::Bootstrap;
use super::host_transport::{HostTransport, TransportContext};
use crate::HostError;

/// No prompt (there is nobody to answer it), no forwarding (nothing is to listen), no terminal. A connection that goes
/// silent is noticed within half a minute.
const OPTIONS: [&str; 15] = [
    "-T",
    "-a",
    "-x",
    "-o",
    "BatchMode=yes",
    "-o",
    "ClearAllForwardings=yes",
    "-o",
    "ConnectTimeout=20",
    "-o",
    "ServerAliveInterval=10",
    "-o",
    "ServerAliveCountMax=3",
    "-o",
    "LogLevel=ERROR",
];

pub struct SshTransport {
    name: String,
    host: HostName,
    bootstrap: Bootstrap,
}

impl SshTransport {
    pub fn new(name: String, host: &HostName, context: &TransportContext<'_>) -> Self {
        Self { name, host: host.clone(), bootstrap: context.bootstrap.clone() }
    }
}

impl HostTransport for SshTransport {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&mut self, _: &dyn Fn() -> bool) -> Result<Command, HostError> {
        let mut command = Command::new("ssh");
        // The user's login shell reads this line, and may be any shell.
        let remote = format!("exec sh -c '{}' sh", self.bootstrap.script());
        command.args(OPTIONS).arg("--").arg(self.host.as_str()).arg(remote);
        Ok(command)
    }
}
