//! Converts one file.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nix::unistd::geteuid;

use super::error::{ConvertError, Result, open};
use super::plan::{ConversionDirection, Owner, PlannedFile};
use crate::cluster::DiskFile;
use crate::error::Doing;
use crate::unit::is_zero;
use crate::{EncryptionEngine, Errno, FileClass, OpenFile, Storage};

/// Bytes per read: a multiple of every unit size.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Called with the number of finished bytes of a file.
pub(super) type ReportBytes<'a> = dyn FnMut(u64) -> Result<()> + 'a;

type ErrnoResult<T> = std::result::Result<T, Errno>;

/// Suffix of a file's name until it is complete.
const DRAFT: &str = ".ciphertoll-convert";

pub(super) struct FileConverter<'a> {
    direction: ConversionDirection,
    engine: &'a mut EncryptionEngine,
}

/// An open file of the source or the target.
pub(super) struct ConversionFile {
    opened: OpenFile,
    storage: DiskFile,
    is_encrypted: bool,
}

impl ConversionFile {
    pub(super) fn source(file: &PlannedFile, direction: ConversionDirection) -> Result<Self> {
        let is_encrypted = direction == ConversionDirection::Decrypt && file.class.is_encrypted();
        Ok(Self { opened: OpenFile::new(file.class), storage: DiskFile(open(&file.from)?), is_encrypted })
    }

    pub(super) fn target(class: FileClass, storage: File, direction: ConversionDirection) -> Self {
        let is_encrypted = direction == ConversionDirection::Encrypt && class.is_encrypted();
        Self { opened: OpenFile::new(class), storage: DiskFile(storage), is_encrypted }
    }

    /// Reads plaintext.
    pub(super) fn read(
        &mut self,
        engine: &mut EncryptionEngine,
        bytes: &mut [u8],
        offset: u64,
    ) -> ErrnoResult<usize> {
        if self.is_encrypted {
            engine.read_at(&mut self.opened, &self.storage, bytes, offset)
        } else {
            self.storage.read_at(bytes, offset)
        }
    }

    /// The bytes on disk.
    pub(super) fn stored(&self) -> &DiskFile {
        &self.storage
    }

    fn write(&mut self, engine: &mut EncryptionEngine, bytes: &[u8], offset: u64) -> ErrnoResult<()> {
        let written = if self.is_encrypted {
            engine.write_at(&mut self.opened, &self.storage, &bytes, offset)?
        } else {
            self.storage.write_at(bytes, offset)?
        };
        if written == bytes.len() { Ok(()) } else { Err(Errno::NO_SPACE) }
    }

    fn set_size(&mut self, engine: &mut EncryptionEngine, size: u64) -> ErrnoResult<()> {
        if self.is_encrypted {
            engine.set_size(&mut self.opened, &self.storage, size)
        } else {
            self.storage.set_size(size)
        }
    }
}

impl<'a> FileConverter<'a> {
    pub(super) fn new(direction: ConversionDirection, engine: &'a mut EncryptionEngine) -> Self {
        Self { direction, engine }
    }

    /// Writes and syncs a file, with the owner, mode and modification time of the source. The file gets its name only when
    /// it is complete.
    pub(super) fn convert(&mut self, file: &PlannedFile, done: &mut ReportBytes<'_>) -> Result<()> {
        let draft = draft_of(&file.to);
        let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&draft);
        let created = created.doing("create", &draft)?;
        let target = created.try_clone().doing("create", &draft)?;
        self.copy_content(file, &mut ConversionFile::target(file.class, target, self.direction), done)?;
        let finished = set_owner(&draft, file.owner)
            .and_then(|()| created.set_permissions(Permissions::from_mode(file.mode)))
            .and_then(|()| created.set_times(FileTimes::new().set_modified(system_time(file.modified))))
            .and_then(|()| created.sync_all())
            .and_then(|()| fs::rename(&draft, &file.to));
        Ok(finished.doing("write", &file.to)?)
    }

    fn copy_content(
        &mut self,
        file: &PlannedFile,
        target: &mut ConversionFile,
        done: &mut ReportBytes<'_>,
    ) -> Result<()> {
        let mut source = ConversionFile::source(file, self.direction)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let (mut at, mut written) = (0, 0);
        while at < file.bytes {
            let count = CHUNK_BYTES.min((file.bytes - at) as usize);
            let chunk = &mut buffer[..count];
            let read = source.read(self.engine, chunk, at).doing("read", &file.from)?;
            if read != count {
                return Err(ConvertError::Refused(format!(
                    "{} became shorter during the conversion: a server is using the source",
                    file.from.display()
                )));
            }
            if !(file.is_sparse && is_zero(chunk)) {
                let result = target.write(self.engine, chunk, at);
                // The engine refuses WAL pages without a header, because they would not be encrypted.
                if result == Err(Errno::IO) && file.class == FileClass::Wal {
                    return Err(ConvertError::Refused(format!(
                        "{} contains a page without a WAL page header: remove the file if it is not needed",
                        file.from.display()
                    )));
                }
                result.doing("write", &file.to)?;
                written = at + count as u64;
            }
            at += count as u64;
            done(at)?;
        }
        if written < file.bytes {
            target.set_size(self.engine, file.bytes).doing("write", &file.to)?;
        }
        Ok(())
    }
}

/// The name of a file until it is complete.
pub(super) fn draft_of(path: &Path) -> PathBuf {
    let mut draft = path.as_os_str().to_owned();
    draft.push(DRAFT);
    draft.into()
}

fn system_time((seconds, nanoseconds): (i64, i64)) -> SystemTime {
    let fraction = Duration::from_nanos(nanoseconds.unsigned_abs());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let second = if seconds < 0 { SystemTime::UNIX_EPOCH - whole } else { SystemTime::UNIX_EPOCH + whole };
    second + fraction
}

/// Sets the owner of a file, or of a symbolic link itself. Does nothing if this process is not root.
pub(super) fn set_owner(path: &Path, (user, group): Owner) -> io::Result<()> {
    let metadata = fs::symlink_metadata(path)?;
    if (metadata.uid(), metadata.gid()) == (user, group) {
        return Ok(());
    }
    match lchown(path, Some(user), Some(group)) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied && !geteuid().is_root() => Ok(()),
        other => other,
    }
}

pub(super) fn sync_directory(path: &Path) -> Result<()> {
    Ok(File::open(path).and_then(|directory| directory.sync_all()).doing("write", path)?)
}
