//! All authentication plugins, both sides: which proofs are accepted, the method's label, and that passwords stay secret.

use std::sync::Arc;

use ciphertoll_wire::mysql::auth::caching_sha2::{FAST_OK, FULL, KEY_WANTED};
use ciphertoll_wire::mysql::auth::clear_password;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::server::{self, write_greeting};
use ciphertoll_wire::mysql::{
    Error, Fault, MySqlAuthMethod, MySqlConnect, MySqlLogin, MySqlTlsMode, Plugin, Transport,
};
use ciphertoll_wire::{Secret, Step};
use proptest::prelude::*;

use crate::{
    account::{Account, Cache, Way},
    chunks::feed,
    fake_server::{FakeServer, OFFERED, Switch, greeting, join},
};

const PASSWORD: &[u8] = b"correct horse";
const NATIVE: &[u8] = b"mysql_native_password\0";

/// The transport, as far as authentication depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Path {
    Tcp,
    UnixSocket,
    Tls,
}

const PATHS: [Path; 3] = [Path::Tcp, Path::UnixSocket, Path::Tls];
const WAYS: [Way; 6] = [
    Way::Native,
    Way::CachingSha2(Cache::Hit),
    Way::CachingSha2(Cache::Miss),
    Way::Ed25519,
    Way::Parsec { exponent: 0 },
    Way::Parsec { exponent: 1 },
];

fn login(password: &[u8], path: Path, plugin: Plugin) -> Arc<MySqlLogin> {
    let (encryption, transport) = match path {
        Path::Tcp => (MySqlTlsMode::Plain, Transport::Tcp),
        Path::UnixSocket => (MySqlTlsMode::Plain, Transport::UnixSocket),
        Path::Tls => (MySqlTlsMode::Tls, Transport::Tcp),
    };
    Arc::new(MySqlLogin {
        encryption,
        transport,
        plugin,
        ..MySqlLogin::new("toll", Secret::new(password.to_vec()))
    })
}

fn expected(way: Way, path: Path) -> MySqlAuthMethod {
    match way {
        Way::Native => MySqlAuthMethod::NativePassword,
        Way::CachingSha2(Cache::Hit) => MySqlAuthMethod::CachingSha2Fast,
        Way::CachingSha2(Cache::Miss) if path == Path::Tcp => MySqlAuthMethod::CachingSha2FullRsa,
        Way::CachingSha2(Cache::Miss) => MySqlAuthMethod::CachingSha2FullPrivate,
        Way::Ed25519 => MySqlAuthMethod::Ed25519,
        Way::Parsec { exponent } => MySqlAuthMethod::Parsec { iterations: 1024 << exponent },
        Way::Clear => MySqlAuthMethod::ClearPassword,
    }
}

/// The method of the login, and the bytes that the client sent.
fn run(login: Arc<MySqlLogin>, server: &mut FakeServer) -> Result<(MySqlAuthMethod, Vec<u8>), Error> {
    let mut client = MySqlConnect::new(login);
    let (_, sent) = join(&mut client, server)?;
    Ok((client.server().expect("the login is done").auth, sent))
}

fn says(sent: &[u8], word: &[u8]) -> bool {
    sent.windows(word.len()).any(|window| window == word)
}

/// A greeting, followed by the server's replies to the client's messages.
fn script(payloads: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_greeting(&mut bytes, &greeting(OFFERED)).expect("it fits");
    for (index, payload) in payloads.iter().enumerate() {
        server::write_payload(&mut bytes, (2 + 2 * index) as u8, payload).expect("it fits");
    }
    bytes
}

/// Steps over `bytes` to the first error. Returns it with the bytes sent until then.
fn first_error(login: Arc<MySqlLogin>, mut bytes: &[u8]) -> (Error, Vec<u8>) {
    let (mut client, mut out) = (MySqlConnect::new(login), Vec::new());
    for _ in 0..10 {
        match client.step(&mut bytes, &mut out) {
            Ok(_) => assert!(client.server().is_none(), "nothing is known before the end"),
            Err(error) => return (error, out),
        }
    }
    panic!("no error");
}

fn switch_to(plugin: &[u8], data: &[u8]) -> Vec<u8> {
    [b"\xfe", plugin, b"\0", data].concat()
}

#[test]
fn the_right_password_is_accepted_after_any_guess() {
    for (way, path, guess) in combinations(WAYS, PATHS, Plugin::ALL) {
        for default_plugin in [Plugin::NativePassword, Plugin::CachingSha2Password].map(Plugin::name) {
            let mut server = FakeServer::new(Account::new(way, PASSWORD));
            server.default_plugin = default_plugin;
            let (method, sent) =
                run(login(PASSWORD, path, guess), &mut server).expect("the password is right");
            assert_eq!(method, expected(way, path), "{way:?} {path:?} {guess:?}");
            let private = method == MySqlAuthMethod::CachingSha2FullPrivate;
            assert_eq!(says(&sent, PASSWORD), private, "{way:?} {path:?} {guess:?}");
        }
    }
}

