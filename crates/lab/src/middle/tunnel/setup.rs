//! An end of a tunnel: how its process is started, when it is ready, what it has carried.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_link::LinkProcess;

use super::{START_LIMIT, TunnelStart};
use crate::error::{Context, Error};
use crate::exec::Provisions;
use crate::lab::Lab;
use crate::port::free_port;
use crate::spawn::{Child, Launch};
use crate::user::RunAs;

/// How often somebody looks whether a process has got further.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
const MOST_PORTS: usize = 5;

/// What every end is started in.
pub(crate) struct Wiring<'a> {
    pub(crate) lab: &'a Lab,
    /// A private directory for keys and configurations.
    pub(crate) place: &'a Path,
}

/// On which side an end is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

/// A program that is to be an end.
pub(crate) struct End<'a> {
    pub(crate) side: Side,
    /// As in errors: `ssh`.
    pub(crate) what: &'static str,
    pub(crate) program: &'a Path,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: &'a [(&'static str, &'static str)],
    pub(crate) provisions: Provisions,
    pub(crate) run_as: RunAs,
}

/// How what went through the encrypted leg is counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// The process writes it: all that it has written.
    Written,
    /// It is all that the network of the process has sent through this interface.
    Interface(&'static str),
}

impl Wiring<'_> {
    /// Starts an end in the network of its side.
    pub(crate) fn spawn(&self, start: &TunnelStart<'_>, end: End<'_>) -> Result<Child, Error> {
        let networks = start.networks.as_deref();
        let (namespace, processors) = match end.side {
            Side::Client => (
                networks.map(|networks| match start.link.shape() {
                    Some(_) => networks.clients(),
                    None => networks.servers(),
                }),
                start.apart.map(|apart| &apart.client),
            ),
            Side::Server => (networks.map(LinkProcess::servers), start.apart.map(|apart| &apart.server)),
        };
        let launch = Launch {
            what: end.what.to_owned(),
            program: end.program.to_owned(),
            arguments: end.arguments,
            environment: end
                .environment
                .iter()
                .map(|&(name, value)| (name.to_owned(), value.to_owned()))
                .collect(),
            directory: "/".into(),
            run_as: end.run_as,
            processors: processors.cloned(),
            namespace: namespace.flatten().cloned(),
            provisions: end.provisions,
            log: start.logs.join(format!("{}-{}.log", start.tunnel.to_string().replace('+', "-"), end.what)),
        };
        Child::spawn(&self.lab.scratch, &self.lab.helper, &launch)
    }
}

/// Waits until `ready` says so; fails when a process ends before, or none gets there in time.
pub(crate) fn wait_until(
    child: &mut Child,
    waiting_for: &str,
    mut ready: impl FnMut(&Child) -> Result<bool, Error>,
) -> Result<(), Error> {
    let deadline = Instant::now() + START_LIMIT;
    while !ready(child)? {
        child.check()?;
        if Instant::now() >= deadline {
            return Err(child.too_slow(START_LIMIT, waiting_for.to_owned()));
        }
        thread::sleep(LOOK_AGAIN);
    }
    Ok(())
}

/// Waits until somebody in the process's network listens on a port.
pub(crate) fn wait_for_listener(child: &mut Child, protocol: Protocol, port: u16) -> Result<(), Error> {
    wait_until(child, "nobody listened", |child| Ok(listens(child.pid(), protocol, port)))
}

/// Whose sockets are looked at.
#[derive(Clone, Copy)]
pub(crate) enum Protocol {
    Tcp,
    Udp,
}

fn listens(pid: i32, protocol: Protocol, port: u16) -> bool {
    let file = match protocol {
        Protocol::Tcp => "tcp",
        Protocol::Udp => "udp",
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

/// Starts something on a port that is free now; another is tried where somebody else was quicker.
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
            Err(Error::Died { log_end, .. }) if log_end.contains("in use") => {}
            started => return started,
        }
    }
    Err(Error::PortsTaken { what: what.to_owned(), tried })
}

impl Traffic {
    /// Bytes sent so far by the process or from its network.
    pub(super) fn sent_bytes(&self, pid: i32) -> Result<u64, Error> {
        let path = match self {
            Self::Written => Path::new("/proc").join(pid.to_string()).join("io"),
            Self::Interface(_) => Path::new("/proc").join(pid.to_string()).join("net/dev"),
        };
        let text = fs::read_to_string(&path).context("read", &path)?;
        let sent = match self {
            Self::Written => written(&text),
            Self::Interface(name) => sent_through(&text, name),
        };
        sent.ok_or_else(|| std::io::Error::other("unexpected contents")).context("understand", &path)
    }
}

/// Of `/proc/PID/io`.
fn written(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("wchar: ")?.trim().parse().ok())
}

/// Of `/proc/PID/net/dev`: the ninth number is of bytes sent.
fn sent_through(text: &str, interface: &str) -> Option<u64> {
    const SENT: usize = 8;
    text.lines().find_map(|line| {
        let (name, numbers) = line.split_once(':')?;
        let numbers = (name.trim() == interface).then_some(numbers)?;
        numbers.split_ascii_whitespace().nth(SENT)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_told_from_who_is_connected() {
        let line =
            "   0: 0100007F:5FB4 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1";
        assert!(is_listener(line, 0x5fb4) && !is_listener(line, 0x5fb5));
        assert!(!is_listener(&line.replace(" 0A ", " 01 "), 0x5fb4));
        assert!(is_listener(&line.replace(" 0A ", " 07 "), 0x5fb4));
        assert!(!is_listener("", 1));
    }

    #[test]
    fn what_was_sent_is_read_from_the_kernels_tables() {
        assert_eq!(written("rchar: 1\nwchar: 4711\nsyscr: 2\n"), Some(4711));
        let table =
            "Inter-|   Receive\n face |bytes\n    lo: 1 2 3 4 5 6 7 8 9 10\n  wg0:10 0 0 0 0 0 0 0 77 0\n";
        assert_eq!((sent_through(table, "wg0"), sent_through(table, "tun0")), (Some(77), None));
    }
}
