//! In user space: `wireguard-go` at each end, told what to do by its own protocol (the cross-platform
//! userspace interface, `wireguard.com/xplatform`).

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use super::super::end::{on_a_free_port, wait_until};
use super::super::{Cpu, End, Side, Traffic, TunnelStart, Up, VPN, Wiring};
use super::{INTERFACE, KEEPALIVE_S, Key, configure, leg_of, unavailable};
use crate::error::{Context, Error};
use crate::exec::{Provisions, Rights};
use crate::programs;
use crate::spawn::Child;
use crate::user::RunAs;

/// What is asked of the network: the tunnel's alone, and no more addresses than its two.
const PREFIX_BITS: u8 = 32;
/// The longest answer that is read.
const MOST_LINES: usize = 64;

pub(super) fn start(wiring: &Wiring<'_>, start: &mut TunnelStart<'_>) -> Result<Up, Error> {
    let program = programs::find(&["wireguard-go"], "wireguard-go")?;
    let keys = [Key::generate()?, Key::generate()?];
    let began = Instant::now();
    let mut client_end = wiring.spawn(start, end(Side::Client, "wireguard-client", &program))?;
    let mut server_end = wiring.spawn(start, end(Side::Server, "wireguard-server", &program))?;
    for end in [&mut client_end, &mut server_end] {
        wait_until(end, "it did not listen for orders", |end| Ok(reach(end)?.is_some()))?;
    }
    let [client_key, server_key] = &keys;
    let far = on_a_free_port("wireguard-go", IpAddr::from(start.far()), |far| {
        let peer = Peer { key: client_key, address: VPN[0], endpoint: None };
        tell(&server_end, &set(server_key, Some(far.port()), &peer)?).map(|_| far)
    })?;
    let peer = Peer { key: server_key, address: VPN[1], endpoint: Some(far) };
    tell(&client_end, &set(client_key, None, &peer)?)?;
    configure(start.networks.as_deref_mut())?;
    wait_until(&mut client_end, "there was no handshake", |end| {
        Ok(has_shaken_hands(&tell(end, "get=1\n\n")?))
    })?;
    let endpoint = SocketAddr::from((VPN[1], start.server.port()));
    let traffic = Traffic::Interface(INTERFACE);
    Ok(Up {
        ends: vec![client_end, server_end],
        endpoint,
        leg: leg_of("wireguard-go"),
        traffic,
        cpu: Cpu::OfEnds,
        began,
    })
}

fn end<'a>(side: Side, what: &'static str, program: &'a Path) -> End<'a> {
    End {
        side,
        what,
        program,
        arguments: vec!["--foreground".to_owned(), INTERFACE.to_owned()],
        environment: &[("LOG_LEVEL", "error")],
        // Its socket is where it cannot be told not to put it, and both ends have the same name for it.
        provisions: Provisions { rights: Rights::Network, run: Some(Vec::new()), ..Provisions::default() },
        run_as: RunAs::Ourselves,
    }
}

/// Its `/run` is its own, and is reached through the process.
fn control_socket(end: &Child) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root/run/wireguard/{INTERFACE}.sock", end.pid()))
}

/// Who is at the other end.
struct Peer<'a> {
    key: &'a Key,
    address: std::net::Ipv4Addr,
    /// Where it is; absent where it will come by itself.
    endpoint: Option<SocketAddr>,
}

/// The order to be one end. It holds a private key: for the socket only.
fn set(own: &Key, port: Option<u16>, peer: &Peer<'_>) -> Result<String, Error> {
    let mut text = format!("set=1\nprivate_key={}\n", own.private_hex()?);
    // Writing to a string cannot fail.
    if let Some(port) = port {
        let _ = writeln!(text, "listen_port={port}");
    }
    let _ =
        write!(text, "public_key={}\nallowed_ip={}/{PREFIX_BITS}\n", peer.key.public_hex()?, peer.address);
    if let Some(endpoint) = peer.endpoint {
        let _ = write!(text, "endpoint={endpoint}\npersistent_keepalive_interval={KEEPALIVE_S}\n");
    }
    text.push('\n');
    Ok(text)
}

