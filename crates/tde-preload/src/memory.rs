//! Memory of the caller: what it gave to `write`, and what it wants from `read`.

#![expect(unsafe_code, reason = "the caller's buffers are addresses and lengths")]

use ciphertoll_tde::WriteSource;
use libc::{c_int, iovec};

/// What is to be written, in one piece or several.
pub(crate) struct CallerBuffers<'a>(&'a [iovec]);

impl<'a> CallerBuffers<'a> {
    /// # Safety
    /// Each piece must be readable while this lives. Others may write to it meanwhile: pages in shared memory get hints.
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
            // SAFETY: `count` bytes are left both in the piece from `skipped` and in `bytes` from `filled`; the piece is
            // readable (`new`), and `bytes` is our own buffer, which no piece can lie in. Who writes to the piece
            // meanwhile makes the copy have some of the old and some of the new, as the kernel's copy would.
            unsafe {
                piece.iov_base.cast::<u8>().cast_const().add(skipped).copy_to_nonoverlapping(target, count);
            }
            filled += count;
            skipped = 0;
        }
        // Asked for no more than there is.
        debug_assert_eq!(filled, bytes.len());
    }
}

/// One piece.
pub(crate) fn piece(address: *const libc::c_void, length: usize) -> iovec {
    iovec { iov_base: address.cast_mut(), iov_len: length }
}

/// The pieces at an address; none where the number is none.
///
/// # Safety
/// As many as `count` says must be there, and stay while they are used.
pub(crate) unsafe fn pieces<'a>(address: *const iovec, count: c_int) -> &'a [iovec] {
    let count = usize::try_from(count).unwrap_or(0);
    if count == 0 || address.is_null() {
        return &[];
    }
    // SAFETY: not null, and the caller's promise.
    unsafe { std::slice::from_raw_parts(address, count) }
}

/// Where something is to be read to.
///
/// # Safety
/// The piece must be writable, and nobody else's, while it is used. What is in it does not matter.
pub(crate) unsafe fn read_buffer<'a>(piece: &iovec) -> &'a mut [u8] {
    if piece.iov_base.is_null() || piece.iov_len == 0 {
        return &mut [];
    }
    // SAFETY: not null, and the caller's promise. Bytes that were never written are overwritten before they are read:
    // the engine looks at what the kernel has filled, and at nothing else.
    unsafe { std::slice::from_raw_parts_mut(piece.iov_base.cast(), piece.iov_len) }
}
