//! Traffic of PostgreSQL 15.18, recorded over a Unix socket.

use std::sync::Arc;

use ciphertoll_wire::postgres::{
    ChannelBinding, Column, CopyInReader, CopyStart, Error, ExchangeSummary, Notice, Param,
    PostgresAuthMethod, PostgresConnect, PostgresLogin, PostgresPrepareReader, PostgresResponseReader,
    PostgresRowsReader, PostgresTlsMode, Response, Severity, StatementDescription, TransactionStatus,
    ValueFormat, command,
};
use ciphertoll_wire::{Secret, Step};

/// As this crate's client sent it, for user `md5user` with password `correct horse` and database `postgres`: the
/// startup message, and the password's MD5.
const LOGIN: &str = "000000590003000075736572006d64357573657200646174616261736500706f73746772657300636c69656\
    e745f656e636f64696e670055544638006170706c69636174696f6e5f6e616d6500636970686572746f6c6c0000700000002\
    86d6435333234316662333339326335623430626632393565616665386338626236333000";
const WELCOME: &str = "520000000c0000000584dae41752000000080000000053000000206170706c69636174696f6e5f6e616d6\
    500636970686572746f6c6c005300000019636c69656e745f656e636f64696e6700555446380053000000174461746553747\
    96c650049534f2c204d445900530000002664656661756c745f7472616e73616374696f6e5f726561645f6f6e6c79006f666\
    6005300000017696e5f686f745f7374616e646279006f6666005300000019696e74656765725f6461746574696d6573006f6\
    e00530000001b496e74657276616c5374796c6500706f73746772657300530000001569735f737570657275736572006f666\
    60053000000197365727665725f656e636f64696e6700555446380053000000327365727665725f76657273696f6e0031352\
    e3138202844656269616e2031352e31382d302b646562313275312900530000002273657373696f6e5f617574686f72697a6\
    174696f6e006d6435757365720053000000237374616e646172645f636f6e666f726d696e675f737472696e6773006f6e005\
    30000001554696d655a6f6e65004574632f555443004b0000000c000001b9f3bc359b5a0000000549";
/// `SELECT 1 AS one, NULL AS nothing, 'x' AS letter`
const ONE_ROW: &str = "540000004f00036f6e6500000000000000000000170004ffffffff00006e6f7468696e670000000000000\
    000000019ffffffffffff00006c65747465720000000000000000000019ffffffffffff0000440000001400030000000131f\
    fffffff0000000178430000000d53454c4543542031005a0000000549";
/// `SELECT 1, 2; SELECT 'a' UNION SELECT 'b' ORDER BY 1;`
const TWO_SETS: &str = "540000003c00023f636f6c756d6e3f00000000000000000000170004ffffffff00003f636f6c756d6e3f\
    00000000000000000000170004ffffffff00004400000010000200000001310000000132430000000d53454c454354203100\
    540000002100013f636f6c756d6e3f0000000000000000000019ffffffffffff0000440000000b0001000000016144000000\
    0b00010000000162430000000d53454c4543542032005a0000000549";
/// `SELECT 1; SELECT 1/0; SELECT 2`
const ERROR_AMID: &str = "540000002100013f636f6c756d6e3f00000000000000000000170004ffffffff0000440000000b0001\
    0000000131430000000d53454c4543542031004500000041534552524f5200564552524f5200433232303132004d64697669\
    73696f6e206279207a65726f0046696e742e63004c3836390052696e743464697600005a0000000549";
/// A `DO` block that raises a notice and a warning.
const NOTICES: &str = "4e0000007a534e4f5449434500564e4f5449434500433030303030004d68656c6c6f0057504c2f7067535\
    14c2066756e6374696f6e20696e6c696e655f636f64655f626c6f636b206c696e6520312061742052414953450046706c5f6\
    57865632e63004c333839310052657865635f73746d745f726169736500004e0000007c535741524e494e4700565741524e4\
    94e4700433031303030004d74686572650057504c2f706753514c2066756e6374696f6e20696e6c696e655f636f64655f626\
    c6f636b206c696e6520312061742052414953450046706c5f657865632e63004c333839310052657865635f73746d745f726\
    169736500004300000007444f005a0000000549";
