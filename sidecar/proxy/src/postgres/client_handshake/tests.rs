use std::sync::Arc;

use ciphertoll_wire::postgres::server::write_message;
use ciphertoll_wire::postgres::startup::{encode_cancel_request, encode_startup, encode_tls_request};
use ciphertoll_wire::postgres::{
    CancelKey, ChannelBinding, Error, PostgresConnect, PostgresLogin, PostgresTlsMode,
};
use ciphertoll_wire::{Phase, Step};

use super::*;

fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, parameters).unwrap();
    bytes
}

fn step(
    handshake: &mut ClientHandshake,
    mut input: &[u8],
    out: &mut Vec<u8>,
) -> HandshakeStep<Box<StartupRequest>> {
    handshake.step(&mut input, out)
}

#[test]
fn a_login_is_the_same_whole_and_byte_by_byte() {
    let mut bytes = Vec::new();
    encode_tls_request(&mut bytes);
    let login = startup(&[("user", "app"), ("database", "shop")]);
    for cut in 0..=login.len() {
        let mut handshake = ClientHandshake::new(ClientAuth::Granted, None);
        let mut out = Vec::new();
        assert_eq!(step(&mut handshake, &bytes, &mut out), HandshakeStep::NeedInput);
        assert_eq!(out, b"N");
        if cut < login.len() {
            assert_eq!(step(&mut handshake, &login[..cut], &mut out), HandshakeStep::NeedInput, "{cut}");
        }
        let HandshakeStep::Login(request) = step(&mut handshake, &login, &mut out) else {
            panic!("no login")
        };
        let parameters = &request.parameters;
        assert_eq!((parameters.user.as_str(), parameters.database.as_deref()), ("app", Some("shop")));
        // Nothing is sent before a session can start.
        assert_eq!(out, b"N");
    }
}

#[test]
fn a_denied_client_is_told_after_its_first_message() {
    let mut handshake = ClientHandshake::new(ClientAuth::Denied { uid: 4242 }, None);
    let mut out = Vec::new();
    assert_eq!(step(&mut handshake, b"", &mut out), HandshakeStep::NeedInput);
    let HandshakeStep::Refuse(refusal) = step(&mut handshake, &startup(&[("user", "app")]), &mut out) else {
        panic!("the login succeeded")
    };
    assert_eq!(refusal.sqlstate, Refusal::WHO);
    assert!(refusal.message.contains("4242"));
}

#[test]
fn a_cancel_request_needs_no_authentication() {
    let mut bytes = Vec::new();
    encode_cancel_request(&mut bytes, 7, &CancelKey::new(vec![1, 2, 3, 4]).unwrap());
    let cancel = step(&mut ClientHandshake::new(ClientAuth::Granted, None), &bytes, &mut Vec::new());
    assert_eq!(cancel, HandshakeStep::Cancel { process_id: 7, key: vec![1, 2, 3, 4] });
}

