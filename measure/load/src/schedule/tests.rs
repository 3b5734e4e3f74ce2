use proptest::prelude::*;

use super::*;

const WARM_UP: Duration = Duration::from_secs(1);
const LENGTH: Duration = Duration::from_secs(4);
const MILLI: Duration = Duration::from_millis(1);

fn window() -> MeasurementWindow {
    MeasurementWindow::starting_at(Instant::now(), WARM_UP, LENGTH)
}

fn schedule(window: MeasurementWindow, rate_per_s: f64, free: usize) -> Schedule {
    let mut schedule = Schedule::new(window, rate_per_s, free, 5);
    (0..free).for_each(|client| schedule.free(client, window.starts));
    schedule
}

/// Runs as if operations took `service` and the process were never late.
fn run(window: MeasurementWindow, rate_per_s: f64, seed: u64, service: Duration) -> (Vec<DueOperation>, u64) {
    let mut schedule = Schedule::new(window, rate_per_s, 1, seed);
    let (mut now, mut begun) = (window.starts, Vec::new());
    schedule.free(0, now);
    while let Some(at) = schedule.wake_at() {
        now = now.max(at);
        let Some(due) = schedule.begin_at(now) else {
            // Operations due in the warm-up were dropped; wait for the next.
            now += Duration::from_nanos(1);
            continue;
        };
        begun.push(due);
        schedule.end(0);
        now += service;
        schedule.free(0, now);
    }
    (begun, schedule.unfinished())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The number of operations is Poisson distributed: the tolerance is six standard deviations.
    #[test]
    fn the_mean_rate_is_as_configured(seed: u64, rate_per_s in 50.0..5_000.0_f64) {
        let (begun, unfinished) = run(window(), rate_per_s, seed, Duration::ZERO);
        let expected = rate_per_s * (WARM_UP + LENGTH).as_secs_f64();
        let count = begun.len() as f64;
        prop_assert!((count - expected).abs() < 6.0 * expected.sqrt(), "{count} where {expected} are due");
        prop_assert_eq!(unfinished, 0);
        prop_assert!(begun.is_sorted_by_key(|due| due.intended));
        prop_assert!(begun.iter().all(|due| due.lag.is_zero()));
    }

    #[test]
    fn a_seed_determines_the_schedule(seed: u64) {
        let window = window();
        let intended = |seed| {
            let (begun, _) = run(window, 200.0, seed, Duration::ZERO);
            begun.into_iter().map(|due| due.intended).collect::<Vec<_>>()
        };
        prop_assert_eq!(intended(seed), intended(seed));
        prop_assert_ne!(intended(seed), intended(seed.wrapping_add(1)));
    }

    /// However slow the server: each operation due in the window is begun, or counted as unfinished.
    #[test]
    fn no_due_operation_is_lost(seed: u64, service_micros in 0_u64..20_000) {
        let window = window();
        let all = run(window, 300.0, seed, Duration::ZERO).0;
        let due = all.iter().filter(|due| window.contains(due.intended)).count();
        let mut schedule = Schedule::new(window, 300.0, 1, seed);
        let (mut now, mut done) = (window.starts, 0);
        schedule.free(0, now);
        while now < window.closes {
            if let Some(due) = schedule.begin_at(now) {
                now += Duration::from_micros(service_micros);
                schedule.end(0);
                schedule.free(0, now);
                done += usize::from(window.contains(due.intended));
            } else {
                now = now.max(schedule.wake_at().unwrap_or(window.closes)) + Duration::from_nanos(1);
            }
        }
        prop_assert_eq!(done + schedule.unfinished() as usize, due);
    }
}

