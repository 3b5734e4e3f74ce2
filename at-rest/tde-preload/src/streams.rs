//! Entry points that open streams. The C library's streams do not call its public `read` and `write`, so a stream on an
//! encrypted file is made with `fopencookie`. Only `pg_basebackup` uses streams for a cluster's files; the server does not.

#![expect(unsafe_code, reason = "replaces functions of the C library, which take pointers")]

use std::ffi::CStr;

use ciphertoll_tde::Errno;
use libc::{FILE, c_char, c_int, c_void, size_t, ssize_t};

use crate::descriptors::{ciphertoll_tde_openat, classify, close};
use crate::next::NextFunction;
use crate::paths::Intent;
use crate::process::{DescriptorKind, cluster, forget, guard, is_plain, kind};
use crate::raw;
use crate::transfers::{read, write};

/// Buffer size of a stream: whole units, so that no unit is encrypted twice.
const BUFFER_BYTES: usize = 16 * ciphertoll_tde::UNIT_BYTES;
/// Mode of a file that a stream creates, before the umask.
const MODE: libc::mode_t = 0o666;
const INVALID: Errno = Errno(libc::EINVAL);
const NOT_PERMITTED: Errno = Errno(libc::EPERM);

/// `fopencookie`'s table of functions.
#[repr(C)]
struct CookieFunctions {
    read: unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t,
    write: unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t,
    seek: unsafe extern "C" fn(*mut c_void, *mut i64, c_int) -> c_int,
    close: unsafe extern "C" fn(*mut c_void) -> c_int,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: CookieFunctions) -> *mut FILE;
}

type OpenPath = unsafe extern "C" fn(*const c_char, *const c_char) -> *mut FILE;
type OpenDescriptor = unsafe extern "C" fn(c_int, *const c_char) -> *mut FILE;

struct Cookie {
    descriptor: c_int,
    buffer: Vec<u8>,
}

/// # Safety
/// The cookie must come from [`stream`] and not be closed.
unsafe fn descriptor_of(cookie: *mut c_void) -> c_int {
    // SAFETY: the caller's promise; the C library locks streams, so no other thread uses the cookie.
    unsafe { (*cookie.cast::<Cookie>()).descriptor }
}

unsafe extern "C" fn read_stream(cookie: *mut c_void, bytes: *mut c_char, count: size_t) -> ssize_t {
    // SAFETY: the C library passes the stream's cookie, and its own buffer.
    unsafe { read(descriptor_of(cookie), bytes.cast(), count) }
}

unsafe extern "C" fn write_stream(cookie: *mut c_void, bytes: *const c_char, count: size_t) -> ssize_t {
    // SAFETY: as above.
    let written = unsafe { write(descriptor_of(cookie), bytes.cast(), count) };
    // Unlike `write`, this function must not return a negative number.
    written.max(0)
}

unsafe extern "C" fn seek_stream(cookie: *mut c_void, offset: *mut i64, whence: c_int) -> c_int {
    // SAFETY: as above; the offset is the C library's own variable.
    let position = unsafe { raw::lseek(descriptor_of(cookie), *offset, whence) };
    if position < 0 {
        return -1;
    }
    // SAFETY: as above.
    unsafe { *offset = position };
    0
}

unsafe extern "C" fn close_stream(cookie: *mut c_void) -> c_int {
    // SAFETY: made by `stream` from a box, and closed once, by the C library.
    let cookie = unsafe { Box::from_raw(cookie.cast::<Cookie>()) };
    close(cookie.descriptor)
}

/// Opens a stream on an encrypted file. On failure, the descriptor stays open.
///
/// # Safety
/// `mode` must be a C string.
unsafe fn stream(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    let mut cookie = Box::new(Cookie { descriptor, buffer: vec![0; BUFFER_BYTES] });
    let buffer = cookie.buffer.as_mut_ptr().cast();
    let cookie = Box::into_raw(cookie);
    let functions =
        CookieFunctions { read: read_stream, write: write_stream, seek: seek_stream, close: close_stream };
    // SAFETY: the caller's mode, and functions for this cookie.
    let stream = unsafe { fopencookie(cookie.cast(), mode, functions) };
    if stream.is_null() {
        // SAFETY: made above; no stream owns it.
        drop(unsafe { Box::from_raw(cookie) });
        return stream;
    }
    // SAFETY: the stream is new, and the buffer lives until `close_stream`, before which the C library flushes it.
    unsafe { libc::setvbuf(stream, buffer, libc::_IOFBF, BUFFER_BYTES) };
    stream
}

