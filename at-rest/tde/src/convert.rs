//! Converts a stopped cluster to the encrypted form and back.
//!
//! The source is only read. The target is a new directory, on which no server can start before it is complete:
//!
//! 1. [`ConversionPlan::new`] checks the source and lists its files. Nothing is written.
//! 2. [`Conversion::begin`] creates the target, or continues an interrupted conversion, whose journal lists the finished
//!    files.
//! 3. [`Conversion::copy`] writes all files except `PG_VERSION` and `pg_control`.
//! 4. [`Conversion::verify`] reads every file back and compares it with the source.
//! 5. [`Conversion::finish`] writes `PG_VERSION`, then `pg_control`, and removes the journal.

pub(crate) mod control;
mod error;
mod files;
mod journal;
mod plan;
mod verify;

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::Path;

use crate::cluster::{self, ClusterState};
use crate::error::Doing;
use crate::{EncryptionEngine, KeyError};

pub use error::ConvertError;
use error::Result;
use files::{FileConverter, draft_of, set_owner, sync_directory};
use journal::Journal;
use plan::JOURNAL;
pub use plan::{ConversionDirection, ConversionPlan, TablespaceMapping, has_journal};
pub use verify::VerificationCounts;
use verify::Verifier;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConversionPhase {
    Convert,
    Verify,
}

#[derive(Clone, Copy, Debug)]
pub struct ConversionProgress {
    pub phase: ConversionPhase,
    /// Finished bytes of the source in this phase.
    pub bytes: u64,
    /// Total bytes of the source.
    pub of: u64,
}

/// Called after each piece of a file; [`ControlFlow::Break`] interrupts the conversion.
pub type WatchProgress<'a> = dyn FnMut(ConversionProgress) -> ControlFlow<()> + 'a;

#[derive(Debug)]
pub struct Conversion<'a> {
    plan: &'a ConversionPlan,
    journal: Journal,
    /// Files that were finished before the interruption.
    resumed: u64,
}

impl<'a> Conversion<'a> {
    /// Creates the target, or continues an interrupted conversion. `engine` has the keys of the encrypted cluster.
    pub fn begin(plan: &'a ConversionPlan, engine: &mut EncryptionEngine) -> Result<Self> {
        if has_journal(&plan.target) {
            check_interrupted(plan, engine)?;
        } else {
            make_directory(&plan.target)?;
        }
        let path = plan.target.join(JOURNAL);
        let journal = Journal::open(&path, &plan.identity())?;
        for directory in &plan.listing.directories {
            make_directory(&directory.to)?;
        }
        for link in &plan.listing.links {
            make_link(&link.text, &link.to)?;
            set_owner(&link.to, link.owner).doing("change the owner of", &link.to)?;
        }
        for file in plan.listing.files.iter().chain(&plan.last) {
            // Left by an interrupted conversion.
            remove_if_there(&draft_of(&file.to))?;
        }
        let is_finished = |file: &&plan::PlannedFile| journal.is_finished(file);
        let resumed = plan.listing.files.iter().filter(is_finished).count() as u64;
        Ok(Self { plan, journal, resumed })
    }

    /// The number of files that were finished before the interruption.
    pub fn resumed(&self) -> u64 {
        self.resumed
    }

    /// Writes all files except the last two. Each file is synced before it is listed in the journal.
    pub fn copy(&mut self, engine: &mut EncryptionEngine, watch: &mut WatchProgress<'_>) -> Result<()> {
        let mut converter = FileConverter::new(self.plan.direction, engine);
        let of = self.plan.bytes();
        let mut report =
            |bytes| report(watch, ConversionProgress { phase: ConversionPhase::Convert, bytes, of });
        let mut bytes = 0;
        for file in &self.plan.listing.files {
            if !self.journal.is_finished(file) {
                converter.convert(file, &mut |done| report(bytes + done))?;
                self.journal.finish(file)?;
            }
            bytes += file.bytes;
            report(bytes)?;
        }
        Ok(())
    }

