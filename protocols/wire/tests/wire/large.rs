//! Messages of 16 MB and more, which take several packets.

use ciphertoll_wire::mysql::{
    Capabilities, Error, MySqlResponseReader, MySqlRowsReader, Response, ResponseKind, ResponseSummary, Row,
    command, packet::MAX_PART_BYTES, server,
};

use crate::fake_server::{Answer, OFFERED};

/// A driver's read size.
const PORTION_BYTES: usize = 1 << 16;
const LIMIT_BYTES: usize = 1 << 27;
/// The first byte and the eight bytes of a long cell's length.
const CELL_HEAD_BYTES: usize = 9;

/// Rows of lengths around the packet limit: one byte less, exactly, one byte more, and twice as long. The first fits in
/// one packet.
fn rows() -> Vec<Row> {
    let lengths = [
        MAX_PART_BYTES - 1 - CELL_HEAD_BYTES,
        MAX_PART_BYTES - CELL_HEAD_BYTES,
        MAX_PART_BYTES + 1 - CELL_HEAD_BYTES,
        2 * MAX_PART_BYTES - CELL_HEAD_BYTES,
        3,
    ];
    let cell = |length: usize| (0..length).map(|index| (index % 253) as u8).collect();
    lengths.into_iter().map(|length| vec![None, Some(cell(length))]).collect()
}

/// A response with these rows, each with a NULL before the long cell.
fn answer(capabilities: Capabilities, rows: &[Row]) -> Vec<u8> {
    let mut answer = Answer::new(capabilities);
    answer.result_set(rows, rows[0].len() as u8, 0);
    answer.bytes
}

/// Feeds portions and buffers unconsumed bytes. Returns the response and the largest size of the buffer.
fn portions<T>(
    bytes: &[u8],
    mut step: impl FnMut(&mut &[u8]) -> Result<Response<T>, Error>,
) -> (Result<T, Error>, usize) {
    let (mut received, mut most) = (Vec::new(), 0);
    for portion in bytes.chunks(PORTION_BYTES) {
        received.extend_from_slice(portion);
        let mut input = received.as_slice();
        let response = step(&mut input);
        let unread = input.len();
        received.drain(..received.len() - unread);
        most = most.max(unread);
        match response {
            Ok(Response::NeedInput) => {}
            Ok(Response::Done(done)) => return (Ok(done), most),
            Err(error) => return (Err(error), most),
        }
    }
    panic!("the response does not end");
}

#[test]
fn rows_over_several_packets_are_counted_and_not_held() {
    let rows = rows();
    let row_bytes = rows.iter().flatten().flatten().map(|cell| cell.len() as u64).sum::<u64>()
        + (rows.len() as u64 - 1) * (1 + CELL_HEAD_BYTES as u64)
        + 2;
    for capabilities in [OFFERED, OFFERED.without(Capabilities::DEPRECATE_EOF)] {
        let mut reader = MySqlResponseReader::new(ResponseKind::Text, capabilities);
        let bytes = answer(capabilities, &rows);
        let (summary, most_held) = portions(&bytes, |input| reader.step(input));
        let expected = ResponseSummary { rows: rows.len() as u64, affected_rows: 0, row_bytes };
        assert_eq!(summary, Ok(expected));
        assert!(most_held < 100, "{most_held}: rows are taken as they come");
        let mut whole = MySqlResponseReader::new(ResponseKind::Text, capabilities);
        assert_eq!(whole.step(&mut bytes.as_slice()), Ok(Response::Done(expected)));
    }
}

#[test]
fn rows_over_several_packets_are_collected() {
    let rows = rows();
    let bytes = answer(OFFERED, &rows);
    let mut reader = MySqlRowsReader::new(OFFERED, LIMIT_BYTES);
    let (collected, _) = portions(&bytes, |input| reader.step(input));
    assert!(collected.as_ref() == Ok(&rows));
    assert_eq!(
        MySqlRowsReader::new(OFFERED, LIMIT_BYTES).step(&mut bytes.as_slice()),
        Ok(Response::Done(rows))
    );
}

