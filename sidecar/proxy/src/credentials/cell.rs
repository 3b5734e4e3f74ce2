//! One user's command, and the password that it has printed last.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ciphertoll_wire::Secret;
use ciphertoll_wire::scram::KeyCache;
use jiff::Timestamp;

use super::command::{CommandError, RunningCommands, run};
use super::output::{Expiry, OutputError, Printed, parse};
use crate::fingerprint::{Fingerprint, FingerprintBuilder};

/// A password is replaced when this share of its life has passed, so that a failure leaves time for further attempts.
const REPLACED_AT: f64 = 0.8;
/// At most this share of that time is taken off, so that many proxies do not ask at the same moment.
const JITTER: f64 = 0.1;
/// Limits how often a command runs that prints the same password again, such as a cached token.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// A server's refusal of an older password that has worked causes a fetch.
const REFETCH_AFTER: Duration = Duration::from_mins(1);
const LONGEST_LIFE: Duration = Duration::from_hours(24 * 366);

/// What runs, and how. Equal ones print the same kind of password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PasswordCommand {
    /// The configured name of the user.
    pub user: String,
    /// The program and its arguments, with all substitutions.
    pub words: Vec<String>,
    /// The life of each password; `None` if only the command tells it.
    pub lifetime: Option<Duration>,
    pub time_limit: Duration,
    /// Environment variables that hold passwords of other users.
    pub hidden: Vec<String>,
    /// The most SCRAM iterations that the server may request.
    pub max_scram_iterations: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error(transparent)]
    Output(#[from] OutputError),
    #[error("the password that the command printed has expired already")]
    Expired,
    #[error("cannot start a thread: {0}")]
    NoThread(String),
}

/// A login that a command has printed.
pub(crate) struct FetchedLogin {
    /// The user name at the server.
    pub(crate) user: String,
    pub(crate) password: Secret,
    /// SCRAM keys, which depend on the password.
    pub(crate) keys: Arc<KeyCache>,
    pub(crate) expires: Option<Instant>,
    pub(crate) expires_unix_s: Option<i64>,
    /// When its command was started.
    fetched: Instant,
}

/// Whether connections can be opened with the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Availability {
    Ready,
    /// The command has not ended yet.
    Pending,
    /// The reason.
    None(String),
}

/// What to do after the server has refused a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterRefusal {
    /// There is a newer one.
    Retry,
    /// A newer one is being fetched.
    Wait,
    Fail,
}

pub struct PasswordCell {
    command: PasswordCommand,
    state: Mutex<CellState>,
}

#[derive(Default)]
struct CellState {
    login: Option<Arc<FetchedLogin>>,
    /// The number of passwords so far.
    version: u64,
    /// Whether the server has accepted the current one.
    is_accepted: bool,
    is_running: bool,
    /// When the command runs next; `None` if it need not.
    due: Option<Instant>,
    /// Of the last run.
    failure: Option<String>,
    pause: Duration,
}

impl PasswordCommand {
    /// That of connections which are opened with its passwords. A token matters at the login only: a newer one closes no
    /// connections.
    pub(crate) fn fingerprint(&self) -> Fingerprint {
        let mut fingerprint = FingerprintBuilder::default();
        fingerprint.add(self.user.as_bytes());
        self.words.iter().for_each(|word| fingerprint.add(word.as_bytes()));
        fingerprint.finish()
    }

    /// Whether both print passwords for the same user, however long they live and are waited for.
    pub(super) fn prints_the_same(&self, other: &Self) -> bool {
        self.user == other.user && self.words == other.words
    }
}

impl PasswordCell {
    /// The command is due at once.
    pub fn new(command: PasswordCommand) -> Self {
        let state = CellState { due: Some(Instant::now()), ..CellState::default() };
        Self { command, state: Mutex::new(state) }
    }

    /// A cell that uses the password of this one until its own command, which is due at once, has printed another one.
    pub(super) fn succeeded_by(&self, command: PasswordCommand) -> Self {
        let known = self.state();
        let login = known.login.as_ref().map(|login| Arc::new(login.under(&command)));
        let state = CellState {
            login,
            version: known.version,
            is_accepted: known.is_accepted,
            due: Some(Instant::now()),
            failure: known.failure.clone(),
            ..CellState::default()
        };
        Self { command, state: Mutex::new(state) }
    }

    pub fn command(&self) -> &PasswordCommand {
        &self.command
    }

    fn state(&self) -> MutexGuard<'_, CellState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last login, even if it has expired, and its number.
    pub(crate) fn login(&self) -> Option<Arc<FetchedLogin>> {
        self.state().login.clone()
    }

    /// The number of the last login: 0 before the first.
    pub(crate) fn version(&self) -> u64 {
        self.state().version
    }

    pub(crate) fn availability(&self, now: Instant) -> Availability {
        let state = self.state();
        let expired = match &state.login {
            Some(login) if login.is_valid(now) => return Availability::Ready,
            login => login.is_some(),
        };
        match &state.failure {
            None => Availability::Pending,
            Some(reason) if expired => {
                Availability::None(format!("it has expired, and no new one came: {reason}"))
            }
            Some(reason) => Availability::None(format!("no password yet: {reason}")),
        }
    }

    /// Whether the command runs, or is about to.
    pub(crate) fn is_fetching(&self, now: Instant) -> bool {
        let state = self.state();
        state.is_running || state.due.is_some_and(|due| due <= now)
    }

