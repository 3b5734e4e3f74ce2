//! Messages, i.e. what surrounds documents.

use ciphertoll_wire::mongodb::Error;
use ciphertoll_wire::mongodb::bson::{RawBsonRef, rawdoc};
use ciphertoll_wire::mongodb::command::encode_insert;
use ciphertoll_wire::mongodb::document::to_json;
use ciphertoll_wire::mongodb::message::{
    CHECKSUM_PRESENT, MAX_MESSAGE_BYTES, MORE_TO_COME, OpMsg, take, write_command,
};

const LIMIT: usize = 1 << 16;
/// The client accepts replies with [`MORE_TO_COME`].
const EXHAUST_ALLOWED: u32 = 1 << 16;

fn ping() -> Vec<u8> {
    let mut out = Vec::new();
    write_command(&mut out, 7, rawdoc! { "ping": 1 }, "x").unwrap();
    out
}

fn read(bytes: &[u8]) -> Result<Option<OpMsg<'_>>, Error> {
    let mut input = bytes;
    take(&mut input, LIMIT)
}

fn reason(bytes: &[u8]) -> &'static str {
    match read(bytes) {
        Err(Error::Protocol { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

/// A message with another operation, flags and what follows them.
fn message(code: i32, flags: u32, rest: &[u8]) -> Vec<u8> {
    let length = 20 + rest.len() as u32;
    let numbers = [length, 7, 0, code as u32, flags];
    [numbers.map(u32::to_le_bytes).concat(), rest.to_vec()].concat()
}

fn section() -> Vec<u8> {
    ping()[20..].to_vec()
}

#[test]
fn a_command_matches_the_manual() {
    let expected = b"\x2f\0\0\0\x07\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x1a\0\0\0\
        \x10ping\0\x01\0\0\0\x02$db\0\x02\0\0\0x\0\0";
    assert_eq!(ping(), expected);
    let ping = ping();
    let message = read(&ping).unwrap().unwrap();
    assert_eq!((message.request_id, message.response_to, message.flags), (7, 0, 0));
    assert_eq!(message.body.get("ping").unwrap(), Some(RawBsonRef::Int32(1)));
    assert!(message.sequences.is_empty());
    for cut in 0..ping.len() {
        assert_eq!(read(&ping[..cut]), Ok(None));
    }
}

#[test]
fn sequences_are_read() {
    let documents = [b"\x05\0\0\0\0".as_slice(); 3].concat();
    let length = 4 + 10 + documents.len() as u32;
    let sequence = [&[1][..], &length.to_le_bytes(), b"documents\0", &documents].concat();
    let bytes = message(2013, EXHAUST_ALLOWED, &[sequence, section()].concat());
    let message = read(&bytes).unwrap().unwrap();
    let [sequence] = message.sequences.as_slice() else { panic!("{message:?}") };
    assert_eq!(sequence.identifier, b"documents");
    assert_eq!(sequence.documents().map(Result::unwrap).count(), 3);
}

#[test]
fn the_noop_compressor_is_read() {
    let mut rest = [2013_u32, section().len() as u32 + 4].map(u32::to_le_bytes).concat();
    rest.push(0);
    rest.extend([0; 4]);
    rest.extend(section());
    // These numbers take the place of the flags.
    let mut bytes = message(2012, 0, &rest[4..]);
    bytes[16..20].copy_from_slice(&rest[..4]);
    assert!(read(&bytes).unwrap().is_some());
    bytes[24] = 2;
    assert_eq!(read(&bytes), Err(Error::UnsupportedCompressor { compressor: 2 }));
    bytes[24] = 0;
    bytes[20] ^= 1;
    assert_eq!(reason(&bytes), "a compressed message whose lengths disagree");
}

#[test]
fn checksums_are_checked() {
    let mut bytes = message(2013, CHECKSUM_PRESENT, &[section(), vec![0; 4]].concat());
    assert_eq!(reason(&bytes), "a wrong checksum");
    let checksum = crc32c(&bytes[..bytes.len() - 4]);
    let end = bytes.len() - 4;
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    assert!(read(&bytes).unwrap().is_some());
}

fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[test]
fn broken_frames_are_refused() {
    assert_eq!(reason(b"\x0f\0\0\0"), "an impossible length");
    assert_eq!(reason(b"\xff\xff\xff\xff"), "an impossible length");
    assert_eq!(reason(&message(1, 0, &section())), "neither OP_MSG nor OP_COMPRESSED");
    assert_eq!(reason(&message(2013, 1 << 2, &section())), "an unknown flag that must be understood");
    assert!(read(&message(2013, 1 << 17 | MORE_TO_COME, &section())).unwrap().is_some());
    assert_eq!(reason(&message(2013, 0, b"")), "no body");
    assert_eq!(reason(&message(2013, 0, &[section(), section()].concat())), "two bodies");
    assert_eq!(reason(&message(2013, 0, b"\x02")), "a section of an unknown kind");
    assert_eq!(reason(&message(2013, 0, b"\x01\xff\0\0\0x\0")), "a section with an impossible length");
    assert_eq!(reason(&message(2013, 0, b"\x01\x05\0\0\0x")), "a section without a name");
    assert_eq!(reason(&message(2013, 0, b"\x01\0")), "it is truncated");
    // Detected before the message arrives.
    let length = LIMIT as u32 + 1;
    assert_eq!(read(&length.to_le_bytes()), Err(Error::MessageTooLarge { length: LIMIT + 1, limit: LIMIT }));
}

#[test]
fn a_too_long_message_appends_nothing() {
    let mut out = b"before".to_vec();
    let text = "x".repeat(MAX_MESSAGE_BYTES);
    let written = write_command(&mut out, 1, rawdoc! { "x": text }, "test");
    assert!(matches!(written, Err(Error::MessageTooLarge { limit: MAX_MESSAGE_BYTES, .. })));
    assert_eq!(out, b"before");
}

#[test]
fn inserted_documents_are_a_sequence() {
    let mut documents = Vec::new();
    for number in [1, 2] {
        documents.extend_from_slice(rawdoc! { "_id": number }.as_bytes());
    }
    let mut out = Vec::new();
    encode_insert(&mut out, 7, "bank", "accounts", &documents).unwrap();
    let message = read(&out).unwrap().unwrap();
    assert_eq!(to_json(message.body).unwrap(), r#"{"insert":"accounts","ordered":false,"$db":"bank"}"#);
    let [sequence] = message.sequences[..] else { panic!("{message:?}") };
    assert_eq!(sequence.identifier, b"documents");
    let ids: Vec<_> = sequence.documents().map(|document| document.unwrap().get("_id").unwrap()).collect();
    assert_eq!(ids, [1, 2].map(|number| Some(RawBsonRef::Int32(number))));
    let too_long = vec![0; MAX_MESSAGE_BYTES];
    let refused = encode_insert(&mut out.clone(), 7, "bank", "accounts", &too_long);
    assert!(matches!(refused, Err(Error::MessageTooLarge { .. })));
}
