//! `make bench-links`: long links against what they are made for. Prints what was measured and, in words, whether that is
//! as is wanted; judges nothing by its exit code, for machines differ.

use anyhow::{Context, Result, bail};
use ciphertoll_bench::links::end::{END_COMMAND, run_end_process};
use ciphertoll_bench::links::throughput::Windows;
use ciphertoll_bench::links::{Stand, accuracy, round_trips, throughput};
use ciphertoll_bench::say;
use ciphertoll_link::{LINK_COMMAND, run_link_process};
use ciphertoll_model::LinkKind;
use clap::{Parser, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};

/// Beside one stream, where that does not fill a long link.
const STREAMS: usize = 8;

/// Long links against what they are made for: how exact, how fast, at what cost, and what connects take over them
#[derive(Parser)]
struct Arguments {
    /// How links are made; the best way that this machine allows, where absent
    #[arg(long, value_parser = kind)]
    by: Option<LinkKind>,
    /// Round trips, ms
    #[arg(long, value_delimiter = ',', default_value = "0.2,1,10,45,170")]
    rtt: Vec<f64>,
    /// Only this part
    #[arg(long, value_enum)]
    only: Option<Part>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Accuracy,
    Throughput,
    RoundTrips,
}

fn kind(text: &str) -> Result<LinkKind> {
    LinkKind::named(text).context("it is one of: ring, tun, netem, relay")
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some(LINK_COMMAND), _) => Ok(run_link_process()?),
        (Some(END_COMMAND), Some(order)) => run_end_process(&order),
        _ => measure(&Arguments::parse()),
    }
}

fn measure(arguments: &Arguments) -> Result<()> {
    if arguments.rtt.is_empty() || arguments.rtt.iter().any(|rtt_ms| !(0.1..=10_000.0).contains(rtt_ms)) {
        bail!("round trips are of 0.1 to 10000 ms");
    }
    let wants = |part| arguments.only.is_none_or(|only| only == part);
    if wants(Part::Accuracy) || wants(Part::Throughput) {
        let mut stand = Stand::make(arguments.by)?;
        let Stand { link, .. } = &stand;
        let congestion = link.congestion_control();
        say(&format!("links by {}, MTU {} bytes, {congestion}", link.kind(), link.mtu_bytes()))?;
        if let Some(reason) = link.fallback_reason() {
            say(&format!("no better can be made here: {reason}"))?;
        }
        if wants(Part::Accuracy) {
            accuracy(&mut stand, &arguments.rtt)?;
        }
        if wants(Part::Throughput) {
            throughput(&mut stand, &arguments.rtt)?;
        }
    }
    if wants(Part::RoundTrips) {
        ciphertoll_record::sweep(&ciphertoll_record::scratch_root())?;
        round_trips(arguments.by)?;
    }
    Ok(())
}

fn accuracy(stand: &mut Stand, rtts: &[f64]) -> Result<()> {
    let what = if stand.delays_packets() { "connect" } else { "connect and answer, half" };
    say(&format!("\nerror of a round trip, µs: median, p99 ({what}; ping)"))?;
    let mut table = table(&[
        "RTT ms",
        "connect p50",
        "p99",
        "ping p50",
        "p99",
        "taken off",
        "CPU ns/packet",
        "line late p99",
        "n",
        "verdict",
    ]);
    for rtt_ms in rtts {
        let row = accuracy::Row::measure(stand, *rtt_ms)?;
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
    say(&table.to_string())
}

fn throughput(stand: &mut Stand, rtts: &[f64]) -> Result<()> {
    say("\nwhat TCP gets through")?;
    let mut table = table(&[
        "RTT ms",
        "windows",
        "streams",
        "Gbit/s",
        "CPU ns/packet",
        "bytes/packet",
        "sent again",
        "probes",
        "dropped",
        "late p99 µs",
        "verdict",
    ]);
    let shortest = rtts.iter().copied().fold(f64::INFINITY, f64::min);
    for windows in [Windows::Stock, Windows::Largest] {
        for rtt_ms in rtts {
            let one = throughput::Row::measure(stand, *rtt_ms, windows, 1)?;
            let wants_many = windows == Windows::Largest && !one.is_full();
            let many = wants_many.then(|| throughput::Row::measure(stand, *rtt_ms, windows, STREAMS));
            for row in [Some(one), many.transpose()?].into_iter().flatten() {
                table.add_row(throughput_row(&row, *rtt_ms <= shortest && row.streams == 1));
            }
        }
    }
    say(&table.to_string())
}

fn throughput_row(row: &throughput::Row, is_shortest: bool) -> [String; 11] {
    [
        row.rtt_ms.to_string(),
        if row.windows == Windows::Stock { "stock" } else { "largest" }.to_owned(),
        row.streams.to_string(),
        format!("{:.2}", row.bits_per_s * 1e-9),
        format!("{:.0}", row.cpu_ns_per_packet),
        format!("{:.0}", row.bytes_per_packet),
        row.sent_again.map_or("–".to_owned(), |count| count.to_string()),
        row.probes.to_string(),
        row.dropped.to_string(),
        format!("{:.0}", row.late_ns_p99 as f64 * 1e-3),
        row.verdict(is_shortest).to_string(),
    ]
}

fn round_trips(by: Option<LinkKind>) -> Result<()> {
    say(&format!("\nconnects to real servers over {} ms, TCP's round trip included", round_trips::RTT_MS))?;
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
    for row in round_trips::measure(by, say)? {
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
    say(&table.to_string())
}

/// Numbers to the right, the verdict to the left.
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
