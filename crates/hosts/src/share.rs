//! Dividing a trial over hosts. Pure.

use ciphertoll_model::{Clients, TrialPace, TrialSpec};

/// Keeps the numbers of hosts' inserted records apart: no trial of one host inserts as many.
const INSERTS_PER_HOST: u64 = 1 << 32;

/// The clients of each host, as even as possible. Hosts beyond the clients have none and are left out.
pub fn shares(clients: Clients, hosts: usize) -> Vec<Clients> {
    let clients = usize::from(clients.count());
    let used = hosts.min(clients);
    let share = |host: usize| clients / used + usize::from(host < clients % used);
    (0..used).filter_map(|host| Clients::new(share(host) as u16)).collect()
}

/// The specification of each used host. Rates are divided in proportion to clients: the superposition of independent
/// Poisson schedules is a Poisson schedule of the sum of their rates. Each host has a seed of its own.
pub(crate) fn parts(whole: &TrialSpec, hosts: usize) -> Vec<TrialSpec> {
    let all = f64::from(whole.clients.count());
    let part = |(host, clients): (usize, Clients)| {
        let fraction = f64::from(clients.count()) / all;
        let pace = match whole.pace {
            TrialPace::Closed => TrialPace::Closed,
            TrialPace::Open { per_s } => TrialPace::Open { per_s: per_s * fraction },
        };
        TrialSpec {
            clients,
            pace,
            max_per_s: whole.max_per_s.map(|per_s| per_s * fraction),
            seed: seed_of(whole.seed, host),
            first_insert: whole.first_insert.map(|first| first + host as u64 * INSERTS_PER_HOST),
            ..whole.clone()
        }
    };
    shares(whole.clients, hosts).into_iter().enumerate().map(part).collect()
}

/// Load processes add small numbers to their seed, one for each thread.
fn seed_of(seed: u64, host: usize) -> u64 {
    const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
    seed ^ (host as u64).wrapping_mul(GOLDEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_has_one_host_and_no_host_is_idle() {
        for clients in 1..=Clients::MAX {
            let clients = Clients::new(clients).unwrap();
            for hosts in 1..20 {
                let shares = shares(clients, hosts);
                assert_eq!(shares.iter().map(|share| share.count()).sum::<u16>(), clients.count());
                assert_eq!(shares.len(), hosts.min(usize::from(clients.count())));
                let counts = shares.iter().map(|share| share.count());
                assert!(counts.clone().max().unwrap() - counts.min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn seeds_of_hosts_differ_by_more_than_the_threads_of_one() {
        let seeds: Vec<u64> = (0..1_000).map(|host| seed_of(7, host)).collect();
        let mut sorted = seeds.clone();
        sorted.sort_unstable();
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] > u64::from(u16::MAX)));
        assert_eq!(seeds[0], 7);
    }
}
