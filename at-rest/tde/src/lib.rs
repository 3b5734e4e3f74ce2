//! Page encryption for PostgreSQL data directories.
//!
//! [`EncryptionEngine`] reads and writes a file's plaintext; a [`Storage`] holds the ciphertext. This crate interposes no
//! calls and exports no C symbols: `tde-preload` does, and puts the engine below the file calls of an unmodified server.
//!
//! - [`FileClass`]: the kind of file at a path of a data directory; decides whether and with which key it is encrypted.
//! - [`PageCipher`]: AES-XTS with a cached key schedule and one tweak per page.
//! - [`cluster`]: the state of a data directory ([`cluster::examine`]).
//! - [`convert`]: converts a stopped cluster to the encrypted form and back.
//! - [`verify`]: checks that every unit of a cluster's files is ciphertext of its own place.
//! - [`KeyFile`]: the data-encryption keys, wrapped by the key-encryption key ([`Kek`]), in a file next to the data directory.
//!
//! # Where to change what
//!
//! - which PostgreSQL files are encrypted, and with which key: `tde::file_class`; then
//!   `docs/at-rest/page-encryption.md`
//! - sealed clusters: `tde::seal`, `tde::cluster`; the format's version: `tde::key_file`, `tde::seal`
//! - `tde verify`: `tde::verify`, `cli::tde::verify`
//! - what a server reads back: `tde-preload`: `sampler`
//! - `tde exec`, `tde convert`: `cli::tde`; messages between `exec` and the library, `tde::handshake`; the copy,
//!   `tde::convert`

use std::path::{Path, PathBuf};

mod cipher;
mod clear_file;
pub mod cluster;
pub mod convert;
mod engine;
mod error;
mod file_class;
pub mod handshake;
mod kdf;
mod kek;
mod key_file;
mod seal;
mod secret;
mod storage;
mod unit;
mod units;
pub mod verify;
mod xts;

pub use cipher::{CipherKind, PageCipher, Tweak};
pub use clear_file::ClearFile;
pub use engine::{EncryptionEngine, OpenFile};
pub use error::{CipherFailed, Errno, KeyError};
pub use file_class::{FileClass, Fork, Rename, SlruDirectory};
pub use kek::{Kek, KekSource};
pub use key_file::{DataKeys, KEY_FILE_BYTES, KEY_FILE_VERSION, KeyFile, Replace};
pub use seal::{CONTROL_BYTES, SealState, VersionText, looks_sealed, version_seal};
pub use secret::lock_memory;
pub use storage::{Storage, WriteSource};
pub use unit::{SEGMENT_START_BYTES, begins_history, is_plain_segment};

/// File name of the library that `tde-preload` builds.
pub const PRELOAD_LIBRARY: &str = "libciphertoll_tde_preload.so";

/// The library of `program`: in its directory, as cargo builds it, or in `../lib/ciphertoll`, as it is installed.
pub fn find_preload_library(program: &Path) -> Option<PathBuf> {
    let directory = program.parent()?;
    let installed = || Some(directory.parent()?.join("lib/ciphertoll").join(PRELOAD_LIBRARY));
    let places = [Some(directory.join(PRELOAD_LIBRARY)), installed()];
    places.into_iter().flatten().find(|library| library.is_file())
}

/// The size of an encryption unit: a page of a relation, of WAL, or a block of any other file.
pub const UNIT_BYTES: usize = 8192;

/// Pages per relation segment (1 GiB).
pub const SEGMENT_PAGES: u64 = 131_072;

/// Magic number at the start of every `pg_filenode.map`, little-endian.
pub const MAP_MAGIC: [u8; 4] = 0x0059_2717_u32.to_le_bytes();
