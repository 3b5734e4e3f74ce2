//! Responses to commands: counted, collected and refused.

use ciphertoll_wire::postgres::column::encode_parameter_description;
use ciphertoll_wire::postgres::server::{self, Field, Report};
use ciphertoll_wire::postgres::{
    Column, Error, ExchangeSummary, Fault, Notice, PostgresPrepareReader, PostgresResponseReader,
    PostgresRowsReader, Response, Row, Severity, StatementDescription, TransactionStatus,
};
use proptest::prelude::*;

use crate::chunks::feed;

pub(crate) const LIMIT_BYTES: usize = 1 << 20;

/// Writes a server's response.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
}

impl Answer {
    pub(crate) fn rows(mut self, rows: &[Row]) -> Self {
        server::write_row_description(&mut self.bytes, &[Field::text(b"c")]).unwrap();
        for row in rows {
            let cells: Vec<Option<&[u8]>> = row.iter().map(Option::as_deref).collect();
            server::write_data_row(&mut self.bytes, &cells).unwrap();
        }
        self.complete(&format!("SELECT {}", rows.len()))
    }

    pub(crate) fn complete(mut self, tag: &str) -> Self {
        server::write_command_complete(&mut self.bytes, tag.as_bytes()).unwrap();
        self
    }

    pub(crate) fn message(mut self, kind: u8, payload: &[u8]) -> Self {
        server::write_message(&mut self.bytes, kind, payload).unwrap();
        self
    }

    pub(crate) fn notice(mut self) -> Self {
        let report = Report { severity: Severity::Warning, sqlstate: *b"01000", message: b"mind\x07 it" };
        server::write_notice(&mut self.bytes, &report).unwrap();
        server::write_message(&mut self.bytes, b'A', b"\0\0\0\x07channel\0payload\0").unwrap();
        server::write_parameter_status(&mut self.bytes, b"TimeZone", b"UTC").unwrap();
        self
    }

    pub(crate) fn error(mut self, severity: Severity, sqlstate: [u8; 5]) -> Self {
        let report = Report { severity, sqlstate, message: b"no" };
        server::write_error(&mut self.bytes, &report).unwrap();
        self
    }

    pub(crate) fn ready(self) -> Self {
        self.ready_in(TransactionStatus::Idle)
    }

    pub(crate) fn ready_in(mut self, status: TransactionStatus) -> Self {
        server::write_ready_for_query(&mut self.bytes, status);
        self
    }
}

fn answer() -> Answer {
    Answer::default()
}

/// Converts a step's result for [`feed`].
pub(crate) fn end<T>(step: Result<Response<T>, Error>) -> Option<Result<T, Error>> {
    match step {
        Ok(Response::NeedInput) => None,
        Ok(Response::Done(done)) => Some(Ok(done)),
        Err(error) => Some(Err(error)),
    }
}

fn count(bytes: &[u8]) -> Result<Response<ExchangeSummary>, Error> {
    PostgresResponseReader::new().step(&mut &*bytes)
}

fn refused(severity: Severity, sqlstate: &str) -> Error {
    Error::Server { severity, sqlstate: sqlstate.to_owned(), message: "no".to_owned() }
}

fn rows(columns: usize) -> impl Strategy<Value = Vec<Row>> {
    let cell = prop::option::of(prop::collection::vec(any::<u8>(), 0..20));
    prop::collection::vec(prop::collection::vec(cell, columns), 0..8)
}

/// The payload bytes of a row: a count, and a length before each cell.
fn row_bytes(rows: &[Row]) -> u64 {
    rows.iter()
        .map(|row| 2 + row.iter().map(|cell| 4 + cell.iter().flatten().count() as u64).sum::<u64>())
        .sum()
}

