//! Traffic through the relay, split anywhere.

use ciphertoll_wire::mysql::column::encode_text_column;
use ciphertoll_wire::mysql::command::{
    encode_execute, encode_init_db, encode_ping, encode_prepare, encode_query, encode_quit,
    encode_reset_connection, encode_statement_close, encode_statement_reset,
};
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::mysql::packet::MAX_PART_BYTES;
use ciphertoll_wire::mysql::relay::{
    ConnectionState, KillReplacement, MultiStatements, MySqlRelay, OpenState, RELAYED, Transaction,
};
use ciphertoll_wire::mysql::{Capabilities, Error, Param, PrepareOk, server};
use ciphertoll_wire::relay::{Departure, Goodbye};
use proptest::prelude::*;

use crate::fake_server::Answer;

/// "Status flags".
const IN_TRANSACTION: u16 = 0x0001;
pub(crate) const AUTOCOMMIT: u16 = 0x0002;
const MORE_RESULTS: u16 = 0x0008;
const CURSOR: u16 = 0x0040;

/// Text rows of two columns.
const ROWS: [&[u8]; 3] = [b"\x011\x03abc", b"\xfb\x00", b"\x012\x01b"];

/// With EOFs, without them, and with all capabilities.
const AGREED: [Capabilities; 3] = [
    RELAYED.without(Capabilities::DEPRECATE_EOF).without(Capabilities::CACHE_METADATA),
    RELAYED.without(Capabilities::CACHE_METADATA),
    RELAYED,
];

/// A command and its response.
#[derive(Debug, Clone)]
struct Exchange {
    name: &'static str,
    up: Vec<u8>,
    down: Vec<u8>,
}

pub(crate) fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

pub(crate) fn message(payload: &[u8]) -> Vec<u8> {
    written(|out| {
        server::write_payload(out, 0, payload).unwrap();
    })
}

pub(crate) fn query(sql: &str) -> Vec<u8> {
    written(|out| encode_query(out, sql).unwrap())
}

fn refused() -> Vec<u8> {
    let err = ErrPacket { code: 1064, sql_state: *b"42000", message: b"You have an error" };
    written(|out| server::write_err(out, 1, &err).unwrap())
}

/// Capabilities with which the responses are written.
pub(crate) struct Writer(pub(crate) Capabilities);

impl Writer {
    fn bytes(&self, write: impl FnOnce(&mut Answer)) -> Vec<u8> {
        let mut answer = Answer::new(self.0);
        write(&mut answer);
        answer.bytes
    }

    pub(crate) fn ok(&self, status: u16) -> Vec<u8> {
        self.bytes(|answer| {
            answer.ok(&OkPacket { status, affected_rows: 70_000, ..OkPacket::default() });
        })
    }

    fn head(&self, answer: &mut Answer, columns: u8, definitions: bool) {
        if self.0.contains(Capabilities::CACHE_METADATA) {
            answer.payload(&[columns, u8::from(definitions)]);
        } else {
            answer.payload(&[columns]);
        }
        if definitions {
            answer.definitions(columns);
        } else if !self.0.contains(Capabilities::DEPRECATE_EOF) {
            answer.end_of_rows(0);
        }
    }

    fn rows(&self, answer: &mut Answer, rows: &[&[u8]], status: u16) {
        self.rows_with(answer, 0, rows, status);
    }

    /// With these status flags after the definitions, too.
    fn rows_with(&self, answer: &mut Answer, after_definitions: u16, rows: &[&[u8]], status: u16) {
        self.head(answer, 2, true);
        if !self.0.contains(Capabilities::DEPRECATE_EOF) {
            let at = answer.bytes.len() - 2;
            answer.bytes[at..].copy_from_slice(&after_definitions.to_le_bytes());
        }
        for row in rows {
            answer.payload(row);
        }
        answer.end_of_rows(status);
    }
}

fn exchange(name: &'static str, up: Vec<u8>, down: Vec<u8>) -> Exchange {
    Exchange { name, up, down }
}

