//! The catalogue of run directories, and their removal.
//!
//! A removal locks all its runs first, so that none of them is in progress. Each run is renamed aside and then deleted: an
//! interrupted removal leaves no damaged run behind, only a hidden directory that the next removal deletes. Symbolic links
//! are never followed to a run.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use ciphertoll_model::{Ending, Event, Plan};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use nix::fcntl::Flock;

use crate::disk::{self, LockHolder};
use crate::error::{Context, Error};
use crate::observation::{ObservationSummary, is_observation};
use crate::read::{self, EVENTS, PLAN, Record, SPEC, TIME_BYTES};
use crate::run_dir::{HISTOGRAMS, LOCK, LOGS};

/// Prefix of directories that are being deleted.
const ASIDE: &str = ".ciphertoll-removed-";
/// Everything that [`crate::RunDirectory::create`] makes.
const CONTENTS: [&str; 6] = [LOCK, SPEC, PLAN, EVENTS, HISTOGRAMS, LOGS];
const TIME_FORMAT: &str = "%Y%m%dT%H%M%SZ";

/// The state of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// Everything planned was measured.
    Complete,
    /// Ended early: by a signal, a failure, SIGKILL or a power failure. It can be resumed.
    Incomplete,
    /// Another process writes it.
    InProgress,
    /// Damaged, or of a newer version. The reason is one line.
    Unreadable { reason: String },
}

impl RunState {
    /// One word or two for tables; JSON has the same with an underscore.
    pub fn label(&self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Incomplete => "incomplete",
            Self::InProgress => "in progress",
            Self::Unreadable { .. } => "unreadable",
        }
    }
}

/// A run directory.
#[derive(Clone, Debug)]
pub struct CatalogueEntry {
    pub path: PathBuf,
    pub name: String,
    pub state: RunState,
    /// The time in its name; if it was renamed, that of its first event or of its directory.
    pub began_at: Timestamp,
    /// Of all its files.
    pub size_bytes: u64,
    /// Absent if it is unreadable, or was not written yet.
    pub contents: Option<RunContents>,
}

/// What a record is of.
#[derive(Clone, Debug)]
pub enum RunContents {
    Run { plan: Box<Plan>, blocks_completed: usize },
    Observation(ObservationSummary),
}

/// The runs of a directory.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    /// The oldest first.
    pub runs: Vec<CatalogueEntry>,
    /// Remains of interrupted removals.
    pub removals_to_finish: usize,
}

/// Which runs to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// Each a path, the name of a run, or `latest`.
    Named(&'a [String]),
    OlderThan(Duration),
    All,
}

/// A run that this process has locked to remove it.
#[derive(Debug)]
pub struct RemovableRun {
    entry: CatalogueEntry,
    lock: Flock<File>,
}

/// The runs of a [`Selection`].
#[derive(Debug, Default)]
pub struct Removable {
    pub runs: Vec<RemovableRun>,
    /// Runs that are in progress. A selection by name fails instead.
    pub in_progress: Vec<CatalogueEntry>,
}

impl CatalogueEntry {
    /// Inspects the directory at `path`. Fails if it is not a run; a damaged run is an entry.
    pub fn inspect(path: &Path) -> Result<Self, Error> {
        Self::inspect_held(path, &disk::lock_holder(&path.join(LOCK)))
    }

    fn inspect_held(path: &Path, lock: &Result<LockHolder, Error>) -> Result<Self, Error> {
        check_is_run(path)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let size_bytes = size_of(path)?;
        if is_observation(path) {
            return Self::of_observation(path, name, lock, size_bytes);
        }
        let record = Record::open(path);
        let began_at = began_at(&name, record.as_ref().ok(), path)?;
        let state = match (lock, &record) {
            (Ok(LockHolder::AnotherProcess), _) => RunState::InProgress,
            (Err(error), _) | (_, Err(error)) => RunState::Unreadable { reason: error.to_string() },
            (Ok(LockHolder::Nobody), Ok(record)) if ended_complete(record) => RunState::Complete,
            (Ok(LockHolder::Nobody), Ok(_)) => RunState::Incomplete,
        };
        let contents = record.ok().map(|record| RunContents::Run {
            blocks_completed: blocks_completed(&record),
            plan: Box::new(record.plan),
        });
        Ok(Self { path: path.to_owned(), name, state, began_at, size_bytes, contents })
    }

