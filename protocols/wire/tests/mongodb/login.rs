//! Logins at honest, uncooperative and hostile servers.

use std::sync::Arc;

use ciphertoll_wire::mongodb::bson::{RawBsonRef, RawDocument};
use ciphertoll_wire::mongodb::{
    Error, Mechanism, MongoDbAuthMethod, MongoDbConnect, MongoDbLogin, MongoDbTlsMode,
};
use ciphertoll_wire::scram::Digest;
use ciphertoll_wire::{Phase, Secret, Step};
use proptest::prelude::*;

use crate::fake_server::{Ending, FakeServer, Joined, PASSWORD, Speculation, USER, join, verifier};

const BOTH: [Digest; 2] = [Digest::Sha1, Digest::Sha256];
const STEPS: [Step; 3] = [Step::Phase(Phase::ServerGreeting), Step::Phase(Phase::Auth), Step::Done];
const MECHANISMS: [Mechanism; 3] = [Mechanism::ScramSha256, Mechanism::ScramSha1, Mechanism::Negotiated];

fn login(mechanism: Mechanism) -> MongoDbLogin {
    MongoDbLogin { mechanism, ..MongoDbLogin::new(USER, Secret::new(PASSWORD.as_bytes().to_vec())) }
}

fn connect(mechanism: Mechanism, server: &mut FakeServer) -> (Joined, MongoDbConnect) {
    let mut client = MongoDbConnect::new(Arc::new(login(mechanism)));
    (join(&mut client, server, usize::MAX), client)
}

fn auth(client: &MongoDbConnect) -> String {
    client.server().map(|server| server.auth.label()).unwrap()
}

fn expect_error(mechanism: Mechanism, server: &mut FakeServer) -> Error {
    let ((outcome, steps), mut client) = connect(mechanism, server);
    assert!(!steps.contains(&Step::Done) && client.server().is_none());
    assert_eq!(client.step(&mut &b""[..], &mut Vec::new()), Err(Error::NotReset));
    outcome.unwrap_err()
}

#[test]
fn speculation_saves_a_round_trip() {
    for (mechanism, label) in [
        (Mechanism::ScramSha256, "scram-4096"),
        (Mechanism::ScramSha1, "scram-sha1-4096"),
        (Mechanism::Negotiated, "scram-4096"),
    ] {
        let mut server = FakeServer::new(&BOTH);
        let ((outcome, steps), client) = connect(mechanism, &mut server);
        assert_eq!((outcome, steps.as_slice()), (Ok(()), &STEPS[..]));
        assert_eq!(server.commands, ["hello", "saslContinue"]);
        assert_eq!(auth(&client), label);
        let mut server = FakeServer { speculation: Speculation::Ignored, ..FakeServer::new(&BOTH) };
        let ((outcome, steps), client) = connect(mechanism, &mut server);
        assert_eq!((outcome, steps.as_slice()), (Ok(()), &STEPS[..]));
        assert_eq!(server.commands, ["hello", "saslStart", "saslContinue"]);
        assert_eq!(auth(&client), label);
    }
}

#[test]
fn an_empty_exchange_is_answered() {
    for speculation in [Speculation::Answered, Speculation::Ignored] {
        let mut server = FakeServer { speculation, ending: Ending::Empty, ..FakeServer::new(&BOTH) };
        let ((outcome, _), client) = connect(Mechanism::ScramSha256, &mut server);
        assert_eq!(outcome, Ok(()));
        assert!(server.commands.ends_with(&["saslContinue".to_owned(), "saslContinue".to_owned()]));
        assert_eq!(auth(&client), "scram-4096");
    }
}

#[test]
fn the_strongest_mechanism_of_the_user_is_used() {
    let mut server = FakeServer::new(&[Digest::Sha1]);
    let ((outcome, _), client) = connect(Mechanism::Negotiated, &mut server);
    assert_eq!((outcome, auth(&client).as_str()), (Ok(()), "scram-sha1-4096"));
    assert_eq!(server.commands, ["hello", "saslStart", "saslContinue"]);
    let error = expect_error(Mechanism::Negotiated, &mut FakeServer::new(&[]));
    assert_eq!(error, Error::UnsupportedAuth { method: String::new() });
}

#[test]
fn certificate_authentication_needs_only_hello() {
    for (speculation, commands) in
        [(Speculation::Answered, &["hello"][..]), (Speculation::Ignored, &["hello", "authenticate"])]
    {
        let mut server = FakeServer { speculation, ..FakeServer::new(&[]) };
        let login = MongoDbLogin { tls: MongoDbTlsMode::Tls, user: String::new(), ..login(Mechanism::X509) };
        let mut client = MongoDbConnect::new(Arc::new(login));
        let (outcome, steps) = join(&mut client, &mut server, usize::MAX);
        assert_eq!(outcome, Ok(()));
        assert_eq!(steps, [&[Step::StartTls][..], &STEPS].concat());
        assert_eq!(server.commands, commands);
        assert_eq!(client.server().unwrap().auth, MongoDbAuthMethod::Certificate);
    }
    let error = expect_error(Mechanism::X509, &mut FakeServer::new(&[]));
    assert_eq!(error, Error::CertificateInPlain);
}