/// The flags of `open` for a stream's mode.
fn open_flags(mode: &CStr) -> Option<c_int> {
    let (first, rest) = mode.to_bytes().split_first()?;
    let both = rest.contains(&b'+');
    let kind = match first {
        b'r' => 0,
        b'w' => libc::O_CREAT | libc::O_TRUNC,
        b'a' => libc::O_CREAT | libc::O_APPEND,
        _ => return None,
    };
    let access = match first {
        _ if both => libc::O_RDWR,
        b'r' => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    let exclusive = if rest.contains(&b'x') { libc::O_EXCL } else { 0 };
    let kept = if rest.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
    Some(kind | access | exclusive | kept)
}

/// Opens a stream on an encrypted file. `None` if the file is not encrypted, and the C library should open it.
///
/// # Safety
/// Both must be null or C strings.
unsafe fn open_stream(path: *const c_char, mode: *const c_char) -> Option<*mut FILE> {
    if cluster().is_none() || path.is_null() || mode.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller's promise.
    let flags = open_flags(unsafe { CStr::from_ptr(mode) })?;
    // SAFETY: the caller's promise.
    guard(|| unsafe { classify(libc::AT_FDCWD, path, Intent::of(flags)) })
        .filter(|found| found.class.is_encrypted())?;
    // SAFETY: the caller's promise.
    let descriptor = unsafe { ciphertoll_tde_openat(libc::AT_FDCWD, path, flags, MODE) };
    if descriptor < 0 {
        return Some(std::ptr::null_mut());
    }
    // SAFETY: the caller's promise.
    let stream = unsafe { stream(descriptor, mode) };
    if stream.is_null() {
        close(descriptor);
    }
    Some(stream)
}

/// Refuses a stream of the C library that is an encrypted file after all, by another path.
///
/// # Safety
/// The stream must be null, or newly opened.
unsafe fn checked(stream: *mut FILE) -> *mut FILE {
    if stream.is_null() || cluster().is_none() {
        return stream;
    }
    // SAFETY: a stream by the caller's promise.
    let descriptor = unsafe { libc::fileno(stream) };
    forget(descriptor);
    if is_plain(descriptor) {
        return stream;
    }
    // SAFETY: as above; nothing was written to it.
    unsafe { fclose(stream) };
    raw::fail(NOT_PERMITTED);
    std::ptr::null_mut()
}

/// Defines the functions that open streams.
macro_rules! opens {
    ($($name:ident = $text:literal;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char) -> *mut FILE {
            static NEXT: NextFunction = NextFunction::new($text);
            // SAFETY: the caller's arguments.
            if let Some(stream) = unsafe { open_stream(path, mode) } {
                return stream;
            }
            // SAFETY: the C library's function of that name has this type, and gets the caller's arguments.
            unsafe { checked(std::mem::transmute::<*mut c_void, OpenPath>(NEXT.get())(path, mode)) }
        }
    )+};
}

