//! The experiment: carries a plan out on a [`Bench`], applies the gates to each trial, decides when to stop, and emits
//! everything that happens as events.

mod absent;
pub mod bench;
mod gates;
mod host_gates;
mod interrupt;
mod lab_bench;
mod primitives;
mod scheduler;

pub use bench::{
    Bench, BenchError, Emit, LinkUse, Measured, ProcessorsApart, ProxyUse, ServerUse, TrialError,
    TrialRequest,
};
pub use gates::judge;
pub use interrupt::Interrupt;
pub use lab_bench::{Injection, LabBench};
pub use scheduler::{Run, Sink};