proptest! {
    #[test]
    fn any_portions_give_the_same_rows_and_counts(
        first in rows(3), second in rows(1), sizes in prop::collection::vec(1..40_usize, 1..20),
    ) {
        let answer = answer().rows(&first).notice().rows(&second).complete("UPDATE 7");
        let bytes = [answer.ready_in(TransactionStatus::InTransaction).bytes.as_slice(), b"next"].concat();

        let mut counter = PostgresResponseReader::new();
        let (summary, left) = feed(&bytes, &sizes, |input| end(counter.step(input)));
        prop_assert_eq!(&left, b"next");
        let all = [first, second].concat();
        let expected = ExchangeSummary {
            rows: all.len() as u64,
            affected_rows: 7,
            row_bytes: row_bytes(&all),
            notices: 1,
            transaction: TransactionStatus::InTransaction,
        };
        prop_assert_eq!(summary, Some(Ok(expected)));

        let mut collector = PostgresRowsReader::new(LIMIT_BYTES);
        let (collected, left) = feed(&bytes, &sizes, |input| end(collector.step(input)));
        prop_assert_eq!(&left, b"next");
        prop_assert_eq!(collected, Some(Ok(all)));
        let message = "mind\u{fffd} it".to_owned();
        let notice = Notice { severity: Severity::Warning, sqlstate: "01000".to_owned(), message };
        prop_assert_eq!(collector.notices(), &[notice]);
    }

    #[test]
    fn any_portions_give_the_same_statement(
        types in prop::collection::vec(any::<u32>(), 0..5), names in prop::collection::vec("[a-z]{0,9}", 0..5),
        size in 1..50_usize,
    ) {
        let mut answer = answer();
        server::write_message(&mut answer.bytes, b'1', b"").unwrap();
        let mut payload = Vec::new();
        encode_parameter_description(&mut payload, &types);
        server::write_message(&mut answer.bytes, b't', &payload).unwrap();
        if names.is_empty() {
            server::write_message(&mut answer.bytes, b'n', b"").unwrap();
        } else {
            let fields: Vec<Field<'_>> = names.iter().map(|name| Field::text(name.as_bytes())).collect();
            server::write_row_description(&mut answer.bytes, &fields).unwrap();
        }
        let bytes = [answer.notice().ready().bytes.as_slice(), b"next"].concat();
        let mut reader = PostgresPrepareReader::new();
        let (read, left) = feed(&bytes, &[size], |input| end(reader.step(input)));
        prop_assert_eq!(&left, b"next");
        let column = |name: String| Column { name: name.into_bytes(), type_oid: 25 };
        let columns = names.into_iter().map(column).collect();
        prop_assert_eq!(read, Some(Ok(StatementDescription { parameter_types: types, columns })));
    }
}

#[test]
fn a_reader_is_reusable_after_reset() {
    let bytes = answer().rows(&[vec![Some(b"1".to_vec())]]).ready().bytes;
    let mut reader = PostgresResponseReader::new();
    let done = Response::Done(ExchangeSummary { rows: 1, row_bytes: 7, ..ExchangeSummary::default() });
    for _ in 0..3 {
        assert_eq!(reader.step(&mut bytes.as_slice()).as_ref(), Ok(&done));
        assert_eq!(reader.step(&mut &b"left alone"[..]).as_ref(), Ok(&done), "it has ended");
        reader.reset();
    }
}

#[test]
fn every_message_of_an_extended_query_is_read() {
    let mut answer = answer();
    server::write_message(&mut answer.bytes, b'1', b"").unwrap();
    server::write_message(&mut answer.bytes, b'2', b"").unwrap();
    server::write_message(&mut answer.bytes, b'n', b"").unwrap();
    server::write_data_row(&mut answer.bytes, &[None]).unwrap();
    server::write_message(&mut answer.bytes, b's', b"").unwrap();
    server::write_message(&mut answer.bytes, b'I', b"").unwrap();
    server::write_message(&mut answer.bytes, b'3', b"").unwrap();
    let response = count(&answer.ready().bytes);
    assert!(
        matches!(response, Ok(Response::Done(ExchangeSummary { rows: 1, row_bytes: 6, .. }))),
        "{response:?}"
    );
}

