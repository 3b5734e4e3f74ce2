//! Emulated long links on one machine: private networks, and a delay line between them that holds every packet for
//! half of the configured round trip. TCP, slow start, TLS and logins all see the delay.
//!
//! The process `__link` makes the networks and runs the delay line. A process joins one of the networks before it
//! starts a second thread ([`join`]). If networks cannot be made, `__link` is a relay instead.

mod backend;
mod blocks;
mod calibrate;
mod capture;
mod clock;
mod error;
mod filter;
mod line;
mod line_end;
mod messages;
mod namespace;
pub mod netlink;
mod packet;
mod parent;
mod process;
mod realtime;
mod relay;
mod schedule;
mod tunnel;

pub use blocks::HAND_OVER;
pub use capture::{LiveCapture, LivePacket, MOST_PORTS};
pub use error::Error;
pub use messages::{Interface, LinkCalibration, LinkCounters, LinkEnd};
pub use namespace::{SERVER, join};
pub use parent::LinkProcess;
pub use process::run_link_process;
pub use realtime::ask_for as ask_for_real_time;

/// The hidden command, which must call [`run_link_process`].
pub const LINK_COMMAND: &str = "__link";
/// Precedes the only kind of link that may be made.
const BY_ARGUMENT: &str = "--by";
