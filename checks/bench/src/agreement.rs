//! Compares the throughput and latency that ciphertoll and another tool report for the same server. Explains differences
//! from CPU times.

use std::fmt;

use crate::arm::{Generator, Sample};
use crate::interleave::{Ratio, Rounds};

/// If the processors are saturated, the ratio of rates ÷ the inverse ratio of CPU times is in this range.
const EXPLAINED: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// Maximum ratio between the limits of a useful interval.
const TOO_WIDE: f64 = 1.5;
/// Minimum share of time that a client spends in operations, unless it also does something else.
const MIN_ACTIVITY: f64 = 0.97;
/// Minimum CPU utilization by client and server for the processors to count as saturated.
const SATURATED: f64 = 0.85;

#[derive(Clone, Debug)]
pub struct Agreement {
    pub tool: Generator,
    /// Throughput, ciphertoll ÷ tool.
    pub rate: Ratio,
    /// Mean latency, ciphertoll ÷ the tool's report.
    pub mean: Ratio,
    /// 95th percentile of latency, if the tool reports it.
    pub p95: Option<Ratio>,
    own: Levels,
    others: Levels,
    clients: f64,
    processors: f64,
}

/// Geometric means over the rounds.
#[derive(Clone, Copy, Debug)]
struct Levels {
    rate_per_s: f64,
    mean_us: f64,
    client_cpu_us: f64,
    server_cpu_us: f64,
}

impl Agreement {
    /// Compares the arms `own` and `tool`. `None` if there are too few rounds.
    pub fn of(
        rounds: &Rounds,
        own: usize,
        tool: (usize, Generator),
        clients: u16,
        processors: usize,
    ) -> Option<Self> {
        let (peer, tool) = tool;
        let p95 = |sample: &Sample| sample.p95_us.unwrap_or(f64::NAN);
        Some(Self {
            tool,
            rate: rounds.ratio(own, peer, |sample| sample.rate_per_s)?,
            mean: rounds.ratio(own, peer, |sample| sample.mean_us)?,
            p95: rounds.ratio(own, peer, p95).filter(|ratio| ratio.value.is_finite()),
            own: Levels::of(rounds, own),
            others: Levels::of(rounds, peer),
            clients: f64::from(clients),
            processors: processors as f64,
        })
    }

    /// Whether throughput and mean latency are equal within their intervals.
    pub fn agrees(&self) -> bool {
        self.rate.contains(1.0) && self.mean.contains(1.0)
    }

    /// Whether the intervals are narrow enough for agreement to be meaningful.
    fn is_precise(&self) -> bool {
        [self.rate, self.mean].iter().all(|ratio| ratio.high <= ratio.low * TOO_WIDE)
    }

    pub fn reason(&self) -> String {
        let tool_activity = self.others.active_clients() / self.clients;
        if self.rate.contains(1.0) && tool_activity < MIN_ACTIVITY {
            let elsewhere = (1.0 - tool_activity) * 100.0;
            let tool = self.tool.label();
            return format!(
                "{tool} does not count the time between operations, which is {elsewhere:.0} % of its clients' time"
            );
        }
        self.reason_of_rates()
    }

    fn reason_of_rates(&self) -> String {
        let (own, others, tool) = (self.own, self.others, self.tool.label());
        let [own_used, tool_used] = [own, others].map(|levels| levels.utilization(self.processors));
        let (idler, used) = if own_used < tool_used { ("ciphertoll", own_used) } else { (tool, tool_used) };
        if used < SATURATED {
            return format!(
                "with {idler}, client and server used only {:.0} % of the CPU: they waited for wake-ups or for other \
                 processes",
                used * 100.0
            );
        }
        if !EXPLAINED.contains(&(self.rate.value / (others.cpu_us() / own.cpu_us()))) {
            return "unknown: the processors are saturated, and the CPU times do not explain it".to_owned();
        }
        let ((more, heavier), (less, lighter)) = if others.cpu_us() >= own.cpu_us() {
            ((tool, others), ("ciphertoll", own))
        } else {
            (("ciphertoll", own), (tool, others))
        };
        let client_us = heavier.client_cpu_us - lighter.client_cpu_us;
        let server_us = heavier.server_cpu_us - lighter.server_cpu_us;
        let cause = if client_us >= server_us {
            format!(
                "{more} itself uses {client_us:.1} µs more CPU per operation, which leaves less for the server"
            )
        } else {
            format!("the server uses {server_us:.1} µs more CPU per operation with {more} than with {less}")
        };
        format!("client and server share saturated processors: {cause}")
    }
}

impl Levels {
    fn of(rounds: &Rounds, arm: usize) -> Self {
        let server_cpu_us = |sample: &Sample| sample.server_cpu_us_per_op.unwrap_or(f64::NAN);
        Self {
            rate_per_s: rounds.level(arm, |sample| sample.rate_per_s),
            mean_us: rounds.level(arm, |sample| sample.mean_us),
            client_cpu_us: rounds.level(arm, |sample| sample.cpu_us_per_op),
            server_cpu_us: rounds.level(arm, server_cpu_us),
        }
    }

