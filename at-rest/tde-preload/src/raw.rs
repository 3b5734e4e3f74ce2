//! Direct system calls: the C library's functions would lead back into this library.

#![expect(unsafe_code, reason = "system calls take pointers")]

use std::arch::asm;
use std::ffi::CStr;

use ciphertoll_tde::{Errno, Storage};
use libc::{c_char, c_int, c_long, c_void, mode_t};

/// The largest error number of the kernel.
const MOST_ERRNO: c_long = 4095;

/// Makes a system call. Like the C library's functions, it returns -1 and sets `errno` on an error. The C library's
/// `syscall` leads back into this library as well.
///
/// # Safety
/// The arguments must be valid for the call, which ignores superfluous ones.
pub(crate) unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    // SAFETY: the caller's promise.
    let answer = unsafe { trap(number, arguments) };
    if (-MOST_ERRNO..0).contains(&answer) {
        return c_long::from(fail(Errno(-answer as c_int)));
    }
    answer
}

/// Enters the kernel. Returns a negative error number on an error.
///
/// # Safety
/// As for [`call`].
#[cfg(target_arch = "x86_64")]
unsafe fn trap(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let answer;
    // SAFETY: the caller's promise; the kernel changes only these registers and memory that the call may write.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => answer,
            in("rdi") first, in("rsi") second, in("rdx") third, in("r10") fourth, in("r8") fifth, in("r9") sixth,
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// Enters the kernel. Returns a negative error number on an error.
///
/// # Safety
/// As for [`call`].
#[cfg(target_arch = "aarch64")]
unsafe fn trap(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    let answer;
    // SAFETY: the caller's promise; the kernel changes only these registers and memory that the call may write.
    unsafe {
        asm!(
            "svc 0",
            in("x8") number,
            inlateout("x0") first => answer,
            in("x1") second, in("x2") third, in("x3") fourth, in("x4") fifth, in("x5") sixth,
            options(nostack),
        );
    }
    answer
}

/// Pads arguments with zeros.
pub(crate) fn arguments<const N: usize>(given: [c_long; N]) -> [c_long; 6] {
    std::array::from_fn(|n| given.get(n).copied().unwrap_or(0))
}

pub(crate) fn address<T>(pointer: *const T) -> c_long {
    pointer.expose_provenance() as c_long
}

pub(crate) fn errno() -> Errno {
    // SAFETY: the address is always readable.
    Errno(unsafe { *libc::__errno_location() })
}

/// Sets `errno` and returns -1.
pub(crate) fn fail(error: Errno) -> c_int {
    // SAFETY: the address is always writable.
    unsafe { *libc::__errno_location() = error.0 };
    -1
}

/// # Safety
/// `path` must be a C string or an invalid address, which the kernel detects.
pub(crate) unsafe fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let given = arguments([c_long::from(directory), address(path), c_long::from(flags), c_long::from(mode)]);
    // SAFETY: the four arguments of the call; the kernel checks the address.
    unsafe { call(libc::SYS_openat, given) as c_int }
}

pub(crate) fn close(descriptor: c_int) -> c_int {
    // SAFETY: takes only a number; any value is valid.
    unsafe { call(libc::SYS_close, arguments([c_long::from(descriptor)])) as c_int }
}

pub(crate) fn close_on_exec(descriptor: c_int) {
    let given = [c_long::from(descriptor), c_long::from(libc::F_SETFD), c_long::from(libc::FD_CLOEXEC)];
    // SAFETY: takes only numbers; any values are valid.
    unsafe { call(libc::SYS_fcntl, arguments(given)) };
}

/// Device and inode of an open file; zeros if it is not open.
pub(crate) fn identity(descriptor: c_int) -> (u64, u64) {
    status(descriptor).map_or((0, 0), |status| (status.st_dev, status.st_ino))
}

/// Device and inode of what a path names, following symbolic links.
pub(crate) fn identity_of_path(path: &CStr) -> Option<(u64, u64)> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let given = [c_long::from(libc::AT_FDCWD), address(path.as_ptr()), address(status.as_mut_ptr()), 0];
    // SAFETY: a C string, and a structure that the kernel fills, whose layout on 64-bit Linux is libc's.
    let answer = unsafe { trap(libc::SYS_newfstatat, arguments(given)) };
    // SAFETY: zeroed, which is a valid value, and then filled by the kernel.
    let status = unsafe { status.assume_init() };
    (answer == 0).then_some((status.st_dev, status.st_ino))
}

/// The process ID; the C library's function is as fast.
pub(crate) fn process_id() -> c_int {
    // SAFETY: takes no argument.
    unsafe { trap(libc::SYS_getpid, [0; 6]) as c_int }
}

/// Whether two processes share their memory. `None` if that cannot be told.
pub(crate) fn shares_memory(one: c_int, other: c_int) -> Option<bool> {
    // `KCMP_VM`.
    const MEMORY: c_long = 1;
    const NO_PROCESS: c_long = -(libc::ESRCH as c_long);
    let given = arguments([c_long::from(one), c_long::from(other), MEMORY]);
    // SAFETY: takes only numbers; any values are valid.
    match unsafe { trap(libc::SYS_kcmp, given) } {
        0 => Some(true),
        1..=3 | NO_PROCESS => Some(false),
        // Containers may forbid the call. A process that is gone shares nothing.
        // SAFETY: as above; signal 0 only checks.
        _ => match unsafe { trap(libc::SYS_kill, arguments([c_long::from(other), 0])) } {
            NO_PROCESS => Some(false),
            _ => None,
        },
    }
}

