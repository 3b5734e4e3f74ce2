//! One direction of AES-256-XTS by AWS-LC: the one place that calls into it.
//!
//! AWS-LC, and not the system's OpenSSL, as it takes less than half the time where processors have vectors of AES
//! instructions, which OpenSSL uses for XTS since version 3.5 only (`make bench-tde` compares the two). It has XTS with keys of 256 bits only.

#![expect(unsafe_code, reason = "AWS-LC is C, and has no interface of Rust's for XTS")]

use std::ffi::c_int;
use std::ptr::{NonNull, null, null_mut};

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_CipherInit_ex, EVP_CipherUpdate,
    EVP_aes_256_xts,
};

use crate::UNIT_BYTES;
use crate::error::CipherFailed;
use crate::secret::serve_aws_lc;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Encrypt,
    Decrypt,
}

/// A context: the cipher, the way, the schedule of the key. Wiped when dropped.
pub(crate) struct Xts {
    context: NonNull<EVP_CIPHER_CTX>,
}

// SAFETY: the context is this value's alone, and AWS-LC keeps nothing of it with the thread that made it.
unsafe impl Send for Xts {}

impl Xts {
    /// Awaits its key.
    pub(crate) fn new(way: Way) -> Result<Self, CipherFailed> {
        serve_aws_lc()?;
        // SAFETY: takes nothing; answers null or a context that nobody else has.
        let context = NonNull::new(unsafe { EVP_CIPHER_CTX_new() }).ok_or(CipherFailed)?;
        let xts = Self { context };
        // SAFETY: takes nothing, and answers with a static.
        let cipher = unsafe { EVP_aes_256_xts() };
        let encrypts = c_int::from(way == Way::Encrypt);
        // SAFETY: the context lives as long as `xts`; the cipher is a static; without key and tweak none is read.
        succeeded(unsafe {
            EVP_CipherInit_ex(xts.context.as_ptr(), cipher, null_mut(), null(), null(), encrypts)
        })?;
        Ok(xts)
    }

    /// Takes both of its keys.
    pub(crate) fn set_key(&mut self, key: &[u8; 64]) -> Result<(), CipherFailed> {
        const UNCHANGED: c_int = -1;
        // SAFETY: the context has its cipher, whose two keys of 256 bits are as long as the array that is read from.
        succeeded(unsafe {
            EVP_CipherInit_ex(self.context.as_ptr(), null(), null_mut(), key.as_ptr(), null(), UNCHANGED)
        })
    }

    /// A unit of at least one block, in place.
    pub(crate) fn run(&mut self, tweak: &[u8; 16], unit: &mut [u8]) -> Result<(), CipherFailed> {
        const UNCHANGED: c_int = -1;
        let length = c_int::try_from(unit.len()).ok().filter(|_| unit.len() <= UNIT_BYTES);
        let length = length.ok_or(CipherFailed)?;
        let mut written = 0;
        // SAFETY: the context has its cipher, whose tweak is as long as the array that is read from.
        succeeded(unsafe {
            EVP_CipherInit_ex(self.context.as_ptr(), null(), null_mut(), null(), tweak.as_ptr(), UNCHANGED)
        })?;
        let bytes = unit.as_mut_ptr();
        // SAFETY: `length` bytes are read and as many written, which is how many `unit` has: XTS keeps nothing back for a
        // later call. That both are the same bytes is what the function allows; both pointers are from the one that may
        // write.
        succeeded(unsafe {
            EVP_CipherUpdate(self.context.as_ptr(), bytes, &raw mut written, bytes.cast_const(), length)
        })?;
        if written == length { Ok(()) } else { Err(CipherFailed) }
    }
}

impl Drop for Xts {
    fn drop(&mut self) {
        // SAFETY: the context came from `EVP_CIPHER_CTX_new`, and is freed once. What it held is wiped by that.
        unsafe { EVP_CIPHER_CTX_free(self.context.as_ptr()) }
    }
}

fn succeeded(answer: c_int) -> Result<(), CipherFailed> {
    if answer == 1 { Ok(()) } else { Err(CipherFailed) }
}
