//! Proxies next to the client.

mod probe;
mod program;
pub(crate) mod running;
pub(crate) mod setup;
mod sidecar;

pub use ciphertoll_model::SocketAuth;

pub use self::running::{RunningProxy, sidecar_program};
pub use self::setup::ProxyStart;
