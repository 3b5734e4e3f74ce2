//! Logins for one client: with its startup parameters, and with the keys that its proof has revealed.

use std::sync::Arc;

use ciphertoll_wire::Secret;
use ciphertoll_wire::postgres::relay::PipelinedCommit;
use ciphertoll_wire::postgres::{ChannelBinding, Error, PostgresConnect, PostgresLogin, PostgresTlsMode};
use ciphertoll_wire::scram::{self, Binding, ClientFirst, KeyCache, Mechanism, ServerFirst, Verifier};

use crate::fake_server::{Auth, FakeServer, ITERATIONS, PASSWORD, USER, join, scram};

fn login(password: &str, startup: &[(&str, &str)]) -> Arc<PostgresLogin> {
    let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Arc::new(PostgresLogin {
        startup: startup.iter().map(pair).collect(),
        user: USER.to_owned(),
        password: Secret::new(password.as_bytes().to_vec()),
        database: Some("shop".to_owned()),
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
    })
}

/// What a server with this verifier learns from a client with this password.
fn proven(verifier: &Verifier, password: &str) -> Result<KeyCache, scram::Error> {
    let client = ClientFirst::new("", Binding::None)?;
    let server = ServerFirst::answer(verifier, Mechanism::Sha256, Binding::None, client.message())?;
    let last = client.answer(password.as_bytes(), server.message())?;
    let (message, keys) = server.judge_with_keys(last.message())?;
    last.verify(&message)?;
    Ok(keys)
}

#[test]
fn a_dedicated_login_sends_the_clients_parameters_and_no_command() {
    let startup = [("replication", "database"), ("application_name", "walker")];
    let mut client = PostgresConnect::dedicated(login(PASSWORD, &startup), Arc::default());
    let mut server = FakeServer::new(scram());
    server.commit = PipelinedCommit::WithTransaction;
    assert_eq!(join(&mut client, &mut server, usize::MAX).0, Ok(()));
    let expected = [("user", USER), ("database", "shop")].into_iter().chain(startup);
    let expected: Vec<_> = expected.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    assert_eq!(server.startup, expected);
    let info = client.server().unwrap();
    assert!(info.parameters.get(b"server_version").is_some(), "the settings are recorded");
    assert_eq!(info.commit, PipelinedCommit::default(), "nothing was asked");
}

#[test]
fn a_proof_opens_a_login_with_the_same_secret() {
    let verifier = Verifier::of(PASSWORD.as_bytes(), ITERATIONS).unwrap();
    let keys = Arc::new(proven(&verifier, PASSWORD).unwrap());
    for _ in 0..2 {
        let mut client = PostgresConnect::dedicated(login("", &[]), Arc::clone(&keys));
        let mut server = FakeServer::new(Auth::Scram(verifier.clone()));
        assert_eq!(join(&mut client, &mut server, usize::MAX).0, Ok(()));
    }
    assert_eq!(proven(&verifier, "wrong").err(), Some(scram::Error::WrongProof));
}

#[test]
fn a_proof_opens_no_other_login() {
    let verifier = Verifier::of(PASSWORD.as_bytes(), ITERATIONS).unwrap();
    let keys = Arc::new(proven(&verifier, PASSWORD).unwrap());
    let log_in = |auth: Auth| {
        let mut client = PostgresConnect::dedicated(login("", &[]), Arc::clone(&keys));
        join(&mut client, &mut FakeServer::new(auth), usize::MAX).0
    };
    // The same password with another salt, and with other numbers of iterations.
    for iterations in [ITERATIONS, ITERATIONS - 1, ITERATIONS + 1] {
        let other = Verifier::of(PASSWORD.as_bytes(), iterations).unwrap();
        assert_eq!(log_in(Auth::Scram(other)), Err(scram::Error::OtherVerifier.into()), "{iterations}");
    }
    // There is no password to send, not even an empty one.
    for auth in [Auth::Cleartext, Auth::Md5] {
        let error = log_in(auth).unwrap_err();
        assert!(matches!(error, Error::UnsupportedAuth { .. }), "{error}");
    }
}
