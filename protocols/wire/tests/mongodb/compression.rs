//! Compressed messages: test vectors made with zlib, whole sessions, and refused messages.

use std::sync::Arc;

use ciphertoll_wire::Secret;
use ciphertoll_wire::mongodb::bson::{RawDocument, rawdoc};
use ciphertoll_wire::mongodb::compression::may_be_compressed;
use ciphertoll_wire::mongodb::document::as_i64;
use ciphertoll_wire::mongodb::message::{MAX_LOGIN_MESSAGE_BYTES, take, take_inflated, write_command};
use ciphertoll_wire::mongodb::{
    CommandTemplate, Compressor, Error, Inflater, Mechanism, MongoDbConnect, MongoDbLogin,
};
use ciphertoll_wire::scram::Digest;
use ciphertoll_wire::session::{self, Response, ResponseKind};
use proptest::prelude::*;

use crate::fake_server::{FakeServer, PASSWORD, USER, join};

const LIMIT: usize = 1 << 16;
/// The flags and the section of `{"ping": 1}`, by zlib itself.
const PING: [u8; 22] = [
    0x78, 0x9c, 0x63, 0x60, 0x00, 0x02, 0x7e, 0x20, 0x16, 0x28, 0xc8, 0xcc, 0x4b, 0x67, 0x60, 0x04, 0x71,
    0x01, 0x0f, 0xfc, 0x01, 0xcf,
];
const PING_BYTES: u32 = 20;

/// A compressed message with this compressor, original operation and uncompressed length.
fn compressed(code: u32, length: u32, compressor: u8, content: &[u8]) -> Vec<u8> {
    let numbers = [25 + content.len() as u32, 7, 0, 2012, code, length];
    [&numbers.map(u32::to_le_bytes).concat()[..], &[compressor], content].concat()
}

fn inflated(bytes: &[u8], limit: usize) -> Result<Option<i64>, Error> {
    let mut inflater = Inflater::of(Some(Compressor::Zlib));
    let message = take_inflated(&mut &*bytes, limit, &mut inflater)?;
    Ok(message.map(|message| message.body.get("ping").unwrap().and_then(as_i64).unwrap()))
}

