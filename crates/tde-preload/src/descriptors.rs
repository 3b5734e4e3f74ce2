//! Entry points that open, copy and close descriptors.

#![expect(unsafe_code, reason = "replaces functions of the C library, which take pointers")]

use std::ffi::CStr;

use ciphertoll_tde::{Errno, FileClass, OpenFile};
use libc::{c_char, c_int, c_long, c_uint, mode_t};

use crate::process::{
    REFUSAL_STATUS, TrackedFile, copy, guard, is_active, is_tracked, most_descriptors, set, with_state,
};
use crate::program::ProgramRole;
use crate::raw::{self, arguments};
use crate::{archive, backup, server};

/// The first file that a server writes after it has changed to its data directory.
const LOCK_FILE: &[u8] = b"postmaster.pid";
const TOO_MANY: Errno = Errno(libc::EMFILE);
const NOT_PERMITTED: Errno = Errno(libc::EPERM);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// Open an existing file.
    Use,
    /// Possibly create or truncate a file.
    Create,
}

impl Intent {
    /// From the flags of `open`.
    pub(crate) fn of(flags: c_int) -> Self {
        if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 { Self::Use } else { Self::Create }
    }
}

/// The class of a path that was passed to a call. Exits the process if it must not open the file.
///
/// # Safety
/// `path` must be null or a C string.
pub(crate) unsafe fn classify(directory: c_int, path: *const c_char, intent: Intent) -> FileClass {
    if path.is_null() {
        return FileClass::Unencrypted;
    }
    // SAFETY: not null, and the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let found = with_state(|state| {
        let below = state.cluster.below(directory, path);
        let class = match state.program {
            // In a cluster with other keys, files would be written unencrypted.
            ProgramRole::Server if path.to_bytes() == LOCK_FILE && below.as_bytes() != LOCK_FILE => {
                Err(b"the server's data directory is not the one in CIPHERTOLL_TDE_DATA".as_slice())
            }
            // At this point the settings are read, and nothing is written yet.
            ProgramRole::Server if path.to_bytes() == LOCK_FILE && intent == Intent::Create => {
                server::refused_setting().map_or(Ok(FileClass::Unencrypted), Err)
            }
            ProgramRole::Backup => backup::classify(&below, intent),
            ProgramRole::Copier => Ok(match state.cluster.classify(&below) {
                FileClass::Control if intent == Intent::Use => FileClass::Control,
                _ => FileClass::Unencrypted,
            }),
            _ => Ok(state.cluster.classify(&below)),
        };
        if path.to_bytes() == LOCK_FILE && class.is_ok() {
            state.handshake.close();
        }
        class.map_err(|why| (state.program, state.handshake, why))
    });
    match found.unwrap_or(Ok(FileClass::Unencrypted)) {
        Ok(class) => class,
        Err((program, handshake, why)) => {
            handshake.send_refusal(why);
            refuse(program, why)
        }
    }
}

/// Why a server must not open a file, which it would copy elsewhere in plaintext. `None` if it may.
///
/// # Safety
/// `path` must be a C string.
unsafe fn denial(class: FileClass, path: *const c_char, flags: c_int) -> Option<&'static [u8]> {
    if with_state(|state| state.program) != Some(ProgramRole::Server) {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    match class {
        FileClass::Wal if server::is_archive_module() => Some(server::ARCHIVE_LIBRARY),
        FileClass::Unencrypted if server::is_backup_target(path.to_bytes(), flags) => {
            Some(b"a base backup with --target=server would not be encrypted: run pg_basebackup with ciphertoll tde exec")
        }
        _ => None,
    }
}

/// Exits the process before it has written plaintext. `pg_basebackup` runs its exit handlers, which remove its files and end
/// its WAL streaming process. Of a server, only the postmaster and single-user servers get here, before they start anything.
fn refuse(program: ProgramRole, why: &[u8]) -> ! {
    raw::print_error(&[b"ciphertoll-tde: refused: ", why, b"\n"]);
    match program {
        ProgramRole::Backup => raw::exit_with_handlers(REFUSAL_STATUS),
        _ => raw::exit(REFUSAL_STATUS),
    }
}

