//! How much a link carries, and what that costs.

use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::end::{Task, at_end};
use super::{Stand, Verdict, shape};

/// What the shortest link is to carry, bits a second, and what long ones are, by as many streams as it takes.
const LEAST_BITS_PER_S: f64 = 10e9;
/// Windows grow from nothing: what is sent before is not looked at.
const GROWTH_ROUND_TRIPS: f64 = 24.0;
const LEAST_GROWTH: Duration = Duration::from_secs(1);
const WINDOW: Duration = Duration::from_secs(2);

/// How much a connection may have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Windows {
    /// What the machine has set: what databases meet. To be looked at before the others.
    Stock,
    /// More than any link here can use. What does not fit waits in front of the line, and is dropped in the end, as in
    /// front of any other bottleneck.
    Largest,
}

/// What so many streams had of a link.
#[derive(Clone, Debug)]
pub struct Row {
    /// The round trip, ms.
    pub rtt_ms: f64,
    /// How much each connection may have under way.
    pub windows: Windows,
    /// Connections at a time.
    pub streams: usize,
    /// What arrived.
    pub bits_per_s: f64,
    /// CPU time of the line for a packet, where the kernel may hand on many segments as one, ns.
    pub cpu_ns_per_packet: f64,
    /// Bytes of a packet, on average.
    pub bytes_per_packet: f64,
    /// Segments that TCP sent again; not known by a relay, which has no network of its own.
    pub sent_again: Option<u64>,
    /// How many of them only asked whether an answer that was late was lost: on a machine with too much to do.
    pub probes: u64,
    /// Packets that the link dropped.
    pub dropped: u64,
    /// How late packets were sent on: 99th percentile, ns.
    pub late_ns_p99: u64,
}

impl Row {
    /// Floods the link by so many streams.
    pub fn measure(stand: &mut Stand, rtt_ms: f64, windows: Windows, streams: usize) -> Result<Self> {
        stand.link.set(shape(rtt_ms))?;
        if windows == Windows::Largest {
            for network in [stand.link.clients(), stand.link.servers()].into_iter().flatten() {
                at_end(&stand.program, Some(network), Task::EnlargeWindows)?;
            }
        }
        let growth = LEAST_GROWTH.max(Duration::from_secs_f64(rtt_ms * 1e-3 * GROWTH_ROUND_TRIPS));
        let address = stand.link.find_address(stand.server.address.port())?;
        let clients = stand.link.clients().cloned();
        let task = Task::Send(address, streams, growth + WINDOW + Duration::from_millis(200));
        stand.link.read_counters()?;
        let Stand { link, server, program } = stand;
        let (bits_per_s, said) = thread::scope(|scope| {
            let sender = scope.spawn(|| at_end(program, clients.as_ref(), task));
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
            sent_again: clients.and(said.first().copied()),
            probes: said.get(1).copied().unwrap_or_default(),
            dropped: carried.dropped,
            late_ns_p99: carried.late_ns_p99,
        })
    }

    /// Whether one stream fills what this is to carry.
    pub fn is_full(&self) -> bool {
        self.bits_per_s >= LEAST_BITS_PER_S
    }

    /// Against the targets: by the largest windows as much gets through as is wanted, on the shortest link; by stock ones
    /// nothing gets lost.
    pub fn verdict(&self, is_shortest: bool) -> Verdict {
        let mut verdict = Verdict::default();
        match self.windows {
            Windows::Largest => {
                verdict.over(is_shortest && !self.is_full(), || "less than 10 Gbit/s".to_owned());
            }
            Windows::Stock => {
                verdict.over(self.sent_again.is_some_and(|count| count > self.probes), || {
                    "segments sent again".to_owned()
                });
                verdict.over(self.dropped > 0, || "packets dropped".to_owned());
            }
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_link_must_be_fast_and_none_may_lose_what_fits() {
        let row = |windows, bits_per_s, sent_again, dropped| Row {
            rtt_ms: 1.0,
            windows,
            streams: 1,
            bits_per_s,
            cpu_ns_per_packet: 0.0,
            bytes_per_packet: 0.0,
            sent_again,
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
            "over: segments sent again, packets dropped"
        );
    }
}
