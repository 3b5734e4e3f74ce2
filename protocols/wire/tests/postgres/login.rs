//! Logins of a client at a server in memory: accepted, refused, and never with secrets in cleartext.

use std::sync::Arc;

use ciphertoll_wire::postgres::server::{self, Authentication, Report, TlsAnswer};
use ciphertoll_wire::postgres::{
    Bound, ChannelBinding, Error, Fault, PostgresAuthMethod, PostgresConnect, PostgresLogin, PostgresTlsMode,
    Severity,
};
use ciphertoll_wire::scram::{Binding, ServerFirst, Verifier};
use ciphertoll_wire::{Phase, Secret, Step};

use crate::fake_server::{
    Auth, CANCEL_KEY, END_POINT, FakeServer, PASSWORD, Passed, USER, join, scram, welcome,
};

fn login(password: &str, encryption: PostgresTlsMode) -> PostgresLogin {
    PostgresLogin {
        startup: Vec::new(),
        user: USER.to_owned(),
        password: Secret::new(password.as_bytes().to_vec()),
        database: None,
        encryption,
        channel_binding: ChannelBinding::Disabled,
    }
}

fn bound(password: &str, encryption: PostgresTlsMode) -> PostgresLogin {
    PostgresLogin { channel_binding: ChannelBinding::Required, ..login(password, encryption) }
}

fn connect(login: PostgresLogin) -> PostgresConnect {
    PostgresConnect::new(Arc::new(login))
}

fn try_login(login: PostgresLogin, mut server: FakeServer) -> (Result<PostgresAuthMethod, Error>, Passed) {
    let mut client = connect(login);
    let (end, passed) = join(&mut client, &mut server, usize::MAX);
    assert_eq!(client.server().is_some(), end.is_ok());
    (end.map(|()| client.server().expect("it is known at the end").auth), passed)
}

/// Steps to the first error over these bytes, the first of which arrive after the client's first message.
fn first_error(client: &mut PostgresConnect, bytes: &[u8]) -> Error {
    let mut out = Vec::new();
    let mut input = &b""[..];
    for _ in 0..20 {
        match client.step(&mut input, &mut out) {
            Err(error) => return error,
            Ok(Step::NeedInput) => input = bytes,
            Ok(_) => {}
        }
    }
    panic!("no error");
}

/// The result of these messages for a client that has not authenticated.
fn refusal(messages: impl FnOnce(&mut Vec<u8>)) -> Error {
    let mut bytes = Vec::new();
    messages(&mut bytes);
    first_error(&mut connect(login(PASSWORD, PostgresTlsMode::Plain)), &bytes)
}

fn request(out: &mut Vec<u8>, request: &Authentication<'_>) {
    server::write_authentication(out, request).unwrap();
}

#[test]
fn every_method_accepts_the_right_password() {
    let scrams = |channel_binding| PostgresAuthMethod::Scram { iterations: 16, channel_binding };
    for encryption in
        [PostgresTlsMode::Plain, PostgresTlsMode::Tls, PostgresTlsMode::EagerTls, PostgresTlsMode::DirectTls]
    {
        for (auth, expected) in [
            (Auth::Trust, PostgresAuthMethod::None),
            (Auth::Md5, PostgresAuthMethod::Md5),
            (scram(), scrams(Bound::Nothing)),
        ] {
            let (method, _) = try_login(login(PASSWORD, encryption), FakeServer::new(auth));
            assert_eq!(method, Ok(expected));
        }
    }
    let (method, passed) = try_login(login(PASSWORD, PostgresTlsMode::Tls), FakeServer::new(Auth::Cleartext));
    assert_eq!(method, Ok(PostgresAuthMethod::Cleartext));
    assert!(passed.encrypted.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()));
}

#[test]
fn a_wrong_password_is_a_server_error() {
    for auth in [Auth::Cleartext, Auth::Md5, scram()] {
        let (end, _) = try_login(login("wrong", PostgresTlsMode::Tls), FakeServer::new(auth));
        let error = end.unwrap_err();
        assert!(
            matches!(&error, Error::Server { severity: Severity::Fatal, sqlstate, .. } if sqlstate == "28P01"),
            "{error}"
        );
        assert_eq!(error.fault(), Fault::Server);
        assert!(!error.to_string().contains("wrong"));
    }
}

