//! Users that the settings do not name: one of the configured users runs a query that asks the server for
//! their SCRAM secrets.
//!
//! A thread runs the queries. It exists, with its connection to the server, only while there are some.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use ciphertoll_net::Error;
use ciphertoll_wire::postgres::{self, ChannelBinding, PostgresLogin, PostgresTlsMode, Severity};
use ciphertoll_wire::scram::Verifier;
use ciphertoll_wire::session::{self, Login, Row};
use foldhash::HashMap;
use openssl::base64::encode_block;
use openssl::error::ErrorStack;
use openssl::sha::Sha256;

use crate::log::{Level, Log};
use crate::login_hosts::{HostLogin, LoginHosts};
use crate::look_up::{LookUp, Report};
use crate::settings::{AuthQuery, Settings, UnknownUsers};
use crate::url::UpstreamEncryption;

/// How long an answer is used. A changed secret takes effect at the latest after this time.
const CACHE_TIME: Duration = Duration::from_secs(10);
/// An answer that did not help its client may be out of date. It is dropped at most this often.
const MIN_CACHE_TIME: Duration = Duration::from_secs(1);
/// Users with an answer in the cache.
const MAX_CACHED: usize = 4096;
/// Clients that wait for an answer. Further ones are refused.
const MAX_WAITING: usize = 4096;
/// How long the connection is kept for the next query.
const IDLE_TIME: Duration = Duration::from_secs(2);
/// After a failure, clients are refused for this long without another attempt.
const PAUSE: Duration = Duration::from_secs(1);
/// Names without a schema are those of the catalog, and the server ends a query that takes too long.
const STARTUP: [(&str, &str); 3] = [
    ("application_name", "ciphertoll-proxy auth-query"),
    ("search_path", "pg_catalog, pg_temp"),
    ("statement_timeout", "5s"),
];
/// Iterations of users that do not exist, unless the server's users have shown another number.
const USUAL_ITERATIONS: u32 = 4096;
const SALT_BYTES: usize = 16;
const KEY_BYTES: usize = 32;

/// Which login asks, and what.
pub(super) struct SecretQuery {
    login: Arc<PostgresLogin>,
    query: String,
}

impl SecretQuery {
    /// `None` if users whom the settings do not name are refused.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        let UnknownUsers::AuthQuery(AuthQuery { user, query }) = &settings.access.unknown_users else {
            return None;
        };
        let asker = settings.users.iter().find(|known| known.name == *user)?;
        let (encryption, channel_binding) = match settings.server.encryption {
            UpstreamEncryption::None => (PostgresTlsMode::Plain, ChannelBinding::Disabled),
            UpstreamEncryption::Tls { .. } => (PostgresTlsMode::Tls, ChannelBinding::Preferred),
        };
        let given = STARTUP.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let login = Arc::new(PostgresLogin {
            user: asker.name.clone(),
            password: asker.password.clone(),
            database: asker.database.clone(),
            encryption,
            channel_binding,
            startup: given.into(),
        });
        Some(Self { login, query: query.clone() })
    }
}

/// What the server has answered.
#[derive(Clone)]
pub(super) enum Found {
    /// The user's secret, or one that no password matches if there is no such user.
    Secret { verifier: Verifier, since: Instant },
    /// It is not known. The reason is in the log, and not for clients.
    Failed,
}

pub(super) struct CredentialLookup {
    question: SecretQuery,
    /// Their passwords are in the settings.
    configured: HashSet<String>,
    /// How the server is reached, once that is known.
    way: OnceLock<(LoginHosts, Log)>,
    /// Makes the salts of users that do not exist.
    salt_key: [u8; KEY_BYTES],
    state: Mutex<LookUpState>,
    has_work: Condvar,
}

#[derive(Default)]
struct LookUpState {
    waiting: VecDeque<Waiting>,
    is_running: bool,
    cache: HashMap<String, Found>,
    /// After a failure.
    paused_until: Option<Instant>,
    iterations: Option<u32>,
}

struct Waiting {
    user: String,
    answer: Arc<OnceLock<Found>>,
    report: Report,
    asked: Instant,
}

impl CredentialLookup {
    pub(super) fn new(question: SecretQuery, configured: HashSet<String>) -> Result<Self, ErrorStack> {
        let salt_key = salt_key(question.login.password.expose())?;
        let (way, state, has_work) = (OnceLock::new(), Mutex::default(), Condvar::new());
        Ok(Self { question, configured, way, salt_key, state, has_work })
    }

    /// Sets how the server is reached.
    pub(super) fn connect_by(&self, hosts: LoginHosts, log: Log) {
        let _ = self.way.set((hosts, log));
    }

    /// Whether the settings have the password of this user.
    pub(super) fn configures(&self, user: &str) -> bool {
        self.configured.contains(user)
    }

