//! Responses to commands: counted, collected and refused.

use ciphertoll_wire::mysql::{
    Capabilities, Error, MySqlPrepareReader, MySqlResponseReader, MySqlRowsReader, PrepareOk, Response,
    ResponseKind, ResponseSummary, Row, ok::OkPacket,
};
use proptest::prelude::*;

use crate::{
    chunks::feed,
    fake_server::{Answer, OFFERED},
};

const MORE_RESULTS: u16 = 8;
const LIMIT_BYTES: usize = 1 << 20;

fn eof_variants() -> [Capabilities; 2] {
    [OFFERED, OFFERED.without(Capabilities::DEPRECATE_EOF)]
}

fn count(capabilities: Capabilities, bytes: &[u8]) -> Result<Response, Error> {
    MySqlResponseReader::new(ResponseKind::Text, capabilities).step(&mut &*bytes)
}

fn rows(columns: usize) -> impl Strategy<Value = Vec<Row>> {
    let cell = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
    prop::collection::vec(prop::collection::vec(cell, columns), 0..8)
}

proptest! {
    #[test]
    fn any_portions_give_the_same_rows_and_counts(
        first in rows(3), second in rows(1), sizes in prop::collection::vec(1..40_usize, 1..20), dialect in 0..2_usize,
    ) {
        let capabilities = eof_variants()[dialect];
        let mut answer = Answer::new(capabilities);
        answer.result_set(&first, 3, MORE_RESULTS).result_set(&second, 1, MORE_RESULTS);
        answer.ok(&OkPacket { affected_rows: 7, ..OkPacket::default() });
        let bytes = [answer.bytes.as_slice(), b"next"].concat();

        let mut counter = MySqlResponseReader::new(ResponseKind::Text, capabilities);
        let (summary, left) = feed(&bytes, &sizes, |input| match counter.step(input).unwrap() {
            Response::NeedInput => None,
            Response::Done(summary) => Some(summary),
        });
        let summary = summary.unwrap();
        prop_assert_eq!(&left, b"next");
        prop_assert_eq!((summary.rows, summary.affected_rows), ((first.len() + second.len()) as u64, 7));

        let mut collector = MySqlRowsReader::new(capabilities, LIMIT_BYTES);
        let (collected, left) = feed(&bytes, &sizes, |input| match collector.step(input).unwrap() {
            Response::NeedInput => None,
            Response::Done(rows) => Some(rows),
        });
        prop_assert_eq!(&left, b"next");
        prop_assert_eq!(collected.unwrap(), [first, second].concat());
    }

    #[test]
    fn any_portions_give_the_same_statement(
        params in 0..5_u16, columns in 0..5_u16, size in 1..50_usize, dialect in 0..2_usize,
    ) {
        let capabilities = eof_variants()[dialect];
        let prepared = PrepareOk { statement_id: 9, params, columns, warnings: 0 };
        let mut payload = Vec::new();
        prepared.encode(&mut payload);
        let mut answer = Answer::new(capabilities);
        answer.payload(&payload).definitions(params as u8).definitions(columns as u8);
        let bytes = [answer.bytes.as_slice(), b"next"].concat();
        let mut reader = MySqlPrepareReader::new(capabilities);
        let (read, left) = feed(&bytes, &[size], |input| match reader.step(input).unwrap() {
            Response::NeedInput => None,
            Response::Done(prepared) => Some(prepared),
        });
        prop_assert_eq!(&left, b"next");
        prop_assert_eq!(read, Some(prepared));
    }
}

#[test]
fn a_reader_is_reusable_after_reset() {
    let mut answer = Answer::new(OFFERED);
    answer.result_set(&[vec![Some(b"1".to_vec())]], 1, 2);
    let mut reader = MySqlResponseReader::new(ResponseKind::Text, OFFERED);
    let done = Response::Done(ResponseSummary { rows: 1, affected_rows: 0, row_bytes: 2 });
    for _ in 0..3 {
        assert_eq!(reader.step(&mut answer.bytes.as_slice()).as_ref(), Ok(&done));
        assert_eq!(reader.step(&mut &b"left alone"[..]).as_ref(), Ok(&done), "it has ended");
        reader.reset();
    }
}

#[test]
fn an_error_anywhere_ends_the_response() {
    let err = b"\xff\x15\x05#70100Query execution was interrupted";
    for capabilities in eof_variants() {
        let mut at_once = Answer::new(capabilities);
        at_once.payload(err);
        let mut in_definitions = Answer::new(capabilities);
        in_definitions.payload(&[1]).payload(err);
        let mut in_rows = Answer::new(capabilities);
        in_rows.payload(&[1]).definitions(1).payload(b"\x01a").payload(err);
        for answer in [at_once, in_definitions, in_rows] {
            let mut reader = MySqlResponseReader::new(ResponseKind::Text, capabilities);
            let mut input = answer.bytes.as_slice();
            let error = reader.step(&mut input).unwrap_err();
            assert!(matches!(&error, Error::Server { code: 1301, sql_state, .. } if sql_state == "70100"));
            assert!(input.is_empty(), "the connection awaits a command");
            assert_eq!(reader.step(&mut input), Err(Error::NotReset));
            reader.reset();
            assert_eq!(reader.step(&mut input), Ok(Response::NeedInput));
        }
    }
}