#[test]
fn the_server_is_known_at_the_end() {
    let mut login = login(PASSWORD, PostgresTlsMode::Plain);
    login.database = Some("orders".to_owned());
    let (mut client, mut server) = (connect(login), FakeServer::new(scram()));
    let (end, passed) = join(&mut client, &mut server, usize::MAX);
    assert_eq!(end, Ok(()));
    assert_eq!(passed.steps, [Step::Phase(Phase::Auth), Step::Phase(Phase::Ready), Step::Done]);
    let info = client.server().unwrap();
    assert_eq!((info.version.as_str(), info.process_id), ("17.2", 42));
    assert_eq!(info.cancel_key.expose(), CANCEL_KEY);
    assert!(format!("{info:?}").contains("cancel_key: CancelKey(..)"));
    let expected = [
        ("user", USER),
        ("database", "orders"),
        ("client_encoding", "UTF8"),
        ("application_name", "ciphertoll"),
    ];
    assert!(server.startup.iter().map(|(name, value)| (name.as_str(), value.as_str())).eq(expected));
}

#[test]
fn tls_login_sends_no_name_before_tls() {
    let (end, passed) = try_login(login(PASSWORD, PostgresTlsMode::Tls), FakeServer::new(scram()));
    assert!(end.is_ok());
    assert_eq!(passed.plain, [0, 0, 0, 8, 4, 210, 22, 47], "an SSLRequest and nothing else comes first");
    assert_eq!(passed.steps[..2], [Step::Phase(Phase::TlsRequest), Step::StartTls]);
    let (end, eager) = try_login(login(PASSWORD, PostgresTlsMode::EagerTls), FakeServer::new(scram()));
    assert!(end.is_ok());
    assert_eq!((&eager.plain, &eager.encrypted[..8]), (&passed.plain, &passed.encrypted[..8]));
    assert_eq!(eager.steps[..3], [Step::OfferTls, Step::Phase(Phase::TlsRequest), Step::StartTls]);
    let (end, passed) = try_login(login(PASSWORD, PostgresTlsMode::DirectTls), FakeServer::new(scram()));
    assert!(end.is_ok() && passed.plain.is_empty());
    assert_eq!(passed.steps[..2], [Step::StartTls, Step::Phase(Phase::Auth)]);
}

#[test]
fn passwords_are_sent_only_in_tls() {
    for auth in [Auth::Cleartext, Auth::Md5, scram()] {
        let clear = matches!(auth, Auth::Cleartext);
        let (end, passed) = try_login(login(PASSWORD, PostgresTlsMode::Plain), FakeServer::new(auth));
        assert_eq!(end.err(), clear.then_some(Error::PasswordInPlain));
        assert!(!passed.plain.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes()));
    }
}

#[test]
fn tls_is_never_given_up() {
    let mut server = FakeServer::new(Auth::Trust);
    server.tls = TlsAnswer::No;
    let mut client = connect(login(PASSWORD, PostgresTlsMode::Tls));
    assert_eq!(join(&mut client, &mut server, 1).0, Err(Error::TlsNotOffered));
    let mut out = Vec::new();
    assert_eq!(client.step(&mut &b""[..], &mut out), Err(Error::NotReset), "an error is final");
    assert!(out.is_empty());
}

#[test]
fn the_text_of_an_error_before_tls_is_hidden() {
    let mut bytes = Vec::new();
    let report = Report { severity: Severity::Fatal, sqlstate: *b"28000", message: b"send money" };
    server::write_error(&mut bytes, &report).unwrap();
    let error = first_error(&mut connect(login(PASSWORD, PostgresTlsMode::Tls)), &bytes);
    assert_eq!(error, Error::ErrorBeforeTls);
    let error = first_error(&mut connect(login(PASSWORD, PostgresTlsMode::Tls)), b"HTTP/1.1 400");
    assert!(matches!(error, Error::Protocol { .. }), "{error}");
}

#[test]
fn plaintext_never_crosses_into_tls() {
    let mut injected = Vec::new();
    welcome(&mut injected);
    // With the reply's byte, before the handshake, and after it.
    for arrival in 0..3 {
        let mut client = connect(login(PASSWORD, PostgresTlsMode::Tls));
        let mut out = Vec::new();
        assert_eq!(client.step(&mut &b""[..], &mut out), Ok(Step::NeedInput));
        let sent = out.len();
        let yes_and_more = [b"S", injected.as_slice()].concat();
        let mut input = if arrival == 0 { yes_and_more.as_slice() } else { b"S" };
        for step in &[Step::Phase(Phase::TlsRequest), Step::StartTls][..arrival] {
            assert_eq!(client.step(&mut input, &mut out).as_ref(), Ok(step));
        }
        if arrival > 0 {
            input = &injected;
        }
        let error = client.step(&mut input, &mut out).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{error}");
        assert_eq!(out.len(), sent, "nothing more is sent");
    }
    let mut client = connect(login(PASSWORD, PostgresTlsMode::DirectTls));
    assert!(client.step(&mut injected.as_slice(), &mut Vec::new()).is_err());
}

