//! SCRAM: the RFC's test vector, a recorded exchange, and mismatching sides.

use ciphertoll_wire::scram::{Binding, ClientFirst, Error, MAX_ITERATIONS, Mechanism, ServerFirst, Verifier};
use proptest::prelude::*;

/// RFC 7677, section 3: user `user` with password `pencil`.
const NONCE: &str = "rOprNGfwEbeRWgbNEkqO";
const SERVER_NONCE: &str = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
const SALT: &[u8] = b"\x5b\x6d\x99\x68\x9d\x12\x35\x8e\xec\xa0\x4b\x14\x12\x36\xfa\x81";
const CLIENT_FIRST: &[u8] = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const SERVER_FIRST: &[u8] =
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const CLIENT_FINAL: &[u8] = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
    p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const SERVER_FINAL: &[u8] = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

/// PostgreSQL 15.18's verifier of the password `pässword`, and a recorded exchange.
const RECORDED_VERIFIER: &str = "SCRAM-SHA-256$4096:ffwTVDvvNoh356noyWk2ww==$5WwF6Bcdy4iQ09VDT+IUzLUkzCssrNmzSEzKsi\
    AS9Cg=:kAz39zhuy70i7V7seeFxP27xd9mBERKGVtSW5BvBJJA=";
const RECORDED_NONCES: [&str; 2] = ["PYM+SAjZWkb6AhiyJdffA0Qa", "Vc+0I9zsrjNSldb++L5IuaSs"];

fn client(binding: Binding<'_>) -> ClientFirst {
    ClientFirst::with_nonce("user", binding, NONCE)
}

fn verifier() -> Verifier {
    Verifier::with_salt(b"pencil", 4096, SALT).unwrap()
}

fn server(mechanism: Mechanism, channel: Binding<'_>, client_first: &[u8]) -> Result<ServerFirst, Error> {
    ServerFirst::with_nonce(&verifier(), mechanism, channel, client_first, SERVER_NONCE)
}

#[test]
fn both_sides_match_the_rfc() {
    let client = client(Binding::None);
    assert_eq!(client.message(), CLIENT_FIRST);
    let server = server(Mechanism::Sha256, Binding::None, CLIENT_FIRST).unwrap();
    assert_eq!(server.message(), SERVER_FIRST);
    let client = client.answer(b"pencil", SERVER_FIRST).unwrap();
    assert_eq!((client.message(), client.iterations()), (CLIENT_FINAL, 4096));
    assert_eq!(server.judge(CLIENT_FINAL).unwrap(), SERVER_FINAL);
    assert_eq!(client.verify(SERVER_FINAL), Ok(()));
}

#[test]
fn both_sides_match_a_recorded_exchange() {
    let verifier = Verifier::parse(RECORDED_VERIFIER).unwrap();
    assert_eq!(verifier.text().as_str(), RECORDED_VERIFIER);
    let [nonce, server_nonce] = RECORDED_NONCES;
    let client = ClientFirst::with_nonce("", Binding::None, nonce);
    let server =
        ServerFirst::with_nonce(&verifier, Mechanism::Sha256, Binding::None, client.message(), server_nonce);
    let server = server.unwrap();
    let client = client.answer("pässword".as_bytes(), server.message()).unwrap();
    assert!(client.message().ends_with(b",p=XO0mUYWjc/HAtsdFMXKUkrfoehAmrafPWb5ZZa/nXjk="));
    let last = server.judge(client.message()).unwrap();
    assert_eq!(last, b"v=gcRz/Hh2flnkcd1jus9LcKJjatIpL9axhI5osxWaSvE=");
    assert_eq!(client.verify(&last), Ok(()));
}

#[test]
fn nonces_are_fresh() {
    let messages = [(); 2].map(|()| ClientFirst::new("user", Binding::None).unwrap().message().to_vec());
    assert_ne!(messages[0], messages[1]);
    assert!(messages.iter().all(|message| message.len() == b"n,,n=user,r=".len() + 24));
    let answers = [(); 2].map(|()| {
        let server = ServerFirst::answer(&verifier(), Mechanism::Sha256, Binding::None, &messages[0]);
        server.unwrap().message().to_vec()
    });
    assert_ne!(answers[0], answers[1]);
    let salts = [(); 2].map(|()| Verifier::of(b"pencil", 1).unwrap().text());
    assert_ne!(salts[0], salts[1]);
}

