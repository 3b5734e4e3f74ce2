//! Long links on one machine: networks of our own, and between them a line that holds every packet for as long as it
//! would be under way. TCP, slow start, TLS and logins all pay, as they do out there.
//!
//! The process `__link` makes the networks and is the line; who is to be at one of its ends joins a network before it
//! has a second thread ([`join`]). Where it cannot make networks it is a relay.

mod calibrate;
mod clock;
mod end;
mod error;
mod line;
mod made;
mod namespace;
pub mod netlink;
mod packet;
mod parent;
mod process;
mod realtime;
mod relay;
mod schedule;
mod tunnel;

pub use error::Error;
pub use namespace::{SERVER, join};
pub use parent::{Carried, LinkProcess, Made};
pub use process::{End, Interface, run_link_process};
pub use realtime::ask_for as ask_for_real_time;

/// The hidden command that must lead to [`run_link_process`].
pub const LINK_COMMAND: &str = "__link";
/// Its argument before the name of a kind of link that is to be made, and no other.
const BY_ARGUMENT: &str = "--by";
