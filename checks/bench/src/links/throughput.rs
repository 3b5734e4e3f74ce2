//! Throughput of a link, and its CPU cost.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::endpoint::{EndpointTask, run_at_endpoint};
use super::{LinkBench, LinkVerdict, shape};

/// Target throughput: of the shortest link with one stream, of long links with several streams.
const TARGET_BITS_PER_S: f64 = 10e9;
/// Time for TCP windows to grow, before the measurement window.
const GROWTH_ROUND_TRIPS: f64 = 24.0;
const LEAST_GROWTH: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// The machine's settings, as databases use them. Must be measured before `Largest`, which changes them.
    Stock,
    /// Larger than any link here can use. Excess packets queue in front of the link and are finally dropped, as at any
    /// bottleneck.
    Largest,
}

#[derive(Clone, Debug)]
pub struct ThroughputRow {
    pub rtt_ms: f64,
    pub windows: Windows,
    pub streams: usize,
    pub bits_per_s: f64,
    /// CPU time of the link per packet; one packet may combine several segments (GSO).
    pub cpu_ns_per_packet: f64,
    pub bytes_per_packet: f64,
    /// Retransmitted segments. `None` for a relay, which has no separate network namespace.
    pub retransmitted: Option<u64>,
    /// How many of them were tail loss probes, which a busy machine causes.
    pub probes: u64,
    pub dropped: u64,
    /// 99th percentile of the link's lateness.
    pub late_ns_p99: u64,
}

impl ThroughputRow {
    pub fn measure(bench: &mut LinkBench, rtt_ms: f64, windows: Windows, streams: usize) -> Result<Self> {
        bench.link.set(shape(rtt_ms))?;
        if windows == Windows::Largest {
            for network in [bench.link.clients(), bench.link.servers()].into_iter().flatten() {
                run_at_endpoint(&bench.program, Some(network), EndpointTask::EnlargeWindows)?;
            }
        }
        let growth = LEAST_GROWTH.max(Duration::from_secs_f64(rtt_ms * 1e-3 * GROWTH_ROUND_TRIPS));
        let address = bench.link.find_address(bench.server.address.port())?;
        let clients = bench.link.clients().cloned();
        let task = EndpointTask::Send(address, streams, growth + WINDOW + Duration::from_millis(200));
        bench.link.read_counters()?;
        let LinkBench { link, server, program } = bench;
        let (bits_per_s, said) = thread::scope(|scope| {
            let sender = scope.spawn(|| run_at_endpoint(program, clients.as_ref(), task));
            thread::sleep(growth);
            let opened = server.received()?;
            thread::sleep(WINDOW);
            let closed = server.received()?;
            let said = sender.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            Ok::<_, anyhow::Error>((closed.bits_per_s_since(opened), said))
        })?;
        let carried = link.read_counters()?;
        let packets = (carried.packets as f64).max(1.0);
        Ok(Self {
            rtt_ms,
            windows,
            streams,
            bits_per_s,
            cpu_ns_per_packet: carried.cpu_ns as f64 / packets,
            bytes_per_packet: carried.bytes as f64 / packets,
            retransmitted: clients.and(said.first().copied()),
            probes: said.get(1).copied().unwrap_or_default(),
            dropped: carried.dropped,
            late_ns_p99: carried.late_ns_p99,
        })
    }

    pub fn is_full(&self) -> bool {
        self.bits_per_s >= TARGET_BITS_PER_S
    }

    /// Targets: the shortest link reaches the target throughput with the largest windows; nothing is lost with stock
    /// windows.
    pub fn verdict(&self, is_shortest: bool) -> LinkVerdict {
        let mut verdict = LinkVerdict::default();
        match self.windows {
            Windows::Largest => {
                verdict.add_if(is_shortest && !self.is_full(), || "less than 10 Gbit/s".to_owned());
            }
            Windows::Stock => {
                verdict.add_if(self.retransmitted.is_some_and(|count| count > self.probes), || {
                    "retransmitted segments".to_owned()
                });
                verdict.add_if(self.dropped > 0, || "packets dropped".to_owned());
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_link_must_be_fast_and_stock_windows_lose_nothing() {
        let row = |windows, bits_per_s, retransmitted, dropped| ThroughputRow {
            rtt_ms: 1.0,
            windows,
            streams: 1,
            bits_per_s,
            cpu_ns_per_packet: 0.0,
            bytes_per_packet: 0.0,
            retransmitted,
            probes: 0,
            dropped,
            late_ns_p99: 0,
        };
        assert_eq!(row(Windows::Largest, 9e9, Some(7), 7).verdict(false).to_string(), "ok");
        assert_eq!(
            row(Windows::Largest, 9e9, None, 0).verdict(true).to_string(),
            "over: less than 10 Gbit/s"
        );
        assert_eq!(row(Windows::Stock, 9e9, None, 0).verdict(true).to_string(), "ok");
        assert_eq!(
            row(Windows::Stock, 11e9, Some(1), 1).verdict(true).to_string(),
            "over: retransmitted segments, packets dropped"
        );
    }
}
