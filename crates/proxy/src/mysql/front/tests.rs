use ciphertoll_wire::Step;
use ciphertoll_wire::mysql::auth::native_password;
use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::RELAYED;
use ciphertoll_wire::mysql::server::{write_ok, write_payload};
use ciphertoll_wire::mysql::ssl_request::SslRequest;
use ciphertoll_wire::mysql::{Capabilities, Error, MySqlConnect, MySqlLogin, MySqlTlsMode};
use openssl::sha::sha1;

use super::*;

const OFFERED: Capabilities = Capabilities::from_bits(u64::MAX).without(Capabilities::LONG_PASSWORD);

fn greeter(plugin: Plugin) -> Greeter {
    let template = GreetingTemplate::of(&Greeting {
        version: b"5.5.5-10.11.19-MariaDB",
        connection_id: 7,
        nonce: [b'x'; NONCE_BYTES],
        capabilities: OFFERED,
        character_set: 45,
        status: 2,
        plugin: plugin.name(),
    });
    let mut random = [0; NONCE_BYTES];
    openssl::rand::rand_bytes(&mut random).unwrap();
    Greeter::new(Arc::new(template), 4711, random)
}

fn gate() -> Arc<Gate> {
    Arc::new(Gate::new("app", &Secret::new(b"secret".to_vec())).unwrap())
}

/// How it ends for both: what the front says, what the client makes of it, and what it had sent.
fn log_in(
    admission: Admission,
    begun: Plugin,
    login: MySqlLogin,
    piece: usize,
) -> (FrontStep<Wanted>, Result<(), Error>) {
    log_in_to(Front::new(admission, greeter(begun)), None, login, piece)
}

/// The same by a way that is encrypted when that is asked for, with a certificate of this name.
fn log_in_to(
    mut front: Front,
    name: Option<&str>,
    login: MySqlLogin,
    piece: usize,
) -> (FrontStep<Wanted>, Result<(), Error>) {
    let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 33 };
    let mut client = MySqlConnect::pooled(Arc::new(login), terms);
    let (mut up, mut down, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let mut step = front.step(&mut &b""[..], &mut down);
    while step == FrontStep::NeedInput {
        if let Err(error) = run(&mut client, &mut down, &mut up) {
            return (step, Err(error));
        }
        for bytes in up.chunks(piece) {
            assert_eq!(step, FrontStep::NeedInput);
            held.extend_from_slice(bytes);
            let mut input = held.as_slice();
            step = front.step(&mut input, &mut down);
            if step == FrontStep::StartTls {
                front.encrypted(name.map(ToOwned::to_owned));
                step = front.step(&mut input, &mut down);
            }
            held = input.to_vec();
        }
        up.clear();
    }
    match &step {
        FrontStep::Login(wanted) => {
            write_ok(&mut down, wanted.sequence, &OkPacket { status: 2, ..OkPacket::default() }).unwrap();
        }
        FrontStep::Refuse(refusal) => front.refuse(refusal, &mut down),
        _ => {}
    }
    let answer = run(&mut client, &mut down, &mut up);
    (step, answer.map(|last| assert_eq!(last, Step::Done)))
}

/// Steps the client as far as it goes.
fn run(client: &mut MySqlConnect, down: &mut Vec<u8>, up: &mut Vec<u8>) -> Result<Step, Error> {
    let mut input = down.as_slice();
    loop {
        let step = client.step(&mut input, up)?;
        if !matches!(step, Step::Phase(_) | Step::StartTls) {
            *down = input.to_vec();
            return Ok(step);
        }
    }
}

fn login(user: &str, password: &[u8], plugin: Plugin) -> MySqlLogin {
    MySqlLogin {
        plugin,
        database: Some("shop".to_owned()),
        ..MySqlLogin::new(user, Secret::new(password.to_vec()))
    }
}

#[test]
fn the_right_password_comes_in_by_every_plugin_and_in_any_pieces() {
    for begun in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for plugin in Plugin::ALL {
            for piece in [1, 7, usize::MAX] {
                let admission = Admission::Password(gate());
                let (step, answer) = log_in(admission, begun, login("app", b"secret", plugin), piece);
                let FrontStep::Login(wanted) = step else { panic!("{begun:?} {plugin:?}: {step:?}") };
                assert_eq!((wanted.user.as_str(), wanted.database.as_deref()), ("app", Some("shop")));
                let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 33 };
                assert_eq!(wanted.terms, terms);
                assert_eq!(answer, Ok(()), "{begun:?} {plugin:?} {piece}");
            }
        }
    }
}

