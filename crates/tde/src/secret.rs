//! Memory for keys: separate pages, left out of core dumps, locked if the limit permits, wiped when they are freed.
//!
//! Two kinds of keys are here: [`SecretBytes`] holds data keys and key-encryption keys, and [`serve_aws_lc`] has AWS-LC
//! allocate its key schedules here. The schedules of AES-128 are not: OpenSSL, which the server shares, allocates them.
//!
//! `mlock` can fail (`RLIMIT_MEMLOCK`), and a child process inherits no locks ([`lock_memory`]).

#![expect(unsafe_code, reason = "pages are the kernel's to give, and AWS-LC allocates through C callbacks")]

use std::ffi::{c_char, c_int, c_void};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::{NonNull, null_mut};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use aws_lc_sys::CRYPTO_set_mem_functions;
use zeroize::Zeroize;

use crate::error::CipherFailed;

/// What one table of ciphers takes, and a bit more.
const CHUNK_BYTES: usize = 512 * 1024;
/// Sizes of slots are multiples of this.
const SLOT_BYTES: usize = 64;
/// AWS-LC asks for less for a cipher: larger requests fail.
const LARGEST_SLOT_BYTES: usize = 4096;
/// Before each slot's content, which is aligned to as much.
const HEADER_BYTES: usize = size_of::<Slot>();
/// More than any function that handles keys uses of the stack.
const STACK_BYTES: usize = 16 * 1024;

/// All pages with keys in this process: address and length.
static PAGES: Mutex<Vec<(usize, usize)>> = Mutex::new(Vec::new());
static POOL: Mutex<Pool> =
    Mutex::new(Pool { free: [null_mut(); LARGEST_SLOT_BYTES / SLOT_BYTES], chunk: null_mut(), left: 0 });
static SERVES_AWS_LC: OnceLock<bool> = OnceLock::new();

/// Key bytes in separate pages, zero at first.
pub(crate) struct SecretBytes<const N: usize> {
    bytes: NonNull<[u8; N]>,
}

/// Slots for AWS-LC, carved from chunks that are never given back.
struct Pool {
    /// The first freed slot of each size; its header has the address of the next.
    free: [*mut Slot; LARGEST_SLOT_BYTES / SLOT_BYTES],
    /// What is left of the last chunk.
    chunk: *mut Slot,
    left: usize,
}

#[repr(C, align(16))]
struct Slot {
    bytes: usize,
    next: *mut Slot,
}

// SAFETY: the pages are this value's alone; nothing about them depends on a thread.
unsafe impl<const N: usize> Send for SecretBytes<N> {}
// SAFETY: a shared reference only reads them.
unsafe impl<const N: usize> Sync for SecretBytes<N> {}
// SAFETY: its addresses are of memory that belongs to no thread, and are used under its lock.
unsafe impl Send for Pool {}

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
        // SAFETY: `map_pages` mapped them for this value, which is not used any more.
        unsafe { libc::munmap(address, N) };
    }
}

/// Locks all pages with keys into memory, as far as the limit permits. A child process has to call this itself, because
/// it inherits no locks. Pages that another thread adds at the same time are left to that thread.
pub fn lock_memory() {
    if let Ok(pages) = PAGES.try_lock() {
        for &(address, length) in &*pages {
            lock(std::ptr::with_exposed_provenance_mut(address), length);
        }
    }
}

/// Overwrites the part of the stack that functions called before have used. Their copies of keys are gone then.
#[inline(never)]
pub(crate) fn wipe_stack() {
    let mut below = [0_u8; STACK_BYTES];
    std::hint::black_box(&mut below);
}

/// Has AWS-LC allocate here. Must come before everything else of AWS-LC in this process.
pub(crate) fn serve_aws_lc() -> Result<(), CipherFailed> {
    let serves = SERVES_AWS_LC.get_or_init(|| {
        // SAFETY: the functions are an allocator, and nothing was allocated before by another one that they might be
        // asked to free: all of AWS-LC that this process uses is called by `xts`, which calls this first.
        let answer =
            unsafe { CRYPTO_set_mem_functions(Some(allocate_slot), Some(reallocate_slot), Some(free_slot)) };
        answer == 1
    });
    if *serves { Ok(()) } else { Err(CipherFailed) }
}

