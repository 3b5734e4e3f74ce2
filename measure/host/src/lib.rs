//! The machine that ciphertoll runs on: processes and their accounting, users, files, ports, programs, the cache.
//!
//! Not to be confused with `hosts`: the other machines that run clients, whose agent uses this crate there.
//!
//! [`spawn`] starts every process through the hidden command [`exec`], and the ledger of the scratch directory records
//! every effect first.

pub mod accounting;
pub mod cache;
pub mod cgroup;
pub mod companion;
pub mod environment;
mod error;
pub mod exec;
pub mod files;
pub mod hex;
pub mod port;
pub mod privileges;
pub mod processors;
pub mod programs;
pub mod scratch;
pub mod sockets;
pub mod spawn;
pub mod storage;
pub mod user;

pub use error::Error;
