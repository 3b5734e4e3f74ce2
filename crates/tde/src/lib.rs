//! Page encryption under an unmodified server: what a page becomes on its way to the operating system and back.
//!
//! Nothing here interposes anything, and nothing is exported: [`Engine`] reads and writes a file's plaintext through
//! whatever [`Storage`] holds its ciphertext. `tde-preload` puts it under a server's own calls.
//!
//! - [`Place`]: what a path of a data directory holds, and so whether and how it is encrypted.
//! - [`PageCipher`]: AES-XTS, its key schedule kept, a tweak for each page.
//! - [`cluster`]: a data directory as a whole: [`cluster::examine`] tells its [`cluster::Condition`].
//! - [`convert`]: a stopped cluster, file by file, from PostgreSQL's own form to the encrypted form and back.
//! - [`KeyFile`]: the data keys, wrapped by the key-encryption key ([`Kek`]), in a file beside the data directory.

mod cipher;
pub mod cluster;
pub mod convert;
mod engine;
mod error;
pub mod handshake;
mod kdf;
mod kek;
mod key_file;
mod place;
mod seal;
mod secret;
mod storage;
mod unit;
mod xts;

pub use cipher::{PageCipher, Strength, Tweak};
pub use engine::{Engine, Opened, Source};
pub use error::{CipherFailed, Errno, KeyError};
pub use kek::{Kek, KekSource};
pub use key_file::{DataKeys, Format, KEY_FILE_BYTES, KeyFile, Replace};
pub use place::{Fork, Place, Rename, SlruDirectory};
pub use seal::{CONTROL_BYTES, Seal, VersionText, looks_sealed, version_seal};
pub use secret::lock_memory;
pub use storage::Storage;
pub use unit::{SEGMENT_START_BYTES, is_plain_segment};

/// The file of the library that `tde-preload` is.
pub const PRELOAD_LIBRARY: &str = "libciphertoll_tde_preload.so";

/// What is encrypted as one: a page of a relation, of the write-ahead log, of everything else.
pub const UNIT_BYTES: usize = 8192;

/// Pages in a relation's segment of 1 GiB.
pub const SEGMENT_PAGES: u64 = 131_072;

/// The first bytes of every `pg_filenode.map`, a magic number in the order of a little-endian machine.
pub const MAP_MAGIC: [u8; 4] = 0x0059_2717_u32.to_le_bytes();
