//! The process `__link`: makes the networks and runs the delay line. Reads commands from stdin and writes replies to
//! stdout, each one line of JSON. Exits at the end of stdin.

use std::fs;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};

use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::backend::{LinkBackend, SelectedBackend};
use crate::clock::process_cpu_ns;
use crate::{BY_ARGUMENT, Error, LINK_COMMAND};

/// A command to the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkCommand {
    /// Emulate this link from now on.
    Set(LinkShape),
    /// Report the traffic since the last report.
    Counters,
    /// Report the address that leads clients to this port.
    Address(u16),
    /// Bring up an interface that another process has made, and give it an address.
    Configure(Interface),
    /// Make an interface.
    Make { end: LinkEnd, name: String, kind: String },
    /// Remove an interface.
    Remove { end: LinkEnd, name: String },
}

/// An interface made by another process at an end of the link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// The network that it is in.
    pub end: LinkEnd,
    pub name: String,
    pub address: Ipv4Addr,
    /// Its MTU.
    pub mtu_bytes: u32,
}

/// An end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkEnd {
    /// Where clients are.
    Clients,
    /// Where servers are.
    Servers,
}

/// A reply of the process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum LinkReply {
    /// Sent first: the link exists.
    Ready(Box<ReadyReply>),
    Set(SetReply),
    Counters(CountersReply),
    Configured,
    Address(SocketAddr),
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyReply {
    pub(crate) kind: LinkKind,
    /// Why a better kind could not be made.
    pub(crate) fallback_reason: Option<String>,
    /// The clients' and the servers' network, if the link has networks.
    pub(crate) namespaces: Option<[Namespace; 2]>,
    pub(crate) mtu_bytes: u32,
    pub(crate) congestion_control: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SetReply {
    pub(crate) overhead_ns: u64,
    pub(crate) round_trip_ns_p50: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CountersReply {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) lost: u64,
    pub(crate) dropped: u64,
    pub(crate) late_ns_mean: u64,
    pub(crate) late_ns_p50: u64,
    pub(crate) late_ns_p99: u64,
    pub(crate) late_ns_max: u64,
    pub(crate) cpu_ns: u64,
}

/// Runs the process; `--by KIND` on its command line permits only this kind of link. An error is also reported on
/// stdout, so that the coordinator can show it.
pub fn run_link_process() -> Result<(), Error> {
    // A link without its coordinator serves nothing.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let mut stdout = io::stdout().lock();
    let ended = parse_allowed().and_then(|allowed| serve(&allowed, &mut stdout));
    if let Err(error) = &ended {
        say(&mut stdout, &LinkReply::Failed(error.to_string()))?;
    }
    ended
}

/// The permitted kinds, the best first.
fn parse_allowed() -> Result<Vec<LinkKind>, Error> {
    let mut rest = std::env::args().skip_while(|argument| argument != LINK_COMMAND).skip(1);
    match (rest.next().as_deref(), rest.next()) {
        (None, _) => Ok(LinkKind::ALL.to_vec()),
        (Some(BY_ARGUMENT), Some(kind)) => {
            let kind = LinkKind::named(&kind);
            kind.map(|kind| vec![kind]).ok_or_else(|| Error::Failed("unknown kind of link".to_owned()))
        }
        _ => Err(Error::Failed("unexpected arguments of the link process".to_owned())),
    }
}

fn serve(allowed: &[LinkKind], stdout: &mut impl Write) -> Result<(), Error> {
    let SelectedBackend { backend, fallback_reason } = SelectedBackend::start(allowed)?;
    let congestion_control = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let ready = ReadyReply {
        kind: backend.kind(),
        fallback_reason,
        namespaces: backend.namespaces(),
        mtu_bytes: backend.mtu_bytes(),
        congestion_control: congestion_control.unwrap_or_default().trim().to_owned(),
    };
    say(stdout, &LinkReply::Ready(Box::new(ready)))?;
    let mut known = Vec::new();
    let mut cpu_ns = process_cpu_ns();
    for command in io::stdin().lock().lines() {
        let command = command.map_err(Error::process("read a command"))?;
        let answer = match serde_json::from_str(&command)? {
            LinkCommand::Set(shape) => set(&backend, shape, &mut known)?,
            LinkCommand::Counters => carried(&backend, &mut cpu_ns),
            LinkCommand::Address(port) => {
                LinkReply::Address(backend.find_address(port).map_err(Error::process("listen for a port"))?)
            }
            // A failure is the fault of the process that made the interface; the link itself still works.
            LinkCommand::Configure(interface) => done(backend.configure(&interface)),
            LinkCommand::Make { end, name, kind } => done(backend.make_interface(end, &name, &kind)),
            LinkCommand::Remove { end, name } => done(backend.remove_interface(end, &name)),
        };
        say(stdout, &answer)?;
    }
    Ok(())
}

/// Each shape is calibrated once.
fn set(
    backend: &LinkBackend,
    shape: LinkShape,
    known: &mut Vec<(LinkShape, SetReply)>,
) -> Result<LinkReply, Error> {
    if let Some((_, found)) = known.iter().find(|(before, _)| *before == shape) {
        backend.set(shape, found.overhead_ns)?;
        return Ok(LinkReply::Set(*found));
    }
    let found = backend.calibrate(shape)?;
    let found = SetReply { overhead_ns: found.overhead_ns, round_trip_ns_p50: found.round_trip_ns_p50 };
    known.push((shape, found));
    Ok(LinkReply::Set(found))
}

/// `cpu_ns`: CPU time at the last report.
fn carried(backend: &LinkBackend, cpu_ns: &mut u64) -> LinkReply {
    let tally = backend.take_counters();
    let late = |share| tally.late_ns.value_at_quantile(share);
    let used_ns = process_cpu_ns();
    let before_ns = std::mem::replace(cpu_ns, used_ns);
    LinkReply::Counters(CountersReply {
        packets: tally.packets,
        bytes: tally.bytes,
        lost: tally.lost,
        dropped: tally.dropped,
        late_ns_mean: tally.late_ns.mean() as u64,
        late_ns_p50: late(0.5),
        late_ns_p99: late(0.99),
        late_ns_max: tally.late_ns.max(),
        cpu_ns: used_ns.saturating_sub(before_ns),
    })
}

fn done(outcome: Result<(), Error>) -> LinkReply {
    match outcome {
        Ok(()) => LinkReply::Configured,
        Err(error) => LinkReply::Failed(error.to_string()),
    }
}

fn say(stdout: &mut impl Write, answer: &LinkReply) -> Result<(), Error> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::process("write a reply"))
}
