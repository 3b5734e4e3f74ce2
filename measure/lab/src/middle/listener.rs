//! Starts of programs that listen: on a free port, and until they are ready.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_host::port::free_port;
use ciphertoll_host::spawn::Child;

use crate::error::Error;

/// A key exchange and a login take a dozen round trips, and the longest link has ten seconds.
const START_LIMIT: Duration = Duration::from_mins(3);
const CHECK_INTERVAL: Duration = Duration::from_millis(2);
const MOST_PORTS: usize = 5;

/// Waits until `ready` returns true. Fails if the process ends or takes too long; then the error contains `last`.
pub(crate) fn wait_until(
    child: &mut Child,
    last: &str,
    mut ready: impl FnMut(&Child) -> Result<bool, Error>,
) -> Result<(), Error> {
    let deadline = Instant::now() + START_LIMIT;
    while !ready(child)? {
        child.check()?;
        if Instant::now() >= deadline {
            return Err(child.too_slow(START_LIMIT, last.to_owned()).into());
        }
        thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}

/// Waits until a process in the child's network namespace listens on a port.
pub(crate) fn wait_for_listener(child: &mut Child, protocol: SocketProtocol, port: u16) -> Result<(), Error> {
    wait_until(child, "no process listens", |child| Ok(listens(child.pid(), protocol, port)))
}

#[derive(Clone, Copy)]
pub(crate) enum SocketProtocol {
    Tcp,
    Udp,
}

fn listens(pid: i32, protocol: SocketProtocol, port: u16) -> bool {
    let file = match protocol {
        SocketProtocol::Tcp => "tcp",
        SocketProtocol::Udp => "udp",
    };
    let sockets = fs::read_to_string(format!("/proc/{pid}/net/{file}")).unwrap_or_default();
    sockets.lines().skip(1).any(|line| is_listener(line, port))
}

/// A line of `/proc/net/tcp` or `udp`: number, local address and port in hexadecimal, those of the peer, state (proc(5)).
fn is_listener(line: &str, port: u16) -> bool {
    /// `TCP_LISTEN`, and what a UDP socket without a peer has (`TCP_CLOSE`).
    const WAITING: [&str; 2] = ["0A", "07"];
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (local, _peer, state) = (fields.next(), fields.next(), fields.next());
    let local_port = local.and_then(|local| u16::from_str_radix(local.rsplit(':').next()?, 16).ok());
    local_port == Some(port) && state.is_some_and(|state| WAITING.contains(&state))
}

/// Calls `start` with a free port; tries another if a process has taken the port meanwhile.
pub(crate) fn on_a_free_port<T>(
    what: &str,
    address: IpAddr,
    mut start: impl FnMut(SocketAddr) -> Result<T, Error>,
) -> Result<T, Error> {
    let mut tried = Vec::new();
    while tried.len() < MOST_PORTS {
        let Some(port) = free_port(&tried) else { break };
        tried.push(port);
        match start(SocketAddr::new(address, port)) {
            Err(Error::Host(ciphertoll_host::Error::Died { log_end, .. })) if log_end.contains("in use") => {}
            started => return started,
        }
    }
    Err(Error::PortsTaken { what: what.to_owned(), tried })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listening_sockets_are_distinguished_from_connections() {
        let line =
            "   0: 0100007F:5FB4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert!(is_listener(line, 0x5fb4) && !is_listener(line, 0x5fb5));
        assert!(!is_listener(&line.replace(" 0A ", " 01 "), 0x5fb4));
        assert!(is_listener(&line.replace(" 0A ", " 07 "), 0x5fb4));
        assert!(!is_listener("", 1));
    }
}
