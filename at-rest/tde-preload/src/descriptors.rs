//! Entry points that open, copy and close descriptors.

#![expect(unsafe_code, reason = "replaces functions of the C library, which take pointers")]

use std::ffi::CStr;

use ciphertoll_tde::{ClearFile, Errno, FileClass, OpenFile};
use libc::{c_char, c_int, c_long, c_uint, c_void, mode_t};

use crate::identity::{ProcessCluster, TrackedFile};
use crate::next::NextFunction;
use crate::paths::{ClusterPath, Intent};
use crate::process::{
    DescriptorKind, REFUSAL_STATUS, cluster, forget, forget_range, guard, kind, remember, stop_caching,
    with_state,
};
use crate::program::ProgramRole;
use crate::raw::{self, arguments};
use crate::{backup, server};

/// The first file that a server writes after it has changed to its data directory.
const LOCK_FILE: &[u8] = b"postmaster.pid";
const NOT_PERMITTED: Errno = Errno(libc::EPERM);

/// A path that was passed to a call, and its class.
pub(crate) struct ClassifiedPath {
    pub(crate) class: FileClass,
    below: ClusterPath,
    program: ProgramRole,
}

/// The class of a path that was passed to a call. Exits the process if it must not open the file. `None` if calls are not
/// intercepted, or if there is no path.
///
/// # Safety
/// `path` must be null or a C string.
pub(crate) unsafe fn classify(
    directory: c_int,
    path: *const c_char,
    intent: Intent,
) -> Option<ClassifiedPath> {
    let ProcessCluster { directory: root, program } = cluster()?;
    if path.is_null() {
        return None;
    }
    // SAFETY: not null, and the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    let below = root.below(directory, path);
    let is_lock_file = path.to_bytes() == LOCK_FILE;
    let class = match program {
        // In a cluster with other keys, files would be written unencrypted.
        ProgramRole::Server if is_lock_file && below.as_bytes() != LOCK_FILE => {
            Err(b"the server's data directory is not the one in CIPHERTOLL_TDE_DATA".as_slice())
        }
        // At this point the settings are read, and nothing is written yet.
        ProgramRole::Server if is_lock_file && intent == Intent::Create => {
            server::refused_setting().map_or(Ok(FileClass::Unencrypted), Err)
        }
        ProgramRole::Backup => backup::classify(&below, intent),
        ProgramRole::Copier => Ok(match root.classify(&below) {
            FileClass::Control if intent == Intent::Use => FileClass::Control,
            _ => FileClass::Unencrypted,
        }),
        _ => Ok(root.classify(&below)),
    };
    match class {
        Ok(class) => {
            if is_lock_file {
                with_state(|state| state.handshake.close());
            }
            Some(ClassifiedPath { class, below, program: *program })
        }
        Err(why) => {
            if let Some(handshake) = with_state(|state| state.handshake) {
                handshake.send_refusal(why);
            }
            refuse(*program, path.to_bytes(), why)
        }
    }
}

/// Why a server must not open a file. `None` if it may.
fn denial(path: &ClassifiedPath, name: &[u8], flags: c_int) -> Option<&'static [u8]> {
    if path.program != ProgramRole::Server {
        return None;
    }
    let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
    match path.class {
        FileClass::Wal if server::is_archive_module() => Some(server::ARCHIVE_LIBRARY),
        FileClass::Unencrypted if server::is_backup_target(name, flags) => Some(BACKUP_TARGET),
        // A backup only reads. The same process also writes WAL, and could only crash if that failed.
        class if !writes && class.is_encrypted() && server::is_backup_for_others() => Some(BACKUP_TARGET),
        // By this name, its receiver would store it in plaintext. Tablespaces have absolute paths there.
        class if class.is_encrypted() && is_other_name(name) && server::is_wal_sender() => Some(
            b"a directory of the cluster is in the data directory a second time, and a base backup would contain it as \
              plaintext: move it out of the data directory",
        ),
        class if writes && ClearFile::is_unknown(class, path.below.as_bytes()) => Some(
            b"a file of an unknown kind among the encrypted ones would be stored in plaintext; this version of ciphertoll \
              does not know it",
        ),
        _ => None,
    }
}

/// Whether an encrypted file is opened by a path relative to the data directory that does not say what it is.
fn is_other_name(name: &[u8]) -> bool {
    !name.starts_with(b"/") && !FileClass::of(name).is_encrypted()
}

const BACKUP_TARGET: &[u8] =
    b"a base backup to a target other than the client would not be encrypted: run pg_basebackup with ciphertoll tde exec";

