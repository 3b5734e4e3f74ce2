//! The load: client operations against a server, measured in a process of its own.
//!
//! [`run_load_process`] is the hidden command `__load`: one process per trial, so that its CPU time and peak memory
//! *are* the client's. In it, each thread's [`worker`] drives its clients with the readiness loop of `net`. A client
//! is a state machine ([`churn`], [`transaction`]) that reports when an operation has ended. When the next one begins
//! is decided by [`drive`]: by a closed loop, perhaps with a rate [`limit`], or by an open loop with a [`schedule`].
//! Samples go to the [`recorder`]. [`work`] makes the scripts that clients run. [`LoadProcess`] is the coordinator's
//! side of the protocol.
//!
//! # Where to change what
//!
//! - what a script can express: `model::script`, then `load::transaction`, `drivers/spec.c` and `drivers/load.c`
//! - the pace of operations: `load::schedule`, `load::drive`

mod churn;
mod documents;
mod draw;
mod drive;
pub mod driver;
mod error;
mod legs;
mod limit;
mod operation;
mod parent;
mod process;
mod recorder;
mod repetition;
mod schedule;
mod script;
mod script_parts;
mod setup;
mod sum;
mod times;
mod transaction;
mod usage;
mod window;
mod worker;
mod workload;
mod ycsb;

pub use error::Error;
pub use parent::{LoadProcess, StartSignal};
pub use process::run_load_process;
pub use schedule::overtime;
pub use sum::ResultSum;
pub use times::{HISTOGRAM_MAX_NS, decode_histogram};
pub use usage::{monotonic_now_ns, process_cpu};
pub use workload::work;
