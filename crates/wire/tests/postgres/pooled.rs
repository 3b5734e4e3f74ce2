//! Logins of a proxy: they set nothing, record the server's settings, and derive keys once.

use std::sync::Arc;

use ciphertoll_wire::postgres::relay::InternalCommand;
use ciphertoll_wire::postgres::server::{Startup, read_startup};
use ciphertoll_wire::postgres::{
    CancelKey, ChannelBinding, Error, PostgresConnect, PostgresLogin, PostgresTlsMode,
};
use ciphertoll_wire::scram::KeyCache;
use ciphertoll_wire::{Secret, Step};

use crate::fake_server::{FakeServer, ITERATIONS, PASSWORD, USER, join, scram};

fn login() -> Arc<PostgresLogin> {
    Arc::new(PostgresLogin {
        user: USER.to_owned(),
        password: Secret::new(PASSWORD.as_bytes().to_vec()),
        database: Some("shop".to_owned()),
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
    })
}

#[test]
fn a_pooled_login_sets_nothing_and_records_settings() {
    let (keys, auth) = (Arc::new(KeyCache::new()), scram());
    for _ in 0..2 {
        let mut client = PostgresConnect::pooled(login(), Arc::clone(&keys));
        let mut server = FakeServer::new(auth.clone());
        let (end, _) = join(&mut client, &mut server, usize::MAX);
        assert_eq!(end, Ok(()));
        let expected = [("user", USER), ("database", "shop")];
        assert_eq!(server.startup, expected.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let parameters = &client.server().unwrap().parameters;
        assert_eq!(parameters.get(b"SERVER_VERSION"), Some(client.server().unwrap().version.as_bytes()));
    }
    // Other logins record nothing.
    let mut client = PostgresConnect::new(login());
    assert_eq!(join(&mut client, &mut FakeServer::new(auth), usize::MAX).0, Ok(()));
    assert_eq!(client.server().unwrap().parameters.iter().count(), 0);
}

#[test]
fn a_pooled_login_waits_for_derived_keys() {
    let (keys, auth) = (Arc::new(KeyCache::new()), scram());
    let challenged = || {
        let mut client = PostgresConnect::pooled(login(), Arc::clone(&keys));
        let mut server = FakeServer::new(auth.clone());
        let (mut out, mut answer) = (Vec::new(), Vec::new());
        // The startup and the client's first message.
        for _ in 0..2 {
            assert_eq!(
                client.step(&mut std::mem::take(&mut answer).as_slice(), &mut out),
                Ok(Step::NeedInput)
            );
            server.run(&mut std::mem::take(&mut out).as_slice(), &mut answer);
        }
        (client, answer)
    };
    let (mut first, challenge) = challenged();
    let mut out = Vec::new();
    // Input after the challenge is not consumed before the reply is sent.
    let with_more = [&challenge[..], b"rest"].concat();
    let mut input = &with_more[..];
    assert_eq!(first.step(&mut input, &mut out), Ok(Step::NeedInput));
    assert_eq!((input, out.is_empty(), first.awaits_keys()), (&b"rest"[..], true, true));
    let derivation = first.take_key_derivation().unwrap();
    assert!(first.take_key_derivation().is_none());
    for _ in 0..2 {
        assert_eq!(first.step(&mut input, &mut out), Ok(Step::NeedInput));
        assert_eq!((input, out.is_empty()), (&b"rest"[..], true));
    }
    derivation.run();
    assert_eq!(first.step(&mut &b""[..], &mut out), Ok(Step::NeedInput));
    assert!(!first.awaits_keys() && out.starts_with(b"p"), "the proof is sent: {out:?}");
    // The next login uses the cached keys.
    out.clear();
    let (mut second, challenge) = challenged();
    assert_eq!(second.step(&mut &challenge[..], &mut out), Ok(Step::NeedInput));
    assert!(second.take_key_derivation().is_none() && out.starts_with(b"p"));
}

#[test]
fn a_pooled_login_refuses_more_iterations_than_allowed() {
    let login_with = |most| {
        let mut client = PostgresConnect::pooled(login(), Arc::new(KeyCache::with_max_iterations(most)));
        join(&mut client, &mut FakeServer::new(scram()), usize::MAX).0
    };
    assert_eq!(login_with(ITERATIONS), Ok(()));
    let refused = Error::IterationsTooMany { iterations: ITERATIONS.into(), limit: ITERATIONS - 1 };
    assert_eq!(login_with(ITERATIONS - 1), Err(refused));
}

#[test]
fn a_cancel_request_is_the_only_message() {
    let key = CancelKey::new(vec![9, 8, 7, 6]).unwrap();
    let mut client = PostgresConnect::cancelling(login(), 77, key);
    let mut out = Vec::new();
    assert_eq!(client.step(&mut &b""[..], &mut out), Ok(Step::Done));
    let mut input = &out[..];
    let request = read_startup(&mut input).unwrap();
    assert_eq!(request, Some(Startup::Cancel { process_id: 77, key: &[9, 8, 7, 6] }));
    assert!(input.is_empty());
}

#[test]
fn settings_are_sent_as_parameters() {
    let mut out = Vec::new();
    InternalCommand::settings([("application_name", "'; DROP TABLE t; --")], &mut out).unwrap();
    let text = String::from_utf8_lossy(&out);
    let (parse, bind) = text.split_at(text.find("B\0").unwrap());
    assert!(parse.contains("set_config($1, $2, false)") && !parse.contains("DROP"), "{parse:?}");
    assert!(bind.contains("'; DROP TABLE t; --"));
}
