//! Proxies next to the client.

mod mysqlrouter;
mod odyssey;
mod pgbouncer;
mod probe;
mod program;
mod proxysql;
pub(crate) mod running;
pub(crate) mod setup;
mod sidecar;

pub use self::running::{RunningProxy, sidecar_program};
pub use self::setup::{ProxyStart, SocketAuth};
