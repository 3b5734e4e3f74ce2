//! What a server counts of its pages, its log and its checkpoints.

use ciphertoll_model::Engine;

use super::Server;
use crate::error::Error;
use crate::{documents, mysql_family, postgres};

/// What a server has counted until now, or between two moments. Absent is what it does not count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// As [`Server::buffer_misses`].
    pub buffer_misses: Option<u64>,
    /// Pages that came from files into the buffers, those read ahead and those of the server's own tables included.
    pub pages_read: Option<u64>,
    /// Pages that went from the buffers to files.
    pub pages_written: Option<u64>,
    /// Bytes of WAL or redo.
    pub wal_bytes: Option<u64>,
    /// Whole pages in the WAL.
    pub full_page_images: Option<u64>,
    /// Times that WAL or redo was made to go to the disk.
    pub wal_syncs: Option<u64>,
    /// Checkpoints that were begun.
    pub checkpoints_begun: Option<u64>,
    /// Checkpoints that were completed; between two moments at least so many.
    pub checkpoints_completed: Option<u64>,
    /// Where in the log the last completed checkpoint lies; absent between two moments.
    pub checkpoint_lsn: Option<u64>,
    /// Redo that a recovery would begin with; between two moments, at the second.
    pub checkpoint_age_bytes: Option<u64>,
}

impl Counters {
    /// What was counted since `before`.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let between = |of: fn(&Self) -> Option<u64>| {
            of(before).zip(of(self)).map(|(before, after)| after.saturating_sub(before))
        };
        // Who does not count them still shows that the last one is another.
        let moved =
            before.checkpoint_lsn.zip(self.checkpoint_lsn).map(|(one, other)| u64::from(one != other));
        Self {
            buffer_misses: between(|counters| counters.buffer_misses),
            pages_read: between(|counters| counters.pages_read),
            pages_written: between(|counters| counters.pages_written),
            wal_bytes: between(|counters| counters.wal_bytes),
            full_page_images: between(|counters| counters.full_page_images),
            wal_syncs: between(|counters| counters.wal_syncs),
            checkpoints_begun: between(|counters| counters.checkpoints_begun),
            checkpoints_completed: between(|counters| counters.checkpoints_completed).or(moved),
            checkpoint_lsn: None,
            checkpoint_age_bytes: self.checkpoint_age_bytes,
        }
    }
}

impl Server {
    /// What it has counted until now. On `PostgreSQL`, connections hand over what they have counted when they end at the
    /// latest, so those that were closed just now are awaited.
    pub fn counters(&self) -> Result<Counters, Error> {
        match self.engine {
            Engine::MariaDb | Engine::MySql => mysql_family::counters(&self.control),
            Engine::Postgres => postgres::counters(&self.control),
            Engine::MongoDb => {
                let pages_read = documents::buffer_misses(&self.control)?;
                Ok(Counters { buffer_misses: pages_read, pages_read, ..Counters::default() })
            }
            Engine::FerretDb => Ok(Counters::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_between_is_the_difference() {
        let before = Counters {
            pages_read: Some(7),
            wal_bytes: Some(1_000),
            checkpoint_lsn: Some(16),
            ..Counters::default()
        };
        let after = Counters {
            pages_read: Some(12),
            wal_bytes: None,
            checkpoint_lsn: Some(32),
            checkpoint_age_bytes: Some(99),
            ..Counters::default()
        };
        let between = Counters {
            pages_read: Some(5),
            checkpoints_completed: Some(1),
            checkpoint_age_bytes: Some(99),
            ..Counters::default()
        };
        assert_eq!(after.since(&before), between);
        assert_eq!(after.since(&after).checkpoints_completed, Some(0));
    }

    #[test]
    fn who_counts_checkpoints_is_believed() {
        let at = |completed, lsn| Counters {
            checkpoints_completed: Some(completed),
            checkpoint_lsn: Some(lsn),
            ..Counters::default()
        };
        assert_eq!(at(9, 32).since(&at(6, 16)).checkpoints_completed, Some(3));
    }
}
