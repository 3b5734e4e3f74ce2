//! Entry points that read and write.

#![expect(unsafe_code, reason = "replaces functions of the C library, which take pointers")]

use ciphertoll_tde::{Errno, Storage};
use libc::{c_int, c_long, c_void, iovec, size_t, ssize_t};

use crate::memory::{CallerBuffers, piece, pieces, read_buffer};
use crate::process::{guard, is_tracked, with_file};
use crate::raw::{self, Descriptor, address, arguments};

const NOT_OPEN: Errno = Errno(libc::EBADF);
const INVALID: Errno = Errno(libc::EINVAL);

#[derive(Clone, Copy)]
enum Position {
    Offset(i64),
    /// The current file position, which the transfer then moves.
    Current,
}

fn to_c_result(result: Option<Result<usize, Errno>>) -> ssize_t {
    match result.unwrap_or(Err(NOT_OPEN)) {
        Ok(count) => count as ssize_t,
        Err(error) => raw::fail(error) as ssize_t,
    }
}

fn start_offset(at: Position, descriptor: c_int, whence: c_int) -> Result<u64, Errno> {
    let offset = match at {
        Position::Offset(offset) => offset,
        Position::Current => raw::lseek(descriptor, 0, whence),
    };
    u64::try_from(offset).map_err(|_| if matches!(at, Position::Offset(_)) { INVALID } else { raw::errno() })
}

fn move_position(at: Position, descriptor: c_int, offset: u64) {
    if matches!(at, Position::Current) {
        raw::lseek(descriptor, offset as i64, libc::SEEK_SET);
    }
}

/// # Safety
/// Each piece must be writable and not used elsewhere until this returns.
unsafe fn read_into(descriptor: c_int, pieces: &[iovec], at: Position) -> ssize_t {
    guard(|| {
        to_c_result(with_file(descriptor, |engine, file| {
            let start = start_offset(at, descriptor, libc::SEEK_CUR)?;
            let mut done = 0;
            for piece in pieces {
                // SAFETY: the caller's promise.
                let bytes = unsafe { read_buffer(piece) };
                let storage = Descriptor(descriptor);
                match engine.read_at(&mut file.opened, &storage, bytes, start + done as u64) {
                    Ok(count) => {
                        done += count;
                        if count < piece.iov_len {
                            break;
                        }
                    }
                    Err(error) if done == 0 => return Err(error),
                    Err(_) => break,
                }
            }
            move_position(at, descriptor, start + done as u64);
            Ok(done)
        }))
    })
}

/// # Safety
/// Each piece must be readable until this returns.
unsafe fn write_from(descriptor: c_int, pieces: &[iovec], at: Position) -> ssize_t {
    // SAFETY: the caller's promise.
    let given = unsafe { CallerBuffers::new(pieces) };
    guard(|| {
        to_c_result(with_file(descriptor, |engine, file| {
            let whence = if file.appends { libc::SEEK_END } else { libc::SEEK_CUR };
            let start = start_offset(at, descriptor, whence)?;
            let done = engine.write_at(&mut file.opened, &Descriptor(descriptor), &given, start)?;
            move_position(at, descriptor, start + done as u64);
            Ok(done)
        }))
    })
}

/// Defines the calls with one buffer.
macro_rules! transfers {
    ($($name:ident($kind:ty $(, $offset:ident)?), $number:ident, $transfer:ident, $position:expr;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            descriptor: c_int,
            bytes: $kind,
            count: size_t
            $(, $offset: i64)?
        ) -> ssize_t {
            if is_tracked(descriptor) {
                // SAFETY: `count` bytes of the caller's memory by the C library's contract.
                return unsafe { $transfer(descriptor, &[piece(bytes, count)], $position) };
            }
            let given = arguments([c_long::from(descriptor), address(bytes), count as c_long $(, $offset)?]);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { raw::call(libc::$number, given) as ssize_t }
        }
    )+};
}

transfers! {
    read(*mut c_void), SYS_read, read_into, Position::Current;
    write(*const c_void), SYS_write, write_from, Position::Current;
    pread(*mut c_void, offset), SYS_pread64, read_into, Position::Offset(offset);
    pread64(*mut c_void, offset), SYS_pread64, read_into, Position::Offset(offset);
    pwrite(*const c_void, offset), SYS_pwrite64, write_from, Position::Offset(offset);
    pwrite64(*const c_void, offset), SYS_pwrite64, write_from, Position::Offset(offset);
}

