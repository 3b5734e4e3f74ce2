//! Converts a stopped cluster: from the form that PostgreSQL writes to the encrypted form, and back.
//!
//! The source is only read. The target is a new directory, which no program can start before it is complete:
//!
//! 1. [`Plan::new`] checks the source and lists its files. Nothing is written.
//! 2. [`Conversion::begin`] makes the target, or takes up one that was interrupted: a journal in it lists finished files.
//! 3. [`Conversion::copy`] writes every file but `PG_VERSION` and `pg_control`.
//! 4. [`Conversion::verify`] reads every file back and compares it with the source.
//! 5. [`Conversion::finish`] writes `PG_VERSION`, then `pg_control`, and removes the journal.

mod control;
mod files;
mod journal;
mod plan;
mod verify;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use crate::cluster::{self, Condition};
use crate::{Engine, Errno, Format, KeyError};

use files::{Sides, fault, give, sync_directory};
use journal::Journal;
pub use plan::{Mapping, Plan};
use verify::Verifier;

/// The journal, in the target until the conversion is complete.
const JOURNAL: &str = "ciphertoll-convert.journal";
/// Ends the name of a file until it is complete.
const DRAFT: &str = ".ciphertoll-convert";

/// Which form the target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The source is as PostgreSQL writes it; the target is encrypted and sealed.
    Encrypt,
    /// The source is encrypted and sealed; the target is as PostgreSQL writes it.
    Decrypt,
}

/// Why a conversion stopped.
#[derive(Debug, thiserror::Error)]
pub enum ConvertError {
    /// The source or the target is not fit for it.
    #[error("{0}")]
    Refused(String),
    /// A file cannot be read or written.
    #[error("cannot {doing} {path}: {error}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// What was read back is not what was to be written.
    #[error("{path} is not verified: {why}")]
    Differs {
        /// Which file of the target.
        path: PathBuf,
        /// In what way.
        why: String,
    },
    /// A key does not serve.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// The caller wanted it.
    #[error("interrupted")]
    Interrupted,
}

type Result<T> = std::result::Result<T, ConvertError>;

/// What a conversion is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It writes files.
    Convert,
    /// It reads them back.
    Verify,
}

/// How far a conversion is in one phase.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The phase.
    pub phase: Phase,
    /// Bytes of the source that are finished.
    pub bytes: u64,
    /// All bytes of the source.
    pub of: u64,
}

/// Called after each piece of a file; [`ControlFlow::Break`] interrupts the conversion.
pub type Watch<'a> = dyn FnMut(Progress) -> ControlFlow<()> + 'a;

/// What was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    /// Files whose plaintext equals that of the source.
    pub files: u64,
    /// Those of them that are encrypted on one side.
    pub encrypted: u64,
    /// The bytes of all files.
    pub bytes: u64,
    /// Pages that are not zero and that differ between plaintext and ciphertext.
    pub pages: u64,
    /// Samples of plaintext that are nowhere in the encrypted file.
    pub samples: u64,
}

/// A conversion that has a target.
#[derive(Debug)]
pub struct Conversion<'a> {
    plan: &'a Plan,
    journal: Journal,
    /// Files that were finished before it was taken up.
    resumed: u64,
}

/// Whether a target has the journal of a conversion that was begun.
pub fn is_begun(target: &Path) -> bool {
    target.join(JOURNAL).exists()
}

impl<'a> Conversion<'a> {
    /// Makes the target, or takes up one that was interrupted. `engine` has the keys of the encrypted side.
    pub fn begin(plan: &'a Plan, engine: &mut Engine) -> Result<Self> {
        if is_begun(&plan.target) {
            check_begun(plan, engine)?;
        } else {
            make_directory(&plan.target)?;
        }
        let path = plan.target.join(JOURNAL);
        let journal = Journal::open(&path, &plan.identity())?;
        for directory in &plan.directories {
            make_directory(&directory.to)?;
        }
        for link in &plan.links {
            make_link(&link.text, &link.to)?;
            give(&link.to, link.owner).map_err(|error| fault("give away", &link.to, error))?;
        }
        for file in plan.files.iter().chain(&plan.last) {
            // Of a conversion that was interrupted.
            remove_if_there(&draft_of(&file.to))?;
        }
        let is_finished = |file: &&plan::PlannedFile| journal.is_finished(file);
        let resumed = plan.files.iter().filter(is_finished).count() as u64;
        Ok(Self { plan, journal, resumed })
    }

    /// Files that were finished before this conversion was taken up.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Writes all files but the last two. Each is on disk before it is in the journal.
    pub fn copy(&mut self, engine: &mut Engine, watch: &mut Watch<'_>) -> Result<()> {
        let mut sides = Sides::new(self.plan.direction, engine);
        let (of, mut bytes) = (self.plan.bytes(), 0);
        for file in &self.plan.files {
            if !self.journal.is_finished(file) {
                sides.convert(file, &mut |done| {
                    report(watch, Progress { phase: Phase::Convert, bytes: bytes + done, of })
                })?;
                self.journal.finish(file)?;
            }
            bytes += file.bytes;
            report(watch, Progress { phase: Phase::Convert, bytes, of })?;
        }
        Ok(())
    }

