//! Unpacks a tar.xz in a zip file, or a selection of files of a zip. Refuses paths outside the target directory and archives
//! that are too large. Ignores owners and unusual modes.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use lzma_rust2::XzReader;
use tar::{Archive, Entry, EntryType};
use zip::ZipArchive;

/// Readable for all, because servers may run as another user.
pub(super) const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const ANY_EXECUTE: u32 = 0o111;
/// The largest known server has 1.2 GB.
const MAX_BYTES: u64 = 4 << 30;
const MAX_ENTRIES: usize = 100_000;
/// Four times the memory that `xz -9` requires.
const MAX_XZ_KIB: u32 = 256 << 10;
/// 1980, the first year of the zip format. Times in zip files have no time zone, so all files get this one.
pub(super) const ZIP_TIME_S: u64 = 315_532_800;

/// The server's files in a zip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ArchiveMember {
    /// The contents of this tar.xz.
    TarXz(&'static str),
    /// A selection of the zip's own files.
    Tree(&'static ZipSelection),
}

/// A selection of files. A name that ends with `/` includes everything below the directory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ZipSelection {
    pub(super) included: &'static [&'static str],
    /// Excluded from `included`.
    pub(super) except: &'static [&'static str],
}

impl ZipSelection {
    fn contains(&self, name: &str) -> bool {
        let is_in = |list: &[&str]| {
            list.iter().any(|part| name == *part || part.ends_with('/') && name.starts_with(part))
        };
        is_in(self.included) && !is_in(self.except)
    }
}

/// What an archive may still contain.
struct UnpackBudget {
    bytes: u64,
    entries: usize,
}

impl UnpackBudget {
    const ALL: Self = Self { bytes: MAX_BYTES, entries: MAX_ENTRIES };

    fn take(&mut self, path: &Path, size_bytes: u64) -> io::Result<()> {
        match (self.bytes.checked_sub(size_bytes), self.entries.checked_sub(1)) {
            (Some(bytes), Some(entries)) => *self = Self { bytes, entries },
            _ => return Err(refused(path, "exceeds the maximum size of a server")),
        }
        Ok(())
    }
}

/// Unpacks `member` of the zip `archive` into `target`, which must not exist.
pub(super) fn unpack(archive: &Path, member: &ArchiveMember, target: &Path) -> io::Result<()> {
    let mut zip = ZipArchive::new(File::open(archive)?)?;
    match member {
        ArchiveMember::TarXz(name) => {
            let packed = zip.by_name(name)?;
            unpack_tar(XzReader::new_mem_limit(packed, false, MAX_XZ_KIB), target)
        }
        ArchiveMember::Tree(parts) => unpack_tree(&mut zip, parts, target),
    }
}

fn unpack_tree(
    zip: &mut ZipArchive<impl Read + Seek>,
    parts: &ZipSelection,
    target: &Path,
) -> io::Result<()> {
    make_directory(target)?;
    let mut budget = UnpackBudget::ALL;
    for number in 0..zip.len() {
        let mut entry = zip.by_index(number)?;
        let name = entry.name()?.into_owned();
        if !parts.contains(&name) {
            continue;
        }
        let path = inside(Path::new(&name))?;
        let (size_bytes, mode) = (entry.size(), entry.unix_mode().unwrap_or_default());
        budget.take(&path, size_bytes)?;
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        if entry.is_dir() {
            make_directories(target, &path)?;
        } else if entry.is_file() {
            // Limits the data to the declared size.
            let mut contents = (&mut entry).take(size_bytes.saturating_add(1));
            make_file(&mut contents, size_bytes, mode, ZIP_TIME_S, &target.join(&path))?;
        } else {
            return Err(refused(&path, "is neither file nor directory"));
        }
    }
    Ok(())
}

fn unpack_tar(tar: impl Read, target: &Path) -> io::Result<()> {
    make_directory(target)?;
    let mut budget = UnpackBudget::ALL;
    for entry in Archive::new(tar).entries()? {
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        budget.take(&path, entry.size())?;
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        match entry.header().entry_type() {
            EntryType::Directory => make_directories(target, &path)?,
            EntryType::Regular => {
                let (size, mode, time) = (entry.size(), entry.header().mode()?, entry.header().mtime()?);
                make_file(&mut entry, size, mode, time, &target.join(&path))?;
            }
            EntryType::Symlink => make_link(&entry, &path, target)?,
            other => return Err(refused(&path, &format!("is neither file, directory nor link ({other:?})"))),
        }
    }
    Ok(())
}

/// The normalized path; an error if it leads out of the directory.
fn inside(path: &Path) -> io::Result<PathBuf> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            _ => return Err(refused(path, "leads out of the directory")),
        }
    }
    Ok(inside)
}

/// Creates missing directories, readable for all users independent of the umask.
fn make_directories(target: &Path, path: &Path) -> io::Result<()> {
    let mut directory = target.to_owned();
    for component in path.components() {
        directory.push(component);
        match make_directory(&directory) {
            // `create_dir_all` would accept a link to a directory.
            Err(error)
                if error.kind() == io::ErrorKind::AlreadyExists
                    && fs::symlink_metadata(&directory)?.is_dir() => {}
            made => made?,
        }
    }
    Ok(())
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(PROGRAM_MODE).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(PROGRAM_MODE))
}

fn make_file(
    contents: &mut impl Read,
    size_bytes: u64,
    mode: u32,
    time_s: u64,
    path: &Path,
) -> io::Result<()> {
    let mode = if mode & ANY_EXECUTE == 0 { FILE_MODE } else { PROGRAM_MODE };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    if io::copy(contents, &mut file)? != size_bytes {
        return Err(refused(path, "is not as long as it says"));
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    // The time of the program is a part of a template's key: a server that is unpacked again uses the same templates.
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time_s))
}

/// Permits links to files in the same directory only: libraries need no others, and they cannot lead out.
fn make_link(entry: &Entry<'_, impl Read>, path: &Path, target: &Path) -> io::Result<()> {
    let to = entry.link_name()?.unwrap_or_default();
    let mut components = to.components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(_)), None) => symlink(&to, target.join(path)),
        _ => Err(refused(path, &format!("links to {}, which is not in the same directory", to.display()))),
    }
}

fn refused(path: &Path, problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} {problem}", path.display()))
}

#[cfg(test)]
mod tests;
