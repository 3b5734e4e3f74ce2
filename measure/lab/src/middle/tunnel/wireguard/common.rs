//! What both kinds of WireGuard have in common.

use ciphertoll_host::hex::hex;
use ciphertoll_link::{Interface, LinkEnd, LinkProcess};
use ciphertoll_model::Leg;
use openssl::base64::encode_block;
use openssl::pkey::{PKey, Private};

use super::super::setup::VPN;
use crate::error::Error;

pub(super) const INTERFACE: &str = "wg0";
/// A packet of 1500 bytes minus the headers of IPv6, UDP and WireGuard, as `wg-quick` chooses.
pub(super) const MTU_BYTES: u32 = 1420;
/// Makes the client begin its key exchange at once, not with the first packet.
pub(super) const KEEPALIVE_S: u16 = 25;

/// Removes the interfaces of an earlier tunnel.
pub(crate) fn clear(networks: &mut LinkProcess) {
    for end in [LinkEnd::Clients, LinkEnd::Servers] {
        // Fails if there is none.
        let _ = networks.remove_interface(end, INTERFACE);
    }
}

pub(super) fn unavailable(reason: String) -> Error {
    Error::TunnelUnavailable { tunnel: "WireGuard".to_owned(), reason }
}

/// Assigns the addresses, for which only the owner of the networks has the right.
pub(super) fn configure(networks: Option<&mut LinkProcess>) -> Result<(), Error> {
    let networks =
        networks.ok_or_else(|| unavailable("it connects two networks, but there is only one".to_owned()))?;
    for (end, address) in [LinkEnd::Clients, LinkEnd::Servers].into_iter().zip(VPN) {
        let interface = Interface { end, name: INTERFACE.to_owned(), address, mtu_bytes: MTU_BYTES };
        networks.configure(interface).map_err(|error| unavailable(error.to_string()))?;
    }
    Ok(())
}

pub(super) struct X25519Key(PKey<Private>);

impl X25519Key {
    pub(super) fn generate() -> Result<Self, Error> {
        Ok(Self(PKey::generate_x25519()?))
    }

    pub(super) fn private_hex(&self) -> Result<String, Error> {
        Ok(hex(&self.0.raw_private_key()?))
    }

    pub(super) fn public_hex(&self) -> Result<String, Error> {
        Ok(hex(&self.0.raw_public_key()?))
    }

    /// The format of WireGuard's own programs.
    pub(super) fn private_base64(&self) -> Result<String, Error> {
        Ok(encode_block(&self.0.raw_private_key()?))
    }

    pub(super) fn public_base64(&self) -> Result<String, Error> {
        Ok(encode_block(&self.0.raw_public_key()?))
    }
}

/// WireGuard has a single suite (wireguard.com/protocol).
pub(super) fn leg_of(library: &str) -> Leg {
    Leg {
        from: "wireguard".to_owned(),
        to: "wireguard".to_owned(),
        suite: Some("ChaCha20-Poly1305".to_owned()),
        group: Some("x25519".to_owned()),
        library: Some(library.to_owned()),
        ..Leg::default()
    }
}
