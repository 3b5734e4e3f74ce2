//! Entry points that make, copy and close descriptors.

#![expect(unsafe_code, reason = "entry points of the C library have names, and take addresses")]

use std::ffi::CStr;

use ciphertoll_tde::{Errno, OpenFile, FileClass};
use libc::{c_char, c_int, c_long, c_uint, mode_t};

use crate::process::{
    TrackedFile, REFUSAL_STATUS, copy, guard, is_active, is_tracked, most_descriptors, set, with_state,
};
use crate::program::ProgramRole;
use crate::raw::{self, arguments};
use crate::{archive, backup, server};

/// The first file that a server writes, by this relative path, once it has entered its data directory.
const LOCK_FILE: &[u8] = b"postmaster.pid";
const TOO_MANY: Errno = Errno(libc::EMFILE);
const NOT_PERMITTED: Errno = Errno(libc::EPERM);

/// What a path is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intent {
    /// A file that is there.
    Use,
    /// A file that may be made, or be written anew.
    Make,
}

impl Intent {
    /// By what `open` is asked for.
    pub(crate) fn of(flags: c_int) -> Self {
        if flags & (libc::O_CREAT | libc::O_TRUNC) == 0 { Self::Use } else { Self::Make }
    }
}

/// What is at a path that was given to a call.
///
/// # Safety
/// `path` must be null or a string of C.
pub(crate) unsafe fn classify(directory: c_int, path: *const c_char, intent: Intent) -> FileClass {
    if path.is_null() {
        return FileClass::Unencrypted;
    }
    // SAFETY: not null, and the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let found = with_state(|state| {
        let below = state.cluster.below(directory, path);
        let class = match state.program {
            // In a cluster that is not the keys' own everything would be written in clear.
            ProgramRole::Server if path.to_bytes() == LOCK_FILE && below.as_bytes() != LOCK_FILE => {
                Err(b"the server's data directory is not the one in CIPHERTOLL_TDE_DATA".as_slice())
            }
            // The settings are known, and nothing is written yet.
            ProgramRole::Server if path.to_bytes() == LOCK_FILE && intent == Intent::Make => {
                server::refused_setting().map_or(Ok(FileClass::Unencrypted), Err)
            }
            ProgramRole::Backup => backup::class(&below, intent),
            ProgramRole::Copier => Ok(match state.cluster.class(&below) {
                FileClass::Control if intent == Intent::Use => FileClass::Control,
                _ => FileClass::Unencrypted,
            }),
            _ => Ok(state.cluster.class(&below)),
        };
        if path.to_bytes() == LOCK_FILE && class.is_ok() {
            state.handshake.close();
        }
        class.map_err(|why| (state.program, state.handshake, why))
    });
    match found.unwrap_or(Ok(FileClass::Unencrypted)) {
        Ok(class) => class,
        Err((program, handshake, why)) => {
            handshake.refused(why);
            refuse(program, why)
        }
    }
}

/// Why a server may not open a file that others may: it would write elsewhere, in plaintext, what it reads here.
///
/// # Safety
/// `path` must be a string of C.
unsafe fn denial(class: FileClass, path: *const c_char, flags: c_int) -> Option<&'static [u8]> {
    if with_state(|state| state.program) != Some(ProgramRole::Server) {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    match class {
        FileClass::Wal if server::is_archive_module() => {
            Some(b"archive_library would write a plaintext archive: use archive_command, which copies ciphertext")
        }
        FileClass::Unencrypted if server::is_backup_target(path.to_bytes(), flags) => {
            Some(b"a base backup by --target=server would be plaintext: use pg_basebackup under ciphertoll tde exec")
        }
        _ => None,
    }
}

/// Ends the process, which has written nothing in clear. A base backup removes what it has made, and ends the process that it
/// streams the log by. Of a server, only the postmaster and single-user servers come here, before they have started anything.
fn refuse(program: ProgramRole, why: &[u8]) -> ! {
    raw::say(&[b"ciphertoll-tde: refused: ", why, b"\n"]);
    match program {
        ProgramRole::Backup => raw::leave(REFUSAL_STATUS),
        _ => raw::exit(REFUSAL_STATUS),
    }
}

