//! Lists the files of a data directory and of the directories that its links name.

use std::collections::HashSet;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use super::finding::FindingKind;
use crate::clear_file::{ClearFile, ENCRYPTED_DIRECTORIES};
use crate::error::Doing;
use crate::{FileClass, KeyError, cluster};

pub(super) struct ListedFile {
    /// Relative to the data directory.
    pub(super) below: PathBuf,
    pub(super) class: FileClass,
    pub(super) bytes: u64,
    /// What is wrong with the file as a whole.
    pub(super) finding: Option<FindingKind>,
}

struct Walk<'a> {
    data: &'a Path,
    allowed: &'a [PathBuf],
    files: Vec<ListedFile>,
    /// Device and inode of the directories that were visited.
    visited: HashSet<(u64, u64)>,
    /// Those that are visited by the links that say what their files are, and by no other name.
    linked: Vec<(u64, u64)>,
}

/// All files, in the order of their paths.
pub(super) fn list(data: &Path, allowed: &[PathBuf]) -> Result<Vec<ListedFile>, KeyError> {
    // Without them, such files have a finding more.
    let linked = cluster::linked_directories(data).unwrap_or_default();
    let mut walk = Walk { data, allowed, files: Vec::new(), visited: HashSet::new(), linked };
    let metadata = fs::metadata(data).doing("read", data)?;
    let entries = fs::read_dir(data).doing("read", data)?;
    walk.visited.insert((metadata.dev(), metadata.ino()));
    for entry in entries {
        let entry = entry.doing("read", data)?;
        walk.entry(Path::new(""), &entry);
    }
    walk.files.sort_by(|one, other| one.below.cmp(&other.below));
    Ok(walk.files)
}

impl Walk<'_> {
    fn entry(&mut self, parent: &Path, entry: &DirEntry) {
        let (below, path) = (parent.join(entry.file_name()), entry.path());
        let class = FileClass::of(bytes_of(&below));
        let metadata = match fs::symlink_metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => return self.add(below, class, 0, Some(FindingKind::Unreadable)),
            Ok(metadata) => metadata,
        };
        let kind = metadata.file_type();
        if kind.is_dir() {
            if !self.linked.contains(&(metadata.dev(), metadata.ino())) {
                self.directory(below, &path, &metadata);
            }
        } else if kind.is_symlink() {
            match fs::metadata(&path) {
                Ok(target) if target.is_dir() => self.directory(below, &path, &target),
                Ok(target) if target.is_file() && class == FileClass::Unencrypted => {
                    self.plain(below, target.len());
                }
                // A link of a tablespace whose directory is missing, and files that the server refuses to open.
                _ => self.add(below, class, 0, Some(FindingKind::NotAFile)),
            }
        } else if kind.is_file() {
            if class == FileClass::Unencrypted {
                self.plain(below, metadata.len());
            } else {
                self.add(below, class, metadata.len(), None);
            }
        } else if !kind.is_socket() {
            self.add(below, class, 0, Some(FindingKind::NotAFile));
        }
    }

    fn directory(&mut self, below: PathBuf, path: &Path, metadata: &Metadata) {
        // Of a directory of encrypted files, single files can be allowed.
        let is_storage = below
            .iter()
            .next()
            .is_some_and(|first| ENCRYPTED_DIRECTORIES.iter().any(|encrypted| first == *encrypted));
        if (!is_storage && self.is_allowed(&below)) || !self.visited.insert((metadata.dev(), metadata.ino()))
        {
            return;
        }
        let entries = match fs::read_dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return,
            Err(_) => return self.add(below, FileClass::Unencrypted, 0, Some(FindingKind::Unreadable)),
            Ok(entries) => entries,
        };
        for entry in entries {
            match entry {
                Ok(entry) => self.entry(&below, &entry),
                Err(_) => self.add(below.clone(), FileClass::Unencrypted, 0, Some(FindingKind::Unreadable)),
            }
        }
    }

    /// A file in plaintext.
    fn plain(&mut self, below: PathBuf, bytes: u64) {
        if self.is_allowed(&below) {
            return;
        }
        let finding = match ClearFile::of(bytes_of(&below)) {
            ClearFile::PostgreSql => None,
            ClearFile::UnknownInStorage => Some(FindingKind::UnknownInStorage),
            ClearFile::Other | ClearFile::Outside => Some(FindingKind::UnknownFile),
        };
        // Its content is not read.
        let bytes = if finding.is_some() { bytes } else { 0 };
        self.add(below, FileClass::Unencrypted, bytes, finding);
    }

    fn is_allowed(&self, below: &Path) -> bool {
        let is_encrypted = FileClass::of(bytes_of(below)).is_encrypted();
        !is_encrypted
            && self
                .allowed
                .iter()
                .any(|allowed| below.starts_with(allowed) || self.data.join(below).starts_with(allowed))
    }

    fn add(&mut self, below: PathBuf, class: FileClass, bytes: u64, finding: Option<FindingKind>) {
        self.files.push(ListedFile { below, class, bytes, finding });
    }
}

pub(super) fn bytes_of(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_tablespace_and_wal_in_the_data_directory_are_listed_by_their_links() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path();
        for directory in ["pg_tblspc", "1/PG_15_1/5", "1/inner/PG_15_1/5", "a_disk"] {
            fs::create_dir_all(data.join(directory)).expect("a directory");
        }
        for (target, link) in [
            (data.join("1"), "pg_tblspc/16400"),
            (data.join("1/inner"), "pg_tblspc/16401"),
            ("a_disk".into(), "pg_wal"),
        ] {
            symlink(target, data.join(link)).expect("a link");
        }
        let expected = [
            ("1/PG_15_1/5/16384", "pg_tblspc/16400/PG_15_1/5/16384"),
            ("1/inner/PG_15_1/5/16384", "pg_tblspc/16401/PG_15_1/5/16384"),
            ("a_disk/000000010000000000000001", "pg_wal/000000010000000000000001"),
        ];
        for (file, _) in expected {
            fs::write(data.join(file), "rows").expect("written");
        }
        let listed = list(data, &[]).expect("listed");
        assert!(listed.iter().all(|file| file.finding.is_none() && file.class.is_encrypted()));
        let listed: Vec<_> = listed.iter().map(|file| file.below.as_path()).collect();
        assert_eq!(listed, expected.map(|(_, below)| Path::new(below)));
    }
}