fn exchanges(agreed: Capabilities) -> Vec<Exchange> {
    let writer = Writer(agreed);
    let ok = writer.ok(AUTOCOMMIT);
    let eof = written(|out| {
        let end = OkPacket { status: AUTOCOMMIT, ..OkPacket::default() };
        let mut payload = Vec::new();
        end.encode_end_of_rows(&mut payload, agreed);
        server::write_payload(out, 1, &payload).unwrap();
    });
    let mut all = vec![
        exchange("ping", written(encode_ping), ok.clone()),
        exchange("init db", written(|out| encode_init_db(out, "shop").unwrap()), ok.clone()),
        exchange("reset", written(encode_reset_connection), ok.clone()),
        exchange("update", query("UPDATE t SET a = 1"), ok.clone()),
        exchange("refused", query("SELEKT"), refused()),
        exchange("close", written(|out| encode_statement_close(out, 1)), Vec::new()),
        exchange("long data", message(b"\x18\x01\0\0\0\0\0whatever"), Vec::new()),
        exchange("statement reset", written(|out| encode_statement_reset(out, 1)), ok.clone()),
        exchange("option", message(b"\x1b\0\0"), eof.clone()),
        exchange("debug", message(b"\x0d"), eof.clone()),
        exchange("kill", message(b"\x0c\x07\0\0\0"), ok.clone()),
        exchange("statistics", message(b"\x09"), message(b"Uptime: 7  Threads: 1")),
        exchange(
            "fields",
            message(b"\x04t\0"),
            writer.bytes(|answer| {
                let definition = written(|out| encode_text_column(out, b"c", 45));
                answer.payload(&definition).payload(&definition).end_of_rows(AUTOCOMMIT);
            }),
        ),
        exchange("fields of nothing", message(b"\x04t\0"), refused()),
    ];
    all.extend(queries(&writer));
    all.extend(prepared(&writer));
    if agreed.contains(Capabilities::CACHE_METADATA) {
        all.push(exchange(
            "definitions that the client has",
            written(|out| encode_execute(out, 1, &[Param::I64(7)]).unwrap()),
            writer.bytes(|answer| {
                writer.head(answer, 2, false);
                answer.payload(b"\0\0\x01a\x01b").end_of_rows(AUTOCOMMIT);
            }),
        ));
    }
    if agreed.contains(Capabilities::PROGRESS) {
        all.push(exchange(
            "progress",
            query("ALTER TABLE t ADD b INT"),
            writer.bytes(|answer| {
                answer.payload(b"\xff\xff\xff\x01\x01\x02\x10\x27\0\x04copy");
                answer.payload(b"\xff\xff\xff\x01\x02\x02\x10\x27\0\x04copy").ok(&OkPacket::default());
            }),
        ));
    }
    all
}

/// Queries with results.
fn queries(writer: &Writer) -> Vec<Exchange> {
    vec![
        exchange(
            "select",
            query("SELECT 1, 'abc'"),
            writer.bytes(|answer| writer.rows(answer, &ROWS, AUTOCOMMIT)),
        ),
        exchange(
            "an error amid rows",
            query("SELECT a, b"),
            writer.bytes(|answer| {
                writer.head(answer, 2, true);
                answer.payload(ROWS[0]).payload(b"\xff\x25\x05#70100Query execution was interrupted");
            }),
        ),
        exchange(
            "several results",
            query("CALL p()"),
            writer.bytes(|answer| {
                writer.rows(answer, &ROWS, AUTOCOMMIT | MORE_RESULTS);
                answer.ok(&OkPacket { status: MORE_RESULTS, ..OkPacket::default() });
                writer.rows(answer, &[], AUTOCOMMIT | MORE_RESULTS);
                answer.ok(&OkPacket { status: AUTOCOMMIT, ..OkPacket::default() });
            }),
        ),
        exchange(
            "an error amid results",
            query("SELECT 1; SELEKT"),
            writer.bytes(|answer| {
                writer.rows(answer, &ROWS, AUTOCOMMIT | MORE_RESULTS);
                answer.payload(b"\xff\x28\x04#42000You have an error");
            }),
        ),
    ]
}

