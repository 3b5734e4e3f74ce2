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
mod tests {
    use std::io::Write;
    use std::os::unix::fs::MetadataExt;

    use tar::{Builder, Header};

    use super::*;

    fn header(path: &str, kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_ustar();
        // The crate refuses to write paths that lead out.
        header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_mtime(1_700_000_000);
        header.set_size(size as u64);
        header
    }

    fn tar_of(entries: &[(&str, EntryType, u32, &str)]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for &(path, kind, mode, contents) in entries {
            let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
            let mut header = header(path, kind, mode, if is_link { 0 } else { contents.len() });
            if is_link {
                header.as_old_mut().linkname[..contents.len()].copy_from_slice(contents.as_bytes());
            }
            header.set_cksum();
            builder.append(&header, if is_link { &[][..] } else { contents.as_bytes() }).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn modes_are_normalized_and_times_are_kept() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("server");
        let tar = tar_of(&[
            ("./bin/postgres", EntryType::Regular, 0o700, "program"),
            ("lib/", EntryType::Directory, 0o700, ""),
            ("lib/libssl.so.1.1", EntryType::Regular, 0o4600, "library"),
            ("lib/libssl.so", EntryType::Symlink, 0o777, "libssl.so.1.1"),
        ]);
        unpack_tar(&tar[..], &target).unwrap();
        let mode = |path: &str| fs::metadata(target.join(path)).unwrap().mode() & 0o7777;
        assert_eq!(["", "bin", "lib", "bin/postgres"].map(mode), [0o755; 4]);
        assert_eq!(mode("lib/libssl.so.1.1"), 0o644);
        assert_eq!(fs::read_to_string(target.join("lib/libssl.so")).unwrap(), "library");
        assert_eq!(fs::metadata(target.join("bin/postgres")).unwrap().mtime(), 1_700_000_000);
    }

    #[test]
    fn entries_outside_the_directory_are_refused() {
        let file = EntryType::Regular;
        for entries in [
            &[("../out", file, 0o644, "x")][..],
            &[("/out", file, 0o644, "x")],
            &[("lib/../../out", file, 0o644, "x")],
            &[("link", EntryType::Symlink, 0o777, "..")],
            &[("link", EntryType::Symlink, 0o777, "/tmp")],
            &[("link", EntryType::Symlink, 0o777, "lib/../..")],
            &[("link", EntryType::Link, 0o644, "lib")],
            &[("device", EntryType::Char, 0o644, "")],
            // Through a link, even within the directory.
            &[
                ("lib", EntryType::Directory, 0o755, ""),
                ("link", EntryType::Symlink, 0o777, "lib"),
                ("link/x", file, 0o644, "x"),
            ],
            &[("twice", file, 0o644, "x"), ("twice", file, 0o644, "y")],
        ] {
            let place = tempfile::tempdir().unwrap();
            let error = unpack_tar(&tar_of(entries)[..], &place.path().join("server"));
            assert!(error.is_err(), "{entries:?}");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{entries:?}");
        }
    }

    const PARTS: ZipSelection =
        ZipSelection { included: &["README", "bin/server", "lib/"], except: &["lib/debug/"] };

    fn zip_of(files: &[(&str, u32, &str)]) -> Vec<u8> {
        let mut zip = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        for &(name, mode, contents) in files {
            let options = zip::write::SimpleFileOptions::default().unix_permissions(mode);
            zip.start_file(name, options).unwrap();
            zip.write_all(contents.as_bytes()).unwrap();
        }
        zip.finish().unwrap().into_inner()
    }

    fn unpack_zip(zip: Vec<u8>, target: &Path) -> io::Result<()> {
        unpack_tree(&mut ZipArchive::new(io::Cursor::new(zip))?, &PARTS, target)
    }

    #[test]
    fn only_selected_files_of_a_zip_are_unpacked() {
        let place = tempfile::tempdir().unwrap();
        let target = place.path().join("server");
        let zip = zip_of(&[
            ("bin/server", 0o700, "program"),
            ("bin/server-debug", 0o755, "program"),
            ("lib/a/b.so", 0o600, "library"),
            ("lib/debug/b.so", 0o755, "library"),
            ("README", 0o644, "text"),
            ("README.more", 0o644, "text"),
        ]);
        unpack_zip(zip, &target).unwrap();
        let mode = |path: &str| fs::metadata(target.join(path)).unwrap().mode() & 0o7777;
        assert_eq!(["", "bin", "lib/a", "bin/server"].map(mode), [0o755; 4]);
        assert_eq!(["lib/a/b.so", "README"].map(mode), [0o644; 2]);
        for absent in ["bin/server-debug", "lib/debug", "README.more"] {
            assert!(!target.join(absent).exists(), "{absent}");
        }
    }

    #[test]
    fn zip_entries_that_lead_out_link_or_exceed_their_size_are_refused() {
        let mut link = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        link.add_symlink("lib/link", "/etc", zip::write::SimpleFileOptions::default()).unwrap();
        // The central directory declares the size at offset 24 of an entry.
        let mut longer = zip_of(&[("lib/file", 0o644, "contents")]);
        let entry = longer.windows(4).rposition(|bytes| bytes == b"PK\x01\x02").unwrap();
        longer[entry + 24] -= 1;
        for (what, zip) in [
            ("out", zip_of(&[("lib/../../out", 0o644, "x")])),
            ("a link", link.finish().unwrap().into_inner()),
            ("longer than it says", longer),
        ] {
            let place = tempfile::tempdir().unwrap();
            assert!(unpack_zip(zip, &place.path().join("server")).is_err(), "{what}");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{what}");
        }
        let mut budget = UnpackBudget::ALL;
        assert!(budget.take(Path::new("large"), 5 << 30).is_err());
        let mut budget = UnpackBudget { entries: 1, ..UnpackBudget::ALL };
        assert!(budget.take(Path::new("one"), 1).is_ok() && budget.take(Path::new("two"), 1).is_err());
    }

    #[test]
    fn archives_that_are_too_large_or_truncated_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let mut large = header("large", EntryType::Regular, 0o644, 5 << 30);
        large.set_cksum();
        let error = unpack_tar(&large.as_bytes()[..], &place.path().join("a")).unwrap_err();
        assert!(error.to_string().contains("maximum size of a server"), "{error}");
        let whole = tar_of(&[("file", EntryType::Regular, 0o644, "contents")]);
        assert!(unpack_tar(&whole[..515], &place.path().join("b")).is_err());
    }
}
