//! How exact round trips are: TCP's connects, and echoes.

use anyhow::{Context, Result};

use super::end::{Task, at_end};
use super::{Stand, Verdict, shape};

/// How far the median may be off: so much of the round trip, or this, whichever is more.
const MOST_MEDIAN_SHARE: f64 = 0.01;
const MOST_MEDIAN_NS: f64 = 50e3;
/// The same of the 99th percentile.
const MOST_P99_SHARE: f64 = 0.05;
const MOST_P99_NS: f64 = 500e3;
/// Of each kind at each round trip.
const BUDGET_MS: f64 = 8_000.0;
const FEWEST: usize = 31;
const MOST: usize = 2_000;

/// What one round trip was found to be.
#[derive(Clone, Debug)]
pub struct Row {
    /// As it was asked for, ms.
    pub rtt_ms: f64,
    /// What of it was the line's own and was taken off, ns.
    pub overhead_ns: u64,
    /// By connects; by a relay, by connects and their first answers, of which each has half.
    pub connect: Errors,
    /// By echoes; none by a relay.
    pub ping: Option<Errors>,
    /// CPU time of the line for a packet, where packets come one by one, ns.
    pub cpu_ns_per_packet: f64,
    /// How late the line itself sent the connects' packets on: 99th percentile, ns. What is later than that is so by the
    /// machine.
    pub late_ns_p99: u64,
}

/// How far from the target, ns; below 0 where too short.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Errors {
    /// The median's.
    pub median_ns: f64,
    /// The 99th percentile's.
    pub p99_ns: f64,
    /// Of how many.
    pub count: usize,
}

impl Errors {
    /// Of times in ns, each of `trips` round trips.
    fn of(mut times: Vec<u64>, trips: f64, target_ns: f64) -> Option<Self> {
        times.sort_unstable();
        let at = |share: f64| {
            let index = ((times.len() as f64 * share).ceil() as usize).saturating_sub(1);
            times.get(index).map(|time| *time as f64 / trips - target_ns)
        };
        Some(Self { median_ns: at(0.5)?, p99_ns: at(0.99)?, count: times.len() })
    }

    fn judge(self, what: &str, target_ns: f64, verdict: &mut Verdict) {
        let over =
            |error_ns: f64, share: f64, most_ns: f64| error_ns.abs() > (target_ns * share).max(most_ns);
        verdict.over(over(self.median_ns, MOST_MEDIAN_SHARE, MOST_MEDIAN_NS), || format!("median {what}"));
        // That it comes too soon would be the median's fault.
        verdict.over(over(self.p99_ns.max(0.0), MOST_P99_SHARE, MOST_P99_NS), || format!("p99 {what}"));
    }
}

impl Row {
    /// Sets the link to this round trip and looks.
    pub fn measure(stand: &mut Stand, rtt_ms: f64) -> Result<Self> {
        let made = stand.link.set(shape(rtt_ms))?;
        let count = ((BUDGET_MS / rtt_ms) as usize).clamp(FEWEST, MOST);
        let target_ns = rtt_ms * 1e6;
        let server = stand.server.address;
        let clients = stand.link.clients().cloned();
        let run = |task| at_end(&stand.program, clients.as_ref(), task);
        stand.link.read_counters()?;
        let (connects, trips) = if clients.is_some() {
            (run(Task::Connect(server, count))?, 1.0)
        } else {
            let relay = stand.link.find_address(server.port())?;
            (run(Task::Talk(relay, count))?, 2.0)
        };
        let carried = stand.link.read_counters()?;
        let ping = match server.ip() {
            std::net::IpAddr::V4(ip) if clients.is_some() => {
                Errors::of(run(Task::Ping(ip, count))?, 1.0, target_ns)
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

    /// Against the targets.
    pub fn verdict(&self) -> Verdict {
        let mut verdict = Verdict::default();
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
    fn errors_are_of_the_median_and_of_the_worst() {
        let times = (1..=100).map(|number| 1_000_000 + number * 1_000).collect();
        let errors = Errors::of(times, 1.0, 1e6).unwrap();
        assert_eq!(errors, Errors { median_ns: 50e3, p99_ns: 99e3, count: 100 });
        assert!(Errors::of(Vec::new(), 1.0, 1e6).is_none());
    }

    #[test]
    fn a_share_of_a_long_link_is_tolerated_and_some_time_of_a_short_one() {
        let judged = |rtt_ms: f64, median_ns, p99_ns| {
            let connect = Errors { median_ns, p99_ns, count: 31 };
            Row { rtt_ms, overhead_ns: 0, connect, ping: None, cpu_ns_per_packet: 0.0, late_ns_p99: 0 }
                .verdict()
                .to_string()
        };
        assert_eq!(judged(0.2, 49e3, 499e3), "ok");
        assert_eq!(judged(0.2, -51e3, 501e3), "over: median connect, p99 connect");
        assert_eq!(judged(100.0, 990e3, 4.9e6), "ok");
        assert_eq!(judged(100.0, 0.0, 5.1e6), "over: p99 connect");
    }
}
