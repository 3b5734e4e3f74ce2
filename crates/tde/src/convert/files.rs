//! A file of the source, written as a file of the target.

use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::Path;
use std::time::{Duration, SystemTime};

use nix::unistd::geteuid;

use super::plan::{Owner, PlannedFile};
use super::{ConvertError, Direction, Result, draft_of, failed, open};
use crate::cluster::Stored;
use crate::unit::is_zero;
use crate::{Engine, Errno, Opened, Place, Storage};

/// What is read at a time: a whole number of units of every place.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// Called with the bytes of a file that are finished.
pub(super) type Done<'a> = dyn FnMut(u64) -> Result<()> + 'a;

/// Both sides of a conversion: one of them is read or written through the engine.
pub(super) struct Sides<'a> {
    direction: Direction,
    engine: &'a mut Engine,
}

/// An open file of one side.
pub(super) struct Side {
    opened: Opened,
    storage: Stored,
    is_encrypted: bool,
}

impl Side {
    pub(super) fn source(file: &PlannedFile, direction: Direction) -> Result<Self> {
        let is_encrypted = direction == Direction::Decrypt && file.place.is_encrypted();
        Ok(Self { opened: Opened::new(file.place), storage: Stored(open(&file.from)?), is_encrypted })
    }

    pub(super) fn target(place: Place, storage: File, direction: Direction) -> Self {
        let is_encrypted = direction == Direction::Encrypt && place.is_encrypted();
        Self { opened: Opened::new(place), storage: Stored(storage), is_encrypted }
    }

    /// Plaintext.
    pub(super) fn read(
        &mut self,
        engine: &mut Engine,
        bytes: &mut [u8],
        offset: u64,
    ) -> std::result::Result<usize, Errno> {
        if self.is_encrypted {
            engine.read_at(&mut self.opened, &self.storage, bytes, offset)
        } else {
            self.storage.read_at(bytes, offset)
        }
    }

    /// What is on disk.
    pub(super) fn stored(&self) -> &Stored {
        &self.storage
    }

    fn write(&mut self, engine: &mut Engine, bytes: &[u8], offset: u64) -> std::result::Result<(), Errno> {
        let written = if self.is_encrypted {
            engine.write_at(&mut self.opened, &self.storage, &bytes, offset)?
        } else {
            self.storage.write_at(bytes, offset)?
        };
        if written == bytes.len() { Ok(()) } else { Err(Errno::NO_SPACE) }
    }

    fn set_size(&mut self, engine: &mut Engine, size: u64) -> std::result::Result<(), Errno> {
        if self.is_encrypted {
            engine.set_size(&mut self.opened, &self.storage, size)
        } else {
            self.storage.set_size(size)
        }
    }
}

impl<'a> Sides<'a> {
    pub(super) fn new(direction: Direction, engine: &'a mut Engine) -> Self {
        Self { direction, engine }
    }

    /// Writes a file and forces it to the disk, with the owner, mode and time of the source. It has its name only when it
    /// is complete.
    pub(super) fn convert(&mut self, file: &PlannedFile, done: &mut Done<'_>) -> Result<()> {
        let draft = draft_of(&file.to);
        let created = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&draft);
        let created = created.map_err(|error| fault("create", &draft, error))?;
        let target = created.try_clone().map_err(|error| fault("create", &draft, error))?;
        self.content(file, &mut Side::target(file.place, target, self.direction), done)?;
        let finished = give(&draft, file.owner)
            .and_then(|()| created.set_permissions(Permissions::from_mode(file.mode)))
            .and_then(|()| created.set_times(FileTimes::new().set_modified(time(file.modified))))
            .and_then(|()| created.sync_all())
            .and_then(|()| fs::rename(&draft, &file.to));
        finished.map_err(|error| fault("write", &file.to, error))
    }

    fn content(&mut self, file: &PlannedFile, target: &mut Side, done: &mut Done<'_>) -> Result<()> {
        let mut source = Side::source(file, self.direction)?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let (mut at, mut written) = (0, 0);
        while at < file.bytes {
            let count = CHUNK_BYTES.min((file.bytes - at) as usize);
            let chunk = &mut buffer[..count];
            let read = source.read(self.engine, chunk, at).map_err(failed("read", &file.from))?;
            if read != count {
                return Err(ConvertError::Refused(format!(
                    "{} became shorter during the conversion: a server uses the source",
                    file.from.display()
                )));
            }
            if !(file.is_sparse && is_zero(chunk)) {
                target.write(self.engine, chunk, at).map_err(|error| unwritable(file, error))?;
                written = at + count as u64;
            }
            at += count as u64;
            done(at)?;
        }
        if written < file.bytes {
            target.set_size(self.engine, file.bytes).map_err(failed("write", &file.to))?;
        }
        Ok(())
    }
}

/// The engine refuses pages of WAL that have no header: as data they would be written in clear.
fn unwritable(file: &PlannedFile, error: Errno) -> ConvertError {
    if error == Errno::IO && file.place == Place::Wal {
        return ConvertError::Refused(format!(
            "{} holds a page that is not a page of WAL: remove the file if it is not needed",
            file.from.display()
        ));
    }
    failed("write", &file.to)(error)
}

fn time((seconds, nanoseconds): (i64, i64)) -> SystemTime {
    let fraction = Duration::from_nanos(nanoseconds.unsigned_abs());
    let whole = Duration::from_secs(seconds.unsigned_abs());
    if seconds < 0 {
        SystemTime::UNIX_EPOCH - whole + fraction
    } else {
        SystemTime::UNIX_EPOCH + whole + fraction
    }
}

/// Gives a file, not what a link leads to, to its owner. Only root can; others keep what they make.
pub(super) fn give(path: &Path, (user, group): Owner) -> io::Result<()> {
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
    let synced = File::open(path).and_then(|directory| directory.sync_all());
    synced.map_err(|error| fault("write", path, error))
}

pub(super) fn fault(doing: &'static str, path: &Path, error: io::Error) -> ConvertError {
    ConvertError::Io { doing, path: path.to_owned(), error }
}
