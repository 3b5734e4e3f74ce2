//! Replies to commands, counted and collected.

use ciphertoll_wire::mongodb::bson::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr, raw::CString, rawdoc};
use ciphertoll_wire::mongodb::document::to_json;
use ciphertoll_wire::mongodb::message::{self, MAX_MESSAGE_BYTES};
use ciphertoll_wire::mongodb::{
    COMMAND_REQUEST_ID, Cursor, Documents, DocumentsReader, Error, Fault, MongoDbResponseReader, Response,
    ResponseSummary, command, version_of,
};
use proptest::prelude::*;

use crate::chunks::feed;
use crate::fake_server;

const LIMIT_BYTES: usize = 1 << 16;

fn reply(document: &RawDocument) -> Vec<u8> {
    fake_server::reply(COMMAND_REQUEST_ID, document)
}

/// The reply to a `find` that continues in cursor `id`.
pub(crate) fn found(batch: &str, documents: i32, id: i64) -> Vec<u8> {
    let batch_documents: RawArrayBuf = (0..documents).map(|number| rawdoc! { "_id": number }).collect();
    let mut cursor = RawDocumentBuf::from_iter([(CString::try_from(batch).unwrap(), batch_documents)]);
    cursor.append(cstr!("id"), id);
    cursor.append(cstr!("ns"), "bank.accounts.old");
    reply(&rawdoc! { "cursor": cursor, "ok": 1.0 })
}

fn count(bytes: &[u8]) -> Result<Response<ResponseSummary>, Error> {
    MongoDbResponseReader::new(COMMAND_REQUEST_ID).step(&mut &*bytes)
}

fn collect(bytes: &[u8]) -> Result<Response<Documents>, Error> {
    DocumentsReader::new(COMMAND_REQUEST_ID, LIMIT_BYTES).step(&mut &*bytes)
}

fn refused(document: &RawDocument) -> (i32, String, String) {
    let bytes = reply(document);
    let error = count(&bytes).unwrap_err();
    assert_eq!(collect(&bytes).unwrap_err(), error);
    assert_eq!((error.fault(), error.is_too_many_connections()), (Fault::Server, false));
    let Error::Server { code, code_name, message } = error else { panic!("{error:?}") };
    (code, code_name, message)
}

