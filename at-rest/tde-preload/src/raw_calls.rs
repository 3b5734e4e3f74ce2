//! The C library's `syscall`, by which a program makes any system call. Those that move bytes or change descriptors lead to
//! this library's functions, as the C library's own functions for them do.

#![expect(unsafe_code, reason = "passes on the arguments of system calls, which may be pointers")]

use ciphertoll_tde::Errno;
use libc::{c_char, c_int, c_long, c_uint, mode_t};

use crate::descriptors::{self, ciphertoll_tde_openat};
use crate::process::{cluster, forget};
use crate::variadic::{ciphertoll_tde_fcntl, ciphertoll_tde_ioctl};
use crate::{names, raw, refused, transfers};

/// Calls that return a new descriptor of an existing file, and have no entry point here: its first use looks it up.
const OPENING: [c_long; 3] = [libc::SYS_openat2, libc::SYS_open_by_handle_at, libc::SYS_pidfd_getfd];
/// Asynchronous I/O. The kernel would read and write by itself.
const ASYNCHRONOUS: [c_long; 5] = [
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_setup,
    libc::SYS_io_submit,
];

fn pointer<T>(argument: c_long) -> *mut T {
    std::ptr::with_exposed_provenance_mut(argument as usize)
}

// SAFETY: the name is unique.
#[unsafe(no_mangle)]
unsafe extern "C" fn ciphertoll_tde_syscall(
    number: c_long,
    first: c_long,
    second: c_long,
    third: c_long,
    fourth: c_long,
    fifth: c_long,
    sixth: c_long,
) -> c_long {
    let given = [first, second, third, fourth, fifth, sixth];
    if cluster().is_none() {
        // SAFETY: the caller's arguments, unchanged.
        return unsafe { raw::call(number, given) };
    }
    // SAFETY: the caller's arguments, unchanged, in each of these.
    let answer = unsafe {
        transfer(number, given).or_else(|| descriptor(number, given)).or_else(|| name(number, given))
    };
    if let Some(answer) = answer {
        return answer;
    }
    if ASYNCHRONOUS.contains(&number) {
        return c_long::from(raw::fail(Errno(libc::ENOSYS)));
    }
    // SAFETY: the caller's arguments, unchanged.
    let answer = unsafe { raw::call(number, given) };
    if OPENING.contains(&number) && answer >= 0 {
        forget(answer as c_int);
    }
    answer
}

/// Calls that move bytes. `None` for all others.
///
/// # Safety
/// The arguments must be those of the call.
unsafe fn transfer(number: c_long, given: [c_long; 6]) -> Option<c_long> {
    let [first, second, third, fourth, fifth, sixth] = given;
    let (file, count) = (first as c_int, third as usize);
    // SAFETY: the caller's promise.
    let moved = unsafe {
        match number {
            libc::SYS_read => transfers::read(file, pointer(second), count),
            libc::SYS_write => transfers::write(file, pointer(second), count),
            libc::SYS_pread64 => transfers::pread(file, pointer(second), count, fourth),
            libc::SYS_pwrite64 => transfers::pwrite(file, pointer(second), count, fourth),
            libc::SYS_readv => transfers::readv(file, pointer(second), third as c_int),
            libc::SYS_writev => transfers::writev(file, pointer(second), third as c_int),
            libc::SYS_preadv => transfers::preadv(file, pointer(second), third as c_int, fourth),
            libc::SYS_pwritev => transfers::pwritev(file, pointer(second), third as c_int, fourth),
            libc::SYS_preadv2 => {
                transfers::preadv2(file, pointer(second), third as c_int, fourth, sixth as c_int)
            }
            libc::SYS_pwritev2 => {
                transfers::pwritev2(file, pointer(second), third as c_int, fourth, sixth as c_int)
            }
            libc::SYS_sendfile => refused::sendfile(file, second as c_int, pointer(third), fourth as usize),
            libc::SYS_splice => refused::splice(
                file,
                pointer(second),
                third as c_int,
                pointer(fourth),
                fifth as usize,
                sixth as c_uint,
            ),
            libc::SYS_copy_file_range => refused::copy_file_range(
                file,
                pointer(second),
                third as c_int,
                pointer(fourth),
                fifth as usize,
                sixth as c_uint,
            ),
            libc::SYS_ftruncate => transfers::ftruncate(file, second) as isize,
            libc::SYS_fallocate => transfers::fallocate(file, second as c_int, third, fourth) as isize,
            libc::SYS_mmap => {
                let (protection, flags) = (third as c_int, fourth as c_int);
                let mapped =
                    refused::mmap(pointer(first), second as usize, protection, flags, fifth as c_int, sixth);
                mapped.expose_provenance().cast_signed()
            }
            _ => return None,
        }
    };
    Some(moved as c_long)
}

/// Calls that open, close or copy descriptors. `None` for all others.
///
/// # Safety
/// The arguments must be those of the call.
unsafe fn descriptor(number: c_long, given: [c_long; 6]) -> Option<c_long> {
    let [first, second, third, fourth, ..] = given;
    let file = first as c_int;
    // SAFETY: the caller's promise.
    let answer = unsafe {
        match number {
            libc::SYS_openat => {
                ciphertoll_tde_openat(file, pointer(second), third as c_int, fourth as mode_t)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => {
                ciphertoll_tde_openat(libc::AT_FDCWD, pointer(first), second as c_int, third as mode_t)
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_creat => {
                let flags = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;
                ciphertoll_tde_openat(libc::AT_FDCWD, pointer(first), flags, second as mode_t)
            }
            libc::SYS_close => descriptors::close(file),
            libc::SYS_close_range => {
                descriptors::close_range(first as c_uint, second as c_uint, third as c_int)
            }
            libc::SYS_dup => descriptors::dup(file),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => descriptors::dup2(file, second as c_int),
            libc::SYS_dup3 => descriptors::dup3(file, second as c_int, third as c_int),
            libc::SYS_unshare => descriptors::unshare(file),
            libc::SYS_fcntl => ciphertoll_tde_fcntl(file, second as c_int, third),
            libc::SYS_ioctl => ciphertoll_tde_ioctl(file, second as libc::c_ulong, third),
            _ => return None,
        }
    };
    Some(c_long::from(answer))
}

/// Calls that change the name of a file. `None` for all others.
///
/// # Safety
/// The arguments must be those of the call.
unsafe fn name(number: c_long, given: [c_long; 6]) -> Option<c_long> {
    let [first, second, third, fourth, fifth, _] = given;
    let path = |argument| pointer::<c_char>(argument).cast_const();
    let (from, to) = (first as c_int, third as c_int);
    // SAFETY: the caller's promise.
    let answer = unsafe {
        match number {
            #[cfg(target_arch = "x86_64")]
            libc::SYS_rename => names::rename(path(first), path(second)),
            libc::SYS_renameat => names::renameat(from, path(second), to, path(fourth)),
            libc::SYS_renameat2 => names::renameat2(from, path(second), to, path(fourth), fifth as c_uint),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_link => names::link(path(first), path(second)),
            libc::SYS_linkat => names::linkat(from, path(second), to, path(fourth), fifth as c_int),
            #[cfg(target_arch = "x86_64")]
            libc::SYS_symlink => names::symlinkat(path(first), libc::AT_FDCWD, path(second)),
            libc::SYS_symlinkat => names::symlinkat(path(first), second as c_int, path(third)),
            libc::SYS_truncate => names::truncate(path(first), second),
            _ => return None,
        }
    };
    Some(c_long::from(answer))
}