#[test]
fn a_wrong_password_is_a_server_error() {
    for (way, path, guess) in combinations(WAYS, PATHS, Plugin::ALL) {
        let mut server = FakeServer::new(Account::new(way, PASSWORD));
        let error = run(login(b"wrong horse", path, guess), &mut server).unwrap_err();
        assert!(matches!(error, Error::Server { code: 1045, .. }), "{way:?} {path:?} {guess:?}: {error}");
    }
}

#[test]
fn an_empty_password_is_accepted_for_an_account_without_one() {
    for (way, path, guess) in combinations(WAYS, PATHS, Plugin::ALL) {
        let mut server = FakeServer::new(Account::new(way, b""));
        let (method, sent) = run(login(b"", path, guess), &mut server).expect("the password is right");
        let expected = match way {
            Way::Native | Way::CachingSha2(_) => MySqlAuthMethod::Empty,
            // MariaDB's plugins derive a key from an empty password, too.
            _ => expected(way, path),
        };
        assert_eq!(method, expected);
        let mut server = FakeServer::new(Account::new(way, PASSWORD));
        assert!(run(login(b"", path, guess), &mut server).is_err());
        assert!(!sent.is_empty());
    }
}

#[test]
fn a_right_guess_needs_one_message() {
    for (way, guess) in
        [(Way::Native, Plugin::NativePassword), (Way::CachingSha2(Cache::Hit), Plugin::CachingSha2Password)]
    {
        let mut server = FakeServer::new(Account::new(way, PASSWORD));
        server.default_plugin = guess.name();
        let (_, sent) = run(login(PASSWORD, Path::Tcp, guess), &mut server).expect("the password is right");
        assert_eq!(usize::from(sent[0]) + 4, sent.len(), "the login and nothing else");
        assert!(sent.ends_with(&[guess.name(), b"\0"].concat()));
    }
}

#[test]
fn the_same_plugin_may_come_with_another_nonce() {
    for (way, path) in WAYS.into_iter().flat_map(|way| PATHS.map(|path| (way, path))) {
        let mut server = FakeServer::new(Account::new(way, PASSWORD));
        server.default_plugin = Account::new(way, PASSWORD).plugin();
        server.switch = Switch::Always;
        let guess = Plugin::ALL.into_iter().find(|plugin| plugin.name() == server.default_plugin);
        let (method, _) = run(login(PASSWORD, path, guess.expect("a supported plugin")), &mut server)
            .expect("the password is right");
        assert_eq!(method, expected(way, path));
    }
}

#[test]
fn the_cleartext_password_needs_tls() {
    let server = || FakeServer::new(Account::new(Way::Clear, PASSWORD));
    let (method, sent) = run(login(PASSWORD, Path::Tls, Plugin::NativePassword), &mut server())
        .expect("the password is right");
    assert_eq!(method, MySqlAuthMethod::ClearPassword);
    assert!(sent.ends_with(&[PASSWORD, b"\0"].concat()));
    for path in [Path::Tcp, Path::UnixSocket] {
        let request = switch_to(clear_password::NAME, b"");
        let (error, sent) =
            first_error(login(PASSWORD, path, Plugin::CachingSha2Password), &script(&[&request]));
        assert_eq!((&error, error.fault()), (&Error::ClearPasswordRefused, Fault::Server));
        assert!(!says(&sent, PASSWORD));
    }
}

#[test]
fn over_tcp_a_key_is_requested_and_a_bad_one_ends_the_login() {
    let request = switch_to(Plugin::CachingSha2Password.name(), b"abcdefghijklmnopqrst\0");
    for key in
        [&b"\x01"[..], b"\x01-----BEGIN PUBLIC KEY-----\n-----END PUBLIC KEY-----", b"\x01\x04", b"\x01\x03"]
    {
        let bytes = script(&[&request, &[1, FULL], key]);
        let (error, sent) = first_error(login(PASSWORD, Path::Tcp, Plugin::NativePassword), &bytes);
        assert!(matches!(error, Error::Protocol { message: "public key", .. }), "{error}");
        assert!(sent.ends_with(&[1, 0, 0, 5, KEY_WANTED]));
        assert!(!says(&sent, PASSWORD));
    }
}

