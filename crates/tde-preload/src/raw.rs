//! System calls, made directly: the C library's names for them lead into this library.

#![expect(unsafe_code, reason = "system calls take addresses and numbers")]

use ciphertoll_tde::{Errno, Storage};
use libc::{c_char, c_int, c_long, c_void, mode_t};

/// Makes a system call, and answers as the C library's functions do: what is below 0 left a number in `errno`.
///
/// # Safety
/// The arguments must be what the call takes. Those that it does not take are ignored.
pub(crate) unsafe fn call(number: c_long, arguments: [c_long; 6]) -> c_long {
    let [first, second, third, fourth, fifth, sixth] = arguments;
    // SAFETY: `syscall` passes on what it is given; that it fits is the caller's promise.
    unsafe { libc::syscall(number, first, second, third, fourth, fifth, sixth) }
}

/// Pads with zeros.
pub(crate) fn arguments<const N: usize>(given: [c_long; N]) -> [c_long; 6] {
    std::array::from_fn(|n| given.get(n).copied().unwrap_or(0))
}

/// An address as an argument.
pub(crate) fn address<T>(pointer: *const T) -> c_long {
    pointer.expose_provenance() as c_long
}

/// The last error of this thread.
pub(crate) fn errno() -> Errno {
    // SAFETY: the C library gives every thread a place for it, which is always readable.
    Errno(unsafe { *libc::__errno_location() })
}

/// Leaves an error for the caller of an entry point, and what it answers then.
pub(crate) fn fail(error: Errno) -> c_int {
    // SAFETY: as in `errno`; it is writable, too.
    unsafe { *libc::__errno_location() = error.0 };
    -1
}

/// `openat`.
///
/// # Safety
/// `path` must be a string of C, or an address that the kernel finds to be none.
pub(crate) unsafe fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    let given = arguments([c_long::from(directory), address(path), c_long::from(flags), c_long::from(mode)]);
    // SAFETY: the four arguments of the call; the kernel checks the address.
    unsafe { call(libc::SYS_openat, given) as c_int }
}

/// `close`.
pub(crate) fn close(descriptor: c_int) -> c_int {
    // SAFETY: takes a number, which may be any.
    unsafe { call(libc::SYS_close, arguments([c_long::from(descriptor)])) as c_int }
}

/// The programs that this one starts do not inherit a descriptor.
pub(crate) fn close_on_exec(descriptor: c_int) {
    let given = [c_long::from(descriptor), c_long::from(libc::F_SETFD), c_long::from(libc::FD_CLOEXEC)];
    // SAFETY: takes numbers, which may be any.
    unsafe { call(libc::SYS_fcntl, arguments(given)) };
}

/// Device and inode of an open file; zeros of one that is not open.
pub(crate) fn identity(descriptor: c_int) -> (u64, u64) {
    status(descriptor).map_or((0, 0), |status| (status.st_dev, status.st_ino))
}

fn status(descriptor: c_int) -> Result<libc::stat, Errno> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    let given = [c_long::from(descriptor), address(status.as_mut_ptr().cast::<c_void>())];
    // SAFETY: the kernel fills the structure, whose layout on 64-bit Linux is libc's.
    let answer = unsafe { call(libc::SYS_fstat, arguments(given)) };
    if answer < 0 {
        return Err(errno());
    }
    // SAFETY: zeroed, which is a value of it, and filled by the kernel since.
    Ok(unsafe { status.assume_init() })
}

/// `lseek`.
pub(crate) fn lseek(descriptor: c_int, offset: i64, whence: c_int) -> i64 {
    // SAFETY: takes numbers, which may be any.
    unsafe { call(libc::SYS_lseek, arguments([c_long::from(descriptor), offset, c_long::from(whence)])) }
}

/// The path that a symbolic link leads to, or where the kernel says that something is.
pub(crate) fn readlink<'a>(path: &std::ffi::CStr, bytes: &'a mut [u8]) -> Option<&'a [u8]> {
    let given = [
        c_long::from(libc::AT_FDCWD),
        address(path.as_ptr()),
        address(bytes.as_mut_ptr()),
        bytes.len() as c_long,
    ];
    // SAFETY: a string of C, and a buffer with its length, both of which live until the call returns.
    let count = unsafe { call(libc::SYS_readlinkat, arguments(given)) };
    bytes.get(..usize::try_from(count).ok()?)
}

/// The working directory.
pub(crate) fn working_directory(bytes: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: a buffer with its length, which lives until the call returns.
    let count =
        unsafe { call(libc::SYS_getcwd, arguments([address(bytes.as_mut_ptr()), bytes.len() as c_long])) };
    // The kernel counts the NUL at the end.
    bytes.get(..usize::try_from(count).ok()?.checked_sub(1)?)
}

/// Says a line on standard error, as much of it as goes.
pub(crate) fn say(parts: &[&[u8]]) {
    for part in parts {
        let given = [c_long::from(libc::STDERR_FILENO), address(part.as_ptr()), part.len() as c_long];
        // SAFETY: a buffer with its length, which is only read.
        unsafe { call(libc::SYS_write, arguments(given)) };
    }
}

/// Ends the process at once.
pub(crate) fn exit(status: c_int) -> ! {
    // SAFETY: takes a number and does not return; nothing of this process is looked at any more.
    unsafe { libc::_exit(status) }
}

/// Ends the process after what it wants done then. Nothing of this library may be locked.
pub(crate) fn leave(status: c_int) -> ! {
    // SAFETY: takes a number and does not return. What runs at the end is the program's own.
    unsafe { libc::exit(status) }
}

/// An open file as the kernel has it: ciphertext.
pub(crate) struct Descriptor(pub(crate) c_int);

impl Storage for Descriptor {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, Errno> {
        let given =
            [c_long::from(self.0), address(bytes.as_mut_ptr()), bytes.len() as c_long, offset as c_long];
        // SAFETY: a buffer with its length, which lives until the call returns and is nobody else's meanwhile.
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
        // SAFETY: takes numbers, which may be any.
        let answer = unsafe { call(libc::SYS_ftruncate, arguments([c_long::from(self.0), size as c_long])) };
        if answer < 0 { Err(errno()) } else { Ok(()) }
    }
}
