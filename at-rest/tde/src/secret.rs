//! Memory for keys: separate pages, excluded from core dumps, locked if the limit permits, wiped when freed.
//!
//! [`SecretBytes`] holds data-encryption keys and key-encryption keys. [`install_allocator`] makes AWS-LC allocate its key
//! schedules here.
//!
//! `mlock` can fail (`RLIMIT_MEMLOCK`), and a child process inherits no locks ([`lock_memory`]).

#![expect(unsafe_code, reason = "maps memory, and AWS-LC allocates through C callbacks")]

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use aws_lc_sys::CRYPTO_set_mem_functions;
use zeroize::Zeroize;

use crate::error::CipherFailed;

/// Slightly more than one cipher cache needs.
const CHUNK_BYTES: usize = 512 * 1024;
/// Slot sizes are multiples of this.
const SLOT_BYTES: usize = 64;
/// AWS-LC requests less for a cipher; larger requests fail.
const LARGEST_SLOT_BYTES: usize = 4096;
/// The header before each slot's content, which has the same alignment.
const HEADER_BYTES: usize = size_of::<Slot>();
/// More than the stack usage of any function that handles keys.
const STACK_BYTES: usize = 16 * 1024;

/// Address and length of all pages with keys in this process.
static PAGES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
static SLOTS: Mutex<SlotAllocator> = Mutex::new(SlotAllocator {
    free: [null_mut(); LARGEST_SLOT_BYTES / SLOT_BYTES],
    chunk: null_mut(),
    left: 0,
});
static INSTALLED: OnceLock<bool> = OnceLock::new();

/// Key bytes in separate pages, initially zero.
pub(crate) struct SecretBytes<const N: usize> {
    bytes: NonNull<[u8; N]>,
}

/// Allocates slots for AWS-LC from chunks that are never unmapped.
struct SlotAllocator {
    /// Free list of each slot size; the header has the address of the next slot.
    free: [*mut Slot; LARGEST_SLOT_BYTES / SLOT_BYTES],
    /// The rest of the last chunk.
    chunk: *mut Slot,
    left: usize,
}

#[repr(C, align(16))]
struct Slot {
    bytes: usize,
    next: *mut Slot,
}

// SAFETY: this value owns the pages, which do not depend on a thread.
unsafe impl<const N: usize> Send for SecretBytes<N> {}
// SAFETY: shared references only read.
unsafe impl<const N: usize> Sync for SecretBytes<N> {}
// SAFETY: the memory does not belong to a thread, and is only used under the lock.
unsafe impl Send for SlotAllocator {}

impl<const N: usize> SecretBytes<N> {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { bytes: map_pages(N)?.cast() })
    }
}

impl<const N: usize> Deref for SecretBytes<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        // SAFETY: at least N mapped bytes, initialised by the kernel, until `drop`.
        unsafe { self.bytes.as_ref() }
    }
}

impl<const N: usize> DerefMut for SecretBytes<N> {
    fn deref_mut(&mut self) -> &mut [u8; N] {
        // SAFETY: as in `deref`; `self` is borrowed exclusively.
        unsafe { self.bytes.as_mut() }
    }
}

impl<const N: usize> Drop for SecretBytes<N> {
    fn drop(&mut self) {
        self.zeroize();
        let address = self.bytes.cast::<c_void>().as_ptr();
        pages().retain(|page| page.0 != address.addr());
        // SAFETY: `map_pages` mapped these pages for this value, which is being dropped.
        unsafe { libc::munmap(address, N) };
    }
}

/// Locks all pages with keys into memory, if the limit permits. A child process must call this itself, because it does
/// not inherit locks. If another thread is adding pages, that thread locks them.
pub fn lock_memory() {
    if let Ok(pages) = PAGES.try_lock() {
        for &(address, length) in &*pages {
            lock(std::ptr::with_exposed_provenance_mut(address), length);
        }
    }
}

/// Overwrites the part of the stack that earlier calls used, and so their copies of keys.
#[inline(never)]
pub(crate) fn wipe_stack() {
    let mut below = [0_u8; STACK_BYTES];
    std::hint::black_box(&mut below);
}

/// Installs the allocator for AWS-LC. Must be called before any other function of AWS-LC in this process.
pub(crate) fn install_allocator() -> Result<(), CipherFailed> {
    let installed = INSTALLED.get_or_init(|| {
        // SAFETY: the functions implement an allocator. Nothing was allocated with another one before: only `xts` calls
        // AWS-LC, and it calls this function first.
        let result =
            unsafe { CRYPTO_set_mem_functions(Some(allocate_slot), Some(reallocate_slot), Some(free_slot)) };
        result == 1
    });
    if *installed { Ok(()) } else { Err(CipherFailed) }
}

fn pages() -> MutexGuard<'static, Vec<(usize, usize)>> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock(address: *mut c_void, length: usize) {
    // Locks pages only once they are written. A limit that is too low is not an error.
    // SAFETY: the kernel checks address and length; no content changes.
    unsafe { libc::mlock2(address, length, libc::MLOCK_ONFAULT) };
}

