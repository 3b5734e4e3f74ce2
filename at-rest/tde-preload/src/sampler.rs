//! Reads back some of what was written, as it is on disk, and ends the process at the first plaintext.
//!
//! Of the writes to encrypted files, every process checks its first one and then one in [`Sampler::interval`]: what was
//! just written, and another unit of the same file, because plaintext may have been written past this library. Of the other
//! writes it checks as many: whether the kernel says, too, that the file is not an encrypted one.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ciphertoll_tde::verify::is_plaintext;
use ciphertoll_tde::{FileClass, Storage, UNIT_BYTES, WriteSource, begins_history};
use libc::c_int;

use crate::paths::{MAX_PATH, path_of};
use crate::process::{self, CRASH_STATUS};
use crate::raw::{self, Descriptor};

/// One in so many writes is checked, if nothing else is set.
pub(crate) const DEFAULT_INTERVAL: u32 = 1000;
/// How often a unit that looks like plaintext is read again: another process may be writing it.
const ATTEMPTS: u32 = 20;
/// The pause before it is read again.
const PAUSE_NS: i64 = 2_000_000;
const BLOCK_BYTES: usize = 16;

static SAMPLER: Sampler = Sampler {
    interval: AtomicU32::new(0),
    encrypted: AtomicU32::new(1),
    other: AtomicU32::new(1),
    random: AtomicU64::new(0),
};

struct Sampler {
    /// 0: nothing is checked.
    interval: AtomicU32,
    /// Writes to encrypted files until the next check.
    encrypted: AtomicU32,
    /// The same for other descriptors.
    other: AtomicU32,
    random: AtomicU64,
}

/// A buffer that direct I/O accepts.
#[repr(align(4096))]
struct StoredUnit([u8; UNIT_BYTES]);

/// Sets the interval; 0 checks nothing.
pub(crate) fn set_interval(interval: u32) {
    SAMPLER.interval.store(interval, Ordering::Relaxed);
}

/// A new process checks its own first write.
pub(crate) fn restart() {
    SAMPLER.encrypted.store(1, Ordering::Relaxed);
    SAMPLER.other.store(1, Ordering::Relaxed);
}

/// Counts down. Threads may count a write twice or not at all, which does not matter.
#[inline]
fn is_due(count: &AtomicU32) -> bool {
    let left = count.load(Ordering::Relaxed);
    if left > 1 {
        count.store(left - 1, Ordering::Relaxed);
        return false;
    }
    let interval = SAMPLER.interval.load(Ordering::Relaxed);
    count.store(interval, Ordering::Relaxed);
    interval > 0
}

/// Called after a write to an encrypted file.
#[inline]
pub(crate) fn wrote_encrypted(descriptor: c_int, class: FileClass, given: &impl WriteSource, start: u64) {
    if is_due(&SAMPLER.encrypted) {
        let errno = raw::errno();
        if !is_history(descriptor, class) {
            check_written(descriptor, class, given, start);
            check_another(descriptor, class, start);
        }
        raw::fail(errno);
    }
}

/// Called after a write by a descriptor that is not that of an encrypted file. Signal handlers write to the standard streams,
/// and must not allocate.
#[inline]
pub(crate) fn wrote_other(descriptor: c_int) {
    if descriptor > libc::STDERR_FILENO && is_due(&SAMPLER.other) {
        let errno = raw::errno();
        if matches!(process::examine(descriptor), Ok(Some(_))) {
            stop(descriptor, raw::lseek(descriptor, 0, libc::SEEK_CUR).max(0) as u64);
        }
        raw::fail(errno);
    }
}

/// Whether this is a history file that still has the name `xlogtemp.PID`: text.
fn is_history(descriptor: c_int, class: FileClass) -> bool {
    let mut start = [0; 2];
    class == FileClass::XlogTemp
        && Descriptor(descriptor).read_at(&mut start, 0).is_ok()
        && begins_history(start)
}

#[cold]
#[inline(never)]
fn check_written(descriptor: c_int, class: FileClass, given: &impl WriteSource, start: u64) {
    let unit = class.unit_bytes() as u64;
    let offset = start - start % unit;
    let mut stored = StoredUnit([0; UNIT_BYTES]);
    // The unencrypted header of a WAL page is not compared.
    let clear = if matches!(class, FileClass::Wal | FileClass::XlogTemp) { BLOCK_BYTES as u64 } else { 0 };
    let is_given = |stored: &[u8]| {
        let mut written = [0; BLOCK_BYTES];
        (start.next_multiple_of(BLOCK_BYTES as u64)..offset + unit).step_by(BLOCK_BYTES).any(|at| {
            let (from, within) = ((at - start) as usize, (at - offset) as usize);
            if from + BLOCK_BYTES > given.len() || within < clear as usize {
                return false;
            }
            given.copy_to(from, &mut written);
            written != [0; BLOCK_BYTES] && stored.get(within..within + BLOCK_BYTES) == Some(&written[..])
        })
    };
    // A sealed file is checked when it is read, and `xlogtemp.PID` may be text.
    let is_exempt = matches!(class, FileClass::Control | FileClass::Version | FileClass::XlogTemp);
    confirm(descriptor, offset, unit as usize, &mut stored, |stored| {
        is_plaintext(class, stored) || (!is_exempt && is_given(stored))
    });
}

/// Checks a random unit of the file.
#[cold]
#[inline(never)]
fn check_another(descriptor: c_int, class: FileClass, start: u64) {
    let unit = class.unit_bytes() as u64;
    let Ok(size) = Descriptor(descriptor).size() else { return };
    let units = size / unit;
    if units == 0 {
        return;
    }
    let random = next_random(start);
    let mut stored = StoredUnit([0; UNIT_BYTES]);
    let offset = random % units * unit;
    confirm(descriptor, offset, unit as usize, &mut stored, |stored| is_plaintext(class, stored));
}

/// `SplitMix64`. It need not be unpredictable.
fn next_random(seed: u64) -> u64 {
    let step = 0x9E37_79B9_7F4A_7C15;
    let state =
        SAMPLER.random.fetch_add(step, Ordering::Relaxed).wrapping_add(seed) ^ raw::process_id() as u64;
    let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

/// Reads a unit as it is on disk. Ends the process if it is and stays plaintext.
fn confirm(
    descriptor: c_int,
    offset: u64,
    unit: usize,
    stored: &mut StoredUnit,
    is_plain: impl Fn(&[u8]) -> bool,
) {
    for attempt in 0..ATTEMPTS {
        if attempt > 0 {
            raw::sleep(PAUSE_NS);
        }
        let Ok(count) = Descriptor(descriptor).read_at(&mut stored.0[..unit], offset) else { return };
        if !is_plain(&stored.0[..count]) {
            return;
        }
    }
    stop(descriptor, offset)
}

/// Ends the process like a crash, so that its server ends all sessions.
#[cold]
fn stop(descriptor: c_int, offset: u64) -> ! {
    let mut bytes = [0; MAX_PATH];
    let path = path_of(descriptor, &mut bytes).map_or(b"a file".as_slice(), |path| path.to_bytes());
    let mut digits = [0; 20];
    let number = decimal(offset, &mut digits);
    raw::print_error(&[
        b"ciphertoll-tde: PANIC: plaintext was written to ",
        path,
        b" at or before offset ",
        number,
        b": the server is stopped; run ciphertoll tde verify\n",
    ]);
    raw::exit(CRASH_STATUS)
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 || at == 0 {
            return &digits[at..];
        }
    }
}