    pub(super) fn is_running(&self) -> bool {
        self.state().is_running
    }

    /// The server has accepted the login with this number.
    pub(crate) fn accepted(&self, version: u64) {
        let mut state = self.state();
        state.is_accepted |= state.version == version;
    }

    /// The server has refused the login with this number. One that worked before may have been replaced ahead of time.
    pub(crate) fn refused(&self, version: u64, now: Instant) -> AfterRefusal {
        let mut state = self.state();
        if state.version != version {
            return AfterRefusal::Retry;
        }
        if state.is_running || state.due.is_some_and(|due| due <= now) {
            return AfterRefusal::Wait;
        }
        let is_old = state.login.as_ref().is_none_or(|login| now >= login.fetched + REFETCH_AFTER);
        if state.failure.is_some() || !(state.is_accepted || is_old) {
            return AfterRefusal::Fail;
        }
        // Once: the command may print the same password again.
        (state.is_accepted, state.due) = (false, Some(now));
        AfterRefusal::Wait
    }

    /// Whether the command has failed, and its next run is not due yet.
    pub(super) fn is_backing_off(&self, now: Instant) -> bool {
        let state = self.state();
        state.failure.is_some() && state.due.is_some_and(|due| due > now)
    }

    /// A failure counts until the next run is due.
    pub(super) fn forget_old_failure(&self, now: Instant) {
        let mut state = self.state();
        if !state.is_running && state.due.is_none_or(|due| due <= now) {
            state.failure = None;
        }
    }

    /// Makes the command due now.
    pub(super) fn request(&self) {
        self.state().due = Some(Instant::now());
    }

    /// Whether the command must be run now. If so, [`Self::finish`] follows.
    pub(super) fn take_due(&self, now: Instant) -> bool {
        let mut state = self.state();
        let is_due = !state.is_running && state.due.is_some_and(|due| due <= now);
        state.is_running |= is_due;
        is_due
    }

    /// Runs the command and waits for its end.
    pub(crate) fn fetch(&self, running: &RunningCommands) -> Result<FetchedLogin, FetchError> {
        let command = &self.command;
        let (began, wall) = (Instant::now(), Timestamp::now());
        let output = run(&command.words, &command.hidden, command.time_limit, running)?;
        let Printed { password, user, expiry } = parse(&output)?;
        let life = expiry.map(|expiry| match expiry {
            Expiry::At(at) => Duration::try_from(at.duration_since(wall)).unwrap_or(Duration::ZERO),
            Expiry::After(span) => span,
        });
        let life = [life, command.lifetime].into_iter().flatten().min().map(|life| life.min(LONGEST_LIFE));
        let expires = life.map(|life| began + life);
        if expires.is_some_and(|expires| expires <= Instant::now()) {
            return Err(FetchError::Expired);
        }
        Ok(FetchedLogin {
            user: user.unwrap_or_else(|| command.user.clone()),
            password,
            keys: Arc::new(KeyCache::with_max_iterations(command.max_scram_iterations)),
            expires,
            expires_unix_s: life.map(|life| wall.as_second().saturating_add_unsigned(life.as_secs())),
            fetched: began,
        })
    }

    /// Runs the command for `--check`. An error names the user.
    pub fn check(&self) -> Result<(), String> {
        let fetched = self.fetch(&RunningCommands::default());
        fetched.map(drop).map_err(|error| format!("no password for user \"{}\": {error}", self.command.user))
    }

    /// Keeps the result of a run. After a failure, returns the pause before the next one.
    pub(super) fn finish(&self, result: &Result<Arc<FetchedLogin>, FetchError>) -> Option<Duration> {
        let now = Instant::now();
        let mut state = self.state();
        state.is_running = false;
        match result {
            Ok(login) => {
                state.due = login.expires.map(|expires| {
                    let pause = expires.saturating_duration_since(login.fetched).mul_f64(share_of_life());
                    (login.fetched + pause).max(now + SHORTEST_PAUSE)
                });
                (state.failure, state.pause) = (None, Duration::ZERO);
                // If the server has refused this password, a connect with it must not begin anew.
                let is_same = state.login.as_ref().is_some_and(|known| known.is_same_login(login));
                if !is_same {
                    state.version += 1;
                    state.is_accepted = false;
                }
                state.login = Some(Arc::clone(login));
                None
            }
            Err(error) => {
                state.pause = (state.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
                state.failure = Some(error.to_string());
                state.due = Some(now + state.pause);
                Some(state.pause)
            }
        }
    }
}

impl FetchedLogin {
    /// The same login with the limits of another command.
    fn under(&self, command: &PasswordCommand) -> Self {
        let limit = command.lifetime.map(|lifetime| self.fetched + lifetime.min(LONGEST_LIFE));
        Self {
            user: self.user.clone(),
            password: Secret::new(self.password.expose().to_vec()),
            keys: Arc::new(KeyCache::with_max_iterations(command.max_scram_iterations)),
            expires: [self.expires, limit].into_iter().flatten().min(),
            expires_unix_s: self.expires_unix_s,
            fetched: self.fetched,
        }
    }

    fn is_valid(&self, now: Instant) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    fn is_same_login(&self, other: &Self) -> bool {
        self.user == other.user && self.password.expose() == other.password.expose()
    }
}

fn share_of_life() -> f64 {
    let random = RandomState::new().hash_one(0) as f64 / u64::MAX as f64;
    REPLACED_AT * (1.0 - JITTER * random)
}

#[cfg(test)]
mod tests;
