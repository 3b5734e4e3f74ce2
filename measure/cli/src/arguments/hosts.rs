//! The arguments that name other machines.

use ciphertoll_model::{LoadHosts, ServerHost};
use clap::Args;

#[derive(Args, Debug)]
#[command(next_help_heading = "Other machines (docs/measure/scale-out.md)")]
pub(crate) struct HostArguments {
    /// Run the clients on these hosts, divided evenly: ssh:HOST[,HOST…] by your own ssh; exec:COMMAND, which connects
    /// stdin and stdout, such as exec:'docker exec -i load1'; k8s:[CONTEXT/]NAMESPACE[+pods=N][+image=IMAGE]; may be
    /// repeated
    #[arg(long, value_name = "HOSTS")]
    pub(crate) load_hosts: Vec<LoadHosts>,
    /// The host of the server at --url, ssh:HOST or exec:COMMAND, where its CPU time is read
    #[arg(long, value_name = "HOST")]
    pub(crate) server_host: Option<ServerHost>,
}
