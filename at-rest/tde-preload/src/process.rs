//! State of this process: keys, ciphers, and a table of what its descriptors are.
//!
//! The table is a cache. Which file a descriptor is, only the kernel knows ([`identity`]). An entry that is missing costs a
//! look-up, and so every call that may close a descriptor forgets its entry. An entry is stored only by the process that
//! owns the table:
//!
//! - A child that shares this memory (`vfork`) has descriptors of its own. It forgets entries, which is harmless, and
//!   neither stores nor uses any. As soon as it changes a descriptor, it also makes its parent check for each call which
//!   of them makes it ([`TableMode`]).
//! - A child with a copy of the memory (`fork`) owns the copy.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, TryLockError};

use ciphertoll_tde::{EncryptionEngine, Errno};
use libc::{c_int, c_uint};

use crate::handshake::Handshake;
use crate::identity::{self, ProcessCluster, TrackedFile};
use crate::paths::ClusterDirectory;
use crate::program::ProgramRole;
use crate::raw;

/// Larger descriptors are looked up for each call. The default of `max_files_per_process` is 1000.
const MOST_DESCRIPTORS: usize = 16_384;
/// Attempts to lock the state. After these, the holder must be this thread itself, interrupted by a signal.
const MOST_TURNS: u32 = 10_000_000;
/// Exit status after an internal error. A server treats any status above 1 as a crash, and recovers.
pub(crate) const CRASH_STATUS: c_int = 99;
/// Exit status after a refusal; the same as that of a server that cannot start.
pub(crate) const REFUSAL_STATUS: c_int = 1;
const NOT_OPEN: Errno = Errno(libc::EBADF);

static PROCESS: Process = Process {
    mode: AtomicI32::new(TableMode::INACTIVE),
    owner: AtomicI32::new(0),
    entries: [const { AtomicU32::new(0) }; MOST_DESCRIPTORS],
    cluster: OnceLock::new(),
    state: Mutex::new(None),
};

struct Process {
    mode: AtomicI32,
    /// The ID of the process that owns the table.
    owner: AtomicI32,
    /// What each descriptor is ([`Entry`]). Every call checks this without the lock, because most reads are from sockets.
    entries: [AtomicU32; MOST_DESCRIPTORS],
    cluster: OnceLock<ProcessCluster>,
    state: Mutex<Option<ProcessState>>,
}

/// Whether the table can be used; a number, because every call reads it. Positive: the ID of another process that shares
/// this memory and has other descriptors.
struct TableMode;

impl TableMode {
    const OWNED: i32 = 0;
    /// The library does nothing.
    const INACTIVE: i32 = -1;
    /// Several other processes share this memory.
    const SHARED: i32 = -2;
    /// Every call looks its descriptor up: threads have different descriptors.
    const UNUSED: i32 = -3;
}

/// What the table knows of a descriptor, and how often that was forgotten, so that a look-up that is overtaken by a close
/// stores nothing.
struct Entry;

impl Entry {
    const UNKNOWN: u32 = 0;
    const PLAIN: u32 = 1;
    const ENCRYPTED: u32 = 2;
    const KINDS: u32 = 3;

    fn next(entry: u32, kind: u32) -> u32 {
        (entry | Self::KINDS).wrapping_add(1) | kind
    }
}

pub(crate) struct ProcessState {
    pub(crate) engine: EncryptionEngine,
    pub(crate) handshake: Handshake,
    files: Box<[Option<TrackedFile>]>,
}

/// What a call must do with a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DescriptorKind {
    /// Not an encrypted file: pass the call on.
    Plain,
    Encrypted,
    /// It cannot be told, or the file must not be used: fail with this error.
    Refused(Errno),
}

/// Whether the table is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Caching {
    On,
    /// For tests: everything must work without the table.
    Off,
}