    /// Compares all written files with the source. `engine` should have freshly unwrapped keys.
    pub fn verify(
        &mut self,
        engine: &mut EncryptionEngine,
        watch: &mut WatchProgress<'_>,
    ) -> Result<VerificationCounts> {
        verify::check_no_other_files(self.plan)?;
        let mut verifier = Verifier::new(self.plan.direction, engine);
        let of = self.plan.bytes();
        for file in &self.plan.listing.files {
            let before = verifier.counts.bytes;
            verifier.verify(file, &mut |done| {
                report(watch, ConversionProgress { phase: ConversionPhase::Verify, bytes: before + done, of })
            })?;
        }
        Ok(verifier.counts)
    }

    /// Completes the target, so that a server can start on it. Adds the last two files to the counts.
    pub fn finish(
        self,
        engine: &mut EncryptionEngine,
        counts: VerificationCounts,
    ) -> Result<VerificationCounts> {
        self.plan.check_unchanged(engine)?;
        for directory in self.plan.listing.directories.iter().rev() {
            set_mode(&directory.to, directory.mode)?;
            set_owner(&directory.to, directory.owner).doing("change the owner of", &directory.to)?;
            sync_directory(&directory.to)?;
        }
        let mut counts = counts;
        for file in &self.plan.last {
            if !file.to.exists() {
                FileConverter::new(self.plan.direction, engine).convert(file, &mut |_| Ok(()))?;
            }
            let mut verifier = Verifier::continuing(self.plan.direction, engine, counts);
            verifier.verify(file, &mut |_| Ok(()))?;
            counts = verifier.counts;
            sync_directory(file.to.parent().unwrap_or(&self.plan.target))?;
        }
        for root in &self.plan.listing.roots {
            sync_directory(root.parent().unwrap_or(root))?;
        }
        self.journal.remove()?;
        sync_directory(&self.plan.target)?;
        Ok(counts)
    }
}

fn report(watch: &mut WatchProgress<'_>, progress: ConversionProgress) -> Result<()> {
    match watch(progress) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(ConvertError::Interrupted),
    }
}

/// Checks that an interrupted target was not used since.
fn check_interrupted(plan: &ConversionPlan, engine: &mut EncryptionEngine) -> Result<()> {
    let target = plan.target.display();
    if let Some(process) = cluster::running_server(&plan.target) {
        return Err(KeyError::Running { data: plan.target.clone(), process }.into());
    }
    if plan.direction == ConversionDirection::Encrypt {
        let state = cluster::examine(&plan.target, engine)?;
        if !matches!(state, ClusterState::Empty | ClusterState::Incomplete(_) | ClusterState::Sealed) {
            let why = state.refusal(&plan.target).unwrap_or_default();
            return Err(ConvertError::Refused(format!(
                "{why}: cannot continue the conversion to {target}; remove it and start again"
            )));
        }
    }
    let [.., control] = &plan.last;
    if !control.to.exists() {
        return Ok(());
    }
    // Only the journal is left to remove: a server may have been started on the target.
    let mut verifier = Verifier::new(plan.direction, engine);
    verifier.verify(control, &mut |_| Ok(())).map_err(|error| match error {
        ConvertError::Differs { .. } => ConvertError::Refused(format!(
            "{target} is complete, and it or its source was used since; to keep it, remove {target}/{JOURNAL}"
        )),
        other => other,
    })
}

/// Creates a private directory; `finish` sets its mode.
fn make_directory(path: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => set_mode(path, 0o700),
        other => Ok(other.doing("create", path)?),
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode)).doing("set the mode of", path)?)
}

fn make_link(text: &Path, path: &Path) -> Result<()> {
    match symlink(text, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => match fs::read_link(path) {
            Ok(held) if held == text => Ok(()),
            _ => Err(ConvertError::Refused(format!(
                "{} does not point to {}: the interrupted conversion had another mapping",
                path.display(),
                text.display()
            ))),
        },
        other => Ok(other.doing("create", path)?),
    }
}

fn remove_if_there(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => Ok(other.doing("remove", path)?),
    }
}
