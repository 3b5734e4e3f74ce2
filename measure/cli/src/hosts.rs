//! Other machines, checked before a record exists: an unreachable host would leave an empty one, which became `latest`.

use std::path::Path;

use ciphertoll_hosts::{Bootstrap, Fleet, HostError, ServerMeter, TransportContext, Waiting, transport};
use ciphertoll_model::{LoadHosts, Spec};
use ciphertoll_record::Scratch;

use crate::failure::Failure;
use crate::program::program;

/// Connects each host once, which also copies ciphertoll there. Pods of a cluster are created by the run itself.
pub(crate) fn check(spec: &Spec, scratch_root: &Path) -> Result<(), Failure> {
    transport::check_uncreated(&spec.load_hosts)?;
    let is_made_by_the_run = |hosts: &&LoadHosts| matches!(hosts, LoadHosts::Kubernetes(_));
    let hosts: Vec<LoadHosts> =
        spec.load_hosts.iter().filter(|hosts| !is_made_by_the_run(hosts)).cloned().collect();
    if hosts.is_empty() && spec.server_host.is_none() {
        return Ok(());
    }
    let program = program()?;
    let bootstrap = Bootstrap::of(&program)?;
    let scratch = Scratch::create(scratch_root)?;
    let context = TransportContext { program: &program, bootstrap: &bootstrap, ledger: scratch.ledger() };
    // Before the run watches signals: Ctrl-C ends the process, and with it the connections.
    let is_interrupted = || false;
    let mut waiting = Waiting { progress: &mut |_| {}, is_interrupted: &is_interrupted };
    let transports = transport::transports(&hosts, &context, &mut waiting)?;
    Fleet::new(transports, bootstrap.clone())?.connect(&is_interrupted)?;
    if let Some(host) = &spec.server_host {
        let transport = transport::transport_of_server(host, &context);
        ServerMeter::new(transport, bootstrap.clone())?.connect(&is_interrupted)?;
    }
    Ok(())
}

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        Self::new(error.exit_code(), error.to_string())
    }
}
