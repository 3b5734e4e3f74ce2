//! What stays up between the trials of a run: networks, servers, load hosts.

pub(crate) mod attempts;
pub(crate) mod hosts;
pub(crate) mod instance;
pub(crate) mod load_command;
pub(crate) mod networks;
pub(crate) mod profiled_trial;
pub(crate) mod request;
pub(crate) mod server_elsewhere;
