//! Logins of a client at a server in memory: accepted, refused, and never with secrets in cleartext.

use std::sync::Arc;

use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::server::{self, write_greeting};
use ciphertoll_wire::mysql::{
    Capabilities, Error, Fault, MySqlAuthMethod, MySqlConnect, MySqlLogin, MySqlTlsMode, StatementsPerQuery,
};
use ciphertoll_wire::{Phase, Secret, Step};

use crate::{
    chunks::feed,
    fake_server::{FakeServer, NATIVE, OFFERED, Switch, greeting, join},
};

const PASSWORD: &str = "correct horse";

fn login(password: &str, encryption: MySqlTlsMode) -> Arc<MySqlLogin> {
    let password = Secret::new(password.as_bytes().to_vec());
    Arc::new(MySqlLogin { encryption, ..MySqlLogin::new("toll", password) })
}

fn connect(password: &str, encryption: MySqlTlsMode) -> MySqlConnect {
    MySqlConnect::new(login(password, encryption))
}

fn greeted(capabilities: Capabilities) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_greeting(&mut bytes, &greeting(capabilities)).unwrap();
    bytes
}

/// Steps over `bytes` to the first error.
fn first_error(connect: &mut MySqlConnect, mut bytes: &[u8]) -> Error {
    let mut out = Vec::new();
    for _ in 0..10 {
        if let Err(error) = connect.step(&mut bytes, &mut out) {
            return error;
        }
    }
    panic!("no error");
}

#[test]
fn plain_login_is_accepted() {
    let mut client = connect(PASSWORD, MySqlTlsMode::Plain);
    let (steps, sent) = join(&mut client, &mut FakeServer::native(PASSWORD.as_bytes())).unwrap();
    assert_eq!(steps, [Step::Phase(Phase::ServerGreeting), Step::Phase(Phase::Auth), Step::Done]);
    assert!(!sent.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()));
    let server = client.server().unwrap();
    assert_eq!((server.version.as_str(), server.connection_id), ("10.11.19-MariaDB", 42));
    assert_eq!(server.auth, MySqlAuthMethod::NativePassword);
    assert!(!server.capabilities.contains(Capabilities::SSL) && server.offered.contains(Capabilities::SSL));
}

#[test]
fn tls_login_sends_no_name_before_tls() {
    let mut client = connect(PASSWORD, MySqlTlsMode::Tls);
    let (steps, sent) = join(&mut client, &mut FakeServer::native(PASSWORD.as_bytes())).unwrap();
    let phases = [Phase::ServerGreeting, Phase::TlsRequest].map(Step::Phase);
    assert_eq!(steps, [&phases[..], &[Step::StartTls, Step::Phase(Phase::Auth), Step::Done]].concat());
    assert_eq!(sent[..4], [32, 0, 0, 1], "an SSLRequest and nothing else comes first");
    assert_eq!(sent[36 + 3], 2, "the login is numbered after it");
    assert!(!sent[..36].windows(4).any(|window| window == b"toll"));
}

#[test]
fn tls_can_be_requested_before_the_greeting() {
    let (mut asked, mut eager) =
        (connect(PASSWORD, MySqlTlsMode::Tls), connect(PASSWORD, MySqlTlsMode::EagerTls));
    let (_, sent_when_asked) = join(&mut asked, &mut FakeServer::native(PASSWORD.as_bytes())).unwrap();
    let (steps, sent) = join(&mut eager, &mut FakeServer::native(PASSWORD.as_bytes())).unwrap();
    let begin = [Step::OfferTls, Step::Phase(Phase::ServerGreeting), Step::StartTls];
    assert_eq!(steps, [&begin[..], &[Step::Phase(Phase::Auth), Step::Done]].concat());
    assert_eq!(sent, sent_when_asked, "the same bytes, sooner");
}

#[test]
fn capabilities_assumed_by_eager_tls_must_be_offered() {
    for (lacking, expected) in [
        (Capabilities::SSL, Error::TlsNotOffered),
        (
            Capabilities::DEPRECATE_EOF,
            Error::Protocol {
                message: "greeting",
                reason: "it lacks capabilities that the early TLS request assumed",
            },
        ),
    ] {
        let mut server = FakeServer::native(PASSWORD.as_bytes());
        server.offered = OFFERED.without(lacking);
        assert_eq!(join(&mut connect(PASSWORD, MySqlTlsMode::EagerTls), &mut server), Err(expected));
    }
}