    /// CPU time of client and server per operation.
    fn cpu_us(self) -> f64 {
        self.client_cpu_us + self.server_cpu_us
    }

    fn utilization(self, processors: f64) -> f64 {
        self.rate_per_s * self.cpu_us() * 1e-6 / processors
    }

    /// Mean number of clients in an operation, by Little's law. Must be slightly below the number of clients, unless the
    /// clock is wrong.
    fn active_clients(self) -> f64 {
        self.rate_per_s * self.mean_us * 1e-6
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, others, tool) = (self.own, self.others, self.tool.label());
        write!(
            formatter,
            "rate × {}; mean {:.1} µs, {tool} reports {:.1}: × {}",
            self.rate, own.mean_us, others.mean_us, self.mean
        )?;
        if let Some(p95) = self.p95 {
            write!(formatter, "; p95 × {p95}")?;
        }
        write!(
            formatter,
            "\n    rate × mean: {:.2} of {} clients active, {tool} {:.2}; CPU of client + server {:.1} + {:.1} µs, \
             {tool} {:.1} + {:.1}",
            own.active_clients(),
            self.clients,
            others.active_clients(),
            own.client_cpu_us,
            own.server_cpu_us,
            others.client_cpu_us,
            others.server_cpu_us
        )?;
        match (self.agrees(), self.is_precise()) {
            (true, true) => write!(formatter, "\n    they agree within the intervals"),
            (true, false) => {
                write!(formatter, "\n    inconclusive: the intervals are too wide; use more --rounds")
            }
            (false, _) => write!(formatter, "\n    they differ; {}", self.reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds each; tuples of rate, client CPU and server CPU in µs; 8 clients that are never idle.
    fn agreement(own: (f64, f64, f64), others: (f64, f64, f64)) -> Agreement {
        let arm = |(rate_per_s, client, server): (f64, f64, f64)| {
            let sample = |factor: f64| Sample {
                rate_per_s: rate_per_s * factor,
                cpu_us_per_op: client,
                server_cpu_us_per_op: Some(server),
                mean_us: 8e6 / (rate_per_s * factor),
                p95_us: None,
            };
            vec![sample(0.99), sample(1.01)]
        };
        let rounds = Rounds::of(vec![arm(own), arm(others)]);
        Agreement::of(&rounds, 0, (1, Generator::Pgbench), 8, 2).expect("two rounds are enough")
    }

    #[test]
    fn equal_rates_agree() {
        let same = agreement((50_000.0, 10.0, 30.0), (50_000.0, 10.0, 30.0));
        assert!(same.agrees());
        assert!(same.to_string().ends_with("they agree within the intervals"), "{same}");
        assert!(same.to_string().contains("8.00 of 8 clients active"), "{same}");
        assert_eq!(same.p95, None);
    }

    #[test]
    fn wide_intervals_are_inconclusive() {
        let wide = Ratio { value: 1.0, low: 0.5, high: 2.0 };
        let same = agreement((50_000.0, 10.0, 30.0), (50_000.0, 10.0, 30.0));
        let unknown = Agreement { rate: wide, ..same };
        assert!(unknown.to_string().contains("inconclusive"), "{unknown}");
    }

    #[test]
    fn time_between_operations_is_a_reason() {
        let same = agreement((50_000.0, 10.0, 30.0), (50_000.0, 10.0, 30.0));
        let others = Levels { mean_us: 144.0, ..same.others };
        let mean = Ratio { value: 1.14, low: 1.1, high: 1.2 };
        let shorter = Agreement { mean, others, ..same };
        assert!(shorter.to_string().contains("which is 10 % of its clients' time"), "{shorter}");
    }

    #[test]
    fn a_heavier_tool_is_named() {
        let heavier = agreement((50_000.0, 10.0, 30.0), (40_000.0, 20.0, 30.0));
        assert!(!heavier.agrees());
        let reason = heavier.reason();
        assert!(reason.contains("pgbench itself uses 10.0 µs more CPU per operation"), "{reason}");
        let lighter = agreement((40_000.0, 10.0, 40.0), (50_000.0, 10.0, 30.0));
        assert!(lighter.reason().contains("the server uses 10.0 µs more CPU per operation with ciphertoll"));
    }

    #[test]
    fn idle_processors_are_another_reason() {
        let idle = agreement((50_000.0, 10.0, 30.0), (30_000.0, 10.0, 30.0));
        assert!(
            idle.reason().contains("with pgbench, client and server used only 60 % of the CPU"),
            "{}",
            idle.reason()
        );
    }

    #[test]
    fn an_unknown_reason_is_reported_as_unknown() {
        let odd = agreement((50_000.0, 10.0, 30.0), (40_000.0, 10.0, 40.0 - 4.0));
        assert!(odd.reason().starts_with("unknown") || odd.reason().contains("the server uses"));
        let odd = agreement((50_000.0, 20.0, 40.0), (40_000.0, 10.0, 40.0));
        assert!(odd.reason().starts_with("unknown"), "{}", odd.reason());
    }
}