    /// Reads everything back, through keys that were unwrapped anew.
    pub fn verify(&mut self, engine: &mut Engine, watch: &mut Watch<'_>) -> Result<Verified> {
        verify::no_other_files(self.plan)?;
        let mut verifier = Verifier::new(self.plan.direction, engine);
        let of = self.plan.bytes();
        for file in &self.plan.files {
            let before = verifier.counted.bytes;
            verifier.verify(file, &mut |done| {
                report(watch, Progress { phase: Phase::Verify, bytes: before + done, of })
            })?;
        }
        Ok(verifier.counted)
    }

    /// Completes the target: only now can a server start on it. Adds the last two files to what was verified.
    pub fn finish(self, engine: &mut Engine, counted: Verified) -> Result<Verified> {
        self.plan.check_unchanged(engine)?;
        for directory in self.plan.directories.iter().rev() {
            let set = fs::set_permissions(&directory.to, Permissions::from_mode(directory.mode));
            set.map_err(|error| fault("set the mode of", &directory.to, error))?;
            give(&directory.to, directory.owner).map_err(|error| fault("give away", &directory.to, error))?;
            sync_directory(&directory.to)?;
        }
        let mut counted = counted;
        for file in &self.plan.last {
            if !file.to.exists() {
                Sides::new(self.plan.direction, engine).convert(file, &mut |_| Ok(()))?;
            }
            let mut verifier = Verifier::continuing(self.plan.direction, engine, counted);
            verifier.verify(file, &mut |_| Ok(()))?;
            counted = verifier.counted;
            sync_directory(file.to.parent().unwrap_or(&self.plan.target))?;
        }
        for root in self.plan.roots() {
            sync_directory(root.parent().unwrap_or(root))?;
        }
        self.journal.remove()?;
        sync_directory(&self.plan.target)?;
        Ok(counted)
    }
}

fn report(watch: &mut Watch<'_>, progress: Progress) -> Result<()> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(ConvertError::Interrupted),
    }
}

/// A target that was begun must be what this conversion left, and may not have been used since.
fn check_begun(plan: &Plan, engine: &mut Engine) -> Result<()> {
    let target = plan.target.display();
    if let Some(process) = cluster::running_server(&plan.target) {
        return Err(KeyError::Running { data: plan.target.clone(), process }.into());
    }
    if plan.direction == Direction::Encrypt {
        let condition = cluster::examine(&plan.target, engine)?;
        if !matches!(condition, Condition::Empty | Condition::Incomplete(_) | Condition::Sealed) {
            let why = condition.refusal(&plan.target, Format::Sealed).unwrap_or_default();
            return Err(ConvertError::Refused(format!(
                "{why}: {target} cannot be converted further; remove it and begin again"
            )));
        }
    }
    let [.., control] = &plan.last;
    if !control.to.exists() {
        return Ok(());
    }
    // It is complete but for the journal: a server may have been started on it.
    let mut verifier = Verifier::new(plan.direction, engine);
    verifier.verify(control, &mut |_| Ok(())).map_err(|error| match error {
        ConvertError::Differs { .. } => ConvertError::Refused(format!(
            "{target} is complete and was used since, or its source was: to keep it, remove {target}/{JOURNAL}"
        )),
        other => other,
    })
}

fn check_empty(directory: &Path) -> Result<()> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other.map_err(|error| fault("read", directory, error))?,
    };
    if entries.count() == 0 {
        return Ok(());
    }
    Err(ConvertError::Refused(format!(
        "{} is not empty, and is not a conversion that was interrupted: name a new directory",
        directory.display()
    )))
}

/// Private until its files are complete.
fn make_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            let set = fs::set_permissions(path, Permissions::from_mode(0o700));
            set.map_err(|error| fault("set the mode of", path, error))
        }
        other => other.map_err(|error| fault("create", path, error)),
    }
}

fn make_link(text: &Path, path: &Path) -> Result<()> {
    match symlink(text, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::read_link(path) {
            Ok(held) if held == text => Ok(()),
            _ => Err(ConvertError::Refused(format!(
                "{} leads elsewhere than to {}: the interrupted conversion had another mapping",
                path.display(),
                text.display()
            ))),
        },
        other => other.map_err(|error| fault("create", path, error)),
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(fault("remove", path, error)),
        _ => Ok(()),
    }
}

fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(DRAFT);
    draft.into()
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| fault("read", path, error))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(Errno) -> ConvertError {
    let path = path.to_owned();
    move |error| ConvertError::Io { doing, path, error: io::Error::from_raw_os_error(error.0) }
}
