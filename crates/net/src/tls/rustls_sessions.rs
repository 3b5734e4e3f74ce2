//! A session store for one rustls context: rustls's own store keeps eight tickets per server, fewer than there are
//! clients.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls12Resumption, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

use super::ResumptionMethod;

/// More than there are clients; older tickets are dropped.
const MOST_TICKETS: usize = 1024;

/// The resumption settings of a new context.
pub(super) fn resumption(method: ResumptionMethod) -> Resumption {
    Resumption::store(Arc::new(SingleServerStore::default())).tls12_resumption(match method {
        ResumptionMethod::Any => Tls12Resumption::SessionIdOrTickets,
        ResumptionMethod::SessionId => Tls12Resumption::SessionIdOnly,
    })
}

/// A store for one server, so names do not matter.
#[derive(Default)]
struct SingleServerStore(Mutex<StoredSessions>);

#[derive(Default)]
struct StoredSessions {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: VecDeque<Tls13ClientSessionValue>,
}

impl SingleServerStore {
    /// Data behind the mutex are valid even if a thread panicked.
    fn lock(&self) -> MutexGuard<'_, StoredSessions> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for SingleServerStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("SingleServerStore(..)")
    }
}

impl ClientSessionStore for SingleServerStore {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.lock().group = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.lock().group
    }

    fn set_tls12_session(&self, _: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.lock().tls12 = Some(session);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.lock().tls12.clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.lock().tls12 = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut sessions = self.lock();
        if sessions.tickets.len() == MOST_TICKETS {
            sessions.tickets.pop_front();
        }
        sessions.tickets.push_back(ticket);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.lock().tickets.pop_back()
    }
}
