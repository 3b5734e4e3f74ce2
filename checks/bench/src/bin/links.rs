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
    LinkKind::named(text).context("must be one of: ring, tun, relay")
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
    let micros = |nanos: f64| format!("{:+.0}", nanos * 1e-3);
    let row = |rtt_ms: &f64| {
        let row = accuracy::AccuracyRow::measure(bench, *rtt_ms)?;
        let ping = |value: fn(accuracy::Errors) -> f64| {
            row.ping.map_or("–".to_owned(), |ping| micros(value(ping)))
        };
        Ok([
            ("RTT ms", rtt_ms.to_string()),
            ("connect p50", micros(row.connect.median_ns)),
            ("p99", micros(row.connect.p99_ns)),
            ("ping p50", ping(|errors| errors.median_ns)),
            ("p99", ping(|errors| errors.p99_ns)),
            ("overhead", format!("{:.0}", row.overhead_ns as f64 * 1e-3)),
            ("CPU ns/packet", format!("{:.0}", row.cpu_ns_per_packet)),
            ("link late p99", format!("{:.0}", row.late_ns_p99 as f64 * 1e-3)),
            ("n", row.connect.count.to_string()),
            ("verdict", row.verdict().to_string()),
        ])
    };
    print_table(&rtts.iter().map(row).collect::<Result<Vec<_>>>()?)
}

fn throughput(bench: &mut LinkBench, rtts: &[f64]) -> Result<()> {
    print_line("\nTCP throughput")?;
    let mut rows = Vec::new();
    let shortest = rtts.iter().copied().fold(f64::INFINITY, f64::min);
    for windows in [Windows::Stock, Windows::Largest] {
        for rtt_ms in rtts {
            let one = throughput::ThroughputRow::measure(bench, *rtt_ms, windows, 1)?;
            let wants_many = windows == Windows::Largest && !one.is_full();
            let many =
                wants_many.then(|| throughput::ThroughputRow::measure(bench, *rtt_ms, windows, STREAMS));
            for row in [Some(one), many.transpose()?].into_iter().flatten() {
                rows.push(throughput_row(&row, *rtt_ms <= shortest && row.streams == 1));
            }
        }
    }
    print_table(&rows)
}

fn throughput_row(row: &throughput::ThroughputRow, is_shortest: bool) -> [(&'static str, String); 11] {
    [
        ("RTT ms", row.rtt_ms.to_string()),
        ("windows", if row.windows == Windows::Stock { "stock" } else { "largest" }.to_owned()),
        ("streams", row.streams.to_string()),
        ("Gbit/s", format!("{:.2}", row.bits_per_s * 1e-9)),
        ("CPU ns/packet", format!("{:.0}", row.cpu_ns_per_packet)),
        ("bytes/packet", format!("{:.0}", row.bytes_per_packet)),
        ("retransmitted", row.retransmitted.map_or("–".to_owned(), |count| count.to_string())),
        ("probes", row.probes.to_string()),
        ("dropped", row.dropped.to_string()),
        ("late p99 µs", format!("{:.0}", row.late_ns_p99 as f64 * 1e-3)),
        ("verdict", row.verdict(is_shortest).to_string()),
    ]
}

fn round_trips(by: Option<LinkKind>) -> Result<()> {
    print_line(&format!(
        "\nround trips of connects to real servers over {} ms, including TCP's",
        round_trips::RTT_MS
    ))?;
    let row = |row: &round_trips::RoundTripRow| {
        [
            ("server", row.server.clone()),
            ("path", row.path.clone()),
            ("auth", row.auth.clone()),
            ("ms", format!("{:.1}", row.time_ms)),
            ("÷ RTT", format!("{:.3}", row.ratio())),
            ("local ms", format!("{:.2}", row.local_ms)),
            ("added ÷ RTT", format!("{:.3}", row.added())),
            ("counted", format!("{:.0}", row.added())),
            ("expected", row.expected.to_string()),
            ("verdict", row.verdict().to_string()),
        ]
    };
    print_table(&round_trips::measure(by, print_line)?.iter().map(row).collect::<Vec<_>>())
}

/// Prints rows of columns with right-aligned numbers and, in the last column, a left-aligned verdict.
fn print_table<const N: usize>(rows: &[[(&str, String); N]]) -> Result<()> {
    let Some(first) = rows.first() else { return Ok(()) };
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.force_no_tty();
    table.set_header(first.iter().map(|(column, _)| column));
    for row in rows {
        table.add_row(row.iter().map(|(_, cell)| cell));
    }
    for column in table.column_iter_mut().take(N - 1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    print_line(&table.to_string())
}