/// Prepared statements.
fn prepared(writer: &Writer) -> Vec<Exchange> {
    let prepare = written(|out| encode_prepare(out, "SELECT ?, ?").unwrap());
    let execute = written(|out| encode_execute(out, 1, &[Param::I64(7), Param::Null]).unwrap());
    let prepared = |params: u16, columns: u16| {
        writer.bytes(|answer| {
            let statement = PrepareOk { statement_id: 1, params, columns, warnings: 0 };
            answer.payload(&written(|out| statement.encode(out)));
            answer.definitions(params as u8).definitions(columns as u8);
        })
    };
    let mut ask_for_cursor = execute.clone();
    ask_for_cursor[9] = 1;
    let mut cursor = Answer::new(writer.0);
    writer.head(&mut cursor, 2, true);
    if writer.0.contains(Capabilities::DEPRECATE_EOF) {
        cursor.end_of_rows(AUTOCOMMIT | CURSOR);
    } else {
        // The EOF after the definitions reports it.
        let status = cursor.bytes.len() - 2;
        cursor.bytes[status..].copy_from_slice(&(AUTOCOMMIT | CURSOR).to_le_bytes());
    }
    let fetched = writer.bytes(|answer| {
        answer.payload(b"\0\0\x01a\x01b").end_of_rows(AUTOCOMMIT | CURSOR);
    });
    vec![
        exchange("prepare", prepare.clone(), prepared(2, 2)),
        exchange("prepare without columns", prepare.clone(), prepared(1, 0)),
        exchange("prepare of nothing", prepare.clone(), prepared(0, 0)),
        exchange("prepare, refused", prepare, refused()),
        exchange(
            "execute",
            execute.clone(),
            writer.bytes(|answer| writer.rows(answer, &[b"\0\0\x01a\x01b"], AUTOCOMMIT)),
        ),
        exchange("execute of an update", execute.clone(), writer.ok(AUTOCOMMIT)),
        exchange("bulk execute", message(b"\xfa\x01\0\0\0\x80\0"), writer.ok(AUTOCOMMIT)),
        // MariaDB sets the flag of a cursor that a stored routine has opened or closed.
        exchange("execute with a routine's cursor", execute.clone(), routine_results(writer)),
        exchange("execute of a routine, with a cursor", ask_for_cursor.clone(), routine_results(writer)),
        exchange("execute with a function's cursor", execute, {
            let flag = AUTOCOMMIT | CURSOR;
            writer.bytes(|answer| writer.rows_with(answer, flag, &[b"\0\0\x01a\x01b"], flag))
        }),
        exchange("execute into a cursor", ask_for_cursor, cursor.bytes),
        exchange("fetch", message(b"\x1c\x01\0\0\0\x01\0\0\0"), fetched),
        exchange("rows that look like a cursor's", query("SELECT 1, 2"), {
            writer.bytes(|answer| writer.rows(answer, &ROWS, AUTOCOMMIT | CURSOR))
        }),
    ]
}

/// Two results within a procedure, its OUT parameters, and its OK.
fn routine_results(writer: &Writer) -> Vec<u8> {
    let flags = AUTOCOMMIT | CURSOR | MORE_RESULTS;
    writer.bytes(|answer| {
        for out_params in [0, 0, 0x1000] {
            writer.rows_with(answer, flags | out_params, &[b"\0\0\x01a\x01b"], flags);
        }
        answer.ok(&OkPacket { status: AUTOCOMMIT | CURSOR, ..OkPacket::default() });
    })
}

/// Feeds `step` with the bytes it has not taken, and `piece` more each time. Returns the forwarded bytes up to an error.
fn feed(
    bytes: &[u8],
    piece: usize,
    mut step: impl FnMut(&[u8]) -> Result<Option<usize>, Error>,
) -> (Vec<u8>, Result<(), Error>) {
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        match step(&held) {
            Ok(Some(bytes)) => passed.extend(held.drain(..bytes)),
            Ok(None) => return (passed, Ok(())),
            Err(error) => return (passed, Err(error)),
        }
    }
    (passed, Ok(()))
}

pub(crate) fn up(relay: &mut MySqlRelay, bytes: &[u8], piece: usize) {
    let (passed, end) =
        feed(bytes, piece, |held| relay.process_client(held).map(|taken| Some(taken.pass_bytes)));
    assert_eq!((end, passed.len()), (Ok(()), bytes.len()));
}

pub(crate) fn down(relay: &mut MySqlRelay, bytes: &[u8], piece: usize) {
    let (passed, end) = feed(bytes, piece, |held| relay.process_server(held).map(Some));
    assert_eq!((end, passed.len()), (Ok(()), bytes.len()));
}

pub(crate) fn is_clean(relay: &MySqlRelay) -> bool {
    matches!(relay.connection_state(), ConnectionState::Clean(_))
}

