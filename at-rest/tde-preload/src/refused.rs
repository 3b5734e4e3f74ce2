//! Entry points that would bypass the encryption. For encrypted files they are refused, because their callers have a
//! fallback, or emulated by reading and writing.

#![expect(unsafe_code, reason = "replaces functions of the C library, which take pointers")]

use ciphertoll_tde::Errno;
use libc::{aiocb, c_int, c_long, c_uint, c_void, size_t, ssize_t};

use crate::next::NextFunction;
use crate::process::is_plain;
use crate::raw::{self, address, arguments};
use crate::transfers::{pread, pwrite, read, write};

/// Bytes per copy: whole units, and small enough for the stack.
const COPIED_BYTES: usize = 2 * ciphertoll_tde::UNIT_BYTES;
const NOT_SUPPORTED: Errno = Errno(libc::EINVAL);

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn mmap(
    at: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    descriptor: c_int,
    offset: i64,
) -> *mut c_void {
    if flags & libc::MAP_ANONYMOUS == 0 && !is_plain(descriptor) {
        raw::fail(Errno(libc::ENODEV));
        return libc::MAP_FAILED;
    }
    let [protection, flags, descriptor] = [protection, flags, descriptor].map(c_long::from);
    let given = [address(at), length as c_long, protection, flags, descriptor, offset];
    // SAFETY: the caller's arguments, unchanged.
    let mapped = unsafe { raw::call(libc::SYS_mmap, given) };
    std::ptr::with_exposed_provenance_mut(mapped as usize)
}

/// Copies at most one buffer, as `copy_file_range` may: its callers repeat the call. The kernel would copy ciphertext, but
/// the target has another key.
fn copy_encrypted(from: (c_int, Option<&mut i64>), to: (c_int, Option<&mut i64>), count: size_t) -> ssize_t {
    let mut buffer = [0_u8; COPIED_BYTES];
    let count = count.min(buffer.len());
    let bytes = buffer.as_mut_ptr().cast::<c_void>();
    // SAFETY: `count` bytes of a local buffer.
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
        // Bytes that were not written are read again later.
        raw::lseek(from.0, (written.max(0) - held) as i64, libc::SEEK_CUR);
    }
    for offset in [from.1, to.1].into_iter().flatten() {
        *offset += written.max(0) as i64;
    }
    written
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if !is_plain(from) || !is_plain(to) {
        // SAFETY: null or the caller's variables, by the C library's contract.
        return unsafe { copy_encrypted((from, from_offset.as_mut()), (to, to_offset.as_mut()), count) };
    }
    let (from_offset, to_offset) = (address(from_offset), address(to_offset));
    let given =
        [c_long::from(from), from_offset, c_long::from(to), to_offset, count as c_long, c_long::from(flags)];
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_copy_file_range, given) as ssize_t }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn splice(
    from: c_int,
    from_offset: *mut i64,
    to: c_int,
    to_offset: *mut i64,
    count: size_t,
    flags: c_uint,
) -> ssize_t {
    if !is_plain(from) || !is_plain(to) {
        return raw::fail(NOT_SUPPORTED) as ssize_t;
    }
    let (from_offset, to_offset) = (address(from_offset), address(to_offset));
    let given =
        [c_long::from(from), from_offset, c_long::from(to), to_offset, count as c_long, c_long::from(flags)];
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_splice, given) as ssize_t }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn sendfile(to: c_int, from: c_int, offset: *mut i64, count: size_t) -> ssize_t {
    if !is_plain(from) || !is_plain(to) {
        return raw::fail(NOT_SUPPORTED) as ssize_t;
    }
    let given = arguments([c_long::from(to), c_long::from(from), address(offset), count as c_long]);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_sendfile, given) as ssize_t }
}

aliases! {
    mmap64(at: *mut c_void, length: size_t, protection: c_int, flags: c_int, descriptor: c_int, offset: i64)
        -> *mut c_void = mmap;
    sendfile64(to: c_int, from: c_int, offset: *mut i64, count: size_t) -> ssize_t = sendfile;
}

/// Disables liburing and libaio, with which an extension would bypass this library. A server of version 18 with
/// `io_method=io_uring` is refused before, by its setting.
macro_rules! absent {
    ($($name:ident),+) => {$(
        // SAFETY: replaces liburing's function; no argument is used.
        #[unsafe(no_mangle)]
        extern "C" fn $name() -> c_int {
            -libc::ENOSYS
        }
    )+};
}

absent!(io_uring_queue_init, io_uring_queue_init_params, io_uring_queue_init_mem, io_setup, io_queue_init);

/// POSIX asynchronous I/O, which the C library does in threads of its own.
macro_rules! asynchronous {
    ($($name:ident = $text:literal;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(request: *mut aiocb) -> c_int {
            type Submit = unsafe extern "C" fn(*mut aiocb) -> c_int;
            static NEXT: NextFunction = NextFunction::new($text);
            // SAFETY: a request by the C library's contract.
            if !is_plain(unsafe { (*request).aio_fildes }) {
                return raw::fail(Errno(libc::ENOSYS));
            }
            // SAFETY: the C library's function of that name has this type, and gets the caller's argument.
            unsafe { std::mem::transmute::<*mut c_void, Submit>(NEXT.get())(request) }
        }
    )+};
}

asynchronous! {
    aio_read = c"aio_read";
    aio_read64 = c"aio_read64";
    aio_write = c"aio_write";
    aio_write64 = c"aio_write64";
}

/// Lists of such requests.
macro_rules! lists {
    ($($name:ident = $text:literal;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            mode: c_int,
            requests: *const *mut aiocb,
            count: c_int,
            event: *mut c_void,
        ) -> c_int {
            type Submit = unsafe extern "C" fn(c_int, *const *mut aiocb, c_int, *mut c_void) -> c_int;
            static NEXT: NextFunction = NextFunction::new($text);
            let is_fit = (0..usize::try_from(count).unwrap_or(0)).all(|at| {
                // SAFETY: `count` requests or null pointers by the C library's contract.
                unsafe { requests.add(at).read().as_ref() }.is_none_or(|request| is_plain(request.aio_fildes))
            });
            if !is_fit {
                return raw::fail(Errno(libc::ENOSYS));
            }
            // SAFETY: the C library's function of that name has this type, and gets the caller's arguments.
            unsafe { std::mem::transmute::<*mut c_void, Submit>(NEXT.get())(mode, requests, count, event) }
        }
    )+};
}

lists! {
    lio_listio = c"lio_listio";
    lio_listio64 = c"lio_listio64";
}
