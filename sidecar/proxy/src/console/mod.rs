//! The console: PgBouncer's commands, by the names and in the columns of PgBouncer 1.25. `docs/sidecar/console.md` has the
//! values.
//!
//! - [`command`] parses a text, [`execute`] carries it out by a [`ControlHandle`], [`show`]
//!   and [`stats`] make the [tables](table).
//! - [`session`] serves clients of the database `pgbouncer`, which workers hand over by the
//!   [link](crate::console_link); [`request`] serves `POST /console` of the admin address.
//!
//! Each session and each request has its own thread, so that commands can wait.

mod command;
mod execute;
mod messages;
mod request;
mod session;
mod show;
mod stats;
mod table;

use std::sync::Arc;

use ciphertoll_net::Channel;

use crate::console_link::ConsoleLink;
use crate::console_rules::Role;
use crate::engine::ControlHandle;
use crate::http::ResponseFormat;
use crate::protocol::Protocol;

/// The console of a server, whatever its protocol.
pub(crate) trait Console: Send + Sync {
    fn link(&self) -> &ConsoleLink;

    /// Serves clients that log in to the database `pgbouncer`, each on its own thread, until the process
    /// ends.
    fn open(&self, reload: Reload);

    /// Carries out a command on a separate thread. The channel is not registered with any reactor.
    fn serve_request(&self, channel: Channel, text: String, format: ResponseFormat, role: Role);
}

/// Reads the settings again, and returns whether they are in force.
pub(crate) type Reload = Arc<dyn Fn() -> bool + Send + Sync>;

impl<P: Protocol> Console for ControlHandle<P> {
    fn link(&self) -> &ConsoleLink {
        self.console()
    }

    fn open(&self, reload: Reload) {
        session::open_console(self, move || reload());
    }

    fn serve_request(&self, channel: Channel, text: String, format: ResponseFormat, role: Role) {
        request::serve_request(channel, text, format, role, self);
    }
}
