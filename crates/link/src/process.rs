//! `__link`: makes the networks, is the line, does as it is told on stdin, a JSON document a line, and answers on stdout.
//! It ends with its stdin.

use std::io::{self, BufRead, Write};
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd;

use ciphertoll_model::{LinkShape, Namespace};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::Error;
use crate::calibrate;
use crate::line::Line;
use crate::namespace::{Networks, Segments};

/// What it is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    /// Be like this from now on.
    Set(LinkShape),
    /// Say what was carried since the last time.
    Carried,
    /// Take an interface up that somebody else has made, and give it an address.
    Configure(Interface),
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
    /// First of all: the networks are there.
    Ready {
        clients: Namespace,
        servers: Namespace,
        congestion_control: String,
    },
    Set(SetAnswer),
    Carried(CarriedAnswer),
    Configured,
    Failed(String),
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
}

/// The process's whole life. What fails is said on stdout, so that it is known whose fault it is.
pub fn run_link_process() -> Result<(), Error> {
    // Without its coordinator a link has nobody at its ends.
    let _ = prctl::set_pdeathsig(Signal::SIGKILL);
    let mut stdout = io::stdout().lock();
    let ended = obey(&mut stdout);
    if let Err(error) = &ended {
        say(&mut stdout, &Answer::Failed(error.to_string()))?;
    }
    ended
}

fn obey(stdout: &mut impl Write) -> Result<(), Error> {
    let mut networks = Networks::make()?;
    let congestion_control = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    say(stdout, &ready(&networks, congestion_control.unwrap_or_default().trim()))?;
    let ends = networks.take_ends()?;
    let line = Line::start(ends).map_err(Error::at("read packets by a ring"))?;
    let mut known = Vec::new();
    for order in io::stdin().lock().lines() {
        let order = order.map_err(Error::process("hear what to do"))?;
        let answer = match serde_json::from_str(&order)? {
            Order::Set(shape) => set(&networks, &line, shape, &mut known)?,
            Order::Carried => carried(&line),
            // Whoever has made the interface has made a mistake; the line goes on.
            Order::Configure(interface) => match networks.configure(&interface) {
                Ok(()) => Answer::Configured,
                Err(error) => Answer::Failed(error.to_string()),
            },
        };
        say(stdout, &answer)?;
    }
    Ok(())
}

/// Other processes find the networks by our handles. A user namespace is ours alone where the networks are in one.
fn ready(networks: &Networks, congestion_control: &str) -> Answer {
    let pid = std::process::id();
    let user = (!nix::unistd::geteuid().is_root()).then(|| format!("/proc/{pid}/ns/user").into());
    let of = |network: &crate::namespace::Network| Namespace {
        user: user.clone(),
        network: format!("/proc/{pid}/fd/{}", network.handle.as_raw_fd()).into(),
    };
    Answer::Ready {
        clients: of(&networks.clients),
        servers: of(&networks.servers),
        congestion_control: congestion_control.to_owned(),
    }
}

/// What was calibrated once is not calibrated again.
fn set(
    networks: &Networks,
    line: &Line,
    shape: LinkShape,
    known: &mut Vec<(LinkShape, SetAnswer)>,
) -> Result<Answer, Error> {
    let segments = if shape.needs_single_packets() { Segments::One } else { Segments::Many };
    networks.set_segments(segments)?;
    if let Some((_, made)) = known.iter().find(|(before, _)| *before == shape) {
        line.set(shape, made.overhead_ns);
        return Ok(Answer::Set(*made));
    }
    let (overhead_ns, round_trip) = calibrate::set(networks, line, shape)?;
    let made = SetAnswer { overhead_ns, round_trip_ns_p50: round_trip.median_ns };
    known.push((shape, made));
    Ok(Answer::Set(made))
}

fn carried(line: &Line) -> Answer {
    let tally = line.take();
    let late = |share| tally.late_ns.value_at_quantile(share);
    Answer::Carried(CarriedAnswer {
        packets: tally.packets,
        bytes: tally.bytes,
        lost: tally.lost,
        dropped: tally.dropped,
        late_ns_mean: tally.late_ns.mean() as u64,
        late_ns_p50: late(0.5),
        late_ns_p99: late(0.99),
        late_ns_max: tally.late_ns.max(),
    })
}

fn say(stdout: &mut impl Write, answer: &Answer) -> Result<(), Error> {
    let mut line = serde_json::to_string(answer)?;
    line.push('\n');
    stdout.write_all(line.as_bytes()).and_then(|()| stdout.flush()).map_err(Error::process("answer"))
}
