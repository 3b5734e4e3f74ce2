//! Checks that everything in a cluster that must be encrypted is ciphertext of its own place.
//!
//! Each unit is read as it is on disk. It must look like random bytes, and, decrypted with the key and the tweak of its
//! place, have the structure that belongs there: the header and the checksum of a page, the rest of the header of a WAL
//! page, the checksum of a file of state. Zeros are stored as zeros. The server may run: what looks wrong is read again,
//! because it may be written at that moment.

mod facts;
mod file;
mod finding;
mod page;
mod randomness;
mod state;
mod wal;
mod walk;

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use crate::cluster::{CONTROL_PATH, VERSION_PATH};
use crate::error::Doing;
use crate::seal::{CONTROL_BYTES, SealState};
use crate::unit::is_zero;
use crate::{EncryptionEngine, FileClass, KeyError, Storage};

use facts::{ClusterFacts, opened};
use file::FileVerifier;
pub use finding::{FindingKind, VerifyCounts, VerifyEnd, VerifyFinding, VerifyResult};
use walk::ListedFile;

/// How far a verification has come: everything before this file, and this offset in it, is done. The offset of a file that
/// is done is [`VerifyPosition::END`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyPosition {
    pub path: PathBuf,
    pub offset: u64,
}

impl VerifyPosition {
    pub const END: u64 = u64::MAX;
}

/// Passed to the caller after each piece of a file.
#[derive(Debug)]
pub struct VerifyProgress<'a> {
    /// Bytes of the files that are done, and of all.
    pub bytes: u64,
    pub of: u64,
    /// Bytes that were read since the last call.
    pub read: u64,
    pub position: VerifyPosition,
    pub result: &'a VerifyResult,
}

/// Called after each piece of a file; [`ControlFlow::Break`] interrupts the verification.
pub type WatchVerification<'a> = dyn FnMut(&VerifyProgress<'_>) -> ControlFlow<()> + 'a;

/// What the caller asks for.
#[derive(Clone, Debug, Default)]
pub struct VerifyOptions {
    /// Files and directories that may be plaintext, relative to the data directory.
    pub allowed: Vec<PathBuf>,
    /// Where an earlier verification was interrupted, and what it had found.
    pub start: Option<(VerifyPosition, VerifyResult)>,
}

/// Verifies a data directory. Fails if it has no cluster that is encrypted with these keys, or if it cannot be listed.
pub fn verify(
    data: &Path,
    engine: &mut EncryptionEngine,
    options: &VerifyOptions,
    watch: &mut WatchVerification<'_>,
) -> Result<(VerifyEnd, VerifyResult), KeyError> {
    let data = fs::canonicalize(data).doing("read", data)?;
    let (start, result) = options.start.clone().unwrap_or_default();
    let mut run = VerifyRun {
        facts: ClusterFacts::read(&data, engine)?,
        files: walk::list(&data, &options.allowed)?,
        data,
        engine,
        result,
        bytes: 0,
    };
    let end = run.files(&start, watch)?;
    Ok((end, run.result))
}

struct VerifyRun<'a> {
    data: PathBuf,
    engine: &'a mut EncryptionEngine,
    facts: ClusterFacts,
    files: Vec<ListedFile>,
    result: VerifyResult,
    /// Bytes of the files that are done.
    bytes: u64,
}