/// `LISTEN tolls; NOTIFY tolls, 'paid'`
const NOTIFIED: &str = "430000000b4c495354454e00430000000b4e4f54494659004100000013000001c9746f6c6c7300706169\
    64005a0000000549";
/// `SELECT a, b FROM t WHERE a = $1`, in a transaction.
const PREPARED: &str = "3100000004740000000a000100000017540000002e00026100000040040001000000170004ffffffff00\
    00620000004004000200000019ffffffffffff00005a0000000554";
/// An `INSERT` of two rows with one parameter in binary and one in text, as this crate sent it.
const INSERT: &str = "42000000250073310000020001000000020000000400000005000000076772c3bcc39f6500004500000009\
    00000000005300000004";
const INSERTED: &str = "3200000004430000000f494e5345525420302032005a0000000554";
/// The row of the prepared statement, with binary columns.
const BINARY_ROW: &str = "3200000004440000001900020000000400000006000000076772c3bcc39f65430000000d53454c4543\
    542031005a0000000554";
/// `COPY t FROM STDIN` of two rows.
const COPIED_IN: &str = "470000000b00000200000000430000000b434f50592032005a0000000554";
/// `COPY t TO STDOUT` of four rows.
const COPIED_OUT: &str = "480000000b00000200000000640000000e35096772c3bcc39f650a640000000e36096772c3bcc39f65\
    0a640000000c3709736576656e0a640000000c380965696768740a6300000004430000000b434f50592034005a0000000554";
/// `SELECT pg_sleep(20)`, ended by `pg_terminate_backend`.
const TERMINATED: &str = "5400000021000170675f736c65657000000000000000000008e60004ffffffff000045000000745346\
    4154414c0056464154414c00433537503031004d7465726d696e6174696e6720636f6e6e656374696f6e2064756520746f20\
    61646d696e6973747261746f7220636f6d6d616e640046706f7374677265732e63004c33323131005250726f63657373496e\
    74657272757074730000";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().map(|digit| digit.to_digit(16).expect("hex")).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

fn count(answer: &str) -> Result<ExchangeSummary, Error> {
    let bytes = bytes(answer);
    let mut input = bytes.as_slice();
    let response = PostgresResponseReader::new().step(&mut input)?;
    assert!(input.is_empty());
    let Response::Done(summary) = response else { panic!("it is complete") };
    Ok(summary)
}

fn summary(rows: u64, affected_rows: u64, row_bytes: u64) -> ExchangeSummary {
    ExchangeSummary { rows, affected_rows, row_bytes, ..ExchangeSummary::default() }
}

/// The same in a transaction.
fn within(rows: u64, affected_rows: u64, row_bytes: u64) -> ExchangeSummary {
    ExchangeSummary {
        transaction: TransactionStatus::InTransaction,
        ..summary(rows, affected_rows, row_bytes)
    }
}

#[test]
fn login() {
    let login = PostgresLogin {
        startup: Vec::new(),
        user: "md5user".to_owned(),
        password: Secret::new(b"correct horse".to_vec()),
        database: Some("postgres".to_owned()),
        encryption: PostgresTlsMode::Plain,
        channel_binding: ChannelBinding::Disabled,
    };
    let mut connect = PostgresConnect::new(Arc::new(login));
    let received = bytes(WELCOME);
    let (mut input, mut out) = (received.as_slice(), Vec::new());
    while connect.step(&mut input, &mut out).unwrap() != Step::Done {}
    assert_eq!(out, bytes(LOGIN));
    let server = connect.server().unwrap();
    assert_eq!(server.version, "15.18 (Debian 15.18-0+deb12u1)");
    assert_eq!((server.process_id, server.auth), (441, PostgresAuthMethod::Md5));
    assert_eq!(server.cancel_key.expose(), [0xf3, 0xbc, 0x35, 0x9b]);
}

