use ciphertoll_wire::mysql::greeting::Greeting;
use ciphertoll_wire::mysql::handshake_response::HandshakeResponse;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::relay::RELAYED;
use ciphertoll_wire::mysql::server::{write_ok, write_payload};
use ciphertoll_wire::mysql::ssl_request::SslRequest;
use ciphertoll_wire::mysql::{Capabilities, Connect, Error, Login, Terms};
use ciphertoll_wire::{Phase, Step};

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
    login: Login,
    piece: usize,
) -> (FrontStep<Wanted>, Result<(), Error>) {
    let mut front = Front::new(admission, greeter(begun));
    let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 33 };
    let mut client = Connect::pooled(Arc::new(login), terms);
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
fn run(client: &mut Connect, down: &mut Vec<u8>, up: &mut Vec<u8>) -> Result<Step, Error> {
    let mut input = down.as_slice();
    loop {
        let step = client.step(&mut input, up)?;
        if !matches!(step, Step::Phase(Phase::Auth | Phase::ServerGreeting)) {
            *down = input.to_vec();
            return Ok(step);
        }
    }
}

fn login(user: &str, password: &[u8], plugin: Plugin) -> Login {
    Login { plugin, database: Some("shop".to_owned()), ..Login::new(user, Secret::new(password.to_vec())) }
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
