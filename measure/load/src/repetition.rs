//! The known effect that the truth experiments inject and must find again.

/// Decides which operations do all of their work twice, and count as one. Their mean then costs exactly 1 + `share` times as
/// much: in time, and in every other metric. A delay would not do: processors fall asleep and caches cool down meanwhile, so
/// it costs more than itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Repetition {
    /// Of the operations, from 0 to 1.
    share: f64,
    /// Repetitions owed; less than 1.
    owed: f64,
}

impl Repetition {
    pub(crate) fn of(share: f64) -> Self {
        Self { share, owed: 0.0 }
    }

    /// Whether the operation that has done its work must do it again. Call this once for each operation.
    pub(crate) fn is_due(&mut self) -> bool {
        self.owed += self.share;
        let is_due = self.owed >= 1.0;
        if is_due {
            self.owed -= 1.0;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_spread_evenly() {
        for (share, repeated) in [(0.0, 0), (0.25, 250), (0.3, 300), (1.0, 1_000)] {
            let mut repetition = Repetition::of(share);
            let due: Vec<bool> = (0..1_000).map(|_| repetition.is_due()).collect();
            let count = |of: &[bool]| of.iter().filter(|is_due| **is_due).count();
            assert!(count(&due).abs_diff(repeated) <= 1, "{share}");
            assert!(count(&due[..500]).abs_diff(repeated / 2) <= 1, "{share}");
        }
    }
}
