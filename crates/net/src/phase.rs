//! A stopwatch whose laps are the phases of a connect.

use std::time::{Duration, Instant};

use ciphertoll_vocabulary::Phase;

/// Time spent in each phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes([Duration; Phase::ALL.len()]);

impl PhaseTimes {
    /// Time spent in `phase`.
    pub fn of(&self, phase: Phase) -> Duration {
        self.0[phase as usize]
    }

    /// Time spent in all of them.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }
}

/// Charges the time since the last lap to the phase that just ended. Every moment belongs to
/// exactly one phase, so that the phases add up to the whole; or to none, where it is skipped.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    lap_began: Instant,
    times: PhaseTimes,
}

impl Stopwatch {
    /// Starts now.
    pub fn start() -> Self {
        Self { lap_began: Instant::now(), times: PhaseTimes::default() }
    }

    /// Charges the time since the last lap to `phase`.
    pub fn lap(&mut self, phase: Phase) {
        let now = Instant::now();
        self.times.0[phase as usize] += now - self.lap_began;
        self.lap_began = now;
    }

    /// Charges the time since the last lap to no phase: it is not part of what is timed.
    pub fn skip(&mut self) {
        self.lap_began = Instant::now();
    }

    /// The laps so far.
    pub fn times(&self) -> &PhaseTimes {
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_belongs_to_no_phase() {
        let before = Instant::now();
        let mut stopwatch = Stopwatch::start();
        stopwatch.lap(Phase::Auth);
        let skipped = Instant::now();
        while skipped.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        stopwatch.skip();
        stopwatch.lap(Phase::Close);
        let charged = stopwatch.times().total();
        assert_eq!(charged, stopwatch.times().of(Phase::Auth) + stopwatch.times().of(Phase::Close));
        assert!(charged + Duration::from_millis(20) <= before.elapsed(), "{charged:?}");
    }
}
