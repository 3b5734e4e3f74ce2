//! Runs the commands of all users when they are due.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::any_user::AnyUserPasswords;
use super::cell::{FetchError, FetchedLogin, PasswordCell};
use super::command::RunningCommands;
use crate::duration::HumanDuration;
use crate::group_limits::ANY_USER;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::on_demand::OnDemandThread;

/// Commands that run at the same time at most: of users in the settings, and of others. One that hangs delays only the users of its thread.
const THREADS: usize = 4;

/// The passwords that come from commands.
pub struct PasswordSources {
    /// Of users whom the settings name.
    pub cells: Vec<Arc<PasswordCell>>,
    pub any_user: Option<Arc<AnyUserPasswords>>,
}

/// Starts the commands of passwords that are due. Clones are the same.
#[derive(Clone)]
pub struct Credentials(Arc<Shared>);

/// A command to be run now.
#[derive(Clone)]
struct DueCommand {
    cell: Arc<PasswordCell>,
    /// Whether the settings name its user.
    is_configured: bool,
}

struct Shared {
    sources: Mutex<PasswordSources>,
    threads: [OnDemandThread<DueCommand>; 2 * THREADS],
    context: Arc<Context>,
}

/// What the threads use.
struct Context {
    running: RunningCommands,
    log: Mutex<Log>,
    /// Tells the workers that a command has ended.
    report: Box<dyn Fn() + Send + Sync>,
    metrics: Arc<Metrics>,
}

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PasswordSources {
    /// The names of the settings.
    fn users(&self) -> Vec<&str> {
        let users = self.cells.iter().map(|cell| cell.command().user.as_str());
        users.chain(self.any_user.is_some().then_some(ANY_USER)).collect()
    }

    /// The commands to run now, each with the number of a thread. Users whom the settings do not name have their own threads.
    fn take_due(&self, now: Instant) -> Vec<(usize, DueCommand)> {
        let configured =
            |cell: &Arc<PasswordCell>| DueCommand { cell: Arc::clone(cell), is_configured: true };
        let cells = self.cells.iter().enumerate().filter(|(_, cell)| cell.take_due(now));
        let mut due: Vec<_> = cells.map(|(number, cell)| (number % THREADS, configured(cell))).collect();
        let others = self.any_user.iter().flat_map(|users| users.take_due(THREADS, now));
        due.extend(
            others.map(|(number, cell)| (THREADS + number, DueCommand { cell, is_configured: false })),
        );
        due
    }

    fn request(&self) {
        self.cells.iter().for_each(|cell| cell.request());
        self.any_user.iter().for_each(|users| users.request());
    }
}

impl Credentials {
    pub fn new(
        sources: PasswordSources,
        log: Log,
        metrics: Arc<Metrics>,
        report: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        metrics.passwords.configure(&sources.users());
        let context = Context {
            running: RunningCommands::default(),
            log: Mutex::new(log),
            report: Box::new(report),
            metrics,
        };
        let context = Arc::new(context);
        let thread = || {
            let context = Arc::clone(&context);
            OnDemandThread::new("credentials", move |due: DueCommand| {
                let fetched = due.cell.fetch(&context.running);
                context.finish(&due, fetched);
            })
        };
        let threads = [(); 2 * THREADS].map(|()| thread());
        Self(Arc::new(Shared { sources: Mutex::new(sources), threads, context }))
    }

    /// Starts what is due. Called several times per second; does not block.
    pub fn tick(&self, now: Instant) {
        let due = lock(&self.0.sources).take_due(now);
        for (number, due) in due {
            if let Err(error) = self.0.threads[number].add(due.clone()) {
                self.0.context.finish(&due, Err(FetchError::NoThread(error.to_string())));
            }
        }
    }

    /// The cell of an equal command, or one with the password that the same program has printed for the same user.
    pub(crate) fn known(&self, cell: &PasswordCell) -> Option<Arc<PasswordCell>> {
        let command = cell.command();
        let sources = lock(&self.0.sources);
        let known = sources.cells.iter().find(|known| known.command().prints_the_same(command))?;
        let is_equal = known.command() == command;
        Some(if is_equal { Arc::clone(known) } else { Arc::new(known.succeeded_by(command.clone())) })
    }

    /// The same for the command of users whom the settings do not name.
    pub(crate) fn known_of_any_user(&self, newer: &AnyUserPasswords) -> Option<Arc<AnyUserPasswords>> {
        let known = lock(&self.0.sources).any_user.clone()?;
        if *known == *newer { Some(known) } else { known.succeeded_by(newer).map(Arc::new) }
    }

    /// Runs these commands from now on, each of them at once. The passwords that they have are used meanwhile.
    pub(crate) fn replace(&self, sources: PasswordSources, log: Log) {
        sources.request();
        self.0.context.metrics.passwords.configure(&sources.users());
        *lock(&self.0.context.log) = log;
        *lock(&self.0.sources) = sources;
    }

    /// Kills the commands that run, and starts no more.
    pub fn stop(&self) {
        self.0.context.running.stop();
    }
}

impl Context {
    fn finish(
        &self,
        DueCommand { cell, is_configured }: &DueCommand,
        fetched: Result<FetchedLogin, FetchError>,
    ) {
        let (user, log) = (cell.command().user.as_str(), *lock(&self.log));
        let name = if *is_configured { user } else { ANY_USER };
        let fetched = fetched.map(Arc::new);
        let pause = cell.finish(&fetched);
        match &fetched {
            Ok(login) => {
                self.metrics.passwords.fetched(name, login.expires_unix_s);
                let expires = login.expires_unix_s.map_or_else(|| "never".to_owned(), |at| at.to_string());
                let fields: [(&str, &dyn Display); 3] =
                    [("user", &user), ("server_user", &login.user), ("expires_unix_s", &expires)];
                log.event(Level::Info, "password-fetched", &fields);
            }
            Err(error) => {
                self.metrics.passwords.failed(name);
                let retry = HumanDuration::from(pause.unwrap_or_default());
                let fields: [(&str, &dyn Display); 3] =
                    [("user", &user), ("reason", error), ("retry_after", &retry)];
                log.event(Level::Warn, "password-fetch-failed", &fields);
            }
        }
        (self.report)();
    }
}