    fn of_observation(
        path: &Path,
        name: String,
        lock: &Result<LockHolder, Error>,
        size_bytes: u64,
    ) -> Result<Self, Error> {
        let summary = ObservationSummary::open(path);
        let state = match (lock, &summary) {
            (Ok(LockHolder::AnotherProcess), _) => RunState::InProgress,
            // Root's lock cannot be opened by others; a whole document shows that its writer is done.
            (_, Ok(_)) => RunState::Complete,
            // Its process was killed before it wrote the document.
            (Ok(LockHolder::Nobody), Err(_)) if size_bytes == 0 => RunState::Incomplete,
            (Err(error), _) | (_, Err(error)) => RunState::Unreadable { reason: error.to_string() },
        };
        let began_at = began_at(&name, None, path)?;
        let contents = summary.ok().map(RunContents::Observation);
        Ok(Self { path: path.to_owned(), name, state, began_at, size_bytes, contents })
    }
}

impl RemovableRun {
    pub fn entry(&self) -> &CatalogueEntry {
        &self.entry
    }

    /// Locks the run at `path`. Fails if it is in progress or not a run.
    fn lock(path: &Path) -> Result<Self, Error> {
        check_is_run(path)?;
        let lock =
            disk::try_lock(&path.join(LOCK))?.ok_or_else(|| Error::Locked { path: path.to_owned() })?;
        // Not `inspect`, which would take us for the process that writes the run.
        Ok(Self { entry: CatalogueEntry::inspect_held(path, &Ok(LockHolder::Nobody))?, lock })
    }
}

/// Whether another process writes the run at `path`. One that cannot be looked at is not known to be complete.
pub fn is_in_progress(path: &Path) -> bool {
    !matches!(disk::lock_holder(&path.join(LOCK)), Ok(LockHolder::Nobody))
}

/// Lists the runs of `runs`. A missing directory has none; other files and directories in it are ignored.
pub fn list_runs(runs: &Path) -> Result<Catalogue, Error> {
    let mut catalogue = Catalogue::default();
    for path in directories(runs)? {
        if is_aside(&path) {
            catalogue.removals_to_finish += 1;
            continue;
        }
        match CatalogueEntry::inspect(&path) {
            Ok(entry) => catalogue.runs.push(entry),
            // The second: another process has just removed it.
            Err(Error::NotARun { .. }) => {}
            Err(_) if !path.exists() => {}
            Err(error) => return Err(error),
        }
    }
    catalogue.runs.sort_by(|one, other| (one.began_at, &one.name).cmp(&(other.began_at, &other.name)));
    Ok(catalogue)
}

/// Finds and locks the runs of `selection` in `runs`. Removes nothing. Fails if a run that is named does not exist, is in
/// progress, or is not a run.
pub fn find_removable(runs: &Path, selection: Selection<'_>, now: Timestamp) -> Result<Removable, Error> {
    if let Selection::Named(names) = selection {
        let mut found: Vec<PathBuf> = Vec::new();
        for name in names {
            let path = whereabouts(&find_named(runs, name)?)?;
            if !found.contains(&path) {
                found.push(path);
            }
        }
        let runs: Result<_, Error> = found.iter().map(|path| RemovableRun::lock(path)).collect();
        return Ok(Removable { runs: runs?, in_progress: Vec::new() });
    }
    let mut removable = Removable::default();
    for entry in list_runs(runs)?.runs {
        let is_selected = match selection {
            Selection::OlderThan(age) => {
                now.duration_since(entry.began_at)
                    > SignedDuration::try_from(age).unwrap_or(SignedDuration::MAX)
            }
            Selection::All | Selection::Named(_) => true,
        };
        if !is_selected {
            continue;
        }
        match RemovableRun::lock(&whereabouts(&entry.path)?) {
            Ok(run) => removable.runs.push(run),
            Err(Error::Locked { .. }) => removable.in_progress.push(entry),
            Err(error) => return Err(error),
        }
    }
    Ok(removable)
}