#[test]
fn an_err_may_have_any_sequence_number() {
    // MariaDB and MySQL number the ERR of a shutdown or timeout from zero.
    let bytes = b"\x05\0\0\0\xff\x1d\x04up";
    assert!(matches!(count(OFFERED, bytes), Err(Error::Server { code: 1053, .. })));
}

#[test]
fn impossible_responses_are_refused() {
    for payload in [
        &b""[..],
        b"\x00",                                     // a truncated OK
        b"\xfb/etc/passwd",                          // a file request
        b"\xfe",                                     // an EOF at the start of a response
        b"\x01\x00",                                 // a column count followed by more bytes
        b"\xfc\x00\x00",                             // no columns
        b"\xfd\x00\x00\x01",                         // 65536 columns
        b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff",     // more columns than bytes in the world
        b"\x00\xfe\xff\xff\xff\xff\xff\xff\xff\xff", // an OK truncated after a long number
    ] {
        let mut answer = Answer::new(OFFERED);
        answer.payload(payload);
        let error = count(OFFERED, &answer.bytes).unwrap_err();
        assert!(matches!(error, Error::Protocol { .. }), "{payload:?}: {error}");
    }
}

#[test]
fn rows_end_only_in_a_short_eof() {
    let capabilities = OFFERED.without(Capabilities::DEPRECATE_EOF);
    let mut answer = Answer::new(capabilities);
    // A cell's eight-byte length in a row that is too short to need one.
    answer.payload(&[1]).definitions(1).payload(b"\xfe\x01\0\0\0\0\0\0\0a");
    let error = count(capabilities, &answer.bytes).unwrap_err();
    assert!(matches!(error, Error::Protocol { message: "EOF", .. }), "{error}");
}

#[test]
fn a_call_ends_in_an_ok_after_its_results() {
    for capabilities in eof_variants() {
        let mut answer = Answer::new(capabilities);
        let more = OkPacket { affected_rows: 2, status: MORE_RESULTS, ..OkPacket::default() };
        let row = vec![vec![Some(b"1".to_vec())]];
        answer.ok(&more).result_set(&row, 1, MORE_RESULTS).ok(&more).result_set(&row, 1, MORE_RESULTS);
        answer.ok(&OkPacket { status: 0, ..more });
        let expected = ResponseSummary { rows: 2, affected_rows: 6, row_bytes: 4 };
        assert_eq!(count(capabilities, &answer.bytes), Ok(Response::Done(expected)));
        let rows = MySqlRowsReader::new(capabilities, LIMIT_BYTES).step(&mut answer.bytes.as_slice());
        assert_eq!(rows, Ok(Response::Done([row.clone(), row].concat())));
    }
}

#[test]
fn impossible_rows_are_refused() {
    for row in [&b""[..], b"\x01", b"\x01ab", b"\xfc\xff\xff", b"\xfb\xfb"] {
        let mut answer = Answer::new(OFFERED);
        answer.payload(&[1]).definitions(1).payload(row);
        let error =
            MySqlRowsReader::new(OFFERED, LIMIT_BYTES).step(&mut answer.bytes.as_slice()).unwrap_err();
        assert!(matches!(error, Error::Protocol { message: "row", .. }), "{row:?}: {error}");
    }
    let mut answer = Answer::new(OFFERED);
    answer.payload(&[1]).definitions(1).payload(b"\x01a");
    let mut reader = MySqlResponseReader::new(ResponseKind::Binary, OFFERED);
    assert!(matches!(reader.step(&mut answer.bytes.as_slice()), Err(Error::Protocol { message: "row", .. })));
}

#[test]
fn affected_rows_do_not_overflow() {
    let mut answer = Answer::new(OFFERED);
    let most = OkPacket { affected_rows: u64::MAX, status: MORE_RESULTS, ..OkPacket::default() };
    answer.ok(&most).ok(&OkPacket { status: 0, ..most });
    let response = count(OFFERED, &answer.bytes);
    assert!(matches!(response, Ok(Response::Done(ResponseSummary { affected_rows: u64::MAX, .. }))));
}

#[test]
fn collected_rows_are_bounded() {
    let mut answer = Answer::new(OFFERED);
    let rows = vec![vec![None; 100]; 20];
    answer.result_set(&rows, 100, 0);
    // 100 bytes on the wire, but 100 vectors in memory.
    let mut reader = MySqlRowsReader::new(OFFERED, 20_000);
    let mut input = answer.bytes.as_slice();
    assert_eq!(reader.step(&mut input), Err(Error::ResultTooLarge { limit: 20_000 }));
    assert_eq!(reader.step(&mut input), Err(Error::NotReset), "the rest is not taken for a result");
}