#[test]
fn a_password_with_a_nul_is_hashed_but_not_sent() {
    let mut server = FakeServer::new(Account::new(Way::CachingSha2(Cache::Hit), b"a\0b"));
    run(login(b"a\0b", Path::Tls, Plugin::CachingSha2Password), &mut server).expect("the password is right");
    for (path, way) in
        PATHS.into_iter().map(|path| (path, Way::CachingSha2(Cache::Miss))).chain([(Path::Tls, Way::Clear)])
    {
        let mut server = FakeServer::new(Account::new(way, b"a\0b"));
        let error = run(login(b"a\0b", path, Plugin::CachingSha2Password), &mut server).unwrap_err();
        assert_eq!(error, Error::InvalidLogin { field: "password" });
    }
}

#[test]
fn ok_before_the_proof_is_refused() {
    let sha2 = switch_to(Plugin::CachingSha2Password.name(), b"abcdefghijklmnopqrst\0");
    let parsec = switch_to(Plugin::Parsec.name(), &[7; 32]);
    let mut ok = Vec::new();
    OkPacket::default().encode(&mut ok);
    for payloads in [&[&sha2[..], &[1, FULL], &ok][..], &[&parsec[..], &ok]] {
        let (error, _) = first_error(login(PASSWORD, Path::Tcp, Plugin::NativePassword), &script(payloads));
        let reason = "OK before the client has sent its proof";
        assert_eq!(error, Error::Protocol { message: "reply to the login", reason });
    }
}

#[test]
fn unexpected_plugin_data_are_refused() {
    let sha2 = switch_to(Plugin::CachingSha2Password.name(), b"abcdefghijklmnopqrst\0");
    let ed25519 = switch_to(Plugin::Ed25519.name(), &[7; 32]);
    let parsec = switch_to(Plugin::Parsec.name(), &[7; 32]);
    let salt = b"P\0eighteen bytes....";
    let scripts: [&[&[u8]]; 13] = [
        &[&[1, FULL]], // to mysql_native_password
        &[&[1]],
        &[&sha2, &[1]],
        &[&sha2, &[1, 5]],
        &[&sha2, &[1, FAST_OK, 0]],
        &[&sha2, &[]],
        &[&ed25519, &[1, FULL]],
        &[&parsec, b"\x01P\x04eighteen bytes...."], // too many iterations
        &[&parsec, b"P\0"],                         // no salt
        &[&parsec, &[]],
        &[&parsec, salt, salt], // twice
        &[&switch_to(Plugin::Ed25519.name(), &[7; 31])],
        &[&switch_to(Plugin::Parsec.name(), &[7; 33])], // not terminated by a NUL
    ];
    for payloads in scripts {
        let (error, sent) =
            first_error(login(PASSWORD, Path::Tcp, Plugin::NativePassword), &script(payloads));
        assert!(matches!(error, Error::Protocol { .. }), "{payloads:?}: {error}");
        assert!(!says(&sent, PASSWORD));
    }
}

#[test]
fn plugins_may_be_tried_in_turn() {
    let native = switch_to(Plugin::NativePassword.name(), b"abcdefghijklmnopqrst\0");
    let ed25519 = switch_to(Plugin::Ed25519.name(), &[7; 32]);
    let parsec = switch_to(Plugin::Parsec.name(), &[7; 32]);
    let mut ok = Vec::new();
    OkPacket::default().encode(&mut ok);
    // As MariaDB does if the first ones do not accept.
    let bytes = script(&[&ed25519, &parsec, b"P\0eighteen bytes....", &native, &ok]);
    let mut client = MySqlConnect::new(login(PASSWORD, Path::Tcp, Plugin::Ed25519));
    let (mut input, mut out) = (bytes.as_slice(), Vec::new());
    while client.step(&mut input, &mut out) != Ok(Step::Done) {}
    assert_eq!(client.server().map(|server| server.auth), Some(MySqlAuthMethod::NativePassword));
    let bytes = script(&[&native, &ed25519, &parsec, &native, &native]);
    let (error, _) = first_error(login(PASSWORD, Path::Tcp, Plugin::Ed25519), &bytes);
    let reason = "too many plugin switches";
    assert_eq!(error, Error::Protocol { message: "reply to the login", reason });
}

#[test]
fn mariadb_omits_the_byte_of_auth_more_data() {
    let sha2 = switch_to(Plugin::CachingSha2Password.name(), b"abcdefghijklmnopqrst");
    for framed in [&[FAST_OK][..], &[1, FAST_OK]] {
        let mut bytes = script(&[&sha2, framed]);
        server::write_ok(&mut bytes, 5, &OkPacket::default()).expect("it fits");
        let mut client = MySqlConnect::new(login(PASSWORD, Path::Tcp, Plugin::NativePassword));
        let (mut input, mut out) = (bytes.as_slice(), Vec::new());
        while client.step(&mut input, &mut out) != Ok(Step::Done) {}
        assert_eq!(client.server().map(|server| server.auth), Some(MySqlAuthMethod::CachingSha2Fast));
    }
}

