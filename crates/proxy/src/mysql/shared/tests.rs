use ciphertoll_wire::mysql::command::{encode_execute, encode_ping, encode_prepare, encode_query};
use ciphertoll_wire::mysql::relay::{ConnectionStatements, KillTarget, ServerProduct};
use ciphertoll_wire::mysql::server::{write_err, write_ok, write_payload};
use ciphertoll_wire::mysql::{Capabilities, PrepareOk, Terms};

use crate::dialect::Leaving;

use super::*;

const CAPABILITIES: Capabilities = Capabilities::DEPRECATE_EOF;
const OK: OkPacket = OkPacket { affected_rows: 0, last_insert_id: 0, status: 2, warnings: 0 };

fn wanted() -> Wanted {
    let terms = Terms { capabilities: CAPABILITIES, character_set: 45 };
    Wanted {
        user: "app".to_owned(),
        database: None,
        terms,
        connection_id: OWN + 1,
        sequence: 2,
        carried: None,
        entry: None,
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn query(text: &str) -> Vec<u8> {
    written(|out| encode_query(out, text).unwrap())
}

fn ping() -> Vec<u8> {
    written(encode_ping)
}

fn ok(packet: &OkPacket) -> Vec<u8> {
    written(|out| write_ok(out, 1, packet).unwrap())
}

fn row(cells: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut sequence = write_payload(&mut bytes, 1, &[cells.len() as u8]).unwrap();
    for _ in cells {
        sequence = write_payload(&mut bytes, sequence, b"\x03def a column").unwrap();
    }
    let row: Vec<u8> =
        cells.iter().flat_map(|cell| [&[cell.len() as u8], cell.as_bytes()].concat()).collect();
    sequence = write_payload(&mut bytes, sequence, &row).unwrap();
    write_payload(&mut bytes, sequence, b"\xfe\0\0\x02\0\0\0").unwrap();
    bytes
}

/// A connection of whose sessions it is known how they begin.
fn facts(numbers: &Numbers) -> Facts {
    let mut facts = Facts {
        capabilities: CAPABILITIES,
        connection_id: 7,
        status: 2,
        database: Some("shop".to_owned()),
        beginning: None,
        flavour: ServerProduct::MariaDb,
        prepared: ConnectionStatements::default(),
    };
    let mut session = Session::share(wanted(), Place::Fresh, &facts, numbers, &mut Vec::new()).unwrap();
    assert_eq!(session.start(), Start::WhenSet);
    let lesson = row(&["utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", "28800", "1", "SYSTEM"]);
    let taken = session.from_server(&lesson, &mut facts).unwrap();
    assert!(matches!(taken.news, News::Begins));
    assert!(session.can_be_parted());
    facts
}

/// A session that begins, and what the server is told first.
fn begin(wanted: Wanted, place: Place, facts: &Facts, numbers: &Numbers) -> (Session, Vec<u8>) {
    let mut to_server = Vec::new();
    let session = Session::share(wanted, place, facts, numbers, &mut to_server).unwrap();
    (session, to_server)
}

/// The client says this, and the server answers so: what it comes to.
fn exchange(session: &mut Session, facts: &mut Facts, up: &[u8], down: &[u8]) -> Then {
    let taken = session.from_client(up, facts).unwrap();
    assert_eq!(taken.pass_bytes, up.len());
    let taken = session.from_server(down, facts).unwrap();
    assert_eq!(taken.pass_bytes, down.len());
    taken.then
}

#[test]
fn a_client_goes_on_elsewhere_with_what_it_has_set() {
    let numbers = Numbers::default();
    let mut facts = facts(&numbers);
    let (mut session, to_server) = begin(wanted(), Place::Fresh, &facts, &numbers);
    assert_eq!((session.start(), to_server), (Start::Now, Vec::new()));
    let insert = OkPacket { last_insert_id: 9, ..OK };
    let then = exchange(&mut session, &mut facts, &query("INSERT INTO t VALUES (1)"), &ok(&insert));
    assert_eq!(then, Then::Rests);
    let then = exchange(&mut session, &mut facts, &query("SET wait_timeout=5, a='b'"), &ok(&OK));
    assert_eq!(then, Then::Asks);
    let mut to_server = Vec::new();
    session.ask(&facts, &mut to_server).unwrap();
    assert_eq!(to_server, [query("SELECT @@wait_timeout,@@a"), ping()].concat());
    assert_eq!(session.start(), Start::WhenSet);
    let taken = session.from_server(&[row(&["5", "b"]), ok(&OK)].concat(), &mut facts).unwrap();
    assert!(matches!(taken.news, News::Begins));
    assert_eq!((taken.pass_bytes, taken.then), (0, Then::Rests));
    let then = exchange(&mut session, &mut facts, &query("USE other"), &ok(&OK));
    assert_eq!(then, Then::Asks);
    session.ask(&facts, &mut Vec::new()).unwrap();
    session.from_server(&[row(&["other"]), ok(&OK)].concat(), &mut facts).unwrap();
    let Parted { wanted, leaving } = session.part();
    assert_eq!(leaving, Leaving::Reset(Left::default()));
    // Where it has been last it is told nothing.
    let (session, to_server) = begin(wanted.unwrap(), Place::Own, &facts, &numbers);
    assert_eq!((session.start(), to_server), (Start::Now, Vec::new()));
    let wanted = session.part().wanted.unwrap();
    let (mut session, to_server) = begin(wanted, Place::Fresh, &facts, &numbers);
    let set = query("SET wait_timeout=5,a='b',last_insert_id=9");
    assert_eq!(to_server, [b"\x06\0\0\0\x02other", &set[..]].concat());
    assert_eq!(session.start(), Start::WhenSet);
    let taken = session.from_server(&[ok(&OK), ok(&OK)].concat(), &mut facts).unwrap();
    assert!(matches!(taken.news, News::Begins));
    assert_eq!((session.start(), taken.then), (Start::Now, Then::GoesOn));
}

#[test]
fn what_is_said_early_goes_with_a_statement_that_is_prepared_anew() {
    let numbers = Numbers::default();
    let mut facts = facts(&numbers);
    let (mut session, _) = begin(wanted(), Place::Fresh, &facts, &numbers);
    let prepare = written(|out| encode_prepare(out, "SELECT 1").unwrap());
    session.from_client(&prepare, &mut facts).unwrap();
    let mut payload = Vec::new();
    PrepareOk { statement_id: 77, params: 0, columns: 0 }.encode(&mut payload);
    let mut is_prepared = Vec::new();
    write_payload(&mut is_prepared, 1, &payload).unwrap();
    let taken = session.from_server(&is_prepared, &mut facts).unwrap();
    assert_eq!((taken.drop_bytes, taken.insert.len()), (16, 16));
    assert_eq!(session.from_server(b"", &mut facts).unwrap().then, Then::Rests);
    let insert = OkPacket { last_insert_id: 9, ..OK };
    exchange(&mut session, &mut facts, &query("INSERT INTO t VALUES (1)"), &ok(&insert));
    let wanted = session.part().wanted.unwrap();
    facts.prepared.clear();
    let (mut session, to_server) = begin(wanted, Place::Fresh, &facts, &numbers);
    assert_eq!((session.start(), to_server), (Start::Now, query("SET last_insert_id=9")));
    let execute = |id| written(|out| encode_execute(out, id, &[]).unwrap());
    let taken = session.from_client(&execute(1), &mut facts).unwrap();
    assert_eq!((taken.pass_bytes, taken.drop_bytes, taken.insert), (0, 0, prepare));
    assert_eq!(session.start(), Start::WhenSet);
    is_prepared[5] = 5;
    let taken = session.from_server(&[ok(&OK), is_prepared].concat(), &mut facts).unwrap();
    assert!(matches!(taken.news, News::Begins));
    assert_eq!(taken.then, Then::GoesOn, "it waits for the client's command");
    let taken = session.from_client(&execute(1), &mut facts).unwrap();
    assert_eq!((taken.drop_bytes, taken.insert), (9, execute(5)[..9].to_vec()));
}

#[test]
fn after_an_error_the_server_is_asked_how_the_session_is() {
    let numbers = Numbers::default();
    let mut facts = facts(&numbers);
    let (mut session, _) = begin(wanted(), Place::Fresh, &facts, &numbers);
    let refusal = written(|out| write_err(out, 1, &INTERRUPTED).unwrap());
    for (status, then) in [(3, Then::GoesOn), (2, Then::Rests)] {
        assert_eq!(exchange(&mut session, &mut facts, &query("CALL p()"), &refusal), Then::Asks);
        let mut to_server = Vec::new();
        session.ask(&facts, &mut to_server).unwrap();
        assert_eq!(to_server, ping());
        let taken = session.from_server(&ok(&OkPacket { status, ..OK }), &mut facts).unwrap();
        assert_eq!(taken.then, then);
        // A transaction is open, and ends.
        exchange(&mut session, &mut facts, &query("ROLLBACK"), &ok(&OK));
    }
    let warned = OkPacket { warnings: 1, ..OK };
    assert_eq!(exchange(&mut session, &mut facts, &query("SELECT 1"), &ok(&warned)), Then::Rests);
    let Leaving::Reset(left) = session.part().leaving else { panic!("it is reset") };
    assert_eq!(left.diagnostics, Diagnostics::Some);
}

#[test]
fn a_session_that_cannot_move_says_so_once() {
    let numbers = Numbers::default();
    let mut facts = facts(&numbers);
    let (mut session, _) = begin(wanted(), Place::Fresh, &facts, &numbers);
    let pinned = exchange(&mut session, &mut facts, &query("SET @x = 1"), &ok(&OK));
    assert_eq!(pinned, Then::Pinned("a user variable"));
    assert_eq!(exchange(&mut session, &mut facts, &query("SET @y = 1"), &ok(&OK)), Then::GoesOn);
    // A reset of its own.
    assert_eq!(exchange(&mut session, &mut facts, b"\x01\0\0\0\x1f", &ok(&OK)), Then::Asks);
}

#[test]
fn what_was_ended_while_it_waited_is_refused() {
    let numbers = Numbers::default();
    let mut facts = facts(&numbers);
    let (session, _) = begin(wanted(), Place::Fresh, &facts, &numbers);
    let waiting = session.part().wanted.unwrap();
    let mut killer = numbers.list(OWN + 2, Some(8));
    killer.name(OWN + 1, KillTarget::Query);
    assert_eq!(waiting.order(), Order::Cancel);
    let (mut session, _) = begin(waiting, Place::Fresh, &facts, &numbers);
    let said = [query("SELECT 'never'"), query("SELECT 'later'")].concat();
    let first = query("SELECT 'never'").len();
    // Not before all of it is here.
    let taken = session.from_client(&said[..first - 1], &mut facts).unwrap();
    assert_eq!((taken.pass_bytes, taken.drop_bytes), (0, 0));
    let taken = session.from_client(&said, &mut facts).unwrap();
    assert_eq!((taken.pass_bytes, taken.drop_bytes), (0, first));
    assert!(taken.insert.windows(6).any(|part| part == b"SIGNAL"));
    let taken = session.from_client(&said[first..], &mut facts).unwrap();
    assert_eq!(taken.pass_bytes, said.len() - first);
    // Who is to end does not begin again.
    let waiting = {
        let (session, _) =
            begin(Wanted { connection_id: OWN + 3, ..wanted() }, Place::Fresh, &facts, &numbers);
        session.part().wanted.unwrap()
    };
    killer.name(OWN + 3, KillTarget::Connection);
    let not_begun = Session::share(waiting, Place::Fresh, &facts, &numbers, &mut Vec::new());
    assert!(
        matches!(not_begun, Err(not_begun) if matches!(not_begun.error, Error::Server { code: 1317, .. }))
    );
}
