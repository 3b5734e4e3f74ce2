//! Tunnels between client and server, with a process at each end.

mod openvpn;
pub(crate) mod running;
pub(crate) mod setup;
mod ssh;
mod stunnel;
mod wireguard;

pub use self::running::RunningTunnel;
pub use self::setup::{Traffic, TunnelStart};
