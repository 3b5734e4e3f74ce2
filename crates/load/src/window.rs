//! When samples count: after the warm-up, until the window closes.

use std::time::{Duration, Instant};

/// The part of a trial in which samples count.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
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
    pub(crate) fn starting_at(start: Instant, warm_up: Duration, length: Duration) -> Self {
        let opens = start + warm_up;
        Self { opens, middle: opens + length / 2, closes: opens + length }
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

    pub(crate) fn length(&self) -> Duration {
        self.closes - self.opens
    }
}
