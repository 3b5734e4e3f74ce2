//! Classes of files in a data directory: the path decides whether a file is encrypted, with which key, and how its pages
//! are numbered.
//!
//! | path, relative to the data directory | class | its key is derived from |
//! | --- | --- | --- |
//! | `base/DB/REL`, `global/REL`, `pg_tblspc/SPC/PG_*/DB/REL`, with `_fsm`, `_vm`, `_init`, `.SEGMENT` and `tBACKEND_` | relation | tablespace, database, relation, fork, backend |
//! | `pg_filenode.map` of a database or of `global`, and its `.tmp` | map | tablespace, database |
//! | `pg_wal/` and 24 hexadecimal digits, `.partial`; `RECOVERYXLOG`; `xlogtemp.PID` | WAL | the cluster; tweaks come from the page headers |
//! | `pg_xact`, `pg_subtrans`, `pg_commit_ts`, `pg_serial`, `pg_notify`, `pg_multixact/members`, `…/offsets` | SLRU | directory, segment |
//! | everything in a `pgsql_tmp` | temporary | name, and a key that exists only while the server runs |
//! | `pg_twophase`, `pg_replslot/SLOT`, `pg_logical/snapshots`, `…/mappings`, `…/replorigin_checkpoint` | state | name without `.tmp` and `.PID.tmp` |
//! | `global/pg_control` | control | the cluster |
//! | `PG_VERSION` of the data directory | version | none: see [`crate::SealState`] |
//! | all others: `postmaster.pid`, `pg_internal.init`, `pg_stat`, configuration, history files, `PG_VERSION` of databases | unencrypted | |

use sha2::{Digest, Sha256};

use crate::{SEGMENT_PAGES, UNIT_BYTES};

/// `pg_default`, the tablespace of `base/`.
const DEFAULT_TABLESPACE: u32 = 1663;
/// `pg_global`, the tablespace of `global/`.
const GLOBAL_TABLESPACE: u32 = 1664;

/// PostgreSQL aligns its shared buffers to 32 bytes at least, those of relations to 128.
const SHARED_BUFFER_ALIGNMENT: usize = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileClass {
    Unencrypted,
    /// A segment of a relation's fork.
    Relation {
        tablespace: u32,
        /// 0 for shared relations.
        database: u32,
        /// The relfilenode.
        relation: u32,
        fork: Fork,
        /// The backend that owns a temporary relation.
        backend: Option<u32>,
        segment: u32,
    },
    /// `pg_filenode.map`: the relfilenodes of mapped relations.
    Map {
        tablespace: u32,
        /// 0 for shared relations.
        database: u32,
    },
    /// A WAL segment.
    Wal,
    /// `xlogtemp.PID`, which is renamed to a WAL segment or a history file: WAL pages are encrypted, text is not.
    XlogTemp,
    /// A segment of an SLRU cache, such as the transaction status.
    Slru {
        directory: SlruDirectory,
        segment: u64,
    },
    /// A temporary file of a sort, hash or cursor. Holds a digest of its name.
    Temporary([u8; 32]),
    /// State of replication slots, logical decoding or prepared transactions. Holds a digest of its name.
    State([u8; 32]),
    /// `global/pg_control`, which is encrypted and authenticated as a whole.
    Control,
    /// `PG_VERSION` of the data directory; its sealed form is one that stock programs refuse.
    Version,
}

/// The numbers are part of the derivation of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    Main = 0,
    FreeSpace = 1,
    Visibility = 2,
    /// The empty state to which an unlogged relation is reset after a crash.
    Init = 3,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlruDirectory {
    /// `pg_xact`.
    Transactions,
    /// `pg_subtrans`.
    Subtransactions,
    /// `pg_commit_ts`.
    CommitTimestamps,
    /// `pg_serial`.
    Serializable,
    /// `pg_notify`.
    Notifications,
    /// `pg_multixact/members`.
    MultixactMembers,
    /// `pg_multixact/offsets`.
    MultixactOffsets,
}

/// Whether a file may be renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rename {
    /// Both names have the same key.
    Allowed,
    /// Under the new name, the file would be read with another key, or with none.
    Refused,
}

