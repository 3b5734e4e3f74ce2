//! Runs the commands of all users when they are due.

use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::cell::{FetchError, FetchedLogin, PasswordCell};
use super::command::RunningCommands;
use crate::duration::HumanDuration;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::on_demand::OnDemandThread;

/// Commands that run at the same time at most. One that hangs delays only the users of its thread.
const THREADS: usize = 4;

/// Starts the commands of passwords that are due. Clones are the same.
#[derive(Clone)]
pub struct Credentials(Arc<Shared>);

struct Shared {
    cells: Mutex<Vec<Arc<PasswordCell>>>,
    threads: [OnDemandThread<Arc<PasswordCell>>; THREADS],
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

fn users(cells: &[Arc<PasswordCell>]) -> Vec<&str> {
    cells.iter().map(|cell| cell.command().user.as_str()).collect()
}

impl Credentials {
    pub fn new(
        cells: Vec<Arc<PasswordCell>>,
        log: Log,
        metrics: Arc<Metrics>,
        report: impl Fn() + Send + Sync + 'static,
    ) -> Self {
        metrics.passwords.configure(&users(&cells));
        let context = Context {
            running: RunningCommands::default(),
            log: Mutex::new(log),
            report: Box::new(report),
            metrics,
        };
        let context = Arc::new(context);
        let thread = || {
            let context = Arc::clone(&context);
            OnDemandThread::new("credentials", move |cell: Arc<PasswordCell>| {
                let fetched = cell.fetch(&context.running);
                context.finish(&cell, fetched);
            })
        };
        let threads = [(); THREADS].map(|()| thread());
        Self(Arc::new(Shared { cells: Mutex::new(cells), threads, context }))
    }

    /// Starts what is due. Called several times per second; does not block.
    pub fn tick(&self, now: Instant) {
        for (number, cell) in lock(&self.0.cells).iter().enumerate() {
            if cell.take_due(now)
                && let Err(error) = self.0.threads[number % THREADS].add(Arc::clone(cell))
            {
                self.0.context.finish(cell, Err(FetchError::NoThread(error.to_string())));
            }
        }
    }

    /// The cell of an equal command, or one with the password that the same program has printed for the same user.
    pub(crate) fn known(&self, cell: &PasswordCell) -> Option<Arc<PasswordCell>> {
        let command = cell.command();
        let cells = lock(&self.0.cells);
        let known = cells.iter().find(|known| known.command().prints_the_same(command))?;
        let is_equal = known.command() == command;
        Some(if is_equal { Arc::clone(known) } else { Arc::new(known.succeeded_by(command.clone())) })
    }

    /// Runs these commands from now on, each of them at once. The passwords that they have are used meanwhile.
    pub(crate) fn replace(&self, cells: Vec<Arc<PasswordCell>>, log: Log) {
        for cell in &cells {
            cell.request();
        }
        self.0.context.metrics.passwords.configure(&users(&cells));
        *lock(&self.0.context.log) = log;
        *lock(&self.0.cells) = cells;
    }

    /// Kills the commands that run, and starts no more.
    pub fn stop(&self) {
        self.0.context.running.stop();
    }
}

impl Context {
    fn finish(&self, cell: &PasswordCell, fetched: Result<FetchedLogin, FetchError>) {
        let (user, log) = (cell.command().user.as_str(), *lock(&self.log));
        let fetched = fetched.map(Arc::new);
        let pause = cell.finish(&fetched);
        match &fetched {
            Ok(login) => {
                self.metrics.passwords.fetched(user, login.expires_unix_s);
                let expires = login.expires_unix_s.map_or_else(|| "never".to_owned(), |at| at.to_string());
                let fields: [(&str, &dyn Display); 3] =
                    [("user", &user), ("server_user", &login.user), ("expires_unix_s", &expires)];
                log.event(Level::Info, "password-fetched", &fields);
            }
            Err(error) => {
                self.metrics.passwords.failed(user);
                let retry = HumanDuration::from(pause.unwrap_or_default());
                let fields: [(&str, &dyn Display); 3] =
                    [("user", &user), ("reason", error), ("retry_after", &retry)];
                log.event(Level::Warn, "password-fetch-failed", &fields);
            }
        }
        (self.report)();
    }
}
