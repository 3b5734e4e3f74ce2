use ciphertoll_wire::postgres::server::{Startup, read_startup};
use ciphertoll_wire::postgres::startup::encode_startup;

use super::*;
use crate::settings::{Iterations, Limits, Uids};

fn settings(users: &[(&str, &str)]) -> Settings {
    let user = |(name, password): &(&str, &str)| User {
        name: (*name).to_owned(),
        database: Some("shop".to_owned()),
        password: Secret::new(password.as_bytes().to_vec()),
    };
    Settings {
        listen: vec!["unix:/x".parse().unwrap()],
        server: "postgres://a@127.0.0.1/shop?sslmode=disable".parse().unwrap(),
        users: users.iter().map(user).collect(),
        allowed_uids: Uids::All,
        unix_auth: UnixAuth::Peer,
        tls: None,
        iterations: Iterations { by_unix: 1, by_tcp: Gate::USUAL_ITERATIONS },
        pooling: Pooling::Transaction,
        threads: std::num::NonZeroUsize::MIN,
        limits: Limits::default(),
    }
}

fn postgres(users: &[(&str, &str)]) -> Postgres {
    Postgres::of(&settings(users)).unwrap()
}

fn key(user: &str, database: &str) -> Key {
    Key { user: user.into(), database: database.into() }
}

fn wanted(parameters: &[(&str, &str)]) -> Wanted {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, parameters).unwrap();
    match read_startup(&mut &bytes[..]).unwrap() {
        Some(Startup::Login(message)) => Wanted::read(&message).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_mark_changes_with_the_password() {
    let before = postgres(&[("a", "x"), ("b", "y")]);
    let after = postgres(&[("a", "x"), ("b", "z"), ("c", "")]);
    let marks = |dialect: &Postgres| ["a", "b", "c"].map(|user| dialect.mark(&key(user, "shop")));
    let ([a, b, none], [same, other, _]) = (marks(&before), marks(&after));
    assert_eq!((a, none), (same, None));
    assert_ne!(b, other);
    assert_ne!(a, b);
}

#[test]
fn who_is_not_known_is_not_logged_in_as() {
    let dialect = postgres(&[("a", "x"), ("b", "y")]);
    assert!(dialect.login(&key("b", "till")).is_some());
    assert!(dialect.login(&key("c", "shop")).is_none());
    assert_eq!(dialect.usual_keys(), [key("a", "shop"), key("b", "shop")]);
    let key_of = |parameters: &[(&str, &str)]| dialect.key(&wanted(parameters));
    assert_eq!(key_of(&[("user", "b")]), Ok(key("b", "shop")));
    assert_eq!(key_of(&[("user", "b"), ("database", "till")]), Ok(key("b", "till")));
    assert_eq!(key_of(&[("user", "c")]).unwrap_err().sqlstate, Refusal::WHO);
}

#[test]
fn greetings_and_keys_are_kept_with_the_password_they_belong_to() {
    let mut dialect = postgres(&[("a", "x"), ("b", "y"), ("c", "z")]);
    for user in ["a", "b", "c"] {
        dialect.known.insert(key(user, "till"), Parameters::default());
    }
    let keys = Arc::clone(&dialect.accounts["a"].keys);
    dialect.renew(Postgres { pooling: Pooling::Session, ..postgres(&[("a", "x"), ("b", "other")]) });
    assert!(Arc::ptr_eq(&keys, &dialect.accounts["a"].keys));
    assert_eq!(dialect.known.keys().collect::<Vec<_>>(), [&key("a", "till")]);
    assert_eq!(dialect.pooling, Pooling::Transaction);
    let ticket = Ticket { process_id: 1, secret: [0; 4] };
    let greeted = |dialect: &Postgres| {
        dialect.greet_early(&key("a", "till"), &mut wanted(&[("user", "a")]), ticket, &mut Vec::new())
    };
    assert_eq!(greeted(&dialect), Greeted::Done);
    dialect.forget();
    assert_eq!(greeted(&dialect), Greeted::NotYet);
}

#[test]
fn passwords_are_asked_for_where_there_is_a_gate() {
    let by_tcp = |users: &[(&str, &str)]| {
        Postgres::of(&Settings { listen: vec!["tcp:127.0.0.1:0".parse().unwrap()], ..settings(users) })
    };
    let dialect = by_tcp(&[("a", "x")]).unwrap();
    assert!(dialect.by_tcp.is_some() && dialect.by_unix.is_none());
    assert!(matches!(by_tcp(&[("a", "x"), ("b", "")]), Err(StartError::NoPassword(user)) if user == "b"));
    // Nobody comes in because there is nothing to prove.
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, &[("user", "a")]).unwrap();
    let step = dialect.front(Admission::PasswordByUnix).step(&mut &bytes[..], &mut Vec::new());
    assert!(matches!(step, FrontStep::Refuse(_)), "{step:?}");
}
