//! The library that is preloaded into `postgres`. It replaces file functions of the C library and encrypts pages between
//! them and the kernel.
//!
//! ```text
//! postgres ─ pwrite(plaintext) ─▶ entry point here ─ tde::EncryptionEngine ─▶ system call (ciphertext)
//! ```
//! In programs that do not access a cluster's files ([`program::ProgramRole::Other`]), every call is passed on. A server
//! gets its keys before `main`; if that fails, it exits with an error message ([`start`]).
//!
//! Rules of the entry points: no allocation, no standard I/O, no unwinding out of them. They make system calls directly
//! ([`raw`]), because the C library's functions lead back here. The state of a process is in one static ([`process`]).
//!
//! No crate may depend on this one: linking it replaces the file functions of the program.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("page encryption is for Linux on x86-64 and aarch64");

/// Defines other names of the same calls.
macro_rules! aliases {
    ($($name:ident($($argument:ident: $kind:ty),+) -> $result:ty = $call:ident;)+) => {$(
        // SAFETY: replaces the C library's function, with its signature.
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),+) -> $result {
            // SAFETY: the caller's arguments, unchanged.
            unsafe { $call($($argument),+) }
        }
    )+};
}

mod archive;
mod backup;
mod descriptors;
mod handshake;
mod identity;
mod links;
mod memory;
mod names;
mod next;
mod paths;
mod process;
mod program;
mod raw;
mod raw_calls;
mod refused;
mod sampler;
mod secrecy;
mod server;
mod start;
mod streams;
mod transfers;
mod variadic;
