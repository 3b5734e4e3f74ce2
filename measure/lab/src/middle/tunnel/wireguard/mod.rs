//! WireGuard: the kernel's if it has it and `wg` is installed, else `wireguard-go`.

pub(super) mod common;
mod kernel;
mod userspace;

use ciphertoll_host::programs;

use super::setup::{StartedTunnel, TunnelContext, TunnelStart};
use crate::error::Error;

pub(super) fn start(
    context: &TunnelContext<'_>,
    start: &mut TunnelStart<'_>,
) -> Result<StartedTunnel, Error> {
    let wg = programs::search("wg");
    let in_kernel = wg.filter(|_| start.networks.as_deref_mut().is_some_and(kernel::make_interfaces));
    match in_kernel {
        Some(wg) => kernel::start(context, start, &wg),
        None => userspace::start(context, start),
    }
}
