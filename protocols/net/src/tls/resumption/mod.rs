//! TLS session resumption with OpenSSL, with the `unsafe` block that offering a session requires.
//!
//! OpenSSL requires that a session object is used with one context only. A context that keeps its sessions
//! for itself ([`SessionPolicy::PerContext`]) never gives one away. A context that shares them
//! ([`SessionPolicy::Shared`]) shares bytes, from which each connection makes a new object, as libmysqlclient does.

mod newest;

use std::fmt;
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::ssl::{Ssl, SslContext, SslContextBuilder, SslSession, SslSessionCacheMode, SslVersion};
use zeroize::Zeroizing;

use newest::{Newest, Reuse};

/// A client's TLS context whose connections may resume earlier sessions.
#[derive(Clone)]
pub(super) struct Context {
    inner: SslContext,
    store: SessionStore,
}

/// What to do with the sessions that servers issue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SessionPolicy {
    /// Drop them: every connection does a full handshake.
    Nothing,
    /// Keep them for connections of the same context.
    PerContext,
    /// Share them with other contexts of this process.
    Shared(Sessions),
}

/// Sessions for any context with the same settings, in DER. They are secrets, and wiped when dropped.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Newest<Zeroizing<Vec<u8>>>>);

#[derive(Clone)]
enum SessionStore {
    Nothing,
    /// Session objects of this context, which no other context can reach.
    PerContext(Arc<Newest<SslSession>>),
    Shared(Sessions),
}

impl Sessions {
    pub fn new() -> Self {
        Self::default()
    }
}

impl PartialEq for Sessions {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Sessions {}

impl fmt::Debug for Sessions {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Sessions(..)")
    }
}

impl Context {
    pub(super) fn build(mut builder: SslContextBuilder, policy: &SessionPolicy) -> Self {
        let store = match policy {
            SessionPolicy::Nothing => return Self { inner: builder.build(), store: SessionStore::Nothing },
            SessionPolicy::PerContext => SessionStore::PerContext(Arc::default()),
            SessionPolicy::Shared(sessions) => SessionStore::Shared(sessions.clone()),
        };
        // OpenSSL's own cache is useless for a client and would hold further references.
        builder.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        let callback_store = store.clone();
        builder.set_new_session_callback(move |_, session| callback_store.put(session));
        Self { inner: builder.build(), store }
    }

    /// A new connection, which offers the newest session that is kept, if there is one.
    pub(super) fn ssl(&self) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.inner)?;
        if let Some(session) = self.store.take()? {
            // SAFETY: `set_session` requires that the session belongs to the connection's own context or to
            // none. A session from `SessionStore::take` was either just made from bytes and belongs to no
            // context, or comes from `SessionStore::PerContext`. That store is created in `Context::build`
            // for one context, filled only by that context's callback and never handed out, and `ssl` belongs
            // to the same context.
            #[expect(unsafe_code, reason = "the safe API cannot offer a session")]
            unsafe {
                ssl.set_session(&session)?;
            }
        }
        Ok(ssl)
    }
}

impl SessionStore {
    fn put(&self, session: SslSession) {
        let reuse = if session.protocol_version() == SslVersion::TLS1_3 { Reuse::Once } else { Reuse::Often };
        match self {
            Self::Nothing => {}
            Self::PerContext(newest) => newest.put(reuse, session),
            // A session that cannot be serialized is dropped: the next connection does a full handshake,
            // which callers observe.
            Self::Shared(sessions) => {
                if let Ok(der) = session.to_der() {
                    sessions.0.put(reuse, Zeroizing::new(der));
                }
            }
        }
    }

    fn take(&self) -> Result<Option<SslSession>, ErrorStack> {
        match self {
            Self::Nothing => Ok(None),
            Self::PerContext(newest) => Ok(newest.take()),
            Self::Shared(sessions) => sessions.0.take().map(|der| SslSession::from_der(&der)).transpose(),
        }
    }
}
