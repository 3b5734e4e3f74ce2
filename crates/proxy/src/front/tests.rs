use std::sync::Arc;

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

fn step(front: &mut Front, mut input: &[u8], out: &mut Vec<u8>) -> FrontStep<Wanted> {
    front.step(&mut input, out)
}

#[test]
fn a_login_is_the_same_in_one_piece_and_byte_by_byte() {
    let mut bytes = Vec::new();
    encode_tls_request(&mut bytes);
    let login = startup(&[("user", "app"), ("database", "shop")]);
    for cut in 0..=login.len() {
        let mut front = Front::new(Admission::Granted);
        let mut out = Vec::new();
        assert_eq!(step(&mut front, &bytes, &mut out), FrontStep::NeedInput);
        assert_eq!(out, b"N");
        if cut < login.len() {
            assert_eq!(step(&mut front, &login[..cut], &mut out), FrontStep::NeedInput, "{cut}");
        }
        let FrontStep::Login(wanted) = step(&mut front, &login, &mut out) else { panic!("no login") };
        assert_eq!((wanted.user.as_str(), wanted.database.as_deref()), ("app", Some("shop")));
        // Nothing is said before there is a session to be had.
        assert_eq!(out, b"N");
    }
}

#[test]
fn who_may_not_come_in_is_told_after_its_first_message() {
    let mut front = Front::new(Admission::Denied { uid: Some(4242) });
    let mut out = Vec::new();
    assert_eq!(step(&mut front, b"", &mut out), FrontStep::NeedInput);
    let FrontStep::Refuse(refusal) = step(&mut front, &startup(&[("user", "app")]), &mut out) else {
        panic!("it was let in")
    };
    assert_eq!(refusal.sqlstate, Refusal::WHO);
    assert!(refusal.message.contains("4242"));
}

#[test]
fn a_cancel_request_needs_nobodys_leave() {
    let mut bytes = Vec::new();
    encode_cancel_request(&mut bytes, 7, &CancelKey::new(vec![1, 2, 3, 4]).unwrap());
    let cancel = step(&mut Front::new(Admission::Granted), &bytes, &mut Vec::new());
    assert_eq!(cancel, FrontStep::Cancel { process_id: 7, key: vec![1, 2, 3, 4] });
}

#[test]
fn garbage_ends_it() {
    let mut tls = Vec::new();
    encode_tls_request(&mut tls);
    let no_end = b"\0\0\0\x08\0\x03\0\0";
    let step_of = step(&mut Front::new(Admission::Granted), no_end, &mut Vec::new());
    assert!(matches!(step_of, FrontStep::Refuse(_)), "{step_of:?}");
    // No client of this protocol would have such a length, or would understand a refusal.
    let lengths =
        [&b"\0\0\0\x03\0\0\0\0"[..], b"X\0\0\0\x04", b"GET / HTTP/1.1\r\n\r\n", b"\xff\xff\xff\xff"];
    let again = tls.repeat(3);
    for bytes in lengths.into_iter().chain([&b"\x16\x03\x01"[..], &again]) {
        let step = step(&mut Front::new(Admission::Granted), bytes, &mut Vec::new());
        assert!(matches!(step, FrontStep::HangUp(_)), "{step:?}");
    }
}

#[test]
fn newer_protocols_are_talked_down() {
    let mut bytes = startup(&[("user", "app"), ("_pq_.x", "1")]);
    bytes[7] = 2;
    let mut out = Vec::new();
    let step = step(&mut Front::new(Admission::Granted), &bytes, &mut out);
    assert!(matches!(step, FrontStep::Login(_)), "{step:?}");
    assert_eq!(out, b"v\0\0\0\x13\0\x03\0\0\0\0\0\x01_pq_.x\0");
}

/// Our own client against the gate: how it ends for both.
fn log_in(gate: &Arc<Gate>, user: &str, password: &[u8]) -> (FrontStep<Wanted>, Result<(), Error>) {
    let login = PostgresLogin {
        user: user.to_owned(),
        password: Secret::new(password.to_vec()),
        database: None,
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
    };
    let mut client = PostgresConnect::new(Arc::new(login));
    let mut front = Front::new(Admission::Password(Arc::clone(gate)));
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let outcome = loop {
        if let Err(error) = client.step(&mut &down[..], &mut up) {
            break (FrontStep::NeedInput, Err(error));
        }
        down.clear();
        match front.step(&mut &up[..], &mut down) {
            FrontStep::NeedInput => up.clear(),
            step => break (step, Ok(())),
        }
    };
    let (step, Ok(())) = outcome else { return outcome };
    match &step {
        FrontStep::Login(_) => write_authentication(&mut down, &Authentication::Ok).unwrap(),
        FrontStep::Refuse(refusal) => refusal.write(&mut down),
        _ => {}
    }
    let answer = client.step(&mut &down[..], &mut up);
    (step, answer.map(|step| assert_eq!(step, Step::Phase(Phase::Auth))))
}

