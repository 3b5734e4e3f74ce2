//! What the console shows of clients and server connections.

use std::time::Instant;

use ciphertoll_net::Peer;

/// Clients that a worker describes at a time, so that it serves other clients in between.
pub(crate) const PAGE: usize = 512;

#[derive(Clone, Debug)]
pub(crate) struct ClientView {
    pub(crate) number: u32,
    /// As in the log.
    pub(crate) index: usize,
    /// `None` before it has logged in.
    pub(crate) login: Option<(String, String)>,
    pub(crate) replication: Option<&'static str>,
    pub(crate) state: ClientState,
    /// `None` for a cancel request that came from another worker.
    pub(crate) peer: Option<Peer>,
    pub(crate) connected: Instant,
    /// When the wait that its state names began.
    pub(crate) since: Instant,
    /// The connection that serves it, as in the log.
    pub(crate) server: Option<usize>,
    pub(crate) tls: String,
    pub(crate) application_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientState {
    LoggingIn,
    Waiting,
    Active,
    /// Between transactions.
    Parked,
    Cancelling,
    Leaving,
}

/// Some of a worker's clients, and the slot from which to continue; `None` after the last ones.
#[derive(Debug, Default)]
pub(crate) struct ClientPage {
    pub(crate) clients: Vec<ClientView>,
    pub(crate) next: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct ServerView {
    pub(crate) number: u32,
    /// As in the log.
    pub(crate) index: usize,
    /// Index of its host; `None` without a choice of hosts, and until one is chosen.
    pub(crate) host: Option<usize>,
    pub(crate) user: String,
    pub(crate) database: String,
    pub(crate) replication: Option<&'static str>,
    pub(crate) state: ServerState,
    pub(crate) opened: Instant,
    /// The client that it serves, as in the log.
    pub(crate) client: Option<usize>,
    /// It is closed when its client releases it.
    pub(crate) must_close: bool,
    /// By which the server knows the connection.
    pub(crate) process: Option<u32>,
    pub(crate) tls: String,
    pub(crate) application_name: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    Opening,
    /// Available to clients.
    Idle,
    Active,
    AwaitingCancel,
    /// Being reset or checked.
    Resetting,
}
