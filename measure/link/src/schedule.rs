//! When a received packet is due at the other end. Pure; all times are nanoseconds of one clock.

use ciphertoll_model::LinkShape;
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// The longest queue before a slow link. Beyond it packets are dropped, as routers do.
const LONGEST_QUEUE_NS: u64 = 100_000_000;
/// Bytes of an Ethernet frame on the wire that the frame here lacks: preamble, check sum, gap.
const FRAMING_BYTES: u64 = 24;

/// What happens to a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It arrives at this time.
    Due(u64),
    /// It never arrives.
    Lost,
}

/// One direction of a link.
pub(crate) struct PacketSchedule<R = Pcg64Mcg> {
    one_way_ns: u64,
    jitter_ns: u64,
    loss: f64,
    ns_per_byte: f64,
    random: R,
    /// When the last packet is due: packets do not overtake each other.
    last_due_ns: u64,
    /// When the link has transmitted all packets so far.
    free_at_ns: u64,
}

impl PacketSchedule {
    /// `overhead_ns` is what the delay line itself adds to a round trip, and is subtracted.
    pub(crate) fn new(shape: LinkShape, overhead_ns: u64, seed: u64) -> Self {
        let round_trip_ns = shape.rtt_ns().saturating_sub(overhead_ns);
        Self {
            one_way_ns: round_trip_ns / 2,
            jitter_ns: shape.jitter_ns(),
            loss: shape.loss(),
            ns_per_byte: shape.rate_bits_per_s().map_or(0.0, |rate| 8e9 / rate as f64),
            random: Pcg64Mcg::seed_from_u64(seed),
            last_due_ns: 0,
            free_at_ns: 0,
        }
    }
}

impl<R: Rng> PacketSchedule<R> {
    /// Decides about a packet of `bytes` that arrived at `came_ns`.
    pub(crate) fn fate(&mut self, came_ns: u64, bytes: usize) -> Fate {
        if self.loss > 0.0 && self.random.random_bool(self.loss) {
            return Fate::Lost;
        }
        let mut sent_ns = came_ns;
        if self.ns_per_byte > 0.0 {
            let free_at_ns = self.free_at_ns.max(came_ns);
            if free_at_ns - came_ns > LONGEST_QUEUE_NS {
                return Fate::Lost;
            }
            self.free_at_ns = free_at_ns + ((bytes as u64 + FRAMING_BYTES) as f64 * self.ns_per_byte) as u64;
            sent_ns = self.free_at_ns;
        }
        let jitter_ns = if self.jitter_ns > 0 { self.random.random_range(0..=self.jitter_ns) } else { 0 };
        let due_ns = (sent_ns + self.one_way_ns + jitter_ns).max(self.last_due_ns);
        self.last_due_ns = due_ns;
        Fate::Due(due_ns)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn schedule(level: &str) -> PacketSchedule {
        PacketSchedule::new(level.parse().unwrap(), 0, 1)
    }

    #[test]
    fn half_of_the_round_trip_each_way_but_for_the_lines_own() {
        assert_eq!(schedule("45ms").fate(1_000, 60), Fate::Due(1_000 + 22_500_000));
        let mut calibrated = PacketSchedule::new("1ms".parse().unwrap(), 100_000, 1);
        assert_eq!(calibrated.fate(0, 60), Fate::Due(450_000));
        let mut too_short = PacketSchedule::new("0.1ms".parse().unwrap(), 200_000, 1);
        assert_eq!(too_short.fate(7, 60), Fate::Due(7));
    }

    #[test]
    fn a_rate_queues_and_then_drops() {
        let mut slow = schedule("10ms+rate=1mbit");
        // 1,476 bytes and the framing: 12 ms at a megabit a second.
        let due: Vec<_> = (0..10).map(|_| slow.fate(0, 1_476)).collect();
        assert_eq!(due[0], Fate::Due(5_000_000 + 12_000_000));
        assert_eq!(due[1], Fate::Due(5_000_000 + 24_000_000));
        assert_eq!(due[9], Fate::Lost, "the queue is 108 ms long");
        assert!(matches!(slow.fate(200_000_000, 1_476), Fate::Due(217_000_000)));
    }

    #[test]
    fn the_configured_share_is_lost() {
        let mut lossy = schedule("1ms+loss=10%");
        let lost = (0..20_000).filter(|came| lossy.fate(*came, 60) == Fate::Lost).count();
        assert!((1_800..2_200).contains(&lost), "{lost}");
    }

    proptest! {
        #[test]
        fn nothing_overtakes_and_nothing_is_early(gaps in prop::collection::vec(0_u64..3_000_000, 1..50)) {
            let mut jittery = schedule("2ms+jitter=5ms");
            let (mut came, mut last) = (0, 0);
            for gap in gaps {
                came += gap;
                let Fate::Due(due) = jittery.fate(came, 100) else { panic!("nothing is lost") };
                prop_assert!(due >= last && due >= came + 1_000_000);
                last = due;
            }
        }
    }
}
