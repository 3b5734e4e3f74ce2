//! Whether what was written can be read in the files: the one question that encryption at rest must answer.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use ciphertoll_model::Engine;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::unistd::{Whence, lseek};
use openssl::rand::rand_bytes;
use serde_json::json;

use crate::control::{self, Control};
use crate::documents::{self, command};
use crate::error::{Context, Error};
use crate::hex::hex;
use crate::rows;

/// A table of its own, gone again at the end.
const TABLE: &str = "ciphertoll_marker";
const MARKER_BYTES: usize = 16;
/// What every marker ends with, and little else has in it.
const MARKER_END: u8 = b'~';
/// So often that no page, no record and no document is the only one.
const COPIES: u32 = 200;
/// Of a file, at a time.
const PIECE_BYTES: usize = 1 << 20;

/// What became of a text that was written into a server, when it was looked for in all of its files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    /// Files that were read from beginning to end.
    pub files: u64,
    /// How much that was.
    pub bytes: u64,
    /// Those that had it in them, as it is.
    pub files_with_marker: u64,
}

impl Proof {
    /// Whether it is nowhere to be read.
    pub fn is_encrypted(&self) -> bool {
        self.files > 0 && self.files_with_marker == 0
    }
}

/// Writes a text that was never written before into a table of the server's, has it go to its files, tables and logs, and
/// looks for it in all files of these directories, once `settle` has had them written out.
pub(crate) fn prove(
    control: &Control,
    engine: Engine,
    directories: &[&Path],
    settle: &dyn Fn() -> Result<(), Error>,
) -> Result<Proof, Error> {
    let mut random = [0; MARKER_BYTES];
    rand_bytes(&mut random)?;
    let marker = format!("ciphertoll-{}{}", hex(&random), char::from(MARKER_END));
    write(control, engine, &marker)?;
    settle()?;
    let mut proof = Proof::default();
    let searched =
        directories.iter().try_for_each(|directory| search(directory, marker.as_bytes(), &mut proof));
    remove(control, engine)?;
    searched.map(|()| proof)
}

fn write(control: &Control, engine: Engine, marker: &str) -> Result<(), Error> {
    const DOING: &str = "write what is to be looked for";
    let numbered = |number: u32| format!("{number:04}-{marker}");
    if matches!(engine, Engine::MongoDb | Engine::FerretDb) {
        let copies: Vec<_> =
            (0..COPIES).map(|number| json!({"_id": number, "word": numbered(number)})).collect();
        let mut client = control.in_database(documents::DATABASE).connect()?;
        let insert = command("insert", &TABLE.into(), &[("documents", json!(copies))]);
        control::execute(&mut client, DOING, &insert)?;
        return control::close(client);
    }
    let values: Vec<String> =
        (0..COPIES).map(|number| format!("({number}, '{}')", numbered(number))).collect();
    let mut client = control.connect()?;
    let create = format!("CREATE TABLE {TABLE} (id INT PRIMARY KEY, word VARCHAR(80) NOT NULL)");
    let index = format!("CREATE INDEX {TABLE}_word ON {TABLE} (word)");
    let insert = format!("INSERT INTO {TABLE} VALUES {}", values.join(", "));
    let flush: &[&str] = match engine {
        Engine::Postgres => &["CHECKPOINT"],
        _ => &["FLUSH TABLES ciphertoll_marker FOR EXPORT", "UNLOCK TABLES"],
    };
    if engine.is_mysql_family() {
        control::execute(&mut client, DOING, &format!("USE {}", rows::SCHEMA))?;
    }
    let drop = drop_table();
    let statements = [drop.as_str(), &create, &index, &insert];
    statements
        .into_iter()
        .chain(flush.iter().copied())
        .try_for_each(|sql| control::execute(&mut client, DOING, sql))?;
    control::close(client)
}

fn drop_table() -> String {
    format!("DROP TABLE IF EXISTS {TABLE}")
}

