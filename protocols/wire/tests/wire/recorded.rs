//! Traffic of MariaDB 10.11.19, recorded over loopback.

use std::sync::Arc;

use ciphertoll_wire::mysql::{
    Capabilities, Error, MySqlConnect, MySqlLogin, MySqlPrepareReader, MySqlResponseReader, MySqlRowsReader,
    PrepareOk, Response, ResponseKind, ResponseSummary,
};
use ciphertoll_wire::{Secret, Step};

const GREETING: &str = "640000000a352e352e352d31302e31312e31392d4d6172696144422d302b6465623132753100060000002b5b6922\
    68674d2900feff080200ff81150000000000001d0000002726273367315d5f44774e5c006d7973716c5f6e61746976655f70617373776f\
    726400";
/// As this crate's client sent it (except the largest packet, which it now gives as 1 GiB), for user `toll` with
/// password `pässword` and database `test`.
const LOGIN: &str = "5500000109a22a01000000402d0000000000000000000000000000000000000000000000746f6c6c001409431d61c1\
    095c5c94f1ad65ce34c0c320cdf0a574657374006d7973716c5f6e61746976655f70617373776f726400";
const LOGIN_OK: &str = "0700000200000002000000";

/// `SELECT 1 AS one, NULL AS nothing, 'x' AS letter`
const ONE_ROW: &str = "01000001031900000203646566000000036f6e65000c3f00010000000381000000001d0000030364656600000007\
    6e6f7468696e67000c3f00000000000680000000001c00000403646566000000066c6574746572000c2d0004000000fd010027000005000005\
    0131fb017807000006fe000002000000";
/// `INSERT`, prepared, of two rows.
const INSERTED: &str = "2e00000100020002000000265265636f7264733a203220204475706c6963617465733a203020205761726e696e67\
    733a2030";
/// A procedure with `SELECT 1, 2` and `SELECT 'a' UNION SELECT 'b'`.
const TWO_SETS: &str = "010000010217000002036465660000000131000c3f00010000000381000000001700000303646566000000013200\
    0c3f0001000000038100000000040000040131013207000005fe00000a00000001000006011800000703646566000000016101610c2d000400\
    0000fd01000000000200000801610200000901620700000afe00002a0000000700000b00000022000000";
const PREPARED: &str = "0c0000010002000000020001000000001700000203646566000000013f000c3f000000000006800000000\
    01e00000303646566047465737401740174016101610c3f00140000000800000000001e00000403646566047465737401740174016201620c2d\
    0050000000fd0000000000";
const BINARY_ROWS: &str = "01000001021e00000203646566047465737401740174016101610c3f00140000000800000000001e0000030364\
    6566047465737401740174016201620c2d0050000000fd00000000000e0000040000fbffffffffffffff036865790300000500040007000006\
    fe000022000000";
const SYNTAX_ERROR: &str = "a2000001ff2804233432303030596f75206861766520616e206572726f7220696e20796f75722053514c2073\
    796e7461783b20636865636b20746865206d616e75616c207468617420636f72726573706f6e647320746f20796f7572204d61726961444220\
    7365727665722076657273696f6e20666f72207468652072696768742073796e74617820746f20757365206e656172202753454c4543272061\
    74206c696e652031";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).expect("hex")).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// The negotiated capabilities.
fn capabilities() -> Capabilities {
    Capabilities::from_bits(0x012a_a209)
}

#[test]
fn login() {
    let login = MySqlLogin {
        database: Some("test".to_owned()),
        ..MySqlLogin::new("toll", Secret::new("pässword".into()))
    };
    let mut connect = MySqlConnect::new(Arc::new(login));
    let received = [bytes(GREETING), bytes(LOGIN_OK)].concat();
    let (mut input, mut out) = (received.as_slice(), Vec::new());
    while connect.step(&mut input, &mut out).unwrap() != Step::Done {}
    assert_eq!(out, bytes(LOGIN));
    let server = connect.server().unwrap();
    assert_eq!(server.version, "10.11.19-MariaDB-0+deb12u1");
    assert_eq!((server.connection_id, server.capabilities), (6, capabilities()));
    // MariaDB's extended capabilities take the place of MySQL's filler.
    assert_eq!(server.offered.bits(), 0x1d_81ff_fffe);
}

#[test]
fn counts() {
    let count = |kind, answer| {
        let answer = bytes(answer);
        let mut input = answer.as_slice();
        let response = MySqlResponseReader::new(kind, capabilities()).step(&mut input);
        assert!(input.is_empty());
        response
    };
    let summary = |rows, affected_rows, row_bytes| {
        Ok(Response::Done(ResponseSummary { rows, affected_rows, row_bytes }))
    };
    assert_eq!(count(ResponseKind::Text, ONE_ROW), summary(1, 0, 5));
    assert_eq!(count(ResponseKind::Text, TWO_SETS), summary(3, 0, 8));
    assert_eq!(count(ResponseKind::Binary, INSERTED), summary(0, 2, 0));
    assert_eq!(count(ResponseKind::Binary, BINARY_ROWS), summary(2, 0, 17));
    let error = count(ResponseKind::Text, SYNTAX_ERROR).unwrap_err();
    assert!(matches!(error, Error::Server { code: 1064, sql_state, .. } if sql_state == "42000"));
}

#[test]
fn rows() {
    let collect =
        |answer| MySqlRowsReader::new(capabilities(), 1000).step(&mut bytes(answer).as_slice()).unwrap();
    let text = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(collect(ONE_ROW), Response::Done(vec![vec![text("1"), None, text("x")]]));
    let two_sets = vec![vec![text("1"), text("2")], vec![text("a")], vec![text("b")]];
    assert_eq!(collect(TWO_SETS), Response::Done(two_sets));
}

#[test]
fn prepared() {
    let response = MySqlPrepareReader::new(capabilities()).step(&mut bytes(PREPARED).as_slice());
    let prepared = PrepareOk { statement_id: 2, params: 1, columns: 2, warnings: 0 };
    assert_eq!(response, Ok(Response::Done(prepared)));
}
