//! The machine: processes and their accounting, users, files, ports, programs, the cache.

pub mod accounting;
pub(crate) mod cache;
pub(crate) mod cgroup;
pub mod environment;
pub(crate) mod exec;
pub(crate) mod files;
pub(crate) mod hex;
pub(crate) mod port;
pub(crate) mod processors;
pub(crate) mod programs;
pub(crate) mod scratch;
pub(crate) mod spawn;
pub(crate) mod storage;
pub(crate) mod user;
pub(crate) mod workspace;