fn remove(control: &Control, engine: Engine) -> Result<(), Error> {
    const DOING: &str = "remove what was to be looked for";
    if matches!(engine, Engine::MongoDb | Engine::FerretDb) {
        let mut client = control.in_database(documents::DATABASE).connect()?;
        return control::execute(&mut client, DOING, &command("drop", &TABLE.into(), &[]));
    }
    let mut client = control.connect()?;
    if engine.is_mysql_family() {
        control::execute(&mut client, DOING, &format!("USE {}", rows::SCHEMA))?;
    }
    control::execute(&mut client, DOING, &drop_table())
}

/// Reads every file below `top`. What goes meanwhile was nobody's to keep.
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
                kind => kind.context("look at", &entry.path())?,
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

/// The server's user may write there, so that nothing is followed and nothing is waited for.
fn open(path: &PathBuf) -> Result<Option<File>, Error> {
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    match OpenOptions::new().read(true).custom_flags(flags.bits()).open(path) {
        Err(error) if is_gone(&error) => Ok(None),
        opened => opened.context("read", path).map(Some),
    }
}

fn is_gone(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotFound
}

/// How much there is in a file, and whether it has `marker` in it: what was never written, as most of a file that a file
/// system is in, is passed by.
fn search_data(file: &File, marker: &[u8], path: &Path) -> Result<(u64, bool), Error> {
    let seek = |from: i64, whence: Whence| match lseek(file, from, whence) {
        Err(Errno::ENXIO) => Ok(None),
        found => found.map(Some).map_err(std::io::Error::from).context("read", path),
    };
    let (mut bytes, mut found, mut at) = (0, false, 0);
    while let Some(begin) = seek(at, Whence::SeekData)? {
        // Where it was cut meanwhile, there is nothing more to read.
        let Some(end) = seek(begin, Whence::SeekHole)? else { break };
        seek(begin, Whence::SeekSet)?;
        let (read, has_it) = search_file(file.take(end.abs_diff(begin)), marker, path)?;
        (bytes, found, at) = (bytes + read, found || has_it, end);
    }
    Ok((bytes, found))
}

/// How long a text is, and whether it has `marker` in it.
fn search_file(mut file: impl Read, marker: &[u8], path: &Path) -> Result<(u64, bool), Error> {
    let mut piece = Vec::with_capacity(PIECE_BYTES + marker.len());
    let (mut bytes, mut found) = (0, false);
    loop {
        // What a piece ends with may be the beginning of one.
        let kept = piece.len().min(marker.len());
        piece.drain(..piece.len() - kept);
        let read = file.by_ref().take(PIECE_BYTES as u64).read_to_end(&mut piece).context("read", path)?;
        if read == 0 {
            return Ok((bytes, found));
        }
        bytes += read as u64;
        found = found || has(&piece, marker);
    }
}

/// Looks at what stands before each byte that markers end with: to find these is quick.
fn has(piece: &[u8], marker: &[u8]) -> bool {
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
    fn a_marker_is_found_wherever_it_stands() {
        for before in [0, 1, PIECE_BYTES - 5, PIECE_BYTES - MARKER.len(), PIECE_BYTES, 2 * PIECE_BYTES - 1] {
            let mut text = vec![b'~'; before];
            text.extend_from_slice(MARKER);
            assert!(found(&text), "{before}");
            text.extend_from_slice(&[0; 100]);
            assert!(found(&text), "{before}");
        }
    }

    #[test]
    fn what_is_only_like_it_is_not_found() {
        assert!(!found(b"") && !found(b"~~~ciphertoll-00fe~ ciphertoll-00ff ~"));
        assert!(!found(&vec![0; 3 * PIECE_BYTES]));
        let mut torn = vec![0; PIECE_BYTES];
        torn.extend_from_slice(&MARKER[1..]);
        assert!(!found(&torn));
    }

    #[test]
    fn every_file_below_a_directory_is_read() {
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