opens! {
    fopen = c"fopen";
    fopen64 = c"fopen64";
    _IO_fopen = c"fopen";
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE {
    static NEXT: NextFunction = NextFunction::new(c"fdopen");
    match kind(descriptor) {
        DescriptorKind::Encrypted if !mode.is_null() => {
            // SAFETY: not null, and a C string by the C library's contract.
            return unsafe { stream(descriptor, mode) };
        }
        DescriptorKind::Encrypted => raw::fail(INVALID),
        DescriptorKind::Refused(error) => raw::fail(error),
        DescriptorKind::Plain => {
            // SAFETY: the C library's function of that name has this type, and gets the caller's arguments.
            return unsafe {
                std::mem::transmute::<*mut c_void, OpenDescriptor>(NEXT.get())(descriptor, mode)
            };
        }
    };
    std::ptr::null_mut()
}

aliases! {
    _IO_fdopen(descriptor: c_int, mode: *const c_char) -> *mut FILE = fdopen;
}

/// Defines `freopen`. It is refused for encrypted files: the C library's stream object would have to stay the same.
macro_rules! reopens {
    ($($name:ident = $text:literal;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(path: *const c_char, mode: *const c_char, stream: *mut FILE) -> *mut FILE {
            type Reopen = unsafe extern "C" fn(*const c_char, *const c_char, *mut FILE) -> *mut FILE;
            static NEXT: NextFunction = NextFunction::new($text);
            // SAFETY: the caller's arguments.
            if unsafe { is_encrypted_path(path, mode) } {
                raw::fail(NOT_PERMITTED);
                return std::ptr::null_mut();
            }
            // SAFETY: a stream by the C library's contract; the C library's function of that name has this type, and gets
            // the caller's arguments.
            unsafe {
                forget_stream(stream);
                checked(std::mem::transmute::<*mut c_void, Reopen>(NEXT.get())(path, mode, stream))
            }
        }
    )+};
}

reopens! {
    freopen = c"freopen";
    freopen64 = c"freopen64";
}

/// # Safety
/// Both must be null or C strings.
unsafe fn is_encrypted_path(path: *const c_char, mode: *const c_char) -> bool {
    if path.is_null() || mode.is_null() {
        return false;
    }
    // SAFETY: not null, and the caller's promise.
    let Some(flags) = open_flags(unsafe { CStr::from_ptr(mode) }) else { return false };
    // SAFETY: the caller's promise.
    let found = guard(|| unsafe { classify(libc::AT_FDCWD, path, Intent::of(flags)) });
    found.is_some_and(|found| found.class.is_encrypted())
}

/// Forgets the descriptor of a stream, which the C library closes itself.
///
/// # Safety
/// The stream must be null or open.
unsafe fn forget_stream(stream: *mut FILE) {
    if !stream.is_null() {
        // SAFETY: the caller's promise. A stream without a descriptor has -1, which no table has.
        let descriptor = unsafe { fileno_of(stream) };
        forget(descriptor);
    }
}

/// As `fileno`, without setting `errno` for a stream without a descriptor.
///
/// # Safety
/// The stream must be open.
unsafe fn fileno_of(stream: *mut FILE) -> c_int {
    let errno = raw::errno();
    // SAFETY: the caller's promise.
    let descriptor = unsafe { libc::fileno(stream) };
    raw::fail(errno);
    descriptor
}

/// Defines the functions that close streams.
macro_rules! closes {
    ($($name:ident = $text:literal;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(stream: *mut FILE) -> c_int {
            type Close = unsafe extern "C" fn(*mut FILE) -> c_int;
            static NEXT: NextFunction = NextFunction::new($text);
            // SAFETY: a stream by the C library's contract; the C library's function of that name has this type, and gets
            // the caller's argument.
            unsafe {
                forget_stream(stream);
                std::mem::transmute::<*mut c_void, Close>(NEXT.get())(stream)
            }
        }
    )+};
}

closes! {
    fclose = c"fclose";
    _IO_fclose = c"fclose";
    pclose = c"pclose";
}

/// The C library's own writing of formatted text to a descriptor (`shim.c`).
// SAFETY: the name is unique.
#[unsafe(no_mangle)]
unsafe extern "C" fn ciphertoll_tde_write_all(
    descriptor: c_int,
    bytes: *const c_void,
    count: size_t,
) -> ssize_t {
    let mut done = 0;
    while done < count {
        // SAFETY: `count` bytes by the caller's promise.
        match usize::try_from(unsafe { write(descriptor, bytes.byte_add(done), count - done) }) {
            Ok(0) => break,
            Ok(written) => done += written,
            Err(_) if raw::errno() == Errno(libc::EINTR) => {}
            Err(_) => return -1,
        }
    }
    done as ssize_t
}