#[test]
fn servers_without_plugins_get_the_oldest_one() {
    let plugins = ciphertoll_wire::mysql::Capabilities::PLUGIN_AUTH;
    let mut bytes = Vec::new();
    write_greeting(&mut bytes, &greeting(OFFERED.without(plugins))).expect("it fits");
    server::write_ok(&mut bytes, 2, &OkPacket::default()).expect("it fits");
    let mut client = MySqlConnect::new(login(PASSWORD, Path::Tcp, Plugin::Parsec));
    let (mut input, mut out) = (bytes.as_slice(), Vec::new());
    while client.step(&mut input, &mut out) != Ok(Step::Done) {}
    assert_eq!(client.server().map(|server| server.auth), Some(MySqlAuthMethod::NativePassword));
    assert!(!says(&out, b"parsec") && !says(&out, NATIVE));
}

#[test]
fn labels_are_stable() {
    let labels = WAYS.map(|way| expected(way, Path::Tcp).label());
    assert_eq!(labels, ["native", "caching-sha2", "caching-sha2-full", "ed25519", "parsec", "parsec"]);
    assert_eq!(MySqlAuthMethod::CachingSha2FullPrivate.label(), "caching-sha2-full");
    assert_eq!(
        [MySqlAuthMethod::Empty, MySqlAuthMethod::ClearPassword].map(MySqlAuthMethod::label),
        ["empty", "clear"]
    );
}

#[test]
fn any_portions_give_the_same_exchange() {
    let sha2 = switch_to(Plugin::CachingSha2Password.name(), b"abcdefghijklmnopqrst\0");
    let ed25519 = switch_to(Plugin::Ed25519.name(), &[7; 32]);
    let parsec = switch_to(Plugin::Parsec.name(), &[7; 32]);
    let mut ok = Vec::new();
    OkPacket::default().encode(&mut ok);
    let cases: [(&[&[u8]], MySqlAuthMethod); 3] = [
        (&[&sha2, &[1, FULL], &ok], MySqlAuthMethod::CachingSha2FullPrivate),
        (&[&ed25519, &ok], MySqlAuthMethod::Ed25519),
        (&[&parsec, b"P\0eighteen bytes....", &ok], MySqlAuthMethod::Parsec { iterations: 1024 }),
    ];
    for (payloads, method) in cases {
        let bytes = [script(payloads).as_slice(), b"next"].concat();
        let outcome = |size: usize| {
            let mut client = MySqlConnect::new(login(PASSWORD, Path::UnixSocket, Plugin::NativePassword));
            let mut out = Vec::new();
            let (end, left) = feed(&bytes, &[size], |input| {
                loop {
                    match client.step(input, &mut out).expect("the password is right") {
                        Step::NeedInput => return None,
                        Step::Done => return Some(()),
                        Step::OfferTls | Step::StartTls | Step::Phase(_) => {}
                    }
                }
            });
            assert_eq!((end, left.as_slice()), (Some(()), &b"next"[..]));
            (client.server().expect("the login is done").auth, out)
        };
        let whole = outcome(bytes.len());
        assert_eq!(whole.0, method);
        for size in 1..bytes.len() {
            let (portions, out) = outcome(size);
            assert_eq!((portions, out.len()), (method, whole.1.len()));
            // The client's nonce of parsec is random.
            assert!(out == whole.1 || matches!(method, MySqlAuthMethod::Parsec { .. }));
        }
    }
}

proptest! {
    #[test]
    fn only_the_password_is_the_password(password: Vec<u8>, other: Vec<u8>, way in prop::sample::select(&WAYS[..])) {
        prop_assume!(!password.contains(&0) && !other.contains(&0));
        let log_in = |with: &[u8]| {
            let mut server = FakeServer::new(Account::new(way, &password));
            run(login(with, Path::Tls, Plugin::CachingSha2Password), &mut server)
        };
        prop_assert!(log_in(&password).is_ok());
        prop_assert_eq!(log_in(&other).is_ok(), password == other);
    }
}

/// All combinations.
fn combinations<A: Copy, B: Copy, C: Copy>(
    a: impl IntoIterator<Item = A>,
    b: impl IntoIterator<Item = B> + Copy,
    c: impl IntoIterator<Item = C> + Copy,
) -> Vec<(A, B, C)> {
    let pairs = a.into_iter().flat_map(move |a| b.into_iter().map(move |b| (a, b)));
    pairs.flat_map(move |(a, b)| c.into_iter().map(move |c| (a, b, c))).collect()
}