#[test]
fn neither_users_nor_passwords_can_be_guessed_apart() {
    for begun in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for plugin in Plugin::ALL {
            for (user, password, using) in
                [("app", &b"wrong"[..], "YES"), ("app", b"", "NO"), ("nobody", b"secret", "YES")]
            {
                let admission = Admission::Password(gate());
                let (step, answer) = log_in(admission, begun, login(user, password, plugin), usize::MAX);
                let FrontStep::Refuse(refusal) = step else { panic!("{step:?}") };
                assert_eq!(refusal.sqlstate, Refusal::PASSWORD);
                let message =
                    format!("Access denied for user '{user}'@'localhost' (using password: {using})");
                assert_eq!(refusal.message, message);
                let code = 1045;
                assert_eq!(answer, Err(Error::Server { code, sql_state: "28000".to_owned(), message }));
            }
        }
    }
}

#[test]
fn whoever_the_kernel_vouches_for_comes_in_with_any_proof_or_none() {
    for begun in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for plugin in Plugin::ALL {
            for password in [&b""[..], b"whatever"] {
                let login = login("app", password, plugin);
                let (step, answer) = log_in(Admission::Granted, begun, login, usize::MAX);
                assert!(matches!(step, FrontStep::Login(_)), "{step:?}");
                assert_eq!(answer, Ok(()), "{begun:?} {plugin:?}");
            }
        }
    }
}

#[test]
fn who_may_not_come_in_is_told_after_its_login() {
    let admission = Admission::Denied { uid: Some(4242) };
    let login = login("app", b"secret", Plugin::NativePassword);
    let (step, answer) = log_in(admission, Plugin::NativePassword, login, usize::MAX);
    assert!(matches!(step, FrontStep::Refuse(_)), "{step:?}");
    assert!(matches!(answer, Err(Error::Server { code: 1045, message, .. }) if message.contains("4242")));
}

fn answer_to(payload: &[u8]) -> (FrontStep<Wanted>, Vec<u8>) {
    let mut front = Front::new(Admission::Granted, greeter(Plugin::NativePassword));
    let mut out = Vec::new();
    assert_eq!(front.step(&mut &b""[..], &mut out), FrontStep::NeedInput);
    let mut bytes = Vec::new();
    write_payload(&mut bytes, 1, payload).unwrap();
    out.clear();
    (front.step(&mut &bytes[..], &mut out), out)
}

fn response(capabilities: Capabilities, plugin: Option<&'static [u8]>) -> Vec<u8> {
    let mut payload = Vec::new();
    let needed = Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION;
    let plugins = if plugin.is_some() { Capabilities::PLUGIN_AUTH } else { Capabilities::default() };
    let head = SslRequest {
        capabilities: capabilities | needed | plugins,
        max_packet_bytes: 1 << 24,
        character_set: 8,
    };
    HandshakeResponse { head, user: b"app", auth_response: b"proof", database: None, plugin }
        .encode(&mut payload);
    payload
}

#[test]
fn more_than_was_offered_is_not_agreed_on() {
    let (step, _) = answer_to(&response(Capabilities::from_bits(1 << 22 | 1 << 24 | 1 << 35), None));
    let FrontStep::Login(wanted) = step else { panic!("{step:?}") };
    let agreed = Capabilities::DEPRECATE_EOF | Capabilities::EXTENDED_METADATA;
    assert_eq!(wanted.terms, Terms { capabilities: agreed, character_set: 8 });
    assert!(RELAYED.contains(wanted.terms.capabilities));
}

#[test]
fn compression_and_tls_are_refused() {
    for compression in [Capabilities::COMPRESS, Capabilities::ZSTD_COMPRESSION] {
        let (step, _) = answer_to(&response(compression, None));
        assert!(matches!(step, FrontStep::Refuse(refusal) if refusal.sqlstate == Refusal::UNSUPPORTED));
    }
    let mut payload = Vec::new();
    let capabilities = Capabilities::PROTOCOL_41 | Capabilities::SSL;
    SslRequest { capabilities, max_packet_bytes: 0, character_set: 8 }.encode(&mut payload);
    let (step, out) = answer_to(&payload);
    assert!(matches!(step, FrontStep::Refuse(refusal) if refusal.sqlstate == Refusal::UNSUPPORTED));
    assert!(out.is_empty());
}

#[test]
fn a_clear_password_is_not_asked_for_and_not_looked_at() {
    let (step, out) = answer_to(&response(Capabilities::default(), Some(clear_password::NAME)));
    assert!(matches!(step, FrontStep::Login(Wanted { sequence: 2, .. })), "{step:?}");
    assert!(out.is_empty());
    // Who must prove something is asked for a proof.
    let mut front = Front::new(Admission::Password(gate()), greeter(Plugin::NativePassword));
    let mut out = Vec::new();
    front.step(&mut &b""[..], &mut out);
    let mut bytes = Vec::new();
    write_payload(&mut bytes, 1, &response(Capabilities::default(), Some(clear_password::NAME))).unwrap();
    out.clear();
    assert_eq!(front.step(&mut &bytes[..], &mut out), FrontStep::NeedInput);
    assert_eq!(out[4], 0xfe);
}