/// The implementation of all variants of `open`.
///
/// # Safety
/// As for `openat`: `path` must be a C string.
// SAFETY: the name is unique.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ciphertoll_tde_openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    if !is_active() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { raw::openat(directory, path, flags, mode) };
    }
    guard(|| {
        let is_file = flags & (libc::O_DIRECTORY | libc::O_PATH) == 0;
        let class = if is_file {
            // SAFETY: a C string by the caller's promise.
            unsafe { classify(directory, path, Intent::of(flags)) }
        } else {
            FileClass::Unencrypted
        };
        if is_file
            && !path.is_null()
            // SAFETY: not null, and a C string by the caller's promise.
            && let Some(why) = unsafe { denial(class, path, flags) }
        {
            raw::print_error(&[b"ciphertoll-tde: refused: ", why, b"\n"]);
            return raw::fail(NOT_PERMITTED);
        }
        let mut asked = flags;
        if class.is_encrypted() {
            // Writing part of a unit requires reading it. With O_APPEND the kernel would ignore offsets.
            asked &= !libc::O_APPEND;
            if asked & libc::O_ACCMODE == libc::O_WRONLY {
                asked = asked & !libc::O_ACCMODE | libc::O_RDWR;
            }
        }
        // SAFETY: the caller's path; the changed flags select the same kind of file.
        let descriptor = unsafe { raw::openat(directory, path, asked, mode) };
        if descriptor < 0 {
            return descriptor;
        }
        let class = if is_file && !class.is_encrypted() && flags & libc::O_ACCMODE == libc::O_RDONLY {
            // SAFETY: a C string by the caller's promise, which the kernel has just followed.
            archive::classify(unsafe { CStr::from_ptr(path) }, descriptor)
        } else {
            class
        };
        let appends = flags & libc::O_APPEND != 0;
        let file = class.is_encrypted().then(|| TrackedFile { opened: OpenFile::new(class), appends });
        if set(descriptor, file) {
            return descriptor;
        }
        raw::close(descriptor);
        raw::fail(TOO_MANY)
    })
}

/// Defines the other variants of `open`.
macro_rules! opens {
    ($($name:ident($($argument:ident: $kind:ty),+) => ($directory:expr, $path:expr, $flags:expr, $mode:expr);)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),+) -> c_int {
            // SAFETY: the caller's arguments.
            unsafe { ciphertoll_tde_openat($directory, $path, $flags, $mode) }
        }
    )+};
}

opens! {
    __open_2(path: *const c_char, flags: c_int) => (libc::AT_FDCWD, path, flags, 0);
    __open64_2(path: *const c_char, flags: c_int) => (libc::AT_FDCWD, path, flags, 0);
    __openat_2(directory: c_int, path: *const c_char, flags: c_int) => (directory, path, flags, 0);
    __openat64_2(directory: c_int, path: *const c_char, flags: c_int) => (directory, path, flags, 0);
    creat(path: *const c_char, mode: mode_t)
        => (libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode);
    creat64(path: *const c_char, mode: mode_t)
        => (libc::AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode);
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn close(descriptor: c_int) -> c_int {
    if is_tracked(descriptor) {
        guard(|| set(descriptor, None));
    }
    raw::close(descriptor)
}

/// Forgets a range of closed descriptors.
fn forget(first: c_uint, last: c_uint) {
    let end = c_uint::try_from(most_descriptors()).unwrap_or(0);
    for descriptor in first..last.saturating_add(1).min(end) {
        if is_tracked(descriptor as c_int) {
            guard(|| set(descriptor as c_int, None));
        }
    }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        forget(first, last);
    }
    let given = arguments([c_long::from(first), c_long::from(last), c_long::from(flags)]);
    // SAFETY: takes only numbers; any values are valid.
    unsafe { raw::call(libc::SYS_close_range, given) as c_int }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

/// Tracks a copied descriptor. Returns the result of the call.
fn track_copy(from: c_int, to: c_int) -> c_int {
    if to < 0 || guard(|| copy(from, to)) {
        return to;
    }
    raw::close(to);
    raw::fail(TOO_MANY)
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
extern "C" fn dup(descriptor: c_int) -> c_int {
    // SAFETY: takes only a number; any value is valid.
    let answer = unsafe { raw::call(libc::SYS_dup, arguments([c_long::from(descriptor)])) };
    track_copy(descriptor, answer as c_int)
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    let given = arguments([c_long::from(from), c_long::from(to), c_long::from(flags)]);
    // SAFETY: takes only numbers; any values are valid.
    track_copy(from, unsafe { raw::call(libc::SYS_dup3, given) as c_int })
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // Unlike `dup3`, `dup2` accepts equal descriptors and only checks that they are open. Not every architecture has it.
    if from == to {
        let given = arguments([c_long::from(from), c_long::from(libc::F_GETFD)]);
        // SAFETY: takes only numbers; any values are valid.
        let answer = unsafe { raw::call(libc::SYS_fcntl, given) };
        return if answer < 0 { -1 } else { to };
    }
    dup3(from, to, 0)
}
