//! WAL outside the data directory, which `pg_waldump --path` and `pg_verifybackup --wal-directory` read.

use std::ffi::CStr;

use ciphertoll_tde::{Place, SEGMENT_START_BYTES, Storage, is_plain_segment};
use libc::c_int;

use crate::process::with_state;
use crate::program::Program;
use crate::raw::Descriptor;

/// What a file is that a program has opened to read, in any directory: an encrypted segment by its name and its content,
/// or clear. A segment that was archived without encryption is clear.
pub(crate) fn place(path: &CStr, descriptor: c_int) -> Place {
    let found = with_state(|state| match state.program {
        Program::Tool => Place::of_wal_elsewhere(path.to_bytes()),
        _ => None,
    });
    let Some(place) = found.flatten() else { return Place::Clear };
    let mut start = [0; SEGMENT_START_BYTES];
    match Descriptor(descriptor).read_at(&mut start, 0) {
        Ok(SEGMENT_START_BYTES) if !is_plain_segment(&start) => place,
        _ => Place::Clear,
    }
}
