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

fn greeting_context(plugin: Plugin) -> GreetingContext {
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
    GreetingContext::new(Arc::new(template), 4711, random)
}

fn credentials() -> Arc<CredentialStore> {
    Arc::new(CredentialStore::for_users([("app", &Secret::new(b"secret".to_vec()))]).unwrap())
}

/// The result on both sides: the handshake's last step, and the client's result.
fn log_in(
    auth: ClientAuth,
    greeting_plugin: Plugin,
    login: MySqlLogin,
    piece: usize,
) -> (HandshakeStep<Box<StartupRequest>>, Result<(), Error>) {
    log_in_to(handshake(auth, greeting_plugin), None, login, piece)
}

/// A handshake that checks the password of one user, if the client needs one.
fn handshake(auth: ClientAuth, greeting_plugin: Plugin) -> ClientHandshake {
    ClientHandshake::new(auth, Some(credentials()), greeting_context(greeting_plugin))
}

/// The same over a connection that starts TLS when asked to, with a certificate of this name.
fn log_in_to(
    mut handshake: ClientHandshake,
    name: Option<&str>,
    login: MySqlLogin,
    piece: usize,
) -> (HandshakeStep<Box<StartupRequest>>, Result<(), Error>) {
    let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 33 };
    let mut client = MySqlConnect::pooled(Arc::new(login), terms);
    let (mut up, mut down, mut held) = (Vec::new(), Vec::new(), Vec::new());
    let mut step = handshake.step(&mut &b""[..], &mut down);
    while step == HandshakeStep::NeedInput {
        if let Err(error) = run(&mut client, &mut down, &mut up) {
            return (step, Err(error));
        }
        for bytes in up.chunks(piece) {
            assert_eq!(step, HandshakeStep::NeedInput);
            held.extend_from_slice(bytes);
            let mut input = held.as_slice();
            step = handshake.step(&mut input, &mut down);
            if step == HandshakeStep::StartTls {
                handshake.tls_established(name.map(ToOwned::to_owned));
                step = handshake.step(&mut input, &mut down);
            }
            held = input.to_vec();
        }
        up.clear();
    }
    match &step {
        HandshakeStep::Login(request) => {
            write_ok(&mut down, request.sequence, &OkPacket { status: 2, ..OkPacket::default() }).unwrap();
        }
        HandshakeStep::Refuse(refusal) => handshake.refuse(refusal, &mut down),
        _ => {}
    }
    let answer = run(&mut client, &mut down, &mut up);
    (step, answer.map(|last| assert_eq!(last, Step::Done)))
}

/// Steps the client until it needs input or is done.
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
fn the_right_password_is_accepted_by_every_plugin_in_any_pieces() {
    for greeting_plugin in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for plugin in Plugin::ALL {
            for piece in [1, 7, usize::MAX] {
                let auth = ClientAuth::PasswordByTcp;
                let (step, answer) = log_in(auth, greeting_plugin, login("app", b"secret", plugin), piece);
                let HandshakeStep::Login(request) = step else {
                    panic!("{greeting_plugin:?} {plugin:?}: {step:?}")
                };
                assert_eq!((request.user.as_str(), request.database.as_deref()), ("app", Some("shop")));
                let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 33 };
                assert_eq!(request.terms, terms);
                assert_eq!(answer, Ok(()), "{greeting_plugin:?} {plugin:?} {piece}");
            }
        }
    }
}

