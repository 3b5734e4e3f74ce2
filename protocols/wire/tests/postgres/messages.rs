//! Messages that the server refuses, and names of any length.

use ciphertoll_wire::postgres::Param;
use ciphertoll_wire::postgres::column::ValueFormat;
use ciphertoll_wire::postgres::command::{encode_bind, encode_execute};

use super::followed::{Fixture, describe, execute, parse, query, sync};

const ANSWERS: &[u8] = b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04Z\0\0\0\x05I";
const READY: &[u8] = b"Z\0\0\0\x05I";
const REFUSED: &[u8] = b"E\0\0\0\x13SERROR\0C08P01\0\0";

/// A message with this payload.
fn message(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len() + 4).expect("a short message");
    [&[kind][..], &length.to_be_bytes(), payload].concat()
}

#[test]
fn messages_that_cannot_be_read_are_forwarded_and_nothing_waits() {
    for (kind, payload) in [
        (b'D', &b""[..]),
        (b'D', b"S"),
        (b'D', b"Sabc"),
        (b'C', b""),
        (b'C', b"Sabc"),
        (b'P', b""),
        (b'P', b"abc"),
        (b'P', b"abc\0SELECT 1"),
        (b'B', b""),
        (b'B', b"abc"),
        (b'B', b"abc\0def"),
        (b'E', b""),
        (b'E', b"abc"),
    ] {
        for piece in [1, 2, 7, 100] {
            let mut fixture = Fixture::default();
            let malformed = message(kind, payload);
            let sent = fixture.up(&malformed, piece);
            assert_eq!(sent, malformed, "{} {payload:?}", char::from(kind));
            // What comes next is not read as its payload.
            let next = [message(b'P', b"\0SELECT 1\0\0\0"), sync()].concat();
            let sent = fixture.up(&next, piece);
            assert!(sent.ends_with(&sync()), "{} {payload:?}: {sent:?}", char::from(kind));
            assert_eq!(fixture.down(&[REFUSED, READY].concat(), piece), [REFUSED, READY].concat());
            assert_eq!(fixture.up(&query("SELECT 1"), piece), query("SELECT 1"));
        }
    }
    let mut fixture = Fixture::default();
    assert_eq!(fixture.up(&message(b'Q', b""), 1), message(b'Q', b""));
}

#[test]
fn a_portal_is_known_by_the_first_63_bytes_of_its_name() {
    let mut fixture = Fixture::default();
    let mut batch = parse("", "SET a = 1");
    encode_bind(&mut batch, &"p".repeat(70), "", &[] as &[Param<'_>], ValueFormat::Text).unwrap();
    encode_execute(&mut batch, &"p".repeat(65), 0).unwrap();
    batch.extend(sync());
    assert_eq!(fixture.up(&batch, 1000), batch);
    let answers = [b"1\0\0\0\x042\0\0\0\x04C\0\0\0\x08SET\0", READY].concat();
    assert_eq!(fixture.down(&answers, 1000), answers);
    assert_eq!(fixture.follow.settle().expect("effects").settings, [b"a".to_vec()]);
}

/// It keeps its value, and the client may not have the right to set it to that.
#[test]
fn a_setting_that_is_refused_is_not_followed() {
    const SET: &[u8] = b"C\0\0\0\x08SET\0";
    let executed = |sql| [parse("", sql), execute(""), sync()].concat();
    for (up, down, settings) in [
        (query("SET a = 1"), [REFUSED, READY].concat(), &[][..]),
        (query("SET a = 1"), [SET, READY].concat(), &["a"]),
        (query("SET a = 1; SET b = 2"), [SET, REFUSED, READY].concat(), &["a", "b"]),
        (executed("SET a = 1"), [b"1\0\0\0\x042\0\0\0\x04", REFUSED, READY].concat(), &[]),
        (executed("SET a = 1"), [b"1\0\0\0\x042\0\0\0\x04", SET, READY].concat(), &["a"]),
        // The server knows its name ever after.
        (query("SET a.b = 1"), [REFUSED, READY].concat(), &["a.b"]),
        (executed("SET a.b = 1"), [b"1\0\0\0\x042\0\0\0\x04", REFUSED, READY].concat(), &["a.b"]),
    ] {
        let mut fixture = Fixture::default();
        assert_eq!(fixture.up(&up, 1000), up);
        assert_eq!(fixture.down(&down, 1000), down);
        let found = fixture.follow.settle().unwrap_or_default().settings;
        assert_eq!(found, settings.iter().map(|name| name.as_bytes()).collect::<Vec<_>>(), "{up:?}");
    }
}

#[test]
fn a_statement_that_executes_another_one_is_not_described() {
    let mut fixture = Fixture::default();
    let batch = [parse("x", "EXECUTE f"), sync()].concat();
    assert_eq!(fixture.up(&batch, 1000), batch);
    let answers = [b"1\0\0\0\x04", READY].concat();
    assert_eq!(fixture.down(&answers, 1000), answers);
    assert!(fixture.follow.settle().expect("effects").pin.is_some());
}

#[test]
fn statements_that_a_long_text_names_are_prepared_first() {
    let mut fixture = Fixture::default();
    fixture.up(&[parse("s", "SELECT 1"), describe("s"), sync()].concat(), 1000);
    fixture.down(ANSWERS, 1000);
    let text = format!("SELECT '{}'; DEALLOCATE s", "x".repeat(9 << 20));
    for message in [query(&text), parse("", &text)] {
        fixture.moves();
        let sent = fixture.up(&message, 1 << 20);
        assert!(sent.starts_with(b"P\0\0\0") && sent[5..].starts_with(b"s\0"));
    }
}

#[test]
fn names_may_have_any_length() {
    for bytes in [63, 64, 4095, 4096, 5000, 0x1_0000, 0x2_0000] {
        let name = "n".repeat(bytes);
        let mut fixture = Fixture::default();
        let prepared = [parse(&name, "SET a = 1"), describe(&name), sync()].concat();
        assert_eq!(fixture.up(&prepared, 1000), prepared);
        assert_eq!(fixture.down(ANSWERS, 1000), ANSWERS);
        fixture.moves();
        // Servers compare the first 63 bytes of a name.
        let sent = fixture.up(&execute(&"n".repeat(63)), 1000);
        assert!(sent.starts_with(b"P") && sent.len() > bytes, "{bytes}: it is prepared again");
        fixture.moves();
        let sent = fixture.up(&execute(&name), 1000);
        assert!(sent.starts_with(b"P"), "{bytes}: it is prepared again");
    }
}
