//! The measurement window: after the warm-up.

use std::time::{Duration, Instant};

/// The part of a trial in which samples count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MeasurementWindow {
    /// When the warm-up begins.
    pub(crate) starts: Instant,
    pub(crate) opens: Instant,
    pub(crate) middle: Instant,
    pub(crate) closes: Instant,
}

/// Which part of a trial a time is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowPart {
    WarmUp,
    FirstHalf,
    SecondHalf,
    Over,
}

impl MeasurementWindow {
    pub(crate) fn starting_at(starts: Instant, warm_up: Duration, length: Duration) -> Self {
        let opens = starts + warm_up;
        Self { starts, opens, middle: opens + length / 2, closes: opens + length }
    }

    pub(crate) fn part(&self, at: Instant) -> WindowPart {
        if at < self.opens {
            WindowPart::WarmUp
        } else if at < self.middle {
            WindowPart::FirstHalf
        } else if at < self.closes {
            WindowPart::SecondHalf
        } else {
            WindowPart::Over
        }
    }

    pub(crate) fn contains(&self, at: Instant) -> bool {
        self.opens <= at && at < self.closes
    }

    pub(crate) fn length(&self) -> Duration {
        self.closes - self.opens
    }
}
