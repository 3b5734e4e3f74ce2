//! Does ciphertoll tell what a tool tells of the same server? Rates and times beside one another, and
//! where they differ, the reason as far as the CPU times show it.

use std::fmt;

use crate::arm::{Generator, Sample};
use crate::interleave::{Ratio, Rounds};

/// Rates that differ because the processors are full differ by this much less or more than the CPU
/// times say.
const EXPLAINED: std::ops::RangeInclusive<f64> = 0.9..=1.1;
/// An interval whose limits are further apart than this tells nothing.
const TOO_WIDE: f64 = 1.5;
/// A client that is within an operation for less than this share of its time is elsewhere for some.
const AT_WORK: f64 = 0.97;
/// With less than this share of the processors, client and server do not fill them.
const FULL: f64 = 0.85;

/// ciphertoll beside one tool.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// The tool.
    pub tool: Generator,
    /// Rate, ours ÷ the tool's.
    pub rate: Ratio,
    /// Mean time of an operation, ours ÷ what the tool prints.
    pub mean: Ratio,
    /// Its 95th percentile, where the tool prints it.
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
    /// Of the arms `own` and `tool`; none where there are too few rounds.
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

    /// Whether neither the rates nor the mean times can be told apart.
    pub fn agrees(&self) -> bool {
        self.rate.holds(1.0) && self.mean.holds(1.0)
    }

    /// Whether agreement would mean anything.
    fn is_certain(&self) -> bool {
        [self.rate, self.mean].iter().all(|ratio| ratio.high <= ratio.low * TOO_WIDE)
    }

    /// Why they differ, as far as is known.
    pub fn reason(&self) -> String {
        let tool_at_work = self.others.clients_at_work() / self.clients;
        if self.rate.holds(1.0) && tool_at_work < AT_WORK {
            let elsewhere = (1.0 - tool_at_work) * 100.0;
            let tool = self.tool.label();
            return format!(
                "{tool} counts no time between operations, which is {elsewhere:.0} % of its clients' time"
            );
        }
        self.reason_of_rates()
    }

    fn reason_of_rates(&self) -> String {
        let (own, others, tool) = (self.own, self.others, self.tool.label());
        let explained = self.rate.value / (others.cpu_us() / own.cpu_us());
        let both_full = own.busy(self.processors).min(others.busy(self.processors)) >= FULL;
        if both_full && EXPLAINED.contains(&explained) {
            let client_us = others.client_cpu_us - own.client_cpu_us;
            let server_us = others.server_cpu_us - own.server_cpu_us;
            let (more, less) =
                if client_us + server_us >= 0.0 { (tool, "ciphertoll") } else { ("ciphertoll", tool) };
            let (client_us, server_us) =
                if more == tool { (client_us, server_us) } else { (-client_us, -server_us) };
            let where_ = if client_us >= server_us {
                format!(
                    "{more} itself uses {client_us:.1} µs more CPU an operation, so that less is left for the server"
                )
            } else {
                format!(
                    "the server uses {server_us:.1} µs more CPU an operation under {more} than under {less}"
                )
            };
            return format!("client and server share processors, which are full: {where_}");
        }
        if !both_full {
            let (idler, busy) = if own.busy(self.processors) < others.busy(self.processors) {
                ("ciphertoll", own.busy(self.processors))
            } else {
                (tool, others.busy(self.processors))
            };
            return format!(
                "under {idler} client and server had {:.0} % of the processors only: they waited to be woken, or \
                 for others who ran here",
                busy * 100.0
            );
        }
        "not known: the processors are full, and the CPU times do not explain it".to_owned()
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

    /// Of an operation, client's and server's.
    fn cpu_us(self) -> f64 {
        self.client_cpu_us + self.server_cpu_us
    }

    /// Share of the processors that client and server keep busy.
    fn busy(self, processors: f64) -> f64 {
        self.rate_per_s * self.cpu_us() * 1e-6 / processors
    }

    /// Clients that are within an operation at any time, by Little's law: no more than there are, and few
    /// less, or the clock is wrong.
    fn clients_at_work(self) -> f64 {
        self.rate_per_s * self.mean_us * 1e-6
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (own, others, tool) = (self.own, self.others, self.tool.label());
        write!(
            formatter,
            "rate × {}; mean {:.1} µs, {tool} says {:.1}: × {}",
            self.rate, own.mean_us, others.mean_us, self.mean
        )?;
        if let Some(p95) = self.p95 {
            write!(formatter, "; p95 × {p95}")?;
        }
        write!(
            formatter,
            "\n    rate × mean: {:.2} of {} clients at work, {tool} {:.2}; CPU of client + server {:.1} + {:.1} µs, \
             {tool} {:.1} + {:.1}",
            own.clients_at_work(),
            self.clients,
            others.clients_at_work(),
            own.client_cpu_us,
            own.server_cpu_us,
            others.client_cpu_us,
            others.server_cpu_us
        )?;
        match (self.agrees(), self.is_certain()) {
            (true, true) => write!(formatter, "\n    they agree within the intervals"),
            (true, false) => {
                write!(formatter, "\n    the intervals are too wide to tell; take more --rounds")
            }
            (false, _) => write!(formatter, "\n    they differ; {}", self.reason()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two rounds each; CPU in µs of client and server; 8 clients that are never idle.
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
        assert!(same.to_string().contains("8.00 of 8 clients at work"), "{same}");
        assert_eq!(same.p95, None);
    }

    #[test]
    fn wide_intervals_are_no_agreement() {
        let wide = Ratio { value: 1.0, low: 0.5, high: 2.0 };
        let same = agreement((50_000.0, 10.0, 30.0), (50_000.0, 10.0, 30.0));
        let unknown = Agreement { rate: wide, ..same };
        assert!(unknown.to_string().contains("too wide to tell"), "{unknown}");
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
        assert!(reason.contains("pgbench itself uses 10.0 µs more CPU an operation"), "{reason}");
        let lighter = agreement((40_000.0, 10.0, 40.0), (50_000.0, 10.0, 30.0));
        assert!(lighter.reason().contains("the server uses 10.0 µs more CPU an operation under ciphertoll"));
    }

    #[test]
    fn idle_processors_are_another_reason() {
        let idle = agreement((50_000.0, 10.0, 30.0), (30_000.0, 10.0, 30.0));
        assert!(
            idle.reason().contains("under pgbench client and server had 60 % of the processors only"),
            "{}",
            idle.reason()
        );
    }

    #[test]
    fn what_is_not_known_is_not_guessed() {
        let odd = agreement((50_000.0, 10.0, 30.0), (40_000.0, 10.0, 40.0 - 4.0));
        assert!(odd.reason().starts_with("not known") || odd.reason().contains("the server uses"));
        let odd = agreement((50_000.0, 20.0, 40.0), (40_000.0, 10.0, 40.0));
        assert!(odd.reason().starts_with("not known"), "{}", odd.reason());
    }
}
