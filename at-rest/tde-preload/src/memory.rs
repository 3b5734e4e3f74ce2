//! Buffers of the caller of `read` and `write`.

#![expect(unsafe_code, reason = "the caller's buffers are pointers and lengths")]

use ciphertoll_tde::WriteSource;
use libc::{c_int, iovec};

/// Data to write, in one buffer or several.
pub(crate) struct CallerBuffers<'a>(&'a [iovec]);

impl<'a> CallerBuffers<'a> {
    /// # Safety
    /// Each buffer must be readable while this value lives. Other processes may write to it: pages in shared memory get
    /// hint bits.
    pub(crate) unsafe fn new(pieces: &'a [iovec]) -> Self {
        Self(pieces)
    }
}

impl WriteSource for CallerBuffers<'_> {
    fn len(&self) -> usize {
        self.0.iter().map(|piece| piece.iov_len).sum()
    }

    fn copy_to(&self, at: usize, bytes: &mut [u8]) {
        let (mut skipped, mut filled) = (at, 0);
        for piece in self.0 {
            if skipped >= piece.iov_len {
                skipped -= piece.iov_len;
                continue;
            }
            let count = (piece.iov_len - skipped).min(bytes.len() - filled);
            let target = bytes[filled..].as_mut_ptr();
            // SAFETY: `count` bytes are left both in the piece from `skipped` and in `bytes` from `filled`. The piece is
            // readable (`new`), and does not overlap with `bytes`, which is the engine's buffer. A concurrent write to the
            // piece results in a mix of old and new bytes, as in a copy by the kernel.
            unsafe {
                piece.iov_base.cast::<u8>().cast_const().add(skipped).copy_to_nonoverlapping(target, count);
            }
            filled += count;
            skipped = 0;
        }
        debug_assert_eq!(filled, bytes.len());
    }
}

pub(crate) fn piece(address: *const libc::c_void, length: usize) -> iovec {
    iovec { iov_base: address.cast_mut(), iov_len: length }
}

/// The `count` pieces at an address; none if `count` is not positive.
///
/// # Safety
/// `count` pieces must be there, and stay while they are used.
pub(crate) unsafe fn pieces<'a>(address: *const iovec, count: c_int) -> &'a [iovec] {
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || address.is_null() {
        return &[];
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { std::slice::from_raw_parts(address, count) }
}

/// A buffer to read into.
///
/// # Safety
/// The piece must be writable and not used elsewhere meanwhile. Its content does not matter.
pub(crate) unsafe fn read_buffer<'a>(piece: &iovec) -> &'a mut [u8] {
    if piece.iov_base.is_null() || piece.iov_len == 0 {
        return &mut [];
    }
    // SAFETY: not null, and the caller's promise. The engine reads only bytes that the kernel has filled.
    unsafe { std::slice::from_raw_parts_mut(piece.iov_base.cast(), piece.iov_len) }
}
