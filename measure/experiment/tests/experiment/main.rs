//! The scheduler and the gates on a simulated testbed.

mod gates;
mod mock;
mod pipeline;
