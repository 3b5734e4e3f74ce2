//! Users that the settings do not name: a client sends its password in clear text over TLS or a unix socket, and the server
//! is asked whether it is right, by a login. For a short time, its word counts for other clients with this password.

use std::collections::HashSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use ciphertoll_net::Error;
use ciphertoll_wire::Secret;
use ciphertoll_wire::mysql::auth::native_password::NONCE_BYTES;
use ciphertoll_wire::mysql::{self, MySqlLogin, MySqlTlsMode, Plugin};
use ciphertoll_wire::session::{self, Login};
use foldhash::HashMap;

use super::credential_store::StoredCredentials;
use crate::fingerprint::{Fingerprint, FingerprintBuilder};
use crate::log::{Level, Log};
use crate::login_hosts::{HostLogin, LoginHosts, is_final};
use crate::look_up::{LookUp, Report};
use crate::on_demand::OnDemandThread;
use crate::refusal::Refusal;
use crate::settings::{Settings, UnknownUsers};
use crate::url::{ServerAddress, UpstreamEncryption};

/// How long a password counts as right after the server has said so. A change takes effect at the latest after this time.
const CACHE_TIME: Duration = Duration::from_secs(10);
/// Users with a password. A further user replaces the one that was confirmed first.
const MAX_USERS: usize = 10_000;
/// Clients that wait for an answer. Further ones are refused.
const MAX_WAITING: usize = 4096;
const THREADS: usize = 2;

/// Clones share everything.
#[derive(Clone)]
pub(super) struct PassThroughAuth {
    server: Arc<AskedServer>,
    threads: [OnDemandThread<PasswordQuestion>; THREADS],
    proven: ProvenPasswords,
}

/// The server, and how it is reached.
struct AskedServer {
    /// Their passwords are in the settings.
    configured: HashSet<String>,
    encryption: MySqlTlsMode,
    transport: mysql::Transport,
    /// Set once the workers know the hosts.
    way: OnceLock<(LoginHosts, Log)>,
    waiting: AtomicUsize,
}

struct PasswordQuestion {
    user: String,
    password: Secret,
    plugin: Plugin,
    proven: ProvenPasswords,
    answer: Arc<OnceLock<ServerAnswer>>,
    /// `None` when it is answered.
    report: Option<Report>,
    asked: Instant,
}

/// What the server says of a password.
#[derive(Clone, Debug)]
pub(super) enum ServerAnswer {
    Right,
    /// For a reason that the client is not told.
    Denied,
    Refused(Refusal),
}

/// The last right password of each user, for the connections of all workers.
#[derive(Clone, Default)]
pub(super) struct ProvenPasswords(Arc<Mutex<HashMap<String, Arc<ProvenPassword>>>>);

pub(super) struct ProvenPassword {
    pub(super) password: Secret,
    pub(super) fingerprint: Fingerprint,
    stored: StoredCredentials,
    confirmed: Instant,
}

impl PassThroughAuth {
    /// `None` if users whom the settings do not name are refused.
    pub(super) fn of(settings: &Settings) -> Option<Self> {
        if settings.access.unknown_users != UnknownUsers::PassThrough {
            return None;
        }
        let transport = match &settings.server.address {
            ServerAddress::Socket(_) => mysql::Transport::UnixSocket,
            ServerAddress::Host { .. } => mysql::Transport::Tcp,
        };
        let encryption = match settings.server.encryption {
            UpstreamEncryption::None => MySqlTlsMode::Plain,
            UpstreamEncryption::Tls { .. } => MySqlTlsMode::Tls,
        };
        let configured = settings.users.iter().map(|user| user.name.clone()).collect();
        let (way, waiting) = (OnceLock::new(), AtomicUsize::new(0));
        let server = Arc::new(AskedServer { configured, encryption, transport, way, waiting });
        let threads = [(); THREADS].map(|()| {
            let server = Arc::clone(&server);
            OnDemandThread::new("pass-through", move |question: PasswordQuestion| {
                server.waiting.fetch_sub(1, Ordering::AcqRel);
                // Otherwise its client has left.
                if Arc::strong_count(&question.answer) > 1 {
                    server.answer(question);
                }
            })
        });
        Some(Self { server, threads, proven: ProvenPasswords::default() })
    }