#[test]
fn documents_are_counted_and_collected() {
    for (batch, id) in [("firstBatch", 0), ("nextBatch", 99)] {
        let bytes = found(batch, 3, id);
        let summary = ResponseSummary { rows: 3, affected_rows: 0, row_bytes: 3 * 14 };
        assert_eq!(count(&bytes), Ok(Response::Done(summary)));
        let Ok(Response::Done(documents)) = collect(&bytes) else { panic!() };
        let json = |document: &Vec<u8>| to_json(RawDocument::from_bytes(document).unwrap()).unwrap();
        assert_eq!(
            documents.documents.iter().map(json).collect::<Vec<_>>(),
            [r#"{"_id":0}"#, r#"{"_id":1}"#, r#"{"_id":2}"#]
        );
        let cursor = (id != 0).then(|| Cursor { id, collection: "accounts.old".to_owned() });
        assert_eq!(documents.cursor, cursor);
    }
}

#[test]
fn changes_are_counted() {
    let bytes = reply(&rawdoc! { "n": 2, "nModified": 1, "ok": 1 });
    let summary = ResponseSummary { affected_rows: 2, ..ResponseSummary::default() };
    assert_eq!(count(&bytes), Ok(Response::Done(summary)));
    let Ok(Response::Done(documents)) = collect(&bytes) else { panic!() };
    assert_eq!(documents.documents.len(), 1);
}

#[test]
fn after_a_refusal_the_next_reply_is_read() {
    let no = rawdoc! {
        "ok": 0.0,
        "errmsg": "no such\ncommand: 'x'",
        "code": 59,
        "codeName": "CommandNotFound",
    };
    let expected = (59, "CommandNotFound".to_owned(), "no such\u{fffd}command: 'x'".to_owned());
    assert_eq!(refused(&no), expected);
    let bytes = [reply(&no), found("firstBatch", 1, 0)].concat();
    let (mut input, mut reader) = (bytes.as_slice(), MongoDbResponseReader::new(COMMAND_REQUEST_ID));
    assert!(reader.step(&mut input).is_err());
    assert_eq!(reader.step(&mut input), Err(Error::NotReset));
    reader.reset();
    assert!(matches!(reader.step(&mut input), Ok(Response::Done(ResponseSummary { rows: 1, .. }))));
    assert!(input.is_empty());
    assert_eq!(refused(&rawdoc! { "ok": 0.0 }), (0, String::new(), String::new()));
}

#[test]
fn failed_writes_are_errors() {
    let duplicate = refused(&rawdoc! {
        "n": 0,
        "writeErrors": [{ "index": 0, "code": 11000, "errmsg": "E11000 duplicate key error" }],
        "ok": 1.0,
    });
    assert_eq!(duplicate, (11000, "DuplicateKey".to_owned(), "E11000 duplicate key error".to_owned()));
    let unconfirmed = refused(&rawdoc! {
        "writeConcernError": {
            "code": 64,
            "codeName": "WriteConcernTimeout",
            "errmsg": "waiting for replication timed out",
        },
        "ok": 1.0,
    });
    assert_eq!((unconfirmed.0, unconfirmed.1.as_str()), (64, "WriteConcernTimeout"));
    let none = reply(&rawdoc! { "writeErrors": [], "ok": 1.0 });
    assert!(count(&none).is_ok());
}

#[test]
fn unrequested_replies_are_refused() {
    let bytes = found("firstBatch", 1, 0);
    let reason = |bytes: &[u8]| match count(bytes) {
        Err(Error::Protocol { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    let mut other = bytes.clone();
    other[8] ^= 1;
    assert_eq!(reason(&other), "it belongs to another request");
    let mut more = bytes;
    more[16] = 2;
    assert_eq!(reason(&more), "it has unrequested parts");
    assert_eq!(reason(&reply(&rawdoc! { "n": 1 })), "no ok field");
    let rows = reply(&rawdoc! { "cursor": { "firstBatch": [1] }, "ok": true });
    assert_eq!(reason(&rows), "a row that is not a document");
}

#[test]
fn results_are_bounded() {
    let bytes = found("firstBatch", 3, 0);
    let mut reader = DocumentsReader::new(COMMAND_REQUEST_ID, 100);
    assert_eq!(reader.step(&mut bytes.as_slice()), Err(Error::ResultTooLarge { limit: 100 }));
}

#[test]
fn the_version_is_in_build_info() {
    let bytes = reply(&rawdoc! { "version": "7.0.42", "ok": 1.0 });
    let Ok(Response::Done(documents)) = collect(&bytes) else { panic!() };
    assert_eq!(version_of(&documents.documents[0]), Ok("7.0.42".to_owned()));
    assert!(version_of(b"\x05\0\0\0\0").is_err());
}

#[test]
fn cursors_are_continued() {
    let cursor = Cursor { id: 99, collection: "accounts".to_owned() };
    let json = |out: &[u8]| {
        let message = message::take(&mut &*out, MAX_MESSAGE_BYTES).unwrap().unwrap();
        assert_eq!(message.request_id, 1);
        to_json(message.body).unwrap()
    };
    let (mut more, mut all) = (Vec::new(), Vec::new());
    command::encode_get_more(&mut more, 1, "bank", &cursor, Some(10)).unwrap();
    assert_eq!(json(&more), r#"{"getMore":99,"collection":"accounts","batchSize":10,"$db":"bank"}"#);
    command::encode_get_more(&mut all, 1, "bank", &cursor, None).unwrap();
    assert_eq!(json(&all), r#"{"getMore":99,"collection":"accounts","$db":"bank"}"#);
}

proptest! {
    #[test]
    fn portions_do_not_matter(documents in 0_i32..20, id: i64, sizes in proptest::collection::vec(1_usize..60, 1..8)) {
        let bytes = found("firstBatch", documents, id);
        let behind = [bytes.clone(), b"behind".to_vec()].concat();
        let mut reader = MongoDbResponseReader::new(COMMAND_REQUEST_ID);
        let (counted, left) = feed(&behind, &sizes, |input| match reader.step(input).unwrap() {
            Response::NeedInput => None,
            Response::Done(summary) => Some(summary),
        });
        prop_assert_eq!((counted.map(Response::Done).map(Ok), left.as_slice()), (Some(count(&bytes)), &b"behind"[..]));
        let mut reader = DocumentsReader::new(COMMAND_REQUEST_ID, LIMIT_BYTES);
        let (collected, _) = feed(&behind, &sizes, |input| match reader.step(input).unwrap() {
            Response::NeedInput => None,
            Response::Done(documents) => Some(documents),
        });
        prop_assert_eq!(collected.map(Response::Done).map(Ok), Some(collect(&bytes)));
    }
}