/// Maps new pages of zeros.
fn map_pages(length: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: maps new pages, and so affects no existing memory.
    let address = unsafe { libc::mmap(null_mut(), length, protection, flags, -1, 0) };
    if address == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the pages just mapped; the advice changes no content.
    unsafe { libc::madvise(address, length, libc::MADV_DONTDUMP) };
    lock(address, length);
    pages().push((address.expose_provenance(), length));
    NonNull::new(address.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

impl SlotAllocator {
    fn locked() -> MutexGuard<'static, Self> {
        SLOTS.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a slot of `bytes`, a multiple of [`SLOT_BYTES`], including its header; null if out of memory.
    fn take(&mut self, bytes: usize) -> *mut Slot {
        let Some(first) = self.free.get_mut(bytes / SLOT_BYTES - 1) else { return null_mut() };
        let slot = *first;
        if !slot.is_null() {
            // SAFETY: `free_slot` put this unused slot there, with the address of the next.
            *first = unsafe { (*slot).next };
            return slot;
        }
        if self.left < bytes {
            let Ok(chunk) = map_pages(CHUNK_BYTES) else { return null_mut() };
            (self.chunk, self.left) = (chunk.cast().as_ptr(), CHUNK_BYTES);
        }
        let slot = self.chunk;
        // SAFETY: at least `bytes` of the chunk are left and unused. Multiples of 64 from the start of a page are aligned
        // for a header.
        unsafe {
            self.chunk = slot.byte_add(bytes);
            slot.write(Slot { bytes, next: null_mut() });
        }
        self.left -= bytes;
        slot
    }
}

unsafe extern "C" fn allocate_slot(size: usize, _file: *const c_char, _line: c_int) -> *mut c_void {
    if size > LARGEST_SLOT_BYTES - HEADER_BYTES {
        return null_mut();
    }
    let slot = SlotAllocator::locked().take((size + HEADER_BYTES).next_multiple_of(SLOT_BYTES));
    if slot.is_null() {
        return null_mut();
    }
    // SAFETY: the slot is larger than its header.
    unsafe { slot.add(1).cast() }
}

/// # Safety
/// `content` must be null or from [`allocate_slot`], and not freed.
unsafe extern "C" fn free_slot(content: *mut c_void, _file: *const c_char, _line: c_int) {
    if content.is_null() {
        return;
    }
    // SAFETY: by the caller's promise, a header precedes `content`; the slot has the size in the header and is not used
    // any more.
    unsafe {
        let slot = content.cast::<Slot>().sub(1);
        let bytes = (*slot).bytes;
        std::slice::from_raw_parts_mut(content.cast::<u8>(), bytes - HEADER_BYTES).zeroize();
        let mut slots = SlotAllocator::locked();
        if let Some(first) = slots.free.get_mut(bytes / SLOT_BYTES - 1) {
            (*slot).next = *first;
            *first = slot;
        }
    }
}

/// # Safety
/// `content` must be null or from [`allocate_slot`], and not freed.
unsafe extern "C" fn reallocate_slot(
    content: *mut c_void,
    size: usize,
    file: *const c_char,
    line: c_int,
) -> *mut c_void {
    // SAFETY: takes any size.
    let new = unsafe { allocate_slot(size, file, line) };
    if content.is_null() || new.is_null() {
        return new;
    }
    // SAFETY: the caller's promise; the slots are different, and both have `held.min(size)` bytes after their headers.
    unsafe {
        let held = (*content.cast::<Slot>().sub(1)).bytes - HEADER_BYTES;
        content.cast::<u8>().copy_to_nonoverlapping(new.cast(), held.min(size));
        free_slot(content, file, line);
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's flags of the mapping that contains `address`.
    fn flags_of(address: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("smaps");
        let mut is_in = false;
        for line in maps.lines() {
            let range = line.split_whitespace().next().and_then(|range| range.split_once('-'));
            if let Some((start, end)) = range.and_then(|(start, end)| {
                Some((usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?))
            }) {
                is_in = (start..end).contains(&address);
            } else if let Some(flags) = line.strip_prefix("VmFlags:").filter(|_| is_in) {
                return format!("{flags} ");
            }
        }
        panic!("no mapping at {address:x}");
    }

    #[test]
    fn pages_with_keys_are_excluded_from_core_dumps() {
        let mut key = SecretBytes::<32>::new().expect("memory");
        assert_eq!(*key, [0; 32]);
        key.fill(7);
        assert!(flags_of(key.as_ptr().addr()).contains(" dd "), "{}", flags_of(key.as_ptr().addr()));
        let address = key.as_ptr().addr();
        assert!(pages().iter().any(|page| page.0 == address));
    }

    #[test]
    fn slots_are_wiped_and_reused_and_limited_in_size() {
        // No other test uses slots of this size.
        const SIZE: usize = 3000;
        // SAFETY: takes any size.
        let allocate = |size| unsafe { allocate_slot(size, std::ptr::null(), 0) };
        let first = allocate(SIZE);
        assert!(flags_of(first.addr()).contains(" dd "));
        // SAFETY: a slot of this size that only this test uses.
        unsafe {
            std::slice::from_raw_parts_mut(first.cast::<u8>(), SIZE).fill(7);
            let moved = reallocate_slot(first, SIZE + 500, std::ptr::null(), 0);
            assert!(std::slice::from_raw_parts(moved.cast::<u8>(), SIZE).iter().all(|&byte| byte == 7));
            free_slot(moved, std::ptr::null(), 0);
        }
        let again = allocate(SIZE);
        assert_eq!(again, first);
        // SAFETY: as above.
        let content = unsafe { std::slice::from_raw_parts(again.cast::<u8>(), SIZE) };
        assert!(content.iter().all(|&byte| byte == 0));
        // SAFETY: as above.
        unsafe { free_slot(again, std::ptr::null(), 0) };
        assert!(allocate(LARGEST_SLOT_BYTES).is_null());
    }
}