#[test]
fn garbage_ends_it() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\xff\x01", b"\0\0\0\x01", b"\x01\0\0\x05x"] {
        let mut front = Front::new(Admission::Granted, greeter(Plugin::NativePassword));
        let mut out = Vec::new();
        front.step(&mut &b""[..], &mut out);
        let FrontStep::Refuse(refusal) = front.step(&mut &bytes[..], &mut out) else { panic!("{bytes:?}") };
        assert_eq!(refusal.sqlstate, Refusal::PROTOCOL);
        let greeted = out.len();
        front.refuse(&refusal, &mut out);
        assert_eq!(out[greeted + 3], 2);
    }
}

#[test]
fn a_challenge_has_nothing_that_ends_a_text() {
    for byte in 0..=u8::MAX {
        let template = Arc::clone(&greeter(Plugin::NativePassword).template);
        let nonce = Greeter::new(template, 1, [byte; NONCE_BYTES]).nonce;
        assert!(nonce.iter().all(|byte| byte.is_ascii() && !b"\0$".contains(byte)), "{byte}");
    }
}

fn by_tls(admission: Admission, begun: Plugin) -> Front {
    Front::by_tls(admission, greeter(begun))
}

fn tls_login(user: &str, password: &[u8], plugin: Plugin) -> MySqlLogin {
    MySqlLogin { encryption: MySqlTlsMode::Tls, ..login(user, password, plugin) }
}

