//! WireGuard: the kernel's if it has it and `wg` is installed, else `wireguard-go`.

mod kernel;
mod userspace;

use ciphertoll_host::hex::hex;
use ciphertoll_host::programs;
use ciphertoll_link::{Interface, LinkEnd, LinkProcess};
use ciphertoll_model::Leg;
use openssl::base64::encode_block;
use openssl::pkey::{PKey, Private};

use super::setup::{StartedTunnel, TunnelContext, TunnelStart, VPN};
use crate::error::Error;

const INTERFACE: &str = "wg0";
/// A packet of 1500 bytes minus the headers of IPv6, UDP and WireGuard, as `wg-quick` chooses.
const MTU_BYTES: u32 = 1420;
/// Makes the client begin its key exchange at once, not with the first packet.
const KEEPALIVE_S: u16 = 25;

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

/// Removes the interfaces of an earlier tunnel.
pub(super) fn clear(networks: &mut LinkProcess) {
    for end in [LinkEnd::Clients, LinkEnd::Servers] {
        // Fails if there is none.
        let _ = networks.remove_interface(end, INTERFACE);
    }
}

fn unavailable(reason: String) -> Error {
    Error::TunnelUnavailable { tunnel: "WireGuard".to_owned(), reason }
}

/// Assigns the addresses, for which only the owner of the networks has the right.
fn configure(networks: Option<&mut LinkProcess>) -> Result<(), Error> {
    let networks =
        networks.ok_or_else(|| unavailable("it connects two networks, but there is only one".to_owned()))?;
    for (end, address) in [LinkEnd::Clients, LinkEnd::Servers].into_iter().zip(VPN) {
        let interface = Interface { end, name: INTERFACE.to_owned(), address, mtu_bytes: MTU_BYTES };
        networks.configure(interface).map_err(|error| unavailable(error.to_string()))?;
    }
    Ok(())
}

struct X25519Key(PKey<Private>);

impl X25519Key {
    fn generate() -> Result<Self, Error> {
        Ok(Self(PKey::generate_x25519()?))
    }

    fn private_hex(&self) -> Result<String, Error> {
        Ok(hex(&self.0.raw_private_key()?))
    }

    fn public_hex(&self) -> Result<String, Error> {
        Ok(hex(&self.0.raw_public_key()?))
    }

    /// The format of WireGuard's own programs.
    fn private_base64(&self) -> Result<String, Error> {
        Ok(encode_block(&self.0.raw_private_key()?))
    }

    fn public_base64(&self) -> Result<String, Error> {
        Ok(encode_block(&self.0.raw_public_key()?))
    }
}

/// WireGuard has a single suite (wireguard.com/protocol).
fn leg_of(library: &str) -> Leg {
    Leg {
        from: "wireguard".to_owned(),
        to: "wireguard".to_owned(),
        suite: Some("ChaCha20-Poly1305".to_owned()),
        group: Some("x25519".to_owned()),
        library: Some(library.to_owned()),
        ..Leg::default()
    }
}
