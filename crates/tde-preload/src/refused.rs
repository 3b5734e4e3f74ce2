//! Entry points that would move bytes past the encryption: refused for encrypted files. Who calls them has another way.

#![expect(unsafe_code, reason = "entry points of the C library have names, and take addresses")]

use ciphertoll_tde::Errno;
use libc::{c_int, c_long, c_uint, c_void, size_t, ssize_t};

use crate::process::is_tracked;
use crate::raw::{self, address, arguments};

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
        return raw::fail(NOT_SUPPORTED) as ssize_t;
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