/// Exits the process before it has written plaintext. `pg_basebackup` runs its exit handlers, which remove its files and end
/// its WAL streaming process. Of a server, only the postmaster and single-user servers get here, before they start anything.
fn refuse(program: ProgramRole, path: &[u8], why: &[u8]) -> ! {
    if program == ProgramRole::Backup {
        raw::print_error(&[b"ciphertoll-tde: refused: ", path, b": ", why, b"\n"]);
        raw::exit_with_handlers(REFUSAL_STATUS);
    }
    // The path is the lock file's.
    raw::print_error(&[b"ciphertoll-tde: refused: ", why, b"\n"]);
    raw::exit(REFUSAL_STATUS)
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
    guard(|| {
        let is_file = flags & (libc::O_DIRECTORY | libc::O_PATH) == 0;
        // SAFETY: a C string by the caller's promise.
        let Some(found) = is_file.then(|| unsafe { classify(directory, path, Intent::of(flags)) }).flatten()
        else {
            // SAFETY: the caller's arguments, unchanged.
            let descriptor = unsafe { raw::openat(directory, path, flags, mode) };
            forget(descriptor);
            return descriptor;
        };
        // SAFETY: classified, and so not null; a C string by the caller's promise.
        let name = unsafe { CStr::from_ptr(path) }.to_bytes();
        if let Some(why) = denial(&found, name, flags) {
            raw::print_error(&[b"ciphertoll-tde: refused: ", name, b": ", why, b"\n"]);
            return raw::fail(NOT_PERMITTED);
        }
        if !found.class.is_encrypted() {
            if found.program == ProgramRole::Server && flags & libc::O_CREAT != 0 {
                server::report_unknown(found.below.as_bytes());
            }
            // SAFETY: the caller's arguments, unchanged.
            let descriptor = unsafe { raw::openat(directory, path, flags, mode) };
            // What it really is, its first use looks up: the path may lead through links.
            forget(descriptor);
            return descriptor;
        }
        // Writing part of a unit requires reading it. Links of directories are known, those of files are not.
        let mut asked = flags | libc::O_NOFOLLOW;
        if asked & libc::O_ACCMODE == libc::O_WRONLY {
            asked = asked & !libc::O_ACCMODE | libc::O_RDWR;
        }
        // SAFETY: the caller's path; the changed flags select the same kind of file.
        let descriptor = not_a_stream(unsafe { raw::openat(directory, path, asked, mode) });
        if descriptor < 0 {
            return descriptor;
        }
        let appends = flags & libc::O_APPEND != 0;
        remember(descriptor, TrackedFile { opened: OpenFile::new(found.class), appends });
        descriptor
    })
}

/// Moves an encrypted file away from the numbers of the standard streams, to which the C library writes by itself.
fn not_a_stream(descriptor: c_int) -> c_int {
    if !(0..=libc::STDERR_FILENO).contains(&descriptor) {
        return descriptor;
    }
    let number = |command, least: c_int| {
        arguments([c_long::from(descriptor), c_long::from(command), c_long::from(least)])
    };
    // SAFETY: takes only numbers; any values are valid.
    let (flags, moved) = unsafe {
        let flags = raw::call(libc::SYS_fcntl, number(libc::F_GETFD, 0)) as c_int;
        let keeps = flags & libc::FD_CLOEXEC == 0;
        let command = if keeps { libc::F_DUPFD } else { libc::F_DUPFD_CLOEXEC };
        (flags, raw::call(libc::SYS_fcntl, number(command, libc::STDERR_FILENO + 1)) as c_int)
    };
    debug_assert!(flags >= 0);
    raw::close(descriptor);
    moved
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
    forget(descriptor);
    raw::close(descriptor)
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    if flags as c_uint & libc::CLOSE_RANGE_UNSHARE != 0 {
        stop_caching();
    }
    if flags as c_uint & libc::CLOSE_RANGE_CLOEXEC == 0 {
        forget_range(first, last);
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

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn unshare(flags: c_int) -> c_int {
    if flags & libc::CLONE_FILES != 0 {
        stop_caching();
    }
    // SAFETY: takes only a number; any value is valid.
    unsafe { raw::call(libc::SYS_unshare, arguments([c_long::from(flags)])) as c_int }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dup(descriptor: c_int) -> c_int {
    // SAFETY: takes only a number; any value is valid.
    let answer = unsafe { raw::call(libc::SYS_dup, arguments([c_long::from(descriptor)])) };
    forget(answer as c_int);
    answer as c_int
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    // The C library writes to the standard streams by itself.
    if (0..=libc::STDERR_FILENO).contains(&to) && from != to && !matches!(kind(from), DescriptorKind::Plain) {
        return raw::fail(NOT_PERMITTED);
    }
    forget(to);
    let given = arguments([c_long::from(from), c_long::from(to), c_long::from(flags)]);
    // SAFETY: takes only numbers; any values are valid.
    let answer = unsafe { raw::call(libc::SYS_dup3, given) as c_int };
    // Another thread may have looked it up meanwhile.
    forget(to);
    answer
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    // Unlike `dup3`, `dup2` accepts equal descriptors and only checks that they are open. Not every architecture has it.
    if from == to {
        let given = arguments([c_long::from(from), c_long::from(libc::F_GETFD)]);
        // SAFETY: takes only numbers; any values are valid.
        let answer = unsafe { raw::call(libc::SYS_fcntl, given) };
        return if answer < 0 { -1 } else { to };
    }
    dup3(from, to, 0)
}

/// Forgets the descriptor of a directory stream, which the C library closes itself.
// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn closedir(directory: *mut c_void) -> c_int {
    type Close = unsafe extern "C" fn(*mut c_void) -> c_int;
    static NEXT: NextFunction = NextFunction::new(c"closedir");
    if !directory.is_null() {
        // SAFETY: a directory stream by the C library's contract.
        forget(unsafe { libc::dirfd(directory.cast()) });
    }
    // SAFETY: the C library's function of that name has this type, and gets the caller's argument.
    unsafe { std::mem::transmute::<*mut c_void, Close>(NEXT.get())(directory) }
}

/// Other names of the same functions.
// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
extern "C" fn __dup2(from: c_int, to: c_int) -> c_int {
    dup2(from, to)
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
extern "C" fn __close(descriptor: c_int) -> c_int {
    close(descriptor)
}
