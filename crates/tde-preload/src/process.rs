//! What this process knows: keys, ciphers, and which of its descriptors are encrypted files.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

use ciphertoll_tde::{EncryptionEngine, OpenFile};
use libc::c_int;

use crate::handshake::Handshake;
use crate::paths::ClusterDirectory;
use crate::program::ProgramRole;
use crate::raw;

/// Descriptors beyond cannot be encrypted files. `max_files_per_process` is 1000 unless somebody raised it.
const MOST_DESCRIPTORS: usize = 16_384;
/// How often another thread is waited for before it is taken for this one, interrupted by a signal.
const MOST_TURNS: u32 = 10_000_000;
/// How a process ends that must not go on. A server takes any status beyond 1 for a crash, and recovers.
pub(crate) const CRASH_STATUS: c_int = 99;
/// A server that says in its own way why it does not start ends with this status, too.
pub(crate) const REFUSAL_STATUS: c_int = 1;

static PROCESS: Process = Process {
    is_active: AtomicBool::new(false),
    tracked: [const { AtomicBool::new(false) }; MOST_DESCRIPTORS],
    state: Mutex::new(None),
};

struct Process {
    /// Whether there are keys.
    is_active: AtomicBool,
    /// Looked at by every call, and so beside the lock: almost all descriptors that are read are sockets.
    tracked: [AtomicBool; MOST_DESCRIPTORS],
    state: Mutex<Option<ProcessState>>,
}

/// What is there once there are keys.
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
    /// Whether all that is written goes to its end. The kernel is not asked to: it would ignore offsets.
    pub(crate) appends: bool,
}

/// Keys are there: from now on calls are looked at.
pub(crate) fn begin(engine: EncryptionEngine, cluster: ClusterDirectory, program: ProgramRole, handshake: Handshake) {
    let files = vec![None; MOST_DESCRIPTORS].into_boxed_slice();
    *lock() = Some(ProcessState { engine, cluster, program, handshake, files });
    PROCESS.is_active.store(true, Ordering::Relaxed);
}

/// Whether calls are looked at.
pub(crate) fn is_active() -> bool {
    PROCESS.is_active.load(Ordering::Relaxed)
}

/// Whether a descriptor is an encrypted file.
pub(crate) fn is_tracked(descriptor: c_int) -> bool {
    flag(descriptor).is_some_and(|flag| flag.load(Ordering::Relaxed))
}

/// Does something with the state; `None` where there is none.
pub(crate) fn with_state<T>(action: impl FnOnce(&mut ProcessState) -> T) -> Option<T> {
    if !is_active() {
        return None;
    }
    lock().as_mut().map(action)
}

/// Does something with an encrypted file; `None` where the descriptor is none.
pub(crate) fn with_file<T>(descriptor: c_int, action: impl FnOnce(&mut EncryptionEngine, &mut TrackedFile) -> T) -> Option<T> {
    with_state(|state| {
        let file = state.files.get_mut(usize::try_from(descriptor).ok()?)?.as_mut()?;
        Some(action(&mut state.engine, file))
    })?
}

/// From now on a descriptor is this file, or none of ours. Says whether there was a place for it.
pub(crate) fn set(descriptor: c_int, file: Option<TrackedFile>) -> bool {
    let Some(flag) = flag(descriptor) else { return file.is_none() };
    // Most descriptors are none of ours, before and after.
    if file.is_none() && !flag.load(Ordering::Relaxed) {
        return true;
    }
    let class = with_state(|state| {
        *state.files.get_mut(usize::try_from(descriptor).ok()?)? = file;
        Some(())
    });
    flag.store(file.is_some(), Ordering::Relaxed);
    class.flatten().is_some()
}

/// One descriptor has become another, too.
pub(crate) fn copy(from: c_int, to: c_int) -> bool {
    let file = if is_tracked(from) { with_file(from, |_, file| *file) } else { None };
    set(to, file)
}

/// How many descriptors can be encrypted files.
pub(crate) const fn most_descriptors() -> c_int {
    MOST_DESCRIPTORS as c_int
}

/// Runs an entry point: a panic ends the process, since what called it cannot be unwound.
pub(crate) fn guard<T>(entry: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(entry))
        .unwrap_or_else(|_| die(b"a defect of this library; please report it"))
}

/// Ends the process, so that its server recovers.
pub(crate) fn die(why: &[u8]) -> ! {
    raw::say(&[b"ciphertoll-tde: ", why, b"\n"]);
    raw::exit(CRASH_STATUS)
}

fn flag(descriptor: c_int) -> Option<&'static AtomicBool> {
    PROCESS.tracked.get(usize::try_from(descriptor).ok()?)
}

/// PostgreSQL's processes have one thread: whoever has the lock is this thread, which a signal has interrupted, or one of
/// an extension, which will soon give it back.
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
