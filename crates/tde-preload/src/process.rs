//! State of this process: keys, ciphers, and the descriptors of encrypted files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use ciphertoll_tde::{EncryptionEngine, OpenFile};
use libc::c_int;

use crate::handshake::Handshake;
use crate::paths::ClusterDirectory;
use crate::program::ProgramRole;
use crate::raw;

/// Larger descriptors cannot be encrypted files. The default of `max_files_per_process` is 1000.
const MOST_DESCRIPTORS: usize = 16_384;
/// Attempts to lock the state. After these, the holder must be this thread itself, interrupted by a signal.
const MOST_TURNS: u32 = 10_000_000;
/// Exit status after an internal error. A server treats any status above 1 as a crash, and recovers.
pub(crate) const CRASH_STATUS: c_int = 99;
/// Exit status after a refusal; the same as that of a server that cannot start.
pub(crate) const REFUSAL_STATUS: c_int = 1;

static PROCESS: Process = Process {
    is_active: AtomicBool::new(false),
    tracked: [const { AtomicBool::new(false) }; MOST_DESCRIPTORS],
    state: Mutex::new(None),
};

struct Process {
    /// Whether the state is set.
    is_active: AtomicBool,
    /// Which descriptors are encrypted files. Every call checks this without the lock, because most reads are from sockets.
    tracked: [AtomicBool; MOST_DESCRIPTORS],
    state: Mutex<Option<ProcessState>>,
}

pub(crate) struct ProcessState {
    pub(crate) engine: EncryptionEngine,
    pub(crate) cluster: ClusterDirectory,
    pub(crate) program: ProgramRole,
    pub(crate) handshake: Handshake,
    files: Box<[Option<TrackedFile>]>,
}

/// An open file that is encrypted.
#[derive(Clone, Copy)]
pub(crate) struct TrackedFile {
    pub(crate) opened: OpenFile,
    /// Whether the file was opened with `O_APPEND`, which the kernel is not told: it would ignore offsets.
    pub(crate) appends: bool,
}

/// Sets the state. From now on, calls are intercepted.
pub(crate) fn activate(
    engine: EncryptionEngine,
    cluster: ClusterDirectory,
    program: ProgramRole,
    handshake: Handshake,
) {
    let files = vec![None; MOST_DESCRIPTORS].into_boxed_slice();
    *lock() = Some(ProcessState { engine, cluster, program, handshake, files });
    PROCESS.is_active.store(true, Ordering::Relaxed);
}

/// Whether calls are intercepted.
pub(crate) fn is_active() -> bool {
    PROCESS.is_active.load(Ordering::Relaxed)
}

/// Whether a descriptor is an encrypted file.
pub(crate) fn is_tracked(descriptor: c_int) -> bool {
    flag(descriptor).is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Locks the state for `action`. `None` if it is not set.
pub(crate) fn with_state<T>(action: impl FnOnce(&mut ProcessState) -> T) -> Option<T> {
    if !is_active() {
        return None;
    }
    lock().as_mut().map(action)
}

/// Locks the state for an action on an encrypted file. `None` if the descriptor is not one.
pub(crate) fn with_file<T>(
    descriptor: c_int,
    action: impl FnOnce(&mut EncryptionEngine, &mut TrackedFile) -> T,
) -> Option<T> {
    with_state(|state| {
        let file = state.files.get_mut(usize::try_from(descriptor).ok()?)?.as_mut()?;
        Some(action(&mut state.engine, file))
    })?
}

/// Tracks a descriptor as this file, or stops tracking it. Returns whether the descriptor is small enough to be tracked.
pub(crate) fn set(descriptor: c_int, file: Option<TrackedFile>) -> bool {
    let Some(flag) = flag(descriptor) else { return file.is_none() };
    // The common case: the descriptor was not tracked before.
    if file.is_none() && !flag.load(Ordering::Relaxed) {
        return true;
    }
    let is_set = with_state(|state| {
        *state.files.get_mut(usize::try_from(descriptor).ok()?)? = file;
        Some(())
    });
    flag.store(file.is_some(), Ordering::Relaxed);
    is_set.flatten().is_some()
}

/// Tracks `to` as the same file as `from`.
pub(crate) fn copy(from: c_int, to: c_int) -> bool {
    let file = if is_tracked(from) { with_file(from, |_, file| *file) } else { None };
    set(to, file)
}

pub(crate) const fn most_descriptors() -> c_int {
    MOST_DESCRIPTORS as c_int
}

/// Runs an entry point. A panic exits the process, because C code cannot be unwound.
pub(crate) fn guard<T>(entry: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(entry))
        .unwrap_or_else(|_| die(b"a defect of this library; please report it"))
}

/// Exits the process with a status that makes its server recover.
pub(crate) fn die(why: &[u8]) -> ! {
    raw::print_error(&[b"ciphertoll-tde: ", why, b"\n"]);
    raw::exit(CRASH_STATUS)
}

fn flag(descriptor: c_int) -> Option<&'static AtomicBool> {
    PROCESS.tracked.get(usize::try_from(descriptor).ok()?)
}

/// PostgreSQL processes have one thread. If the lock is held, either this thread was interrupted by a signal, or another
/// thread, of an extension, will soon release it.
fn lock() -> MutexGuard<'static, Option<ProcessState>> {
    for _ in 0..MOST_TURNS {
        match PROCESS.state.try_lock() {
            Ok(state) => return state,
            Err(TryLockError::WouldBlock) => std::thread::yield_now(),
            Err(TryLockError::Poisoned(_)) => break,
        }
    }
    die(b"a file call within a file call")
}
