//! Entry points that rename and link files. They refuse a new name under which the file would have another key.

#![expect(unsafe_code, reason = "replaces functions of the C library, which take pointers")]

use std::ffi::CStr;

use ciphertoll_tde::{Errno, FileClass, Rename, SEGMENT_START_BYTES, Storage, is_plain_segment};
use libc::{c_char, c_int, c_long, c_uint};

use crate::backup;
use crate::descriptors::classify;
use crate::paths::Intent;
use crate::process::{cluster, die, guard, with_state};
use crate::program::ProgramRole;
use crate::raw::{self, Descriptor, address, arguments};

/// The name by which a server's `restore_command` stores a WAL segment.
const RESTORED: &[u8] = b"pg_wal/RECOVERYXLOG";

/// # Safety
/// Both paths must be null or C strings.
unsafe fn may_become(from: (c_int, *const c_char), to: (c_int, *const c_char)) -> Result<(), Errno> {
    let Some(cluster) = cluster().filter(|_| !from.1.is_null() && !to.1.is_null()) else { return Ok(()) };
    // SAFETY: not null, and the caller's promise.
    let (old, new) = unsafe { (CStr::from_ptr(from.1), CStr::from_ptr(to.1)) };
    let (kept, is_restored) = guard(|| {
        let (old, new) = (cluster.directory.below(from.0, old), cluster.directory.below(to.0, new));
        let kept = Rename::of(old.as_bytes(), new.as_bytes()) == Rename::Allowed;
        (kept, cluster.program == ProgramRole::Server && old.as_bytes() == RESTORED)
    });
    if is_restored && guard(|| empties_plain_segment(from.0, old)) {
        raw::print_error(&[
            b"ciphertoll-tde: refused: restore_command restored a WAL segment that is not encrypted: remove restore_command, \
              or restore from the archive of this encrypted cluster\n",
        ]);
        return Err(Errno(libc::EPERM));
    }
    if !kept {
        let (old, new) = (old.to_bytes(), new.to_bytes());
        raw::print_error(&[
            b"ciphertoll-tde: refused: ",
            old,
            b" cannot be renamed or linked to ",
            new,
            b", which has another key\n",
        ]);
        return Err(Errno(libc::EXDEV));
    }
    Ok(())
}

/// Empties a WAL segment that is stored in plaintext, as in the archive of an unencrypted server. Returns whether it is one.
fn empties_plain_segment(directory: c_int, path: &CStr) -> bool {
    if with_state(|state| state.engine.seals()) != Some(true) {
        return false;
    }
    // SAFETY: a C string.
    let open = |access| unsafe { raw::openat(directory, path.as_ptr(), access | libc::O_CLOEXEC, 0) };
    // The command may have kept a mode without the permission to write.
    let Some(descriptor) = [libc::O_RDWR, libc::O_RDONLY].into_iter().map(open).find(|&opened| opened >= 0)
    else {
        return false;
    };
    let (file, mut start) = (Descriptor(descriptor), [0; SEGMENT_START_BYTES]);
    let is_plain = file.read_at(&mut start, 0) == Ok(SEGMENT_START_BYTES) && is_plain_segment(&start);
    // If that fails, it is refused all the same.
    if is_plain && file.set_size(0).is_err() {
        raw::print_error(&[b"ciphertoll-tde: warning: pg_wal/RECOVERYXLOG is plaintext: remove it\n"]);
    }
    raw::close(descriptor);
    is_plain
}

/// Defines the variants of `rename` and `link`.
macro_rules! renames {
    ($($name:ident($($argument:ident: $kind:ty),+) => $number:ident($from:expr, $to:expr, $flags:expr);)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name($($argument: $kind),+) -> c_int {
            let (from, to): ((c_int, *const c_char), (c_int, *const c_char)) = ($from, $to);
            // SAFETY: C strings by the C library's contract.
            if let Err(error) = unsafe { may_become(from, to) } {
                return raw::fail(error);
            }
            let flags = c_long::from($flags);
            let given =
                [c_long::from(from.0), address(from.1), c_long::from(to.0), address(to.1), flags];
            // SAFETY: the caller's arguments, and the flags of this variant.
            unsafe { raw::call(libc::$number, arguments(given)) as c_int }
        }
    )+};
}

renames! {
    rename(from: *const c_char, to: *const c_char)
        => SYS_renameat2((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0);
    renameat(old: c_int, from: *const c_char, new: c_int, to: *const c_char)
        => SYS_renameat2((old, from), (new, to), 0);
    renameat2(old: c_int, from: *const c_char, new: c_int, to: *const c_char, flags: c_uint)
        => SYS_renameat2((old, from), (new, to), flags);
    link(from: *const c_char, to: *const c_char)
        => SYS_linkat((libc::AT_FDCWD, from), (libc::AT_FDCWD, to), 0);
    linkat(old: c_int, from: *const c_char, new: c_int, to: *const c_char, flags: c_int)
        => SYS_linkat((old, from), (new, to), flags);
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn symlinkat(
    target: *const c_char,
    directory: c_int,
    path: *const c_char,
) -> c_int {
    if let Some(cluster) = cluster().filter(|cluster| cluster.program == ProgramRole::Backup)
        && !target.is_null()
        && !path.is_null()
    {
        // SAFETY: not null, and C strings by the C library's contract.
        let (target, path) = unsafe { (CStr::from_ptr(target), CStr::from_ptr(path)) };
        let is_valid = guard(|| {
            let below = cluster.directory.below(directory, path);
            backup::is_valid_tablespace_link(below.as_bytes(), target.to_bytes())
        });
        if !is_valid {
            die(b"refused: a tablespace's directory must have the tablespace's OID as its name");
        }
    }
    let given = arguments([address(target), c_long::from(directory), address(path)]);
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_symlinkat, given) as c_int }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    // SAFETY: the caller's arguments, unchanged.
    unsafe { symlinkat(target, libc::AT_FDCWD, path) }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn truncate(path: *const c_char, size: i64) -> c_int {
    // SAFETY: a C string by the C library's contract.
    let found = guard(|| unsafe { classify(libc::AT_FDCWD, path, Intent::Use) });
    if let Some(class) = found.map(|found| found.class).filter(|class| class.is_encrypted()) {
        // SAFETY: as above.
        return unsafe { truncate_encrypted(class, path, size) };
    }
    // SAFETY: the caller's arguments, unchanged.
    unsafe { raw::call(libc::SYS_truncate, arguments([address(path), size])) as c_int }
}

/// # Safety
/// `path` must be a C string.
unsafe fn truncate_encrypted(class: FileClass, path: *const c_char, size: i64) -> c_int {
    let Ok(size) = u64::try_from(size) else { return raw::fail(Errno(libc::EINVAL)) };
    // SAFETY: the caller's promise.
    let descriptor =
        unsafe { raw::openat(libc::AT_FDCWD, path, libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW, 0) };
    if descriptor < 0 {
        return descriptor;
    }
    let mut opened = ciphertoll_tde::OpenFile::new(class);
    let result =
        guard(|| with_state(|state| state.engine.set_size(&mut opened, &Descriptor(descriptor), size)));
    raw::close(descriptor);
    result.unwrap_or(Err(Errno::IO)).map_or_else(raw::fail, |()| 0)
}

aliases! {
    truncate64(path: *const c_char, size: i64) -> c_int = truncate;
}