#[test]
fn the_server_detects_a_wrong_password() {
    let server = server(Mechanism::Sha256, Binding::None, CLIENT_FIRST).unwrap();
    let client = client(Binding::None).answer(b"pencil ", server.message()).unwrap();
    assert_eq!(server.judge(client.message()), Err(Error::WrongProof));
}

#[test]
fn the_client_detects_a_server_without_the_password() {
    let client = client(Binding::None).answer(b"pencil", SERVER_FIRST).unwrap();
    let mut wrong = SERVER_FINAL.to_vec();
    wrong[2] ^= 1;
    assert_eq!(client.verify(&wrong), Err(Error::ServerSignature));
    for last in [
        &b""[..],
        b"v=",
        b"v=6rri",
        b"v=****",
        b"x=1",
        b"\xff",
        b"p=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ] {
        assert!(matches!(client.verify(last), Err(Error::Protocol { .. })), "{last:?}");
    }
    let refused = client.verify(b"e=other-error\x1b[31m");
    assert_eq!(refused, Err(Error::Refused { reason: "other-error[31m".to_owned() }));
}

#[test]
fn impossible_challenges_are_refused() {
    for challenge in [
        "",
        "r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", // the client's nonce alone
        "r=%hvYDpWUa2RaTCAfuxFIlj,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "r=rOprNGfwEbeRWgbNEkqO x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "m=1,r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx",
        "r=rOprNGfwEbeRWgbNEkqOx,s=,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ,i=4096",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=0",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=+1",
        "r=rOprNGfwEbeRWgbNEkqOx,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=",
    ] {
        let error = client(Binding::None).answer(b"pencil", challenge.as_bytes()).err();
        assert!(matches!(error, Some(Error::Protocol { .. })), "{challenge}: {error:?}");
    }
}

#[test]
fn a_servers_nonce_may_be_as_long_as_a_login_message() {
    let long = "x".repeat(60_000);
    let challenge = format!("r={NONCE}{long},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=1");
    let last = client(Binding::None).answer(b"pencil", challenge.as_bytes()).unwrap();
    let message = String::from_utf8(last.message().to_vec()).unwrap();
    assert!(message.starts_with(&format!("c=biws,r={NONCE}{long},p=")), "{} bytes", message.len());
    assert!(last.verify(b"v=AAAA").is_err(), "the server does not know the password");
}

#[test]
fn work_is_bounded() {
    let most = u64::from(MAX_ITERATIONS);
    for (text, iterations) in [("10000001", most + 1), ("99999999999999999999999", u64::MAX)] {
        let challenge = format!("r={NONCE}x,s=W22ZaJ0SNY7soEsUEjb6gQ==,i={text}");
        let error = client(Binding::None).answer(b"pencil", challenge.as_bytes()).err();
        assert_eq!(error, Some(Error::IterationsTooMany { iterations, limit: MAX_ITERATIONS }));
    }
    let error = Verifier::of(b"pencil", MAX_ITERATIONS + 1).err();
    assert_eq!(error, Some(Error::IterationsTooMany { iterations: most + 1, limit: MAX_ITERATIONS }));
    assert!(Verifier::of(b"pencil", 0).is_err());
}

#[test]
fn both_sides_must_bind_the_same_channel() {
    let here = Binding::ServerEndPoint(b"here");
    let first = client(here);
    assert!(first.message().starts_with(b"p=tls-server-end-point,,n=user,"));
    let answer = |channel| server(Mechanism::Sha256Plus, channel, first.message()).unwrap();
    let same = answer(here);
    let another = answer(Binding::ServerEndPoint(b"there"));
    let last = client(here).answer(b"pencil", same.message()).unwrap();
    assert!(last.verify(&same.judge(last.message()).unwrap()).is_ok());
    assert_eq!(another.judge(last.message()), Err(Error::BindingMismatch));
}