fn pages() -> MutexGuard<'static, Vec<(usize, usize)>> {
    PAGES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn lock(address: *mut c_void, length: usize) {
    // Pages that were never written are not made present. A limit that is too low is not an error.
    // SAFETY: takes an address and a length, which the kernel checks; no content changes.
    unsafe { libc::mlock2(address, length, libc::MLOCK_ONFAULT) };
}

/// New pages of zeros.
fn map_pages(length: usize) -> io::Result<NonNull<u8>> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: asks for new pages, and so touches nothing that is there.
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

impl Pool {
    fn locked() -> MutexGuard<'static, Self> {
        POOL.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot of this size, a multiple of [`SLOT_BYTES`], with its header; null if memory cannot be allocated.
    fn take(&mut self, bytes: usize) -> *mut Slot {
        let Some(first) = self.free.get_mut(bytes / SLOT_BYTES - 1) else { return null_mut() };
        let slot = *first;
        if !slot.is_null() {
            // SAFETY: `free_slot` put it there: an unused slot, with the address of the next.
            *first = unsafe { (*slot).next };
            return slot;
        }
        if self.left < bytes {
            let Ok(chunk) = map_pages(CHUNK_BYTES) else { return null_mut() };
            (self.chunk, self.left) = (chunk.cast().as_ptr(), CHUNK_BYTES);
        }
        let slot = self.chunk;
        // SAFETY: at least `bytes` of the chunk are left, and they are unused; a page's start and multiples of 64 from
        // there are aligned for a header.
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
    let slot = Pool::locked().take((size + HEADER_BYTES).next_multiple_of(SLOT_BYTES));
    if slot.is_null() {
        return null_mut();
    }
    // SAFETY: the slot is larger than its header.
    unsafe { slot.add(1).cast() }
}

/// # Safety
/// `content` must be what [`allocate_slot`] answered, and not freed.
unsafe extern "C" fn free_slot(content: *mut c_void, _file: *const c_char, _line: c_int) {
    if content.is_null() {
        return;
    }
    // SAFETY: the caller's promise: a header comes before it, and as many bytes as it says are the slot's and no longer
    // used.
    unsafe {
        let slot = content.cast::<Slot>().sub(1);
        let bytes = (*slot).bytes;
        std::slice::from_raw_parts_mut(content.cast::<u8>(), bytes - HEADER_BYTES).zeroize();
        let mut pool = Pool::locked();
        if let Some(first) = pool.free.get_mut(bytes / SLOT_BYTES - 1) {
            (*slot).next = *first;
            *first = slot;
        }
    }
}

/// # Safety
/// `content` must be null or what [`allocate_slot`] answered, and not freed.
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
    // SAFETY: the caller's promise; both slots hold as many bytes after their headers, and are not the same.
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

    /// The kernel's flags of the mapping that an address is in.
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
        panic!("nothing is mapped at {address:x}");
    }

    #[test]
    fn pages_with_keys_are_left_out_of_core_dumps() {
        let mut key = SecretBytes::<32>::new().expect("memory");
        assert_eq!(*key, [0; 32]);
        key.fill(7);
        assert!(flags_of(key.as_ptr().addr()).contains(" dd "), "{}", flags_of(key.as_ptr().addr()));
        let address = key.as_ptr().addr();
        assert!(pages().iter().any(|page| page.0 == address));
    }

    #[test]
    fn slots_are_wiped_reused_and_no_larger_than_a_cipher_needs() {
        // No other test has slots of this size.
        const SIZE: usize = 3000;
        // SAFETY: takes any size.
        let allocate = |size| unsafe { allocate_slot(size, std::ptr::null(), 0) };
        let first = allocate(SIZE);
        assert!(flags_of(first.addr()).contains(" dd "));
        // SAFETY: a slot of this size, of this test alone.
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
