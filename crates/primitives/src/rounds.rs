//! The time of one operation: rounds that are short beside what disturbs a machine, and their median.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

use crate::Error;

/// Odd, so that there is one in the middle.
const ROUNDS: usize = 7;
/// All rounds together take about this, but each does at least one operation.
const ALL_ROUNDS: Duration = Duration::from_millis(20);

/// CPU time of one `operation`, ns. `interrupted` is asked before each round.
pub(crate) fn operation_ns(
    interrupted: &dyn Fn() -> bool,
    mut operation: impl FnMut() -> Result<(), Error>,
) -> Result<u64, Error> {
    // The first one also fetches algorithms and fills tables, which a server does once and not on each connect.
    operation()?;
    let once_ns = round_ns(1, &mut operation)?;
    let fitting = ALL_ROUNDS.as_nanos() as u64 / ROUNDS as u64 / once_ns.max(1);
    let operations = fitting.max(1);
    let mut rounds = [0; ROUNDS];
    for round in &mut rounds {
        if interrupted() {
            return Err(Error::Interrupted);
        }
        *round = round_ns(operations, &mut operation)? / operations;
    }
    Ok(median(rounds))
}

fn round_ns(operations: u64, operation: &mut impl FnMut() -> Result<(), Error>) -> Result<u64, Error> {
    let began = thread_cpu()?;
    for _ in 0..operations {
        operation()?;
    }
    Ok(thread_cpu()?.saturating_sub(began).as_nanos() as u64)
}

/// Time in which the thread did not run is no part of it.
fn thread_cpu() -> Result<Duration, Error> {
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

    /// Burns CPU; the clock says when it is enough.
    fn spin(time: Duration) -> Result<(), Error> {
        let began = thread_cpu()?;
        while thread_cpu()?.saturating_sub(began) < time {}
        Ok(())
    }

    #[test]
    fn the_time_is_that_of_one_operation() {
        let (time, count) = (Duration::from_micros(200), Cell::new(0_u32));
        let found = operation_ns(&|| false, || {
            count.set(count.get() + 1);
            spin(time)
        });
        let found = Duration::from_nanos(found.unwrap());
        assert!(found >= time && found < time * 2, "{found:?}");
        assert!(count.get() >= 2 + ROUNDS as u32);
        assert!(time * count.get() < ALL_ROUNDS * 2, "{} operations take too long", count.get());
    }

    #[test]
    fn what_takes_longer_than_all_rounds_is_done_once_in_each() {
        let count = Cell::new(0);
        let time = operation_ns(&|| false, || {
            count.set(count.get() + 1);
            spin(ALL_ROUNDS)
        });
        assert!(time.unwrap() >= ALL_ROUNDS.as_nanos() as u64);
        assert_eq!(count.get(), 2 + ROUNDS);
    }

    #[test]
    fn the_median_is_no_mean() {
        assert_eq!(median([9, 1, 5, 1_000_000, 4, 6, 2]), 5);
    }

    #[test]
    fn an_interrupt_ends_it_between_two_rounds() {
        let asked = Cell::new(0);
        let interrupted = || {
            asked.set(asked.get() + 1);
            asked.get() > 2
        };
        assert!(matches!(operation_ns(&interrupted, || Ok(())), Err(Error::Interrupted)));
        assert_eq!(asked.get(), 3);
    }
}