/// Sets the state. From now on, calls are intercepted.
pub(crate) fn activate(
    engine: EncryptionEngine,
    directory: ClusterDirectory,
    program: ProgramRole,
    handshake: Handshake,
    caching: Caching,
) {
    let files = vec![None; MOST_DESCRIPTORS].into_boxed_slice();
    if PROCESS.cluster.set(ProcessCluster { directory, program }).is_err() {
        die(b"started twice");
    }
    *lock() = Some(ProcessState { engine, handshake, files });
    PROCESS.owner.store(raw::process_id(), Ordering::SeqCst);
    let mode = match caching {
        Caching::On => TableMode::OWNED,
        Caching::Off => TableMode::UNUSED,
    };
    PROCESS.mode.store(mode, Ordering::SeqCst);
    // Later, a signal handler may write to a log, and must not allocate.
    for descriptor in 0..=libc::STDERR_FILENO {
        kind(descriptor);
    }
}

/// Whether calls are intercepted.
pub(crate) fn is_active() -> bool {
    PROCESS.mode.load(Ordering::Relaxed) != TableMode::INACTIVE
}

/// The cluster and the role of this process. `None` if calls are not intercepted.
pub(crate) fn cluster() -> Option<&'static ProcessCluster> {
    if is_active() { PROCESS.cluster.get() } else { None }
}

/// A child with a copy of the memory owns the copy. Called by `fork`.
pub(crate) fn adopt() {
    PROCESS.owner.store(raw::process_id(), Ordering::SeqCst);
    let mode = PROCESS.mode.load(Ordering::SeqCst);
    if mode != TableMode::INACTIVE && mode != TableMode::UNUSED {
        PROCESS.mode.store(TableMode::OWNED, Ordering::SeqCst);
    }
}

/// From now on, threads of this process may have different descriptors.
pub(crate) fn stop_caching() {
    if is_active() {
        PROCESS.mode.store(TableMode::UNUSED, Ordering::SeqCst);
    }
}

/// What a descriptor is. A known one costs no system call.
#[inline]
pub(crate) fn kind(descriptor: c_int) -> DescriptorKind {
    match known(descriptor) {
        Entry::PLAIN => DescriptorKind::Plain,
        Entry::ENCRYPTED => DescriptorKind::Encrypted,
        _ => look_up(descriptor),
    }
}

/// Whether a descriptor is certainly not an encrypted file; everything else must be treated with care.
pub(crate) fn is_plain(descriptor: c_int) -> bool {
    kind(descriptor) == DescriptorKind::Plain
}

/// What the table knows of a descriptor, if this process may use the table.
#[inline]
fn known(descriptor: c_int) -> u32 {
    let mode = PROCESS.mode.load(Ordering::Relaxed);
    if mode != TableMode::OWNED && !may_use_table(mode) {
        return if mode == TableMode::INACTIVE { Entry::PLAIN } else { Entry::UNKNOWN };
    }
    entry(descriptor).map_or(Entry::UNKNOWN, |entry| entry.load(Ordering::Acquire) & Entry::KINDS)
}

fn entry(descriptor: c_int) -> Option<&'static AtomicU32> {
    PROCESS.entries.get(usize::try_from(descriptor).ok()?)
}

#[cold]
fn may_use_table(mode: i32) -> bool {
    if matches!(mode, TableMode::INACTIVE | TableMode::UNUSED) || !owns_table() {
        return false;
    }
    // The other process may have ended or executed a program meanwhile.
    if mode > 0 && raw::shares_memory(raw::process_id(), mode) == Some(false) {
        let owned = TableMode::OWNED;
        // An error means that yet another process shares the memory.
        let _ = PROCESS.mode.compare_exchange(mode, owned, Ordering::SeqCst, Ordering::SeqCst);
    }
    true
}

/// Whether this process owns the table. If not, the owner is made to check from now on. Every call that may change a
/// descriptor calls this first.
pub(crate) fn owns_table() -> bool {
    let own = raw::process_id();
    if own == PROCESS.owner.load(Ordering::Relaxed) {
        return true;
    }
    // The closure returns a mode unless this process is already known.
    let _ = PROCESS.mode.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |mode| match mode {
        TableMode::OWNED => Some(own),
        1.. if mode != own => Some(TableMode::SHARED),
        _ => None,
    });
    false
}

/// The encrypted file that a descriptor is, as the kernel says. `None` if calls are not intercepted.
pub(crate) fn examine(descriptor: c_int) -> Result<Option<TrackedFile>, Errno> {
    cluster().map_or(Ok(None), |cluster| identity::examine(cluster, descriptor))
}

