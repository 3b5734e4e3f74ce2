//! Measuring how far the hosts' monotonic clocks are apart.

use std::time::{Duration, Instant};

use ciphertoll_load::monotonic_now_ns;

use super::trial::{Running, TrialFailure};
use super::{Fleet, Incoming, TrialWatch};
use crate::clock::{ClockOffset, Exchange};
use crate::protocol::{FromHost, ToHost};

/// Pings of each host before a trial; the shortest round trip counts.
const PINGS: usize = 5;
/// A host that does not answer a ping for this long is lost.
const PONG_LIMIT: Duration = Duration::from_secs(10);

impl Fleet {
    /// Pings the hosts of the trial and notes the offsets of their clocks. All are pinged at the same time, a few times
    /// in a row.
    pub(super) fn measure_offsets(
        &mut self,
        trial: &mut Running,
        watch: &dyn TrialWatch,
    ) -> Result<(), TrialFailure> {
        let mut exchanges: Vec<Vec<Exchange>> = vec![Vec::with_capacity(PINGS); trial.hosts()];
        for _ in 0..PINGS {
            let answered = self.ping_all(trial, watch)?;
            for (host, exchange) in answered.into_iter().enumerate() {
                let Some(exchange) = exchange else {
                    let reason = format!("no answer within {} s", PONG_LIMIT.as_secs());
                    return Err(self.lost(host, reason));
                };
                exchanges[host].push(exchange);
            }
        }
        for (host, exchanges) in exchanges.iter().enumerate() {
            match ClockOffset::best(exchanges) {
                Some(offset) => self.members[host].offset = offset,
                None => return Err(self.lost(host, "its monotonic clock contradicts itself".to_owned())),
            }
        }
        Ok(())
    }

    /// Pings every host once; `None` for a host that did not answer in time.
    fn ping_all(
        &mut self,
        trial: &mut Running,
        watch: &dyn TrialWatch,
    ) -> Result<Vec<Option<Exchange>>, TrialFailure> {
        let number = self.pings;
        self.pings += 1;
        let mut sent_ns = vec![0; trial.hosts()];
        for (host, sent_ns) in sent_ns.iter_mut().enumerate() {
            *sent_ns = monotonic_now_ns();
            self.send(host, &ToHost::Ping { number })?;
        }
        let mut answers: Vec<Option<Exchange>> = vec![None; trial.hosts()];
        let deadline = Instant::now() + PONG_LIMIT;
        while answers.iter().any(Option::is_none) && Instant::now() < deadline {
            if watch.is_interrupted() {
                return Err(TrialFailure::Interrupted);
            }
            for incoming in self.look(deadline)? {
                let Incoming::Said {
                    host,
                    at_ns,
                    message: FromHost::Pong { number: of, received_ns, sent_ns: back_ns },
                } = incoming
                else {
                    self.take(trial, incoming)?;
                    continue;
                };
                // A late answer to an earlier ping is none to this one.
                if of == number
                    && let Some(answer) = answers.get_mut(host)
                {
                    *answer = Some(Exchange {
                        sent_ns: sent_ns[host],
                        received_there_ns: received_ns,
                        sent_there_ns: back_ns,
                        received_ns: at_ns,
                    });
                }
            }
        }
        Ok(answers)
    }
}
