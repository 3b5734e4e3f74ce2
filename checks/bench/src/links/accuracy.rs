//! Accuracy of round-trip times, measured with TCP connects and pings.

use anyhow::{Context, Result};

use super::endpoint::{EndpointTask, run_at_endpoint};
use super::{LinkBench, LinkVerdict, shape};

/// Maximum error of the median: a share of the round trip or an absolute time, whichever is larger.
const MAX_MEDIAN_SHARE: f64 = 0.01;
const MAX_MEDIAN_NS: f64 = 50e3;
/// The same for the 99th percentile.
const MAX_P99_SHARE: f64 = 0.05;
const MAX_P99_NS: f64 = 500e3;
/// Time per kind of measurement and round-trip time.
const BUDGET_MS: f64 = 8_000.0;
const MIN_COUNT: usize = 31;
const MAX_COUNT: usize = 2_000;

#[derive(Clone, Debug)]
pub struct AccuracyRow {
    pub rtt_ms: f64,
    /// The link's own overhead, which was subtracted.
    pub overhead_ns: u64,
    /// Errors of connects. For a relay: of half the duration of a connect with a first response.
    pub connect: Errors,
    /// Errors of pings; `None` for a relay.
    pub ping: Option<Errors>,
    /// CPU time of the link per packet, for single packets.
    pub cpu_ns_per_packet: f64,
    /// 99th percentile of the link's own lateness. Larger errors are caused by the machine.
    pub late_ns_p99: u64,
}

/// Differences from the target; negative if too short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    pub median_ns: f64,
    pub p99_ns: f64,
    pub count: usize,
}

impl Errors {
    /// From durations of `trips` round trips each.
    fn of(mut times: Vec<u64>, trips: f64, target_ns: f64) -> Option<Self> {
        times.sort_unstable();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
            times.get(index).map(|time| *time as f64 / trips - target_ns)
        };
        Some(Self { median_ns: at(0.5)?, p99_ns: at(0.99)?, count: times.len() })
    }

    fn judge(self, what: &str, target_ns: f64, verdict: &mut LinkVerdict) {
        let over =
            |error_ns: f64, share: f64, most_ns: f64| error_ns.abs() > (target_ns * share).max(most_ns);
        verdict.add_if(over(self.median_ns, MAX_MEDIAN_SHARE, MAX_MEDIAN_NS), || format!("median {what}"));
        // A negative error is judged by the median.
        verdict.add_if(over(self.p99_ns.max(0.0), MAX_P99_SHARE, MAX_P99_NS), || format!("p99 {what}"));
    }
}

impl AccuracyRow {
    /// Sets the link to this round-trip time and measures.
    pub fn measure(bench: &mut LinkBench, rtt_ms: f64) -> Result<Self> {
        let made = bench.link.set(shape(rtt_ms))?;
        let count = ((BUDGET_MS / rtt_ms) as usize).clamp(MIN_COUNT, MAX_COUNT);
        let target_ns = rtt_ms * 1e6;
        let server = bench.server.address;
        let clients = bench.link.clients().cloned();
        let run = |task| run_at_endpoint(&bench.program, clients.as_ref(), task);
        bench.link.read_counters()?;
        let (connects, trips) = if clients.is_some() {
            (run(EndpointTask::Connect(server, count))?, 1.0)
        } else {
            let relay = bench.link.find_address(server.port())?;
            (run(EndpointTask::Talk(relay, count))?, 2.0)
        };
        let carried = bench.link.read_counters()?;
        let ping = match server.ip() {
            std::net::IpAddr::V4(ip) if clients.is_some() => {
                Errors::of(run(EndpointTask::Ping(ip, count))?, 1.0, target_ns)
            }
            _ => None,
        };
        Ok(Self {
            rtt_ms,
            overhead_ns: made.overhead_ns,
            connect: Errors::of(connects, trips, target_ns).context("no connects")?,
            ping,
            cpu_ns_per_packet: carried.cpu_ns as f64 / (carried.packets as f64).max(1.0),
            late_ns_p99: carried.late_ns_p99,
        })
    }

    pub fn verdict(&self) -> LinkVerdict {
        let mut verdict = LinkVerdict::default();
        self.connect.judge("connect", self.rtt_ms * 1e6, &mut verdict);
        if let Some(ping) = self.ping {
            ping.judge("ping", self.rtt_ms * 1e6, &mut verdict);
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_of_the_median_and_the_99th_percentile() {
        let times = (1..=100).map(|number| 1_000_000 + number * 1_000).collect();
        let errors = Errors::of(times, 1.0, 1e6).unwrap();
        assert_eq!(errors, Errors { median_ns: 50e3, p99_ns: 99e3, count: 100 });
        assert!(Errors::of(Vec::new(), 1.0, 1e6).is_none());
    }

    #[test]
    fn tolerance_is_relative_for_long_links_and_absolute_for_short_ones() {
        let judged = |rtt_ms: f64, median_ns, p99_ns| {
            let connect = Errors { median_ns, p99_ns, count: 31 };
            AccuracyRow {
                rtt_ms,
                overhead_ns: 0,
                connect,
                ping: None,
                cpu_ns_per_packet: 0.0,
                late_ns_p99: 0,
            }
            .verdict()
            .to_string()
        };
        assert_eq!(judged(0.2, 49e3, 499e3), "ok");
        assert_eq!(judged(0.2, -51e3, 501e3), "over: median connect, p99 connect");
        assert_eq!(judged(100.0, 990e3, 4.9e6), "ok");
        assert_eq!(judged(100.0, 0.0, 5.1e6), "over: p99 connect");
    }
}