#[test]
fn the_end_of_every_response_is_found() {
    for agreed in AGREED {
        for Exchange { name, up: command, down: answer } in exchanges(agreed) {
            for piece in [1, 2, 5, usize::MAX] {
                let mut relay = MySqlRelay::new(agreed);
                up(&mut relay, &command, piece);
                for cut in 0..answer.len().min(400) {
                    let mut relay = MySqlRelay::new(agreed);
                    up(&mut relay, &command, piece);
                    relay.process_server(&answer[..cut]).unwrap();
                    assert!(!is_clean(&relay), "{name} after {cut} bytes, {agreed:?}");
                }
                down(&mut relay, &answer, piece);
                assert!(is_clean(&relay), "{name}, {agreed:?}: {:?}", relay.connection_state());
                let ends_in_err = answer.windows(2).any(|bytes| bytes == b"#4" || bytes == b"#7");
                assert_eq!(relay.error_was_last(), ends_in_err, "{name}");
                assert_eq!(relay.next_sequence(), 1, "{name}");
                // No response is pending.
                assert!(relay.process_server(b"\x01\0\0\x01\x01").is_err(), "{name}");
            }
        }
    }
}

#[test]
fn an_answer_of_which_a_part_has_arrived_is_owed() {
    let mut relay = MySqlRelay::new(RELAYED);
    up(&mut relay, &query("SELECT"), usize::MAX);
    let answer = message(&[&refused()[4..], &[b'.'; 200]].concat());
    let read = relay.process_server(&answer[..150]).expect("an error");
    assert_eq!((read, relay.departure()), (150, Departure::WhenAnswered));
    relay.process_server(&answer[150..]).expect("the rest");
    assert_eq!(relay.departure(), Departure::Now);
}

#[test]
fn transaction_and_option_are_recorded() {
    let writer = Writer(RELAYED);
    let remains = |commands: &[(&[u8], Vec<u8>)]| {
        let mut relay = MySqlRelay::new(RELAYED);
        for (command, answer) in commands {
            up(&mut relay, command, usize::MAX);
            down(&mut relay, answer, usize::MAX);
        }
        relay.connection_state()
    };
    let begin = query("BEGIN");
    let open = writer.ok(IN_TRANSACTION);
    let expected = OpenState { transaction: Transaction::Open, ..OpenState::default() };
    assert_eq!(remains(&[(&begin, open.clone())]), ConnectionState::Clean(expected));
    let closed = [(&begin[..], open.clone()), (&begin, writer.ok(AUTOCOMMIT))];
    assert_eq!(remains(&closed), ConnectionState::Clean(OpenState::default()));
    // An error does not report the transaction status.
    assert_eq!(remains(&[(&begin, open), (&begin, refused())]), ConnectionState::Clean(expected));
    let option = message(b"\x1b\x01\0");
    let expected = OpenState { statements: MultiStatements::Changed, ..OpenState::default() };
    assert_eq!(remains(&[(&option, writer.ok(AUTOCOMMIT))]), ConnectionState::Clean(expected));
}

