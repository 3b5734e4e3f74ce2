//! AES-256-XTS with AWS-LC: the only module that calls AWS-LC.
//!
//! AWS-LC takes less than half the time of the system's OpenSSL on processors with vector AES instructions, which OpenSSL
//! uses for XTS only since version 3.5 (`make bench-tde` compares both).

#![expect(unsafe_code, reason = "AWS-LC is a C library without a Rust interface for XTS")]

use std::ffi::c_int;
use std::ptr::{NonNull, null, null_mut};

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CipherInit_ex, EVP_CipherUpdate,
    EVP_aes_256_xts,
};

use crate::UNIT_BYTES;
use crate::error::CipherFailed;
use crate::secret::install_allocator;

/// The AES block size, which is the minimum size of an XTS data unit.
pub(crate) const BLOCK_BYTES: usize = 16;
/// The longest unit, which a tail has joined.
pub(crate) const MOST_UNIT_BYTES: usize = UNIT_BYTES + BLOCK_BYTES - 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CipherOperation {
    Encrypt,
    Decrypt,
}

/// A cipher context with its key schedule. Wiped when dropped.
pub(crate) struct Xts {
    context: NonNull<EVP_CIPHER_CTX>,
}

// SAFETY: this value owns the context, and AWS-LC ties no part of it to a thread.
unsafe impl Send for Xts {}

impl Xts {
    /// [`Self::set_key`] must be called before [`Self::run`].
    pub(crate) fn new(operation: CipherOperation) -> Result<Self, CipherFailed> {
        install_allocator()?;
        // SAFETY: takes no argument; returns null or a new context.
        let context = NonNull::new(unsafe { EVP_CIPHER_CTX_new() }).ok_or(CipherFailed)?;
        let xts = Self { context };
        // SAFETY: takes no argument; returns a pointer to a static.
        let cipher = unsafe { EVP_aes_256_xts() };
        let encrypts = c_int::from(operation == CipherOperation::Encrypt);
        // SAFETY: the context lives as long as `xts`; the cipher is a static; without key and tweak none is read.
        check(unsafe {
            EVP_CipherInit_ex(xts.context.as_ptr(), cipher, null_mut(), null(), null(), encrypts)
        })?;
        Ok(xts)
    }

    /// Sets both keys of XTS.
    pub(crate) fn set_key(&mut self, key: &[u8; 64]) -> Result<(), CipherFailed> {
        const UNCHANGED: c_int = -1;
        // SAFETY: the context has its cipher, whose two keys of 256 bits are as long as the array that is read from.
        check(unsafe {
            EVP_CipherInit_ex(self.context.as_ptr(), null(), null_mut(), key.as_ptr(), null(), UNCHANGED)
        })
    }

    /// Encrypts or decrypts a unit of at least one block in place.
    pub(crate) fn run(&mut self, tweak: &[u8; 16], unit: &mut [u8]) -> Result<(), CipherFailed> {
        const UNCHANGED: c_int = -1;
        let length = c_int::try_from(unit.len()).ok().filter(|_| unit.len() <= MOST_UNIT_BYTES);
        let length = length.ok_or(CipherFailed)?;
        let mut written = 0;
        // SAFETY: the context has its cipher, whose tweak is as long as the array that is read from.
        check(unsafe {
            EVP_CipherInit_ex(self.context.as_ptr(), null(), null_mut(), null(), tweak.as_ptr(), UNCHANGED)
        })?;
        let bytes = unit.as_mut_ptr();
        // SAFETY: reads and writes `length` bytes, which is the size of `unit`: XTS buffers nothing for a later call. The
        // function allows identical input and output; both pointers derive from the mutable one.
        check(unsafe {
            EVP_CipherUpdate(self.context.as_ptr(), bytes, &raw mut written, bytes.cast_const(), length)
        })?;
        if written == length { Ok(()) } else { Err(CipherFailed) }
    }
}

impl Drop for Xts {
    fn drop(&mut self) {
        // SAFETY: the context came from `EVP_CIPHER_CTX_new` and is freed once, which also wipes it.
        unsafe { EVP_CIPHER_CTX_free(self.context.as_ptr()) }
    }
}

fn check(result: c_int) -> Result<(), CipherFailed> {
    if result == 1 { Ok(()) } else { Err(CipherFailed) }
}
