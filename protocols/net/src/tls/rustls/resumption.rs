//! Session stores for one rustls context and one server: rustls's own store keeps eight tickets per server, fewer than
//! there are clients.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::NamedGroup;
use rustls::client::{
    ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls12Resumption, Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;

use crate::tls::settings::ResumptionMethod;

/// More than there are clients; older tickets are dropped.
const MOST_TICKETS: usize = 1024;

/// Resumes sessions of one context.
pub(super) fn within_context(method: ResumptionMethod) -> Resumption {
    Resumption::store(Arc::new(SingleServerStore::default())).tls12_resumption(match method {
        ResumptionMethod::Any => Tls12Resumption::SessionIdOrTickets,
        ResumptionMethod::SessionId => Tls12Resumption::SessionIdOnly,
    })
}

/// Resumes nothing, but sends the key share that the server has asked for in an earlier handshake, which saves the round
/// trip of a HelloRetryRequest. rustls reports a group when the server has proven its identity.
pub(super) fn last_group() -> Resumption {
    Resumption::store(Arc::new(LastGroup::default())).tls12_resumption(Tls12Resumption::Disabled)
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

#[derive(Debug, Default)]
struct LastGroup(Mutex<Option<NamedGroup>>);

impl ClientSessionStore for LastGroup {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, _: ServerName<'static>, _: Tls13ClientSessionValue) {}

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        None
    }
}
