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
/// How long the reason of a failure is kept if no client asks for the password again.
const FAILURE_TIME: Duration = Duration::from_mins(1);
/// Longer than the names of every server.
const MAX_NAME_BYTES: usize = 128;

pub struct AnyUserPasswords {
    command: CommandTemplate,
    /// The database of clients that name none.
    database: Option<String>,
    users: Mutex<Users>,
}

#[derive(Default)]
struct Users {
    by_name: BTreeMap<String, AnyUser>,
    /// How many there have been.
    count: usize,
}

struct AnyUser {
    cell: Arc<PasswordCell>,
    fingerprint: Fingerprint,
    /// Selects the thread that runs the command.
    number: usize,
    /// When a worker looked for the password last, and whether its command has not been started since.
    wanted: Instant,
    is_wanted: bool,
}

impl AnyUserPasswords {
    pub fn new(command: CommandTemplate, database: Option<String>) -> Self {
        Self { command, database, users: Mutex::default() }
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn database(&self) -> Option<&str> {
        self.database.as_deref()
    }

    /// Refuses names for which the command is not run. Programs take words that begin with a hyphen for options, and parts of
    /// words for paths, addresses and assignments.
    pub(crate) fn accept(user: &str) -> Result<(), Refusal> {
        let is_plain = |character: char| character.is_ascii_alphanumeric() || "_.@-$+".contains(character);
        let is_accepted = user.len() <= MAX_NAME_BYTES
            && user.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '_')
            && user.chars().all(is_plain);
        let refusal =
            || Refusal::new(Refusal::WHO, "this proxy asks for no password of a user with such a name");
        is_accepted.then_some(()).ok_or_else(refusal)
    }

    /// The password of this user, whose command is due if it has none.
    pub(crate) fn cell(&self, user: &str) -> Arc<PasswordCell> {
        let (mut users, now) = (self.users(), Instant::now());
        if let Some(known) = users.by_name.get_mut(user) {
            (known.wanted, known.is_wanted) = (now, true);
            return Arc::clone(&known.cell);
        }
        if users.by_name.len() >= MAX_USERS {
            let oldest = users.by_name.iter().min_by_key(|(_, known)| known.wanted);
            let oldest = oldest.map(|(name, _)| name.clone());
            oldest.and_then(|oldest| users.by_name.remove(&oldest));
        }
        let command = self.command.for_user(user);
        let fingerprint = command.fingerprint();
        let (cell, number) = (Arc::new(PasswordCell::new(command)), users.count);
        users.count += 1;
        let added = AnyUser { cell: Arc::clone(&cell), fingerprint, number, wanted: now, is_wanted: true };
        users.by_name.insert(user.to_owned(), added);
        cell
    }

    pub(crate) fn fingerprint(&self, user: &str) -> Fingerprint {
        let known = self.users().by_name.get(user).map(|known| known.fingerprint);
        known.unwrap_or_else(|| self.command.for_user(user).fingerprint())
    }

    /// The commands to run now, each with a number that stays: those that are due, if their password was wanted since they
    /// ran last. Forgets users whose password has expired.
    pub(super) fn take_due(&self, now: Instant) -> Vec<(usize, Arc<PasswordCell>)> {
        let mut due = Vec::new();
        self.users().by_name.retain(|_, known| {
            if known.is_wanted && known.cell.take_due(now) {
                known.is_wanted = false;
                due.push((known.number, Arc::clone(&known.cell)));
            }
            known.is_wanted
                || known.cell.is_running()
                || known.cell.availability(now) == Availability::Ready
                || now < known.wanted + FAILURE_TIME
        });
        due
    }

    /// Makes the commands of all users due that have a password.
    pub(super) fn request(&self) {
        self.users().by_name.values().for_each(|known| known.cell.request());
    }

    /// With the passwords of `self`, if the programs are the same.
    pub(super) fn succeeded_by(&self, newer: &Self) -> Option<Self> {
        if self.command.words != newer.command.words {
            return None;
        }
        let mut users = Users::default();
        for (name, known) in &self.users().by_name {
            let cell = Arc::new(known.cell.succeeded_by(newer.command.for_user(name)));
            let (fingerprint, number, wanted) = (known.fingerprint, known.number, known.wanted);
            let next = AnyUser { cell, fingerprint, number, wanted, is_wanted: known.is_wanted };
            users.by_name.insert(name.clone(), next);
            users.count = users.count.max(number + 1);
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