/// A connection for orders; none while nobody takes them.
fn reach(end: &Child) -> Result<Option<UnixStream>, Error> {
    let path = control_socket(end);
    connect_to(&path, end.pid()).context("connect to", &path)
}

/// Connects where this process listens. A socket is in the file system before somebody listens on it; who is becoming
/// another user lets nobody look; and until the process has a `/run` of its own, what is there is the machine's, where
/// somebody else's `WireGuard` may be.
fn connect_to(path: &Path, listener: i32) -> io::Result<Option<UnixStream>> {
    const NOT_YET: [ErrorKind; 3] =
        [ErrorKind::NotFound, ErrorKind::ConnectionRefused, ErrorKind::PermissionDenied];
    let stream = match UnixStream::connect(path) {
        Err(error) if NOT_YET.contains(&error.kind()) => return Ok(None),
        connected => connected?,
    };
    let peer = getsockopt(&stream, PeerCredentials)?;
    Ok((peer.pid() == listener).then_some(stream))
}

/// Sends an order and returns what it is answered: lines up to an empty one, with `errno` last.
fn tell(end: &Child, order: &str) -> Result<String, Error> {
    let stream =
        reach(end)?.ok_or_else(|| unavailable("wireguard-go takes no orders any more".to_owned()))?;
    let answer = ask(stream, order).context("speak with wireguard-go by", &control_socket(end))?;
    if answer.lines().any(|line| line == "errno=0") {
        return Ok(answer);
    }
    let reason = answer.lines().find(|line| line.starts_with("errno=")).unwrap_or("no answer");
    Err(unavailable(format!("wireguard-go refuses its settings ({reason})")))
}

fn ask(mut stream: UnixStream, order: &str) -> io::Result<String> {
    stream.write_all(order.as_bytes())?;
    let mut answer = String::new();
    for line in BufReader::new(stream).lines().take(MOST_LINES) {
        let line = line?;
        if line.is_empty() {
            break;
        }
        answer.push_str(&line);
        answer.push('\n');
    }
    Ok(answer)
}

fn has_shaken_hands(answer: &str) -> bool {
    let moments = answer.lines().filter_map(|line| line.split_once('='));
    let of = ["last_handshake_time_sec", "last_handshake_time_nsec"];
    moments.filter(|(name, _)| of.contains(name)).any(|(_, value)| value != "0")
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};

    use super::*;

    #[test]
    fn orders_are_for_the_process_that_was_started_once_it_listens() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("wg0.sock");
        let ourselves = std::process::id().cast_signed();
        let reached = |listener| connect_to(&path, listener).unwrap().is_some();
        assert!(!reached(ourselves), "there is nothing yet");
        let own = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(own.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        assert!(!reached(ourselves), "nobody listens yet");
        listen(&own, Backlog::new(4).unwrap()).unwrap();
        assert!(reached(ourselves));
        assert!(!reached(nix::unistd::getppid().as_raw()), "somebody else's");
    }

    #[test]
    fn a_handshake_is_seen_by_its_time() {
        let answer = |seconds: &str| format!("private_key=00\nlast_handshake_time_sec={seconds}\nerrno=0\n");
        assert!(has_shaken_hands(&answer("1700000000")));
        assert!(!has_shaken_hands(&answer("0")) && !has_shaken_hands(""));
    }

    #[test]
    fn an_end_is_told_its_own_key_and_its_peer() {
        let [own, peer] = [Key::generate().unwrap(), Key::generate().unwrap()];
        let endpoint = Some("10.77.0.2:4711".parse().unwrap());
        let text = set(&own, None, &Peer { key: &peer, address: VPN[1], endpoint }).unwrap();
        assert!(
            text.contains(&own.private_hex().unwrap()) && text.contains(&peer.public_hex().unwrap()),
            "{text}"
        );
        assert!(!text.contains(&peer.private_hex().unwrap()), "{text}");
        assert!(text.contains("\nendpoint=10.77.0.2:4711\n") && text.ends_with("\n\n"), "{text}");
    }
}