#[test]
fn a_login_reveals_neither_known_users_nor_passwords() {
    for greeting_plugin in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for plugin in Plugin::ALL {
            for (user, password, using) in
                [("app", &b"wrong"[..], "YES"), ("app", b"", "NO"), ("nobody", b"secret", "YES")]
            {
                let auth = ClientAuth::PasswordByTcp;
                let (step, answer) = log_in(auth, greeting_plugin, login(user, password, plugin), usize::MAX);
                let HandshakeStep::Refuse(refusal) = step else { panic!("{step:?}") };
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
fn a_peer_authenticated_client_may_send_any_password() {
    for greeting_plugin in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for plugin in Plugin::ALL {
            for password in [&b""[..], b"whatever"] {
                let login = login("app", password, plugin);
                let (step, answer) = log_in(ClientAuth::Granted, greeting_plugin, login, usize::MAX);
                assert!(matches!(step, HandshakeStep::Login(_)), "{step:?}");
                assert_eq!(answer, Ok(()), "{greeting_plugin:?} {plugin:?}");
            }
        }
    }
}

#[test]
fn a_denied_client_is_told_after_its_login() {
    let auth = ClientAuth::Denied { uid: 4242 };
    let login = login("app", b"secret", Plugin::NativePassword);
    let (step, answer) = log_in(auth, Plugin::NativePassword, login.clone(), usize::MAX);
    assert!(matches!(step, HandshakeStep::Refuse(_)), "{step:?}");
    assert!(matches!(answer, Err(Error::Server { code: 1045, message, .. }) if message.contains("4242")));
    // Without a password to check, no client is accepted.
    let greeting = greeting_context(Plugin::NativePassword);
    let handshake = ClientHandshake::new(ClientAuth::PasswordByUnix, None, greeting);
    let (step, _) = log_in_to(handshake, None, login, usize::MAX);
    assert!(matches!(step, HandshakeStep::Refuse(_)), "{step:?}");
}

fn answer_to(payload: &[u8]) -> (HandshakeStep<Box<StartupRequest>>, Vec<u8>) {
    let mut handshake = handshake(ClientAuth::Granted, Plugin::NativePassword);
    let mut out = Vec::new();
    assert_eq!(handshake.step(&mut &b""[..], &mut out), HandshakeStep::NeedInput);
    let mut bytes = Vec::new();
    write_payload(&mut bytes, 1, payload).unwrap();
    out.clear();
    (handshake.step(&mut &bytes[..], &mut out), out)
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
fn only_offered_capabilities_are_agreed_on() {
    let (step, _) = answer_to(&response(Capabilities::from_bits(1 << 22 | 1 << 24 | 1 << 35), None));
    let HandshakeStep::Login(request) = step else { panic!("{step:?}") };
    let agreed = Capabilities::DEPRECATE_EOF | Capabilities::EXTENDED_METADATA;
    assert_eq!(request.terms, Terms { capabilities: agreed, character_set: 8 });
    assert!(RELAYED.contains(request.terms.capabilities));
}

#[test]
fn what_arrives_while_the_server_is_asked_is_limited() {
    let (step, _) = answer_to(&response(Capabilities::default(), None));
    let HandshakeStep::Login(request) = step else { panic!("{step:?}") };
    let mut handshake = handshake(ClientAuth::Granted, Plugin::NativePassword);
    handshake.state = HandshakeState::AwaitVerdict { request, answer: Arc::default() };
    let mut out = Vec::new();
    assert_eq!(handshake.step(&mut &b"early"[..], &mut out), HandshakeStep::NeedInput);
    let flood = vec![0; MAX_LOGIN_PAYLOAD_BYTES + 1];
    let step = handshake.step(&mut &flood[..], &mut out);
    assert!(
        matches!(&step, HandshakeStep::Refuse(refusal) if refusal.sqlstate == Refusal::PROTOCOL),
        "{step:?}"
    );
}

#[test]
fn compression_and_tls_are_refused_unless_offered() {
    for compression in [Capabilities::COMPRESS, Capabilities::ZSTD_COMPRESSION] {
        let (step, _) = answer_to(&response(compression, None));
        assert!(matches!(step, HandshakeStep::Refuse(refusal) if refusal.sqlstate == Refusal::UNSUPPORTED));
    }
    let mut payload = Vec::new();
    let capabilities = Capabilities::PROTOCOL_41 | Capabilities::SSL;
    SslRequest { capabilities, max_packet_bytes: 0, character_set: 8 }.encode(&mut payload);
    let (step, out) = answer_to(&payload);
    assert!(matches!(step, HandshakeStep::Refuse(refusal) if refusal.sqlstate == Refusal::UNSUPPORTED));
    assert!(out.is_empty());
}

#[test]
fn a_clear_text_password_is_neither_requested_nor_checked_without_need() {
    let (step, out) = answer_to(&response(Capabilities::default(), Some(clear_password::NAME)));
    assert!(matches!(&step, HandshakeStep::Login(request) if request.sequence == 2), "{step:?}");
    assert!(out.is_empty());
    // A client that must authenticate is asked to do so by another plugin.
    let mut handshake = handshake(ClientAuth::PasswordByUnix, Plugin::NativePassword);
    let mut out = Vec::new();
    handshake.step(&mut &b""[..], &mut out);
    let mut bytes = Vec::new();
    write_payload(&mut bytes, 1, &response(Capabilities::default(), Some(clear_password::NAME))).unwrap();
    out.clear();
    assert_eq!(handshake.step(&mut &bytes[..], &mut out), HandshakeStep::NeedInput);
    assert_eq!(out[4], 0xfe);
}

#[test]
fn malformed_packets_end_the_handshake() {
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"\xff\xff\xff\x01", b"\0\0\0\x01", b"\x01\0\0\x05x"] {
        let mut handshake = handshake(ClientAuth::Granted, Plugin::NativePassword);
        let mut out = Vec::new();
        handshake.step(&mut &b""[..], &mut out);
        let HandshakeStep::Refuse(refusal) = handshake.step(&mut &bytes[..], &mut out) else {
            panic!("{bytes:?}")
        };
        assert_eq!(refusal.sqlstate, Refusal::PROTOCOL);
        let greeted = out.len();
        handshake.refuse(&refusal, &mut out);
        assert_eq!(out[greeted + 3], 2);
    }
}

#[test]
fn a_challenge_contains_no_nul_and_no_dollar() {
    for byte in 0..=u8::MAX {
        let template = Arc::clone(&greeting_context(Plugin::NativePassword).template);
        let nonce = GreetingContext::new(template, 1, [byte; NONCE_BYTES]).nonce;
        assert!(nonce.iter().all(|byte| byte.is_ascii() && !b"\0$".contains(byte)), "{byte}");
    }
}

fn tls_login(user: &str, password: &[u8], plugin: Plugin) -> MySqlLogin {
    MySqlLogin { encryption: MySqlTlsMode::Tls, ..login(user, password, plugin) }
}

#[test]
fn over_tls_only_the_right_password_is_accepted() {
    for greeting_plugin in [Plugin::NativePassword, Plugin::CachingSha2Password] {
        for (plugin, piece) in Plugin::ALL.into_iter().flat_map(|plugin| [(plugin, 1), (plugin, usize::MAX)])
        {
            for (user, password, is_right) in [
                ("app", &b"secret"[..], true),
                ("app", b"wrong", false),
                ("app", b"", false),
                ("x", b"secret", false),
            ] {
                let handshake = handshake(ClientAuth::PasswordByTls, greeting_plugin);
                let (step, answer) = log_in_to(handshake, None, tls_login(user, password, plugin), piece);
                assert_eq!(
                    matches!(step, HandshakeStep::Login(_)),
                    is_right,
                    "{greeting_plugin:?} {plugin:?} {user}: {step:?}"
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
fn a_client_without_tls_is_refused_where_tls_is_required() {
    let handshake = handshake(ClientAuth::PasswordByTls, Plugin::NativePassword);
    let (step, answer) = log_in_to(handshake, None, login("app", b"secret", Plugin::NativePassword), 3);
    assert!(matches!(step, HandshakeStep::Refuse(_)), "{step:?}");
    assert!(matches!(answer, Err(Error::Server { code: 3159, .. })), "{answer:?}");
}

#[test]
fn a_certificate_authenticates_the_user_it_names() {
    for (name, password, is_right) in [
        (Some("app"), &b""[..], true),
        (Some("app"), b"x", true),
        (Some("other"), b"secret", false),
        (None, b"", false),
    ] {
        for (greeting_plugin, plugin) in
            Plugin::ALL.into_iter().map(|plugin| (Plugin::CachingSha2Password, plugin))
        {
            let handshake = handshake(ClientAuth::Certificate, greeting_plugin);
            let (step, answer) = log_in_to(handshake, name, tls_login("app", password, plugin), usize::MAX);
            assert_eq!(
                (matches!(step, HandshakeStep::Login(_)), answer.is_ok()),
                (is_right, is_right),
                "{step:?}"
            );
        }
    }
}

#[test]
fn a_clear_text_password_is_accepted_over_tls() {
    for (said, is_right) in
        [(&b"secret\0"[..], true), (b"secret", false), (b"wrong\0", false), (b"\0", false), (b"", false)]
    {
        let step = over_tls(Plugin::NativePassword, &login_packet(clear_password::NAME, said));
        assert_eq!(matches!(step, HandshakeStep::Login(_)), is_right, "{said:?}: {step:?}");
    }
}

#[test]
fn a_password_that_follows_the_login_at_once_is_read() {
    for (said, is_right) in [(&b"secret\0"[..], true), (b"wrong\0", false)] {
        let mut bytes = login_packet(Plugin::CachingSha2Password.name(), &[1; 32]);
        write_payload(&mut bytes, 3, said).unwrap();
        let step = over_tls(Plugin::CachingSha2Password, &bytes);
        assert_eq!(matches!(step, HandshakeStep::Login(_)), is_right, "{said:?}: {step:?}");
        assert_eq!(matches!(step, HandshakeStep::Refuse(_)), !is_right, "{said:?}: {step:?}");
    }
}

/// The login of `app`, the first packet over TLS.
fn login_packet(plugin: &[u8], auth_response: &[u8]) -> Vec<u8> {
    let capabilities =
        Capabilities::PROTOCOL_41 | Capabilities::SECURE_CONNECTION | Capabilities::PLUGIN_AUTH;
    let head = SslRequest { capabilities, max_packet_bytes: 1 << 24, character_set: 8 };
    let (mut payload, mut bytes) = (Vec::new(), Vec::new());
    HandshakeResponse { head, user: b"app", auth_response, database: None, plugin: Some(plugin) }
        .encode(&mut payload);
    write_payload(&mut bytes, 1, &payload).unwrap();
    bytes
}

/// The step after these bytes, which arrive at once.
fn over_tls(greeting_plugin: Plugin, bytes: &[u8]) -> HandshakeStep<Box<StartupRequest>> {
    let mut handshake = handshake(ClientAuth::PasswordByTls, greeting_plugin);
    let mut out = Vec::new();
    handshake.step(&mut &b""[..], &mut out);
    handshake.tls_established(None);
    handshake.step(&mut &bytes[..], &mut out)
}

#[test]
fn each_user_has_a_password() {
    let secrets = [Secret::new(b"secret".to_vec()), Secret::new(b"other".to_vec())];
    let credentials =
        Arc::new(CredentialStore::for_users(["app", "reports"].into_iter().zip(&secrets)).unwrap());
    for (user, password, is_right) in [
        ("app", &b"secret"[..], true),
        ("reports", b"other", true),
        ("app", b"other", false),
        ("reports", b"secret", false),
        ("", b"other", false),
    ] {
        for plugin in [Plugin::NativePassword, Plugin::CachingSha2Password] {
            let greeting = greeting_context(Plugin::CachingSha2Password);
            let auth = ClientAuth::PasswordByTcp;
            let handshake = ClientHandshake::new(auth, Some(Arc::clone(&credentials)), greeting);
            let (step, _) = log_in_to(handshake, None, login(user, password, plugin), 9);
            assert_eq!(matches!(step, HandshakeStep::Login(_)), is_right, "{user}");
        }
    }
}

/// The last step and the output for a client that changes its user.
fn change(auth: ClientAuth, change: &ChangeUser<'_>) -> (HandshakeStep<Box<StartupRequest>>, Vec<u8>) {
    let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 33 };
    let template = greeting_context(Plugin::NativePassword).template;
    let (nonce, connection_id) = (*b"abcdefghijklmnopqrst", 4711);
    let context = LoginContext { auth, tls: TlsState::Off, nonce, terms, connection_id };
    let mut bytes = Vec::new();
    change.encode(&mut bytes).unwrap();
    let run = |piece: usize| {
        let mut handshake =
            ClientHandshake::change_user(context.clone(), Some(credentials()), Arc::clone(&template));
        let (mut held, mut out, mut step) = (Vec::new(), Vec::new(), HandshakeStep::NeedInput);
        for part in bytes.chunks(piece) {
            assert_eq!(step, HandshakeStep::NeedInput);
            held.extend_from_slice(part);
            let mut input = held.as_slice();
            step = handshake.step(&mut input, &mut out);
            held = input.to_vec();
        }
        if let HandshakeStep::Refuse(refusal) = &step {
            handshake.refuse(refusal, &mut out);
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
fn a_change_of_the_user_is_authenticated_by_the_challenge_of_the_greeting() {
    let right = proof(b"secret");
    let requested = ChangeUser {
        user: b"app",
        auth_response: &right,
        database: b"till",
        character_set: Some(8),
        plugin: Some(native_password::NAME),
    };
    let (step, out) = change(ClientAuth::PasswordByUnix, &requested);
    let HandshakeStep::Login(request) = step else { panic!("{step:?}") };
    assert_eq!(
        (request.user.as_str(), request.database.as_deref(), request.sequence),
        ("app", Some("till"), 1)
    );
    let terms = Terms { capabilities: Capabilities::DEPRECATE_EOF, character_set: 8 };
    assert_eq!((request.terms, request.connection_id, out.len()), (terms, 4711, 0));
    let wrong = proof(b"wrong");
    for (user, auth_response) in [(&b"app"[..], &wrong[..]), (b"app", b""), (b"nobody", &right)] {
        let (step, out) =
            change(ClientAuth::PasswordByUnix, &ChangeUser { user, auth_response, ..requested });
        assert!(matches!(step, HandshakeStep::Refuse(refusal) if refusal.sqlstate == Refusal::PASSWORD));
        assert_eq!((out[3], out[4]), (1, 0xff));
    }
    // A plugin that needs another challenge is replaced.
    let (step, out) =
        change(ClientAuth::PasswordByUnix, &ChangeUser { plugin: Some(b"parsec"), ..requested });
    assert_eq!((step, out[3], out[4]), (HandshakeStep::NeedInput, 1, 0xfe));
    // A peer-authenticated client proves nothing.
    for plugin in [None, Some(&b"parsec"[..]), Some(native_password::NAME)] {
        let (step, _) =
            change(ClientAuth::Granted, &ChangeUser { auth_response: &wrong, plugin, ..requested });
        assert!(matches!(&step, HandshakeStep::Login(request) if request.sequence == 1), "{step:?}");
    }
    let (step, _) = change(ClientAuth::Granted, &ChangeUser { character_set: Some(256), ..requested });
    assert!(matches!(step, HandshakeStep::Refuse(refusal) if refusal.sqlstate == Refusal::UNSUPPORTED));
}