/// Removes a run. If this is interrupted, [`finish_removals`] continues.
pub fn remove_run(run: RemovableRun) -> Result<(), Error> {
    let RemovableRun { entry: CatalogueEntry { path, .. }, lock } = run;
    let parent = parent_of(&path);
    let aside = parent.join(format!("{ASIDE}{:08x}", rand::random::<u32>()));
    fs::rename(&path, &aside).context("remove", &path)?;
    // Otherwise a power failure could leave a part of the run under its name.
    disk::sync_directory(parent)?;
    delete(&aside, lock)
}

/// Deletes what interrupted removals left in `runs`; returns how many. Does not touch a removal that is in progress.
pub fn finish_removals(runs: &Path) -> Result<usize, Error> {
    let mut finished = 0;
    for aside in directories(runs)?.into_iter().filter(|path| is_aside(path)) {
        if fs::symlink_metadata(aside.join(LOCK)).is_err() {
            // Its remover was interrupted, or will be faster than we are, before the last step.
            let _ = fs::remove_dir(&aside);
            continue;
        }
        let lock = match disk::try_lock(&aside.join(LOCK)) {
            Ok(Some(lock)) => lock,
            Ok(None) => continue,
            // Its remover has just ended.
            Err(_) if !aside.exists() => continue,
            Err(error) => return Err(error),
        };
        delete(&aside, lock)?;
        finished += 1;
    }
    Ok(finished)
}

/// Deletes a directory that was renamed aside. Its lock file goes last, so that no other process deletes the rest.
fn delete(aside: &Path, lock: Flock<File>) -> Result<(), Error> {
    for entry in fs::read_dir(aside).context("list", aside)? {
        let entry = entry.context("list", aside)?;
        if entry.file_name() == LOCK {
            continue;
        }
        let path = entry.path();
        let kind = entry.file_type().context("look at", &path)?;
        let removed = if kind.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.context("remove", &path)?;
    }
    fs::remove_dir_all(aside).context("remove", aside)?;
    drop(lock);
    Ok(())
}

/// The path of the run that `asked` names: in `runs`, or anywhere. Unlike [`crate::resolve`], the name of an experiment is
/// not enough: it could mean one of its runs or all.
fn find_named(runs: &Path, asked: &str) -> Result<PathBuf, Error> {
    if asked == "latest" {
        return read::resolve(runs, asked);
    }
    let is_name = Path::new(asked).components().count() == 1 && !asked.starts_with('.');
    for path in [is_name.then(|| runs.join(asked)), Some(PathBuf::from(asked))].into_iter().flatten() {
        if fs::symlink_metadata(&path).is_ok() {
            return Ok(path);
        }
    }
    let hint = match read::resolve(runs, asked) {
        Ok(newest) => format!("; the newest of this experiment is {}", newest.display()),
        Err(Error::NotFound { hint, .. }) => hint,
        Err(_) => String::new(),
    };
    Err(Error::NotFound { asked: asked.to_owned(), runs: runs.to_owned(), hint })
}

/// The path with its parent resolved, so that a run is found once whatever it is called. Its last component is not resolved.
fn whereabouts(path: &Path) -> Result<PathBuf, Error> {
    // The system follows a link with a slash after it.
    let path = path.components().as_path();
    let is_link = fs::symlink_metadata(path).context("look at", path)?.is_symlink();
    match path.file_name() {
        // `fs::canonicalize` would follow it.
        Some(_) if is_link => Ok(path.to_owned()),
        _ => fs::canonicalize(path).context("look at", path),
    }
}

