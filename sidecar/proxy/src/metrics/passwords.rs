//! Counters of passwords that come from commands.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::status::PasswordStatus;

/// By configured user, which are few.
#[derive(Debug, Default)]
pub struct PasswordMetrics(Mutex<BTreeMap<String, PasswordStatus>>);

impl PasswordMetrics {
    fn users(&self) -> MutexGuard<'_, BTreeMap<String, PasswordStatus>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, user: &str, update: impl FnOnce(&mut PasswordStatus)) {
        let mut users = self.users();
        let known = users.entry(user.to_owned());
        update(
            known.or_insert_with(|| PasswordStatus { user: user.to_owned(), ..PasswordStatus::default() }),
        );
    }

    pub(crate) fn fetched(&self, user: &str, expires_unix_s: Option<i64>) {
        self.update(user, |status| {
            status.fetched += 1;
            status.expires_unix_s = expires_unix_s;
        });
    }

    pub(crate) fn failed(&self, user: &str) {
        self.update(user, |status| status.failed += 1);
    }

    /// These users have commands from now on. Their counters begin at zero, so that their increase can be seen.
    pub(crate) fn configure(&self, users: &[&str]) {
        self.users().retain(|user, _| users.contains(&user.as_str()));
        for user in users {
            self.update(user, |_| ());
        }
    }

    pub fn status(&self) -> Vec<PasswordStatus> {
        self.users().values().cloned().collect()
    }
}
