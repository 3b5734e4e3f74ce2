//! The kernel's WireGuard: interfaces that `__link` creates and `wg` configures. No process belongs to the ends; a
//! sleeping process in each network stands for them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use ciphertoll_host::exec::{Provisions, Rights};
use ciphertoll_host::files::{self, PRIVATE_FILE};
use ciphertoll_host::programs;
use ciphertoll_host::user::RunAs;
use ciphertoll_link::{LinkEnd, LinkProcess};

use super::super::setup::{
    CpuOwner, Side, StartedTunnel, Traffic, TunnelContext, TunnelEnd, TunnelStart, VPN,
};
use super::common::{INTERFACE, KEEPALIVE_S, X25519Key, clear, configure, leg_of, unavailable};
use crate::error::Error;
use crate::middle::listener::{on_a_free_port, wait_until};

/// The kernel's name of the interface type.
const KIND: &str = "wireguard";
const WG_LIMIT: Duration = Duration::from_mins(1);

/// Creates the interfaces of both ends; false if the kernel does not support WireGuard.
pub(super) fn make_interfaces(networks: &mut LinkProcess) -> bool {
    let mut made = |end| networks.make_interface(end, INTERFACE, KIND).is_ok();
    let both = made(LinkEnd::Clients) && made(LinkEnd::Servers);
    if !both {
        clear(networks);
    }
    both
}

pub(super) fn start(
    context: &TunnelContext<'_>,
    start: &mut TunnelStart<'_>,
    wg: &Path,
) -> Result<StartedTunnel, Error> {
    let sleep = programs::find(&["sleep"], "coreutils")?;
    let [client_key, server_key] = [X25519Key::generate()?, X25519Key::generate()?];
    let files = ["client.key", "server.key"].map(|name| context.directory.join(name));
    for (key, file) in [&client_key, &server_key].into_iter().zip(&files) {
        files::write(file, key.private_base64()?.as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?;
    }
    let [client_file, server_file] = files.map(|file| file.display().to_string());
    let began = Instant::now();
    // A process that keeps the network namespace in use and ends with us.
    let holder = |side: Side| {
        let (what, arguments) = (side.process("wireguard"), vec!["infinity".to_owned()]);
        let (environment, provisions) = (BTreeMap::new(), Provisions::default());
        context.spawn(start, TunnelEnd { side, what, program: &sleep, arguments, environment, provisions })
    };
    let (client_end, server_end) = (holder(Side::Client)?, holder(Side::Server)?);
    let (client_public, server_public) = (client_key.public_base64()?, server_key.public_base64()?);
    let far = on_a_free_port("wireguard", IpAddr::from(start.server_address()), |far| {
        let (port, allowed) = (far.port().to_string(), format!("{}/32", VPN[0]));
        let own = ["set", INTERFACE, "private-key", &server_file, "listen-port", &port];
        let peer = ["peer", &client_public, "allowed-ips", &allowed];
        run(context, start, Side::Server, wg, &[&own[..], &peer].concat()).map(|_| far)
    })?;
    let (allowed, endpoint, keepalive) = (format!("{}/32", VPN[1]), far.to_string(), KEEPALIVE_S.to_string());
    let own = ["set", INTERFACE, "private-key", &client_file];
    let peer = ["peer", &server_public, "allowed-ips", &allowed, "endpoint", &endpoint];
    let words = [&own[..], &peer, &["persistent-keepalive", &keepalive]].concat();
    run(context, start, Side::Client, wg, &words)?;
    configure(start.networks.as_deref_mut())?;
    let mut ends = vec![client_end, server_end];
    wait_until(&mut ends[0], "no handshake was completed", |_| {
        let output = run(context, start, Side::Client, wg, &["show", INTERFACE, "latest-handshakes"])?;
        Ok(has_handshake(&output))
    })?;
    let endpoint = SocketAddr::from((VPN[1], start.server.port()));
    let (leg, traffic) = (leg_of("the kernel's WireGuard"), Traffic::Interface(INTERFACE));
    Ok(StartedTunnel { ends, endpoint, leg, traffic, cpu: CpuOwner::Kernel, began })
}

/// Runs `wg` in the network of a side, and returns its output.
fn run(
    context: &TunnelContext<'_>,
    start: &TunnelStart<'_>,
    side: Side,
    wg: &Path,
    words: &[&str],
) -> Result<String, Error> {
    let end = TunnelEnd {
        side,
        what: "wg".to_owned(),
        program: wg,
        arguments: words.iter().map(|word| (*word).to_owned()).collect(),
        environment: BTreeMap::new(),
        provisions: Provisions { rights: Rights::Network, ..Provisions::default() },
    };
    let mut child = context.spawn(start, end)?;
    match child.wait(WG_LIMIT)? {
        Some(status) if status.success() => Ok(child.output()),
        Some(_) => Err(unavailable(format!("wg fails: {}", child.output().trim()))),
        None => Err(child.too_slow(WG_LIMIT, "still running".to_owned()).into()),
    }
}

/// Each line has a peer's key and the time of the last handshake in seconds; 0 means never.
fn has_handshake(output: &str) -> bool {
    output.lines().filter_map(|line| line.rsplit_once('\t')).any(|(_, moment)| moment.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_has_a_time() {
        assert!(has_handshake("AAAA=\t1700000000\n"));
        assert!(!has_handshake("AAAA=\t0\n") && !has_handshake(""));
    }
}
