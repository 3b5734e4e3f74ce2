//! `make bench-links`: validates emulated links. Prints measurements and whether they meet their targets; they do not change
//! the exit code, because machines differ.

use anyhow::{Context, Result, bail};
use ciphertoll_bench::links::endpoint::{ENDPOINT_COMMAND, run_endpoint_process};
use ciphertoll_bench::links::throughput::Windows;
use ciphertoll_bench::links::{LinkBench, accuracy, round_trips, throughput};
use ciphertoll_bench::print_line;
use ciphertoll_link::{LINK_COMMAND, run_link_process};
use ciphertoll_model::LinkKind;
use clap::{Parser, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};

/// Number of streams if one stream does not fill a long link.
const STREAMS: usize = 8;

/// Validate emulated links: accuracy, throughput, CPU cost, and round trips of connects
#[derive(Parser)]
struct Arguments {
    /// How to emulate links [default: the best kind that this machine supports]
    #[arg(long, value_parser = kind)]
    by: Option<LinkKind>,
    /// Round-trip times in ms
    #[arg(long, value_delimiter = ',', default_value = "0.2,1,10,45,170")]
    rtt: Vec<f64>,
    /// Run only this part
    #[arg(long, value_enum)]
    only: Option<LinkSection>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum LinkSection {
    Accuracy,
    Throughput,
    RoundTrips,
}

fn kind(text: &str) -> Result<LinkKind> {
    LinkKind::named(text).context("must be one of: ring, tun, netem, relay")
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some(LINK_COMMAND), _) => Ok(run_link_process()?),
        (Some(ENDPOINT_COMMAND), Some(request)) => run_endpoint_process(&request),
        _ => measure(&Arguments::parse()),
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    if arguments.rtt.is_empty() || arguments.rtt.iter().any(|rtt_ms| !(0.1..=10_000.0).contains(rtt_ms)) {
        bail!("round-trip times must be 0.1 to 10000 ms");
    }
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    if wants(LinkSection::Accuracy) || wants(LinkSection::Throughput) {
        let mut bench = LinkBench::make(arguments.by)?;
        let LinkBench { link, .. } = &bench;
        let congestion = link.congestion_control();
        print_line(&format!(
            "link kind {}, MTU {} bytes, congestion control {congestion}",
            link.kind(),
            link.mtu_bytes()
        ))?;
        if let Some(reason) = link.fallback_reason() {
            print_line(&format!("no better kind is possible: {reason}"))?;
        }
        if wants(LinkSection::Accuracy) {
            accuracy(&mut bench, &arguments.rtt)?;
        }
        if wants(LinkSection::Throughput) {
            throughput(&mut bench, &arguments.rtt)?;
        }
    }
    if wants(LinkSection::RoundTrips) {
        round_trips(arguments.by)?;
    }
    Ok(())
}

fn accuracy(bench: &mut LinkBench, rtts: &[f64]) -> Result<()> {
    let what = if bench.delays_packets() { "connect" } else { "half of connect and response" };
    print_line(&format!("\nerror of the round-trip time in µs: median, p99 ({what}; ping)"))?;
    let mut table = table(&[
        "RTT ms",
        "connect p50",
        "p99",
        "ping p50",
        "p99",
        "overhead",
        "CPU ns/packet",
        "link late p99",
        "n",
        "verdict",
    ]);
    for rtt_ms in rtts {
        let row = accuracy::AccuracyRow::measure(bench, *rtt_ms)?;
        let micros = |nanos: f64| format!("{:+.0}", nanos * 1e-3);
        let ping = |value: fn(accuracy::Errors) -> f64| {
            row.ping.map_or("–".to_owned(), |ping| micros(value(ping)))
        };
        table.add_row([
            rtt_ms.to_string(),
            micros(row.connect.median_ns),
            micros(row.connect.p99_ns),
            ping(|errors| errors.median_ns),
            ping(|errors| errors.p99_ns),
            format!("{:.0}", row.overhead_ns as f64 * 1e-3),
            format!("{:.0}", row.cpu_ns_per_packet),
            format!("{:.0}", row.late_ns_p99 as f64 * 1e-3),
            row.connect.count.to_string(),
            row.verdict().to_string(),
        ]);
    }
    print_line(&table.to_string())
}

fn throughput(bench: &mut LinkBench, rtts: &[f64]) -> Result<()> {
    print_line("\nTCP throughput")?;
    let mut table = table(&[
        "RTT ms",
        "windows",
        "streams",
        "Gbit/s",
        "CPU ns/packet",
        "bytes/packet",
        "retransmitted",
        "probes",
        "dropped",
        "late p99 µs",
        "verdict",
    ]);
    let shortest = rtts.iter().copied().fold(f64::INFINITY, f64::min);
    for windows in [Windows::Stock, Windows::Largest] {
        for rtt_ms in rtts {
            let one = throughput::ThroughputRow::measure(bench, *rtt_ms, windows, 1)?;
            let wants_many = windows == Windows::Largest && !one.is_full();
            let many =
                wants_many.then(|| throughput::ThroughputRow::measure(bench, *rtt_ms, windows, STREAMS));
            for row in [Some(one), many.transpose()?].into_iter().flatten() {
                table.add_row(throughput_row(&row, *rtt_ms <= shortest && row.streams == 1));
            }
        }
    }
    print_line(&table.to_string())
}

fn throughput_row(row: &throughput::ThroughputRow, is_shortest: bool) -> [String; 11] {
    [
        row.rtt_ms.to_string(),
        if row.windows == Windows::Stock { "stock" } else { "largest" }.to_owned(),
        row.streams.to_string(),
        format!("{:.2}", row.bits_per_s * 1e-9),
        format!("{:.0}", row.cpu_ns_per_packet),
        format!("{:.0}", row.bytes_per_packet),
        row.retransmitted.map_or("–".to_owned(), |count| count.to_string()),
        row.probes.to_string(),
        row.dropped.to_string(),
        format!("{:.0}", row.late_ns_p99 as f64 * 1e-3),
        row.verdict(is_shortest).to_string(),
    ]
}

fn round_trips(by: Option<LinkKind>) -> Result<()> {
    print_line(&format!(
        "\nround trips of connects to real servers over {} ms, including TCP's",
        round_trips::RTT_MS
    ))?;
    let mut table = table(&[
        "server",
        "path",
        "auth",
        "ms",
        "÷ RTT",
        "local ms",
        "added ÷ RTT",
        "counted",
        "expected",
        "verdict",
    ]);
    for row in round_trips::measure(by, print_line)? {
        table.add_row([
            row.server.clone(),
            row.path.clone(),
            row.auth.clone(),
            format!("{:.1}", row.time_ms),
            format!("{:.3}", row.ratio()),
            format!("{:.2}", row.local_ms),
            format!("{:.3}", row.added()),
            format!("{:.0}", row.added()),
            row.expected.to_string(),
            row.verdict().to_string(),
        ]);
    }
    print_line(&table.to_string())
}

/// A table with right-aligned numbers and a left-aligned verdict.
fn table(columns: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.force_no_tty();
    table.set_header(columns);
    let verdict = columns.len().saturating_sub(1);
    for column in table.column_iter_mut().take(verdict) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
