//! `__link`: makes the networks, is the line, does as it is told on stdin, a JSON document a line, and answers on stdout.
//! It ends with its stdin.

use std::fs;
use std::io::{self, BufRead, Write};
use std::net::{Ipv4Addr, SocketAddr};

use ciphertoll_model::{LinkKind, LinkShape, Namespace};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::clock::process_cpu_ns;
use crate::made::{Best, Made};
use crate::{BY_ARGUMENT, Error, LINK_COMMAND};

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Be like this from now on.
    Set(LinkShape),
    /// Say what was carried since the last time.
    Carried,
    /// Say where clients find what listens on this port.
    Address(u16),
    /// Take an interface up that somebody else has made, and give it an address.
    Configure(Interface),
    /// Make an interface of a kind that the kernel has.
    Make { end: End, name: String, kind: String },
    /// Remove it.
    Remove { end: End, name: String },
}

/// An interface that somebody at an end of the link has made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Interface {
    /// In whose network.
    pub end: End,
    /// Its name there.
    pub name: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The longest packet that it takes, headers included.
    pub mtu_bytes: u32,
}

/// An end of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Where clients are.
    Clients,
    /// Where servers are.
    Servers,
}

/// What it says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Answer {
    /// First of all: the link is there.
    Ready(Box<ReadyAnswer>),
    Set(SetAnswer),
    Carried(CarriedAnswer),
    Configured,
    Address(SocketAddr),
    Failed(String),
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ReadyAnswer {
    pub(crate) kind: LinkKind,
    /// Why it is no better one.
    pub(crate) instead: Option<String>,
    /// Of clients and of servers, where it has networks of its own.
    pub(crate) namespaces: Option<[Namespace; 2]>,
    pub(crate) mtu_bytes: u32,
    pub(crate) congestion_control: String,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct SetAnswer {
    pub(crate) overhead_ns: u64,
    pub(crate) round_trip_ns_p50: u64,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CarriedAnswer {
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

/// The process's whole life; `--by KIND` behind its command asks for a kind of link. What fails is said on stdout, so that it is known whose fault it is.
pub fn run_link_process() -> Result<(), Error> {
    // Without its coordinator a link has nobody at its ends.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let mut stdout = io::stdout().lock();
    let ended = allowed().and_then(|allowed| obey(&allowed, &mut stdout));
    if let Err(error) = &ended {
        say(&mut stdout, &Answer::Failed(error.to_string()))?;
    }
    ended
}

/// The kinds that may be made, the best first.
fn allowed() -> Result<Vec<LinkKind>, Error> {
    let mut rest = std::env::args().skip_while(|argument| argument != LINK_COMMAND).skip(1);
    match (rest.next().as_deref(), rest.next()) {
        (None, _) => Ok(LinkKind::ALL.to_vec()),
        (Some(BY_ARGUMENT), Some(kind)) => {
            let kind = LinkKind::named(&kind);
            kind.map(|kind| vec![kind]).ok_or_else(|| Error::Failed("no such kind of link".to_owned()))
        }
        _ => Err(Error::Failed("its arguments are not understood".to_owned())),
    }
}

fn obey(allowed: &[LinkKind], stdout: &mut impl Write) -> Result<(), Error> {
    let Best { made, instead } = Best::of(allowed)?;
    let congestion_control = fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    let ready = ReadyAnswer {
        kind: made.kind(),
        instead,
        namespaces: made.namespaces(),
        mtu_bytes: made.mtu_bytes(),
        congestion_control: congestion_control.unwrap_or_default().trim().to_owned(),
    };
    say(stdout, &Answer::Ready(Box::new(ready)))?;
    let mut known = Vec::new();
    let mut cpu_ns = process_cpu_ns();
    for order in io::stdin().lock().lines() {
        let order = order.map_err(Error::process("hear what to do"))?;
        let answer = match serde_json::from_str(&order)? {
            Order::Set(shape) => set(&made, shape, &mut known)?,
            Order::Carried => carried(&made, &mut cpu_ns),
            Order::Address(port) => {
                Answer::Address(made.address_of(port).map_err(Error::process("lead to a port"))?)
            }
            // Whoever has made the interface has made a mistake; the line goes on.
            Order::Configure(interface) => done(made.configure(&interface)),
            Order::Make { end, name, kind } => done(made.make_interface(end, &name, &kind)),
            Order::Remove { end, name } => done(made.remove_interface(end, &name)),
        };
        say(stdout, &answer)?;
    }
    Ok(())
}

/// What was calibrated once is not calibrated again.
fn set(made: &Made, shape: LinkShape, known: &mut Vec<(LinkShape, SetAnswer)>) -> Result<Answer, Error> {
    if let Some((_, found)) = known.iter().find(|(before, _)| *before == shape) {
        made.set(shape, found.overhead_ns)?;
        return Ok(Answer::Set(*found));
    }
    let found = made.calibrate(shape)?;
    let found = SetAnswer { overhead_ns: found.overhead_ns, round_trip_ns_p50: found.round_trip_ns_p50 };
    known.push((shape, found));
    Ok(Answer::Set(found))
}

/// `cpu_ns`: what was used when this was asked last.
fn carried(made: &Made, cpu_ns: &mut u64) -> Answer {
    let tally = made.take();
    let late = |share| tally.late_ns.value_at_quantile(share);
    let used_ns = process_cpu_ns();
    let before_ns = std::mem::replace(cpu_ns, used_ns);
    Answer::Carried(CarriedAnswer {
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

fn done(outcome: Result<(), Error>) -> Answer {
    match outcome {
        Ok(()) => Answer::Configured,
        Err(error) => Answer::Failed(error.to_string()),
    }
}

fn say(stdout: &mut impl Write, answer: &Answer) -> Result<(), Error> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::process("answer"))
}
