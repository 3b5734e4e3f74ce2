use ciphertoll_wire::mysql::Terms;
use ciphertoll_wire::mysql::command::{encode_ping, encode_query, encode_quit, encode_statement_close};
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::relay::{MultiStatements, Transaction};
use ciphertoll_wire::mysql::server::{write_err, write_payload};

use ciphertoll_wire::relay::Goodbye;

use super::*;

const CAPABILITIES: Capabilities = Capabilities::DEPRECATE_EOF;

fn wanted() -> Wanted {
    let terms = Terms { capabilities: CAPABILITIES, character_set: 45 };
    Wanted {
        user: "app".to_owned(),
        database: None,
        terms,
        connection_id: OWN + 1,
        sequence: 3,
        carried: None,
        entry: None,
    }
}

fn facts() -> Facts {
    Facts {
        capabilities: CAPABILITIES,
        connection_id: 7,
        status: 2,
        database: None,
        beginning: None,
        flavour: ServerProduct::MariaDb,
        prepared: ConnectionStatements::default(),
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn ok(status: u16) -> Vec<u8> {
    written(|out| write_ok(out, 1, &OkPacket { status, ..OkPacket::default() }).unwrap())
}

/// The answer to the question how a session begins.
fn lesson() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sequence = write_payload(&mut bytes, 1, &[7]).unwrap();
    for _ in 0..7 {
        sequence = write_payload(&mut bytes, sequence, b"\x03def a column").unwrap();
    }
    let row = b"\x07utf8mb4\x12utf8mb4_general_ci\x07utf8mb4\x00\x0528800\x011\x06SYSTEM";
    sequence = write_payload(&mut bytes, sequence, row).unwrap();
    write_payload(&mut bytes, sequence, b"\xfe\0\0\x02\0\0\0").unwrap();
    bytes
}

/// A connection whose first session has begun.
fn begun() -> (Session, Facts) {
    let mut facts = facts();
    let mut to_server = Vec::new();
    let mut session = Session::begin(&wanted(), &facts, &Numbers::default(), &mut to_server).unwrap();
    assert_eq!(session.start(), Start::WhenSet);
    assert!(!to_server.is_empty());
    let taken = session.from_server(&lesson(), &mut facts).unwrap();
    assert_eq!((taken.skip_bytes, taken.pass_bytes), (lesson().len(), 0));
    assert!(matches!(taken.news, News::Begins));
    (session, facts)
}

#[test]
fn the_first_session_of_a_connection_finds_out_how_they_begin() {
    let (session, facts) = begun();
    assert!(facts.beginning.is_some());
    assert_eq!(written(|out| session.greet(&facts, out).unwrap()), b"\x07\0\0\x03\0\0\0\x02\0\0\0");
    // That was not the client, and needs no reset.
    assert_eq!(session.leave(), Leaving::Untouched);
    // The next one begins at once.
    let mut to_server = Vec::new();
    let session = Session::begin(&wanted(), &facts, &Numbers::default(), &mut to_server).unwrap();
    assert_eq!((session.start(), to_server), (Start::Now, Vec::new()));
    assert_eq!(session.leave(), Leaving::Untouched);
}

#[test]
fn who_leaves_before_it_has_begun_leaves_nothing_usable() {
    let session = Session::begin(&wanted(), &facts(), &Numbers::default(), &mut Vec::new()).unwrap();
    assert!(matches!(session.leave(), Leaving::Close(_)));
}

#[test]
fn a_server_that_does_not_say_how_sessions_begin_is_quoted() {
    let mut facts = facts();
    let mut session = Session::begin(&wanted(), &facts, &Numbers::default(), &mut Vec::new()).unwrap();
    let err = ErrPacket { code: 1820, sql_state: *b"HY000", message: b"You must reset your password" };
    let bytes = written(|out| write_err(out, 1, &err).unwrap());
    let taken = session.from_server(&bytes, &mut facts).unwrap();
    assert!(matches!(taken.news, News::Refused(_)), "{taken:?}");
    // In the packet that the client waits for.
    let refused = written(|out| session.refuse(&Refusal::new(Refusal::FULL, "x"), out));
    assert_eq!(refused[3], 3);
}

#[test]
fn a_goodbye_is_not_passed_on() {
    let (mut session, mut facts) = begun();
    let query = written(|out| encode_query(out, "SELECT 1").unwrap());
    let bytes = [query.clone(), written(encode_quit), b"whatever".to_vec()].concat();
    let taken = session.from_client(&bytes, &mut facts).unwrap();
    assert_eq!((taken.pass_bytes, taken.goodbye), (query.len(), Goodbye::Said));
}

#[test]
fn what_is_left_behind_is_known() {
    let (ping, close) = (written(encode_ping), written(|out| encode_statement_close(out, 1)));
    let open = OpenState { transaction: Transaction::Open, statements: MultiStatements::AsAgreed };
    let leaving = |up: &[u8], down: &[u8]| {
        let (mut session, mut facts) = begun();
        session.from_client(up, &mut facts).unwrap();
        session.from_server(down, &mut facts).unwrap();
        session.leave()
    };
    assert_eq!(leaving(&ping, &ok(2)), Leaving::Reset(Left::default()));
    assert_eq!(leaving(&ping, &ok(3)), Leaving::Reset(Left { remains: open, ..Left::default() }));
    // Nothing answers that.
    assert_eq!(leaving(&close, b""), Leaving::Reset(Left::default()));
    for (up, down) in [
        (&ping[..], &b""[..]),
        (&ping, &ok(2)[..6]),
        (&ping[..4], b""),
        (&[&ping[..], &ping].concat(), &ok(2)),
    ] {
        let leaving = leaving(up, down);
        if up.len() > 4 || !down.is_empty() {
            assert!(matches!(leaving, Leaving::Close(_)), "{up:?} {down:?}: {leaving:?}");
        } else {
            // Less than a command was not passed on.
            assert_eq!(leaving, Leaving::Untouched);
        }
    }
}

#[test]
fn a_reason_has_the_number_that_the_client_waits_for() {
    let (mut session, mut facts) = begun();
    let number = |session: &Session| {
        written(|out| session.refuse(&Refusal::new(Refusal::LOST, "the server is gone"), out))[3]
    };
    assert!(session.wants_a_reason());
    assert_eq!(number(&session), 1);
    session.from_client(&written(|out| encode_query(out, "SELECT 1").unwrap()), &mut facts).unwrap();
    // The number of columns, and a part of a definition.
    session.from_server(b"\x01\0\0\x01\x01", &mut facts).unwrap();
    assert_eq!(number(&session), 2);
    let definition = b"\x40\0\0\x02\x03def and so on, for 23 bytes and";
    session.from_server(definition, &mut facts).unwrap();
    assert!(!session.wants_a_reason());
}

#[test]
fn a_client_is_killed_by_the_number_that_it_knows() {
    let numbers = Numbers::default();
    let mut facts = Facts { connection_id: 11, ..begun().1 };
    let target = Session::begin(&wanted(), &facts, &numbers, &mut Vec::new()).unwrap();
    let killer = Wanted { connection_id: OWN + 2, ..wanted() };
    let mut killer = Session::begin(&killer, &facts, &numbers, &mut Vec::new()).unwrap();
    let kill = |number: u32| written(|out| encode_query(out, &format!("KILL QUERY {number}")).unwrap());
    for (number, expected) in [(OWN + 1, 11), (OWN + 77, OWN + 77)] {
        let bytes = [written(encode_ping), kill(number)].concat();
        let taken = killer.from_client(&bytes, &mut facts).unwrap();
        assert_eq!((taken.pass_bytes, taken.drop_bytes), (5, kill(number).len()));
        assert_eq!(taken.insert, kill(expected));
    }
    // Until that is answered it may still hit, and the connection is for nobody else.
    killer.from_server(&[ok(2), ok(2), ok(2)].concat(), &mut facts).unwrap();
    assert!(matches!(target.leave(), Leaving::Close(_)));
    killer.from_server(&ok(2), &mut facts).unwrap();
    assert_eq!(target.leave(), Leaving::Untouched);
    // What names a number of the server's is the server's.
    let taken = killer.from_client(&kill(11), &mut facts).unwrap();
    assert_eq!((taken.pass_bytes, taken.insert.len()), (kill(11).len(), 0));
}
