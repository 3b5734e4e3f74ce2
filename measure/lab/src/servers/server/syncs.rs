//! The duration of a sync in the file system of a server's data.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{Duration, Instant};

use ciphertoll_host::files::PRIVATE_FILE;
use ciphertoll_record::Context;

use super::Server;
use crate::error::Error;

/// Written before each sync: the page size of PostgreSQL's tables and WAL.
const BYTES: usize = 8_192;
const MOST: usize = 256;
/// No sync begins later than this.
const LIMIT: Duration = Duration::from_millis(1_500);
const FEWEST_FOR_P99: usize = 100;

/// Durations of a write and sync of 8 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncTimes {
    pub p50_ns: u64,
    /// Absent if a slow disk permitted too few syncs.
    pub p99_ns: Option<u64>,
}

impl SyncTimes {
    /// `None` without any times.
    fn from_times(mut times: Vec<Duration>) -> Option<Self> {
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
    /// Writes and syncs 8 KiB up to 256 times, for at most 1.5 s, in a new file in the file system of the data, including an
    /// encrypting one. The file is allocated first, as a log file is, so that a sync writes data only. The server is not
    /// involved and should be idle.
    pub fn time_syncs(&self) -> Result<Option<SyncTimes>, Error> {
        let path = self.directory.temporary.join("sync-probe");
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(PRIVATE_FILE);
        let times = options.open(&path).and_then(|file| time_syncs(&file));
        let removed = fs::remove_file(&path);
        let times = times.context("time syncs in", &path)?;
        removed.context("remove", &path)?;
        Ok(SyncTimes::from_times(times))
    }
}

fn time_syncs(file: &File) -> std::io::Result<Vec<Duration>> {
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
    fn the_99th_percentile_requires_100_syncs() {
        let micros = |count: u64| (1..=count).rev().map(Duration::from_micros).collect::<Vec<_>>();
        assert_eq!(SyncTimes::from_times(micros(0)), None);
        assert_eq!(SyncTimes::from_times(micros(99)), Some(SyncTimes { p50_ns: 50_000, p99_ns: None }));
        let times = SyncTimes { p50_ns: 128_000, p99_ns: Some(254_000) };
        assert_eq!(SyncTimes::from_times(micros(256)), Some(times));
    }
}
