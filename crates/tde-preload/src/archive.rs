//! WAL outside the data directory, which `pg_waldump --path` and `pg_verifybackup --wal-directory` read.

use std::ffi::CStr;

use ciphertoll_tde::{FileClass, SEGMENT_START_BYTES, Storage, is_plain_segment};
use libc::c_int;

use crate::process::with_state;
use crate::program::ProgramRole;
use crate::raw::Descriptor;

/// What a file is that a program has opened to read, in any directory: an encrypted segment by its name and its content,
/// or clear. A segment that was archived without encryption is clear.
pub(crate) fn class(path: &CStr, descriptor: c_int) -> FileClass {
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
