//! How long a run has taken, from its record: a resumed run has no other clock.

use std::time::Duration;

use ciphertoll_model::{Event, TimestampedEvent};

/// The clock of a run, folded from its events.
#[derive(Debug, Default)]
pub struct Elapsed {
    /// Up to the last resumption.
    before_ms: u64,
    /// When measuring began after it.
    began_ms: Option<u64>,
    last_ms: u64,
    block_began_ms: Option<u64>,
    blocks_ms: u64,
    blocks: u64,
}

impl Elapsed {
    pub(crate) fn add(&mut self, stamped: &TimestampedEvent) {
        let now_ms = stamped.at_unix_ms;
        match stamped.event {
            // Nothing was measured since the last event.
            Event::RunResumed { .. } => {
                self.before_ms = self.measuring_ms();
                self.began_ms = None;
            }
            Event::BlockStarted { block } => {
                self.began_ms.get_or_insert(now_ms);
                // An interrupted block counts with its last attempt.
                self.block_began_ms = (block > 0).then_some(now_ms);
            }
            Event::TrialStarted { .. } => {
                self.began_ms.get_or_insert(now_ms);
            }
            Event::BlockFinished { block } if block > 0 => {
                self.blocks_ms += self.block_began_ms.take().map_or(0, |began| now_ms.saturating_sub(began));
                self.blocks += 1;
            }
            _ => {}
        }
        self.last_ms = now_ms;
    }

    fn measuring_ms(&self) -> u64 {
        self.before_ms + self.began_ms.map_or(0, |began_ms| self.last_ms.saturating_sub(began_ms))
    }

    /// Measuring time without the preparation of servers, added up over the start and every resumption.
    pub fn measuring(&self) -> Duration {
        Duration::from_millis(self.measuring_ms())
    }

    /// Mean duration of a counted block; absent before the first is complete.
    pub fn mean_block(&self) -> Option<Duration> {
        (self.blocks > 0).then(|| Duration::from_millis(self.blocks_ms / self.blocks))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measuring(events: &[TimestampedEvent]) -> Duration {
        elapsed(events).measuring()
    }

    fn mean_block(events: &[TimestampedEvent]) -> Option<Duration> {
        elapsed(events).mean_block()
    }

    fn elapsed(events: &[TimestampedEvent]) -> Elapsed {
        let mut elapsed = Elapsed::default();
        for event in events {
            elapsed.add(event);
        }
        elapsed
    }

    fn at(seconds: u64, event: Event) -> TimestampedEvent {
        TimestampedEvent { at_unix_ms: 1_000_000 + seconds * 1_000, event }
    }

    fn resumed() -> Event {
        Event::RunResumed { tool_version: String::new() }
    }

    fn started(block: u32) -> Event {
        Event::BlockStarted { block }
    }

    fn finished(block: u32) -> Event {
        Event::BlockFinished { block }
    }

    /// Ten seconds of preparation, a calibration of 5 s, a block of 20 s, one that is cut short after 7 s; an hour later 8 s of
    /// preparation, and blocks of 30 s and 40 s.
    fn events() -> Vec<TimestampedEvent> {
        vec![
            at(0, Event::RunStarted { schema_version: 1, tool_version: String::new() }),
            at(10, started(0)),
            at(15, finished(0)),
            at(15, started(1)),
            at(35, finished(1)),
            at(35, started(2)),
            at(42, Event::Warned { message: "interrupted".to_owned() }),
            at(3_642, resumed()),
            at(3_650, started(2)),
            at(3_680, finished(2)),
            at(3_680, started(3)),
            at(3_720, finished(3)),
        ]
    }

    #[test]
    fn a_resumed_run_has_used_what_it_had_before() {
        assert_eq!(measuring(&events()[..7]), Duration::from_secs(32));
        assert_eq!(measuring(&events()), Duration::from_secs(32 + 70));
        assert_eq!(measuring(&[]), Duration::ZERO);
    }

    #[test]
    fn a_block_takes_what_whole_blocks_took() {
        assert_eq!(mean_block(&events()[..3]), None);
        assert_eq!(mean_block(&events()[..7]), Some(Duration::from_secs(20)));
        assert_eq!(mean_block(&events()), Some(Duration::from_secs(30)));
    }

    #[test]
    fn a_clock_that_was_set_back_is_no_time() {
        let events = vec![at(100, started(1)), at(90, finished(1))];
        assert_eq!((measuring(&events), mean_block(&events)), (Duration::ZERO, Some(Duration::ZERO)));
    }
}
