//! An agent that speaks the real protocol and makes its results up.

use std::io::{self, BufReader};
use std::thread;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ciphertoll_hosts::protocol::{
    FromHost, Hello, MachineWindow, PROTOCOL_VERSION, ToHost, read_line, write_line,
};
use ciphertoll_load::{HISTOGRAM_MAX_NS, monotonic_now_ns};
use ciphertoll_model::{FurtherHistograms, LatencySummary, LoadMessage, Phase, TrialResult, TrialSpec};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The hidden command, with a number that makes its results differ.
pub const MOCK_AGENT_COMMAND: &str = "__mock-agent";

/// Operations of a trial: a host with eight clients does more in two seconds, but the shape of a histogram, and with
/// it its size, hardly changes.
const OPERATIONS: u64 = 20_000;

/// Runs the agent until the end of stdin.
pub fn run_mock_agent(number: u64) -> Result<()> {
    let result = result(number)?;
    let (mut input, mut output) = (BufReader::new(io::stdin().lock()), io::stdout().lock());
    let mut say = |message: &FromHost| write_line(&mut output, message);
    say(&FromHost::Hello(hello(number)))?;
    let mut spec: Option<TrialSpec> = None;
    while let Some(message) = read_line::<ToHost>(&mut input)? {
        match message {
            ToHost::Ping { number } => {
                let received_ns = monotonic_now_ns();
                say(&FromHost::Pong { number, received_ns, sent_ns: monotonic_now_ns() })?;
            }
            ToHost::Trial(trial) => {
                say(&FromHost::Load { trial: trial.number, message: LoadMessage::Ready })?;
                spec = Some(trial.spec);
            }
            ToHost::BeginAt { trial, monotonic_ns } => {
                let Some(spec) = &spec else { continue };
                let opens_at_ns = monotonic_ns + spec.warm_up_ns;
                let closes_at_ns = opens_at_ns + spec.window_ns;
                say(&FromHost::Load { trial, message: LoadMessage::Begun { opens_at_ns, closes_at_ns } })?;
                sleep_until(opens_at_ns);
                say(&FromHost::Load { trial, message: LoadMessage::WindowOpened })?;
                sleep_until(closes_at_ns);
                say(&FromHost::Load { trial, message: LoadMessage::WindowClosed })?;
                let machine =
                    MachineWindow { elapsed_ns: spec.window_ns, processors: 1, ..MachineWindow::default() };
                say(&FromHost::Window { trial, machine })?;
                let result = TrialResult { window_ns: spec.window_ns, ..result.clone() };
                say(&FromHost::Load { trial, message: LoadMessage::Finished(Box::new(result)) })?;
            }
            ToHost::Abort { .. } | ToHost::ReadServerCpu { .. } => {}
            ToHost::Bye => break,
        }
    }
    Ok(())
}

fn hello(number: u64) -> Hello {
    Hello {
        protocol_version: PROTOCOL_VERSION,
        tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        architecture: "simulated".to_owned(),
        kernel: "0".to_owned(),
        cpu_model: "simulated".to_owned(),
        processors: 1,
        tls_library: "none".to_owned(),
        boot_id: number.to_string(),
    }
}

fn sleep_until(monotonic_ns: u64) {
    thread::sleep(Duration::from_nanos(monotonic_ns.saturating_sub(monotonic_now_ns())));
}

/// Log-normal times with a tail, as queries have them, in four histograms, as an open loop sends them.
fn result(number: u64) -> Result<TrialResult> {
    let mut random = Pcg64Mcg::seed_from_u64(number);
    let mut times = |median_ns: f64| -> Result<(LatencySummary, String)> {
        let mut histogram = Histogram::<u64>::new_with_max(HISTOGRAM_MAX_NS, 3)?;
        let mut sum_ns = 0;
        for _ in 0..OPERATIONS {
            // The sum of uniform numbers is almost normal.
            let normal = (0..12).map(|_| random.random::<f64>()).sum::<f64>() - 6.0;
            let tail = if random.random::<f64>() < 0.01 { 20.0 } else { 1.0 };
            let nanos = (median_ns * (0.4 * normal).exp() * tail) as u64;
            sum_ns += nanos;
            histogram.saturating_record(nanos);
        }
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&histogram, &mut bytes)?;
        let quantile = |share| histogram.value_at_quantile(share);
        let summary = LatencySummary {
            count: histogram.len(),
            sum_ns,
            p50_ns: quantile(0.5),
            p95_ns: quantile(0.95),
            p99_ns: quantile(0.99),
            max_ns: histogram.max(),
        };
        Ok((summary, STANDARD.encode(bytes)))
    };
    let (latency, histogram_base64) = times(900_000.0)?;
    let (service, service_base64) = times(850_000.0)?;
    let (schedule_lag, schedule_lag_base64) = times(40_000.0)?;
    let (_, tcp_connect_base64) = times(120_000.0)?;
    Ok(TrialResult {
        operations: OPERATIONS,
        operations_in_all: Some(OPERATIONS * 5 / 4),
        operations_by_half: [OPERATIONS / 2; 2],
        latency,
        service: Some(service),
        schedule_lag: Some(schedule_lag),
        phase_sums_ns: Phase::ALL.into_iter().map(|phase| (phase, latency.sum_ns / 10)).collect(),
        histogram_base64,
        client_cpu_ns: 1_000_000_000,
        client_rss_peak_bytes: 10 << 20,
        further_histograms: Some(Box::new(FurtherHistograms {
            service_base64,
            schedule_lag_base64,
            tcp_connect_base64,
        })),
        ..TrialResult::default()
    })
}
