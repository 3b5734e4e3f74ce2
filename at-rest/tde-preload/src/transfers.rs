//! Entry points that read and write.

#![expect(unsafe_code, reason = "replaces functions of the C library, which take pointers")]

use ciphertoll_tde::{Errno, Storage};
use libc::{c_int, c_long, c_void, iovec, size_t, ssize_t};

use crate::identity::TrackedFile;
use crate::memory::{CallerBuffers, piece, pieces, read_buffer};
use crate::process::{DescriptorKind, guard, kind, with_file};
use crate::raw::{self, Descriptor, address, arguments};
use crate::sampler;

const NOT_SUPPORTED: Errno = Errno(libc::EOPNOTSUPP);
const INVALID: Errno = Errno(libc::EINVAL);

#[derive(Clone, Copy)]
enum Position {
    Offset(i64),
    /// The current file position, which the transfer then moves.
    Current,
}

fn to_c_result(result: Result<Result<usize, Errno>, Errno>) -> ssize_t {
    match result.and_then(|result| result) {
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

/// Runs an action that writes at offsets. With `O_APPEND`, the kernel would ignore them. The kernel keeps the flag, because
/// a descriptor that the table forgets must still append.
fn at_offsets<T>(
    descriptor: c_int,
    file: &mut TrackedFile,
    action: impl FnOnce(&mut TrackedFile) -> Result<T, Errno>,
) -> Result<T, Errno> {
    if !file.appends {
        return action(file);
    }
    let flags = raw::flags(descriptor)?;
    raw::set_flags(descriptor, flags & !libc::O_APPEND);
    let result = action(file);
    raw::set_flags(descriptor, flags);
    result
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
            let done = at_offsets(descriptor, file, |file| {
                engine.write_at(&mut file.opened, &Descriptor(descriptor), &given, start)
            })?;
            move_position(at, descriptor, start + done as u64);
            sampler::wrote_encrypted(descriptor, file.opened.class(), &given, start);
            Ok(done)
        }))
    })
}

/// After a read that was passed on.
fn passed_read(_: c_int, answer: c_long) -> ssize_t {
    answer as ssize_t
}

/// After a write that was passed on.
#[inline]
fn passed_write(descriptor: c_int, answer: c_long) -> ssize_t {
    if answer > 0 {
        sampler::wrote_other(descriptor);
    }
    answer as ssize_t
}

/// Defines the calls with one buffer.
macro_rules! transfers {
    ($($name:ident($kind:ty $(, $offset:ident)?), $number:ident, $transfer:ident, $passed:ident, $position:expr;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            descriptor: c_int,
            bytes: $kind,
            count: size_t
            $(, $offset: i64)?
        ) -> ssize_t {
            match kind(descriptor) {
                DescriptorKind::Plain => {}
                DescriptorKind::Encrypted => {
                    // SAFETY: `count` bytes of the caller's memory by the C library's contract.
                    return unsafe { $transfer(descriptor, &[piece(bytes, count)], $position) };
                }
                DescriptorKind::Refused(error) => return raw::fail(error) as ssize_t,
            }
            let given = arguments([c_long::from(descriptor), address(bytes), count as c_long $(, $offset)?]);
            // SAFETY: the caller's arguments, unchanged.
            let answer = unsafe { raw::call(libc::$number, given) };
            $passed(descriptor, answer)
        }
    )+};
}

transfers! {
    read(*mut c_void), SYS_read, read_into, passed_read, Position::Current;
    write(*const c_void), SYS_write, write_from, passed_write, Position::Current;
    pread(*mut c_void, offset), SYS_pread64, read_into, passed_read, Position::Offset(offset);
    pread64(*mut c_void, offset), SYS_pread64, read_into, passed_read, Position::Offset(offset);
    pwrite(*const c_void, offset), SYS_pwrite64, write_from, passed_write, Position::Offset(offset);
    pwrite64(*const c_void, offset), SYS_pwrite64, write_from, passed_write, Position::Offset(offset);
}

/// Defines the vectored calls. The kernel takes an offset in two halves; on 64-bit machines the second is not used.
macro_rules! vectored {
    ($($name:ident($($offset:ident)?), $number:ident, $transfer:ident, $passed:ident, $position:expr;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            descriptor: c_int,
            vector: *const iovec,
            count: c_int
            $(, $offset: i64)?
        ) -> ssize_t {
            match kind(descriptor) {
                DescriptorKind::Plain => {}
                DescriptorKind::Encrypted => {
                    // SAFETY: `count` pieces of the caller's memory by the C library's contract.
                    return unsafe { $transfer(descriptor, pieces(vector, count), $position) };
                }
                DescriptorKind::Refused(error) => return raw::fail(error) as ssize_t,
            }
            let given = arguments([c_long::from(descriptor), address(vector), c_long::from(count) $(, $offset)?]);
            // SAFETY: the caller's arguments, unchanged.
            let answer = unsafe { raw::call(libc::$number, given) };
            $passed(descriptor, answer)
        }
    )+};
}

vectored! {
    readv(), SYS_readv, read_into, passed_read, Position::Current;
    writev(), SYS_writev, write_from, passed_write, Position::Current;
    preadv(offset), SYS_preadv, read_into, passed_read, Position::Offset(offset);
    preadv64(offset), SYS_preadv, read_into, passed_read, Position::Offset(offset);
    pwritev(offset), SYS_pwritev, write_from, passed_write, Position::Offset(offset);
    pwritev64(offset), SYS_pwritev, write_from, passed_write, Position::Offset(offset);
}