#[test]
fn no_authentication_is_hello_alone() {
    let mut server = FakeServer::new(&[]);
    let ((outcome, steps), client) = connect(Mechanism::None, &mut server);
    assert_eq!((outcome, steps.as_slice()), (Ok(()), &STEPS[..]));
    assert_eq!((server.commands.len(), auth(&client).as_str()), (1, "trust"));
    let hello = RawDocument::from_bytes(&server.hello).unwrap();
    assert_eq!(hello.get("speculativeAuthenticate").unwrap(), None);
    assert_eq!(hello.get("hello").unwrap(), Some(RawBsonRef::Int32(1)));
}

#[test]
fn wrong_passwords_are_refused_by_name() {
    for (mechanism, speculation) in MECHANISMS
        .into_iter()
        .flat_map(|mechanism| [Speculation::Answered, Speculation::Ignored].map(|spec| (mechanism, spec)))
    {
        let mut server = FakeServer { speculation, ..FakeServer::new(&BOTH) };
        let login = MongoDbLogin { password: Secret::new(b"wrong".to_vec()), ..login(mechanism) };
        let mut client = MongoDbConnect::new(Arc::new(login));
        let (outcome, steps) = join(&mut client, &mut server, usize::MAX);
        assert_eq!(steps, STEPS[..1]);
        let Err(Error::Server { code: 18, code_name, message }) = outcome else { panic!("{outcome:?}") };
        assert_eq!(
            (code_name.as_str(), message.as_str()),
            ("AuthenticationFailed", "Authentication failed.")
        );
    }
}

#[test]
fn servers_without_the_password_are_detected() {
    for ending in [Ending::Lie, Ending::Early] {
        for mechanism in MECHANISMS {
            let mut server = FakeServer { ending, ..FakeServer::new(&BOTH) };
            assert_eq!(expect_error(mechanism, &mut server), Error::ServerSignature);
        }
    }
}

#[test]
fn too_few_iterations_are_refused() {
    let mut server = FakeServer { verifiers: vec![verifier(Digest::Sha256, 4095)], ..FakeServer::new(&[]) };
    let error = expect_error(Mechanism::ScramSha256, &mut server);
    assert_eq!(error, Error::IterationsTooFew { iterations: 4095, limit: 4096 });
}

#[test]
fn keys_are_derived_once_for_a_login() {
    let login = Arc::new(login(Mechanism::ScramSha256));
    let mut server = FakeServer::new(&BOTH);
    assert_eq!(join(&mut MongoDbConnect::new(Arc::clone(&login)), &mut server, usize::MAX).0, Ok(()));
    // With cached keys the password is not used.
    let other = MongoDbLogin { password: Secret::new(b"wrong".to_vec()), ..(*login).clone() };
    let mut server = FakeServer::new(&BOTH);
    assert_eq!(join(&mut MongoDbConnect::new(Arc::new(other)), &mut server, usize::MAX).0, Ok(()));
}

#[test]
fn the_server_describes_itself() {
    let mut server = FakeServer::new(&BOTH);
    let ((outcome, _), client) = connect(Mechanism::Negotiated, &mut server);
    assert_eq!(outcome, Ok(()));
    let said = client.server().unwrap();
    assert_eq!((said.version.as_str(), said.max_wire_version), ("wire-21", 21));
    assert_eq!((said.max_bson_bytes, said.max_message_bytes), (16_777_216, 48_000_000));
    assert_eq!((said.set_name.as_deref(), said.database.as_str()), (Some("rs0"), "test"));
    assert_eq!(said.hosts, ["one:27017", "two:27017"]);
    assert_eq!((said.me.as_deref(), said.primary.as_deref()), (Some("one:27017"), Some("two:27017")));
    assert!(said.is_writable_primary);
}

#[test]
fn unencodable_logins_are_refused() {
    let of = |change: fn(&mut MongoDbLogin)| {
        let mut login = login(Mechanism::Negotiated);
        change(&mut login);
        let mut out = Vec::new();
        let error = MongoDbConnect::new(Arc::new(login)).step(&mut &b""[..], &mut out).unwrap_err();
        assert!(out.is_empty());
        error
    };
    let invalid = |field| Error::InvalidLogin { field };
    assert_eq!(of(|login| login.user.clear()), invalid("user"));
    assert_eq!(of(|login| login.user = "a\0b".to_owned()), invalid("user"));
    assert_eq!(of(|login| login.database.clear()), invalid("database"));
    assert_eq!(of(|login| login.auth_source.clear()), invalid("authentication database"));
    assert_eq!(of(|login| login.application_name = "x".repeat(129)), invalid("application name"));
}

#[test]
fn nothing_may_come_before_hello() {
    for tls in [MongoDbTlsMode::Plain, MongoDbTlsMode::Tls] {
        let mut client = MongoDbConnect::new(Arc::new(MongoDbLogin { tls, ..login(Mechanism::None) }));
        let error = client.step(&mut &b"x"[..], &mut Vec::new()).unwrap_err();
        assert!(matches!(error, Error::Protocol { message: "first bytes", .. }));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn portions_do_not_matter(
        size in 1_usize..200,
        mechanism in proptest::sample::select(&MECHANISMS[..]),
        speculates: bool,
        is_empty: bool,
    ) {
        let mut server = FakeServer {
            speculation: if speculates { Speculation::Answered } else { Speculation::Ignored },
            ending: if is_empty { Ending::Empty } else { Ending::AtOnce },
            ..FakeServer::new(&BOTH)
        };
        let mut client = MongoDbConnect::new(Arc::new(login(mechanism)));
        prop_assert_eq!(join(&mut client, &mut server, size), (Ok(()), STEPS.to_vec()));
    }
}
