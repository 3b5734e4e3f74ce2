//! `wireguard-go` at each end, configured over its socket (the cross-platform userspace interface,
//! `wireguard.com/xplatform`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, ErrorKind, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Instant;

use ciphertoll_host::exec::{Provisions, Rights};
use ciphertoll_host::programs;
use ciphertoll_host::spawn::Child;
use ciphertoll_record::Context;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;

use super::super::setup::{
    CpuOwner, Side, StartedTunnel, Traffic, TunnelContext, TunnelEnd, TunnelStart, VPN,
};
use super::common::{INTERFACE, KEEPALIVE_S, X25519Key, configure, leg_of, unavailable};
use crate::error::Error;
use crate::middle::listener::{on_a_free_port, wait_until};

/// Single addresses: the tunnel has two.
const PREFIX_BITS: u8 = 32;
const MOST_LINES: usize = 64;

pub(super) fn start(
    context: &TunnelContext<'_>,
    start: &mut TunnelStart<'_>,
) -> Result<StartedTunnel, Error> {
    let program = programs::find(&["wireguard-go"], "wireguard-go")?;
    let keys = [X25519Key::generate()?, X25519Key::generate()?];
    let began = Instant::now();
    let mut client_end = context.spawn(start, end(Side::Client, &program))?;
    let mut server_end = context.spawn(start, end(Side::Server, &program))?;
    for end in [&mut client_end, &mut server_end] {
        wait_until(end, "its control socket does not accept connections", |end| Ok(connect(end)?.is_some()))?;
    }
    let [client_key, server_key] = &keys;
    let far = on_a_free_port("wireguard-go", IpAddr::from(start.server_address()), |far| {
        let peer = WireGuardPeer { key: client_key, address: VPN[0], endpoint: None };
        send(&server_end, &set_command(server_key, Some(far.port()), &peer)?).map(|_| far)
    })?;
    let peer = WireGuardPeer { key: server_key, address: VPN[1], endpoint: Some(far) };
    send(&client_end, &set_command(client_key, None, &peer)?)?;
    configure(start.networks.as_deref_mut())?;
    wait_until(&mut client_end, "no handshake was completed", |end| {
        Ok(has_handshake(&send(end, "get=1\n\n")?))
    })?;
    let endpoint = SocketAddr::from((VPN[1], start.server.port()));
    let traffic = Traffic::Interface(INTERFACE);
    Ok(StartedTunnel {
        ends: vec![client_end, server_end],
        endpoint,
        leg: leg_of("wireguard-go"),
        traffic,
        cpu: CpuOwner::Ends,
        began,
    })
}

fn end(side: Side, program: &Path) -> TunnelEnd<'_> {
    TunnelEnd {
        side,
        what: side.process("wireguard"),
        program,
        arguments: vec!["--foreground".to_owned(), INTERFACE.to_owned()],
        environment: BTreeMap::from([("LOG_LEVEL".to_owned(), "error".to_owned())]),
        // The path of its control socket is fixed and the same for both ends, so each gets a private `/run`.
        provisions: Provisions { rights: Rights::Network, run: Some(Vec::new()), ..Provisions::default() },
    }
}

/// The socket is in the private `/run` of the process.
fn control_socket(end: &Child) -> PathBuf {
    PathBuf::from(format!("/proc/{}/root/run/wireguard/{INTERFACE}.sock", end.pid()))
}

struct WireGuardPeer<'a> {
    key: &'a X25519Key,
    address: std::net::Ipv4Addr,
    /// Its address; absent on the server, which learns it from the first packet.
    endpoint: Option<SocketAddr>,
}

/// The command that configures an end. It contains a private key: for the socket only.
fn set_command(own: &X25519Key, port: Option<u16>, peer: &WireGuardPeer<'_>) -> Result<String, Error> {
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

/// Connects to the control socket; `None` if the process does not listen yet.
fn connect(end: &Child) -> Result<Option<UnixStream>, Error> {
    let path = control_socket(end);
    Ok(connect_to(&path, end.pid()).context("connect to", &path)?)
}

/// Connects if `listener` is the process that listens on the socket. The path may exist before the process listens; the
/// process is inaccessible while it changes its user; and until it has its private `/run`, the path is the machine's, where
/// another WireGuard may listen.
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

/// Sends a command and returns its answer: lines up to an empty one, with `errno` last.
fn send(end: &Child, command: &str) -> Result<String, Error> {
    let stream = connect(end)?
        .ok_or_else(|| unavailable("wireguard-go no longer listens on its control socket".to_owned()))?;
    let answer = exchange(stream, command).context("configure wireguard-go by", &control_socket(end))?;
    if answer.lines().any(|line| line == "errno=0") {
        return Ok(answer);
    }
    let reason = answer.lines().find(|line| line.starts_with("errno=")).unwrap_or("no answer");
    Err(unavailable(format!("wireguard-go refuses its configuration ({reason})")))
}

fn exchange(mut stream: UnixStream, command: &str) -> io::Result<String> {
    stream.write_all(command.as_bytes())?;
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

fn has_handshake(answer: &str) -> bool {
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
    fn the_control_socket_must_belong_to_the_started_process() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("wg0.sock");
        let ourselves = std::process::id().cast_signed();
        let reached = |listener| connect_to(&path, listener).unwrap().is_some();
        assert!(!reached(ourselves), "no socket");
        let own = socket(AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
        bind(own.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        assert!(!reached(ourselves), "not listening");
        listen(&own, Backlog::new(4).unwrap()).unwrap();
        assert!(reached(ourselves));
        assert!(!reached(nix::unistd::getppid().as_raw()), "another process");
    }

    #[test]
    fn a_handshake_has_a_time() {
        let answer = |seconds: &str| format!("private_key=00\nlast_handshake_time_sec={seconds}\nerrno=0\n");
        assert!(has_handshake(&answer("1700000000")));
        assert!(!has_handshake(&answer("0")) && !has_handshake(""));
    }

    #[test]
    fn an_end_gets_its_own_key_and_its_peer() {
        let [own, peer] = [X25519Key::generate().unwrap(), X25519Key::generate().unwrap()];
        let endpoint = Some("10.77.0.2:4711".parse().unwrap());
        let text = set_command(&own, None, &WireGuardPeer { key: &peer, address: VPN[1], endpoint }).unwrap();
        assert!(
            text.contains(&own.private_hex().unwrap()) && text.contains(&peer.public_hex().unwrap()),
            "{text}"
        );
        assert!(!text.contains(&peer.private_hex().unwrap()), "{text}");
        assert!(text.contains("\nendpoint=10.77.0.2:4711\n") && text.ends_with("\n\n"), "{text}");
    }
}