/// Defines the vectored calls with flags, which are supported only without any: their callers have a fallback. An offset of
/// -1 stands for the current one.
macro_rules! flagged {
    ($($name:ident, $number:ident, $transfer:ident, $passed:ident;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        pub(crate) unsafe extern "C" fn $name(
            descriptor: c_int,
            vector: *const iovec,
            count: c_int,
            offset: i64,
            flags: c_int,
        ) -> ssize_t {
            match kind(descriptor) {
                DescriptorKind::Plain => {}
                DescriptorKind::Encrypted if flags == 0 => {
                    let position = if offset == -1 { Position::Current } else { Position::Offset(offset) };
                    // SAFETY: `count` pieces of the caller's memory by the C library's contract.
                    return unsafe { $transfer(descriptor, pieces(vector, count), position) };
                }
                DescriptorKind::Encrypted => return raw::fail(NOT_SUPPORTED) as ssize_t,
                DescriptorKind::Refused(error) => return raw::fail(error) as ssize_t,
            }
            let given =
                [c_long::from(descriptor), address(vector), c_long::from(count), offset, 0, c_long::from(flags)];
            // SAFETY: the caller's arguments, unchanged.
            let answer = unsafe { raw::call(libc::$number, given) };
            $passed(descriptor, answer)
        }
    )+};
}

flagged! {
    preadv2, SYS_preadv2, read_into, passed_read;
    preadv64v2, SYS_preadv2, read_into, passed_read;
    pwritev2, SYS_pwritev2, write_from, passed_write;
    pwritev64v2, SYS_pwritev2, write_from, passed_write;
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
        with_file(descriptor, |engine, file| {
            at_offsets(descriptor, file, |file| {
                engine.set_size(&mut file.opened, &Descriptor(descriptor), size)
            })
        })
    })?
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn ftruncate(descriptor: c_int, size: i64) -> c_int {
    match kind(descriptor) {
        // SAFETY: takes only numbers; any values are valid.
        DescriptorKind::Plain => unsafe {
            raw::call(libc::SYS_ftruncate, arguments([c_long::from(descriptor), size])) as c_int
        },
        DescriptorKind::Encrypted => set_size(descriptor, size).map_or_else(raw::fail, |()| 0),
        DescriptorKind::Refused(error) => raw::fail(error),
    }
}

fn raw_fallocate(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> Result<(), Errno> {
    let given = arguments([c_long::from(descriptor), c_long::from(mode), offset, length]);
    // SAFETY: takes only numbers; any values are valid.
    let answer = unsafe { raw::call(libc::SYS_fallocate, given) };
    if answer < 0 { Err(raw::errno()) } else { Ok(()) }
}

/// Allocates space for an encrypted file. On a full disk, the file stays as it was.
fn allocate(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> Result<(), Errno> {
    let kept = libc::FALLOC_FL_KEEP_SIZE;
    if mode & !kept != 0 {
        // Holes within units and moved units would decrypt to garbage.
        return Err(NOT_SUPPORTED);
    }
    let end = offset.checked_add(length).filter(|_| offset >= 0 && length > 0).ok_or(INVALID)?;
    let storage = Descriptor(descriptor);
    let extends = mode & kept == 0 && end as u64 > storage.size()?;
    let stays_valid = !extends
        || guard(|| {
            with_file(descriptor, |_, file| -> Result<bool, Errno> {
                Ok(file.opened.is_whole(storage.size()?) && file.opened.is_whole(end as u64))
            })
        })??;
    if stays_valid {
        return raw_fallocate(descriptor, mode, offset, length);
    }
    // A short last unit must be encrypted again when it grows: only if there is space.
    raw_fallocate(descriptor, mode | kept, offset, length)?;
    set_size(descriptor, end)
}

fn allocate_any(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> Result<(), Errno> {
    match kind(descriptor) {
        DescriptorKind::Plain => raw_fallocate(descriptor, mode, offset, length),
        DescriptorKind::Encrypted => allocate(descriptor, mode, offset, length),
        DescriptorKind::Refused(error) => Err(error),
    }
}

// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn fallocate(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int {
    allocate_any(descriptor, mode, offset, length).map_or_else(raw::fail, |()| 0)
}

/// Unlike the other calls, this one returns the error number. It has no fallback for file systems without the call: the C
/// library would bypass this library, and uses its fallback only for shared memory.
// SAFETY: replaces the C library's function, with its signature.
#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(descriptor: c_int, offset: i64, length: i64) -> c_int {
    allocate_any(descriptor, 0, offset, length).map_or_else(|error| error.0, |()| 0)
}

aliases! {
    ftruncate64(descriptor: c_int, size: i64) -> c_int = ftruncate;
    fallocate64(descriptor: c_int, mode: c_int, offset: i64, length: i64) -> c_int = fallocate;
    posix_fallocate64(descriptor: c_int, offset: i64, length: i64) -> c_int = posix_fallocate;
    __read(descriptor: c_int, bytes: *mut c_void, count: size_t) -> ssize_t = read;
    __write(descriptor: c_int, bytes: *const c_void, count: size_t) -> ssize_t = write;
    __pread64(descriptor: c_int, bytes: *mut c_void, count: size_t, offset: i64) -> ssize_t = pread;
    __pwrite64(descriptor: c_int, bytes: *const c_void, count: size_t, offset: i64) -> ssize_t = pwrite;
}
