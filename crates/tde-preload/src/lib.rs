//! What is preloaded into `postgres`: its file calls, with page encryption between them and the kernel.
//!
//! ```text
//! postgres ─ pwrite() ─▶ entry points here ─ tde::Engine ─▶ system call        plaintext │ ciphertext
//! ```
//! Loaded into any program that is none of PostgreSQL's ([`program::ProgramRole::Other`]) it passes every call on. Into a
//! server it brings the keys before `main`, or ends it there with a line that says why ([`start`]).
//!
//! Rules of the entry points: no allocation, no standard I/O, no panic beyond them; system calls are made directly
//! ([`raw`]), since the C library's names lead back here. What a process knows is in one static ([`process`]).
//!
//! Nothing may depend on this crate: whoever links it has its own file calls replaced.

#[cfg(not(all(target_os = "linux", target_pointer_width = "64", target_endian = "little")))]
compile_error!("page encryption is for Linux on x86-64 and aarch64");

mod archive;
mod backup;
mod descriptors;
mod handshake;
mod memory;
mod names;
mod paths;
mod process;
mod program;
mod raw;
mod refused;
mod secrecy;
mod server;
mod start;
mod streams;
mod transfers;
mod variadic;
