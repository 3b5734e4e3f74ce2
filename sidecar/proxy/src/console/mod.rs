//! The console: PgBouncer's commands, by the names and in the columns of PgBouncer 1.25. `docs/sidecar/console.md` has the
//! values.
//!
//! - [`command`] parses a text, [`execute`] carries it out by a [`ControlHandle`](crate::engine::ControlHandle), [`show`]
//!   and [`stats`] make the [tables](table).
//! - [`session`] serves clients of the database `pgbouncer`, which workers hand over by the
//!   [link](crate::console_link); [`request`] serves `POST /console` of the admin address.
//!
//! Each session and each request has a thread of its own, so that commands can wait.

mod command;
mod execute;
mod messages;
mod request;
mod session;
mod show;
mod stats;
mod table;

pub(crate) use request::serve_request;
pub use session::open_console;