#[test]
fn malformed_messages_end_the_handshake() {
    let mut tls = Vec::new();
    encode_tls_request(&mut tls);
    let no_end = b"\0\0\0\x08\0\x03\0\0";
    let step_of = step(&mut ClientHandshake::new(ClientAuth::Granted, None), no_end, &mut Vec::new());
    assert!(matches!(step_of, HandshakeStep::Refuse(_)), "{step_of:?}");
    // These lengths are impossible in this protocol, so the client would not understand an error message.
    let lengths =
        [&b"\0\0\0\x03\0\0\0\0"[..], b"X\0\0\0\x04", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff"];
    let again = tls.repeat(3);
    for bytes in lengths.into_iter().chain([&b"\x16\x03\x01"[..], &again]) {
        let step = step(&mut ClientHandshake::new(ClientAuth::Granted, None), bytes, &mut Vec::new());
        assert!(matches!(step, HandshakeStep::HangUp(_)), "{step:?}");
    }
}

#[test]
fn newer_protocol_versions_are_negotiated_down() {
    let mut bytes = startup(&[("user", "app"), ("_pq_.x", "1")]);
    bytes[7] = 2;
    let mut out = Vec::new();
    let step = step(&mut ClientHandshake::new(ClientAuth::Granted, None), &bytes, &mut out);
    assert!(matches!(step, HandshakeStep::Login(_)), "{step:?}");
    assert_eq!(out, b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0");
}

/// Our client against the handshake: the result on both sides.
fn log_in(
    credentials: &Arc<CredentialStore>,
    user: &str,
    password: &[u8],
) -> (HandshakeStep<Box<StartupRequest>>, Result<(), Error>) {
    let login = PostgresLogin {
        startup: Vec::new(),
        user: user.to_owned(),
        password: Secret::new(password.to_vec()),
        database: None,
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
    };
    let mut client = PostgresConnect::new(Arc::new(login));
    let mut handshake = ClientHandshake::new(ClientAuth::PasswordByTcp, Some(Arc::clone(credentials)));
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let outcome = loop {
        if let Err(error) = client.step(&mut &down[..], &mut up) {
            break (HandshakeStep::NeedInput, Err(error));
        }
        down.clear();
        match handshake.step(&mut &up[..], &mut down) {
            HandshakeStep::NeedInput => up.clear(),
            step => break (step, Ok(())),
        }
    };
    let (step, Ok(())) = outcome else { return outcome };
    match &step {
        HandshakeStep::Login(_) => write_authentication(&mut down, &Authentication::Ok).unwrap(),
        HandshakeStep::Refuse(refusal) => refusal.write(&mut down),
        _ => {}
    }
    let answer = client.step(&mut &down[..], &mut up);
    (step, answer.map(|step| assert_eq!(step, Step::Phase(Phase::Auth))))
}

#[test]
fn a_login_reveals_neither_known_users_nor_passwords() {
    let credentials =
        Arc::new(CredentialStore::for_users([("app", &Secret::new(b"secret".to_vec()))], 4096).unwrap());
    let (step, answer) = log_in(&credentials, "app", b"secret");
    assert!(matches!(step, HandshakeStep::Login(request) if request.parameters.user == "app"));
    assert_eq!(answer, Ok(()));
    for (user, password) in [("app", &b"wrong"[..]), ("nobody", b"secret")] {
        let (step, answer) = log_in(&credentials, user, password);
        let HandshakeStep::Refuse(refusal) = step else { panic!("{step:?}") };
        assert_eq!(refusal.sqlstate, Refusal::PASSWORD);
        assert_eq!(refusal.message, format!("password authentication failed for user \"{user}\""));
        assert!(matches!(answer, Err(Error::Server { .. })), "{answer:?}");
    }
    assert_eq!(credentials.verifier_of("app").iterations(), credentials.verifier_of("nobody").iterations());
}

#[test]
fn each_user_has_a_password() {
    let [app, reports] = ["secret", "other"].map(|text| Secret::new(text.as_bytes().to_vec()));
    let credentials =
        Arc::new(CredentialStore::for_users([("app", &app), ("reports", &reports)], 1).unwrap());
    for (user, password, is_accepted) in [
        ("app", &b"secret"[..], true),
        ("reports", b"other", true),
        ("app", b"other", false),
        ("reports", b"secret", false),
        ("nobody", b"other", false),
    ] {
        let (step, _) = log_in(&credentials, user, password);
        assert_eq!(matches!(step, HandshakeStep::Login(_)), is_accepted, "{user}: {step:?}");
    }
    assert_eq!(credentials.verifier_of("app").iterations(), 1);
}

#[test]
fn a_client_without_tls_is_refused_where_tls_is_required() {
    let login = startup(&[("user", "app")]);
    let mut tls = Vec::new();
    encode_tls_request(&mut tls);
    let mut out = Vec::new();
    let HandshakeStep::Refuse(refusal) =
        step(&mut ClientHandshake::new(ClientAuth::Certificate, None), &login, &mut out)
    else {
        panic!("the login succeeded")
    };
    assert_eq!((refusal.sqlstate, out.is_empty()), (Refusal::WHO, true));
    // TLS after a request or at once. What follows the request belongs to TLS and is not consumed.
    for (bytes, left) in [([&tls[..], &login].concat(), login.len()), (b"\x16\x03\x01".to_vec(), 3)] {
        let mut handshake = ClientHandshake::new(ClientAuth::Certificate, None);
        let (mut input, mut out) = (&bytes[..], Vec::new());
        assert_eq!(handshake.step(&mut input, &mut out), HandshakeStep::StartTls);
        assert_eq!(input.len(), left);
        handshake.tls_established(None);
        // No TLS within TLS.
        assert!(matches!(step(&mut handshake, &tls, &mut Vec::new()), HandshakeStep::HangUp(_)));
        handshake.tls_established(Some("app".to_owned()));
        assert!(matches!(step(&mut handshake, &login, &mut out), HandshakeStep::Login(_)));
    }
}

#[test]
fn a_certificate_authenticates_the_user_it_names() {
    let login = startup(&[("user", "app")]);
    for (name, is_accepted) in [(Some("app"), true), (Some("other"), false), (Some(""), false), (None, false)]
    {
        let mut handshake = ClientHandshake::new(ClientAuth::Certificate, None);
        handshake.tls_established(name.map(ToOwned::to_owned));
        let step = step(&mut handshake, &login, &mut Vec::new());
        assert_eq!(matches!(step, HandshakeStep::Login(_)), is_accepted, "{name:?}: {step:?}");
    }
    // Before TLS, and without a password to check.
    for auth in [ClientAuth::Certificate, ClientAuth::PasswordByTls, ClientAuth::PasswordByUnix] {
        let mut handshake = ClientHandshake::new(auth, None);
        assert!(matches!(step(&mut handshake, &login, &mut Vec::new()), HandshakeStep::Refuse(_)));
    }
}

/// A handshake of a client whose user the settings do not name, and its first message.
fn unnamed(auth: ClientAuth, user: &str, password: &[u8]) -> (ClientHandshake, Vec<u8>) {
    let verifier = Verifier::of(password, 16).unwrap();
    let lookup = CredentialLookup::knowing([(user, verifier)]);
    let credentials = CredentialStore::for_users([("asker", &Secret::new(b"asks".to_vec()))], 1).unwrap();
    let credentials = auth.needs_password().then(|| Arc::new(credentials));
    (ClientHandshake::new(auth, credentials).with_lookup(Some(lookup)), startup(&[("user", user)]))
}

/// Proves the password to a handshake that has read the first message.
fn prove(handshake: &mut ClientHandshake, password: &[u8]) -> HandshakeStep<Box<StartupRequest>> {
    let mut out = Vec::new();
    let client = scram::ClientFirst::new("", Binding::None).unwrap();
    let length = (client.message().len() as u32).to_be_bytes();
    let initial = [&b"SCRAM-SHA-256\0"[..], &length, client.message()].concat();
    let mut bytes = Vec::new();
    write_message(&mut bytes, b'p', &initial).unwrap();
    assert_eq!(step(handshake, &bytes, &mut out), HandshakeStep::NeedInput);
    let last = client.answer(password, &out[9..]).unwrap();
    bytes.clear();
    write_message(&mut bytes, b'p', last.message()).unwrap();
    step(handshake, &bytes, &mut out)
}

#[test]
fn users_whom_the_settings_do_not_name_prove_their_password_however_they_come() {
    for auth in [ClientAuth::Granted, ClientAuth::PasswordByUnix, ClientAuth::PasswordByTcp] {
        for (password, is_accepted) in [(&b"right"[..], true), (b"wrong", false)] {
            let (mut handshake, first) = unnamed(auth, "found", b"right");
            assert_eq!(step(&mut handshake, &first, &mut Vec::new()), HandshakeStep::NeedInput);
            match prove(&mut handshake, password) {
                HandshakeStep::Login(request) => assert!(is_accepted && request.proven.is_some()),
                HandshakeStep::Refuse(refusal) => {
                    assert_eq!((refusal.sqlstate, is_accepted), (Refusal::PASSWORD, false));
                }
                step => panic!("{step:?}"),
            }
        }
    }
    // A certificate of the same name is needed as well.
    for (name, is_accepted) in [("found", true), ("other", false)] {
        let (mut handshake, first) = unnamed(ClientAuth::Certificate, "found", b"right");
        handshake.tls_established(Some(name.to_owned()));
        match step(&mut handshake, &first, &mut Vec::new()) {
            HandshakeStep::NeedInput => assert!(is_accepted),
            HandshakeStep::Refuse(refusal) => {
                assert_eq!((refusal.sqlstate, is_accepted), (Refusal::WHO, false));
            }
            step => panic!("{step:?}"),
        }
    }
    // A client is not looked up if its UID is excluded or it has not started TLS.
    for auth in [ClientAuth::Denied { uid: 7 }, ClientAuth::PasswordByTls, ClientAuth::Certificate] {
        let (mut handshake, first) = unnamed(auth, "found", b"right");
        let step = step(&mut handshake, &first, &mut Vec::new());
        assert!(
            matches!(&step, HandshakeStep::Refuse(refusal) if refusal.sqlstate == Refusal::WHO),
            "{step:?}"
        );
    }
}

#[test]
fn a_handshake_waits_for_a_secret_that_is_not_known_and_takes_no_input_meanwhile() {
    let (mut handshake, _) = unnamed(ClientAuth::Granted, "found", b"right");
    let first = startup(&[("user", "another")]);
    let bytes = [&first[..], b"later"].concat();
    let mut input = &bytes[..];
    let mut out = Vec::new();
    let step = handshake.step(&mut input, &mut out);
    assert!(matches!(step, HandshakeStep::LookUp(_)), "{step:?}");
    assert_eq!(handshake.step(&mut input, &mut out), HandshakeStep::NeedInput);
    assert_eq!((input, out.is_empty()), (&b"later"[..], true));
    let flood = vec![b'p'; MAX_LOGIN_PAYLOAD_BYTES + 1];
    let step = handshake.step(&mut &flood[..], &mut out);
    assert!(
        matches!(&step, HandshakeStep::Refuse(refusal) if refusal.sqlstate == Refusal::PROTOCOL),
        "{step:?}"
    );
    // The users of the settings wait for nothing.
    let (mut handshake, _) = unnamed(ClientAuth::Granted, "found", b"right");
    let step = handshake.step(&mut &startup(&[("user", "asker")])[..], &mut out);
    assert!(matches!(step, HandshakeStep::Login(request) if request.proven.is_none()));
}