#[test]
fn channel_binding_is_the_same_on_both_sides_or_fails() {
    let server = |end_point| {
        let mut server = FakeServer::new(scram());
        server.end_point = end_point;
        server
    };
    for encryption in [PostgresTlsMode::Tls, PostgresTlsMode::DirectTls] {
        let (method, _) = try_login(bound(PASSWORD, encryption), server(Some(END_POINT)));
        let expected = PostgresAuthMethod::Scram { iterations: 16, channel_binding: Bound::ServerEndPoint };
        assert_eq!(method, Ok(expected));
        // An attacker between the two uses another certificate.
        let (method, _) = try_login(bound(PASSWORD, encryption), server(Some(b"another")));
        assert!(matches!(method, Err(Error::Server { .. })), "{method:?}");
    }
    // A server that offers binding accepts a client without it.
    let (method, _) = try_login(login(PASSWORD, PostgresTlsMode::Tls), server(Some(END_POINT)));
    assert_eq!(method, Ok(PostgresAuthMethod::Scram { iterations: 16, channel_binding: Bound::Nothing }));
}

#[test]
fn required_channel_binding_is_enforced() {
    for auth in [scram(), Auth::Trust, Auth::Md5, Auth::Cleartext] {
        let (end, passed) = try_login(bound(PASSWORD, PostgresTlsMode::Tls), FakeServer::new(auth));
        assert_eq!(end, Err(Error::ChannelBindingNotOffered));
        let startup_bytes = usize::from(passed.encrypted[3]);
        assert_eq!(passed.encrypted.len(), startup_bytes, "no password message was sent");
    }
    let error = first_error(&mut connect(bound(PASSWORD, PostgresTlsMode::Plain)), b"");
    assert_eq!((&error, error.fault()), (&Error::NotBound, Fault::Caller));
    // The hash was not set.
    let mut client = connect(bound(PASSWORD, PostgresTlsMode::DirectTls));
    let mut bytes = Vec::new();
    request(&mut bytes, &Authentication::Sasl { mechanisms: vec![b"SCRAM-SHA-256-PLUS"] });
    assert_eq!(first_error(&mut client, &bytes), Error::NotBound);
}

/// As in libpq: used if both sides support it, and never a reason to fail.
#[test]
fn preferred_channel_binding_is_used_if_offered() {
    let try_preferred = |encryption, auth, end_point| {
        let login =
            PostgresLogin { channel_binding: ChannelBinding::Preferred, ..login(PASSWORD, encryption) };
        let mut server = FakeServer::new(auth);
        server.end_point = end_point;
        try_login(login, server)
    };
    let scrams = |channel_binding| Ok(PostgresAuthMethod::Scram { iterations: 16, channel_binding });
    for encryption in [PostgresTlsMode::Tls, PostgresTlsMode::DirectTls] {
        let (method, _) = try_preferred(encryption, scram(), Some(END_POINT));
        assert_eq!(method, scrams(Bound::ServerEndPoint));
        let (method, passed) = try_preferred(encryption, scram(), None);
        assert_eq!(method, scrams(Bound::Nothing));
        assert!(passed.encrypted.windows(4).any(|window| window == b"y,,n"), "the server is told");
        // An attacker between the two uses another certificate.
        let (method, _) = try_preferred(encryption, scram(), Some(b"another"));
        assert!(matches!(method, Err(Error::Server { .. })), "{method:?}");
        for (auth, expected) in [
            (Auth::Trust, PostgresAuthMethod::None),
            (Auth::Md5, PostgresAuthMethod::Md5),
            (Auth::Cleartext, PostgresAuthMethod::Cleartext),
        ] {
            assert_eq!(try_preferred(encryption, auth, None).0, Ok(expected));
        }
    }
    let (method, passed) = try_preferred(PostgresTlsMode::Plain, scram(), None);
    assert_eq!(method, scrams(Bound::Nothing));
    assert!(
        passed.plain.windows(4).any(|window| window == b"n,,n"),
        "without TLS there is nothing to bind to"
    );
}

