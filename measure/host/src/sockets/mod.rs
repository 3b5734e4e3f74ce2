//! Which process of this machine has which connection to a server: sampled from the kernel's tables of sockets, in all
//! network namespaces.
//!
//! An observer of packets gives up all rights, and these tables need some. So another process, [`run_sockets_process`], reads
//! them and never sees a packet; [`SocketsProcess`] is the observer's end of it. `table` reads rows of `/proc/PID/net/tcp`,
//! `owner` names a process and its container, `processes` finds the owners of sockets, `counts` counts connections in
//! bounded memory, and `sampler` does all of this once.

mod counts;
mod owner;
mod process;
mod processes;
mod sampler;
mod table;

pub use counts::SeenClient;
pub use owner::SocketOwner;
pub use process::{SOCKETS_COMMAND, SeenClients, SocketsProcess, run_sockets_process};
pub use sampler::SocketSampler;
