//! What commands of the console ask of a worker.

use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use super::usage::UsageView;
use super::views::{ClientPage, ServerView};
use crate::operations::{Operations, Scope};
use crate::upstream::KnownName;

pub(super) enum ConsoleRequest {
    Apply(Arc<Operations>, Sender<()>),
    /// The server connections of these databases, of all workers, in any state.
    CountOpen(Scope, Sender<usize>),
    /// The worker's server connections that must be closed when they are released.
    CountClosing(Scope, Sender<usize>),
    /// The clients from this slot on.
    Clients(usize, Sender<ClientPage>),
    Servers(Sender<Vec<ServerView>>),
    Usage(Sender<UsageView>),
    Names(Sender<Vec<KnownName>>),
    Kill(Scope, Sender<()>),
    /// Whether the worker has had this client.
    KillClient(u32, Sender<bool>),
    /// Gives clients this time to leave.
    Stop(Duration, Sender<()>),
    /// Refuses the clients that wait for a connection.
    RefuseWaiting(Sender<()>),
}

/// What happens to clients that wait for a connection when the proxy stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitingClients {
    /// They are served, if they had logged in.
    Served,
    Refused,
}