#[test]
fn counts() {
    assert_eq!(count(ONE_ROW), Ok(summary(1, 0, 16)));
    assert_eq!(count(TWO_SETS), Ok(summary(3, 0, 26)));
    assert_eq!(count(INSERTED), Ok(within(0, 2, 0)));
    assert_eq!(count(BINARY_ROW), Ok(within(1, 0, 21)));
    assert_eq!(count(COPIED_OUT), Ok(within(4, 0, 36)));
    assert_eq!(count(NOTIFIED), Ok(summary(0, 0, 0)));
    assert_eq!(count(NOTICES), Ok(ExchangeSummary { notices: 2, ..ExchangeSummary::default() }));
}

#[test]
fn errors() {
    let error = count(ERROR_AMID).unwrap_err();
    assert_eq!(error.to_string(), "the server refused: division by zero (ERROR, SQL state 22012)");
    let error = count(TERMINATED).unwrap_err();
    assert!(
        matches!(&error, Error::Server { severity: Severity::Fatal, sqlstate, .. } if sqlstate == "57P01"),
        "{error}"
    );
}

#[test]
fn rows_and_notices() {
    let collect = |answer| {
        let mut reader = PostgresRowsReader::new(1000);
        let Ok(Response::Done(rows)) = reader.step(&mut bytes(answer).as_slice()) else {
            panic!("it is complete");
        };
        (rows, reader.notices().to_vec())
    };
    let text = |text: &str| Some(text.as_bytes().to_vec());
    assert_eq!(collect(ONE_ROW).0, [vec![text("1"), None, text("x")]]);
    assert_eq!(collect(TWO_SETS).0, [vec![text("1"), text("2")], vec![text("a")], vec![text("b")]]);
    let notice = |severity, sqlstate: &str, message: &str| Notice {
        severity,
        sqlstate: sqlstate.to_owned(),
        message: message.to_owned(),
    };
    let expected = [notice(Severity::Notice, "00000", "hello"), notice(Severity::Warning, "01000", "there")];
    assert_eq!(collect(NOTICES).1, expected);
}

#[test]
fn prepared() {
    let Ok(Response::Done(prepared)) = PostgresPrepareReader::new().step(&mut bytes(PREPARED).as_slice())
    else {
        panic!("it is complete");
    };
    let column = |name: &[u8], type_oid| Column { name: name.to_vec(), type_oid };
    let columns = vec![column(b"a", 23), column(b"b", 25)];
    assert_eq!(prepared, StatementDescription { parameter_types: vec![23], columns });
}

#[test]
fn insert_as_it_was_accepted() {
    let mut out = Vec::new();
    let params = [Param::Binary(&[0, 0, 0, 5]), Param::Text("grüße".as_bytes())];
    command::encode_bind(&mut out, "", "s1", &params, ValueFormat::Text).unwrap();
    command::encode_execute(&mut out, "", 0).unwrap();
    command::encode_sync(&mut out);
    assert_eq!(out, bytes(INSERT));
}

#[test]
fn copies() {
    let answer = bytes(COPIED_IN);
    let mut input = answer.as_slice();
    let start = CopyStart { format: ValueFormat::Text, columns: 2 };
    assert_eq!(CopyInReader::new().step(&mut input), Ok(Response::Done(start)));
    assert_eq!(PostgresResponseReader::new().step(&mut input), Ok(Response::Done(within(0, 2, 0))));
    let response = PostgresResponseReader::new().step(&mut bytes(COPIED_OUT).as_slice());
    assert_eq!(response, Ok(Response::Done(within(4, 0, 36))));
}