fn reason(bytes: &[u8]) -> &'static str {
    match inflated(bytes, LIMIT) {
        Err(Error::Protocol { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[test]
fn output_of_zlib_is_read() {
    let bytes = compressed(2013, PING_BYTES, 2, &PING);
    assert_eq!(inflated(&bytes, LIMIT), Ok(Some(1)));
    (0..bytes.len()).for_each(|end| assert_eq!(inflated(&bytes[..end], LIMIT), Ok(None), "{end}"));
    // One after the other, in the same buffer.
    let two = [bytes.clone(), bytes].concat();
    let (mut input, mut inflater) = (two.as_slice(), Inflater::of(Some(Compressor::Zlib)));
    for _ in 0..2 {
        let message = take_inflated(&mut input, LIMIT, &mut inflater).unwrap().unwrap();
        assert_eq!((message.request_id, message.response_to, message.flags), (7, 0, 0));
    }
    assert!(input.is_empty());
}

#[test]
fn unnegotiated_compression_is_refused() {
    let zlib = compressed(2013, PING_BYTES, 2, &PING);
    let refused = Error::UnsupportedCompressor { compressor: 2 };
    assert_eq!(take(&mut zlib.as_slice(), LIMIT), Err(refused.clone()));
    let mut none = Inflater::default();
    assert_eq!(take_inflated(&mut zlib.as_slice(), LIMIT, &mut none), Err(refused));
    for compressor in [1, 3, 255] {
        let bytes = compressed(2013, PING_BYTES, compressor, &PING);
        assert_eq!(inflated(&bytes, LIMIT), Err(Error::UnsupportedCompressor { compressor }));
    }
    let mut plain = Vec::new();
    write_command(&mut plain, 7, rawdoc! { "ping": 1 }, "test").unwrap();
    assert_eq!(inflated(&plain, LIMIT), Ok(Some(1)), "a peer need not compress");
    let noop = compressed(2013, plain.len() as u32 - 16, 0, &plain[16..]);
    assert_eq!(inflated(&noop, LIMIT), Ok(Some(1)));
}

#[test]
fn lengths_are_checked_and_bounded() {
    for length in [PING_BYTES - 1, PING_BYTES + 1, 0] {
        assert_eq!(
            reason(&compressed(2013, length, 2, &PING)),
            "its uncompressed length is wrong",
            "{length}"
        );
    }
    let behind = [&PING[..], &[0]].concat();
    assert_eq!(reason(&compressed(2013, PING_BYTES, 2, &behind)), "its uncompressed length is wrong");
    let cut = &PING[..PING.len() - 1];
    assert_eq!(reason(&compressed(2013, PING_BYTES, 2, cut)), "its uncompressed length is wrong");
    assert_eq!(reason(&compressed(2013, u32::MAX, 2, &PING)), "an impossible uncompressed length");
    let large = compressed(2013, LIMIT as u32 - 15, 2, &PING);
    assert_eq!(inflated(&large, LIMIT), Err(Error::MessageTooLarge { length: LIMIT + 1, limit: LIMIT }));
    let bytes = compressed(2013, PING_BYTES, 2, &PING);
    assert_eq!(inflated(&bytes, 47), Ok(Some(1)));
    let mut wrong_sum = PING;
    wrong_sum[21] ^= 1;
    assert_eq!(reason(&compressed(2013, PING_BYTES, 2, &wrong_sum)), "it cannot be decompressed");
    assert_eq!(reason(&compressed(2013, PING_BYTES, 2, b"no zlib")), "it cannot be decompressed");
    assert_eq!(reason(&compressed(2012, PING_BYTES, 2, &PING)), "a compressed operation other than OP_MSG");
}

/// A client logged in at a server with this compressor, and the server.
fn session(offered: Option<Compressor>, taken: Option<Compressor>) -> (MongoDbConnect, FakeServer) {
    let password = Secret::new(PASSWORD.as_bytes().to_vec());
    let login = MongoDbLogin {
        compressor: offered,
        mechanism: Mechanism::Negotiated,
        ..MongoDbLogin::new(USER, password)
    };
    let mut server = FakeServer { compressor: taken, ..FakeServer::new(&[Digest::Sha256]) };
    let mut client = MongoDbConnect::new(Arc::new(login));
    assert_eq!(join(&mut client, &mut server, 7).0, Ok(()));
    (client, server)
}

#[test]
fn a_session_is_compressed_after_its_login() {
    let zlib = Some(Compressor::Zlib);
    let (client, mut server) = session(zlib, zlib);
    let info = client.server().unwrap();
    assert_eq!(info.compressor, zlib);
    assert!(server.compressed.is_empty(), "{:?}", server.compressed);
    let (mut out, mut answer) = (b"what was before".to_vec(), Vec::new());
    let find = CommandTemplate::parse(r#"{"find": "accounts", "filter": {"_id": {"$param": 0}}}"#).unwrap();
    for _ in 0..2 {
        out.truncate(15);
        info.encode(&mut out, &find, &[session::Value::I64(1)]).unwrap();
        server.run(&mut &out[15..], &mut answer);
    }
    assert_eq!(server.compressed, ["find", "find"]);
    assert!(answer.len() < 300, "{}", answer.len());
    let info = session::ServerInfo::MongoDb(info.clone());
    let mut input = answer.as_slice();
    let mut reader = info.response_reader(ResponseKind::Text);
    let Ok(Response::Done(summary)) = reader.step(&mut input) else { panic!() };
    assert_eq!((summary.rows, summary.row_bytes), (1, 1_018));
    let Ok(Response::Done(rows)) = info.rows_reader(LIMIT).step(&mut input) else { panic!() };
    assert!(rows.len() == 1 && input.is_empty());
    assert!(info.rows_reader(100).step(&mut answer.as_slice()).is_err(), "bounds are of what it was before");

    // Commands with credentials never are.
    out.clear();
    info.encode_query(&mut out, r#"{"createUser": "toll", "pwd": "secret"}"#).unwrap();
    assert!(take(&mut out.as_slice(), LIMIT).is_ok());
    server.run(&mut out.as_slice(), &mut answer);
    assert_eq!(server.compressed, ["find", "find"]);
}

#[test]
fn compression_needs_both_sides() {
    let zlib = Some(Compressor::Zlib);
    for (offered, taken) in [(zlib, None), (None, zlib), (None, None)] {
        let (client, mut server) = session(offered, taken);
        let info = client.server().unwrap();
        assert_eq!(info.compressor, None);
        let mut out = Vec::new();
        info.encode(&mut out, &CommandTemplate::parse(r#"{"find": "accounts"}"#).unwrap(), &[]).unwrap();
        server.run(&mut out.as_slice(), &mut Vec::new());
        assert!(server.compressed.is_empty());
    }
    let (_, offered) = session(None, None);
    let hello = RawDocument::from_bytes(&offered.hello).unwrap();
    assert_eq!(hello.get("compression").unwrap(), None, "who compresses nothing offers nothing");
}

#[test]
fn commands_with_credentials_are_recognized_in_any_case() {
    let never = ["hello", "isMaster", "ismaster", "saslStart", "saslContinue", "createUser", "UPDATEUSER"];
    assert!(never.into_iter().all(|command| !may_be_compressed(command)));
    assert!(["find", "insert", "getMore", "usersInfo"].into_iter().all(may_be_compressed));
}

proptest! {
    #[test]
    fn what_is_compressed_comes_back(text in prop_oneof!["[ -~]{0,3000}", "a{0,60000}"], before: Vec<u8>) {
        let mut plain = Vec::new();
        write_command(&mut plain, 9, rawdoc! { "echo": text.as_str() }, "test").unwrap();
        let mut out = [before.clone(), plain.clone()].concat();
        Compressor::Zlib.compress(&mut out, before.len()).unwrap();
        prop_assert_eq!(&out[..before.len()], &before[..]);
        let mut inflater = Inflater::of(Some(Compressor::Zlib));
        let mut input = &out[before.len()..];
        let message = take_inflated(&mut input, LIMIT, &mut inflater).unwrap().unwrap();
        prop_assert!(input.is_empty());
        prop_assert_eq!(Some(message), take(&mut plain.as_slice(), LIMIT).unwrap());
    }

    #[test]
    fn whatever_is_called_compressed_is_read_or_refused(content: Vec<u8>, length in 0_u32..70_000, code in 2010_u32..2015) {
        let _ = inflated(&compressed(code, length, 2, &content), MAX_LOGIN_MESSAGE_BYTES);
    }
}
