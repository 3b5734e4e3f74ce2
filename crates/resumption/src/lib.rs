//! OpenSSL's sessions, kept and taken up again: the one thing about them that Rust cannot check by itself.
//!
//! OpenSSL wants a session object to be used with one context only. A context that keeps its sessions for itself
//! ([`Keep::Here`]) sees to that by never giving one away; one that shares them ([`Keep::Anywhere`]) shares bytes, of
//! which each connection makes an object of its own, as libmysqlclient does.

mod newest;

use std::fmt;
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslSession, SslSessionCacheMode, SslSessionRef, SslVersion,
};
use zeroize::Zeroizing;

use newest::Newest;

/// A client's context whose connections may take up earlier sessions.
#[derive(Clone)]
pub struct Context {
    inner: SslContext,
    kept: Kept,
}

/// What becomes of the sessions that servers give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keep {
    /// They are dropped: every connection begins afresh.
    Nothing,
    /// The context keeps them for its own connections.
    Here,
    /// They are shared with other contexts, of the same process.
    Anywhere(Sessions),
}

/// Sessions for any context with the same settings. They are secrets, wiped when dropped.
#[derive(Clone, Default)]
pub struct Sessions(Arc<Newest<Portable>>);

/// A session that belongs to no context.
struct Portable {
    reuse: Reuse,
    der: Zeroizing<Vec<u8>>,
}

/// How often a session may be offered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reuse {
    /// TLS 1.3: once, so that nobody can tell who comes back (RFC 8446, C.4); each connection brings new ones.
    Once,
    /// Before: as often as need be, since a connection that takes one up may bring none.
    Often,
}

#[derive(Clone)]
enum Kept {
    Nothing,
    /// Objects of this context's connections. Nothing but this context has a way to them.
    Here(Arc<Newest<(Reuse, SslSession)>>),
    Anywhere(Sessions),
}

impl Sessions {
    /// None yet.
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

impl Reuse {
    fn of(session: &SslSessionRef) -> Self {
        if session.protocol_version() == SslVersion::TLS1_3 { Self::Once } else { Self::Often }
    }
}

impl Context {
    /// The context that `builder` describes.
    pub fn build(mut builder: SslContextBuilder, keep: &Keep) -> Self {
        let kept = match keep {
            Keep::Nothing => return Self { inner: builder.build(), kept: Kept::Nothing },
            Keep::Here => Kept::Here(Arc::default()),
            Keep::Anywhere(sessions) => Kept::Anywhere(sessions.clone()),
        };
        // OpenSSL's own cache is of no use to a client: it would only hold on to what is kept here.
        builder.set_session_cache_mode(SslSessionCacheMode::CLIENT | SslSessionCacheMode::NO_INTERNAL);
        let keeper = kept.clone();
        builder.set_new_session_callback(move |_, session| keeper.put(session));
        Self { inner: builder.build(), kept }
    }

    /// A new connection; it offers the newest session that is kept, where there is one.
    pub fn ssl(&self) -> Result<Ssl, ErrorStack> {
        let mut ssl = Ssl::new(&self.inner)?;
        if let Some(session) = self.kept.take()? {
            // SAFETY: `set_session` asks that the session be associated with the connection's own context or with none.
            // What `Kept::take` gives is either made of bytes a moment ago, and then of no context, or comes out of
            // `Kept::Here`. That is made in `Context::build` for one context, filled by no other's callback, handed out
            // to nobody, and `ssl` is of that same context.
            #[expect(unsafe_code, reason = "there is no safe way to offer a session")]
            unsafe {
                ssl.set_session(&session)?;
            }
        }
        Ok(ssl)
    }
}

impl Kept {
    fn put(&self, session: SslSession) {
        let reuse = Reuse::of(&session);
        match self {
            Self::Nothing => {}
            Self::Here(newest) => newest.put((reuse, session)),
            // A session that cannot be written down is not kept: the next connection begins afresh, and is seen to.
            Self::Anywhere(sessions) => {
                if let Ok(der) = session.to_der() {
                    sessions.0.put(Portable { reuse, der: Zeroizing::new(der) });
                }
            }
        }
    }

    fn take(&self) -> Result<Option<SslSession>, ErrorStack> {
        match self {
            Self::Nothing => Ok(None),
            Self::Here(newest) => {
                Ok(newest.take(|(reuse, _)| *reuse == Reuse::Often, |(_, session)| session.clone()))
            }
            Self::Anywhere(sessions) => {
                let der = sessions.0.take(|kept| kept.reuse == Reuse::Often, |kept| kept.der.clone());
                der.map(|der| SslSession::from_der(&der)).transpose()
            }
        }
    }
}