#[test]
fn a_row_is_skipped_as_it_arrives() {
    let huge = 1_u32 << 30;
    let mut bytes = vec![b'D'];
    bytes.extend_from_slice(&huge.to_be_bytes());
    let mut reader = PostgresResponseReader::new();
    assert_eq!(reader.step(&mut bytes.as_slice()), Ok(Response::NeedInput));
    let portion = vec![0; 1 << 20];
    let mut left = huge as usize - 4;
    while left > 0 {
        let portion = &portion[..left.min(portion.len())];
        left -= portion.len();
        let mut input = portion;
        assert_eq!(reader.step(&mut input), Ok(Response::NeedInput));
        assert!(input.is_empty(), "nothing needs to be kept");
    }
    let end = answer().complete("SELECT 1").ready().bytes;
    let expected = ExchangeSummary { rows: 1, row_bytes: u64::from(huge) - 4, ..ExchangeSummary::default() };
    assert_eq!(reader.step(&mut end.as_slice()), Ok(Response::Done(expected)));
}

#[test]
fn an_error_is_returned_at_the_end_of_the_response() {
    let refused = refused(Severity::Error, "57014");
    let error = |answer: Answer| answer.error(Severity::Error, *b"57014").notice();
    for start in [error(answer()), error(answer().rows(&[vec![None]])), error(answer().complete("UPDATE 1"))]
    {
        let without_end = start.bytes.len();
        let bytes = start.ready_in(TransactionStatus::Failed).bytes;
        for size in [1, 2, 10, bytes.len()] {
            let mut reader = PostgresResponseReader::new();
            let (end, left) =
                feed(&[&bytes, &b"next"[..]].concat(), &[size], |input| end(reader.step(input)));
            assert_eq!((end, left.as_slice()), (Some(Err(refused.clone())), &b"next"[..]));
            assert_eq!(reader.step(&mut &b""[..]), Err(Error::NotReset));
            reader.reset();
            assert_eq!(reader.step(&mut &bytes[..without_end]), Ok(Response::NeedInput));
        }
        assert_eq!(PostgresRowsReader::new(LIMIT_BYTES).step(&mut bytes.as_slice()), Err(refused.clone()));
    }
    let bytes = error(answer()).ready().bytes;
    assert_eq!(PostgresPrepareReader::new().step(&mut bytes.as_slice()), Err(refused));
}

#[test]
fn an_error_that_ends_the_session_does_not_wait_for_more() {
    for severity in [Severity::Fatal, Severity::Panic] {
        let alone = answer().error(severity, *b"57P01").bytes;
        assert_eq!(count(&alone), Err(refused(severity, "57P01")));
        let second = answer().error(Severity::Error, *b"57014").error(severity, *b"57P01").bytes;
        assert_eq!(count(&second), Err(refused(severity, "57P01")));
    }
}

#[test]
fn messages_out_of_order_are_refused() {
    let wrong = |reader: Answer| count(&reader.bytes).unwrap_err();
    for answer in [
        answer().message(b'R', &[0; 4]),
        answer().message(b'K', &[0; 8]),
        answer().message(b'W', &[0; 3]),
        answer().message(b'V', &[0; 4]),
        answer().message(b'\0', b""),
        answer().message(b'd', b"no COPY"),
        answer().message(b'c', b""),
        answer().message(b'D', b"\0"),
        answer().message(b'Z', b""),
        answer().message(b'Z', b"?"),
        answer().message(b'C', b"no end"),
        answer().message(b'E', b"no end"),
        answer().message(b'E', b"C42\0\0"),
        answer().message(b'E', b"\0\0"),
        answer().error(Severity::Error, *b"42601").complete("SELECT 1"),
        answer().error(Severity::Error, *b"42601").rows(&[]),
    ] {
        let error = wrong(answer);
        assert!(matches!(error, Error::Protocol { .. }), "{error:?}");
        assert_eq!(error.fault(), Fault::Peer);
    }
    assert!(matches!(count(b"C\0\0\0\x03"), Err(Error::Protocol { .. })));
    let never_parsed = answer().ready().bytes;
    let error = PostgresPrepareReader::new().step(&mut never_parsed.as_slice());
    assert!(matches!(error, Err(Error::Protocol { message: "response to Parse", .. })), "{error:?}");
}

