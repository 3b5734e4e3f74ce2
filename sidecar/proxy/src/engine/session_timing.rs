//! When the current activity of a client began, for its time limits.

use std::time::{Duration, Instant};

use ciphertoll_wire::relay::SessionProgress;

use crate::exceeded::{Exceeded, Timeout};
use crate::session_times::TimeLimits;

/// It is recorded only while there are time limits.
pub(super) struct SessionTiming {
    progress: SessionProgress,
    since: Instant,
    /// The first command of the transaction, or the only one.
    transaction_since: Option<Instant>,
    /// Until when the server must have cancelled the command.
    cancelled_until: Option<Instant>,
}

impl SessionTiming {
    pub(super) fn new(now: Instant) -> Self {
        Self { progress: SessionProgress::Idle, since: now, transaction_since: None, cancelled_until: None }
    }

    /// An idle client has waited for the proxy until now, and not the proxy for it.
    pub(super) fn restart(&mut self, now: Instant) {
        if self.progress == SessionProgress::Idle {
            self.since = now;
        }
    }

    pub(super) fn record(&mut self, progress: SessionProgress, now: Instant) {
        if progress == self.progress {
            return;
        }
        match progress {
            SessionProgress::Busy | SessionProgress::InTransaction => {
                self.transaction_since.get_or_insert(now);
            }
            SessionProgress::Idle | SessionProgress::Unknown => self.transaction_since = None,
        }
        (self.progress, self.since, self.cancelled_until) = (progress, now, None);
    }

    pub(super) fn is_busy(&self) -> bool {
        self.progress == SessionProgress::Busy
    }

    pub(super) fn cancelled(&mut self, until: Instant) {
        self.cancelled_until = Some(until);
    }

    /// The limit that is exceeded now.
    pub(super) fn exceeded(&self, limits: &TimeLimits, now: Instant) -> Option<Exceeded> {
        let is_over = |since: Instant, limit: &Duration| now.duration_since(since) >= *limit;
        let of = |timeout| move |limit| Exceeded { timeout, limit };
        let transaction_since = self.transaction_since.unwrap_or(now);
        let of_transaction = limits.transaction.filter(|limit| is_over(transaction_since, limit));
        let since = |limit: Option<Duration>| limit.filter(|limit| is_over(self.since, limit));
        match (self.progress, self.cancelled_until) {
            (SessionProgress::Busy | SessionProgress::InTransaction, _) if of_transaction.is_some() => {
                of_transaction.map(of(Timeout::Transaction))
            }
            (SessionProgress::Busy, None) => since(limits.query).map(of(Timeout::Query)),
            (SessionProgress::Busy, Some(until)) => {
                let limit = limits.query.unwrap_or_default();
                (now >= until).then(|| of(Timeout::NotCancelled)(limit))
            }
            (SessionProgress::InTransaction, _) => {
                since(limits.idle_transaction).map(of(Timeout::IdleInTransaction))
            }
            (SessionProgress::Idle, _) => since(limits.idle).map(of(Timeout::Idle)),
            (SessionProgress::Unknown, _) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> TimeLimits {
        let [query, transaction, idle_transaction, idle] = [2, 9, 3, 4].map(|times| Some(SECOND * times));
        TimeLimits { query, transaction, idle_transaction, idle }
    }

    #[test]
    fn each_limit_begins_anew_with_what_it_limits() {
        let start = Instant::now();
        let mut timing = SessionTiming::new(start);
        let at = |seconds: u32| start + SECOND * seconds;
        let check = |timing: &SessionTiming, seconds| {
            timing.exceeded(&limits(), at(seconds)).map(|exceeded| exceeded.timeout)
        };
        assert_eq!((check(&timing, 3), check(&timing, 4)), (None, Some(Timeout::Idle)));
        timing.restart(at(4));
        assert_eq!(
            (check(&timing, 7), check(&timing, 8)),
            (None, Some(Timeout::Idle)),
            "it waited for the proxy"
        );
        timing.record(SessionProgress::Busy, at(10));
        timing.record(SessionProgress::Busy, at(11));
        timing.restart(at(11));
        assert_eq!((check(&timing, 11), check(&timing, 12)), (None, Some(Timeout::Query)));
        timing.cancelled(at(15));
        assert_eq!((check(&timing, 14), check(&timing, 15)), (None, Some(Timeout::NotCancelled)));
        timing.record(SessionProgress::InTransaction, at(15));
        assert_eq!((check(&timing, 17), check(&timing, 18)), (None, Some(Timeout::IdleInTransaction)));
        timing.record(SessionProgress::Busy, at(17));
        assert_eq!((check(&timing, 18), check(&timing, 19)), (None, Some(Timeout::Transaction)));
        timing.record(SessionProgress::Idle, at(18));
        assert_eq!((check(&timing, 21), check(&timing, 22)), (None, Some(Timeout::Idle)));
        timing.record(SessionProgress::Busy, at(22));
        assert_eq!(check(&timing, 23), None);
        timing.record(SessionProgress::Unknown, at(23));
        assert_eq!(check(&timing, 99), None);
        timing.record(SessionProgress::Idle, at(50));
        assert_eq!(timing.exceeded(&TimeLimits::default(), at(99)), None);
    }
}