/// Defines the vectored calls. The kernel takes an offset in two halves; on 64-bit machines the second is not used.
macro_rules! vectored {
    ($($name:ident($($offset:ident)?), $number:ident, $transfer:ident, $position:expr;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(
            descriptor: c_int,
            vector: *const iovec,
            count: c_int
            $(, $offset: i64)?
        ) -> ssize_t {
            if is_tracked(descriptor) {
                // SAFETY: `count` pieces of the caller's memory by the C library's contract.
                return unsafe { $transfer(descriptor, pieces(vector, count), $position) };
            }
            let given = arguments([c_long::from(descriptor), address(vector), c_long::from(count) $(, $offset)?]);
            // SAFETY: the caller's arguments, unchanged.
            unsafe { raw::call(libc::$number, given) as ssize_t }
        }
    )+};
}

vectored! {
    readv(), SYS_readv, read_into, Position::Current;
    writev(), SYS_writev, write_from, Position::Current;
    preadv(offset), SYS_preadv, read_into, Position::Offset(offset);
    preadv64(offset), SYS_preadv, read_into, Position::Offset(offset);
    pwritev(offset), SYS_pwritev, write_from, Position::Offset(offset);
    pwritev64(offset), SYS_pwritev, write_from, Position::Offset(offset);
}

/// Defines the variants that check the size of the buffer.
macro_rules! checked {
    ($($name:ident($($argument:ident: $kind:ty),*) => $call:ident;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(descriptor: c_int, bytes: *mut c_void, count: size_t, $($argument: $kind,)* held: size_t) -> ssize_t {
            if count > held {
                crate::process::die(b"a read beyond its buffer");
            }
            // SAFETY: the caller's arguments, unchanged.
            unsafe { $call(descriptor, bytes, count $(, $argument)*) }
        }
    )+};
}

checked! {
    __read_chk() => read;
    __pread_chk(offset: i64) => pread;
    __pread64_chk(offset: i64) => pread;
}

fn set_size(descriptor: c_int, size: i64) -> Result<(), Errno> {
    let size = u64::try_from(size).map_err(|_| INVALID)?;
    guard(|| {
        with_file(descriptor, |engine, file| engine.set_size(&mut file.opened, &Descriptor(descriptor), size))
    })
    .unwrap_or(Err(NOT_OPEN))
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate(descriptor: c_int, size: i64) -> c_int {
    if is_tracked(descriptor) {
        return set_size(descriptor, size).map_or_else(raw::fail, |()| 0);
    }
    // SAFETY: takes only numbers; any values are valid.
    unsafe { raw::call(libc::SYS_ftruncate, arguments([c_long::from(descriptor), size])) as c_int }
}

fn raw_fallocate(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int {
    let given = arguments([c_long::from(descriptor), c_long::from(mode), offset, length]);
    // SAFETY: takes only numbers; any values are valid.
    unsafe { raw::call(libc::SYS_fallocate, given) as c_int }
}

/// Allocates space for an encrypted file. If it extends the file, a short last unit must be encrypted again first.
fn allocate(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> Result<(), Errno> {
    let kept = libc::FALLOC_FL_KEEP_SIZE;
    if mode & !kept != 0 {
        // Holes within units and moved units would decrypt to garbage.
        return Err(Errno(libc::EOPNOTSUPP));
    }
    let end = offset.checked_add(length).filter(|_| offset >= 0 && length > 0).ok_or(INVALID)?;
    if mode & kept == 0 && end as u64 > Descriptor(descriptor).size()? {
        set_size(descriptor, end)?;
    }
    if raw_fallocate(descriptor, mode, offset, length) < 0 { Err(raw::errno()) } else { Ok(()) }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int {
    if is_tracked(descriptor) {
        return allocate(descriptor, mode, offset, length).map_or_else(raw::fail, |()| 0);
    }
    raw_fallocate(descriptor, mode, offset, length)
}

/// Unlike the other calls, this one returns the error number. It has no fallback for file systems without the call: the C
/// library would bypass this library, and uses its fallback only for shared memory.
// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(descriptor: c_int, offset: i64, length: i64) -> c_int {
    if is_tracked(descriptor) {
        return allocate(descriptor, 0, offset, length).map_or_else(|error| error.0, |()| 0);
    }
    if raw_fallocate(descriptor, 0, offset, length) < 0 { raw::errno().0 } else { 0 }
}

aliases! {
    ftruncate64(descriptor: c_int, size: i64) -> c_int = ftruncate;
    fallocate64(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int = fallocate;
    posix_fallocate64(descriptor: c_int, offset: i64, length: i64) -> c_int = posix_fallocate;
}