#[test]
fn a_password_is_proved_and_neither_users_nor_passwords_can_be_guessed_apart() {
    let gate = Arc::new(Gate::new("app", &Secret::new(b"secret".to_vec())).unwrap());
    let (step, answer) = log_in(&gate, "app", b"secret");
    assert!(matches!(step, FrontStep::Login(wanted) if wanted.user == "app"));
    assert_eq!(answer, Ok(()));
    for (user, password) in [("app", &b"wrong"[..]), ("nobody", b"secret")] {
        let (step, answer) = log_in(&gate, user, password);
        let FrontStep::Refuse(refusal) = step else { panic!("{step:?}") };
        assert_eq!(refusal.sqlstate, Refusal::PASSWORD);
        assert_eq!(refusal.message, format!("password authentication failed for user \"{user}\""));
        assert!(matches!(answer, Err(Error::Server { .. })), "{answer:?}");
    }
    assert_eq!(gate.verifier_of("app").iterations(), gate.verifier_of("nobody").iterations());
}

#[test]
fn each_user_has_a_password_of_his_own() {
    let [app, reports] = ["secret", "other"].map(|text| Secret::new(text.as_bytes().to_vec()));
    let gate = Arc::new(Gate::of([("app", &app), ("reports", &reports)], 1).unwrap());
    for (user, password, is_let_in) in [
        ("app", &b"secret"[..], true),
        ("reports", b"other", true),
        ("app", b"other", false),
        ("reports", b"secret", false),
        ("nobody", b"other", false),
    ] {
        let (step, _) = log_in(&gate, user, password);
        assert_eq!(matches!(step, FrontStep::Login(_)), is_let_in, "{user}: {step:?}");
    }
    assert_eq!(gate.verifier_of("app").iterations(), 1);
}

#[test]
fn where_tls_is_wanted_nobody_comes_without() {
    let login = startup(&[("user", "app")]);
    let mut tls = Vec::new();
    encode_tls_request(&mut tls);
    let mut out = Vec::new();
    let FrontStep::Refuse(refusal) = step(&mut Front::by_tls(Admission::Granted), &login, &mut out) else {
        panic!("it was let in")
    };
    assert_eq!((refusal.sqlstate, out.is_empty()), (Refusal::WHO, true));
    // Asked for, or begun with; what has come behind the request is TLS's, and not looked at.
    for (bytes, left) in [([&tls[..], &login].concat(), login.len()), (b"\x16\x03\x01".to_vec(), 3)] {
        let mut front = Front::by_tls(Admission::Granted);
        let (mut input, mut out) = (&bytes[..], Vec::new());
        assert_eq!(front.step(&mut input, &mut out), FrontStep::StartTls);
        assert_eq!(input.len(), left);
        front.encrypted(None);
        // There is no TLS in TLS.
        assert!(matches!(step(&mut front, &tls, &mut Vec::new()), FrontStep::HangUp(_)));
        front.encrypted(None);
        assert!(matches!(step(&mut front, &login, &mut out), FrontStep::Login(_)));
    }
}

#[test]
fn a_certificate_lets_its_own_user_in() {
    let login = startup(&[("user", "app")]);
    for (name, is_let_in) in [(Some("app"), true), (Some("other"), false), (Some(""), false), (None, false)] {
        let mut front = Front::by_tls(Admission::Certificate);
        front.encrypted(name.map(ToOwned::to_owned));
        let step = step(&mut front, &login, &mut Vec::new());
        assert_eq!(matches!(step, FrontStep::Login(_)), is_let_in, "{name:?}: {step:?}");
    }
    let mut front = Front::new(Admission::Certificate);
    assert!(matches!(step(&mut front, &login, &mut Vec::new()), FrontStep::Refuse(_)));
}
