//! Several hosts of one server, and the role that connections need: which host the next connect uses, and which
//! connections a client may get. No I/O: what servers have said comes from the engine.
//!
//! A connection remembers its host and the host's *epoch* when its role was confirmed. Each doubt about a host begins a new
//! epoch. A connection of an earlier epoch is asked for its role again before a client gets it.

mod machine;
mod shared;
mod target;

pub use machine::HostSummary;
pub(crate) use machine::{News, Verdict};
pub(crate) use shared::SharedHosts;
pub use target::{LoadBalance, TargetSession};
pub(crate) use target::{RoleKind, ServerRole};
