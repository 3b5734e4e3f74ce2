//! What has been exploited in other proxies. `SECURITY.md` has the table of those vulnerabilities and names these cases.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::thread;

use ciphertoll_wire::postgres::server::write_message;
use ciphertoll_wire::postgres::startup::encode_startup;

use crate::Case;
use crate::cases::one;
use crate::fixture::{Fixture, RawClient};
use crate::operations::{second_user, settings};
use crate::replication::user_of;

pub(crate) const CASES: [Case; 5] = [
    ("a second startup message is refused, during the login and after it", second_startup),
    ("malformed SCRAM messages refuse only their client", malformed_scram),
    ("messages of impossible or excessive lengths refuse only their client", lengths),
    ("a startup option without a name is refused", nameless_options),
    ("an error of the server without an SQL state reaches the client", no_state),
];

fn startup(parameters: &[(&str, &str)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, parameters).expect("a start-up");
    bytes
}

fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_message(&mut bytes, kind, payload).expect("it is short");
    bytes
}

fn sasl_initial(first: &[u8]) -> Vec<u8> {
    let length = u32::try_from(first.len()).expect("it is short").to_be_bytes();
    message(b'p', &[&b"SCRAM-SHA-256\0"[..], &length, first].concat())
}

/// The SQL state of the error with which the connection ends.
fn refused(raw: &mut RawClient, what: &str) -> String {
    let answer = raw.answer();
    assert!(answer.iter().all(|(kind, _)| *kind != b'Z'), "{what}: the login went on: {answer:?}");
    let state = RawClient::error_state(&answer).unwrap_or_else(|| panic!("{what}: {answer:?}"));
    assert!(raw.message().is_err(), "{what}: it ends after that");
    state
}

fn second_startup(fixture: &mut Fixture) {
    let (directory, file) =
        settings("unix-auth = \"scram\"\n[[user]]\nname = \"second\"\npassword-file = \"second\"\n");
    let second = second_user(fixture, directory.path());
    let proxy = fixture.proxy(&["--config", &file]);
    let own = proxy.user.clone();
    // The database does not exist. The user of the second message is another one.
    let first = startup(&[("user", &second), ("database", "nowhere")]);
    let again = startup(&[("user", &own), ("database", &proxy.database)]);
    for step in ["request", "challenge"] {
        let mut raw = proxy.raw_silent();
        raw.send(&first);
        assert_eq!(raw.message().expect("a request").0, b'R');
        if step == "challenge" {
            raw.send(&sasl_initial(b"n,,n=,r=abc"));
            assert_eq!(raw.message().expect("a challenge").0, b'R');
        }
        raw.send(&again);
        assert_eq!(refused(&mut raw, step), "08P01");
    }
    // In a session, and, in transaction mode, between two transactions.
    let proxy = fixture.proxy(&[]);
    let mut bystander = proxy.client();
    for commands in [0, 1] {
        let mut raw = proxy.raw(&[]);
        assert_eq!(RawClient::error_state(&raw.answer()), None);
        for _ in 0..commands {
            raw.query("SELECT 1");
            assert_eq!(RawClient::error_state(&raw.answer()), None);
        }
        raw.send(&again);
        assert_eq!(refused(&mut raw, "a session"), "08P01");
    }
    assert_eq!(one(&mut bystander, "SELECT 1"), "1");
}

fn malformed_scram(fixture: &mut Fixture) {
    let (_directory, file) = settings("unix-auth = \"scram\"\n");
    let proxy = fixture.proxy(&["--config", &file]);
    let begin = || {
        let mut raw = proxy.raw(&[]);
        assert_eq!(raw.message().expect("a request").0, b'R');
        raw
    };
    // The length of the client's first message is not that of the packet.
    for length in [u32::MAX, u32::MAX - 1, 0x8000_0000, 0x7fff_ffff, 4] {
        let mut raw = begin();
        let payload = [&b"SCRAM-SHA-256\0"[..], &length.to_be_bytes(), b"n,,"].concat();
        raw.send(&message(b'p', &payload));
        assert_eq!(refused(&mut raw, &format!("length {length}")), "08P01");
    }
    for first in ["", "n", "n,,", "n,,n=", "n,,n=,r=", "n,,r=abc", "n,a=x,n=,r=abc", "p=tls-unique,,n=,r=abc"]
    {
        let mut raw = begin();
        raw.send(&sasl_initial(first.as_bytes()));
        assert_eq!(refused(&mut raw, first), "28P01");
    }
    // Each attribute of the final message is missing once.
    let all = ["c=biws", "r=NONCE", "p=AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="];
    let without = |missing: usize| {
        let parts: Vec<_> =
            all.iter().enumerate().filter(|(at, _)| *at != missing).map(|(_, part)| *part).collect();
        parts.join(",")
    };
    let lasts =
        [without(0), without(1), without(2), without(3), String::new(), ",,,".to_owned(), "p=".to_owned()];
    for last in lasts {
        let mut raw = begin();
        raw.send(&sasl_initial(b"n,,n=,r=abc"));
        let (_, challenge) = raw.message().expect("a challenge");
        let challenge = String::from_utf8_lossy(&challenge[4..]).into_owned();
        let nonce = challenge.strip_prefix("r=").and_then(|rest| rest.split(',').next()).expect("a nonce");
        raw.send(&message(b'p', last.replace("NONCE", nonce).as_bytes()));
        assert_eq!(refused(&mut raw, &last), "28P01");
    }
    // The right password is still accepted.
    let password = String::from_utf8(fixture.password()).expect("text");
    let mut psql = proxy.psql(&["-c", "SELECT 1"]);
    assert!(psql.env("PGPASSWORD", password).output().expect("psql runs").status.success());
}