#[test]
fn impossible_rows_are_refused() {
    for row in
        [&b"\0\x01"[..], b"\0\x01\0\0\0\x02a", b"\0\0a", b"\0\x01\xff\xff\xff\xfe", b"\0\x01\x7f\xff\xff\xff"]
    {
        let bytes = answer().message(b'D', row).bytes;
        let error = PostgresRowsReader::new(10_000).step(&mut bytes.as_slice()).unwrap_err();
        assert!(matches!(error, Error::Protocol { message: "row", .. }), "{row:?}: {error}");
    }
}

#[test]
fn impossible_descriptions_are_refused() {
    let parsed = |kind, payload: &[u8]| {
        let bytes = answer().message(b'1', b"").message(kind, payload).bytes;
        PostgresPrepareReader::new().step(&mut bytes.as_slice())
    };
    for (kind, payload) in [
        (b't', &b"\0\x01"[..]),
        (b't', b"\0\0\0"),
        (b't', b"\xff\xff\0\0\0\0"),
        (b'T', b"\0\x01a"),
        (b'T', b"\0\x01a\0\0\0\0\0\0\0\0\0\0\x19\xff\xff\xff\xff\xff\xff\0\x02"),
        (b'D', b"\0\0"),
        (b'C', b"SELECT 1\0"),
    ] {
        let error = parsed(kind, payload);
        assert!(error.is_err(), "{kind}: {error:?}");
    }
}

#[test]
fn collected_rows_are_bounded() {
    let bytes = answer().rows(&vec![vec![None; 100]; 20]).ready().bytes;
    let mut reader = PostgresRowsReader::new(20_000);
    let mut input = bytes.as_slice();
    assert_eq!(reader.step(&mut input), Err(Error::ResultTooLarge { limit: 20_000 }));
    assert_eq!(reader.step(&mut input), Err(Error::NotReset), "the rest is not taken for a result");
    let announced = b"D\x7f\xff\xff\xff\0\x01";
    let error = PostgresRowsReader::new(20_000).step(&mut &announced[..]);
    assert_eq!(error, Err(Error::ResultTooLarge { limit: 20_000 }), "before it is here");
    // Many empty cells take memory, too.
    let many = answer().message(b'D', &[0xff; 2]).bytes;
    assert_eq!(
        PostgresRowsReader::new(20_000).step(&mut many.as_slice()),
        Err(Error::ResultTooLarge { limit: 20_000 })
    );
}

#[test]
fn kept_notices_are_bounded() {
    let mut all = answer();
    for _ in 0..100 {
        all = all.notice();
    }
    let bytes = all.ready().bytes;
    let mut reader = PostgresRowsReader::new(LIMIT_BYTES);
    assert_eq!(reader.step(&mut bytes.as_slice()), Ok(Response::Done(Vec::new())));
    assert_eq!(reader.notices().len(), 32);
}

#[test]
fn large_messages_are_refused_before_they_arrive() {
    let limit = 1 << 24;
    let error = Error::MessageTooLarge { length: 0x7fff_fffb, limit };
    assert_eq!(count(b"E\x7f\xff\xff\xff"), Err(error.clone()));
    assert_eq!(PostgresPrepareReader::new().step(&mut &b"T\x7f\xff\xff\xff"[..]), Err(error));
}

#[test]
fn affected_rows_do_not_overflow() {
    let bytes = answer().complete(&format!("UPDATE {}", u64::MAX)).complete("DELETE 1").ready().bytes;
    assert!(matches!(count(&bytes), Ok(Response::Done(ExchangeSummary { affected_rows: u64::MAX, .. }))));
}
