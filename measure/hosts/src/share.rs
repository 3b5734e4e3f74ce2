//! Dividing a trial over hosts. Pure.

use ciphertoll_model::{Clients, Endpoint, TrialPace, TrialSpec};

/// Keeps the numbers of hosts' inserted records apart: no trial of one host inserts as many.
const INSERTS_PER_HOST: u64 = 1 << 32;

/// The clients of each host, as even as possible. Hosts beyond the clients have none and are left out.
pub fn shares(clients: Clients, hosts: usize) -> Vec<Clients> {
    let clients = usize::from(clients.count());
    let used = hosts.min(clients);
    let share = |host: usize| clients / used + usize::from(host < clients % used);
    (0..used).filter_map(|host| Clients::new(share(host) as u16)).collect()
}

/// The machine of a host.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine<'a> {
    pub(crate) processors: u16,
    /// Equal for hosts that are one machine.
    pub(crate) boot_id: &'a str,
}

/// The threads of a host's load process, at least `least`: one per processor, of which hosts that are one machine have a
/// share each.
fn threads(machine: Machine<'_>, used: &[Machine<'_>], least: u16) -> u16 {
    // Machines that do not tell who they are differ.
    let is_same = |other: &&Machine<'_>| !other.boot_id.is_empty() && other.boot_id == machine.boot_id;
    let hosts_there = used.iter().filter(is_same).count().max(1);
    let own = usize::from(machine.processors) / hosts_there;
    (own as u16).max(least)
}

/// The specification of each used host. Rates are divided in proportion to clients: the superposition of independent
/// Poisson schedules is a Poisson schedule of the sum of their rates. Each host has a seed of its own.
pub(crate) fn parts(whole: &TrialSpec, machines: &[Machine<'_>]) -> Vec<TrialSpec> {
    let all = f64::from(whole.clients.count());
    let shares = shares(whole.clients, machines.len());
    let used = &machines[..shares.len()];
    // If names are resolved for each connect, a thread waits for every answer, so there are more.
    let least_threads = if matches!(whole.endpoint, Endpoint::Host { .. }) { whole.threads } else { 1 };
    let part = |(host, clients): (usize, Clients)| {
        let fraction = f64::from(clients.count()) / all;
        let pace = match whole.pace {
            TrialPace::Closed => TrialPace::Closed,
            TrialPace::Open { per_s } => TrialPace::Open { per_s: per_s * fraction },
        };
        TrialSpec {
            clients,
            threads: threads(used[host], used, least_threads).min(clients.count()),
            pace,
            max_per_s: whole.max_per_s.map(|per_s| per_s * fraction),
            seed: seed_of(whole.seed, host),
            first_insert: whole.first_insert.map(|first| first + host as u64 * INSERTS_PER_HOST),
            ..whole.clone()
        }
    };
    shares.into_iter().enumerate().map(part).collect()
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
    fn a_host_uses_all_its_processors_and_hosts_of_one_machine_share_them() {
        let machine = |processors, boot_id| Machine { processors, boot_id };
        let used = [machine(64, "a"), machine(4, "b"), machine(4, "b"), machine(1, "c"), machine(1, "c")];
        let of = |least| used.map(|machine| threads(machine, &used, least));
        assert_eq!(of(1), [64, 2, 2, 1, 1]);
        assert_eq!(of(16), [64, 16, 16, 16, 16]);
        assert_eq!(threads(machine(8, ""), &[machine(8, ""); 2], 1), 8);
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