#[test]
fn by_tls_the_right_password_comes_in_and_a_wrong_one_is_asked_for_as_it_is() {
    for begun in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for (plugin, piece) in Plugin::ALL.into_iter().flat_map(|plugin| [(plugin, 1), (plugin, usize::MAX)])
        {
            for (user, password, is_right) in [
                ("app", &b"secret"[..], true),
                ("app", b"wrong", false),
                ("app", b"", false),
                ("x", b"secret", false),
            ] {
                let front = by_tls(Admission::Password(gate()), begun);
                let (step, answer) = log_in_to(front, None, tls_login(user, password, plugin), piece);
                assert_eq!(
                    matches!(step, FrontStep::Login(_)),
                    is_right,
                    "{begun:?} {plugin:?} {user}: {step:?}"
                );
                match answer {
                    Ok(()) => assert!(is_right),
                    Err(Error::Server { code, .. }) => assert_eq!((code, is_right), (1045, false)),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
}

#[test]
fn who_must_come_by_tls_does_not_come_without() {
    let front = by_tls(Admission::Password(gate()), Plugin::NativePassword);
    let (step, answer) = log_in_to(front, None, login("app", b"secret", Plugin::NativePassword), 3);
    assert!(matches!(step, FrontStep::Refuse(_)), "{step:?}");
    assert!(matches!(answer, Err(Error::Server { code: 3159, .. })), "{answer:?}");
}

#[test]
fn a_certificate_lets_its_own_user_in() {
    for (name, password, is_right) in [
        (Some("app"), &b""[..], true),
        (Some("app"), b"x", true),
        (Some("other"), b"secret", false),
        (None, b"", false),
    ] {
        for (begun, plugin) in Plugin::ALL.into_iter().map(|plugin| (Plugin::CachingSha2Password, plugin)) {
            let front = by_tls(Admission::Certificate, begun);
            let (step, answer) = log_in_to(front, name, tls_login("app", password, plugin), usize::MAX);
            assert_eq!(
                (matches!(step, FrontStep::Login(_)), answer.is_ok()),
                (is_right, is_right),
                "{step:?}"
            );
        }
    }
}

#[test]
fn a_clear_password_is_taken_by_tls() {
    for (said, is_right) in
        [(&b"secret\0"[..], true), (b"secret", false), (b"wrong\0", false), (b"\0", false), (b"", false)]
    {
        let mut front = by_tls(Admission::Password(gate()), Plugin::NativePassword);
        let mut out = Vec::new();
        front.step(&mut &b""[..], &mut out);
        front.encrypted(None);
        let mut payload = Vec::new();
        let capabilities =
            Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION | Capabilities::PLUGIN_AUTH;
        let head = SslRequest { capabilities, max_packet_bytes: 1 << 24, character_set: 8 };
        let plugin = Some(clear_password::NAME);
        HandshakeResponse { head, user: b"app", auth_response: said, database: None, plugin }
            .encode(&mut payload);
        let mut bytes = Vec::new();
        write_payload(&mut bytes, 1, &payload).unwrap();
        let step = front.step(&mut &bytes[..], &mut out);
        assert_eq!(matches!(step, FrontStep::Login(_)), is_right, "{said:?}: {step:?}");
    }
}

#[test]
fn each_user_has_a_password_of_his_own() {
    let secrets = [Secret::new(b"secret".to_vec()), Secret::new(b"other".to_vec())];
    let gate = Arc::new(Gate::of(["app", "reports"].into_iter().zip(&secrets)).unwrap());
    for (user, password, is_right) in [
        ("app", &b"secret"[..], true),
        ("reports", b"other", true),
        ("app", b"other", false),
        ("reports", b"secret", false),
        ("", b"other", false),
    ] {
        for plugin in [Plugin::NativePassword, Plugin::CachingSha2Password] {
            let admission = Admission::Password(Arc::clone(&gate));
            let (step, _) = log_in(admission, Plugin::CachingSha2Password, login(user, password, plugin), 9);
            assert_eq!(matches!(step, FrontStep::Login(_)), is_right, "{user}");
        }
    }
}

/// What a client that is logged in gets for naming this user, and what it is sent.
fn change(admission: &Admission, change: &ChangeUser<'_>) -> (FrontStep<Wanted>, Vec<u8>) {
    let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 33 };
    let greeter = Greeter { nonce: *b"abcdefghijklmnopqrst", ..greeter(Plugin::NativePassword) };
    let mut bytes = Vec::new();
    change.encode(&mut bytes).unwrap();
    let run = |piece: usize| {
        let mut front = Front::anew(admission.clone(), Way::Plain, greeter.clone(), terms);
        let (mut held, mut out, mut step) = (Vec::new(), Vec::new(), FrontStep::NeedInput);
        for part in bytes.chunks(piece) {
            assert_eq!(step, FrontStep::NeedInput);
            held.extend_from_slice(part);
            let mut input = held.as_slice();
            step = front.step(&mut input, &mut out);
            held = input.to_vec();
        }
        if let FrontStep::Refuse(refusal) = &step {
            front.refuse(refusal, &mut out);
        }
        (step, out)
    };
    assert_eq!(run(1), run(usize::MAX));
    run(usize::MAX)
}

fn proof(password: &[u8]) -> Vec<u8> {
    let once = sha1(password);
    let mask = sha1(&[&b"abcdefghijklmnopqrst"[..], &sha1(&once)].concat());
    once.iter().zip(mask).map(|(a, b)| a ^ b).collect()
}

#[test]
fn who_logs_in_anew_proves_it_for_the_challenge_of_the_greeting() {
    let right = proof(b"secret");
    let asked = ChangeUser {
        user: b"app",
        auth_response: &right,
        database: b"till",
        character_set: Some(8),
        plugin: Some(native_password::NAME),
    };
    let (step, out) = change(&Admission::Password(gate()), &asked);
    let FrontStep::Login(wanted) = step else { panic!("{step:?}") };
    assert_eq!((wanted.user.as_str(), wanted.database.as_deref(), wanted.sequence), ("app", Some("till"), 1));
    let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 8 };
    assert_eq!((wanted.terms, wanted.connection_id, out.len()), (terms, 4711, 0));
    let wrong = proof(b"wrong");
    for (user, auth_response) in [(&b"app"[..], &wrong[..]), (b"app", b""), (b"nobody", &right)] {
        let (step, out) = change(&Admission::Password(gate()), &ChangeUser { user, auth_response, ..asked });
        assert!(matches!(step, FrontStep::Refuse(refusal) if refusal.sqlstate == Refusal::PASSWORD));
        assert_eq!((out[3], out[4]), (1, 0xff));
    }
    // By a plugin for which the greeting does not suffice there is a request for another one.
    let (step, out) = change(&Admission::Password(gate()), &ChangeUser { plugin: Some(b"parsec"), ..asked });
    assert_eq!((step, out[3], out[4]), (FrontStep::NeedInput, 1, 0xfe));
    // Whom the kernel vouches for proves nothing.
    for plugin in [None, Some(&b"parsec"[..]), Some(native_password::NAME)] {
        let (step, _) = change(&Admission::Granted, &ChangeUser { auth_response: &wrong, plugin, ..asked });
        assert!(matches!(step, FrontStep::Login(Wanted { sequence: 1, .. })), "{step:?}");
    }
    let (step, _) = change(&Admission::Granted, &ChangeUser { character_set: Some(256), ..asked });
    assert!(matches!(step, FrontStep::Refuse(refusal) if refusal.sqlstate == Refusal::UNSUPPORTED));
}