    /// Keeps what the server has confirmed before a reload: clients that are connected use it.
    #[must_use]
    pub(super) fn after(self, earlier: Option<&Self>) -> Self {
        let proven = earlier.map_or(self.proven, |earlier| earlier.proven.clone());
        Self { proven, ..self }
    }

    /// Sets how the server is reached.
    pub(super) fn connect_by(&self, hosts: LoginHosts, log: Log) {
        let _ = self.server.way.set((hosts, log));
    }

    /// Whether the settings have the password of this user.
    pub(super) fn configures(&self, user: &str) -> bool {
        self.server.configured.contains(user)
    }

    pub(super) fn proven(&self) -> &ProvenPasswords {
        &self.proven
    }

    /// The question whether the server accepts this password; `answer` is set when it is answered.
    pub(super) fn look_up(
        &self,
        user: &str,
        password: Secret,
        plugin: Plugin,
        answer: &Arc<OnceLock<ServerAnswer>>,
    ) -> LookUp {
        let (own, user, answer) = (self.clone(), user.to_owned(), Arc::clone(answer));
        let proven = self.proven.clone();
        LookUp::new(move |report| {
            let (report, asked) = (Some(report), Instant::now());
            own.ask(PasswordQuestion { user, password, plugin, proven, answer, report, asked });
        })
    }

    fn ask(self, question: PasswordQuestion) {
        let number = self.server.waiting.fetch_add(1, Ordering::AcqRel);
        if number >= MAX_WAITING {
            self.server.waiting.fetch_sub(1, Ordering::AcqRel);
            let message = "too many clients wait until the server has checked their passwords";
            return question.finish(ServerAnswer::Refused(Refusal::new(Refusal::FULL, message)), "full");
        }
        if let Err(error) = self.threads[number % THREADS].add(question) {
            self.server.waiting.fetch_sub(1, Ordering::AcqRel);
            self.server.report(Level::Warn, "pass-through-failed", &error.to_string());
        }
    }
}

impl AskedServer {
    fn answer(&self, question: PasswordQuestion) {
        let proven = &question.proven;
        // Another client of this user may have waited before this one.
        if proven.is_right(&question.user, question.password.expose()) {
            return question.finish(ServerAnswer::Right, "cached");
        }
        match self.log_in(&question) {
            Ok(login) => {
                // The server notices the end in any case.
                let _ = login.client.close();
                proven.add(&question.user, &question.password);
                question.finish(ServerAnswer::Right, "found");
            }
            Err(error) => {
                if matches!(failure_of(&error), LoginFailure::Refused | LoginFailure::NoPlugin) {
                    proven.forget(&question.user, question.password.expose());
                }
                self.finish_failed(question, &error);
            }
        }
    }

    fn finish_failed(&self, question: PasswordQuestion, error: &Error) {
        let refused = || ServerAnswer::Refused(Refusal::connect_failed(error));
        match failure_of(error) {
            LoginFailure::Refused => question.finish(refused(), "unknown"),
            LoginFailure::NoPlugin => {
                let reason = format!("\"{}\": {error}", question.user);
                self.report(Level::Info, "pass-through-unusable", &reason);
                question.finish(ServerAnswer::Denied, "unknown");
            }
            LoginFailure::OfServer => {
                self.report(Level::Warn, "pass-through-failed", &error.to_string());
                question.finish(refused(), "failed");
            }
        }
    }

    fn log_in(&self, question: &PasswordQuestion) -> Result<HostLogin, Error> {
        let (hosts, _) = self.way.get().ok_or(Error::Closed)?;
        let login = MySqlLogin {
            encryption: self.encryption,
            transport: self.transport,
            plugin: question.plugin,
            ..MySqlLogin::new(question.user.clone(), question.password.clone())
        };
        hosts.log_in(&Login::MySql(Arc::new(login)), question.asked)
    }

    fn report(&self, level: Level, event: &str, reason: &str) {
        if let Some((_, log)) = self.way.get() {
            log.event(level, event, &[("reason", &reason)]);
        }
    }
}

impl PasswordQuestion {
    fn finish(mut self, verdict: ServerAnswer, outcome: &'static str) {
        self.answered(verdict, outcome);
    }

    fn answered(&mut self, verdict: ServerAnswer, outcome: &'static str) {
        if let Some(report) = self.report.take() {
            let _ = self.answer.set(verdict);
            report(outcome);
        }
    }
}

