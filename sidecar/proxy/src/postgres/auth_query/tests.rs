use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::{ChannelBinding, PostgresTlsMode};

use ciphertoll_net::Address;

use super::*;
use crate::log::Format;
use crate::login_hosts::LoginHost;
use crate::settings::Limits;

pub(super) fn lookup() -> Arc<CredentialLookup> {
    let login = Arc::new(PostgresLogin {
        user: "asker".to_owned(),
        password: Secret::new(Vec::new()),
        database: None,
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
        startup: Vec::new(),
    });
    let question = SecretQuery { login, query: AuthQuery::DEFAULT.to_owned() };
    let lookup = CredentialLookup::new(question, HashSet::from(["asker".to_owned()])).unwrap();
    // Nothing listens there.
    let address = Address::Unix("/nowhere/at/all/.s.PGSQL.1".into());
    let hosts = vec![LoginHost { address, context: None }];
    lookup.connect_by(
        LoginHosts::new(String::new(), hosts, None, &Limits::default()),
        Log::new(Level::Warn, Format::Text),
    );
    Arc::new(lookup)
}

fn found(lookup: &CredentialLookup, user: &str, since: Instant) -> Found {
    Found::Secret { verifier: lookup.mock(user, 4096).unwrap(), since }
}

#[test]
fn a_user_that_does_not_exist_has_a_salt_that_does_not_change() {
    let (one, other) = (lookup(), lookup());
    let salt = |lookup: &CredentialLookup, user: &str| {
        let text = lookup.mock(user, 5000).unwrap().text().to_string();
        text.split('$').nth(1).unwrap().to_owned()
    };
    assert!(salt(&one, "a").starts_with("5000:"));
    assert_eq!(salt(&one, "a"), salt(&one, "a"));
    assert_ne!(salt(&one, "a"), salt(&one, "b"));
    assert_ne!(salt(&one, "a"), salt(&other, "a"), "nobody else can compute it");
    assert_ne!(one.mock("a", 1).unwrap().text(), one.mock("a", 1).unwrap().text(), "no password matches");
}

#[test]
fn a_failure_is_told_to_all_that_wait_and_not_cached() {
    let lookup = lookup();
    let (sender, outcomes) = std::sync::mpsc::channel();
    let answers: Vec<_> = (0..3).map(|_| Arc::new(OnceLock::new())).collect();
    for (number, answer) in answers.iter().enumerate() {
        let sender = sender.clone();
        let report = Box::new(move |outcome| sender.send(outcome).unwrap());
        lookup.look_up(&format!("u{number}"), answer).start(report);
    }
    for _ in &answers {
        assert_eq!(outcomes.recv_timeout(Duration::from_mins(1)), Ok("failed"));
    }
    assert!(answers.iter().all(|answer| matches!(answer.get(), Some(Found::Failed))));
    assert!(lookup.cached("u0").is_none() && lookup.configures("asker") && !lookup.configures("u0"));
}

#[test]
fn answers_are_cached_for_a_short_time_and_a_limited_number_of_users() {
    let lookup = lookup();
    let now = Instant::now();
    let Some(old) = now.checked_sub(CACHE_TIME) else { return };
    let mut state = lookup.state();
    state.remember("now", found(&lookup, "now", now), MAX_CACHED);
    state.remember("old", found(&lookup, "old", old), MAX_CACHED);
    assert!(state.known("now", now).is_some() && state.known("old", now).is_none());
    assert!(state.known("now", now + CACHE_TIME).is_none());
    let entry = found(&lookup, "x", now);
    (0..MAX_CACHED).for_each(|number| state.remember(&number.to_string(), entry.clone(), MAX_CACHED));
    assert_eq!(state.cache.len(), MAX_CACHED);
    assert!(state.known("now", now).is_some() && !state.cache.contains_key("old"), "the old one made room");
    drop(state);
    lookup.doubt("now");
    assert!(lookup.cached("now").is_some(), "not more often than each second");
    lookup
        .state()
        .cache
        .insert("now".to_owned(), found(&lookup, "now", now.checked_sub(MIN_CACHE_TIME).unwrap()));
    lookup.doubt("now");
    assert!(lookup.cached("now").is_none() && lookup.cached("1").is_some());
}
