//! When the sidecar is reloaded, connections are killed, and the server is restarted.

use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    Reload,
    /// Ends some of the sidecar's connections on the server.
    Kill,
    /// Restarts the server.
    Restart,
}

/// A period with an offset, so that no two begin together.
#[derive(Clone, Copy, Debug)]
struct Period {
    what: Disturbance,
    first_s: u64,
    every_s: u64,
}

/// Since the beginning.
pub const FIRST_RESTART: Duration = Duration::from_secs(150);

const PERIODS: [Period; 3] = [
    Period { what: Disturbance::Reload, first_s: 20, every_s: 30 },
    Period { what: Disturbance::Kill, first_s: 27, every_s: 20 },
    Period { what: Disturbance::Restart, first_s: FIRST_RESTART.as_secs(), every_s: 300 },
];

/// How many of the sidecar's connections a kill ends.
pub const KILLED_AT_ONCE: usize = 3;

/// What is due in the seconds from `after` to `until` (exclusive) since the beginning.
pub fn due(after: Duration, until: Duration) -> Vec<Disturbance> {
    let is_due = |period: &Period| {
        (after.as_secs()..until.as_secs()).any(|second| {
            second >= period.first_s && (second - period.first_s).is_multiple_of(period.every_s)
        })
    };
    PERIODS.iter().filter(|period| is_due(period)).map(|period| period.what).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_due_in_its_period() {
        let seconds = Duration::from_secs;
        assert!(due(seconds(0), seconds(20)).is_empty());
        assert_eq!(due(seconds(20), seconds(21)), [Disturbance::Reload]);
        assert_eq!(due(seconds(45), seconds(51)), [Disturbance::Reload, Disturbance::Kill]);
        assert_eq!(due(seconds(150), seconds(151)), [Disturbance::Restart]);
        let of_half_an_hour = (0..1800).flat_map(|second| due(seconds(second), seconds(second + 1)));
        assert_eq!(of_half_an_hour.filter(|what| *what == Disturbance::Restart).count(), 6);
    }
}