/// Its client must not wait for ever, whatever happens to the thread.
impl Drop for PasswordQuestion {
    fn drop(&mut self) {
        let message = "the proxy cannot ask the server whether the password is right";
        self.answered(ServerAnswer::Refused(Refusal::new(Refusal::NO_SERVER, message)), "failed");
    }
}

/// Why a login has failed.
#[derive(Clone, Copy)]
enum LoginFailure {
    /// The server says so.
    Refused,
    /// The account needs a plugin that the proxy does not have. MySQL also asks for one if there is no such user.
    NoPlugin,
    OfServer,
}

fn failure_of(error: &Error) -> LoginFailure {
    match error {
        Error::Protocol(session::Error::MySql(mysql::Error::UnsupportedAuth { .. })) => {
            LoginFailure::NoPlugin
        }
        // They say nothing of the password.
        error if error.is_too_many_connections() || !is_final(error) => LoginFailure::OfServer,
        Error::Protocol(session::Error::MySql(mysql::Error::Server { .. })) => LoginFailure::Refused,
        _ => LoginFailure::OfServer,
    }
}

impl ProvenPasswords {
    fn users(&self) -> MutexGuard<'_, HashMap<String, Arc<ProvenPassword>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this response to the challenge was computed from a password that the server has confirmed lately.
    pub(super) fn accepts(
        &self,
        user: &str,
        plugin: Plugin,
        nonce: &[u8; NONCE_BYTES],
        proof: &[u8],
    ) -> bool {
        self.fresh(user).is_some_and(|known| known.stored.accepts(plugin, nonce, proof))
    }

    /// Whether the server has confirmed this password lately.
    pub(super) fn is_right(&self, user: &str, password: &[u8]) -> bool {
        self.fresh(user).is_some_and(|known| known.stored.is_of(password))
    }

    fn fresh(&self, user: &str) -> Option<Arc<ProvenPassword>> {
        self.get(user).filter(|known| known.confirmed.elapsed() < CACHE_TIME)
    }

    /// With this password, connections of the user are opened.
    pub(super) fn get(&self, user: &str) -> Option<Arc<ProvenPassword>> {
        self.users().get(user).cloned()
    }

    /// The server has confirmed this password.
    fn add(&self, user: &str, password: &Secret) {
        let mut fingerprint = FingerprintBuilder::default();
        fingerprint.add(user.as_bytes());
        fingerprint.add(password.expose());
        let proven = ProvenPassword {
            password: password.clone(),
            fingerprint: fingerprint.finish(),
            stored: StoredCredentials::of(password.expose()),
            confirmed: Instant::now(),
        };
        let mut users = self.users();
        if users.len() >= MAX_USERS
            && !users.contains_key(user)
            && let Some(oldest) =
                users.iter().min_by_key(|(_, known)| known.confirmed).map(|(user, _)| user.clone())
        {
            users.remove(&oldest);
        }
        users.insert(user.to_owned(), Arc::new(proven));
    }

    /// The server has refused this password.
    fn forget(&self, user: &str, password: &[u8]) {
        let mut users = self.users();
        if users.get(user).is_some_and(|known| known.stored.is_of(password)) {
            users.remove(user);
        }
    }
}

/// Hides the password.
impl fmt::Debug for ProvenPassword {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProvenPassword(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(text.as_bytes().to_vec())
    }

    #[test]
    fn a_password_is_right_while_the_server_has_not_refused_it() {
        let proven = ProvenPasswords::default();
        assert!(!proven.is_right("app", b"one") && proven.get("app").is_none());
        proven.add("app", &secret("one"));
        assert!(
            proven.is_right("app", b"one")
                && !proven.is_right("app", b"two")
                && !proven.is_right("b", b"one")
        );
        let before = proven.get("app").unwrap().fingerprint;
        proven.forget("app", b"two");
        assert!(proven.is_right("app", b"one"));
        proven.clone().add("app", &secret("two"));
        assert!(proven.is_right("app", b"two") && !proven.is_right("app", b"one"));
        assert_ne!(proven.get("app").unwrap().fingerprint, before);
        assert_eq!(format!("{:?}", proven.get("app").unwrap()), "ProvenPassword(..)");
        proven.forget("app", b"two");
        assert!(proven.get("app").is_none());
    }
}
