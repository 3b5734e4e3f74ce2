//! The phases of a connect, and a stopwatch whose laps add up to the whole.

use std::time::{Duration, Instant};

/// A part of a connect. Each begins where the one before it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Looking up the server's name; no time passes where it is an address.
    Dns,
    /// `socket()` to connected.
    TcpConnect,
    /// Connected to the server's greeting, in a protocol where the server speaks first; in MongoDB from the TLS
    /// handshake's end, where there is one, to the answer to `hello`.
    ServerGreeting,
    /// Building the client's TLS context; no time passes where it is shared.
    TlsContext,
    /// Asking for TLS in the database's protocol.
    TlsRequest,
    /// The TLS handshake, verification included.
    TlsHandshake,
    /// Login to the server's consent.
    Auth,
    /// Consent to the server's word that it awaits commands, where the protocol tells them apart.
    Ready,
    /// The first query.
    FirstQuery,
    /// The orderly close.
    Close,
}

impl Phase {
    /// Every phase, in the order in which they happen; MongoDB greets after the TLS handshake.
    pub const ALL: [Self; 10] = [
        Self::Dns,
        Self::TcpConnect,
        Self::ServerGreeting,
        Self::TlsContext,
        Self::TlsRequest,
        Self::TlsHandshake,
        Self::Auth,
        Self::Ready,
        Self::FirstQuery,
        Self::Close,
    ];
}

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