impl VerifyRun<'_> {
    fn files(
        &mut self,
        start: &VerifyPosition,
        watch: &mut WatchVerification<'_>,
    ) -> Result<VerifyEnd, KeyError> {
        let of = self.files.iter().map(|file| file.bytes).sum();
        let files = std::mem::take(&mut self.files);
        for file in &files {
            let offset = if file.below == start.path { start.offset } else { 0 };
            if file.below < start.path || offset == VerifyPosition::END {
                self.bytes += file.bytes;
                continue;
            }
            if offset > 0 && !matches!(file.class, FileClass::Relation { .. }) {
                // Begins again, because its units depend on each other.
                self.result.findings.retain(|finding| finding.path != file.below);
            }
            let before = self.bytes;
            let ended = self.file(file, offset, &mut |result, done, read| {
                let offset = if done < file.bytes { done } else { VerifyPosition::END };
                let position = VerifyPosition { path: file.below.clone(), offset };
                watch(&VerifyProgress { bytes: before + done, of, read, position, result })
            })?;
            if ended == VerifyEnd::Interrupted {
                return Ok(ended);
            }
            self.bytes += file.bytes;
        }
        self.missing_seals();
        Ok(VerifyEnd::Complete)
    }

    fn file(
        &mut self,
        listed: &ListedFile,
        start: u64,
        watch: &mut file::WatchFile<'_>,
    ) -> Result<VerifyEnd, KeyError> {
        if let Some(kind) = listed.finding {
            self.found(&listed.below, 0, listed.bytes, kind);
            return Ok(VerifyEnd::Complete);
        }
        let path = self.data.join(&listed.below);
        match listed.class {
            FileClass::Unencrypted => self.result.counts.plain_files += 1,
            FileClass::Control => self.control(&path)?,
            FileClass::Version => self.version(&path)?,
            _ => {
                let Self { engine, facts, result, .. } = self;
                return FileVerifier::new(listed, path, *facts, engine, result).run(start, watch);
            }
        }
        Ok(VerifyEnd::Complete)
    }

    /// Authenticates `pg_control`.
    fn control(&mut self, path: &Path) -> Result<(), KeyError> {
        let Some(file) = opened(path)? else { return Ok(()) };
        let mut stored = [0; CONTROL_BYTES];
        let held = file.read_at(&mut stored, 0).doing("read", path)?;
        let mut seal = self.engine.control_seal(&file).doing("read", path)?;
        for _ in 0..file::ATTEMPTS {
            if seal == SealState::Sealed {
                break;
            }
            // A running server may be writing it.
            std::thread::sleep(file::PAUSE);
            seal = self.engine.control_seal(&file).doing("read", path)?;
        }
        if seal == SealState::Sealed {
            self.sound(held as u64);
        } else {
            self.found(Path::new(CONTROL_PATH), 0, held as u64, FindingKind::NotSealed);
        }
        Ok(())
    }

    fn version(&mut self, path: &Path) -> Result<(), KeyError> {
        let stored = fs::read(path).doing("read", path)?;
        if crate::version_seal(&stored) == SealState::Sealed {
            self.sound(stored.len() as u64);
        } else {
            self.found(Path::new(VERSION_PATH), 0, stored.len() as u64, FindingKind::NotSealed);
        }
        Ok(())
    }

    fn sound(&mut self, bytes: u64) {
        let counts = &mut self.result.counts;
        counts.encrypted_files += 1;
        counts.units += 1;
        counts.bytes += bytes;
    }

    fn missing_seals(&mut self) {
        for path in [VERSION_PATH, CONTROL_PATH] {
            if !self.data.join(path).exists() {
                self.found(Path::new(path), 0, 0, FindingKind::NotSealed);
            }
        }
    }

    fn found(&mut self, path: &Path, offset: u64, bytes: u64, kind: FindingKind) {
        self.result.add(VerifyFinding { path: path.to_owned(), offset, bytes, kind });
    }
}

/// Whether a unit, as it is stored, is plaintext. Some plaintext is not recognised: what looks like random bytes. Does not
/// allocate.
pub fn is_plaintext(class: FileClass, stored: &[u8]) -> bool {
    let encrypted = match class {
        FileClass::Unencrypted | FileClass::Control | FileClass::Version => return false,
        // Without a page header, it becomes a history, which is text.
        FileClass::XlogTemp if !wal::has_magic(stored) => return false,
        FileClass::Wal | FileClass::XlogTemp => stored.get(wal::CLEAR_BYTES..).unwrap_or_default(),
        _ => stored,
    };
    if is_zero(stored) {
        return false;
    }
    let is_page = matches!(class, FileClass::Relation { .. }) && page::has_header(stored);
    is_page || randomness::is_not_random(encrypted)
}