#[test]
fn empty_password_and_database() {
    let mut login = Arc::unwrap_or_clone(login("", MySqlTlsMode::Plain));
    login.database = Some("orders".to_owned());
    let mut server = FakeServer::native(b"");
    join(&mut MySqlConnect::new(Arc::new(login)), &mut server).unwrap();
    assert_eq!(server.database.as_deref(), Some(&b"orders"[..]));
}

#[test]
fn multiple_statements_need_a_request() {
    for (statements, agreed) in [(StatementsPerQuery::One, false), (StatementsPerQuery::Several, true)] {
        let mut login = Arc::unwrap_or_clone(login(PASSWORD, MySqlTlsMode::Plain));
        login.statements = statements;
        let mut server = FakeServer::native(PASSWORD.as_bytes());
        join(&mut MySqlConnect::new(Arc::new(login)), &mut server).unwrap();
        assert_eq!(server.agreed.contains(Capabilities::MULTI_STATEMENTS), agreed);
    }
    let mut login = Arc::unwrap_or_clone(login(PASSWORD, MySqlTlsMode::Plain));
    login.statements = StatementsPerQuery::Several;
    let greeting = greeted(OFFERED.without(Capabilities::MULTI_STATEMENTS));
    let error = first_error(&mut MySqlConnect::new(Arc::new(login)), &greeting);
    assert!(matches!(error, Error::Protocol { message: "greeting", .. }), "{error}");
}

#[test]
fn a_wrong_password_is_a_server_error() {
    for switch in [Switch::WhereNeeded, Switch::Always] {
        let mut server = FakeServer::native(PASSWORD.as_bytes());
        server.switch = switch;
        let error = join(&mut connect("wrong", MySqlTlsMode::Tls), &mut server).unwrap_err();
        assert!(
            matches!(&error, Error::Server { code: 1045, sql_state, .. } if sql_state == "28000"),
            "{error}"
        );
        assert_eq!(error.fault(), Fault::Server);
        assert!(!error.to_string().contains("wrong"));
    }
}

#[test]
fn wrong_user_is_refused() {
    let mut server = FakeServer::native(PASSWORD.as_bytes());
    server.user = b"somebody";
    assert!(join(&mut connect(PASSWORD, MySqlTlsMode::Plain), &mut server).is_err());
}

#[test]
fn a_switch_to_native_uses_the_new_nonce() {
    for password in [PASSWORD, ""] {
        let mut server = FakeServer::native(password.as_bytes());
        server.switch = Switch::Always;
        join(&mut connect(password, MySqlTlsMode::Plain), &mut server).unwrap();
    }
}

#[test]
fn unsupported_plugins_are_named_and_get_no_reply() {
    for plugin in ["sha256_password", "auth_gssapi_client", "dialog"] {
        let mut server = FakeServer::native(PASSWORD.as_bytes());
        server.switch = Switch::To(plugin.as_bytes());
        let error = join(&mut connect(PASSWORD, MySqlTlsMode::Tls), &mut server).unwrap_err();
        assert_eq!(error, Error::UnsupportedAuth { plugin: plugin.to_owned() });
    }
}

#[test]
fn old_and_short_switches_are_refused() {
    let login_answer = |payloads: &[&[u8]]| {
        let mut bytes = greeted(OFFERED);
        for (sequence, payload) in [2, 4].into_iter().zip(payloads) {
            server::write_payload(&mut bytes, sequence, payload).unwrap();
        }
        first_error(&mut connect(PASSWORD, MySqlTlsMode::Plain), &bytes)
    };
    let old = Error::UnsupportedAuth { plugin: "mysql_old_password".to_owned() };
    assert_eq!(login_answer(&[b"\xfe"]), old);
    let short = login_answer(&[&[b"\xfe", NATIVE, b"\0abc\0"].concat()]);
    assert!(matches!(
        short,
        Error::Protocol { reason: "its challenge does not have the plugin's length", .. }
    ));
    assert!(matches!(login_answer(&[b"\x01\x04"]), Error::Protocol { .. }), "AuthMoreData was not requested");
    assert!(matches!(login_answer(&[b""]), Error::Protocol { .. }));
}

#[test]
fn tls_is_never_given_up() {
    let mut server = FakeServer::native(PASSWORD.as_bytes());
    server.offered = OFFERED.without(Capabilities::SSL);
    let mut client = connect(PASSWORD, MySqlTlsMode::Tls);
    assert_eq!(join(&mut client, &mut server), Err(Error::TlsNotOffered));
    let mut out = Vec::new();
    assert_eq!(client.step(&mut &b""[..], &mut out), Err(Error::NotReset), "an error is final");
    assert!(out.is_empty());
}