/// Half of the gaps are shorter than ln 2 of their mean.
#[test]
fn gaps_are_exponential() {
    let (begun, _) = run(window(), 2_000.0, 9, Duration::ZERO);
    let gaps: Vec<_> = begun.windows(2).map(|pair| pair[1].intended - pair[0].intended).collect();
    let median = Duration::from_secs_f64(2.0_f64.ln() / 2_000.0);
    let shorter = gaps.iter().filter(|gap| **gap < median).count() as f64 / gaps.len() as f64;
    assert!((0.47..0.53).contains(&shorter), "{shorter}");
}

/// The load process is late only by the time in which a client was free.
#[test]
fn lag_begins_when_a_client_is_free() {
    let window = window();
    let mut schedule = schedule(window, 100.0, 1);
    let first = schedule.wake_at().unwrap();
    assert_eq!(schedule.begin_at(first.checked_sub(Duration::from_nanos(1)).unwrap()), None);
    let due = schedule.begin_at(first + 3 * MILLI).unwrap();
    assert_eq!((due.client, due.intended, due.lag), (0, first, 3 * MILLI));
    // No client is free: operations wait, and there is no time to wake at.
    let late = first + Duration::from_millis(500);
    assert_eq!((schedule.begin_at(late), schedule.wake_at()), (None, None));
    assert_eq!(schedule.end(0), Some(due));
    schedule.free(0, late);
    let queued = schedule.begin_at(late + 2 * MILLI).unwrap();
    assert!(queued.intended < late);
    assert_eq!(queued.lag, 2 * MILLI);
}

#[test]
fn the_longest_free_client_is_first() {
    let window = window();
    let mut schedule = schedule(window, 1_000.0, 3);
    let late = window.starts + WARM_UP / 2;
    let begun: Vec<_> = std::iter::from_fn(|| schedule.begin_at(late)).map(|due| due.client).collect();
    assert_eq!(begun, [0, 1, 2]);
    for client in [2, 0] {
        schedule.end(client);
        schedule.free(client, late);
    }
    assert_eq!(schedule.begin_at(late).unwrap().client, 2);
    assert_eq!(schedule.end(1).unwrap().client, 1);
    assert_eq!(schedule.end(1), None);
}

/// If no client was free in the warm-up, its queue is dropped.
#[test]
fn the_window_opens_with_an_empty_queue() {
    let window = window();
    let mut schedule = schedule(window, 1_000.0, 0);
    schedule.running = vec![None];
    assert_eq!(schedule.begin_at(window.opens.checked_sub(MILLI).unwrap()), None);
    schedule.free(0, window.opens);
    let late = window.opens + 50 * MILLI;
    let due = schedule.begin_at(late).unwrap();
    assert!(window.contains(due.intended), "it was due in the warm-up");
    assert!(due.intended < late);
}

#[test]
fn operations_due_at_the_end_get_limited_overtime() {
    let window = window();
    let mut schedule = schedule(window, 100.0, 1);
    let due = schedule.begin_at(window.opens + LENGTH / 2).unwrap();
    assert!(window.contains(due.intended));
    assert!(schedule.wait_until(window.closes).is_some());
    assert!(schedule.wait_until(window.middle + LENGTH).is_some());
    assert_eq!(schedule.wait_until(window.closes + LENGTH), None);
    // The running operation and the queue behind it, which is a window's worth.
    let unfinished = schedule.unfinished();
    assert!((300..500).contains(&unfinished), "{unfinished}");
}

#[test]
fn a_thread_without_work_stops() {
    let window = MeasurementWindow::starting_at(Instant::now(), WARM_UP, MILLI);
    let mut schedule = schedule(window, 1_000_000.0, 1);
    while let Some(due) = schedule.begin_at(window.closes) {
        assert!(window.contains(due.intended));
        assert_eq!(schedule.wait_until(window.closes), Some(window.closes + MIN_OVERTIME));
        schedule.end(due.client);
        schedule.free(due.client, window.closes);
    }
    assert_eq!(schedule.wait_until(window.closes), None);
    assert_eq!(schedule.wait_until(window.opens), Some(window.closes));
    assert_eq!(schedule.unfinished(), 0);
}
