//! The cap on a closed loop's rate: when the next operation may begin, and which client begins it. Told the time, it has
//! no clock.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// One thread's share of the rate. A moment in which nobody began is lost: what was not used is not made up for, so that
/// no stall of the server's is followed by a burst.
pub(crate) struct Limit {
    gap: Duration,
    /// Not before then.
    next: Instant,
    /// Clients that wait for their turn, the longest first.
    parked: VecDeque<usize>,
}

impl Limit {
    /// At most `per_s`, which must be positive, from `starts` on.
    pub(crate) fn new(starts: Instant, per_s: f64, clients: usize) -> Self {
        // Rounded up, and at most five hundred years.
        let gap = Duration::from_nanos((1e9 / per_s).ceil() as u64);
        Self { gap, next: starts, parked: VecDeque::with_capacity(clients) }
    }

    /// A client could begin.
    pub(crate) fn park(&mut self, client: usize) {
        self.parked.push_back(client);
    }

    /// Whether a client waits for its turn.
    pub(crate) fn is_awaited(&self) -> bool {
        !self.parked.is_empty()
    }

    /// The client that begins now. `None`: nobody waits, or it is too soon.
    pub(crate) fn begin(&mut self, now: Instant) -> Option<usize> {
        if now < self.next {
            return None;
        }
        let client = self.parked.pop_front()?;
        self.next = now + self.gap;
        Some(client)
    }

    /// When to ask again, if no client tells anything before. `None`: nobody waits.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        self.is_awaited().then_some(self.next)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Clients that are late by `late` to begin and then busy for `busy`, in turn; who began when in ten seconds.
    fn run(per_s: f64, clients: usize, late: &[Duration], busy: &[Duration]) -> Vec<(usize, Duration)> {
        let starts = Instant::now();
        let closes = starts + 10 * SECOND;
        let mut limit = Limit::new(starts, per_s, clients);
        let mut running: Vec<(Instant, usize)> = (0..clients).map(|client| (starts, client)).collect();
        let (mut now, mut begun) = (starts, Vec::new());
        while now < closes {
            running.sort_unstable();
            while running.first().is_some_and(|(ends, _)| *ends <= now) {
                limit.park(running.remove(0).1);
            }
            if let Some(client) = limit.begin(now) {
                running.push((now + busy[begun.len() % busy.len()], client));
                begun.push((client, now - starts));
                continue;
            }
            let ends = running.iter().map(|(ends, _)| *ends).min();
            let wakes = limit.wake_at().map(|at| at + late[begun.len() % late.len()]);
            now = now.max(ends.into_iter().chain(wakes).min().expect("somebody is parked, or busy"));
        }
        begun
    }

    fn times(most: Duration) -> impl Strategy<Value = Vec<Duration>> {
        prop::collection::vec((0..=most.as_micros() as u64).prop_map(Duration::from_micros), 1..20)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn no_interval_has_more_than_its_share(
            per_s in 0.5..500.0_f64,
            clients in 1_usize..9,
            late in times(SECOND / 100),
            busy in times(SECOND / 2),
        ) {
            let begun = run(per_s, clients, &late, &busy);
            prop_assert!(!begun.is_empty());
            for (first, (_, from)) in begun.iter().enumerate() {
                for (further, (_, until)) in begun[first..].iter().take(20).enumerate() {
                    let allowed = per_s * until.saturating_sub(*from).as_secs_f64() + 1.0;
                    prop_assert!((further + 1) as f64 <= allowed + 1e-6, "{} in {allowed}", further + 1);
                }
            }
        }

        /// Whoever has waited longest is next: between two turns of a client no other has more than one, if all are
        /// as fast, and each waits for no more than the others' turns.
        #[test]
        fn nobody_starves(
            per_s in 5.0..500.0_f64,
            clients in 1_usize..9,
            late in times(SECOND / 1000),
        ) {
            let begun = run(per_s, clients, &late, &[Duration::ZERO]);
            prop_assert!(begun.len() >= clients);
            for (turn, (client, _)) in begun.iter().enumerate() {
                prop_assert_eq!(*client, turn % clients);
            }
        }

        /// What clients can do is reached where they are never late.
        #[test]
        fn the_rate_is_reached(per_s in 10.0..500.0_f64, clients in 1_usize..9) {
            let begun = run(per_s, clients, &[Duration::ZERO], &[Duration::from_micros(1)]);
            let expected = 10.0 * per_s;
            prop_assert!((begun.len() as f64 - expected).abs() <= 1.0, "{} of {expected}", begun.len());
        }
    }

    #[test]
    fn the_first_begins_at_once_and_the_others_in_turn() {
        let starts = Instant::now();
        let mut limit = Limit::new(starts, 10.0, 3);
        assert_eq!((limit.begin(starts), limit.wake_at()), (None, None));
        for client in [2, 0, 1] {
            limit.park(client);
        }
        assert_eq!(limit.begin(starts), Some(2));
        assert_eq!((limit.begin(starts), limit.wake_at()), (None, Some(starts + SECOND / 10)));
        assert_eq!(limit.begin(starts + SECOND / 10), Some(0));
        // Late: what was missed is not made up for.
        let late = starts + SECOND;
        assert_eq!(limit.begin(late), Some(1));
        limit.park(0);
        assert_eq!((limit.begin(late), limit.wake_at()), (None, Some(late + SECOND / 10)));
        assert!(limit.is_awaited());
    }

    /// The slowest of rates is slow and no panic.
    #[test]
    fn rates_at_the_edge() {
        let starts = Instant::now();
        for (per_s, gap) in
            [(f64::MIN_POSITIVE, Duration::from_nanos(u64::MAX)), (3.0, Duration::from_nanos(333_333_334))]
        {
            let mut limit = Limit::new(starts, per_s, 1);
            limit.park(0);
            assert_eq!(limit.begin(starts), Some(0));
            limit.park(0);
            assert_eq!(limit.wake_at(), Some(starts + gap));
        }
    }
}
