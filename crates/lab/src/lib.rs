//! Servers, certificates and accounting: everything real that a run stands on.
//!
//! A [`Lab`] holds what all servers of a run share. A [`Build`] is found, a [`Template`] is made of it
//! once and kept, and a [`Server`] is started on a copy of the template. Every process is started by
//! way of [`spawn`], every effect is in the scratch directory's ledger first.

pub mod accounting;
mod at_rest;
pub mod certificates;
mod cgroup;
mod config;
mod control;
mod credentials;
pub mod doctor;
mod documents;
pub mod environment;
pub mod error;
pub mod exec;
mod ferretdb;
pub mod fetch;
mod files;
pub mod find;
mod hex;
mod lab;
mod loading;
mod mariadb;
mod mongodb;
mod mysql;
mod mysql_family;
mod pgbench;
mod place;
mod port;
mod postgres;
mod process;
pub mod processors;
mod programs;
pub mod proxy;
pub mod remote;
mod room;
mod rows;
pub mod server;
mod sha_crypt;
pub mod spawn;
mod storage;
mod tables;
pub mod template;
mod tls_support;
pub mod tunnel;
mod unused;
pub mod user;

pub use accounting::{CpuClock, CpuMeter, MemoryPeak, Sample, SampleDifference};
pub use at_rest::Proof;
pub use certificates::{Authority, Certificate};
pub use credentials::{Credentials, ServerCertificate};
pub use documents::Loaded;
pub use error::Error;
pub use exec::{EXEC_COMMAND, ExecRequest, Provisions, Rights, SharedMemory, Stdin, run_exec_helper};
pub use fetch::{FETCHABLE, Fetchable};
pub use find::{Build, Origin, find, installed};
pub use lab::Lab;
pub use processors::{Apart, processors_apart};
pub use remote::{Passwords, Remote};
pub use room::Tenant;
/// The name that callers knew before there were other engines.
pub use server::Server as MariaDb;
pub use server::{Account, Arrivals, Counters, Server, Start, SyncTimes, Watcher};
pub use spawn::{Child, Launch};
pub use tables::Tables;
pub use template::Template;
pub use user::{RunAs, ServerUser};
