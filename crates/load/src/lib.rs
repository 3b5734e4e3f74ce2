//! The load: what clients do to a server, measured from a process of its own.
//!
//! [`run_load_process`] is the hidden command `__load`: one process per trial, so that its CPU and
//! its peak memory *are* the client's. Inside it, a [`worker`] per thread drives clients with the
//! readiness loop of `net`; each client is a small machine ([`churn`], [`pooled`]) that yields
//! samples to the [`recorder`]. [`LoadProcess`] is the coordinator's end of the same pipe.

mod churn;
mod error;
mod injection;
mod parent;
mod pooled;
mod process;
mod recorder;
mod setup;
mod usage;
mod window;
mod worker;

pub use error::Error;
pub use parent::LoadProcess;
pub use process::run_load_process;
pub use recorder::{HISTOGRAM_MAX_NS, decode_histogram};