fn lengths(fixture: &mut Fixture) {
    let (_directory, file) = settings("unix-auth = \"scram\"\n");
    let proxy = fixture.proxy(&["--config", &file]);
    // No login is as long. Nothing of it is stored, and these may not be clients of the protocol.
    for length in [u32::MAX, 0x8000_0000, 0x7fff_ffff, 0x0100_0000] {
        let mut raw = proxy.raw_silent();
        raw.send(&[&length.to_be_bytes()[..], b"\0\x03\0\0user\0"].concat());
        assert_eq!(raw.rest(), b"", "{length:#x}");
    }
    // The header of another protocol, with an address that the proxy could take for the client's.
    let mut raw = proxy.raw_silent();
    raw.send(b"PROXY UNKNOWN 10.0.0.1 10.0.0.2 1 2\r\n");
    assert_eq!(raw.rest(), b"");
    for length in [u32::MAX, 0x8000_0000, 0x7fff_ffff, 0x0100_0000] {
        let mut raw = proxy.raw(&[]);
        assert_eq!(raw.message().expect("a request").0, b'R');
        raw.send(&[&b"p"[..], &length.to_be_bytes(), b"SCRAM-SHA-256\0"].concat());
        assert_eq!(refused(&mut raw, &format!("p {length:#x}")), "08P01");
    }
    let proxy = fixture.proxy(&[]);
    let mut bystander = proxy.client();
    for (kind, length) in
        [(b'Q', u32::MAX), (b'Q', 0x8000_0000), (b'd', 0x7fff_ffff), (b'P', 0x4000_0000), (b'B', 3)]
    {
        let mut raw = proxy.raw(&[]);
        assert_eq!(RawClient::error_state(&raw.answer()), None);
        raw.send(&[&[kind][..], &length.to_be_bytes(), b"SELECT"].concat());
        assert_eq!(refused(&mut raw, &format!("{length:#x}")), "08P01");
    }
    assert_eq!(one(&mut bystander, "SELECT 1"), "1");
}

fn nameless_options(fixture: &mut Fixture) {
    let proxy = fixture.proxy(&["--replication"]);
    for options in ["-c=", "-c =1", "-c", "--=", "--=x -c work_mem=1MB", "-c work_mem=1MB -c="] {
        for more in [None, Some(("replication", "true"))] {
            let parameters: Vec<_> = [("options", options)].into_iter().chain(more).collect();
            assert_eq!(refused(&mut proxy.raw(&parameters), options), "0A000");
        }
    }
    assert_eq!(one(&mut proxy.client(), "SELECT 1"), "1");
}

fn no_state(fixture: &mut Fixture) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    let url = format!(
        "postgres://{}@{}/shop?sslmode=disable",
        user_of(fixture),
        listener.local_addr().expect("it is bound")
    );
    let proxy = fixture.proxy_to(&url, &[]);
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // The startup message arrives in one piece.
            let _ = stream.read(&mut [0; 1024]);
            let _ = stream.write_all(&message(b'E', b"SFATAL\0Mno state\0\0"));
        }
    });
    for _ in 0..2 {
        let mut raw = proxy.raw(&[]);
        let answer = raw.answer();
        assert_eq!(RawClient::error_state(&answer).as_deref(), Some("XX000"), "{answer:?}");
        let (_, payload) = answer.last().expect("an error");
        assert!(String::from_utf8_lossy(payload).contains("no state"), "{answer:?}");
    }
}