impl FileClass {
    /// The class of a path relative to the data directory.
    pub fn of(path: &[u8]) -> Self {
        let mut parts = [b"".as_slice(); 6];
        let mut count = 0;
        for part in path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".") {
            // Only pgsql_tmp has files at a greater depth.
            let Some(free) = parts.get_mut(count) else { return Self::deep(path) };
            *free = part;
            count += 1;
        }
        match &parts[..count] {
            [b"PG_VERSION"] => Self::Version,
            [b"global", b"pg_control"] => Self::Control,
            [b"pg_wal", name] => wal(name),
            [b"base", b"pgsql_tmp", _, ..] => Self::Temporary(digest(&parts[..count])),
            [b"pg_tblspc", _, version, b"pgsql_tmp", _, ..] if version.starts_with(b"PG_") => {
                Self::Temporary(digest(&parts[..count]))
            }
            [b"global", name] => of_database(GLOBAL_TABLESPACE, 0, name),
            [b"base", database, name] => match number(database) {
                Some(database) => of_database(DEFAULT_TABLESPACE, database, name),
                None => Self::Unencrypted,
            },
            [b"pg_tblspc", tablespace, version, database, name] if version.starts_with(b"PG_") => {
                match (number(tablespace), number(database)) {
                    (Some(tablespace), Some(database)) => of_database(tablespace, database, name),
                    _ => Self::Unencrypted,
                }
            }
            [b"pg_multixact", b"members", name] => slru(SlruDirectory::MultixactMembers, name),
            [b"pg_multixact", b"offsets", name] => slru(SlruDirectory::MultixactOffsets, name),
            [b"pg_twophase", _]
            | [b"pg_replslot", _, _]
            | [b"pg_logical", b"snapshots" | b"mappings", _]
            | [b"pg_logical", b"replorigin_checkpoint" | b"replorigin_checkpoint.tmp"] => {
                Self::State(digest(&parts[..count]))
            }
            [directory, name] => {
                slru_directory(directory).map_or(Self::Unencrypted, |directory| slru(directory, name))
            }
            _ => Self::Unencrypted,
        }
    }

    /// The path in the data directory of a file in a tablespace directory that is named by its OID: `…/SPC/PG_*/DB/REL`.
    /// `None` for every other path.
    pub fn path_of_tablespace_elsewhere(path: &[u8]) -> Option<Vec<u8>> {
        let mut parts = path.rsplit(|&byte| byte == b'/');
        let (name, database, version, tablespace) =
            (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let is_one =
            number(database).is_some() && number(tablespace).is_some() && version.starts_with(b"PG_");
        is_one.then(|| [b"pg_tblspc", tablespace, version, database, name].join(&b'/'))
    }

    /// [`Self::Wal`] for a WAL segment in any directory, by its file name. `None` for every other path.
    pub fn of_wal_elsewhere(path: &[u8]) -> Option<Self> {
        let name = path.rsplit(|&byte| byte == b'/').next()?;
        let is_segment = name.first().is_some_and(u8::is_ascii_hexdigit) && wal(name) == Self::Wal;
        is_segment.then_some(Self::Wal)
    }

    fn deep(path: &[u8]) -> Self {
        let mut parts = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty() && *part != b".");
        let below = match parts.next() {
            Some(b"base") => parts.next(),
            Some(b"pg_tblspc") => parts.nth(2),
            _ => None,
        };
        match below {
            Some(b"pgsql_tmp") => Self::Temporary(Sha256::digest(path).into()),
            _ => Self::Unencrypted,
        }
    }

    pub fn is_encrypted(self) -> bool {
        self != Self::Unencrypted
    }

    /// Whether the server writes only whole pages at multiples of the page size, so that the last unit is never short.
    pub(crate) fn is_paged(self) -> bool {
        matches!(self, Self::Relation { .. } | Self::Wal | Self::XlogTemp | Self::Slru { .. })
    }

    /// Whether a tail that is shorter than a block of the cipher joins the unit before it.
    pub(crate) fn joins_tail(self) -> bool {
        matches!(self, Self::Map { .. } | Self::Temporary(_) | Self::State(_))
    }

    /// Whether whole pages are read into this buffer and decrypted there. PostgreSQL reads pages that no other process writes
    /// at the time into its buffers, which are aligned. Others may be overwritten meanwhile.
    pub(crate) fn is_read_in_place(self, buffer: &[u8]) -> bool {
        match self {
            Self::Wal | Self::XlogTemp => false,
            Self::Relation { .. } | Self::Slru { .. } => {
                buffer.as_ptr().addr().is_multiple_of(SHARED_BUFFER_ALIGNMENT)
            }
            _ => true,
        }
    }

    /// The size of an encryption unit. State files get small appends, each of which encrypts its last unit again; small
    /// units make this cheaper.
    pub fn unit_bytes(self) -> usize {
        match self {
            Self::State(_) => UNIT_BYTES / 16,
            _ => UNIT_BYTES,
        }
    }

    /// The number of the first page of this file, among all pages with the same key.
    pub(crate) fn first_page(self) -> u64 {
        match self {
            Self::Relation { segment, .. } => u64::from(segment) * SEGMENT_PAGES,
            _ => 0,
        }
    }

    /// The input of the key derivation. It differs between files with different keys.
    pub(crate) fn subject(self) -> [u8; 33] {
        let (kind, numbers) = match self {
            Self::Unencrypted => (0, [0; 5]),
            Self::Relation { tablespace, database, relation, fork, backend, segment: _ } => {
                // 0 stands for no backend.
                let backend = backend.map_or(0, |backend| u64::from(backend) + 1);
                let owner = backend << 8 | fork as u64;
                (1, [tablespace, database, relation, owner as u32, (owner >> 32) as u32])
            }
            Self::Map { tablespace, database } => (2, [tablespace, database, 0, 0, 0]),
            Self::Wal | Self::XlogTemp => (3, [0; 5]),
            Self::Slru { directory, segment } => {
                (4, [directory as u32, segment as u32, (segment >> 32) as u32, 0, 0])
            }
            Self::Temporary(name) => return named_subject(5, &name),
            Self::State(name) => return named_subject(6, &name),
            Self::Control => (7, [0; 5]),
            Self::Version => (8, [0; 5]),
        };
        let mut subject = [0; 33];
        subject[0] = kind;
        for (bytes, number) in subject[1..].chunks_exact_mut(4).zip(numbers) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        subject
    }
}