#[test]
fn a_file_is_forwarded_up_to_its_end() {
    for agreed in AGREED {
        let writer = Writer(agreed);
        let file = [&b"\x05\0\0\x02hello\x03\0\0\x03abc"[..], b"\0\0\0\x04"].concat();
        let mut relay = MySqlRelay::new(agreed);
        up(&mut relay, &query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t"), usize::MAX);
        down(&mut relay, b"\x02\0\0\x01\xfbx", 1);
        assert_eq!(relay.next_sequence(), 2);
        for cut in 0..file.len() {
            let mut relay = MySqlRelay::new(agreed);
            up(&mut relay, &query("LOAD DATA LOCAL INFILE 'x' INTO TABLE t"), usize::MAX);
            down(&mut relay, b"\x02\0\0\x01\xfbx", 1);
            relay.process_client(&file[..cut]).unwrap();
            let ConnectionState::Unknown(reason) = relay.connection_state() else {
                panic!("{cut}: {:?}", relay.connection_state())
            };
            assert!(reason.contains("file") || reason.contains("command"), "{cut}: {reason}");
        }
        up(&mut relay, &file, 1);
        assert_eq!(relay.next_sequence(), 5);
        down(&mut relay, &writer.ok(AUTOCOMMIT | MORE_RESULTS), 1);
        // Another statement of the same query.
        down(&mut relay, b"\x02\0\0\x06\xfby", 1);
        up(&mut relay, b"\0\0\0\x07", 1);
        down(&mut relay, &refused(), 1);
        assert!(is_clean(&relay), "{:?}", relay.connection_state());
    }
}

#[test]
fn a_file_must_be_offered_and_requested_in_order() {
    let ask = b"\x02\0\0\x01\xfbx";
    let mut relay = MySqlRelay::new(RELAYED.without(Capabilities::LOCAL_FILES));
    up(&mut relay, &query("SELECT 1"), usize::MAX);
    assert!(relay.process_server(ask).is_err());
    for behind in
        [query("SELECT 2"), written(|out| encode_statement_close(out, 1)), b"\x09\0\0\0\x03".to_vec()]
    {
        let mut relay = MySqlRelay::new(RELAYED);
        relay.process_client(&[query("SELECT 1"), behind].concat()).unwrap();
        assert!(relay.process_server(ask).is_err());
    }
    // A server that refuses before the end of the file leaves an unknown state.
    let mut relay = MySqlRelay::new(RELAYED);
    up(&mut relay, &query("SELECT 1"), usize::MAX);
    down(&mut relay, ask, usize::MAX);
    down(&mut relay, &refused(), usize::MAX);
    up(&mut relay, b"\x01\0\0\x02x\0\0\0\x03", 1);
    assert!(!is_clean(&relay));
}

#[test]
fn messages_of_many_packets_are_not_buffered() {
    let sizes = [MAX_PART_BYTES - 1, MAX_PART_BYTES, MAX_PART_BYTES + 1, 2 * MAX_PART_BYTES];
    for size in sizes {
        let mut payload = vec![b'x'; size];
        payload[0] = 0x03;
        let command = message(&payload);
        let mut relay = MySqlRelay::new(RELAYED);
        up(&mut relay, &command, 1 << 16);
        let parts = (size / MAX_PART_BYTES) as u8;
        assert_eq!(relay.next_sequence(), parts + 1);
        let (mut answer, writer) = (Answer::new(RELAYED), Writer(RELAYED));
        writer.head(&mut answer, 1, true);
        // A cell of this length starts like an EOF.
        payload[0] = 0xfe;
        if size >= MAX_PART_BYTES {
            answer.payload(&payload);
        }
        answer.payload(&vec![b'x'; size]).end_of_rows(AUTOCOMMIT);
        down(&mut relay, &answer.bytes, 1 << 16);
        assert!(is_clean(&relay), "{size}: {:?}", relay.connection_state());
        // A command without response has no sequence number to track.
        payload[0] = 0x18;
        up(&mut relay, &message(&payload), 1 << 16);
        assert_eq!(relay.next_sequence(), 1);
        assert!(is_clean(&relay));
    }
}

#[test]
fn com_quit_is_not_forwarded() {
    let bytes = [query("SELECT 1"), written(encode_quit), b"whatever".to_vec()].concat();
    let taken = MySqlRelay::new(RELAYED).process_client(&bytes).unwrap();
    assert_eq!((taken.pass_bytes, taken.goodbye), (query("SELECT 1").len(), Goodbye::Said));
}

#[test]
fn com_change_user_is_not_forwarded() {
    let bytes = [query("SELECT 1"), message(b"\x11app\0\0\0"), query("SELECT 2")].concat();
    let taken = MySqlRelay::new(RELAYED).process_client(&bytes).unwrap();
    assert_eq!((taken.pass_bytes, taken.goodbye), (query("SELECT 1").len(), Goodbye::ChangeUser));
}

#[test]
fn a_kill_of_a_proxy_identifier_is_held_and_replaced() {
    let own = 1 << 31;
    let kill = query(&format!("KILL QUERY {}", own + 7));
    let bytes = [query("SELECT 1"), kill.clone(), written(encode_ping)].concat();
    for piece in [1, 3, usize::MAX] {
        let mut relay =
            MySqlRelay::new(RELAYED.without(Capabilities::QUERY_ATTRIBUTES)).with_own_numbers(own);
        let (mut held, mut sent, mut kills) = (Vec::new(), Vec::new(), 0);
        for piece in bytes.chunks(piece) {
            held.extend_from_slice(piece);
            loop {
                let taken = relay.process_client(&held).unwrap();
                sent.extend(held.drain(..taken.pass_bytes));
                let Some((kill, bytes)) = relay.kill(&held) else { break };
                assert_eq!((kill.statements[0].number, bytes), (own + 7, held.len().min(bytes)));
                relay.replace_kill(&held).unwrap();
                kill.encode(Capabilities::default(), |_| KillReplacement::Number(42), &mut sent).unwrap();
                held.drain(..bytes);
                kills += 1;
            }
        }
        assert_eq!((held.len(), kills), (0, 1));
        assert_eq!(sent, [query("SELECT 1"), query("KILL QUERY 42"), written(encode_ping)].concat());
        // All three get a response.
        let writer = Writer(RELAYED);
        for _ in 0..3 {
            assert!(!is_clean(&relay));
            down(&mut relay, &writer.ok(AUTOCOMMIT), usize::MAX);
        }
        assert!(is_clean(&relay));
        // A connection identifier of the server is forwarded.
        let passes = query("KILL 7");
        up(&mut relay, &passes, piece);
        assert!(relay.kill(&kill).is_some());
    }
}

#[test]
fn commands_wait_when_many_responses_are_owed() {
    let (ping, own) = (written(encode_ping), 1 << 31);
    let commands = ping.repeat(10_000);
    let mut relay = MySqlRelay::new(RELAYED.without(Capabilities::QUERY_ATTRIBUTES)).with_own_numbers(own);
    let passed = relay.process_client(&commands).unwrap().pass_bytes;
    assert!(passed < commands.len() && relay.is_full(), "{passed}");
    let kill = query(&format!("KILL {own}"));
    for next in [&commands[passed..], &written(encode_quit), &kill] {
        let taken = relay.process_client(next).unwrap();
        assert_eq!((taken.pass_bytes, taken.goodbye), (0, Goodbye::None));
        assert!(relay.kill(next).is_none());
    }
    down(&mut relay, &Writer(RELAYED).ok(AUTOCOMMIT), usize::MAX);
    assert!(!relay.is_full() && relay.kill(&kill).is_some());
    assert_eq!(relay.process_client(&commands[passed..]).unwrap().pass_bytes, ping.len());
    down(&mut relay, &Writer(RELAYED).ok(AUTOCOMMIT).repeat(passed / ping.len()), usize::MAX);
    assert!(is_clean(&relay));
}

#[test]
fn a_final_err_is_forwarded() {
    let mut relay = MySqlRelay::new(RELAYED);
    let words = b"\x19\0\0\0\xff\x1d\x04#08S01Server shutdown ";
    down(&mut relay, words, 1);
    assert!(relay.error_was_last() && !is_clean(&relay));
}

proptest! {
    #[test]
    fn what_passes_does_not_depend_on_how_it_is_cut(
        which in prop::collection::vec(0..64_usize, 0..12),
        agreed in 0..3_usize,
        pipelined: bool,
        piece in 1_usize..40,
    ) {
        let agreed = AGREED[agreed];
        let all = exchanges(agreed);
        let chosen: Vec<&Exchange> = which.iter().map(|index| &all[index % all.len()]).collect();
        let mut relay = MySqlRelay::new(agreed);
        if pipelined {
            let commands: Vec<u8> = chosen.iter().flat_map(|exchange| exchange.up.clone()).collect();
            let answers: Vec<u8> = chosen.iter().flat_map(|exchange| exchange.down.clone()).collect();
            up(&mut relay, &commands, piece);
            down(&mut relay, &answers, piece);
        } else {
            for exchange in chosen {
                up(&mut relay, &exchange.up, piece);
                down(&mut relay, &exchange.down, piece);
                prop_assert!(is_clean(&relay), "{}", exchange.name);
            }
        }
        prop_assert!(is_clean(&relay), "{:?}", relay.connection_state());
    }

    #[test]
    fn what_is_broken_is_so_however_it_is_cut(
        which in 0..64_usize,
        at in 0..200_usize,
        change: u8,
        agreed in 0..3_usize,
        piece in 1_usize..9,
    ) {
        let agreed = AGREED[agreed];
        let all = exchanges(agreed);
        let mut exchange = all[which % all.len()].clone();
        if let Some(byte) = exchange.down.get_mut(at) {
            *byte ^= change;
        }
        let run = |piece: usize| {
            let mut relay = MySqlRelay::new(agreed);
            up(&mut relay, &exchange.up, piece);
            let (passed, end) = feed(&exchange.down, piece, |held| relay.process_server(held).map(Some));
            let ended = end.is_ok().then(|| (passed.len(), relay.connection_state(), relay.next_sequence()));
            (end, ended, passed)
        };
        let (end, ended, passed) = run(piece);
        let whole = run(usize::MAX);
        prop_assert_eq!((end, ended), (whole.0, whole.1));
        prop_assert!(exchange.down.starts_with(&passed));
    }

    #[test]
    fn garbage_is_an_error_or_waits_for_more(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut relay = MySqlRelay::new(RELAYED);
        if let Ok(taken) = relay.process_client(&bytes) {
            prop_assert!(taken.pass_bytes <= bytes.len());
        }
        if let Ok(pass_bytes) = relay.process_server(&bytes) {
            prop_assert!(pass_bytes <= bytes.len());
        }
    }
}