#[test]
fn plaintext_never_crosses_into_tls() {
    let mut injected = Vec::new();
    server::write_ok(&mut injected, 3, &OkPacket::default()).unwrap();
    let steps = [Step::Phase(Phase::ServerGreeting), Step::Phase(Phase::TlsRequest), Step::StartTls];
    // The bytes arrive with the greeting, after the request, or are kept by a careless driver.
    for arrival in 1..=3 {
        let mut client = connect(PASSWORD, MySqlTlsMode::Tls);
        let mut out = Vec::new();
        let bytes = greeted(OFFERED);
        let mut input = bytes.as_slice();
        for step in &steps[..arrival] {
            assert_eq!(client.step(&mut input, &mut out).as_ref(), Ok(step));
        }
        let sent = out.len();
        let error = client.step(&mut injected.as_slice(), &mut out).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
        assert_eq!(out.len(), sent, "nothing more is sent");
    }
}

#[test]
fn err_instead_of_a_greeting() {
    // As MariaDB and MySQL send it: without an SQL state, and with one.
    for payload in [&b"\xff\x10\x04Too many connections"[..], b"\xff\x10\x04#08004Too many connections"] {
        let mut bytes = Vec::new();
        server::write_payload(&mut bytes, 0, payload).unwrap();
        let error = first_error(&mut connect(PASSWORD, MySqlTlsMode::Tls), &bytes);
        assert!(
            matches!(&error, Error::Server { code: 1040, message, .. } if message == "Too many connections")
        );
    }
}

#[test]
fn messages_have_no_control_characters() {
    let mut bytes = Vec::new();
    let err = ErrPacket { code: 1, sql_state: *b"\x1b[2J ", message: b"\x1b[31mred\r\n" };
    server::write_err(&mut bytes, 0, &err).unwrap();
    let error = first_error(&mut connect(PASSWORD, MySqlTlsMode::Plain), &bytes);
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
}

#[test]
fn unencodable_logins_are_refused() {
    let mut login = Arc::unwrap_or_clone(login(PASSWORD, MySqlTlsMode::Plain));
    login.user = "a\0b".to_owned();
    let error = first_error(&mut MySqlConnect::new(Arc::new(login)), &greeted(OFFERED));
    assert_eq!(error, Error::InvalidLogin { field: "user" });
}

#[test]
fn wrong_numbers_and_lengths_are_refused() {
    let mut bytes = greeted(OFFERED);
    bytes[3] = 1;
    let error = first_error(&mut connect(PASSWORD, MySqlTlsMode::Plain), &bytes);
    assert!(matches!(error, Error::Protocol { reason: "a packet is missing or out of order", .. }));
    let error = first_error(&mut connect(PASSWORD, MySqlTlsMode::Plain), &[0xff, 0xff, 0xff, 0]);
    assert_eq!(error, Error::PacketTooLarge { length: 0xff_ffff, limit: 0x1_0000 });
    let old = OFFERED.without(Capabilities::SECURE_CONNECTION);
    let error = first_error(&mut connect(PASSWORD, MySqlTlsMode::Plain), &greeted(old));
    assert!(matches!(error, Error::Protocol { .. }));
}

#[test]
fn any_portions_give_the_same_login() {
    let mut bytes = greeted(OFFERED);
    server::write_payload(&mut bytes, 2, &[b"\xfe", NATIVE, b"\0abcdefghijklmnopqrst\0"].concat()).unwrap();
    server::write_ok(&mut bytes, 4, &OkPacket::default()).unwrap();
    bytes.extend_from_slice(b"next");
    let outcome = |sizes: &[usize]| {
        let mut client = connect(PASSWORD, MySqlTlsMode::Plain);
        let (mut out, mut steps) = (Vec::new(), Vec::new());
        let (end, left) = feed(&bytes, sizes, |input| {
            loop {
                match client.step(input, &mut out) {
                    Ok(Step::NeedInput) => return None,
                    Ok(Step::Done) => return Some(()),
                    step => steps.push(step),
                }
            }
        });
        (end, left, steps, out)
    };
    let whole = outcome(&[bytes.len()]);
    assert_eq!((whole.0, whole.1.as_slice()), (Some(()), &b"next"[..]));
    for size in 1..bytes.len() {
        assert_eq!(outcome(&[size]), whole);
    }
}
