//! The search for a marker in a server's files, which proves that data are not stored unencrypted.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_host::hex::hex;
use ciphertoll_record::Context;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Whence, lseek};
use openssl::rand::rand_bytes;

use crate::error::Error;
use crate::servers::control::ControlLogin;
use crate::servers::engine::ServerEngine;

/// The table or collection of the marker.
const TABLE: &str = "ciphertoll_marker";
const MARKER_BYTES: usize = 16;
/// The last byte of the marker; rare in other data.
const MARKER_END: u8 = b'~';
/// Enough copies for several pages.
const COPIES: u32 = 200;
/// Files are read in pieces of this size.
const PIECE_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Files that were read completely.
    pub files: u64,
    pub bytes: u64,
    /// Files that contain the marker in plaintext.
    pub files_with_marker: u64,
}

impl Proof {
    pub fn is_encrypted(&self) -> bool {
        self.files > 0 && self.files_with_marker == 0
    }
}

/// Writes a random marker into a table, makes the server write it to its files, calls `sync`, and searches all files of
/// `directories` for it.
pub(crate) fn search_for_marker(
    control: &ControlLogin,
    engine: &dyn ServerEngine,
    directories: &[&Path],
    sync: &dyn Fn() -> Result<(), Error>,
) -> Result<Proof, Error> {
    let mut random = [0; MARKER_BYTES];
    rand_bytes(&mut random)?;
    let marker = format!("ciphertoll-{}{}", hex(&random), char::from(MARKER_END));
    let copies: Vec<String> = (0..COPIES).map(|number| format!("{number:04}-{marker}")).collect();
    engine.write_marker(control, TABLE, &copies)?;
    sync()?;
    let mut proof = Proof::default();
    let searched =
        directories.iter().try_for_each(|directory| search(directory, marker.as_bytes(), &mut proof));
    engine.remove_marker(control, TABLE)?;
    searched.map(|()| proof)
}

/// Searches every file below `top`. Files that disappear meanwhile are skipped.
fn search(top: &Path, marker: &[u8], proof: &mut Proof) -> Result<(), Error> {
    let mut directories = vec![top.to_owned()];
    while let Some(directory) = directories.pop() {
        let entries = match fs::read_dir(&directory) {
            Err(error) if is_gone(&error) && directory != top => continue,
            entries => entries.context("list", &directory)?,
        };
        for entry in entries {
            let entry = entry.context("list", &directory)?;
            let kind = match entry.file_type() {
                Err(error) if is_gone(&error) => continue,
                kind => kind.context("inspect", &entry.path())?,
            };
            if kind.is_dir() {
                directories.push(entry.path());
            } else if kind.is_file()
                && let Some(file) = open(&entry.path())?
            {
                let (bytes, found) = search_data(&file, marker, &entry.path())?;
                proof.files += 1;
                proof.bytes += bytes;
                proof.files_with_marker += u64::from(found);
            }
        }
    }
    Ok(())
}

/// Does not follow links and does not block on pipes: the server's user may create them.
fn open(path: &PathBuf) -> Result<Option<File>, Error> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        Err(error) if is_gone(&error) => Ok(None),
        opened => Ok(opened.context("read", path).map(Some)?),
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// Searches the data of a file and skips its holes, such as most of a file system image. Returns the bytes read.
fn search_data(file: &File, marker: &[u8], path: &Path) -> Result<(u64, bool), Error> {
    let seek = |from: i64, whence: Whence| match lseek(file, from, whence) {
        Err(Errno::ENXIO) => Ok(None),
        found => found.map(Some).map_err(std::io::Error::from).context("read", path),
    };
    let (mut bytes, mut found, mut at) = (0, false, 0);
    while let Some(begin) = seek(at, Whence::SeekData)? {
        // The file was truncated meanwhile.
        let Some(end) = seek(begin, Whence::SeekHole)? else { break };
        seek(begin, Whence::SeekSet)?;
        let (read, has_marker) = search_file(file.take(end.abs_diff(begin)), marker, path)?;
        (bytes, found, at) = (bytes + read, found || has_marker, end);
    }
    Ok((bytes, found))
}

fn search_file(mut file: impl Read, marker: &[u8], path: &Path) -> Result<(u64, bool), Error> {
    let mut piece = Vec::with_capacity(PIECE_BYTES + marker.len());
    let (mut bytes, mut found) = (0, false);
    loop {
        // A marker may span two pieces.
        let kept = piece.len().min(marker.len());
        piece.drain(..piece.len() - kept);
        let read = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).context("read", path)?;
        if read == 0 {
            return Ok((bytes, found));
        }
        bytes += read as u64;
        found = found || contains(&piece, marker);
    }
}

/// Compares the text before each [`MARKER_END`], because searching a single byte is fast.
fn contains(piece: &[u8], marker: &[u8]) -> bool {
    let mut rest = piece;
    loop {
        // Reading from memory cannot fail.
        match rest.skip_until(MARKER_END) {
            Ok(passed) if passed > 0 => {}
            Ok(_) | Err(_) => return false,
        }
        let before = piece.len() - rest.len();
        if piece.get(..before).is_some_and(|text| text.ends_with(marker)) {
            return true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &[u8] = b"ciphertoll-00ff~";

    fn found(text: &[u8]) -> bool {
        let (bytes, found) = search_file(text, MARKER, Path::new("memory")).unwrap();
        assert_eq!(bytes, text.len() as u64);
        found
    }

    #[test]
    fn a_marker_is_found_at_any_position() {
        for before in [0, 1, PIECE_BYTES - 5, PIECE_BYTES - MARKER.len(), PIECE_BYTES, 2 * PIECE_BYTES - 1] {
            let mut text = vec![b'~'; before];
            text.extend_from_slice(MARKER);
            assert!(found(&text), "{before}");
            text.extend_from_slice(&[0; 100]);
            assert!(found(&text), "{before}");
        }
    }

    #[test]
    fn similar_text_is_not_found() {
        assert!(!found(b"") && !found(b"~~~ciphertoll-00fe~ ciphertoll-00ff ~"));
        assert!(!found(&vec![0; 3 * PIECE_BYTES]));
        let mut torn = vec![0; PIECE_BYTES];
        torn.extend_from_slice(&MARKER[1..]);
        assert!(!found(&torn));
    }

    #[test]
    fn all_files_below_a_directory_are_searched() {
        let place = tempfile::tempdir().unwrap();
        let below = place.path().join("a/b");
        fs::create_dir_all(&below).unwrap();
        fs::write(place.path().join("clear"), [b"before ", MARKER].concat()).unwrap();
        fs::write(below.join("empty"), b"").unwrap();
        std::os::unix::fs::symlink(place.path().join("clear"), below.join("link")).unwrap();
        let mut proof = Proof::default();
        search(place.path(), MARKER, &mut proof).unwrap();
        assert_eq!(proof, Proof { files: 2, bytes: 23, files_with_marker: 1 });
        assert!(!proof.is_encrypted() && !Proof::default().is_encrypted());
    }
}
