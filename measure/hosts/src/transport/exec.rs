//! Hosts that a command of the user reaches: a container, a namespace, another remote shell, or this machine.

use std::path::PathBuf;
use std::process::Command;

use ciphertoll_model::ExecPrefix;

use super::bootstrap::Bootstrap;
use super::host_transport::{HostTransport, TransportContext};
use crate::HostError;

pub struct ExecTransport {
    name: String,
    prefix: ExecPrefix,
    /// If the host sees the same file, nothing is copied.
    program: PathBuf,
    bootstrap: Bootstrap,
}

impl ExecTransport {
    pub fn new(name: String, prefix: &ExecPrefix, context: &TransportContext<'_>) -> Self {
        let (program, bootstrap) = (context.program.to_owned(), context.bootstrap.clone());
        Self { name, prefix: prefix.clone(), program, bootstrap }
    }
}

impl HostTransport for ExecTransport {
    fn name(&self) -> &str {
        &self.name
    }

    fn command(&mut self, _: &dyn Fn() -> bool) -> Result<Command, HostError> {
        let Some((program, arguments)) = self.prefix.words().split_first() else {
            return Err(HostError::Unreachable { host: self.name.clone(), reason: "no command".to_owned() });
        };
        let mut command = Command::new(program);
        command.args(arguments).args(["sh", "-c"]).arg(self.bootstrap.script());
        command.arg("sh").arg(&self.program);
        Ok(command)
    }
}