fn check_is_run(path: &Path) -> Result<(), Error> {
    let refuse = |reason| Err(Error::NotARun { path: path.to_owned(), reason });
    let metadata = fs::symlink_metadata(path).context("look at", path)?;
    if metadata.is_symlink() {
        return refuse("it is a symbolic link");
    }
    if !metadata.is_dir() {
        return refuse("it is not a directory");
    }
    let has = |name: &str| fs::symlink_metadata(path.join(name)).is_ok_and(|metadata| metadata.is_file());
    if [SPEC, PLAN, EVENTS].iter().all(|name| has(name)) || is_observation(path) || is_damaged_run(path)? {
        return Ok(());
    }
    refuse("it has no spec.toml, plan.json and events.jsonl")
}

/// Whether a directory that lacks some files is a run: one that was killed while it was created, or a damaged one. Its name
/// is that of a run, and it has nothing that runs do not have.
fn is_damaged_run(path: &Path) -> Result<bool, Error> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if time_in(&name).is_none() {
        return Ok(false);
    }
    for entry in fs::read_dir(path).context("list", path)? {
        let name = entry.context("list", path)?.file_name();
        if !CONTENTS.iter().any(|known| name == *known) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn is_aside(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(ASIDE))
}

/// The directories in `runs`, links excluded.
fn directories(runs: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = match fs::read_dir(runs) {
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.context("list", runs)?,
    };
    let mut directories = Vec::new();
    for entry in entries {
        let entry = entry.context("list", runs)?;
        if entry.file_type().context("look at", &entry.path())?.is_dir() {
            directories.push(entry.path());
        }
    }
    Ok(directories)
}

fn parent_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn ended_complete(record: &Record) -> bool {
    let last = record.events.last().map(|stamped| &stamped.event);
    matches!(last, Some(Event::Finished { ending: Ending::Complete }))
}

/// Block 0 is calibration.
fn blocks_completed(record: &Record) -> usize {
    let is_block = |event: &Event| matches!(event, Event::BlockFinished { block } if *block > 0);
    record.events.iter().filter(|stamped| is_block(&stamped.event)).count()
}

fn began_at(name: &str, record: Option<&Record>, path: &Path) -> Result<Timestamp, Error> {
    if let Some(time) = time_in(name) {
        return Ok(time);
    }
    let first = record.and_then(|record| record.events.first()).map(|stamped| stamped.at_unix_ms);
    let first = first.and_then(|ms| Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok());
    let modified = || fs::symlink_metadata(path).and_then(|metadata| metadata.modified());
    match first {
        Some(first) => Ok(first),
        None => Ok(as_timestamp(modified().context("look at", path)?)),
    }
}

/// The time in `20261121T011500Z-quick-a3f1`.
fn time_in(name: &str) -> Option<Timestamp> {
    let (time, rest) = name.split_at_checked(TIME_BYTES)?;
    if !rest.starts_with('-') {
        return None;
    }
    let time = DateTime::strptime(TIME_FORMAT, time).ok()?;
    Some(time.to_zoned(TimeZone::UTC).ok()?.timestamp())
}

fn as_timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Files that end while this looks are not counted.
fn size_of(directory: &Path) -> Result<u64, Error> {
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let mut bytes = 0;
    for entry in fs::read_dir(directory).context("list", directory)? {
        let entry = entry.context("list", directory)?;
        let path = entry.path();
        bytes += match entry.metadata() {
            Err(error) if gone(&error) => 0,
            metadata => {
                let metadata = metadata.context("look at", &path)?;
                if metadata.is_dir() { size_of(&path)? } else { metadata.len() }
            }
        };
    }
    Ok(bytes)
}
