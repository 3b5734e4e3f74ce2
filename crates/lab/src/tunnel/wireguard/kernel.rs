//! The kernel's own: interfaces that `__link` makes, set up by `wg`. No process is its end; one that sleeps in each network
//! stands for it.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::{Duration, Instant};

use ciphertoll_link::{LinkEnd, LinkProcess};

use super::super::end::{on_a_free_port, wait_until};
use super::super::{Cpu, End, Side, Traffic, TunnelStart, Up, VPN, Wiring};
use super::{INTERFACE, KEEPALIVE_S, Key, clear, configure, leg_of, unavailable};
use crate::error::Error;
use crate::exec::{Provisions, Rights};
use crate::files::{self, PRIVATE_FILE};
use crate::programs;
use crate::spawn::Child;
use crate::user::RunAs;

/// What the kernel calls it.
const KIND: &str = "wireguard";
/// `wg` asks the kernel, and that is all it does.
const WG_LIMIT: Duration = Duration::from_mins(1);

/// Whether the kernel has it; then both ends are there.
pub(super) fn make_interfaces(networks: &mut LinkProcess) -> bool {
    let mut made = |end| networks.make_interface(end, INTERFACE, KIND).is_ok();
    let both = made(LinkEnd::Clients) && made(LinkEnd::Servers);
    if !both {
        clear(networks);
    }
    both
}

pub(super) fn start(wiring: &Wiring<'_>, start: &mut TunnelStart<'_>, wg: &Path) -> Result<Up, Error> {
    let sleep = programs::find(&["sleep"], "coreutils")?;
    let [client_key, server_key] = [Key::generate()?, Key::generate()?];
    let files = ["client.key", "server.key"].map(|name| wiring.place.join(name));
    for (key, file) in [&client_key, &server_key].into_iter().zip(&files) {
        files::write(file, key.private_base64()?.as_bytes(), PRIVATE_FILE, RunAs::Ourselves)?;
    }
    let [client_file, server_file] = files.map(|file| file.display().to_string());
    let began = Instant::now();
    let client_end = wiring.spawn(start, holder(Side::Client, &sleep))?;
    let server_end = wiring.spawn(start, holder(Side::Server, &sleep))?;
    let (client_public, server_public) = (client_key.public_base64()?, server_key.public_base64()?);
    let far = on_a_free_port("wireguard", IpAddr::from(start.far()), |far| {
        let (port, allowed) = (far.port().to_string(), format!("{}/32", VPN[0]));
        let own = [
            "private-key",
            &server_file,
            "listen-port",
            &port,
            "peer",
            &client_public,
            "allowed-ips",
            &allowed,
        ];
        run(wiring, start, Side::Server, wg, &[&["set", INTERFACE][..], &own].concat()).map(|_| far)
    })?;
    let (allowed, endpoint, keepalive) = (format!("{}/32", VPN[1]), far.to_string(), KEEPALIVE_S.to_string());
    let own =
        ["private-key", &client_file, "peer", &server_public, "allowed-ips", &allowed, "endpoint", &endpoint];
    let words = [&["set", INTERFACE][..], &own, &["persistent-keepalive", &keepalive]].concat();
    run(wiring, start, Side::Client, wg, &words)?;
    configure(start.networks.as_deref_mut())?;
    let mut ends = vec![client_end, server_end];
    wait_until(&mut ends[0], "there was no handshake", |_| {
        let said = run(wiring, start, Side::Client, wg, &["show", INTERFACE, "latest-handshakes"])?;
        Ok(has_shaken_hands(&said))
    })?;
    let endpoint = SocketAddr::from((VPN[1], start.server.port()));
    let (leg, traffic) = (leg_of("the kernel's WireGuard"), Traffic::Interface(INTERFACE));
    Ok(Up { ends, endpoint, leg, traffic, cpu: Cpu::OfTheKernel, began })
}

/// Is in the network, and ends with us.
fn holder(side: Side, program: &Path) -> End<'_> {
    let what = match side {
        Side::Client => "wireguard-client",
        Side::Server => "wireguard-server",
    };
    End {
        side,
        what,
        program,
        arguments: vec!["infinity".to_owned()],
        environment: &[],
        provisions: Provisions::default(),
        run_as: RunAs::Ourselves,
    }
}

/// Has `wg` do something in the network of a side, and returns what it said.
fn run(
    wiring: &Wiring<'_>,
    start: &TunnelStart<'_>,
    side: Side,
    wg: &Path,
    words: &[&str],
) -> Result<String, Error> {
    let end = End {
        side,
        what: "wg",
        program: wg,
        arguments: words.iter().map(|word| (*word).to_owned()).collect(),
        environment: &[],
        provisions: Provisions { rights: Rights::Network, ..Provisions::default() },
        run_as: RunAs::Ourselves,
    };
    let mut child: Child = wiring.spawn(start, end)?;
    match child.wait(WG_LIMIT)? {
        Some(status) if status.success() => Ok(child.said()),
        Some(_) => Err(unavailable(format!("wg says: {}", child.said().trim()))),
        None => Err(child.too_slow(WG_LIMIT, "still running".to_owned())),
    }
}

/// A line for each peer: its key, and when the last handshake was, in seconds; 0: never.
fn has_shaken_hands(said: &str) -> bool {
    said.lines().filter_map(|line| line.rsplit_once('\t')).any(|(_, moment)| moment.trim() != "0")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handshake_is_seen_by_its_time() {
        assert!(has_shaken_hands("AAAA=\t1700000000\n"));
        assert!(!has_shaken_hands("AAAA=\t0\n") && !has_shaken_hands(""));
    }
}
