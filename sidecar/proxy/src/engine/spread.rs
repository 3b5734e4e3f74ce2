//! How many workers serve clients: only as many as all clients keep busy. A worker with more clients finds more of them
//! ready whenever it wakes up, and a thread that sleeps costs nothing. Clients are spread evenly over these workers: new
//! ones when they are accepted (`SharedState::assign_client`), the others at the next tick ([`super::client_moves`]).

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};

use super::worker::Worker;
use crate::protocol::Protocol;

/// The worker that always serves clients.
pub(super) const FIRST_WORKER: usize = 0;

/// One worker fewer serves clients if the load of each remaining worker would be less than this part of the busy limit.
const LIGHT: f64 = 0.7;

/// What the first worker knows of the processor time of all.
#[derive(Default)]
pub(super) struct Spread {
    last: Option<Usage>,
}

struct Usage {
    at: Instant,
    /// By each worker.
    used: Vec<Duration>,
}

impl Spread {
    /// The part of a processor that each worker has used since the last call. A worker that has not told its
    /// time since then was asleep. `None` at the first call: a start uses a processor without clients.
    fn load(&mut self, used: Vec<Duration>, at: Instant) -> Option<Vec<f64>> {
        let now = Usage { at, used };
        let load = self.last.as_ref().map(|last| now.since(last));
        self.last = Some(now);
        load
    }
}

impl Usage {
    fn since(&self, last: &Self) -> Vec<f64> {
        let elapsed = self.at.duration_since(last.at).as_secs_f64();
        let spent = self.used.iter().zip(&last.used).map(|(used, before)| used.saturating_sub(*before));
        spent.map(|spent| spent.as_secs_f64() / elapsed).collect()
    }
}

/// How many workers are to serve clients after `accepting` did, by the part of a processor that each worker uses. One that
/// uses `busy` or more is busy.
fn next(accepting: usize, load: &[f64], busy: f64) -> usize {
    let is_busy = load.iter().any(|used| *used >= busy);
    let fewer = accepting.saturating_sub(1).max(1);
    let total: f64 = load.iter().sum();
    if is_busy {
        (accepting * 2).min(load.len())
    } else if total < LIGHT * busy * fewer as f64 {
        fewer
    } else {
        accepting
    }
}

/// The processor time of this thread.
fn thread_time() -> Duration {
    // The clock of a thread itself always exists.
    clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_or(Duration::ZERO, Into::into)
}

impl<P: Protocol> Worker<P> {
    /// Serves clients, or leaves them to workers that have time for them.
    pub(super) fn spread_clients(&mut self) {
        if self.shared.threads() == 1 {
            return;
        }
        self.shared.age_recent();
        self.shared.tell_used(thread_time());
        if let Some(spread) = &mut self.spread
            && let Some(load) = spread.load(self.shared.used(), self.env.now)
        {
            let busy = f64::from(self.env.limits.thread_load_percent) / 100.0;
            self.shared.set_accepting(next(self.shared.accepting(), &load, busy));
        }
        self.agenda.balance_clients = true;
        self.leave_idle_servers();
        if self.shared.accepts() {
            self.resume_accepting();
        } else {
            self.acceptor.pause(&self.env.reactor);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_workers_serve_as_clients_keep_busy() {
        let mut accepting = 4;
        for expected in [3, 2, 1, 1] {
            accepting = next(accepting, &[0.15, 0.15, 0.15, 0.0], 0.7);
            assert_eq!(accepting, expected);
        }
        // Between the limits nothing changes, so that it does not change all the time.
        assert_eq!(next(1, &[0.65, 0.0, 0.0, 0.0], 0.7), 1);
        assert_eq!(next(2, &[0.3, 0.3, 0.0, 0.0], 0.7), 2);
        assert_eq!(next(1, &[0.75, 0.0, 0.0, 0.0], 0.7), 2);
        assert_eq!(next(2, &[0.75, 0.75, 0.0, 0.0], 0.7), 4);
        assert_eq!(next(4, &[0.95; 4], 0.7), 4);
    }

    #[test]
    fn all_workers_serve_if_none_may_be_loaded() {
        assert_eq!((next(2, &[0.0; 4], 0.0), next(4, &[0.0; 4], 0.0)), (4, 4));
    }

    #[test]
    fn load_is_what_was_used_since_the_last_time() {
        let began = Instant::now();
        let mut spread = Spread::default();
        let ms = Duration::from_millis;
        // The start is not a load.
        assert_eq!(spread.load(vec![ms(0), ms(0)], began), None);
        assert_eq!(spread.load(vec![ms(100), ms(50)], began + ms(200)), Some(vec![0.5, 0.25]));
        assert_eq!(spread.load(vec![ms(150), ms(50)], began + ms(400)), Some(vec![0.25, 0.0]));
    }

    #[test]
    fn a_thread_knows_its_time() {
        let before = thread_time();
        while thread_time() <= before {}
    }
}
