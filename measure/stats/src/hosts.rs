//! What load hosts did in all trials that count.

use std::collections::BTreeMap;

use ciphertoll_model::HostsUse;

/// The work of all load hosts, by name.
#[derive(Clone, Debug, Default)]
pub struct HostTotals<'a> {
    pub hosts: BTreeMap<&'a str, HostTotal>,
    /// The smallest overlap of windows, with its uncertainty, as shares.
    pub least_overlap: Option<(f64, f64)>,
}

/// The work of one load host in all trials in which it had clients.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostTotal {
    /// The fewest and the most clients of a trial.
    pub clients: (u16, u16),
    pub operations: u64,
    pub client_cpu_ns: u64,
    /// The sum of all windows.
    pub window_ns: u64,
    pub rss_peak_bytes: u64,
    /// The largest of all trials.
    pub schedule_lag_ns_p99: Option<u64>,
    pub clock_uncertainty_ns: u64,
}

impl<'a> HostTotals<'a> {
    pub(crate) fn add(&mut self, used: &'a HostsUse, window_ns: u64) {
        let overlap = (used.overlap, used.overlap_uncertainty);
        if self.least_overlap.is_none_or(|least| overlap.0 < least.0) {
            self.least_overlap = Some(overlap);
        }
        for host in &used.hosts {
            let total = self.hosts.entry(&host.host).or_insert_with(|| HostTotal {
                clients: (host.clients, host.clients),
                ..HostTotal::default()
            });
            total.clients = (total.clients.0.min(host.clients), total.clients.1.max(host.clients));
            total.operations += host.operations;
            total.client_cpu_ns += host.client_cpu_ns;
            total.window_ns += window_ns;
            total.rss_peak_bytes = total.rss_peak_bytes.max(host.client_rss_peak_bytes);
            total.schedule_lag_ns_p99 = total.schedule_lag_ns_p99.max(host.schedule_lag_ns_p99);
            total.clock_uncertainty_ns = total.clock_uncertainty_ns.max(host.clock_uncertainty_ns);
        }
    }
}

impl HostTotal {
    /// Operations per second of window.
    pub fn rate_per_s(&self) -> f64 {
        self.operations as f64 / (self.window_ns as f64 * 1e-9)
    }

    /// Processors that its clients kept busy.
    pub fn processors_busy(&self) -> f64 {
        self.client_cpu_ns as f64 / self.window_ns as f64
    }

    pub fn cpu_us_per_op(&self) -> Option<f64> {
        (self.operations > 0).then(|| self.client_cpu_ns as f64 * 1e-3 / self.operations as f64)
    }
}
