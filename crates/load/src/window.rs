//! When samples count: after the warm-up, until the window closes.

use std::time::{Duration, Instant};

/// The part of a trial in which samples count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// When the warm-up begins.
    pub(crate) starts: Instant,
    pub(crate) opens: Instant,
    pub(crate) middle: Instant,
    pub(crate) closes: Instant,
}

/// Where in a trial a moment lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    WarmUp,
    FirstHalf,
    SecondHalf,
    Over,
}

impl Window {
    pub(crate) fn starting_at(starts: Instant, warm_up: Duration, length: Duration) -> Self {
        let opens = starts + warm_up;
        Self { starts, opens, middle: opens + length / 2, closes: opens + length }
    }

    pub(crate) fn moment(&self, at: Instant) -> Moment {
        if at < self.opens {
            Moment::WarmUp
        } else if at < self.middle {
            Moment::FirstHalf
        } else if at < self.closes {
            Moment::SecondHalf
        } else {
            Moment::Over
        }
    }

    /// Whether what happens then counts.
    pub(crate) fn contains(&self, at: Instant) -> bool {
        self.opens <= at && at < self.closes
    }

    pub(crate) fn length(&self) -> Duration {
        self.closes - self.opens
    }
}