/// A certificate whose signature algorithm has no digest has no hash to bind to.
#[test]
fn preferred_channel_binding_needs_a_hash() {
    let login = PostgresLogin {
        startup: Vec::new(),
        channel_binding: ChannelBinding::Preferred,
        ..login(PASSWORD, PostgresTlsMode::DirectTls)
    };
    let mut client = connect(login);
    let mut out = Vec::new();
    assert_eq!(client.step(&mut &b""[..], &mut out), Ok(Step::StartTls));
    let mut bytes = Vec::new();
    request(&mut bytes, &Authentication::Sasl { mechanisms: vec![b"SCRAM-SHA-256-PLUS", b"SCRAM-SHA-256"] });
    assert_eq!(client.step(&mut &b""[..], &mut out), Ok(Step::NeedInput));
    assert_eq!(client.step(&mut bytes.as_slice(), &mut out), Ok(Step::NeedInput));
    assert!(out.windows(14).any(|window| window == b"SCRAM-SHA-256\0"));
    assert!(out.windows(4).any(|window| window == b"n,,n"));
}

#[test]
fn unsupported_methods_are_named_and_get_no_reply() {
    let unsupported = |method: &str| Error::UnsupportedAuth { method: method.to_owned() };
    assert_eq!(refusal(|out| request(out, &Authentication::Other(7))), unsupported("GSSAPI"));
    assert_eq!(refusal(|out| request(out, &Authentication::Other(99))), unsupported("number 99"));
    let mechanisms = vec![&b"SCRAM-SHA-256-PLUS"[..], b"OAUTHBEARER"];
    let error = refusal(|out| request(out, &Authentication::Sasl { mechanisms }));
    assert_eq!(error, unsupported("SCRAM-SHA-256-PLUS, OAUTHBEARER"));
}

#[test]
fn a_server_must_prove_that_it_knows_the_password() {
    // It sends AuthenticationOk in place of its challenge, or of its signature.
    let sasl = Authentication::Sasl { mechanisms: vec![b"SCRAM-SHA-256"] };
    let error = refusal(|out| {
        request(out, &sasl);
        welcome(out);
    });
    assert_eq!(error, Error::ServerSignature);
    let wrong = [&b"v="[..], &[b'A'; 43], b"="].concat();
    for last in [Authentication::Ok, Authentication::SaslFinal(&wrong)] {
        let mut client = connect(login(PASSWORD, PostgresTlsMode::Plain));
        let (mut out, mut bytes) = (Vec::new(), Vec::new());
        request(&mut bytes, &sasl);
        client.step(&mut bytes.as_slice(), &mut out).unwrap();
        let first = &out[out.windows(3).position(|window| window == b"n,,").unwrap()..];
        let verifier = Verifier::of(b"another", 1).unwrap();
        let mechanism = Binding::None.mechanism();
        let server_first = ServerFirst::answer(&verifier, mechanism, Binding::None, first).unwrap();
        bytes.clear();
        request(&mut bytes, &Authentication::SaslContinue(server_first.message()));
        request(&mut bytes, &last);
        assert_eq!(client.step(&mut bytes.as_slice(), &mut out), Err(Error::ServerSignature));
        assert!(client.server().is_none());
    }
}

#[test]
fn requests_out_of_order_are_refused() {
    let md5 = Authentication::Md5 { salt: *b"salt" };
    for requests in [
        &[Authentication::SaslContinue(b"r=x")][..],
        &[Authentication::SaslFinal(b"v=x")],
        &[md5.clone(), md5.clone()],
        &[md5.clone(), Authentication::Sasl { mechanisms: vec![b"SCRAM-SHA-256"] }],
        &[Authentication::Sasl { mechanisms: vec![b"SCRAM-SHA-256"] }, md5],
    ] {
        let error = refusal(|out| requests.iter().for_each(|one| request(out, one)));
        assert!(matches!(error, Error::Protocol { .. }), "{requests:?}: {error}");
    }
}

