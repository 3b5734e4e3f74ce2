//! The printed table and ratios of one workload.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use ciphertoll_model::Engine;

use super::PoolRoute;
use super::goal::{PoolGoal, judge_cpu, judge_rate};
use super::run::PoolSample;
use super::work::PoolWorkload;
use crate::interleave::{Ratio, Rounds};

/// The results of one workload: `routes` are the arms of `rounds`.
pub struct PoolReport<'a> {
    pub work: PoolWorkload,
    pub routes: &'a [PoolRoute],
    pub rounds: &'a Rounds<PoolSample>,
}

/// The first line of a table. CPU times are per operation.
pub fn heading() -> String {
    format!(
        "  {:<34} {:>8} {:>8} {:>8} {:>10} {:>9} {:>10} {:>7}",
        "", "rate /s", "p50 µs", "p99 µs", "client CPU", "relay CPU", "server CPU", "calls"
    )
}

/// The figures of one arm: geometric means over rounds.
pub fn line(label: &str, rounds: &Rounds<PoolSample>, arm: usize, calls: Option<f64>) -> String {
    let level = |value: fn(&PoolSample) -> f64| rounds.level(arm, value);
    format!(
        "  {label:<34} {:>8.0} {:>8.0} {:>8.0} {:>10.1} {:>9} {:>10.1} {:>7}",
        level(|run| run.rate_per_s),
        level(|run| run.p50_us),
        level(|run| run.p99_us),
        level(|run| run.client_us),
        figure(level(|run| run.relay_us)),
        level(|run| run.server_us),
        figure(calls.unwrap_or(f64::NAN)),
    )
}

/// A dash for NaN.
fn figure(value: f64) -> String {
    if value.is_nan() { "–".to_owned() } else { format!("{value:.1}") }
}

impl PoolReport<'_> {
    /// The ratios of all compared pairs, with the goals.
    pub fn ratios(&self) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        for (own, route) in self.routes.iter().enumerate() {
            for (peer, other) in self.routes.iter().enumerate() {
                if route.is_compared_with(*other, self.work.engine) {
                    lines.push(self.pair(own, peer)?);
                }
            }
        }
        Ok(lines)
    }

    fn pair(&self, own: usize, peer: usize) -> Result<String> {
        let [route, other] = [own, peer].map(|arm| self.routes[arm]);
        let goal = PoolGoal::of(self.work, route, other);
        let rate = self.ratio(own, peer, |run| run.rate_per_s)?;
        let mut line = format!("  {} ÷ {}\n    rate × {rate}", route.label(), other.label());
        line.push_str(&judge_rate(rate, goal.min_rate));
        if other != PoolRoute::Unix {
            let cpu = self.ratio(own, peer, |run| run.relay_us)?;
            write!(line, "   relay CPU × {cpu}{}", judge_cpu(cpu, goal.max_cpu))?;
            if self.work.engine != Engine::Postgres {
                let both = self.ratio(own, peer, PoolSample::relay_and_server_us)?;
                write!(line, "   relay + server CPU × {both}")?;
            }
        }
        Ok(line)
    }

    fn ratio(&self, own: usize, peer: usize, value: impl Fn(&PoolSample) -> f64) -> Result<Ratio> {
        self.rounds.ratio(own, peer, value).context("too few rounds")
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_lab::proxy::SocketAuth;

    use super::*;

    fn sample(rate_per_s: f64, relay_us: f64) -> PoolSample {
        let (p50_us, p99_us, client_us, server_us) = (90.0, 250.0, 20.0, 80.0);
        PoolSample { operations: 1e4, rate_per_s, p50_us, p99_us, client_us, relay_us, server_us }
    }

    #[test]
    fn ratios_have_the_goal_of_their_pair() {
        let work = PoolWorkload::ALL[0];
        let all = PoolRoute::of(work.engine, SocketAuth::Trusted);
        let routes: Vec<PoolRoute> = all
            .into_iter()
            .filter(|r| ["proxy", "floor epoll, reset first"].contains(&r.label().as_str()))
            .collect();
        let arm = |rate: f64, cpu: f64| vec![sample(rate, cpu), sample(rate * 1.001, cpu * 1.001)];
        let rounds = Rounds::of(vec![arm(990.0, 60.0), arm(1000.0, 50.0)]);
        let report = PoolReport { work, routes: &routes, rounds: &rounds };
        let expected = "  proxy ÷ floor epoll, reset first\n    rate × 0.99 (0.99–0.99) [goal ≥ 0.95: yes]   \
                        relay CPU × 1.20 (1.20–1.20) [goal ≤ 1.15: no]";
        assert_eq!(report.ratios().unwrap(), [expected]);
    }

    #[test]
    fn columns_are_aligned() {
        let rounds = Rounds::of(vec![vec![sample(1000.0, f64::NAN)]]);
        let line = line("no proxy", &rounds, 0, None);
        assert_eq!(line.chars().count(), heading().chars().count());
        assert!(line.ends_with("80.0       –"), "{line}");
    }
}
