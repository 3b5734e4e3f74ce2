//! A stopwatch whose laps are the phases of a connect.

use std::ops::Add;
use std::time::{Duration, Instant};

use ciphertoll_vocabulary::Phase;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTimes([Duration; Phase::ALL.len()]);

impl PhaseTimes {
    pub fn of(&self, phase: Phase) -> Duration {
        self.0[phase as usize]
    }

    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }
}

impl Add for PhaseTimes {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(std::array::from_fn(|phase| self.0[phase] + other.0[phase]))
    }
}

/// Assigns the time since the last lap to the phase that just ended. Every moment belongs to one phase or is skipped,
/// so the phases add up to the measured whole.
#[derive(Clone, Copy, Debug)]
pub struct Stopwatch {
    lap_began: Instant,
    times: PhaseTimes,
}

impl Stopwatch {
    pub fn start() -> Self {
        Self { lap_began: Instant::now(), times: PhaseTimes::default() }
    }

    /// Assigns the time since the last lap to `phase`.
    pub fn lap(&mut self, phase: Phase) {
        let now = Instant::now();
        self.times.0[phase as usize] += now - self.lap_began;
        self.lap_began = now;
    }

    /// Assigns the time since the last lap to no phase: it is not measured.
    pub fn skip(&mut self) {
        self.lap_began = Instant::now();
    }

    pub fn times(&self) -> &PhaseTimes {
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn skipped_time_belongs_to_no_phase() {
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