impl Rename {
    /// Whether the file `from` may be renamed to `to`. Paths are relative to the data directory; other paths are empty.
    pub fn of(from: &[u8], to: &[u8]) -> Self {
        let (source, target) = (FileClass::of(from), FileClass::of(to));
        let is_same_key = match (source, target) {
            (FileClass::Wal | FileClass::XlogTemp, FileClass::Wal | FileClass::XlogTemp) => true,
            // The server also writes history files as xlogtemp.PID first. They are text, which is not encrypted there.
            (FileClass::XlogTemp, FileClass::Unencrypted) => {
                to.starts_with(b"pg_wal/") && to.ends_with(b".history")
            }
            _ => source.subject() == target.subject() && source.first_page() == target.first_page(),
        };
        if is_same_key { Self::Allowed } else { Self::Refused }
    }
}

fn named_subject(kind: u8, name: &[u8; 32]) -> [u8; 33] {
    let mut subject = [kind; 33];
    subject[1..].copy_from_slice(name);
    subject
}

/// A digest of the file's final name. The server first writes `state.tmp` or `….snap.PID.tmp`, and creates slot
/// directories as `SLOT.tmp`.
fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        let part = match part.strip_suffix(b".tmp") {
            None => part,
            Some(stem) => match stem.windows(6).position(|window| window.starts_with(b".snap.")) {
                Some(at) => &stem[..at + 5],
                None => stem,
            },
        };
        hash.update(part);
        hash.update(b"/");
    }
    hash.finalize().into()
}

fn wal(name: &[u8]) -> FileClass {
    let digits = name.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'A'..=b'F')).count();
    match &name[digits..] {
        b"" | b".partial" if digits == 24 => FileClass::Wal,
        _ if name == b"RECOVERYXLOG" => FileClass::Wal,
        _ if name.starts_with(b"xlogtemp.") => FileClass::XlogTemp,
        _ => FileClass::Unencrypted,
    }
}

fn of_database(tablespace: u32, database: u32, name: &[u8]) -> FileClass {
    match name {
        b"pg_filenode.map" | b"pg_filenode.map.tmp" => FileClass::Map { tablespace, database },
        _ => relation(tablespace, database, name).unwrap_or(FileClass::Unencrypted),
    }
}

/// `[tBACKEND_]REL[_FORK][.SEGMENT]`.
fn relation(tablespace: u32, database: u32, name: &[u8]) -> Option<FileClass> {
    let (backend, rest) = match name.strip_prefix(b"t") {
        Some(rest) => {
            let at = rest.iter().position(|&byte| byte == b'_')?;
            (Some(number(&rest[..at])?), &rest[at + 1..])
        }
        None => (None, name),
    };
    let (rest, segment) = match rest.iter().position(|&byte| byte == b'.') {
        Some(at) => (&rest[..at], number(&rest[at + 1..])?),
        None => (rest, 0),
    };
    let (digits, fork) = match rest.iter().position(|&byte| byte == b'_') {
        Some(at) => (
            &rest[..at],
            match &rest[at..] {
                b"_fsm" => Fork::FreeSpace,
                b"_vm" => Fork::Visibility,
                b"_init" => Fork::Init,
                _ => return None,
            },
        ),
        None => (rest, Fork::Main),
    };
    Some(FileClass::Relation { tablespace, database, relation: number(digits)?, fork, backend, segment })
}

fn slru_directory(name: &[u8]) -> Option<SlruDirectory> {
    Some(match name {
        b"pg_xact" => SlruDirectory::Transactions,
        b"pg_subtrans" => SlruDirectory::Subtransactions,
        b"pg_commit_ts" => SlruDirectory::CommitTimestamps,
        b"pg_serial" => SlruDirectory::Serializable,
        b"pg_notify" => SlruDirectory::Notifications,
        _ => return None,
    })
}

/// Names have four hexadecimal digits; since version 17, directories with 64-bit page numbers use up to fifteen.
fn slru(directory: SlruDirectory, name: &[u8]) -> FileClass {
    let segment = || {
        let digits = std::str::from_utf8(name).ok()?;
        let fits = (4..=15).contains(&name.len()) && name.iter().all(u8::is_ascii_hexdigit);
        fits.then(|| u64::from_str_radix(digits, 16).ok())?
    };
    segment().map_or(FileClass::Unencrypted, |segment| FileClass::Slru { directory, segment })
}

/// Parses a decimal number without sign that fits into 32 bits.
fn number(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests;
