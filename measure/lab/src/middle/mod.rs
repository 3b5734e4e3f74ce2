//! Programs between client and server: tunnels and proxies.

mod listener;
pub mod proxy;
pub mod tunnel;
