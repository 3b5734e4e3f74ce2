//! The experiment: carries a plan out on a [`Testbed`], applies the gates to each trial, decides when to stop, and emits
//! everything that happens as events.
//!
//! [`LabTestbed`] is the real one: a list of layers, each a factor of the plan that surrounds a trial ([`layer::Layer`]).

mod absent;
mod checks;
mod failure;
mod gates;
mod injection;
mod interrupt;
mod lab_testbed;
mod layer;
mod layers;
mod measured;
mod observe;
mod on_hosts;
mod primitives;
mod samples;
mod scheduler;
mod surroundings;
pub mod testbed;
mod trial;

pub use gates::judge;
pub use injection::Injection;
pub use interrupt::Interrupt;
pub use lab_testbed::{LabTestbed, ReadyLab};
pub use layers::link::LinkUse;
pub use layers::load_hosts::HostsMeasured;
pub use layers::proxy::ProxyUse;
pub use layers::server::{ProcessorsApart, ServerUse};
pub use layers::tunnel::{TunnelCpu, TunnelUse};
pub use measured::{MachineUse, Measured};
pub use scheduler::{Run, Sink};
pub use testbed::{ReadyTestbed, Testbed};
pub use trial::{Emit, TestbedError, TrialError, TrialRequest};