#[test]
fn a_first_cell_of_16_mb_is_not_the_end_of_rows() {
    // Its length begins with 0xfe, as the end does.
    let rows = vec![vec![Some(vec![b'x'; 1 << 24])]];
    for capabilities in [OFFERED, OFFERED.without(Capabilities::DEPRECATE_EOF)] {
        let bytes = answer(capabilities, &rows);
        let mut reader = MySqlRowsReader::new(capabilities, LIMIT_BYTES);
        let (collected, _) = portions(&bytes, |input| reader.step(input));
        assert!(collected == Ok(rows.clone()));
    }
}

#[test]
fn limits_apply_before_a_row_arrives() {
    let bytes = answer(OFFERED, &rows()[3..]);
    let limit = MAX_PART_BYTES + 1000;
    let mut reader = MySqlResponseReader::new(ResponseKind::Text, OFFERED).with_row_limit(limit);
    let (error, _) = portions(&bytes, |input| reader.step(input));
    // The second packet's header exceeds the limit.
    assert_eq!(error, Err(Error::PacketTooLarge { length: 2 * MAX_PART_BYTES, limit }));
    assert_eq!(reader.step(&mut &bytes[..]), Err(Error::NotReset));
    let mut reader = MySqlRowsReader::new(OFFERED, limit);
    let (error, _) = portions(&bytes, |input| reader.step(input));
    assert_eq!(error, Err(Error::ResultTooLarge { limit }));
    assert_eq!(reader.step(&mut &bytes[..]), Err(Error::NotReset));
    reader.reset();
    let mut short = Answer::new(OFFERED);
    short.result_set(&[vec![Some(b"1".to_vec())]], 1, 0);
    let rows = vec![vec![Some(b"1".to_vec())]];
    assert_eq!(reader.step(&mut short.bytes.as_slice()), Ok(Response::Done(rows)), "nothing of it is left");
}

#[test]
fn a_missing_packet_in_a_row_is_detected() {
    let mut bytes = answer(OFFERED, &rows()[3..]);
    let head = answer(OFFERED, &[vec![None, None]]).len();
    let second = bytes[..MAX_PART_BYTES + head].windows(4).rposition(|it| it[..3] == [0xff; 3]);
    bytes[second.expect("the second packet's header") + 3] ^= 1;
    let error = MySqlResponseReader::new(ResponseKind::Text, OFFERED).step(&mut bytes.as_slice());
    assert_eq!(error, Err(Error::Protocol { message: "row", reason: "a packet is missing or out of order" }));
}

#[test]
fn messages_other_than_rows_have_one_packet() {
    let error = Error::PacketTooLarge { length: MAX_PART_BYTES, limit: MAX_PART_BYTES - 1 };
    let mut reader = MySqlResponseReader::new(ResponseKind::Text, OFFERED);
    assert_eq!(reader.step(&mut &[0xff, 0xff, 0xff, 1][..]), Err(error.clone()));
    // An ERR in place of a row.
    let mut answer = Answer::new(OFFERED);
    answer.payload(&[1]).definitions(1);
    answer.bytes.extend_from_slice(&[0xff, 0xff, 0xff, 3, 0xff]);
    reader.reset();
    assert_eq!(reader.step(&mut answer.bytes.as_slice()), Err(error));
}

#[test]
fn a_command_of_16_mb_takes_two_packets() {
    let sql = "x".repeat(MAX_PART_BYTES - 1);
    let mut out = Vec::new();
    command::encode_query(&mut out, &sql).expect("it fits");
    assert_eq!(out.len(), 4 + MAX_PART_BYTES + 4);
    assert_eq!(out[..5], [0xff, 0xff, 0xff, 0, 3]);
    assert_eq!(out[4 + MAX_PART_BYTES..], [0, 0, 0, 1], "an empty packet ends it");
    let next = server::write_payload(&mut Vec::new(), 255, sql.as_bytes());
    assert_eq!(next, Ok(0), "one byte less fits in one packet");
}
