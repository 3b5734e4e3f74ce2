//! The record of an observation: a directory beside those of runs, with one document.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use nix::fcntl::Flock;
use rustix::process::geteuid;
use serde::Deserialize;

use crate::caller::{Caller, make_directories, open_own_directory};
use crate::disk;
use crate::error::{Context, Error};
use crate::read::{self, unreadable};
use crate::run_dir::{LOCK, directory_name, take_lock};

pub(crate) const OBSERVATION: &str = "observation.json";
const NAME: &str = "observe";

/// The directory of an observation that this process makes. All its files are open: to write the document needs no right to
/// the directory.
#[derive(Debug)]
pub struct ObservationDirectory {
    path: PathBuf,
    document: File,
    _lock: Flock<File>,
}

/// What `runs` lists of an observation.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ObservationSummary {
    pub source: String,
    pub seconds: f64,
    #[serde(rename = "pairs")]
    connections: Vec<PairSummary>,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct PairSummary {
    connections: ConnectionSummary,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
struct ConnectionSummary {
    begun: u64,
}

impl ObservationDirectory {
    /// Creates `RUNS/UTC-observe-XXXX/` with an empty document, and removes earlier ones that stayed empty. Leaves nothing
    /// behind on failure.
    pub fn create(runs: &Path, now: Timestamp) -> Result<Self, Error> {
        make_directories(runs).context("make", runs)?;
        let caller = Caller::owning(runs);
        match caller {
            // With more rights, links that they put there would matter.
            Some(caller) => caller.act(|| remove_empty(runs)).context("use the directory", runs)?,
            None => remove_empty(runs),
        }
        let path = runs.join(directory_name(NAME, now));
        fs::create_dir(&path).context("make", &path)?;
        Self::fill(&path, caller).inspect_err(|_| {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&path);
        })
    }

    fn fill(path: &Path, caller: Option<Caller>) -> Result<Self, Error> {
        let directory = open_own_directory(path)?;
        let opened = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()));
        let lock = take_lock(&opened)?;
        let document = OpenOptions::new().write(true).create_new(true).open(opened.join(OBSERVATION));
        let document = document.context("make", &path.join(OBSERVATION))?;
        if let Some(caller) = caller {
            caller.give_all(&directory).context("hand over", path)?;
        }
        directory.sync_all().context("write", path)?;
        Ok(Self { path: path.to_owned(), document, _lock: lock })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the document: it is on disk when this returns.
    pub fn finish(mut self, document: &str) -> Result<(), Error> {
        let written = self.document.write_all(document.as_bytes()).and_then(|()| self.document.sync_all());
        written
            .inspect_err(|_| {
                // A part of a document is none. The first error is the one to report.
                let _ = self.document.set_len(0);
            })
            .context("write", &self.path.join(OBSERVATION))
    }

    /// Removes the directory, if nothing was observed.
    pub fn abandon(self) {
        // Best effort: an observer that has given up its rights leaves an empty record to the next one.
        let _ = fs::remove_dir_all(&self.path);
    }
}

impl ObservationSummary {
    pub(crate) fn open(directory: &Path) -> Result<Self, Error> {
        let path = directory.join(OBSERVATION);
        serde_json::from_str(&read::read_text(&path)?).map_err(|error| unreadable(&path, &error))
    }

    /// Pairs of a client address and a server.
    pub fn pairs(&self) -> usize {
        self.connections.len()
    }

    pub fn connects(&self) -> u64 {
        // The document may have been written by anybody.
        self.connections.iter().fold(0, |sum: u64, pair| sum.saturating_add(pair.connections.begun))
    }
}

/// Removes records without a document whose process has ended; not in a directory of another user, who could put links there.
fn remove_empty(runs: &Path) {
    if fs::metadata(runs).is_ok_and(|runs| runs.uid() != geteuid().as_raw()) {
        return;
    }
    for path in fs::read_dir(runs).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let is_empty = || fs::metadata(path.join(OBSERVATION)).is_ok_and(|document| document.len() == 0);
        if is_observation(&path)
            && is_empty()
            && let Ok(Some(lock)) = disk::try_lock(&path.join(LOCK))
            && is_empty()
        {
            // Best effort: what stays is listed, and can be removed by name.
            let _ = fs::remove_dir_all(&path);
            drop(lock);
        }
    }
}

/// Whether a directory is the record of an observation, finished or not.
pub(crate) fn is_observation(path: &Path) -> bool {
    let is_file = |name: &str| fs::symlink_metadata(path.join(name)).is_ok_and(|about| about.is_file());
    is_file(OBSERVATION) && is_file(LOCK)
}

/// The document of an observation: `asked` is a file, a record's directory or its name in `runs`, or `latest`. Returns what
/// to call it, too.
pub fn read_observation(runs: &Path, asked: &str) -> Result<(String, String), Error> {
    let given = Path::new(asked);
    let path = if asked == "latest" {
        newest(runs).ok_or_else(|| Error::NotFound {
            asked: "latest observation".to_owned(),
            runs: runs.to_owned(),
            hint: "; make one: ciphertoll observe".to_owned(),
        })?
    } else if given.is_file() {
        given.to_owned()
    } else {
        let directories = [runs.join(asked), given.to_owned()];
        let found =
            directories.iter().map(|directory| directory.join(OBSERVATION)).find(|path| path.is_file());
        found.ok_or_else(|| Error::NotFound {
            asked: asked.to_owned(),
            runs: runs.to_owned(),
            hint: String::new(),
        })?
    };
    let name = match path.file_name() {
        Some(name) if name == OBSERVATION => path.parent().and_then(Path::file_name).unwrap_or(name),
        name => name.unwrap_or_default(),
    };
    Ok((name.to_string_lossy().into_owned(), read::read_text(&path)?))
}

/// The document of the newest record that has one.
fn newest(runs: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let written = |path: &PathBuf| fs::metadata(path).is_ok_and(|document| document.len() > 0);
    entries
        .map(|entry| (entry.file_name(), entry.path().join(OBSERVATION)))
        .filter(|(_, path)| written(path))
        .max()
        .map(|(_, path)| path)
}
