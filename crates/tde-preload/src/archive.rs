//! WAL outside the data directory, which `pg_waldump --path` and `pg_verifybackup --wal-directory` read.

use std::ffi::CStr;

use ciphertoll_tde::{FileClass, SEGMENT_START_BYTES, Storage, is_plain_segment};
use libc::c_int;

use crate::process::with_state;
use crate::program::ProgramRole;
use crate::raw::Descriptor;

/// The class of a file outside the data directory that a tool has opened for reading. A WAL segment that was archived
/// without encryption is [`FileClass::Unencrypted`].
pub(crate) fn classify(path: &CStr, descriptor: c_int) -> FileClass {
    let found = with_state(|state| match state.program {
        ProgramRole::Tool => FileClass::of_wal_elsewhere(path.to_bytes()),
        _ => None,
    });
    let Some(class) = found.flatten() else { return FileClass::Unencrypted };
    let mut start = [0; SEGMENT_START_BYTES];
    match Descriptor(descriptor).read_at(&mut start, 0) {
        Ok(SEGMENT_START_BYTES) if !is_plain_segment(&start) => class,
        _ => FileClass::Unencrypted,
    }
}
