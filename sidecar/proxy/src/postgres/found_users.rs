//! Users that the settings do not name, and the keys that log in to the server as them: a client's proof has
//! revealed these keys. No password is known.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ciphertoll_wire::scram::{KeyCache, Verifier};
use foldhash::HashMap;

use crate::fingerprint::{Fingerprint, FingerprintBuilder};

/// Users with keys. A further user replaces the one whose secret was looked up first.
const MAX_USERS: usize = 10_000;

/// What a client has proven.
#[derive(Clone)]
pub(crate) struct ProvenLogin(Arc<Proven>);

struct Proven {
    keys: Arc<KeyCache>,
    /// Of the user's secret.
    fingerprint: Fingerprint,
    /// When the secret was looked up.
    since: Instant,
}

impl ProvenLogin {
    pub(super) fn new(user: &str, verifier: &Verifier, keys: KeyCache, since: Instant) -> Self {
        let mut fingerprint = FingerprintBuilder::default();
        fingerprint.add(user.as_bytes());
        fingerprint.add(verifier.text().as_bytes());
        Self(Arc::new(Proven { keys: Arc::new(keys), fingerprint: fingerprint.finish(), since }))
    }

    pub(super) fn keys(&self) -> Arc<KeyCache> {
        Arc::clone(&self.0.keys)
    }

    pub(super) fn fingerprint(&self) -> Fingerprint {
        self.0.fingerprint
    }
}

/// Hides the keys.
impl fmt::Debug for ProvenLogin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ProvenLogin(..)")
    }
}

impl PartialEq for ProvenLogin {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ProvenLogin {}

/// The latest proof of each user, for the connections of all workers.
#[derive(Clone, Default)]
pub(super) struct FoundUsers(Arc<Mutex<HashMap<String, ProvenLogin>>>);

impl FoundUsers {
    fn users(&self) -> MutexGuard<'_, HashMap<String, ProvenLogin>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connections of this user are opened with these keys from now on, unless later ones are known.
    pub(super) fn add(&self, user: &str, proven: &ProvenLogin) {
        let mut users = self.users();
        if let Some(known) = users.get_mut(user) {
            if known.0.since < proven.0.since {
                *known = proven.clone();
            }
            return;
        }
        if users.len() >= MAX_USERS
            && let Some(oldest) =
                users.iter().min_by_key(|(_, known)| known.0.since).map(|(user, _)| user.clone())
        {
            users.remove(&oldest);
        }
        users.insert(user.to_owned(), proven.clone());
    }

    pub(super) fn get(&self, user: &str) -> Option<ProvenLogin> {
        self.users().get(user).cloned()
    }

    pub(super) fn clear(&self) {
        self.users().clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn proven(user: &str, since: Instant) -> ProvenLogin {
        let verifier = Verifier::of(user.as_bytes(), 1).unwrap();
        ProvenLogin::new(user, &verifier, KeyCache::new(), since)
    }

    #[test]
    fn the_keys_of_the_latest_secret_are_used() {
        let (users, now) = (FoundUsers::default(), Instant::now());
        let [old, new] = [0, 1].map(|seconds| proven("app", now + Duration::from_secs(seconds)));
        assert!(users.get("app").is_none());
        users.add("app", &new);
        users.clone().add("app", &old);
        assert_eq!(users.get("app"), Some(new));
        assert_eq!(format!("{old:?}"), "ProvenLogin(..)");
        users.clear();
        assert!(users.get("app").is_none());
    }

    #[test]
    fn the_number_of_users_is_limited() {
        let (users, now) = (FoundUsers::default(), Instant::now());
        for number in 0..=MAX_USERS {
            users.0.lock().unwrap().entry(format!("u{number}")).or_insert_with(|| {
                let fingerprint = FingerprintBuilder::default().finish();
                let since = now + Duration::from_micros(number as u64);
                ProvenLogin(Arc::new(Proven { keys: Arc::default(), fingerprint, since }))
            });
        }
        users.0.lock().unwrap().remove("u7");
        users.add("last", &proven("last", now + Duration::from_secs(9)));
        assert_eq!(users.0.lock().unwrap().len(), MAX_USERS);
        assert!(users.get("u0").is_none() && users.get("u1").is_some() && users.get("last").is_some());
    }
}