#[test]
fn a_removed_offer_of_channel_binding_is_detected() {
    let here = Binding::ServerEndPoint(b"here");
    let try_first = |mechanism, channel, first: &[u8]| server(mechanism, channel, first).err();
    let could_bind = b"y,,n=user,r=x";
    assert_eq!(try_first(Mechanism::Sha256, here, could_bind), Some(Error::BindingMismatch));
    assert_eq!(try_first(Mechanism::Sha256, Binding::None, could_bind), None);
    assert_eq!(try_first(Mechanism::Sha256, here, b"n,,n=user,r=x"), None);
    let told = client(Binding::NotOffered);
    assert_eq!(try_first(Mechanism::Sha256, here, told.message()), Some(Error::BindingMismatch));
    let answer = server(Mechanism::Sha256, Binding::None, told.message()).unwrap();
    let last = told.answer(b"pencil", answer.message()).unwrap();
    assert!(last.verify(&answer.judge(last.message()).unwrap()).is_ok());
    for (mechanism, channel, first) in [
        (Mechanism::Sha256Plus, here, &b"n,,n=user,r=x"[..]),
        (Mechanism::Sha256, here, b"p=tls-server-end-point,,n=user,r=x"),
        (Mechanism::Sha256Plus, Binding::None, b"p=tls-server-end-point,,n=user,r=x"),
        (Mechanism::Sha256Plus, here, b"p=tls-unique,,n=user,r=x"),
    ] {
        assert_eq!(try_first(mechanism, channel, first), Some(Error::BindingMismatch));
    }
    for first in
        [&b"n,a=other,n=user,r=x"[..], b"n,,m=1,n=user,r=x", b"n,,n=user", b"n,,n=user,r=", b"n", b"n,,\xff"]
    {
        let error = try_first(Mechanism::Sha256, Binding::None, first);
        assert!(matches!(error, Some(Error::Protocol { .. })), "{first:?}: {error:?}");
    }
}

#[test]
fn impossible_proofs_are_refused() {
    for last in [
        "",
        "c=biws",
        "c=biws,r=another,p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=AAAA",
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
            p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=,x=1",
    ] {
        let server = server(Mechanism::Sha256, Binding::None, CLIENT_FIRST).unwrap();
        let error = server.judge(last.as_bytes());
        assert!(matches!(error, Err(Error::Protocol { .. })), "{last}: {error:?}");
    }
}

#[test]
fn names_are_escaped() {
    let first = ClientFirst::with_nonce("a=b,c", Binding::None, "x");
    assert_eq!(first.message(), b"n,,n=a=3Db=2Cc,r=x");
    assert!(server(Mechanism::Sha256, Binding::None, first.message()).is_ok());
}

#[test]
fn invalid_verifiers_are_refused() {
    for text in [
        "",
        "md5bc2c39fe924c4adc9176fbd55bd9ae06",
        "SCRAM-SHA-256",
        "SCRAM-SHA-256$4096",
        "SCRAM-SHA-256$4096:AAAA",
        "SCRAM-SHA-256$4096:AAAA$AAAA",
        "SCRAM-SHA-256$4096:AAAA$AAAA:AAAA",
        "SCRAM-SHA-256$x:AAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "SCRAM-SHA-256$0:AAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
        "SCRAM-SHA-256$1:$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    ] {
        assert!(matches!(Verifier::parse(text).err(), Some(Error::InvalidVerifier { .. })), "{text}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn right_passwords_get_in_and_others_do_not(
        password: Vec<u8>, other: Vec<u8>, iterations in 1..20_u32, user: String,
        hash in prop::option::of(prop::collection::vec(any::<u8>(), 0..40)),
    ) {
        let binding = hash.as_deref().map_or(Binding::None, Binding::ServerEndPoint);
        let verifier = Verifier::of(&password, iterations).unwrap();
        let verifier = Verifier::parse(verifier.text().as_str()).unwrap();
        for (typed, right) in [(&password, true), (&other, other == password)] {
            let first = ClientFirst::new(&user, binding).unwrap();
            let server = ServerFirst::answer(&verifier, binding.mechanism(), binding, first.message()).unwrap();
            let last = first.answer(typed, server.message()).unwrap();
            prop_assert_eq!(last.iterations(), iterations);
            match server.judge(last.message()) {
                Ok(signature) => {
                    prop_assert!(right);
                    prop_assert_eq!(last.verify(&signature), Ok(()));
                }
                Err(error) => {
                    prop_assert!(!right);
                    prop_assert_eq!(error, Error::WrongProof);
                }
            }
        }
    }

    #[test]
    fn nothing_breaks_it(bytes: Vec<u8>, text in "[nyp]?,{0,2}([acimnprsv]=[ -~]{0,9},?){0,5}") {
        for input in [bytes.as_slice(), text.as_bytes()] {
            let _ = client(Binding::None).answer(b"pencil", input).map(|last| last.verify(input));
            let _ = server(Mechanism::Sha256, Binding::None, input).map(|first| first.judge(input));
            let first = server(Mechanism::Sha256, Binding::None, CLIENT_FIRST).unwrap();
            prop_assert!(first.judge(input).is_err());
        }
        let _ = Verifier::parse(&text);
    }
}