/// All forms of `open`.
///
/// # Safety
/// `path` must be a string of C, as the C library has it.
// SAFETY: the name is our own, and nobody else has it.
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
            // SAFETY: a string of C by the caller's promise.
            unsafe { classify(directory, path, Intent::of(flags)) }
        } else {
            FileClass::Unencrypted
        };
        let denied = if is_file && !path.is_null() {
            // SAFETY: not null, and a string of C by the caller's promise.
            unsafe { denial(class, path, flags) }
        } else {
            None
        };
        if let Some(why) = denied {
            raw::say(&[b"ciphertoll-tde: refused: ", why, b"\n"]);
            return raw::fail(NOT_PERMITTED);
        }
        let mut asked = flags;
        if class.is_encrypted() {
            // What is not overwritten must be read, and the kernel would append whatever the offset.
            asked &= !libc::O_APPEND;
            if asked & libc::O_ACCMODE == libc::O_WRONLY {
                asked = asked & !libc::O_ACCMODE | libc::O_RDWR;
            }
        }
        // SAFETY: the caller's path; the flags ask for no other kind of file.
        let descriptor = unsafe { raw::openat(directory, path, asked, mode) };
        if descriptor < 0 {
            return descriptor;
        }
        let class = if is_file && !class.is_encrypted() && flags & libc::O_ACCMODE == libc::O_RDONLY {
            // SAFETY: a C string by the caller's promise, which the kernel has just followed.
            archive::class(unsafe { CStr::from_ptr(path) }, descriptor)
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

/// Defines exported names for other forms of `open`.
macro_rules! opens {
    ($($name:ident($($argument:ident: $kind:ty),+) => ($directory:expr, $path:expr, $flags:expr, $mode:expr);)+) => {$(
        // SAFETY: the name is the C library's, which this library is made to stand in for.
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

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn close(descriptor: c_int) -> c_int {
    if is_tracked(descriptor) {
        guard(|| set(descriptor, None));
    }
    raw::close(descriptor)
}

/// Those from one to another have been closed.
fn forget(first: c_uint, last: c_uint) {
    let end = c_uint::try_from(most_descriptors()).unwrap_or(0);
    for descriptor in first..last.saturating_add(1).min(end) {
        if is_tracked(descriptor as c_int) {
            guard(|| set(descriptor as c_int, None));
        }
    }
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        forget(first, last);
    }
    let given = arguments([c_long::from(first), c_long::from(last), c_long::from(flags)]);
    // SAFETY: takes numbers, which may be any.
    unsafe { raw::call(libc::SYS_close_range, given) as c_int }
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
extern "C" fn closefrom(first: c_int) {
    close_range(first.max(0) as c_uint, c_uint::MAX, 0);
}

/// What a call that copies a descriptor answers.
fn copied(from: c_int, to: c_int) -> c_int {
    if to < 0 || guard(|| copy(from, to)) {
        return to;
    }
    raw::close(to);
    raw::fail(TOO_MANY)
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
extern "C" fn dup(descriptor: c_int) -> c_int {
    // SAFETY: takes a number, which may be any.
    let answer = unsafe { raw::call(libc::SYS_dup, arguments([c_long::from(descriptor)])) };
    copied(descriptor, answer as c_int)
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    let given = arguments([c_long::from(from), c_long::from(to), c_long::from(flags)]);
    // SAFETY: takes numbers, which may be any.
    copied(from, unsafe { raw::call(libc::SYS_dup3, given) as c_int })
}

// SAFETY: the name is the C library's, which this library is made to stand in for.
#[unsafe(no_mangle)]
extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // Unlike `dup3`, it takes the same twice and only looks whether it is open. Not every architecture has the call.
    if from == to {
        let given = arguments([c_long::from(from), c_long::from(libc::F_GETFD)]);
        // SAFETY: takes numbers, which may be any.
        let answer = unsafe { raw::call(libc::SYS_fcntl, given) };
        return if answer < 0 { -1 } else { to };
    }
    dup3(from, to, 0)
}
