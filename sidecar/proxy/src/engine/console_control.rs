//! The part of a [`ControlHandle`] that commands of the console use.

use std::sync::Arc;
use std::time::Duration;

use super::console_request::{ConsoleRequest, WaitingClients};
use super::control::{ControlHandle, NoAnswer, RELOAD_TIMEOUT, STATUS_TIMEOUT, request};
use super::control_request::ControlRequest;
use super::mailbox::Mailbox;
use super::usage::UsageView;
use super::views::{ClientView, ServerView};
use crate::console_link::ConsoleLink;
use crate::operations::{OperationError, Operations, Scope};
use crate::protocol::Protocol;
use crate::upstream::KnownName;

/// Longer than a proxy lives.
const FOR_EVER: Duration = Duration::from_hours(10 * 365 * 24);

/// Why a command was not carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ChangeError {
    #[error("this process has handed over to a new one: connect again")]
    HandedOver,
    #[error(transparent)]
    Refused(#[from] OperationError),
    #[error(transparent)]
    NoAnswer(#[from] NoAnswer),
}

impl<P: Protocol> ControlHandle<P> {
    pub(crate) fn console(&self) -> &Arc<ConsoleLink> {
        &self.console
    }

    fn ask_all<T>(
        &self,
        timeout: Duration,
        ask: impl Fn(std::sync::mpsc::Sender<T>) -> ConsoleRequest,
    ) -> Result<Vec<T>, NoAnswer> {
        request(&self.mailboxes, timeout, |reply| ControlRequest::Console(ask(reply)))
    }

    /// Changes what the workers do. When it returns, all of them have seen it. Changes take place one after the other.
    pub(crate) fn change_operations(
        &self,
        change: impl FnOnce(&mut Operations) -> Result<(), OperationError>,
    ) -> Result<(), ChangeError> {
        let mut decided = self.console.decided();
        if decided.is_handed_over {
            return Err(ChangeError::HandedOver);
        }
        let mut operations = (*decided.operations).clone();
        change(&mut operations)?;
        decided.operations = Arc::new(operations);
        let apply = |reply| ConsoleRequest::Apply(Arc::clone(&decided.operations), reply);
        self.ask_all(RELOAD_TIMEOUT, apply)?;
        Ok(())
    }

    /// The server connections of these databases in any state.
    pub(crate) fn count_open(&self, scope: &Scope) -> Result<usize, NoAnswer> {
        // The pool is shared: any worker knows all.
        let ask = |reply| ControlRequest::Console(ConsoleRequest::CountOpen(scope.clone(), reply));
        request(self.first(), STATUS_TIMEOUT, ask)?.pop().ok_or(NoAnswer)
    }

    /// The server connections of these databases that must be closed when they are released. Exact after
    /// [`Self::change_operations`]: such connections do not move to other workers any more.
    pub(crate) fn count_closing(&self, scope: &Scope) -> Result<usize, NoAnswer> {
        let counts =
            self.ask_all(STATUS_TIMEOUT, |reply| ConsoleRequest::CountClosing(scope.clone(), reply))?;
        Ok(counts.into_iter().sum())
    }

    /// All clients. Workers describe some at a time, so clients that come or leave meanwhile may be missing.
    pub(crate) fn clients(&self) -> Result<Vec<ClientView>, NoAnswer> {
        let mut clients = Vec::new();
        for mailbox in &*self.mailboxes {
            let mut next = Some(0);
            while let Some(from) = next {
                let ask = |reply| ControlRequest::Console(ConsoleRequest::Clients(from, reply));
                let page = request(std::slice::from_ref(mailbox), STATUS_TIMEOUT, ask)?.pop();
                let page = page.ok_or(NoAnswer)?;
                clients.extend(page.clients);
                next = page.next;
            }
        }
        Ok(clients)
    }

    pub(crate) fn servers(&self) -> Result<Vec<ServerView>, NoAnswer> {
        Ok(self.ask_all(STATUS_TIMEOUT, ConsoleRequest::Servers)?.into_iter().flatten().collect())
    }

    pub(crate) fn usage(&self) -> Result<Vec<UsageView>, NoAnswer> {
        self.ask_all(STATUS_TIMEOUT, ConsoleRequest::Usage)
    }

    /// The names that the first worker resolves; the other workers share them.
    pub(crate) fn names(&self) -> Result<Vec<KnownName>, NoAnswer> {
        let ask = |reply| ControlRequest::Console(ConsoleRequest::Names(reply));
        request(self.first(), STATUS_TIMEOUT, ask)?.pop().ok_or(NoAnswer)
    }

    fn first(&self) -> &[Mailbox<P>] {
        self.mailboxes.first().map_or(&[], std::slice::from_ref)
    }

    /// Closes all clients and server connections of these databases.
    pub(crate) fn kill(&self, scope: &Scope) -> Result<(), NoAnswer> {
        self.ask_all(RELOAD_TIMEOUT, |reply| ConsoleRequest::Kill(scope.clone(), reply)).map(drop)
    }

    /// Closes a client and the connection that serves it. Returns whether there is such a client.
    pub(crate) fn kill_client(&self, number: u32) -> Result<bool, NoAnswer> {
        let had = self.ask_all(RELOAD_TIMEOUT, |reply| ConsoleRequest::KillClient(number, reply))?;
        Ok(had.contains(&true))
    }

    /// Stops the proxy: at once, or when its clients have left, however long that takes.
    pub(crate) fn stop(&self, at_once: bool, waiting_clients: WaitingClients) -> Result<(), NoAnswer> {
        let wait = if at_once { Duration::ZERO } else { FOR_EVER };
        // The first worker tells the others.
        let ask = |reply| ControlRequest::Console(ConsoleRequest::Stop(wait, reply));
        request(self.first(), STATUS_TIMEOUT, ask)?;
        match waiting_clients {
            WaitingClients::Served => Ok(()),
            WaitingClients::Refused => self.ask_all(STATUS_TIMEOUT, ConsoleRequest::RefuseWaiting).map(drop),
        }
    }
}
