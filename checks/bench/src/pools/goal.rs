//! Performance goals of ciphertoll-proxy.

use super::route::PoolRoute;
use super::work::PoolWorkload;
use crate::interleave::Ratio;

/// Limits of the ratio ciphertoll-proxy ÷ peer.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PoolGoal {
    pub min_rate: Option<f64>,
    /// Of the proxy's CPU time per operation.
    pub max_cpu: Option<f64>,
}

impl PoolGoal {
    /// The goal of one comparison; empty if there is none.
    pub fn of(work: PoolWorkload, own: PoolRoute, peer: PoolRoute) -> Self {
        match (own, peer) {
            (PoolRoute::Sidecar(sidecar), PoolRoute::Floor(reset)) if sidecar.reset(work.engine) == reset => {
                Self { min_rate: Some(0.95), max_cpu: Some(1.15) }
            }
            (_, PoolRoute::Peer(label)) if label.starts_with("pgbouncer") => Self::of_rate(1.0),
            (_, PoolRoute::Peer(label)) if label.starts_with("proxysql") && work.act.is_connect() => {
                Self::of_rate(1.1)
            }
            // Two threads and one.
            (_, PoolRoute::Sidecar(_)) => Self::of_rate(1.0),
            _ => Self::default(),
        }
    }

    fn of_rate(min: f64) -> Self {
        Self { min_rate: Some(min), max_cpu: None }
    }
}

/// ` [goal ≥ 0.95: yes]`; empty without a limit. `close` means that the interval contains the limit.
pub fn judge_rate(rate: Ratio, min: Option<f64>) -> String {
    min.map_or_else(String::new, |min| judge('≥', min, rate.value >= min, rate))
}

pub fn judge_cpu(cpu: Ratio, max: Option<f64>) -> String {
    max.map_or_else(String::new, |max| judge('≤', max, cpu.value <= max, cpu))
}

fn judge(sign: char, limit: f64, is_met: bool, ratio: Ratio) -> String {
    let answer = if is_met { "yes" } else { "no" };
    let close = if ratio.contains(limit) { ", close" } else { "" };
    format!(" [goal {sign} {limit:.2}: {answer}{close}]")
}

#[cfg(test)]
mod tests {
    use ciphertoll_lab::proxy::SocketAuth;
    use ciphertoll_model::Engine;

    use super::*;

    fn goals(number: usize) -> Vec<(String, PoolGoal)> {
        let work = PoolWorkload::ALL[number];
        let routes = PoolRoute::of(work.engine, SocketAuth::Trusted);
        let pairs = routes.iter().flat_map(|own| routes.iter().map(move |peer| (*own, *peer)));
        let compared = pairs.filter(|(own, peer)| own.is_compared_with(*peer, work.engine));
        let goals = compared.map(|(own, peer)| {
            (format!("{} ÷ {}", own.label(), peer.label()), PoolGoal::of(work, own, peer))
        });
        goals.filter(|(_, goal)| *goal != PoolGoal::default()).collect()
    }

    #[test]
    fn floors_pgbouncer_and_one_thread_have_goals() {
        assert_eq!(PoolWorkload::ALL[0].engine, Engine::Postgres);
        let goals = goals(0);
        assert_eq!(goals.len(), 8, "{goals:?}");
        let floor = PoolGoal { min_rate: Some(0.95), max_cpu: Some(1.15) };
        assert!(goals.contains(&("proxy ÷ floor epoll, reset first".to_owned(), floor)));
    }

    #[test]
    fn only_connects_have_a_goal_for_proxysql() {
        let count = |number| goals(number).iter().filter(|(pair, _)| pair.contains("÷ proxysql")).count();
        assert_eq!([count(6), count(7), count(10)], [3, 3, 0]);
    }

    #[test]
    fn a_limit_within_the_interval_is_close() {
        let ratio = Ratio { value: 0.97, low: 0.94, high: 1.0 };
        assert_eq!(judge_rate(ratio, Some(0.95)), " [goal ≥ 0.95: yes, close]");
        assert_eq!(judge_cpu(ratio, Some(0.5)), " [goal ≤ 0.50: no]");
        assert_eq!(judge_cpu(ratio, None), "");
    }
}
