//! Counters of passwords that come from commands.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::group_limits::ANY_USER;
use crate::status::PasswordStatus;

/// By configured user, which are few.
#[derive(Debug, Default)]
pub struct PasswordMetrics(Mutex<BTreeMap<String, PasswordStatus>>);

impl PasswordMetrics {
    fn users(&self) -> MutexGuard<'_, BTreeMap<String, PasswordStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `user` is the configured name.
    pub(crate) fn fetched(&self, user: &str, expires_unix_s: Option<i64>) {
        if let Some(status) = self.users().get_mut(user) {
            status.fetched += 1;
            // One of many users, whom clients may not name again.
            status.expires_unix_s = expires_unix_s.filter(|_| user != ANY_USER);
        }
    }

    pub(crate) fn failed(&self, user: &str) {
        if let Some(status) = self.users().get_mut(user) {
            status.failed += 1;
        }
    }

    /// These users have commands from now on. Their counters begin at zero, so that their increase can be seen.
    pub(crate) fn configure(&self, users: &[&str]) {
        let mut known = self.users();
        known.retain(|user, _| users.contains(&user.as_str()));
        for user in users {
            let new = || PasswordStatus { user: (*user).to_owned(), ..PasswordStatus::default() };
            known.entry((*user).to_owned()).or_insert_with(new);
        }
    }

    pub fn status(&self) -> Vec<PasswordStatus> {
        self.users().values().cloned().collect()
    }
}
