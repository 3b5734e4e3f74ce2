//! `WireGuard`: the kernel's where it has one and `wg` is here to set it up, else `wireguard-go`.

mod kernel;
mod userspace;

use ciphertoll_link::{Interface, LinkEnd, LinkProcess};
use ciphertoll_model::Leg;
use openssl::base64::encode_block;
use openssl::pkey::{PKey, Private};

use super::{TunnelStart, Up, VPN, Wiring};
use crate::error::Error;
use crate::hex::hex;
use crate::programs;

const INTERFACE: &str = "wg0";
/// A packet of 1500 bytes less IPv6, UDP and `WireGuard`'s own headers: what `wg-quick` chooses.
const MTU_BYTES: u32 = 1420;
/// Has the client begin its key exchange at once and not with the first packet, s.
const KEEPALIVE_S: u16 = 25;

pub(super) fn start(wiring: &Wiring<'_>, start: &mut TunnelStart<'_>) -> Result<Up, Error> {
    let wg = programs::search("wg");
    let by_kernel = wg.filter(|_| start.networks.as_deref_mut().is_some_and(kernel::make_interfaces));
    match by_kernel {
        Some(wg) => kernel::start(wiring, start, &wg),
        None => userspace::start(wiring, start),
    }
}

/// What an earlier tunnel may have left in networks that live on.
pub(super) fn clear(networks: &mut LinkProcess) {
    for end in [LinkEnd::Clients, LinkEnd::Servers] {
        // Most often there is none.
        let _ = networks.remove_interface(end, INTERFACE);
    }
}

fn unavailable(reason: String) -> Error {
    Error::TunnelUnavailable { tunnel: "WireGuard".to_owned(), reason }
}

/// Addresses are for those to give who made the networks.
fn configure(networks: Option<&mut LinkProcess>) -> Result<(), Error> {
    let unavailable = |reason: String| Error::TunnelUnavailable { tunnel: "WireGuard".to_owned(), reason };
    let networks =
        networks.ok_or_else(|| unavailable("it joins two networks, and there is one".to_owned()))?;
    for (end, address) in [LinkEnd::Clients, LinkEnd::Servers].into_iter().zip(VPN) {
        let interface = Interface { end, name: INTERFACE.to_owned(), address, mtu_bytes: MTU_BYTES };
        networks.configure(interface).map_err(|error| unavailable(error.to_string()))?;
    }
    Ok(())
}

/// A key pair of Curve25519.
struct Key(PKey<Private>);

impl Key {
    fn generate() -> Result<Self, Error> {
        Ok(Self(PKey::generate_x25519()?))
    }

    fn private_hex(&self) -> Result<String, Error> {
        Ok(hex(&self.0.raw_private_key()?))
    }

    fn public_hex(&self) -> Result<String, Error> {
        Ok(hex(&self.0.raw_public_key()?))
    }

    /// As `WireGuard`'s own programs write it.
    fn private_base64(&self) -> Result<String, Error> {
        Ok(encode_block(&self.0.raw_private_key()?))
    }

    fn public_base64(&self) -> Result<String, Error> {
        Ok(encode_block(&self.0.raw_public_key()?))
    }
}

/// It has one suite (wireguard.com/protocol).
fn leg_of(whose: &str) -> Leg {
    Leg {
        from: "wireguard".to_owned(),
        to: "wireguard".to_owned(),
        suite: Some("ChaCha20-Poly1305".to_owned()),
        group: Some("x25519".to_owned()),
        library: Some(whose.to_owned()),
        ..Leg::default()
    }
}
