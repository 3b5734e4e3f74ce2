//! The CPU time of one operation: the median of several rounds, each short compared with disturbances.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::primitives::error::PrimitiveError;

/// Odd, so that there is a middle one.
const ROUNDS: usize = 7;
/// Approximate time of all rounds together; each does at least one operation.
const ALL_ROUNDS: Duration = Duration::from_millis(20);

/// CPU time of one `operation` in nanoseconds. `interrupted` is checked before each round.
pub(crate) fn operation_ns(
    interrupted: &dyn Fn() -> bool,
    operation: impl FnMut() -> Result<(), PrimitiveError>,
) -> Result<u64, PrimitiveError> {
    operation_ns_by(thread_cpu, interrupted, operation)
}

fn operation_ns_by(
    clock: impl Fn() -> Result<Duration, PrimitiveError>,
    interrupted: &dyn Fn() -> bool,
    mut operation: impl FnMut() -> Result<(), PrimitiveError>,
) -> Result<u64, PrimitiveError> {
    // The first operation also fetches algorithms and fills tables, which a server does once and not per
    // connect.
    operation()?;
    let once_ns = round_ns(&clock, 1, &mut operation)?;
    let fitting = ALL_ROUNDS.as_nanos() as u64 / ROUNDS as u64 / once_ns.max(1);
    let operations = fitting.max(1);
    let mut rounds = [0; ROUNDS];
    for round in &mut rounds {
        if interrupted() {
            return Err(PrimitiveError::Interrupted);
        }
        *round = round_ns(&clock, operations, &mut operation)? / operations;
    }
    Ok(median(rounds))
}

fn round_ns(
    clock: &impl Fn() -> Result<Duration, PrimitiveError>,
    operations: u64,
    operation: &mut impl FnMut() -> Result<(), PrimitiveError>,
) -> Result<u64, PrimitiveError> {
    let began = clock()?;
    for _ in 0..operations {
        operation()?;
    }
    Ok(clock()?.saturating_sub(began).as_nanos() as u64)
}

/// Excludes time in which the thread does not run.
fn thread_cpu() -> Result<Duration, PrimitiveError> {
    Ok(Duration::from(clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?))
}

fn median(mut rounds: [u64; ROUNDS]) -> u64 {
    rounds.sort_unstable();
    rounds[ROUNDS / 2]
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    const NEVER: &dyn Fn() -> bool = &|| false;

    /// Measures operations that take `time_of` each, numbered from 0, on a simulated clock. Returns the
    /// result and the number of operations.
    fn found(time_of: impl Fn(u64) -> Duration) -> (Duration, u64) {
        let (now, count) = (Cell::new(Duration::ZERO), Cell::new(0));
        let ns = operation_ns_by(
            || Ok(now.get()),
            NEVER,
            || {
                now.set(now.get() + time_of(count.get()));
                count.set(count.get() + 1);
                Ok(())
            },
        );
        (Duration::from_nanos(ns.unwrap()), count.get())
    }

    #[test]
    fn the_time_is_that_of_one_operation() {
        let time = Duration::from_micros(200);
        // 7 rounds of 14 fit into 20 ms.
        assert_eq!(found(|_| time), (time, 2 + 7 * 14));
    }

    #[test]
    fn the_first_operation_and_disturbed_rounds_do_not_count() {
        let (time, long) = (Duration::from_micros(200), Duration::from_secs(1));
        let disturbed = [0, 5, 20, 40];
        assert_eq!(found(|at| if disturbed.contains(&at) { long } else { time }).0, time);
    }

    #[test]
    fn an_operation_longer_than_all_rounds_runs_once_per_round() {
        assert_eq!(found(|_| ALL_ROUNDS), (ALL_ROUNDS, 2 + ROUNDS as u64));
    }

    #[test]
    fn the_clock_is_the_threads_own() {
        let time = Duration::from_millis(20);
        let spin = move || while thread_cpu().unwrap() < time {};
        let began = thread_cpu().unwrap();
        std::thread::spawn(spin).join().unwrap();
        assert!(thread_cpu().unwrap().saturating_sub(began) < time, "it counts the time of another thread");
    }

    #[test]
    fn the_median_ignores_outliers() {
        assert_eq!(median([9, 1, 5, 1_000_000, 4, 6, 2]), 5);
    }

    #[test]
    fn an_interrupt_stops_between_two_rounds() {
        let asked = Cell::new(0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        };
        assert!(matches!(operation_ns(&interrupted, || Ok(())), Err(PrimitiveError::Interrupted)));
        assert_eq!(asked.get(), 3);
    }
}
