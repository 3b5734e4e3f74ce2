//! WAL outside the data directory, which `pg_waldump --path` and `pg_verifybackup --wal-directory` read.

use ciphertoll_tde::{FileClass, SEGMENT_START_BYTES, Storage, is_plain_segment};
use libc::c_int;

use crate::raw::Descriptor;

/// The class of a file outside the data directory that a tool has opened for reading. A WAL segment that was archived
/// without encryption is [`FileClass::Unencrypted`].
pub(crate) fn classify(path: &[u8], descriptor: c_int) -> FileClass {
    let Some(class) = FileClass::of_wal_elsewhere(path) else { return FileClass::Unencrypted };
    let mut start = [0; SEGMENT_START_BYTES];
    match Descriptor(descriptor).read_at(&mut start, 0) {
        Ok(SEGMENT_START_BYTES) if !is_plain_segment(&start) => class,
        _ => FileClass::Unencrypted,
    }
}
