//! Moves the bytes, with one readiness loop per worker.
//!
//! - [`client`], [`backend`], [`cancel_request`], [`accept`] and the [pool](crate::pool) are state machines. A transition
//!   does what concerns only the machine itself, including input and output on its own socket, and returns what must
//!   follow. [`served_client`] has the transitions of a client and its connection together; [`relay`] is how bytes pass.
//! - [`worker`] receives events and says in which order they are handled. `client_actions`, `session_actions` and
//!   `server_actions` carry out what the transitions return; `messages` carries out what other workers ask for.
//! - `session_timing` is what time limits of sessions know, `session_timeouts` carries them out.
//! - `operate` carries out what operators ask for by the [console](crate::console): pauses, the end of clients, views.
//! - [`environment`] is what all transitions may use. It has no client and no connection.
//!
//! A client stays on the worker that it was assigned to when it was accepted; server connections move to the worker of
//! their client. [`shared_state`] has what workers share, [`mailbox`] what they send each other.

mod accept;
mod agenda;
mod backend;
mod backoff;
mod cancel;
mod cancel_request;
mod cancel_tokens;
mod client;
mod client_actions;
mod client_counts;
mod client_tls;
mod console_control;
mod console_request;
mod control;
mod control_request;
mod credentials;
mod environment;
mod exclusive;
mod flow;
mod host_actions;
mod host_link;
mod inspect;
mod key_deriver;
mod look_ups;
mod mailbox;
mod maintenance;
mod messages;
mod operate;
mod password_use;
mod relay;
mod served_client;
mod server_actions;
mod session_actions;
mod session_timeouts;
mod session_timing;
mod shared_state;
mod signals;
mod timeouts;
mod upkeep;
mod usage;
mod vanished_hosts;
mod views;
mod worker;
mod worker_shared;
mod workers;

pub(crate) use console_control::ChangeError;
pub(crate) use console_request::WaitingClients;
pub(crate) use control::ServerControl;
pub use control::{ControlHandle, NoAnswer};
pub(crate) use control_request::HandedOver;
pub use control_request::{Health, PreparedSettings};
pub use signals::SignalTask;
pub(crate) use usage::{PERIOD, Usage, UsageByDatabase, UsageView};
pub(crate) use views::{ClientState, ClientView, ServerState, ServerView};
pub use workers::{ServerWorkers, Workers};
