//! The process `__link`: makes the networks and runs the delay line. Reads commands from stdin and writes replies to
//! stdout, each one line of JSON. Exits at the end of stdin.

use std::fs;
use std::io::{self, BufRead, Write};

use ciphertoll_model::{LinkKind, LinkShape};
use nix::sys::prctl;
use nix::sys::signal::Signal;

use crate::backend::{LinkBackend, SelectedBackend};
use crate::clock::process_cpu_ns;
use crate::messages::{LinkCalibration, LinkCommand, LinkCounters, LinkReply, ReadyReply};
use crate::{BY_ARGUMENT, Error, LINK_COMMAND};

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
        (None, _) => Ok(LinkKind::MADE.to_vec()),
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
            LinkCommand::Configure(interface) => {
                done(backend.networks().and_then(|networks| networks.configure(&interface)))
            }
            LinkCommand::Make { end, name, kind } => {
                done(backend.networks().and_then(|networks| networks.make_interface(end, &name, &kind)))
            }
            LinkCommand::Remove { end, name } => {
                done(backend.networks().and_then(|networks| networks.remove_interface(end, &name)))
            }
        };
        say(stdout, &answer)?;
    }
    Ok(())
}

/// Each shape is calibrated once.
fn set(
    backend: &LinkBackend,
    shape: LinkShape,
    known: &mut Vec<(LinkShape, LinkCalibration)>,
) -> Result<LinkReply, Error> {
    if let Some((_, found)) = known.iter().find(|(before, _)| *before == shape) {
        backend.set(shape, found.overhead_ns)?;
        return Ok(LinkReply::Set(*found));
    }
    let found = backend.calibrate(shape)?;
    known.push((shape, found));
    Ok(LinkReply::Set(found))
}

/// `cpu_ns`: CPU time at the last report.
fn carried(backend: &LinkBackend, cpu_ns: &mut u64) -> LinkReply {
    let tally = backend.take_counters();
    let late = |share| tally.late_ns.value_at_quantile(share);
    let used_ns = process_cpu_ns();
    let before_ns = std::mem::replace(cpu_ns, used_ns);
    LinkReply::Counters(LinkCounters {
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