#[cold]
#[inline(never)]
fn look_up(descriptor: c_int) -> DescriptorKind {
    let errno = raw::errno();
    let found = guard(|| {
        let before = entry(descriptor).map(|entry| entry.load(Ordering::Acquire));
        let found = examine(descriptor);
        if let (Ok(file), Some(before)) = (&found, before) {
            store(descriptor, before, *file);
        }
        found
    });
    raw::fail(errno);
    match found {
        Ok(None) => DescriptorKind::Plain,
        Ok(Some(_)) => DescriptorKind::Encrypted,
        Err(error) => DescriptorKind::Refused(error),
    }
}

/// Stores the result of a look-up, unless the descriptor was forgotten meanwhile.
fn store(descriptor: c_int, before: u32, file: Option<TrackedFile>) {
    let mode = PROCESS.mode.load(Ordering::SeqCst);
    if before & Entry::KINDS != Entry::UNKNOWN || mode != TableMode::OWNED || !owns_table() {
        return;
    }
    let Some(entry) = entry(descriptor) else { return };
    let set = |kind| entry.compare_exchange(before, before | kind, Ordering::SeqCst, Ordering::SeqCst);
    // An error means that it was forgotten.
    let _ = match file {
        None => set(Entry::PLAIN),
        Some(file) => {
            let mut state = lock();
            let slot =
                state.as_mut().and_then(|state| state.files.get_mut(usize::try_from(descriptor).ok()?));
            // Under the lock, an unknown entry cannot become another file's.
            if entry.load(Ordering::SeqCst) != before {
                return;
            }
            let Some(slot) = slot else { return };
            *slot = Some(file);
            set(Entry::ENCRYPTED)
        }
    };
}

/// Remembers a descriptor that the kernel has just opened as this file.
pub(crate) fn remember(descriptor: c_int, file: TrackedFile) {
    forget(descriptor);
    if let Some(before) = entry(descriptor).map(|entry| entry.load(Ordering::Acquire)) {
        store(descriptor, before, Some(file));
    }
}

/// Forgets a descriptor that may be closed or replaced. Must be called before the kernel does it, and is harmless
/// otherwise: the next call looks the descriptor up.
pub(crate) fn forget(descriptor: c_int) {
    if is_active() {
        owns_table();
        forget_entry(descriptor);
    }
}

fn forget_entry(descriptor: c_int) {
    if let Some(entry) = entry(descriptor) {
        let next = |entry| Some(Entry::next(entry, Entry::UNKNOWN));
        // Cannot fail: the closure always returns a value.
        let _ = entry.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    }
}

/// Forgets a range of descriptors, as [`forget`] does.
pub(crate) fn forget_range(first: c_uint, last: c_uint) {
    if is_active() {
        owns_table();
        let end = last.saturating_add(1).min(MOST_DESCRIPTORS as c_uint);
        (first..end).for_each(|descriptor| forget_entry(descriptor as c_int));
    }
}

/// Locks the state for `action`. `None` if it is not set.
pub(crate) fn with_state<T>(action: impl FnOnce(&mut ProcessState) -> T) -> Option<T> {
    if !is_active() {
        return None;
    }
    lock().as_mut().map(action)
}

/// Locks the state for an action on an encrypted file. Fails if the descriptor is not one.
pub(crate) fn with_file<T>(
    descriptor: c_int,
    action: impl FnOnce(&mut EncryptionEngine, &mut TrackedFile) -> T,
) -> Result<T, Errno> {
    let mut state = lock();
    if known(descriptor) == Entry::ENCRYPTED
        && let Some(ProcessState { engine, files, .. }) = state.as_mut()
        && let Some(file) = usize::try_from(descriptor).ok().and_then(|at| files.get_mut(at)?.as_mut())
    {
        return Ok(action(engine, file));
    }
    drop(state);
    let mut file = examine(descriptor)?.ok_or(NOT_OPEN)?;
    with_state(|state| action(&mut state.engine, &mut file)).ok_or(NOT_OPEN)
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
