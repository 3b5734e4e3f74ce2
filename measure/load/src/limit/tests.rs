use proptest::prelude::*;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

/// Clients that are `late` to begin and then `busy`, in turn; returns who began when within ten seconds.
fn run(per_s: f64, clients: usize, late: &[Duration], busy: &[Duration]) -> Vec<(usize, Duration)> {
    let starts = Instant::now();
    let closes = starts + 10 * SECOND;
    let mut limit = RateLimit::new(starts, per_s, clients);
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
        now = now.max(ends.into_iter().chain(wakes).min().expect("a client waits or is busy"));
    }
    begun
}

fn times(most: Duration) -> impl Strategy<Value = Vec<Duration>> {
    prop::collection::vec((0..=most.as_micros() as u64).prop_map(Duration::from_micros), 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_interval_exceeds_its_share(
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

    /// The client that has waited longest is next: between two turns of a client no other has more than one, if
    /// all are equally fast, and each waits only for the others' turns.
    #[test]
    fn no_client_starves(
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

    /// The rate is reached if clients are never late.
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
    let mut limit = RateLimit::new(starts, 10.0, 3);
    assert_eq!((limit.begin(starts), limit.wake_at()), (None, None));
    for client in [2, 0, 1] {
        limit.park(client);
    }
    assert_eq!(limit.begin(starts), Some(2));
    assert_eq!((limit.begin(starts), limit.wake_at()), (None, Some(starts + SECOND / 10)));
    assert_eq!(limit.begin(starts + SECOND / 10), Some(0));
    // Late: missed operations are not made up for.
    let late = starts + SECOND;
    assert_eq!(limit.begin(late), Some(1));
    limit.park(0);
    assert_eq!((limit.begin(late), limit.wake_at()), (None, Some(late + SECOND / 10)));
    assert!(limit.is_awaited());
}

/// The lowest rates do not panic.
#[test]
fn extreme_rates() {
    let starts = Instant::now();
    for (per_s, gap) in
        [(f64::MIN_POSITIVE, Duration::from_nanos(u64::MAX)), (3.0, Duration::from_nanos(333_333_334))]
    {
        let mut limit = RateLimit::new(starts, per_s, 1);
        limit.park(0);
        assert_eq!(limit.begin(starts), Some(0));
        limit.park(0);
        assert_eq!(limit.wake_at(), Some(starts + gap));
    }
}
