//! The command of users whom the settings do not name, and the passwords of those that clients have named lately.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::cell::{Availability, PasswordCell};
use super::template::CommandTemplate;
use crate::fingerprint::Fingerprint;
use crate::refusal::Refusal;

/// Users with a password. A further user replaces the one that was wanted least recently.
const MAX_USERS: usize = 1000;
/// Without a valid password, users are forgotten after this time if no client names them again.
const FORGOTTEN_AFTER: Duration = Duration::from_mins(1);
/// Longer than the names of every server.
const MAX_NAME_BYTES: usize = 128;

pub struct AnyUserPasswords {
    command: CommandTemplate,
    /// The database of clients that name none.
    database: Option<String>,
    users: Mutex<BTreeMap<String, AnyUser>>,
}

struct AnyUser {
    cell: Arc<PasswordCell>,
    fingerprint: Fingerprint,
    /// When a worker looked for the password last.
    wanted: Instant,
    /// Since when one has looked for it after its command was started last.
    wanted_since: Option<Instant>,
    /// The thread that runs the command, or has run it.
    thread: Option<usize>,
}

impl AnyUser {
    fn want(&mut self, now: Instant) {
        self.wanted = now;
        self.cell.forget_old_failure(now);
        // Whoever asks while it runs waits for this run.
        if !self.cell.is_running() && !self.cell.is_backing_off(now) {
            self.wanted_since.get_or_insert(now);
        }
    }
}

impl AnyUserPasswords {
    pub fn new(command: CommandTemplate, database: Option<String>) -> Self {
        Self { command, database, users: Mutex::default() }
    }

    fn users(&self) -> MutexGuard<'_, BTreeMap<String, AnyUser>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Refuses names for which the command is not run. Programs take words that begin with a hyphen for options, and parts of
    /// words for paths, addresses, assignments and variables. (The accounts of machines in Active Directory end with a `$`.)
    pub(crate) fn accept(user: &str) -> Result<(), Refusal> {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "_.@-+".contains(character);
        let is_accepted = user.len() <= MAX_NAME_BYTES
            && user.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
            && user.strip_suffix('$').unwrap_or(user).chars().all(is_plain);
        let refusal =
            || Refusal::new(Refusal::WHO, "this proxy asks for no password of a user with such a name");
        is_accepted.then_some(()).ok_or_else(refusal)
    }

    /// The password of this user, whose command is due if it has none.
    pub(crate) fn cell(&self, user: &str) -> Arc<PasswordCell> {
        let (mut users, now) = (self.users(), Instant::now());
        if let Some(known) = users.get_mut(user) {
            known.want(now);
            return Arc::clone(&known.cell);
        }
        if users.len() >= MAX_USERS {
            let idle = users.iter().filter(|(_, known)| !known.cell.is_running());
            let oldest = idle.min_by_key(|(_, known)| known.wanted);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|oldest| users.remove(&oldest));
        }
        let command = self.command.for_user(user);
        let fingerprint = command.fingerprint();
        let cell = Arc::new(PasswordCell::new(command));
        let added = AnyUser {
            cell: Arc::clone(&cell),
            fingerprint,
            wanted: now,
            wanted_since: Some(now),
            thread: None,
        };
        users.insert(user.to_owned(), added);
        cell
    }

    /// The user has connections: its password stays valid, if it is known.
    pub(crate) fn keep(&self, user: &str) {
        if let Some(known) = self.users().get_mut(user) {
            known.want(Instant::now());
        }
    }

    pub(crate) fn fingerprint(&self, user: &str) -> Fingerprint {
        let known = self.users().get(user).map(|known| known.fingerprint);
        known.unwrap_or_else(|| self.command.for_user(user).fingerprint())
    }

    /// The commands to run now on threads with these numbers, at most one on each: of those that are due and whose password
    /// was wanted since they ran last, first the ones that clients wait for, for the longest time. Forgets users whose password has expired,
    /// and those that no client has named for a while.
    pub(super) fn take_due(&self, threads: usize, now: Instant) -> Vec<(usize, Arc<PasswordCell>)> {
        let mut users = self.users();
        users.retain(|_, known| {
            known.cell.is_running()
                || known.cell.availability(now) == Availability::Ready
                || now < known.wanted + FORGOTTEN_AFTER
        });
        let running = users.values().filter(|known| known.cell.is_running());
        let busy: Vec<usize> = running.filter_map(|known| known.thread).collect();
        let mut wanted: Vec<&mut AnyUser> =
            users.values_mut().filter(|known| known.wanted_since.is_some()).collect();
        wanted.sort_by_key(|known| (known.cell.availability(now) == Availability::Ready, known.wanted_since));
        let mut due = Vec::new();
        let mut free = (0..threads).filter(|thread| !busy.contains(thread)).peekable();
        for known in wanted {
            let Some(thread) = free.peek().copied() else { break };
            if known.cell.take_due(now) {
                (known.wanted_since, known.thread) = (None, free.next());
                due.push((thread, Arc::clone(&known.cell)));
            }
        }
        due
    }

    /// Makes the commands of all users due that have a password.
    pub(super) fn request(&self) {
        self.users().values().for_each(|known| known.cell.request());
    }

    /// With the passwords of `self`, if the programs are the same.
    pub(super) fn succeeded_by(&self, newer: &Self) -> Option<Self> {
        if self.command.words != newer.command.words {
            return None;
        }
        let mut users = BTreeMap::new();
        for (name, known) in self.users().iter() {
            let cell = Arc::new(known.cell.succeeded_by(newer.command.for_user(name)));
            let AnyUser { fingerprint, wanted, wanted_since, .. } = *known;
            // Commands of earlier settings that still run delay the next one of their thread.
            let next = AnyUser { cell, fingerprint, wanted, wanted_since, thread: None };
            users.insert(name.clone(), next);
        }
        Some(Self {
            command: newer.command.clone(),
            database: newer.database.clone(),
            users: Mutex::new(users),
        })
    }
}

/// Equal settings.
impl PartialEq for AnyUserPasswords {
    fn eq(&self, other: &Self) -> bool {
        (&self.command, &self.database) == (&other.command, &other.database)
    }
}

impl Eq for AnyUserPasswords {}

/// Without passwords.
impl fmt::Debug for AnyUserPasswords {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("AnyUserPasswords").field(&self.command).finish()
    }
}

#[cfg(test)]
mod tests;
