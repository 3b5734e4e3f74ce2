//! `make bench-observe`: the CPU time of `ciphertoll observe` compared with a loop over the same ring that only counts packets.
//! Needs root. Whether a goal is met does not change the exit code, because machines differ.

use std::time::Duration;

use anyhow::{Context, Result};
use ciphertoll_bench::interleave::Rounds;
use ciphertoll_bench::observe::bare::{BARE_COMMAND, run_bare_process};
use ciphertoll_bench::observe::conversation::{Conversation, RECORD_COMMAND, run_record_process};
use ciphertoll_bench::observe::traffic::{THREADS, Traffic};
use ciphertoll_bench::observe::{MOST_CPU, ObserveSample, Watcher, measure};
use ciphertoll_bench::{RoundArguments, print_line};
use ciphertoll_experiment::Interrupt;
use clap::Parser;

/// Measure the CPU time of observing: many connects, and bulk data inside of TLS
#[derive(Parser)]
struct CostArguments {
    #[command(flatten)]
    rounds: RoundArguments,
    /// Seconds of each sample
    #[arg(long, default_value_t = 10.0)]
    seconds: f64,
    /// Connects per second
    #[arg(long, default_value_t = 10_000.0)]
    connects: f64,
    /// Packets of bulk data per second
    #[arg(long, default_value_t = 200_000.0)]
    packets: f64,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some(RECORD_COMMAND), _) => run_record_process(),
        (Some(BARE_COMMAND), Some(port)) => {
            let interrupt = Interrupt::default();
            signal_hook::flag::register_usize(signal_hook::consts::SIGINT, interrupt.flag(), 2)
                .context("cannot handle signals")?;
            run_bare_process(&port, &interrupt)
        }
        _ => compare(&CostArguments::parse()),
    }
}

fn compare(arguments: &CostArguments) -> Result<()> {
    let recorded = Conversation::record()?;
    // Every thread has a connection that lasts a second.
    let threads = f64::from(THREADS);
    let bulk = recorded.with_bulk((arguments.packets / threads) as usize);
    let connects = Traffic::new(recorded, arguments.connects, None)?;
    report("connects over TLS 1.3 with three queries", &connects, arguments)?;
    let packets = Traffic::new(bulk, threads, Some(arguments.packets))?;
    report("bulk data inside of TLS 1.3", &packets, arguments)
}

fn report(what: &str, traffic: &Traffic, arguments: &CostArguments) -> Result<()> {
    let window = Duration::from_secs_f64(arguments.seconds);
    let rounds = Rounds::take(Watcher::ALL.len(), &arguments.rounds, |arm| {
        measure(Watcher::ALL[arm], traffic, window)
    })?;
    print_line(&format!("\n{what}"))?;
    for (arm, watcher) in Watcher::ALL.into_iter().enumerate() {
        let level = |of: fn(&ObserveSample) -> f64| rounds.level(arm, of);
        print_line(&format!(
            "  {:<14} {:>7.0} connects/s {:>8.0} packets/s {:>6.3} cores {:>6.0} ns/packet {:>6.3} % dropped",
            watcher.label(),
            level(|sample| sample.connects_per_s),
            level(|sample| sample.packets_per_s),
            level(|sample| sample.cores),
            level(|sample| sample.cpu_ns_per_packet),
            rounds.largest(arm, |sample| sample.dropped) * 1e2,
        ))?;
    }
    let ratio = rounds.ratio(1, 0, |sample| sample.cpu_ns_per_packet).context("too few rounds")?;
    let is_met = if ratio.value <= MOST_CPU { "met" } else { "missed" };
    print_line(&format!("  CPU per packet × {ratio}; goal: at most {MOST_CPU}: {is_met}"))?;
    let lost = |arm| rounds.largest(arm, |sample: &ObserveSample| sample.dropped);
    let is_met = if lost(1) <= lost(0) { "met" } else { "missed" };
    print_line(&format!("  goal: no packet lost that the counting loop does not lose: {is_met}"))
}
