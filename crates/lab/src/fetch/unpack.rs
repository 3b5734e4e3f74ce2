//! Unpacking: a tar, packed with xz, in a zip. What would leave the directory, or is more than a server can
//! be, is refused; owners and odd modes are not taken over.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use lzma_rust2::XzReader;
use tar::{Archive, Entry, EntryType};
use zip::ZipArchive;

/// Servers run as another user than the one who fetched them.
const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const ANY_EXECUTE: u32 = 0o111;
/// The largest server that we know has 1.2 GB.
const MAX_BYTES: u64 = 4 << 30;
const MAX_ENTRIES: usize = 100_000;
/// Four times what the output of `xz -9` takes.
const MAX_XZ_KIB: u32 = 256 << 10;

/// Unpacks the tar.xz called `member` in the zip `archive` into `target`, which must not be there.
pub(super) fn unpack(archive: &Path, member: &str, target: &Path) -> io::Result<()> {
    let mut zip = ZipArchive::new(File::open(archive)?)?;
    let packed = zip.by_name(member)?;
    unpack_tar(XzReader::new_mem_limit(packed, false, MAX_XZ_KIB), target)
}

fn unpack_tar(tar: impl Read, target: &Path) -> io::Result<()> {
    make_directory(target)?;
    let mut left_bytes = MAX_BYTES;
    for (number, entry) in Archive::new(tar).entries()?.enumerate() {
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        let size_bytes = entry.size();
        left_bytes = match left_bytes.checked_sub(size_bytes) {
            Some(left) if number < MAX_ENTRIES => left,
            _ => return Err(refused(&path, "is more than a server can be")),
        };
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        match entry.header().entry_type() {
            EntryType::Directory => make_directories(target, &path)?,
            EntryType::Regular => make_file(&mut entry, &target.join(&path))?,
            EntryType::Symlink => make_link(&entry, &path, target)?,
            other => return Err(refused(&path, &format!("is neither file, directory nor link ({other:?})"))),
        }
    }
    Ok(())
}

/// The path, if it stays where it is put.
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

/// Makes those directories on the way that are not there yet, readable for all whatever the umask is.
fn make_directories(target: &Path, path: &Path) -> io::Result<()> {
    let mut directory = target.to_owned();
    for component in path.components() {
        directory.push(component);
        match make_directory(&directory) {
            // A link to a directory would do for `create_dir_all`, not for us.
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

fn make_file(entry: &mut Entry<'_, impl Read>, path: &Path) -> io::Result<()> {
    let mode = if entry.header().mode()? & ANY_EXECUTE == 0 { FILE_MODE } else { PROGRAM_MODE };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    if io::copy(entry, &mut file)? != entry.size() {
        return Err(refused(path, "is cut off"));
    }
    file.set_permissions(Permissions::from_mode(mode))?;
    // A template is known by its server's time, too: unpacked again, it is the same server.
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(entry.header().mtime()?))
}

/// Links to a name beside them are all that libraries need, and cannot lead out.
fn make_link(entry: &Entry<'_, impl Read>, path: &Path, target: &Path) -> io::Result<()> {
    let to = entry.link_name()?.unwrap_or_default();
    let mut components = to.components();
    match (components.next(), components.next()) {
        (Some(Component::Normal(_)), None) => symlink(&to, target.join(path)),
        _ => Err(refused(path, &format!("links to {}, which is not beside it", to.display()))),
    }
}

fn refused(path: &Path, problem: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{} {problem}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use tar::{Builder, Header};

    use super::*;

    fn header(path: &str, kind: EntryType, mode: u32, size: usize) -> Header {
        let mut header = Header::new_ustar();
        // The crate itself would refuse to write paths that lead out.
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
    fn modes_are_for_all_and_times_are_kept() {
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
    fn what_leads_out_is_refused() {
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
            // Through a link, even if only to a neighbour.
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

    #[test]
    fn what_is_too_large_or_cut_off_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let mut large = header("large", EntryType::Regular, 0o644, 5 << 30);
        large.set_cksum();
        let error = unpack_tar(&large.as_bytes()[..], &place.path().join("a")).unwrap_err();
        assert!(error.to_string().contains("more than a server"), "{error}");
        let whole = tar_of(&[("file", EntryType::Regular, 0o644, "contents")]);
        assert!(unpack_tar(&whole[..515], &place.path().join("b")).is_err());
    }
}
