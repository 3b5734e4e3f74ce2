//! Relating the monotonic clocks of hosts. Pure.
//!
//! Wall clocks are never compared. A ping that is answered bounds how far two monotonic clocks are apart, as in NTP:
//! whatever the two ways took, the offset is wrong by at most half of the round trip.

/// One ping and its answer: two moments of the coordinator's clock around two of the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    pub sent_ns: u64,
    pub received_there_ns: u64,
    pub sent_there_ns: u64,
    pub received_ns: u64,
}

/// How far a host's monotonic clock is ahead of the coordinator's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClockOffset {
    pub ahead_ns: i64,
    /// The true offset differs by at most this.
    pub uncertainty_ns: u64,
    pub round_trip_ns: u64,
}

/// A measurement window by the coordinator's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostWindow {
    pub opens_ns: i64,
    pub closes_ns: i64,
    pub uncertainty_ns: u64,
}

/// How much of their windows all hosts had in common.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WindowOverlap {
    /// Common time ÷ the longest window.
    pub share: f64,
    /// The true share differs by at most this.
    pub uncertainty: f64,
}

impl ClockOffset {
    /// `None` if the clocks contradict each other: the answer took longer than the round trip.
    pub fn of(exchange: &Exchange) -> Option<Self> {
        let Exchange { sent_ns, received_there_ns, sent_there_ns, received_ns } = *exchange;
        let round_trip = received_ns.checked_sub(sent_ns)?;
        let round_trip_ns = round_trip.checked_sub(sent_there_ns.checked_sub(received_there_ns)?)?;
        let there = i128::from(received_there_ns) - i128::from(sent_ns);
        let back = i128::from(sent_there_ns) - i128::from(received_ns);
        let ahead_ns = i64::try_from(i128::midpoint(there, back)).ok()?;
        Some(Self { ahead_ns, uncertainty_ns: round_trip_ns.div_ceil(2), round_trip_ns })
    }

    /// The most certain of several.
    pub fn best(exchanges: &[Exchange]) -> Option<Self> {
        exchanges.iter().filter_map(Self::of).min_by_key(|offset| offset.uncertainty_ns)
    }

    /// A moment of the coordinator's clock by the host's.
    pub fn to_host(self, coordinator_ns: u64) -> u64 {
        coordinator_ns.saturating_add_signed(self.ahead_ns)
    }

    /// A window by the host's clock, by the coordinator's.
    pub fn window(self, opens_ns: u64, closes_ns: u64) -> HostWindow {
        let here = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX).saturating_sub(self.ahead_ns);
        HostWindow {
            opens_ns: here(opens_ns),
            closes_ns: here(closes_ns),
            uncertainty_ns: self.uncertainty_ns,
        }
    }
}

impl WindowOverlap {
    /// `None` without windows, or if one has no length.
    pub fn of(windows: &[HostWindow]) -> Option<Self> {
        let opens = windows.iter().max_by_key(|window| window.opens_ns)?;
        let closes = windows.iter().min_by_key(|window| window.closes_ns)?;
        let longest = windows.iter().map(|window| window.closes_ns - window.opens_ns).max()?;
        if longest <= 0 {
            return None;
        }
        // A single window coincides with itself, however uncertain its place is.
        let mut uncertainties: Vec<u64> = windows.iter().map(|window| window.uncertainty_ns).collect();
        uncertainties.sort_unstable_by(|a, b| b.cmp(a));
        let uncertainty_ns = match uncertainties[..] {
            [first, second, ..] => first + second,
            _ => 0,
        };
        Some(Self {
            share: (closes.closes_ns - opens.opens_ns).max(0) as f64 / longest as f64,
            uncertainty: uncertainty_ns as f64 / longest as f64,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MS: u64 = 1_000_000;

    fn window(opens_ms: i64, closes_ms: i64, uncertainty_ms: u64) -> HostWindow {
        let ns = |ms: i64| ms * 1_000_000;
        HostWindow { opens_ns: ns(opens_ms), closes_ns: ns(closes_ms), uncertainty_ns: uncertainty_ms * MS }
    }

    #[test]
    fn the_overlap_is_what_all_windows_share() {
        let of = |windows: &[HostWindow]| {
            WindowOverlap::of(windows).map(|overlap| (overlap.share, overlap.uncertainty))
        };
        assert_eq!(of(&[window(0, 1_000, 9)]), Some((1.0, 0.0)));
        assert_eq!(of(&[window(0, 1_000, 1), window(20, 1_020, 3)]), Some((0.98, 0.004)));
        assert_eq!(of(&[window(0, 1_000, 0), window(5, 1_005, 0), window(-5, 995, 0)]), Some((0.99, 0.0)));
        assert_eq!(of(&[window(0, 1_000, 0), window(2_000, 3_000, 0)]), Some((0.0, 0.0)));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[window(3, 3, 0)]), None);
    }

    #[test]
    fn the_shortest_round_trip_decides() {
        let exchange = |there: u64, back: u64| Exchange {
            sent_ns: 100 * MS,
            received_there_ns: 5_100 * MS + there,
            sent_there_ns: 5_100 * MS + there + MS,
            received_ns: 100 * MS + there + back + MS,
        };
        let best = ClockOffset::best(&[exchange(9 * MS, MS), exchange(MS, MS), exchange(2 * MS, 8 * MS)]);
        let expected = ClockOffset { ahead_ns: 5_000_000_000, uncertainty_ns: MS, round_trip_ns: 2 * MS };
        assert_eq!(best, Some(expected));
    }

    #[test]
    fn an_answer_that_took_longer_than_its_round_trip_is_refused() {
        let exchange = Exchange { sent_ns: 10, received_there_ns: 0, sent_there_ns: 50, received_ns: 20 };
        assert_eq!(ClockOffset::of(&exchange), None);
    }

    proptest! {
        /// Whatever the clocks show and the two ways take.
        #[test]
        fn the_true_offset_is_within_the_uncertainty(
            sent_ns in 0..1_u64 << 60,
            ahead in -(1_i64 << 59)..1 << 59,
            there in 0..1_u64 << 40,
            took in 0..1_u64 << 40,
            back in 0..1_u64 << 40,
        ) {
            let sent_ns = sent_ns + (1 << 60);
            let received_there_ns = (sent_ns + there).saturating_add_signed(ahead);
            let exchange = Exchange {
                sent_ns,
                received_there_ns,
                sent_there_ns: received_there_ns + took,
                received_ns: sent_ns + there + took + back,
            };
            let offset = ClockOffset::of(&exchange).unwrap();
            prop_assert_eq!(offset.round_trip_ns, there + back);
            prop_assert!(offset.ahead_ns.abs_diff(ahead) <= offset.uncertainty_ns);
            prop_assert_eq!(offset.to_host(sent_ns), sent_ns.saturating_add_signed(offset.ahead_ns));
        }
    }
}