/// Sleeps for less than a second.
pub(crate) fn sleep(nanoseconds: i64) {
    let time = libc::timespec { tv_sec: 0, tv_nsec: nanoseconds };
    // SAFETY: a structure with the layout that the kernel reads on 64-bit Linux; the remaining time is not asked for.
    unsafe { trap(libc::SYS_nanosleep, arguments([address(&raw const time)])) };
}

/// The flags of an open file, as `F_GETFL` returns them.
pub(crate) fn flags(descriptor: c_int) -> Result<c_int, Errno> {
    let given = arguments([c_long::from(descriptor), c_long::from(libc::F_GETFL)]);
    // SAFETY: takes only numbers; any values are valid.
    let answer = unsafe { trap(libc::SYS_fcntl, given) };
    if answer < 0 { Err(Errno(-answer as c_int)) } else { Ok(answer as c_int) }
}

pub(crate) fn set_flags(descriptor: c_int, flags: c_int) {
    let given = arguments([c_long::from(descriptor), c_long::from(libc::F_SETFL), c_long::from(flags)]);
    // SAFETY: takes only numbers; any values are valid. Fails only if the descriptor is not open.
    unsafe { trap(libc::SYS_fcntl, given) };
}

pub(crate) fn status(descriptor: c_int) -> Result<libc::stat, Errno> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let given = [c_long::from(descriptor), address(status.as_mut_ptr().cast::<c_void>())];
    // SAFETY: the kernel fills the structure, whose layout on 64-bit Linux is libc's.
    let answer = unsafe { call(libc::SYS_fstat, arguments(given)) };
    if answer < 0 {
        return Err(errno());
    }
    // SAFETY: zeroed, which is a valid value, and then filled by the kernel.
    Ok(unsafe { status.assume_init() })
}

pub(crate) fn lseek(descriptor: c_int, offset: i64, whence: c_int) -> i64 {
    // SAFETY: takes only numbers; any values are valid.
    unsafe { call(libc::SYS_lseek, arguments([c_long::from(descriptor), offset, c_long::from(whence)])) }
}

/// The target of a symbolic link.
pub(crate) fn readlink<'a>(path: &CStr, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
    let given = [
        c_long::from(libc::AT_FDCWD),
        address(path.as_ptr()),
        address(bytes.as_mut_ptr()),
        bytes.len() as c_long,
    ];
    // SAFETY: a C string, and a buffer with its length; both live until the call returns.
    let count = unsafe { call(libc::SYS_readlinkat, arguments(given)) };
    bytes.get(..usize::try_from(count).ok()?)
}

pub(crate) fn working_directory(bytes: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: a buffer with its length, which lives until the call returns.
    let count =
        unsafe { call(libc::SYS_getcwd, arguments([address(bytes.as_mut_ptr()), bytes.len() as c_long])) };
    // The count includes the NUL.
    bytes.get(..usize::try_from(count).ok()?.checked_sub(1)?)
}

/// Writes to standard error, ignoring errors.
pub(crate) fn print_error(parts: &[&[u8]]) {
    for part in parts {
        let given = [c_long::from(libc::STDERR_FILENO), address(part.as_ptr()), part.len() as c_long];
        // SAFETY: a buffer with its length, which is only read.
        unsafe { call(libc::SYS_write, arguments(given)) };
    }
}

/// Exits the process without running exit handlers.
pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: takes a number and does not return.
    unsafe { libc::_exit(status) }
}

/// Exits the process after its exit handlers. The state must not be locked.
pub(crate) fn exit_with_handlers(status: c_int) -> ! {
    // SAFETY: takes a number and does not return. The exit handlers are the program's own.
    unsafe { libc::exit(status) }
}

/// An open file, as ciphertext.
pub(crate) struct Descriptor(pub(crate) c_int);

impl Storage for Descriptor {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let given =
            [c_long::from(self.0), address(bytes.as_mut_ptr()), bytes.len() as c_long, offset as c_long];
        // SAFETY: an exclusively borrowed buffer with its length.
        let count = unsafe { call(libc::SYS_pread64, arguments(given)) };
        usize::try_from(count).map_err(|_| errno())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<usize, Errno> {
        let given = [c_long::from(self.0), address(bytes.as_ptr()), bytes.len() as c_long, offset as c_long];
        // SAFETY: a buffer with its length, which is only read.
        let count = unsafe { call(libc::SYS_pwrite64, arguments(given)) };
        usize::try_from(count).map_err(|_| errno())
    }

    fn size(&self) -> Result<u64, Errno> {
        status(self.0).map(|status| status.st_size as u64)
    }

    fn set_size(&self, size: u64) -> Result<(), Errno> {
        // SAFETY: takes only numbers; any values are valid.
        let answer = unsafe { call(libc::SYS_ftruncate, arguments([c_long::from(self.0), size as c_long])) };
        if answer < 0 { Err(errno()) } else { Ok(()) }
    }
}
