//! Server connections whose password comes from a command: what happens before there is one, and after the server has
//! refused one.

use ciphertoll_net::Error;
use ciphertoll_wire::{mysql, postgres, session};

use super::backend::ServerConnection;
use super::worker::Worker;
use crate::credentials::{AfterRefusal, Availability};
use crate::log::Level;
use crate::protocol::{PoolKey, Protocol};
use crate::slab::Id;

/// The SQL state and the error number of a wrong password. PostgreSQL says the same of a user that was removed.
const WRONG_PASSWORD: &str = "28P01";
const ACCESS_DENIED: u16 = 1045;

impl<P: Protocol> Worker<P> {
    /// Whether a connect cannot begin now: it waits for a password then, or has failed.
    pub(super) fn lacks_password(&mut self, key: &P::Key) -> bool {
        let Some(cell) = self.env.protocol.password_cell(key) else { return false };
        match cell.availability(self.env.now) {
            Availability::Ready => return false,
            Availability::Pending => self.wait_for_password(key),
            Availability::None(reason) => {
                let error = Error::NoPassword { user: key.user().to_owned(), reason };
                self.connect_failed(key, None, &error);
            }
        }
        true
    }

    fn wait_for_password(&mut self, key: &P::Key) {
        let number = self.next_number();
        let mut server = ServerConnection::connecting(key.clone(), number, &self.env);
        server.password.is_waiting = true;
        self.servers.insert(server);
    }

    /// A command has ended: connects that wait for its password begin or fail.
    pub(super) fn password_fetched(&mut self) {
        for id in self.servers.ids() {
            let Some(server) = self.servers.get(id).filter(|server| server.password.is_waiting) else {
                continue;
            };
            let key = server.key.clone();
            let cell = self.env.protocol.password_cell(&key);
            if !cell.is_some_and(|cell| cell.is_fetching(self.env.now)) {
                self.servers.remove(id);
                self.open_server(&key);
            }
        }
    }

    pub(super) fn password_accepted(&self, id: Id) {
        if let Some(server) = self.servers.get(id).filter(|server| server.password.version > 0)
            && let Some(cell) = self.env.protocol.password_cell(&server.key)
        {
            cell.accepted(server.password.version);
        }
    }

    /// If the server has refused a password that was replaced meanwhile, or is being replaced, the connect begins anew with
    /// the newer one.
    pub(super) fn has_newer_password(&mut self, id: Id, key: &P::Key, error: &Error) -> bool {
        let Some(used) = self.servers.get(id).map(|server| server.password) else { return false };
        if used.is_waiting || used.version == 0 || !is_refused_login(error) {
            return false;
        }
        let Some(cell) = self.env.protocol.password_cell(key) else { return false };
        let next = cell.refused(used.version, self.env.now);
        if next == AfterRefusal::Fail {
            return false;
        }
        let fields: [(&str, &dyn std::fmt::Display); 2] = [("user", &key.user()), ("reason", error)];
        self.env.log.event(Level::Info, "password-refused", &fields);
        // A poll is not repeated: the next one has the newer password.
        let is_counted = self.servers.remove(id).is_none_or(|server| self.give_up(&server));
        if !is_counted {
            return true;
        }
        match next {
            AfterRefusal::Retry => self.open_server(key),
            _ => self.wait_for_password(key),
        }
        true
    }
}

/// The command has not ended before `connect-time` was over.
pub(super) fn awaited_password(user: &str) -> Error {
    let reason = "no password yet: its command has not ended".to_owned();
    Error::NoPassword { user: user.to_owned(), reason }
}

fn is_refused_login(error: &Error) -> bool {
    match error {
        Error::Protocol(session::Error::Postgres(postgres::Error::Server { sqlstate, .. })) => {
            sqlstate.as_str() == WRONG_PASSWORD
        }
        Error::Protocol(session::Error::MySql(mysql::Error::Server { code, .. })) => *code == ACCESS_DENIED,
        _ => false,
    }
}
