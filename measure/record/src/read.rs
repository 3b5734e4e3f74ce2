//! Reads a run directory, finished or not.

use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::Read as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use ciphertoll_model::{Event, Plan, SCHEMA_VERSION, Spec, TimestampedEvent};
use rustix::fs::OFlags;
use serde::Deserialize;

use crate::error::{Context, Error};

pub(crate) const SPEC: &str = "spec.toml";
pub(crate) const PLAN: &str = "plan.json";
pub(crate) const EVENTS: &str = "events.jsonl";

/// Of a file of a record: many times that of the largest.
const MAX_BYTES: u64 = 1 << 30;

/// Length of `20261121T011500Z`.
pub(crate) const TIME_BYTES: usize = 16;

/// The contents of a run directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub path: PathBuf,
    pub spec: Spec,
    pub plan: Plan,
    pub events: Vec<TimestampedEvent>,
    /// Whether the last line had to be dropped.
    pub tail: Tail,
    /// Bytes of the events without a torn last line.
    pub(crate) whole_bytes: u64,
}

/// How a file of events ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tail {
    /// With a whole line.
    Whole,
    /// With a partial line, which was dropped: the writer was killed or the disk was full.
    Torn,
}

/// The version, which every format has in the same place.
#[derive(Deserialize)]
struct Versioned {
    schema_version: u64,
}

impl Record {
    /// Reads the run directory at `path`, even while it is written.
    pub fn open(path: &Path) -> Result<Self, Error> {
        let (events, tail, whole_bytes) = read_events(&path.join(EVENTS))?;
        Ok(Self {
            path: path.to_owned(),
            spec: read_spec(&path.join(SPEC))?,
            plan: read_plan(&path.join(PLAN))?,
            events,
            tail,
            whole_bytes,
        })
    }

    /// The run's name: its directory's.
    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }
}

/// Resolves `asked` to a run directory: a path, the name of a run in `runs`, the name of an experiment (its newest run), or
/// `latest`.
pub fn resolve(runs: &Path, asked: &str) -> Result<PathBuf, Error> {
    let given = Path::new(asked);
    if asked != "latest" && given.join(EVENTS).is_file() {
        return Ok(given.to_owned());
    }
    let mut known = known_runs(runs);
    known.sort();
    let matching =
        known.iter().rev().find(|run| asked == "latest" || run.name == asked || run.experiment() == asked);
    matching.map(|run| runs.join(&run.name)).ok_or_else(|| Error::NotFound {
        asked: asked.to_owned(),
        runs: runs.to_owned(),
        hint: known.last().map_or(String::new(), |newest| format!("; the newest is {}", newest.name)),
    })
}

/// The run directories of `runs`, the newest first.
pub fn runs_newest_first(runs: &Path) -> Vec<PathBuf> {
    let mut known = known_runs(runs);
    known.sort();
    known.into_iter().rev().map(|run| runs.join(run.name)).collect()
}

/// A run directory by name, ordered by the time in its name and within a second by the time of its plan.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct KnownRun {
    second: String,
    planned_at: SystemTime,
    name: String,
}

impl KnownRun {
    fn experiment(&self) -> &str {
        let after_time = self.name.get(TIME_BYTES + 1..).unwrap_or_default();
        after_time.rsplit_once('-').map_or("", |(experiment, _)| experiment)
    }
}

fn known_runs(runs: &Path) -> Vec<KnownRun> {
    // An unreadable directory has no runs. The caller reports where it searched.
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let known = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let planned_at = fs::metadata(entry.path().join(PLAN)).and_then(|plan| plan.modified()).ok()?;
        Some(KnownRun { second: name.get(..TIME_BYTES)?.to_owned(), planned_at, name })
    });
    known.collect()
}

fn read_spec(path: &Path) -> Result<Spec, Error> {
    Spec::from_toml(&read_text(path)?).map_err(|error| unreadable(path, &error))
}

fn read_plan(path: &Path) -> Result<Plan, Error> {
    let text = read_text(path)?;
    check_version(path, &text)?;
    serde_json::from_str(&text).map_err(|error| unreadable(path, &error))
}

/// The events, how the file ends, and how many of its bytes are whole lines.
fn read_events(path: &Path) -> Result<(Vec<TimestampedEvent>, Tail, u64), Error> {
    let bytes = read_bytes(path)?;
    let mut events = Vec::new();
    let mut whole = 0;
    for (index, line) in bytes.split_inclusive(|&byte| byte == b'\n').enumerate() {
        let last = whole + line.len() == bytes.len();
        if last && !line.ends_with(b"\n") {
            break;
        }
        if index == 0 {
            check_version(path, &String::from_utf8_lossy(line))?;
        }
        match serde_json::from_slice(line) {
            Ok(event) => events.push(event),
            // After a power cut the last line may have its length but not its content.
            Err(_) if last => break,
            Err(error) => return Err(unreadable(path, &format_args!("line {}: {error}", index + 1))),
        }
        whole += line.len();
    }
    match events.first() {
        Some(TimestampedEvent { event: Event::RunStarted { .. }, .. }) => {
            let tail = if whole == bytes.len() { Tail::Whole } else { Tail::Torn };
            Ok((events, tail, whole as u64))
        }
        _ => Err(unreadable(path, &"it does not begin with run_started")),
    }
}

/// Refuses files of a later version before reading anything else in them.
fn check_version(path: &Path, text: &str) -> Result<(), Error> {
    let versioned: Versioned =
        serde_json::from_str(text).map_err(|error| unreadable(path, &format_args!("no version: {error}")))?;
    if versioned.schema_version > SCHEMA_VERSION.into() {
        return Err(Error::Newer { path: path.to_owned(), found: versioned.schema_version });
    }
    Ok(())
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, Error> {
    // Not to wait for a writer, if it is a FIFO.
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(nonblocking).open(path) {
        Err(missing) if missing.kind() == std::io::ErrorKind::NotFound => {
            return Err(unreadable(path, &"no such file"));
        }
        opened => opened.context("open", path)?,
    };
    if !file.metadata().context("look at", path)?.is_file() {
        return Err(unreadable(path, &"not a file"));
    }
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + 1).read_to_end(&mut bytes).context("read", path)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(path, &"too long"));
    }
    Ok(bytes)
}

pub(crate) fn read_text(path: &Path) -> Result<String, Error> {
    String::from_utf8(read_bytes(path)?).map_err(|_| unreadable(path, &"not UTF-8"))
}

pub(crate) fn unreadable(path: &Path, reason: &dyn Display) -> Error {
    Error::Unreadable { path: path.to_owned(), reason: reason.to_string() }
}
