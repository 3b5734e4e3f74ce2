//! COPY in both directions, and statements that are not COPY.

use ciphertoll_wire::postgres::{
    CopyInReader, CopyStart, Error, ExchangeSummary, PostgresResponseReader, PostgresRowsReader, Response,
    Severity, ValueFormat, server,
};
use proptest::prelude::*;

use crate::{
    answers::{Answer, LIMIT_BYTES, end},
    chunks::feed,
};

const START: CopyStart = CopyStart { format: ValueFormat::Text, columns: 2 };

fn copy_in() -> Answer {
    let mut answer = Answer::default();
    server::write_copy_in_response(&mut answer.bytes, &START).unwrap();
    answer
}

fn copy_out(messages: &[Vec<u8>]) -> Answer {
    let mut answer = Answer::default();
    let mut start = Vec::new();
    START.encode(&mut start);
    server::write_message(&mut answer.bytes, b'H', &start).unwrap();
    for data in messages {
        server::write_message(&mut answer.bytes, b'd', data).unwrap();
    }
    answer
}

proptest! {
    #[test]
    fn data_are_counted(
        messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..30), 0..8), size in 1..40_usize,
    ) {
        let mut answer = copy_out(&messages).notice();
        server::write_message(&mut answer.bytes, b'c', b"").unwrap();
        let bytes = [answer.complete("COPY 5").ready().bytes.as_slice(), b"next"].concat();
        let expected = ExchangeSummary {
            rows: messages.len() as u64,
            row_bytes: messages.concat().len() as u64,
            notices: 1,
            ..ExchangeSummary::default()
        };
        let mut counter = PostgresResponseReader::new();
        let (summary, left) = feed(&bytes, &[size], |input| end(counter.step(input)));
        prop_assert_eq!((summary, left.as_slice()), (Some(Ok(expected)), &b"next"[..]));
        let rows = PostgresRowsReader::new(LIMIT_BYTES).step(&mut bytes.as_slice());
        prop_assert_eq!(rows, Ok(Response::Done(Vec::new())), "they are not rows");
    }
}

#[test]
fn a_server_waits_for_data() {
    let bytes = copy_in().notice().bytes;
    let (start, left) = feed(&bytes, &[1], {
        let mut reader = CopyInReader::new();
        move |input| end(reader.step(input))
    });
    assert_eq!(start, Some(Ok(START)));
    // The rest is for the next reader: the notices, then the end.
    let later = [left, Answer::default().complete("COPY 2").ready().bytes].concat();
    let Ok(Response::Done(summary)) = PostgresResponseReader::new().step(&mut later.as_slice()) else {
        panic!("it is complete");
    };
    assert_eq!((summary.affected_rows, summary.rows), (2, 0));
}

#[test]
fn an_error_before_or_during_the_data() {
    let bytes = Answer::default().error(Severity::Error, *b"42P01").ready().bytes;
    let error = CopyInReader::new().step(&mut bytes.as_slice());
    assert!(matches!(error, Err(Error::Server { .. })), "{error:?}");
    let bytes = copy_out(&[b"1".to_vec()]).error(Severity::Error, *b"57014").ready().bytes;
    let mut input = bytes.as_slice();
    let error = PostgresResponseReader::new().step(&mut input);
    assert!(matches!(error, Err(Error::Server { .. })), "{error:?}");
    assert!(input.is_empty(), "the connection awaits a command");
}

#[test]
fn a_statement_that_is_not_a_copy_is_read_to_its_end() {
    let bytes = Answer::default().rows(&[vec![None]]).ready().bytes;
    let mut input = bytes.as_slice();
    let mut reader = CopyInReader::new();
    assert_eq!(reader.step(&mut input), Err(Error::NotACopy));
    assert!(input.is_empty(), "the connection awaits a command");
    assert_eq!(reader.step(&mut input), Err(Error::NotReset));
    reader.reset();
    assert_eq!(reader.step(&mut copy_in().bytes.as_slice()), Ok(Response::Done(START)));
}

#[test]
fn an_unexpected_copy_from_stdin_is_an_error() {
    let bytes = copy_in().bytes;
    assert_eq!(PostgresResponseReader::new().step(&mut bytes.as_slice()), Err(Error::CopyNotExpected));
    assert_eq!(PostgresRowsReader::new(LIMIT_BYTES).step(&mut bytes.as_slice()), Err(Error::CopyNotExpected));
}

#[test]
fn impossible_copies_are_refused() {
    for payload in [&b""[..], b"\x02\0\0", b"\0\0\x01", b"\0\0\x01\0\0\0", b"\0\xff\xff\0\0"] {
        let bytes = Answer::default().message(b'G', payload).bytes;
        let mut reader = CopyInReader::new();
        let error = reader.step(&mut bytes.as_slice());
        assert!(matches!(error, Err(Error::Protocol { message: "start of a COPY", .. })), "{payload:?}");
        assert_eq!(reader.step(&mut bytes.as_slice()), Err(Error::NotReset));
    }
    for answer in [
        copy_out(&[]).complete("COPY 0"),
        copy_out(&[]).ready(),
        copy_out(&[]).rows(&[]),
        copy_out(&[]).message(b'c', b"").ready(),
        copy_out(&[]).message(b'c', b"").message(b'd', b"more"),
    ] {
        let error = PostgresResponseReader::new().step(&mut answer.bytes.as_slice());
        assert!(matches!(error, Err(Error::Protocol { .. })), "{error:?}");
    }
}