#[test]
fn unexpected_messages_are_refused() {
    for (kind, payload) in
        [(b'Z', &b"I"[..]), (b'S', b"a\0b\0"), (b'K', &[0; 8]), (b'T', &[0; 2]), (b'x', b"")]
    {
        let error = refusal(|out| server::write_message(out, kind, payload).unwrap());
        assert!(matches!(error, Error::Protocol { message: "reply to the login", .. }), "{error}");
    }
    for (kind, payload) in [
        (b'R', &[0; 4][..]),
        (b'D', b"\0\0"),
        (b'Z', b"X"),
        (b'Z', b"II"),
        (b'S', b"a\0"),
        (b'K', b"\0"),
        (b'K', &[0; 261]),
    ] {
        let error = refusal(|out| {
            request(out, &Authentication::Ok);
            server::write_message(out, kind, payload).unwrap();
        });
        assert!(matches!(error, Error::Protocol { .. }), "{kind}: {error}");
    }
}

#[test]
fn an_error_after_authentication_is_a_server_error() {
    let error = refusal(|out| {
        request(out, &Authentication::Ok);
        let message = b"database \"x\" does not exist\x1b[2J";
        let report = Report { severity: Severity::Fatal, sqlstate: *b"3D000", message };
        server::write_error(out, &report).unwrap();
    });
    assert!(matches!(&error, Error::Server { sqlstate, .. } if sqlstate == "3D000"));
    assert!(!error.to_string().contains(char::is_control), "{error:?}");
}

#[test]
fn version_negotiation_accepts_only_3_0() {
    let ok = |version| {
        let mut client = connect(login(PASSWORD, PostgresTlsMode::Plain));
        let mut bytes = Vec::new();
        server::write_negotiate_protocol_version(&mut bytes, version, &[]).unwrap();
        welcome(&mut bytes);
        client.step(&mut bytes.as_slice(), &mut Vec::new())
    };
    assert_eq!(ok(3 << 16), Ok(Step::Phase(Phase::Auth)));
    assert_eq!(ok(0), Ok(Step::Phase(Phase::Auth)));
    assert!(matches!(ok(3 << 16 | 2), Err(Error::Protocol { .. })));
    let error = refusal(|out| {
        server::write_negotiate_protocol_version(out, 3 << 16, &[b"_pq_.x"]).unwrap();
    });
    assert!(matches!(error, Error::Protocol { reason: "options that were not requested", .. }));
}

#[test]
fn unencodable_logins_are_refused_before_output() {
    let mut broken = login(PASSWORD, PostgresTlsMode::Tls);
    broken.user = "a\0b".to_owned();
    let mut out = Vec::new();
    let error = connect(broken).step(&mut &b""[..], &mut out);
    assert_eq!(error, Err(Error::InvalidLogin { field: "user" }));
    let mut broken = login(PASSWORD, PostgresTlsMode::Plain);
    broken.database = Some("\0".to_owned());
    let error = connect(broken).step(&mut &b""[..], &mut out);
    assert_eq!(error, Err(Error::InvalidLogin { field: "database" }));
    assert!(out.is_empty());
    let (end, _) = try_login(login("a\0b", PostgresTlsMode::Tls), FakeServer::new(Auth::Cleartext));
    assert_eq!(end, Err(Error::InvalidLogin { field: "password" }));
}

#[test]
fn lengths_are_bounded() {
    let too_large = Error::MessageTooLarge { length: 0x1_0001, limit: 0x1_0000 };
    assert_eq!(refusal(|out| out.extend_from_slice(b"R\0\x01\0\x05")), too_large);
    for impossible in [&b"R\0\0\0\x03"[..], b"R\xff\xff\xff\xff", b"R\x80\0\0\0"] {
        let error = refusal(|out| out.extend_from_slice(impossible));
        assert!(matches!(error, Error::Protocol { reason: "an impossible length", .. }), "{error}");
    }
}

#[test]
fn any_portions_give_the_same_login() {
    for auth in [Auth::Trust, Auth::Md5, Auth::Cleartext, scram()] {
        let mut whole = None;
        for size in [usize::MAX, 1, 2, 3, 7, 100] {
            let mut client = connect(login(PASSWORD, PostgresTlsMode::Tls));
            let (end, passed) = join(&mut client, &mut FakeServer::new(auth.clone()), size);
            assert_eq!(end, Ok(()));
            let first = whole.get_or_insert(passed.steps.clone());
            assert_eq!(*first, passed.steps);
        }
    }
}

#[test]
fn bytes_after_the_login_are_not_consumed() {
    let mut bytes = Vec::new();
    welcome(&mut bytes);
    bytes.extend_from_slice(b"next");
    let mut client = connect(login(PASSWORD, PostgresTlsMode::Plain));
    let mut input = bytes.as_slice();
    while client.step(&mut input, &mut Vec::new()).unwrap() != Step::Done {}
    assert_eq!(input, b"next");
}
