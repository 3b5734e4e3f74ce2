//! Entry points that would move bytes past the encryption: refused for encrypted files, whose callers have another way, or
//! done by reading and writing.

#![expect(unsafe_code, reason = "entry points of the C library have names, and take addresses")]

use ciphertoll_tde::Errno;
use libc::{c_int, c_long, c_uint, c_void, size_t, ssize_t};

use crate::process::is_tracked;
use crate::raw::{self, address, arguments};
use crate::transfers::{pread, pwrite, read, write};

/// What is copied at once: whole units, and little enough for a stack.
const COPIED_BYTES: usize = 2 * ciphertoll_tde::UNIT_BYTES;
const NOT_SUPPORTED: Errno = Errno(libc::EINVAL);

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 && is_tracked(descriptor) {
        raw::fail(Errno(libc::ENODEV));
        return libc::MAP_FAILED;
    }
    let numbers = [c_long::from(protection), c_long::from(flags), c_long::from(descriptor), offset];
    let [protection, flags, descriptor, offset] = numbers;
    // SAFETY: the caller's arguments, unchanged.
    let mapped = unsafe {
        raw::call(libc::SYS_mmap, [address(at), length as c_long, protection, flags, descriptor, offset])
    };
    std::ptr::with_exposed_provenance_mut(mapped as usize)
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { mmap(at, length, protection, flags, descriptor, offset) }
}

/// Copies from one file to another what fits into a buffer, as `copy_file_range` may: its callers go on until there is
/// nothing left. The kernel would copy ciphertext, which has another key there.
fn copy_encrypted(from: (c_int, Option<&mut i64>), to: (c_int, Option<&mut i64>), count: size_t) -> ssize_t {
    let mut buffer = [0_u8; COPIED_BYTES];
    let count = count.min(buffer.len());
    let bytes = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: `count` bytes of the buffer, which nobody else has.
    let held = unsafe {
        match &from.1 {
            Some(offset) => pread(from.0, bytes, count, **offset),
            None => read(from.0, bytes, count),
        }
    };
    let Ok(count) = usize::try_from(held) else { return held };
    if count == 0 {
        return 0;
    }
    // SAFETY: as above.
    let written = unsafe {
        match &to.1 {
            Some(offset) => pwrite(to.0, bytes, count, **offset),
            None => write(to.0, bytes, count),
        }
    };
    if written < held && from.1.is_none() {
        // What was read and not written is read again.
        raw::lseek(from.0, (written.max(0) - held) as i64, libc::SEEK_CUR);
    }
    for offset in [from.1, to.1].into_iter().flatten() {
        *offset += written.max(0) as i64;
    }
    written
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_tracked(from) || is_tracked(to) {
        // SAFETY: null or the caller's variables, by the C library's contract.
        return unsafe { copy_encrypted((from, from_offset.as_mut()), (to, to_offset.as_mut()), count) };
    }
    let (from_offset, to_offset) = (address(from_offset), address(to_offset));
    let given =
        [c_long::from(from), from_offset, c_long::from(to), to_offset, count as c_long, c_long::from(flags)];
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_copy_file_range, given) as ssize_t }
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if is_tracked(from) || is_tracked(to) {
        return raw::fail(NOT_SUPPORTED) as ssize_t;
    }
    let (from_offset, to_offset) = (address(from_offset), address(to_offset));
    let given =
        [c_long::from(from), from_offset, c_long::from(to), to_offset, count as c_long, c_long::from(flags)];
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_splice, given) as ssize_t }
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut i64, count: size_t) -> ssize_t {
    if is_tracked(from) || is_tracked(to) {
        return raw::fail(NOT_SUPPORTED) as ssize_t;
    }
    let given = arguments([c_long::from(to), c_long::from(from), address(offset), count as c_long]);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_sendfile, given) as ssize_t }
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, offset: *mut i64, count: size_t) -> ssize_t {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { sendfile(to, from, offset, count) }
}

/// Defines names of liburing, by which a server of version 18 would read and write past all of this, under
/// `io_method=io_uring`. It ends at its start instead, and says that there is no such call.
macro_rules! absent {
    ($($name:ident),+) => {$(
        // SAFETY: the name is liburing's, which this library is made to stand in for. No argument is looked at.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            -libc::ENOSYS
        }
    )+};
}

absent!(io_uring_queue_init, io_uring_queue_init_params, io_uring_queue_init_mem);
