//! Unpacking: a tar, packed with xz, in a zip; or parts of the zip itself. What would leave the directory, or is more than
//! a server can be, is refused; owners and odd modes are not taken over.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Read, Seek};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime};

use lzma_rust2::XzReader;
use tar::{Archive, Entry, EntryType};
use zip::ZipArchive;

/// Servers run as another user than the one who fetched them.
pub(super) const PROGRAM_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;
const ANY_EXECUTE: u32 = 0o111;
/// The largest server that we know has 1.2 GB.
const MAX_BYTES: u64 = 4 << 30;
const MAX_ENTRIES: usize = 100_000;
/// Four times what the output of `xz -9` takes.
const MAX_XZ_KIB: u32 = 256 << 10;
/// 1980, the first year of zips. Their times have no zone: one for all is the same on every machine.
pub(super) const ZIP_TIME_S: u64 = 315_532_800;

/// Where in a zip the server's files are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// In the tar.xz of this name.
    TarXz(&'static str),
    /// In the zip itself: these of its parts.
    Tree(&'static Parts),
}

/// Some of a zip's files. A name that ends with `/` is a directory and all that is below.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) kept: &'static [&'static str],
    /// What of these is not.
    pub(super) but: &'static [&'static str],
}

impl Parts {
    fn has(&self, name: &str) -> bool {
        let is_in = |list: &[&str]| {
            list.iter().any(|part| name == *part || part.ends_with('/') && name.starts_with(part))
        };
        is_in(self.kept) && !is_in(self.but)
    }
}

/// What may still come.
struct Room {
    bytes: u64,
    entries: usize,
}

impl Room {
    const ALL: Self = Self { bytes: MAX_BYTES, entries: MAX_ENTRIES };

    fn take(&mut self, path: &Path, size_bytes: u64) -> io::Result<()> {
        match (self.bytes.checked_sub(size_bytes), self.entries.checked_sub(1)) {
            (Some(bytes), Some(entries)) => *self = Self { bytes, entries },
            _ => return Err(refused(path, "is more than a server can be")),
        }
        Ok(())
    }
}

/// Unpacks what `member` names in the zip `archive` into `target`, which must not be there.
pub(super) fn unpack(archive: &Path, member: &Member, target: &Path) -> io::Result<()> {
    let mut zip = ZipArchive::new(File::open(archive)?)?;
    match member {
        Member::TarXz(name) => {
            let packed = zip.by_name(name)?;
            unpack_tar(XzReader::new_mem_limit(packed, false, MAX_XZ_KIB), target)
        }
        Member::Tree(parts) => unpack_tree(&mut zip, parts, target),
    }
}

fn unpack_tree(zip: &mut ZipArchive<impl Read + Seek>, parts: &Parts, target: &Path) -> io::Result<()> {
    make_directory(target)?;
    let mut room = Room::ALL;
    for number in 0..zip.len() {
        let mut entry = zip.by_index(number)?;
        let name = entry.name()?.into_owned();
        if !parts.has(&name) {
            continue;
        }
        let path = inside(Path::new(&name))?;
        let (size_bytes, mode) = (entry.size(), entry.unix_mode().unwrap_or_default());
        room.take(&path, size_bytes)?;
        make_directories(target, path.parent().unwrap_or(Path::new("")))?;
        if entry.is_dir() {
            make_directories(target, &path)?;
        } else if entry.is_file() {
            // No more than it says, whatever comes.
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
    let mut room = Room::ALL;
    for entry in Archive::new(tar).entries()? {
        let mut entry = entry?;
        let path = inside(&entry.path()?)?;
        room.take(&path, entry.size())?;
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
    // A template is known by its server's time, too: unpacked again, it is the same server.
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(time_s))
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
    use std::io::Write;
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

    const PARTS: Parts = Parts { kept: &["README", "bin/server", "lib/"], but: &["lib/debug/"] };

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
    fn of_a_zip_only_the_parts_are_taken() {
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
    fn of_a_zip_what_leads_out_links_or_lies_is_refused() {
        let mut link = zip::ZipWriter::new(io::Cursor::new(Vec::new()));
        link.add_symlink("lib/link", "/etc", zip::write::SimpleFileOptions::default()).unwrap();
        // The directory at the end says how long a file is: twenty-five bytes into its entry.
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
        let mut room = Room::ALL;
        assert!(room.take(Path::new("large"), 5 << 30).is_err());
        let mut room = Room { entries: 1, ..Room::ALL };
        assert!(room.take(Path::new("one"), 1).is_ok() && room.take(Path::new("two"), 1).is_err());
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
