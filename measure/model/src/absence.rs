//! Why a trial has no value for a metric that applies to it.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Why a trial has no value for a metric that applies to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "absent")]
pub enum Absence {
    /// A percentile needs more samples.
    TooFewSamples {
        samples: u64,
        /// The minimum for this percentile.
        needed: u64,
        window_ns: u64,
    },
    /// A role used so little CPU time that the clock's resolution would matter.
    TooLittleCpu {
        /// Used in the window.
        cpu_ns: u64,
        /// The minimum that is reported.
        needed_ns: u64,
        window_ns: u64,
    },
    /// The server runs on another machine, so its CPU time is unknown.
    ServerElsewhere,
    /// The kernel encrypts, and does not report the CPU time of that.
    InTheKernel,
}

impl Absence {
    /// Of two trials' absences, the one farther from having a value.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        let had = |absence: Self| match absence {
            Self::TooFewSamples { samples, .. } => samples,
            Self::TooLittleCpu { cpu_ns, .. } => cpu_ns,
            Self::ServerElsewhere | Self::InTheKernel => 0,
        };
        if had(other) < had(self) { other } else { self }
    }

    /// The window, in seconds, that would be long enough.
    fn enough_s(self) -> Option<u64> {
        /// Extra time, as trials differ.
        const RESERVE: f64 = 1.1;
        let (had, needed, window_ns) = match self {
            Self::TooFewSamples { samples, needed, window_ns } => (samples, needed, window_ns),
            Self::TooLittleCpu { cpu_ns, needed_ns, window_ns } => (cpu_ns, needed_ns, window_ns),
            Self::ServerElsewhere | Self::InTheKernel => return None,
        };
        let seconds = Duration::from_nanos(window_ns).as_secs_f64();
        let enough_s = (seconds * needed as f64 / had as f64 * RESERVE).ceil();
        // Hours would not be useful advice.
        (enough_s <= 3_600.0).then_some(enough_s as u64)
    }
}

impl fmt::Display for Absence {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewSamples { samples, needed, .. } => {
                write!(formatter, "{samples} samples in a trial, {needed} are needed")?;
            }
            Self::TooLittleCpu { cpu_ns, needed_ns, .. } => {
                let [had_ms, needed_ms] = [cpu_ns, needed_ns].map(|ns| ns / 1_000_000);
                write!(formatter, "{had_ms} ms of CPU time in a trial, {needed_ms} ms are needed")?;
            }
            Self::ServerElsewhere => formatter.write_str("the server does not run on this machine")?,
            Self::InTheKernel => {
                formatter.write_str("the kernel encrypts and does not report the CPU time of that")?;
            }
        }
        match self.enough_s() {
            Some(seconds) => write!(formatter, ": use --trial-time {seconds}s"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEW: Absence = Absence::TooFewSamples { samples: 145, needed: 200, window_ns: 2_000_000_000 };

    #[test]
    fn the_reason_suggests_a_long_enough_window() {
        assert_eq!(FEW.to_string(), "145 samples in a trial, 200 are needed: use --trial-time 4s");
        let cpu_ns = 37_000_000;
        let little = Absence::TooLittleCpu { cpu_ns, needed_ns: 200_000_000, window_ns: 2_000_000_000 };
        let said = "37 ms of CPU time in a trial, 200 ms are needed: use --trial-time 12s";
        assert_eq!(little.to_string(), said);
        let none = Absence::TooLittleCpu { cpu_ns: 0, needed_ns: 200_000_000, window_ns: 2_000_000_000 };
        assert_eq!(none.to_string(), "0 ms of CPU time in a trial, 200 ms are needed");
        assert_eq!(Absence::ServerElsewhere.to_string(), "the server does not run on this machine");
    }

    #[test]
    fn the_worse_trial_determines_the_reason() {
        let fewer = Absence::TooFewSamples { samples: 12, needed: 200, window_ns: 2_000_000_000 };
        assert_eq!((FEW.worse(fewer), fewer.worse(FEW)), (fewer, fewer));
    }
}
