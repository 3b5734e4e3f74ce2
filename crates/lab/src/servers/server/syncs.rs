//! How long a sync takes where a server's files are.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use super::Server;
use crate::error::{Context, Error};
use crate::files::PRIVATE_FILE;

/// What is written before each sync: a page of `PostgreSQL`'s, and of its WAL.
const BYTES: usize = 8_192;
/// Syncs in a row.
const MOST: usize = 256;
/// No sync begins later than this after the first.
const LIMIT: Duration = Duration::from_millis(1_500);
/// Fewer do not carry a 99th percentile.
const FEWEST_FOR_P99: usize = 100;

/// How long a sync of 8 KiB takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncTimes {
    /// Median.
    pub p50_ns: u64,
    /// 99th percentile; absent where a slow disk let too few be timed.
    pub p99_ns: Option<u64>,
}

impl SyncTimes {
    /// Of times in any order; none of none.
    fn of(mut times: Vec<Duration>) -> Option<Self> {
        times.sort_unstable();
        let nanos = |time: Option<&Duration>| time.map(|time| time.as_nanos() as u64);
        let p99 = times.get((times.len() * 99).div_ceil(100).saturating_sub(1));
        Some(Self {
            p50_ns: nanos(times.get(times.len().saturating_sub(1) / 2))?,
            p99_ns: nanos(p99.filter(|_| times.len() >= FEWEST_FOR_P99)),
        })
    }
}

impl Server {
    /// Writes 8 KiB and has it go to the disk, up to 256 times in a row and for no longer than 1.5 s, in a file of its own in
    /// the file system that the data are in: through what encrypts them, where that is a file system. The file is there
    /// before, as a log's is, so that only its content is new. The server has no part in it and should be idle.
    pub fn time_syncs(&self) -> Result<Option<SyncTimes>, Error> {
        let path = self.place.temporary.join("sync-probe");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE_FILE);
        let times = options.open(&path).and_then(|file| time(&file));
        // Whatever became of it.
        let removed = fs::remove_file(&path);
        let times = times.context("time syncs in", &path)?;
        removed.context("remove", &path)?;
        Ok(SyncTimes::of(times))
    }
}

fn time(file: &File) -> std::io::Result<Vec<Duration>> {
    file.write_all_at(&vec![0; BYTES * MOST], 0)?;
    file.sync_all()?;
    let page = [0xa5; BYTES];
    let began = Instant::now();
    let mut times = Vec::with_capacity(MOST);
    for index in 0..MOST {
        if began.elapsed() > LIMIT {
            break;
        }
        let from = Instant::now();
        file.write_all_at(&page, (index * BYTES) as u64)?;
        file.sync_data()?;
        times.push(from.elapsed());
    }
    Ok(times)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_p99_takes_a_hundred_syncs() {
        let micros = |count: u64| (1..=count).rev().map(Duration::from_micros).collect::<Vec<_>>();
        assert_eq!(SyncTimes::of(micros(0)), None);
        assert_eq!(SyncTimes::of(micros(99)), Some(SyncTimes { p50_ns: 50_000, p99_ns: None }));
        let times = SyncTimes { p50_ns: 128_000, p99_ns: Some(254_000) };
        assert_eq!(SyncTimes::of(micros(256)), Some(times));
    }
}
