//! MariaDB's `COM_STMT_BULK_EXECUTE` beside `COM_STMT_EXECUTE`.

use super::*;
use crate::mysql::codec::packet::HEADER_BYTES;

const ROW: &[u8] = b"\0\x2a\0\0\0\0\0\0\0";
const WITH_TYPES: &[u8] = b"\x80\0\x08\0";
const WITHOUT_TYPES: &[u8] = b"\x40\0";

fn bulk(id: u32, front: &[u8]) -> Vec<u8> {
    let payload = [&b"\xfa"[..], &id.to_le_bytes(), front, ROW].concat();
    written(|out| {
        write_payload(out, 0, &payload).unwrap();
    })
}

fn long_data(id: u32) -> Vec<u8> {
    let payload = [&b"\x18"[..], &id.to_le_bytes(), b"\0\0long"].concat();
    written(|out| {
        write_payload(out, 0, &payload).unwrap();
    })
}

/// An execute of a statement with one parameter, without its type.
fn execute_without_types(id: u32, params: &[Param<'_>; 1]) -> Vec<u8> {
    let mut bytes = execute(id, params);
    bytes[15] = 0;
    bytes.drain(16..18);
    bytes[0] -= 2;
    bytes
}

#[test]
fn parameter_types_are_added_to_a_bulk_execute() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
    assert_eq!(fixture.says(&bulk(own, WITH_TYPES), 3).0, bulk(77, WITH_TYPES));
    fixture.hears(&ok(&OK));
    assert_eq!(fixture.says(&bulk(own, WITHOUT_TYPES), 3).0, bulk(77, WITHOUT_TYPES));
    fixture.hears(&ok(&OK));
    fixture.moves();
    fixture.prepared.insert(own, 5);
    assert_eq!(fixture.says(&bulk(own, WITHOUT_TYPES), 3).0, bulk(5, b"\xc0\0\x08\0"));
    fixture.hears(&ok(&OK));
    assert!(fixture.is_clean());
}

fn refused(code: u16) -> Vec<u8> {
    let err = ErrPacket { code, sql_state: *b"HY000", message: b"no" };
    written(|out| write_err(out, 1, &err).unwrap())
}

/// The types of one command are those of the other, unless the server has refused it before it read them.
#[test]
fn parameter_types_are_those_that_the_server_has_read_last() {
    let params = [Param::I64(7)];
    for (answer, is_read) in [(ok(&OK), true), (refused(1062), true), (refused(1295), false)] {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
        fixture.says(&execute(own, &[Param::Bytes(b"x")]), 3);
        fixture.hears(&ok(&OK));
        fixture.says(&bulk(own, WITH_TYPES), 3);
        fixture.hears(&answer);
        fixture.moves();
        fixture.prepared.insert(own, 5);
        let sent = fixture.says(&execute_without_types(own, &params), 3).0;
        fixture.hears(&ok(&OK));
        assert_eq!(sent == execute(5, &params), is_read);
        // Now this connection knows them.
        assert_eq!(fixture.says(&bulk(own, WITHOUT_TYPES), 3).0, bulk(5, WITHOUT_TYPES));
        fixture.hears(&ok(&OK));
        fixture.says(&written(|out| encode_statement_close(out, own)), 3);
        assert_eq!((fixture.statements.bytes(), fixture.follow.pending_bytes), (0, 0));
    }
}

/// The answer to a bulk execute comes when a later command has sent other types.
#[test]
fn parameter_types_of_a_later_execute_count() {
    let text = [Param::Bytes(b"x")];
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
    fixture.says(&[bulk(own, WITH_TYPES), execute(own, &text)].concat(), 3);
    fixture.hears(&[ok(&OK), ok(&OK)].concat());
    fixture.moves();
    fixture.prepared.insert(own, 5);
    assert_eq!(fixture.says(&execute_without_types(own, &text), 3).0, execute(5, &text));
    assert_eq!(fixture.follow.pending_bytes, 0);
}

