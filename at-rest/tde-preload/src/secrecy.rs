//! Keeps keys out of core dumps and swap, and their sources out of `/proc/PID/environ`.
//!
//! A server stays dumpable (`PR_SET_DUMPABLE`): otherwise its files in `/proc` belong to root. The server could then not
//! write to its own `oom_score_adj` (`PG_OOM_ADJUST_FILE`), and its own user could not see that the library is loaded
//! (`/proc/PID/maps`). Core dumps are prevented by their limit instead.

#![expect(unsafe_code, reason = "limits, fork handlers and the environment are C interfaces")]

use std::ffi::{CStr, c_char};

use zeroize::Zeroize;

use crate::{process, sampler};

/// Less than a page, which the kernel treats as no dump; unlike 0, it also applies if dumps go to a pipe (core(5)).
const NO_CORE_BYTES: libc::rlim_t = 1;

unsafe extern "C" {
    static environ: *const *mut c_char;
}

/// Prevents core dumps, and keeps keys locked in memory in every process that this one forks. Such a process also owns its
/// table of descriptors.
pub(crate) fn protect_memory() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the C library fills one structure and reads the other, and both live until the calls return. The handler
    // only makes system calls, and so may run in a child of any process. A failure leaves less protection of memory that
    // is left out of core dumps anyway.
    unsafe {
        libc::getrlimit(libc::RLIMIT_CORE, &raw mut limit);
        limit.rlim_cur = NO_CORE_BYTES.min(limit.rlim_max);
        libc::setrlimit(libc::RLIMIT_CORE, &raw const limit);
        libc::pthread_atfork(None, None, Some(in_child));
    }
}

unsafe extern "C" fn in_child() {
    process::adopt();
    sampler::restart();
    ciphertoll_tde::lock_memory();
}

/// Removes variables from the environment, and overwrites their initial memory, which the kernel shows in
/// `/proc/PID/environ` even after the C library has removed them.
///
/// # Safety
/// No other thread may use the environment.
pub(crate) unsafe fn forget_variables(names: &[&str]) {
    let mut given: Vec<*mut c_char> = Vec::new();
    // SAFETY: the array ends with a null pointer, each other pointer is to a C string, and the caller promises that
    // nothing changes meanwhile.
    unsafe {
        let mut variable = environ;
        while !variable.is_null() && !(*variable).is_null() {
            let text = CStr::from_ptr(*variable).to_bytes();
            let name = text.split(|&byte| byte == b'=').next().unwrap_or_default();
            if names.iter().any(|other| other.as_bytes() == name) {
                given.push(*variable);
            }
            variable = variable.add(1);
        }
    }
    for name in names {
        // SAFETY: the caller's promise.
        unsafe { std::env::remove_var(name) };
    }
    for text in given {
        // SAFETY: a C string that the environment no longer refers to, in memory that is the process's own to write.
        unsafe { std::slice::from_raw_parts_mut(text.cast::<u8>(), libc::strlen(text)).zeroize() };
    }
}
