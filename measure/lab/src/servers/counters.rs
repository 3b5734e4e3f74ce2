//! Counters that a server reports: pages, log, checkpoints and connections.

/// Counters of pages, log and checkpoints, or the difference of two readings; `None` if the server has no such counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// As [`crate::Server::buffer_misses`].
    pub buffer_misses: Option<u64>,
    /// Pages read from files into the buffers, including read-ahead and pages of system tables.
    pub pages_read: Option<u64>,
    /// Pages written from the buffers to files.
    pub pages_written: Option<u64>,
    /// Bytes of WAL or redo log.
    pub wal_bytes: Option<u64>,
    /// Full-page images in the WAL.
    pub full_page_images: Option<u64>,
    /// Syncs of WAL or redo log.
    pub wal_syncs: Option<u64>,
    pub checkpoints_begun: Option<u64>,
    /// Completed checkpoints; a lower bound in a difference.
    pub checkpoints_completed: Option<u64>,
    /// Log position of the last completed checkpoint; absent in a difference.
    pub checkpoint_lsn: Option<u64>,
    /// Redo log that a recovery would apply; in a difference, at the second reading.
    pub checkpoint_age_bytes: Option<u64>,
}

impl Counters {
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let between = |of: fn(&Self) -> Option<u64>| {
            of(before).zip(of(self)).map(|(before, after)| after.saturating_sub(before))
        };
        // Without a counter, a new position shows that there was at least one checkpoint.
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

/// Counters of connections and requests, or the difference of two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections; a [difference](Self::since) excludes those of the lab itself.
    pub connections: Option<u64>,
    /// Connections of the lab itself.
    pub own: u64,
    /// Successful TLS handshakes.
    pub encrypted: Option<u64>,
    /// Statements or transactions, including the lab's own.
    pub requests: Option<u64>,
}

impl ConnectionCounts {
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        let between = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        let own = self.own.saturating_sub(earlier.own);
        let all = between(self.connections, earlier.connections);
        Self {
            connections: all.map(|all| all.saturating_sub(own)),
            own,
            encrypted: between(self.encrypted, earlier.encrypted),
            requests: between(self.requests, earlier.requests),
        }
    }

    pub fn unencrypted(self) -> Option<u64> {
        Some(self.connections?.saturating_sub(self.encrypted?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_subtracts_counters() {
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
    fn a_counter_of_checkpoints_takes_precedence_over_positions() {
        let at = |completed, lsn| Counters {
            checkpoints_completed: Some(completed),
            checkpoint_lsn: Some(lsn),
            ..Counters::default()
        };
        assert_eq!(at(9, 32).since(&at(6, 16)).checkpoints_completed, Some(3));
    }

    #[test]
    fn absent_counters_stay_absent() {
        let of =
            |connections, own, encrypted| ConnectionCounts { connections, own, encrypted, requests: Some(7) };
        // The lab's own connections may exceed the server's count, because refused ones are not counted.
        let between = of(Some(14), 9, Some(9)).since(of(Some(2), 7, Some(1)));
        assert_eq!((between.connections, between.encrypted, between.requests), (Some(10), Some(8), Some(0)));
        assert_eq!(between.unencrypted(), Some(2));
        assert_eq!(of(Some(12), 0, None).since(of(Some(2), 0, None)).unencrypted(), None);
    }
}