/// A connection knows no types from a bulk execute that was refused before they were read.
#[test]
fn parameter_types_of_a_refused_bulk_execute_are_not_known() {
    let params = [Param::I64(7)];
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
    fixture.says(&execute(own, &params), 3);
    fixture.hears(&ok(&OK));
    fixture.moves();
    fixture.prepared.insert(own, 5);
    fixture.says(&bulk(own, WITH_TYPES), 3);
    fixture.hears(&refused(1295));
    assert_eq!(fixture.says(&execute_without_types(own, &params), 3).0, execute(5, &params));
}

/// The server may refuse a bulk execute before it reads its types.
#[test]
fn parameter_types_of_a_bulk_execute_that_is_not_answered_are_not_taken_for_known() {
    for (params, is_same) in [([Param::I64(7)], true), ([Param::Bytes(b"x")], false)] {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
        fixture.says(&execute(own, &params), 3);
        fixture.hears(&ok(&OK));
        fixture.moves();
        fixture.prepared.insert(own, 5);
        fixture.says(&bulk(own, WITH_TYPES), 3);
        let (sent, needs) = fixture.says(&execute_without_types(own, &params), 3);
        assert_eq!((sent == execute(5, &params), needs.is_none()), (is_same, is_same));
        fixture.hears(&refused(1295));
        if !is_same {
            fixture.prepared.insert(own, 6);
            assert_eq!(fixture.says(&execute_without_types(own, &params), 3).0, execute(6, &params));
        }
        fixture.hears(&ok(&OK));
        assert!(fixture.is_clean());
        assert_eq!(fixture.follow.pending_bytes, 0);
    }
}

/// A bulk execute does not take the data that was sent ahead: it is there for the next execute.
#[test]
fn data_sent_ahead_outlives_a_bulk_execute() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
    fixture.says(&long_data(own), 3);
    fixture.says(&bulk(own, WITH_TYPES), 3);
    fixture.hears(&ok(&OK));
    assert!(fixture.follow.is_open());
    fixture.says(&execute(own, &[Param::Bytes(b"")]), 3);
    fixture.hears(&ok(&OK));
    assert!(!fixture.follow.is_open());
}

/// A reset of a statement removes the data that was sent before it, and not what was sent behind it.
#[test]
fn data_sent_behind_a_reset_of_its_statement_outlives_its_answer() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
    let reset = written(|out| {
        write_payload(out, 0, &[&b"\x1a"[..], &own.to_le_bytes()].concat()).unwrap();
    });
    fixture.says(&[reset.clone(), long_data(own)].concat(), 3);
    fixture.hears(&ok(&OK));
    assert!(fixture.follow.is_open());
    fixture.says(&reset, 3);
    fixture.hears(&ok(&OK));
    assert!(!fixture.follow.is_open());
}

/// Data sent ahead of a statement that could not be prepared is missing: every execute fails until one was to take it.
#[test]
fn a_bulk_execute_of_a_failed_statement_leaves_the_error_of_its_data() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
    fixture.moves();
    fixture.follow.preparation_failed(own, refusal()[HEADER_BYTES..].to_vec());
    fixture.says(&long_data(own), 3);
    for command in [bulk(own, WITH_TYPES), execute(own, &[Param::Bytes(b"")])] {
        assert!(fixture.follow.is_open());
        assert_eq!(fixture.says(&command, 3).1, None, "it is not prepared");
    }
    assert!(!fixture.follow.is_open());
    assert_eq!(fixture.says(&execute(own, &[Param::Bytes(b"")]), 3).1, Some(own));
}

/// While its default database does not exist, a client's statements would be prepared again for the tables of another one.
#[test]
fn data_sent_without_the_default_database_make_the_execute_fail() {
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "INSERT INTO t VALUES (?)", 77, 1);
    fixture.moves();
    fixture.follow.database_refused(refusal()[HEADER_BYTES..].to_vec());
    assert_eq!(fixture.says(&long_data(own), 3).1, None, "it is not prepared");
    fixture.says(&query("USE other"), 1000);
    fixture.hears(&ok(&OK));
    assert!(!fixture.follow.has_no_database());
    let execute = execute(own, &[Param::Bytes(b"")]);
    assert_eq!(fixture.says(&execute, 3).1, None, "its data are missing");
    assert_eq!(fixture.says(&execute, 3).1, Some(own));
}
