//! Checks that everything in a cluster that must be encrypted is ciphertext of its own place.
//!
//! Each unit is read as it is on disk. It must look like random bytes, and, decrypted with the key and the tweak of its
//! place, have the structure that belongs there: the header and the checksum of a page, the rest of the header of a WAL
//! page, the checksum of a file of state. Zeros are stored as zeros. The server may run: what looks wrong is read again,
//! because it may be written at that moment.

mod file;
mod page;
mod randomness;
mod state;
mod wal;
mod walk;

use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::cluster::{self, CONTROL_PATH, ClusterState, DiskFile, VERSION_PATH};
use crate::convert::control::RunningControl;
use crate::error::Doing;
use crate::seal::{CONTROL_BYTES, SealState};
use crate::unit::is_zero;
use crate::{EncryptionEngine, FileClass, KeyError, OpenFile, Storage};

use file::FileVerifier;
use walk::ListedFile;

/// Where recovery of a base backup starts.
const BACKUP_LABEL: &str = "backup_label";

/// What is wrong with a piece of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingKind {
    /// Not ciphertext.
    Plaintext,
    /// Not what this place holds: copied from another place or another cluster, or overwritten.
    Misplaced,
    /// Ciphertext of its place, with a wrong checksum.
    Damaged,
    /// A WAL page of an earlier segment among later ones.
    Outdated,
    /// The end of a file is less than a page, and cannot be decrypted.
    Incomplete,
    /// A file that PostgreSQL does not write, in plaintext.
    UnknownFile,
    /// The same in a directory of encrypted files.
    UnknownInStorage,
    /// A symbolic link, a pipe or a device in place of a file.
    NotAFile,
    /// `pg_control` or `PG_VERSION` is not sealed, or is missing.
    NotSealed,
    Unreadable,
}

impl FindingKind {
    pub const ALL: [Self; 10] = [
        Self::Plaintext,
        Self::Misplaced,
        Self::Damaged,
        Self::Outdated,
        Self::Incomplete,
        Self::UnknownFile,
        Self::UnknownInStorage,
        Self::NotAFile,
        Self::NotSealed,
        Self::Unreadable,
    ];

    /// A short name for programs.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Misplaced => "misplaced",
            Self::Damaged => "damaged",
            Self::Outdated => "outdated",
            Self::Incomplete => "incomplete",
            Self::UnknownFile => "unknown-file",
            Self::UnknownInStorage => "unknown-file-in-storage",
            Self::NotAFile => "not-a-file",
            Self::NotSealed => "not-sealed",
            Self::Unreadable => "unreadable",
        }
    }

    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Plaintext => "plaintext",
            Self::Misplaced => {
                "not ciphertext of this place: from another place or another cluster, or overwritten"
            }
            Self::Damaged => "ciphertext of this place, but its checksum is wrong",
            Self::Outdated => "a WAL page of an earlier segment among later ones",
            Self::Incomplete => "less than a page at the end of the file, which cannot be decrypted",
            Self::UnknownFile => "not a file of PostgreSQL: stored in plaintext",
            Self::UnknownInStorage => {
                "not a file of PostgreSQL, among the encrypted ones: stored in plaintext"
            }
            Self::NotAFile => "a symbolic link, a pipe or a device in place of a file",
            Self::NotSealed => "not sealed with these keys, changed, or missing",
            Self::Unreadable => "cannot be read",
        }
    }
}

/// A piece of a file that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyFinding {
    /// Relative to the data directory.
    pub path: PathBuf,
    pub offset: u64,
    pub bytes: u64,
    pub kind: FindingKind,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyCounts {
    /// Files that must be encrypted.
    pub encrypted_files: u64,
    /// Files that PostgreSQL stores in plaintext.
    pub plain_files: u64,
    /// Temporary files, whose keys only the server has: they look like ciphertext.
    pub temporary_files: u64,
    /// Units that are ciphertext of their place.
    pub units: u64,
    /// Units of zeros.
    pub zeros: u64,
    /// Pages with a wrong checksum that recovery will replace.
    pub to_recover: u64,
    /// Bytes of the encrypted files.
    pub bytes: u64,
    /// Files that were removed, renamed or truncated meanwhile.
    pub gone: u64,
}

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

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VerifyResult {
    pub counts: VerifyCounts,
    pub findings: Vec<VerifyFinding>,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyEnd {
    Complete,
    Interrupted,
}

/// What is known of the whole cluster.
#[derive(Clone, Copy, Debug)]
struct ClusterFacts {
    has_page_checksums: bool,
    /// Size of a WAL segment; 0 if it is unknown.
    segment_bytes: u64,
    /// Where recovery will start. It replaces pages that were changed from there on.
    recovers_from: Option<u64>,
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

impl VerifyResult {
    /// Adds a finding, or extends the last one.
    fn add(&mut self, finding: VerifyFinding) {
        if let Some(last) = self.findings.last_mut()
            && last.path == finding.path
            && last.kind == finding.kind
            && last.offset + last.bytes == finding.offset
        {
            last.bytes += finding.bytes;
            return;
        }
        self.findings.push(finding);
    }
}

impl ClusterFacts {
    fn read(data: &Path, engine: &mut EncryptionEngine) -> Result<Self, KeyError> {
        let refused = |why| KeyError::NotVerifiable { data: data.to_owned(), why };
        let state = cluster::examine(data, engine)?;
        match state {
            ClusterState::Empty => return Err(refused("it holds no cluster")),
            ClusterState::Plain => return Err(refused("the cluster is not encrypted")),
            ClusterState::OtherKeys => return Err(refused("the keys do not match the cluster")),
            ClusterState::OtherVersion(_) => {
                return Err(refused(
                    "it was encrypted by another version of ciphertoll; verify it with that one",
                ));
            }
            _ => {}
        }
        let unknown = Self { has_page_checksums: false, segment_bytes: 0, recovers_from: None };
        if !matches!(state, ClusterState::Sealed | ClusterState::Unsealed(VERSION_PATH)) {
            // Becomes a finding.
            return Ok(unknown);
        }
        let path = data.join(CONTROL_PATH);
        let Some(file) = opened(&path)? else { return Ok(unknown) };
        let mut plaintext = [0; CONTROL_BYTES];
        engine
            .read_at(&mut OpenFile::new(FileClass::Control), &file, &mut plaintext, 0)
            .doing("read", &path)?;
        let control = RunningControl::parse(&plaintext).map_err(refused)?;
        let label = fs::read(data.join(BACKUP_LABEL)).ok().and_then(|label| start_of_backup(&label));
        // A server that runs replaces nothing.
        let redo = control.redo.filter(|_| cluster::running_server(data).is_none());
        Ok(Self {
            has_page_checksums: control.has_page_checksums,
            segment_bytes: control.segment_bytes,
            recovers_from: label.or(redo),
        })
    }
}

/// `START WAL LOCATION: 0/2000028 (file 000000010000000000000002)`.
fn start_of_backup(label: &[u8]) -> Option<u64> {
    let text = str::from_utf8(label).ok()?;
    let (_, rest) = text.split_once("START WAL LOCATION: ")?;
    let (high, low) = rest.split_whitespace().next()?.split_once('/')?;
    let half = |digits| u64::from_str_radix(digits, 16).ok();
    Some(half(high)? << 32 | half(low)?)
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

fn opened(path: &Path) -> Result<Option<DiskFile>, KeyError> {
    match fs::File::open(path) {
        Ok(file) => Ok(Some(DiskFile(file))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing("read", path),
    }
}

fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
