//! Performance goals of the load generator, and whether they are met on this machine.

use std::fmt;

use crate::arm::Generator;
use crate::interleave::{Ratio, Rounds};

/// Maximum client CPU per operation, ciphertoll ÷ peer.
const MAX_CPU_OF_FLOOR: f64 = 1.2;
const MAX_CPU_OF_PGBENCH: f64 = 0.85;
const MAX_CPU_OF_SYSBENCH: f64 = 0.8;

#[derive(Clone, Debug, PartialEq)]
pub struct Goal {
    what: String,
    is_met: bool,
    /// The interval contains the limit: more rounds may change the result.
    is_close: bool,
}

/// The goals of a comparison. `generators` are its arms, ciphertoll's first.
pub fn goals(generators: &[Generator], rounds: &Rounds) -> Vec<Goal> {
    let cpu_against = |peer: usize| rounds.ratio(0, peer, |sample| sample.cpu_us_per_op);
    let cpu = |peer: usize| rounds.level(peer, |sample| sample.cpu_us_per_op);
    let peers = || generators.iter().copied().enumerate().skip(1);
    let is_floor = |generator| matches!(generator, Generator::Floor(_));
    let floors = peers().filter(|(_, generator)| is_floor(*generator));
    let least = floors.min_by(|left, right| cpu(left.0).total_cmp(&cpu(right.0)));
    let mut goals = Vec::new();
    if let Some((floor, generator)) = least {
        let name = format!("the {}", generator.label());
        goals.extend(cpu_against(floor).map(|ratio| at_most(ratio, MAX_CPU_OF_FLOOR, &name)));
    }
    for (peer, generator) in peers().filter(|(_, generator)| !is_floor(*generator)) {
        let limit = match generator {
            Generator::Pgbench => Some(MAX_CPU_OF_PGBENCH),
            Generator::Sysbench => Some(MAX_CPU_OF_SYSBENCH),
            Generator::Native
            | Generator::Libmariadb
            | Generator::Floor(_)
            | Generator::Pymongo
            | Generator::GoYcsb => None,
        };
        if let (Some(limit), Some(ratio)) = (limit, cpu_against(peer)) {
            goals.push(at_most(ratio, limit, generator.label()));
        }
        goals.extend(rounds.ratio(0, peer, |sample| sample.rate_per_s).map(|ratio| Goal {
            what: format!("rate no lower than {}'s", generator.label()),
            is_met: ratio.value >= 1.0,
            is_close: ratio.contains(1.0),
        }));
    }
    goals
}

fn at_most(cpu: Ratio, limit: f64, peer: &str) -> Goal {
    Goal {
        what: format!("CPU ≤ {limit} × {peer}"),
        is_met: cpu.value <= limit,
        is_close: cpu.contains(limit),
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let answer = if self.is_met { "yes" } else { "no" };
        write!(formatter, "{}: {answer}", self.what)?;
        if self.is_close { formatter.write_str(" (close)") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::{FloorMode, Sample};

    fn rounds(cpu_us: &[f64], rate_per_s: &[f64]) -> Rounds {
        // Two slightly different rounds, so that there is an interval.
        let arm = |(&cpu_us, &rate_per_s): (&f64, &f64)| {
            let sample = |factor: f64| Sample {
                rate_per_s: rate_per_s * factor,
                cpu_us_per_op: cpu_us * factor,
                server_cpu_us_per_op: None,
                mean_us: 1.0,
                p95_us: None,
            };
            vec![sample(1.0), sample(1.001)]
        };
        Rounds::of(cpu_us.iter().zip(rate_per_s).map(arm).collect())
    }

    #[test]
    fn the_cheaper_floor_counts() {
        let generators = [
            Generator::Native,
            Generator::Floor(FloorMode::Epoll),
            Generator::Floor(FloorMode::Threads),
            Generator::Sysbench,
        ];
        let goals = goals(&generators, &rounds(&[10.0, 9.0, 8.0, 12.4], &[100.0, 90.0, 90.0, 110.0]));
        let lines: Vec<String> = goals.iter().map(ToString::to_string).collect();
        let expected = [
            "CPU ≤ 1.2 × the floor, threads: no",
            "CPU ≤ 0.8 × sysbench: no",
            "rate no lower than sysbench's: no",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_limit_within_the_interval_is_close() {
        let ratio = Ratio { value: 1.15, low: 1.1, high: 1.21 };
        assert_eq!(at_most(ratio, 1.2, "x").to_string(), "CPU ≤ 1.2 × x: yes (close)");
        assert_eq!(at_most(ratio, 1.1, "x").to_string(), "CPU ≤ 1.1 × x: no (close)");
        assert_eq!(at_most(ratio, 1.3, "x").to_string(), "CPU ≤ 1.3 × x: yes");
    }
}
