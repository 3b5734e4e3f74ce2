//! The load: what clients do to a server, measured from a process of its own.
//!
//! [`run_load_process`] is the hidden command `__load`: one process per trial, so that its CPU and
//! its peak memory *are* the client's. Inside it, a [`worker`] per thread drives clients with the
//! readiness loop of `net`; each client is a small machine ([`churn`], [`transaction`]) that
//! says when an operation has ended. When the next begins is not its business: [`drive`] is a closed
//! loop, perhaps with a [`limit`] on its rate, or an open one by a [`schedule`]. Samples go to the [`recorder`]. [`work`] writes the scripts
//! that clients run. [`LoadProcess`] is the coordinator's end of the same pipe, whoever makes the load.

mod churn;
mod documents;
mod draw;
mod drive;
pub mod driver;
mod error;
mod injection;
mod legs;
mod limit;
mod parent;
mod process;
mod recorder;
mod schedule;
mod script;
mod setup;
mod times;
mod transaction;
mod usage;
mod window;
mod worker;
mod workload;
mod ycsb;

pub use error::Error;
pub use parent::LoadProcess;
pub use process::run_load_process;
pub use times::{HISTOGRAM_MAX_NS, decode_histogram};
pub use workload::work;