    fn state(&self) -> MutexGuard<'_, LookUpState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn cached(&self, user: &str) -> Option<Found> {
        self.state().known(user, Instant::now())
    }

    /// A client's proof was wrong: its secret may have changed.
    pub(super) fn doubt(&self, user: &str) {
        let (now, mut state) = (Instant::now(), self.state());
        if state.cache.get(user).is_some_and(|found| found.age(now) >= MIN_CACHE_TIME) {
            state.cache.remove(user);
        }
    }

    /// The query for this user; `answer` is set when it is done.
    pub(super) fn look_up(self: &Arc<Self>, user: &str, answer: &Arc<OnceLock<Found>>) -> LookUp {
        let (lookup, user, answer) = (Arc::clone(self), user.to_owned(), Arc::clone(answer));
        LookUp::new(move |report| {
            lookup.enqueue(Waiting { user, answer, report, asked: Instant::now() });
        })
    }

    fn enqueue(self: Arc<Self>, waiting: Waiting) {
        let mut state = self.state();
        if state.waiting.len() >= MAX_WAITING {
            drop(state);
            return waiting.finish(Found::Failed, "full");
        }
        state.waiting.push_back(waiting);
        if state.is_running {
            self.has_work.notify_one();
            return;
        }
        let own = Arc::clone(&self);
        let started = thread::Builder::new().name("auth-query".to_owned()).spawn(move || own.run());
        match started {
            Ok(_) => state.is_running = true,
            Err(error) => {
                let all = std::mem::take(&mut state.waiting);
                drop(state);
                self.warn("auth-query-failed", &error.to_string());
                for waiting in all {
                    waiting.finish(Found::Failed, "failed");
                }
            }
        }
    }

    /// Answers clients until there are none for a while.
    fn run(&self) {
        let _running = RunningThread(self);
        let mut connection = None;
        while let Some(waiting) = self.next() {
            if Arc::strong_count(&waiting.answer) == 1 {
                // Its client has left.
                continue;
            }
            let (found, outcome) = self.answer(&waiting, &mut connection);
            waiting.finish(found, outcome);
        }
        if let Some(connection) = connection {
            // The server notices the end in any case.
            let _ = connection.client.close();
        }
    }

    /// `None` if there are no more: then the thread does not count as running any more.
    fn next(&self) -> Option<Waiting> {
        let until = Instant::now() + IDLE_TIME;
        let mut state = self.state();
        loop {
            if let Some(waiting) = state.waiting.pop_front() {
                return Some(waiting);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.is_running = false;
                return None;
            }
            let waited = self.has_work.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn answer(&self, waiting: &Waiting, connection: &mut Option<HostLogin>) -> (Found, &'static str) {
        let (user, now) = (waiting.user.as_str(), Instant::now());
        let state = self.state();
        // Another client of this user may have waited before this one.
        if let Some(found) = state.known(user, now) {
            return (found, "cached");
        }
        if state.paused_until.is_some_and(|until| now < until) {
            return (Found::Failed, "failed");
        }
        let mock_iterations = state.iterations.unwrap_or(USUAL_ITERATIONS);
        drop(state);
        let secret = self.secret(waiting, connection).and_then(|secret| {
            let outcome = if secret.is_some() { "found" } else { "unknown" };
            let verifier = secret.map_or_else(|| self.mock(user, mock_iterations), Ok)?;
            Ok((verifier, outcome))
        });
        let mut state = self.state();
        match secret {
            Ok((verifier, outcome)) => {
                if outcome == "found" {
                    state.iterations = Some(verifier.iterations());
                }
                let found = Found::Secret { verifier, since: Instant::now() };
                // Clients can name any number of users that do not exist: these leave room in the cache for
                // existing users.
                let most = if outcome == "found" { MAX_CACHED } else { MAX_CACHED / 2 };
                state.remember(user, found.clone(), most);
                (found, outcome)
            }
            Err(failure) => {
                // Clients choose names, and a name may make its query fail: the queries for other names are
                // not affected.
                if failure.is_of_connection {
                    *connection = None;
                    // Where look-ups wait, one that has waited too long says nothing of the others.
                    let can_wait = self.way.get().is_some_and(|(hosts, _)| hosts.can_wait());
                    state.paused_until = (!can_wait).then(|| Instant::now() + PAUSE);
                }
                drop(state);
                self.warn("auth-query-failed", &failure.reason);
                (Found::Failed, "failed")
            }
        }
    }

    /// The user's secret; `None` if there is none that can be used.
    fn secret(
        &self,
        waiting: &Waiting,
        connection: &mut Option<HostLogin>,
    ) -> Result<Option<Verifier>, LookUpFailure> {
        let user = waiting.user.as_str();
        let rows = self.rows(waiting, connection).map_err(|error| LookUpFailure {
            reason: error.to_string(),
            is_of_connection: !is_servers(&error),
        })?;
        match rows.as_slice() {
            [] => Ok(None),
            [row] => match row.as_slice() {
                // Servers shorten names that are too long.
                [Some(name), Some(secret)] if name == user.as_bytes() => Ok(self.verifier(user, secret)),
                // A function that always returns one row returns NULL if it has no result.
                [_, _] => Ok(None),
                _ => Err(LookUpFailure::of_query(
                    "auth-query must return two columns: the user's name and secret",
                )),
            },
            _ => Err(LookUpFailure::of_query("auth-query must return at most one row")),
        }
    }

    fn verifier(&self, user: &str, secret: &[u8]) -> Option<Verifier> {
        let parsed = std::str::from_utf8(secret).ok().map(Verifier::parse);
        let Some(Ok(verifier)) = parsed else {
            // Also an MD5 hash, which would suffice to log in.
            let reason = format!("the secret of \"{user}\" is not SCRAM-SHA-256: set the password again");
            self.warn("auth-query-unusable", &reason);
            return None;
        };
        Some(verifier)
    }

    /// The rows of the query, over the connection of an earlier one if the server has not ended it.
    fn rows(&self, waiting: &Waiting, connection: &mut Option<HostLogin>) -> Result<Vec<Row>, Error> {
        let (hosts, _) = self.way.get().ok_or(Error::Closed)?;
        let parameters = [waiting.user.as_str()];
        if let Some(open) = connection.take_if(|open| !hosts.may_use(open)) {
            let _ = open.client.close();
        }
        if let Some(open) = connection {
            match open.client.query_with(&self.question.query, &parameters) {
                Err(error) if !is_servers(&error) => *connection = None,
                rows => return rows,
            }
        }
        let mut open = hosts.log_in(&Login::Postgres(Arc::clone(&self.question.login)), waiting.asked)?;
        let rows = open.client.query_with(&self.question.query, &parameters);
        *connection = Some(open);
        rows
    }

    /// A secret that no password matches. Its salt is always the same for one user, as with an existing one.
    fn mock(&self, user: &str, iterations: u32) -> Result<Verifier, LookUpFailure> {
        let mut digest = Sha256::new();
        digest.update(&self.salt_key);
        digest.update(user.as_bytes());
        let salt = encode_block(&digest.finish()[..SALT_BYTES]);
        let mut keys = [0; 2 * KEY_BYTES];
        openssl::rand::rand_bytes(&mut keys).map_err(|error| LookUpFailure::of_query(&error.to_string()))?;
        let [stored, server] = [&keys[..KEY_BYTES], &keys[KEY_BYTES..]].map(encode_block);
        let text = format!("SCRAM-SHA-256${iterations}:{salt}${stored}:{server}");
        Verifier::parse(&text).map_err(|error| LookUpFailure::of_query(&error.to_string()))
    }

    fn warn(&self, event: &str, reason: &str) {
        if let Some((_, log)) = self.way.get() {
            log.event(Level::Warn, event, &[("reason", &reason)]);
        }
    }
}

/// Stays the same over reloads, upgrades and restarts, as the salts of existing users do.
fn salt_key(password: &[u8]) -> Result<[u8; KEY_BYTES], ErrorStack> {
    let mut key = [0; KEY_BYTES];
    if password.is_empty() {
        openssl::rand::rand_bytes(&mut key)?;
        return Ok(key);
    }
    let mut digest = Sha256::new();
    digest.update(b"ciphertoll-proxy: salts of users that do not exist");
    digest.update(password);
    Ok(digest.finish())
}

/// Why a user's secret is not known.
#[derive(Debug)]
struct LookUpFailure {
    reason: String,
    /// Whether the queries for other users would fail, too.
    is_of_connection: bool,
}

impl LookUpFailure {
    fn of_query(reason: &str) -> Self {
        Self { reason: reason.to_owned(), is_of_connection: false }
    }
}

/// Whether the server has refused a query, and awaits the next one.
fn is_servers(error: &Error) -> bool {
    matches!(
        error,
        Error::Protocol(session::Error::Postgres(postgres::Error::Server { severity: Severity::Error, .. }))
    )
}

#[cfg(test)]
impl CredentialLookup {
    /// Knows the secrets of these users without asking, for the longest time.
    pub(super) fn knowing<'a>(users: impl IntoIterator<Item = (&'a str, Verifier)>) -> Arc<Self> {
        let lookup = tests::lookup();
        for (user, verifier) in users {
            let found = Found::Secret { verifier, since: Instant::now() };
            lookup.state().remember(user, found, MAX_CACHED);
        }
        lookup
    }
}

/// After a panic, another thread can be started.
struct RunningThread<'a>(&'a CredentialLookup);

impl Drop for RunningThread<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state().is_running = false;
        }
    }
}

impl Waiting {
    fn finish(self, found: Found, outcome: &'static str) {
        let _ = self.answer.set(found);
        (self.report)(outcome);
    }
}

impl LookUpState {
    fn known(&self, user: &str, now: Instant) -> Option<Found> {
        self.cache.get(user).filter(|found| found.age(now) < CACHE_TIME).cloned()
    }

    /// `most` is how many there may be with this one.
    fn remember(&mut self, user: &str, found: Found, most: usize) {
        if self.cache.len() >= most {
            let now = Instant::now();
            self.cache.retain(|_, found| found.age(now) < CACHE_TIME);
        }
        // Users without a place in the cache are looked up each time.
        if self.cache.len() < most {
            self.cache.insert(user.to_owned(), found);
        }
    }
}

impl Found {
    fn age(&self, now: Instant) -> Duration {
        match self {
            Self::Secret { since, .. } => now.saturating_duration_since(*since),
            Self::Failed => Duration::MAX,
        }
    }
}

#[cfg(test)]
mod tests;
