//! The scheduler and the gates on a simulated bench.

mod gates;
mod mock;
mod pipeline;
