//! Logins that clients repeat: most clients of a pool send one of a few startup messages.

use std::sync::Arc;

use super::backend_state::Greeting;
use super::pool_key::PostgresKey;
use super::startup_request::StartupParameters;

/// More than the programs that usually share a pool. Each entry takes at most a few times the longest startup message.
const MAX_LOGINS: usize = 16;

/// The most recent successful logins of one worker. A handshake in progress keeps the list that it started with; it
/// uses only the parsed parameters of it, which depend on nothing but the startup message.
#[derive(Clone, Default)]
pub(super) struct RecentLogins(Arc<Vec<RecentLogin>>);

#[derive(Clone)]
struct RecentLogin {
    parameters: Arc<StartupParameters>,
    key: PostgresKey,
    /// `None` if clients are greeted by a connection.
    greeting: Option<Arc<Greeting>>,
}

impl RecentLogins {
    /// The parameters of a login that began with the message that comes next.
    pub(super) fn parameters(&self, input: &[u8]) -> Option<Arc<StartupParameters>> {
        let mut logins = self.0.iter().map(|login| &login.parameters);
        // A message begins with its length, so no other one begins with all of its bytes.
        logins.find(|parameters| input.starts_with(&parameters.message)).map(Arc::clone)
    }

    pub(super) fn key(&self, parameters: &Arc<StartupParameters>) -> Option<&PostgresKey> {
        self.find(parameters).map(|login| &login.key)
    }

    pub(super) fn greeting(&self, parameters: &Arc<StartupParameters>) -> Option<&Greeting> {
        self.find(parameters).and_then(|login| login.greeting.as_deref())
    }

    fn find(&self, parameters: &Arc<StartupParameters>) -> Option<&RecentLogin> {
        self.0.iter().find(|login| Arc::ptr_eq(&login.parameters, parameters))
    }

    /// Adds an authenticated client's login; the oldest entry makes room.
    pub(super) fn add(
        &mut self,
        parameters: &Arc<StartupParameters>,
        key: PostgresKey,
        greeting: Option<Greeting>,
    ) {
        let logins = Arc::make_mut(&mut self.0);
        logins.retain(|login| login.parameters != *parameters);
        if logins.len() >= MAX_LOGINS {
            logins.remove(0);
        }
        let (parameters, greeting) = (Arc::clone(parameters), greeting.map(Arc::new));
        logins.push(RecentLogin { parameters, key, greeting });
    }

    /// Keys and greetings are out of date: users, their databases or the server's settings may have changed.
    pub(super) fn clear(&mut self) {
        self.0 = Arc::default();
    }
}

#[cfg(test)]
mod tests {
    use ciphertoll_wire::postgres::server::{Startup, StartupMessage, read_startup};
    use ciphertoll_wire::postgres::startup::encode_startup;

    use super::*;

    fn bytes(user: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_startup(&mut bytes, &[("user", user), ("database", "shop")]).unwrap();
        bytes
    }

    fn message(bytes: &[u8]) -> StartupMessage<'_> {
        match read_startup(&mut &bytes[..]).unwrap() {
            Some(Startup::Login(message)) => message,
            other => panic!("{other:?}"),
        }
    }

    fn add(logins: &mut RecentLogins, user: &str) -> Arc<StartupParameters> {
        let parameters = Arc::new(StartupParameters::read(&message(&bytes(user))).unwrap());
        let greeting = Some(Greeting { bytes: user.as_bytes().to_vec(), digest: 0 });
        logins.add(&parameters, PostgresKey::new(user, "shop"), greeting);
        parameters
    }

    #[test]
    fn similar_messages_do_not_share_a_login() {
        let mut logins = RecentLogins::default();
        let [one, other] = ["app", "apq"].map(|user| add(&mut logins, user));
        for (user, parameters) in [("app", &one), ("apq", &other)] {
            assert!(Arc::ptr_eq(&logins.parameters(&bytes(user)).unwrap(), parameters));
            assert_eq!(logins.key(parameters), Some(&PostgresKey::new(user, "shop")));
            assert_eq!(logins.greeting(parameters).unwrap().bytes, user.as_bytes());
        }
        let first = bytes("app");
        assert!(logins.parameters(&first[..first.len() - 1]).is_none(), "it is not complete");
        for user in ["ap", "appl", "App"] {
            assert!(logins.parameters(&bytes(user)).is_none(), "{user}");
        }
        // Another version of the protocol may be answered differently.
        let mut newer = bytes("app");
        newer[7] = 2;
        assert!(logins.parameters(&newer).is_none());
    }

    #[test]
    fn the_number_of_logins_is_limited() {
        let mut logins = RecentLogins::default();
        let first = add(&mut logins, "first");
        // A login that was parsed twice has one entry.
        let again = add(&mut logins, "first");
        assert!(logins.key(&first).is_none() && logins.key(&again).is_some());
        let snapshot = logins.clone();
        for number in 0..MAX_LOGINS {
            add(&mut logins, &number.to_string());
        }
        assert_eq!(logins.0.len(), MAX_LOGINS);
        assert!(logins.key(&again).is_none() && snapshot.key(&again).is_some());
        logins.clear();
        assert!(logins.parameters(&bytes("0")).is_none());
    }
}
