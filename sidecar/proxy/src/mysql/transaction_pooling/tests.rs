use ciphertoll_wire::mysql::command::{
    encode_execute, encode_ping, encode_prepare, encode_query, encode_reset_connection,
    encode_statement_close,
};
use ciphertoll_wire::mysql::relay::{ConnectionStatements, KillTarget, ServerProduct, SocketLimits};
use ciphertoll_wire::mysql::server::{write_err, write_ok, write_payload};
use ciphertoll_wire::mysql::{Capabilities, PrepareOk, Terms};

use ciphertoll_wire::mysql::ok::OkPacket;
use ciphertoll_wire::session;

use super::super::session::ReleasedState;
use crate::protocol::{Detached, FirstInput, ProtocolRequest, Release, ResetPolicy};
use crate::refusal::Refusal;

use super::*;
use crate::mysql::startup_request::PasswordProof;

const CAPABILITIES: Capabilities = Capabilities::DEPRECATE_EOF;
const OK: OkPacket = OkPacket { affected_rows: 0, last_insert_id: 0, status: 2, warnings: 0 };

fn request() -> Box<StartupRequest> {
    let terms = Terms { capabilities: CAPABILITIES, character_set: 45 };
    Box::new(StartupRequest {
        user: "app".into(),
        database: None,
        terms,
        connection_id: FIRST_ID + 1,
        sequence: 2,
        session_state: None,
        proof: PasswordProof::Settings,
        login_context: None,
    })
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

/// A connection whose initial session state is known.
fn backend(connection_ids: &ConnectionIds) -> BackendState {
    let mut backend = BackendState {
        capabilities: CAPABILITIES,
        connection_id: 7,
        status: 2,
        database: Some("shop".into()),
        initial_state: None,
        product: ServerProduct::MariaDb,
        prepared: ConnectionStatements::default(),
        reset: ResetPolicy::Always,
        remains: Remains::Nothing,
        role: None,
        greeting: None,
    };
    let mut session = ClientSession::begin_pooled(
        request(),
        AcquiredState::Reset,
        &backend,
        connection_ids,
        &mut Vec::new(),
    )
    .unwrap();
    assert!(session.awaits_settings());
    let initial_state_response =
        row(&["utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", "28800", "1", "SYSTEM"]);
    let processed = session.process_server(&initial_state_response, &mut backend).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Applied));
    assert!(session.can_detach());
    backend
}

/// Starts a session; returns what is sent first.
fn begin(
    request: Box<StartupRequest>,
    acquired: AcquiredState,
    backend: &BackendState,
    connection_ids: &ConnectionIds,
) -> (Box<ClientSession>, Vec<u8>) {
    let mut to_server = Vec::new();
    let session =
        ClientSession::begin_pooled(request, acquired, backend, connection_ids, &mut to_server).unwrap();
    (session, to_server)
}

/// Passes a command and its response; returns the session's phase.
fn exchange(
    session: &mut ClientSession,
    backend: &mut BackendState,
    from_client: &[u8],
    from_server: &[u8],
) -> SessionPhase {
    let processed = session.process_client(from_client, backend).unwrap();
    assert_eq!(processed.pass_bytes, from_client.len());
    let processed = session.process_server(from_server, backend).unwrap();
    assert_eq!(processed.pass_bytes, from_server.len());
    processed.phase
}

#[test]
fn a_client_continues_on_another_connection_with_its_settings() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, to_server) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    assert_eq!((session.awaits_settings(), to_server), (false, Vec::new()));
    let insert = OkPacket { last_insert_id: 9, ..OK };
    let phase = exchange(&mut session, &mut backend, &query("INSERT INTO t VALUES (1)"), &ok(&insert));
    assert_eq!(phase, SessionPhase::CanDetach);
    let phase = exchange(&mut session, &mut backend, &query("SET wait_timeout=5, a='b'"), &ok(&OK));
    assert_eq!(phase, SessionPhase::NeedsQuery);
    let mut to_server = Vec::new();
    session.query_settings(&backend, &mut to_server).unwrap();
    assert_eq!(to_server, [query("SELECT @@wait_timeout,@@a"), ping()].concat());
    assert!(session.awaits_settings());
    let processed = session.process_server(&[row(&["5", "b"]), ok(&OK)].concat(), &mut backend).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Applied));
    assert_eq!((processed.pass_bytes, processed.phase), (0, SessionPhase::CanDetach));
    let phase = exchange(&mut session, &mut backend, &query("USE other"), &ok(&OK));
    assert_eq!(phase, SessionPhase::NeedsQuery);
    session.query_settings(&backend, &mut Vec::new()).unwrap();
    session.process_server(&[row(&["6F74686572"]), ok(&OK)].concat(), &mut backend).unwrap();
    let Detached { request, release } = session.detach(&mut backend).unwrap();
    assert_eq!(release, Release::Reset(ReleasedState::default()));
    // On its last connection nothing is replayed.
    let (session, to_server) = begin(request.unwrap(), AcquiredState::SameClient, &backend, &connection_ids);
    assert_eq!((session.awaits_settings(), to_server), (false, Vec::new()));
    let request = session.detach(&mut backend).unwrap().request.unwrap();
    let (mut session, to_server) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
    let set = query("SET wait_timeout=5,a='b',last_insert_id=9");
    assert_eq!(to_server, [b"\x06\0\0\0\x02other", &set[..]].concat());
    assert!(session.awaits_settings());
    let processed = session.process_server(&[ok(&OK), ok(&OK)].concat(), &mut backend).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Applied));
    assert_eq!((session.awaits_settings(), processed.phase), (false, SessionPhase::Active));
}

/// Executes a `SET` and queries the values; returns the client, detached.
fn set(
    request: Box<StartupRequest>,
    acquired: AcquiredState,
    backend: &mut BackendState,
    connection_ids: &ConnectionIds,
    (text, answer, values): (&str, &OkPacket, &[&str]),
) -> Box<StartupRequest> {
    let (mut session, _) = begin(request, acquired, backend, connection_ids);
    assert_eq!(exchange(&mut session, backend, &query(text), &ok(answer)), SessionPhase::NeedsQuery);
    session.query_settings(backend, &mut Vec::new()).unwrap();
    let processed = session.process_server(&[row(values), ok(&OK)].concat(), backend).unwrap();
    assert_eq!(processed.phase, SessionPhase::CanDetach);
    session.detach(backend).unwrap().request.unwrap()
}

#[test]
fn a_command_whose_settings_are_refused_gets_the_error() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let first = ("SET a = 'b'", &OK, &["b"][..]);
    let mut request = set(request(), AcquiredState::Reset, &mut backend, &connection_ids, first);
    let err = ErrPacket { code: 1231, sql_state: *b"42000", message: b"gone" };
    let refusal = written(|out| write_err(out, 1, &err).unwrap());
    let reset = written(encode_reset_connection);
    let (command, partial) = (query("SELECT 1"), &query("SELECT 1")[..6]);
    for (input, expected) in
        [(partial, None), (&command, Some(command.len())), (&command, Some(command.len())), (&reset, Some(0))]
    {
        let (mut session, to_server) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
        assert_eq!(to_server, query("SET a='b'"));
        let processed = session.process_server(&refusal, &mut backend).unwrap();
        let SettingsResult::Refused(error) = processed.settings_result else { panic!("it is refused") };
        let mut out = Vec::new();
        let taken = session.refuse_command(&Refusal::settings_failed(&error), input, &mut out);
        assert_eq!(taken, expected);
        assert_eq!(out, if taken.is_some_and(|bytes| bytes > 0) { refusal.clone() } else { Vec::new() });
        // It lacks the client's settings, so it is not kept for the client.
        let detached = session.detach(&mut backend).unwrap();
        assert!(matches!(detached.release, Release::Close(_)), "{:?}", detached.release);
        request = detached.request.unwrap();
    }
    // The reset of the session is executed without them.
    assert!(begin(request, AcquiredState::Reset, &backend, &connection_ids).1.is_empty());
}

#[test]
fn results_keep_the_collation_of_the_last_set_names() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let mut request = request();
    for (text, values, replayed) in [
        (
            "SET NAMES latin1 COLLATE latin1_bin",
            &["latin1", "latin1", "latin1_bin"][..],
            "SET NAMES 'latin1' COLLATE 'latin1_bin'",
        ),
        (
            "SET collation_connection = latin1_german1_ci",
            &["latin1_german1_ci"],
            "SET NAMES 'latin1' COLLATE 'latin1_bin',collation_connection='latin1_german1_ci'",
        ),
        (
            "SET character_set_results = utf8mb4",
            &["utf8mb4"],
            "SET character_set_client='latin1',collation_connection='latin1_german1_ci',\
             character_set_results='utf8mb4'",
        ),
    ] {
        let change = (text, &OK, values);
        request = set(request, AcquiredState::SameClient, &mut backend, &connection_ids, change);
        let (session, to_server) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
        assert_eq!(to_server, query(replayed));
        request = session.detach(&mut backend).unwrap().request.unwrap();
    }
}

#[test]
fn warnings_of_settings_that_are_set_again_are_forgotten() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let warned = OkPacket { warnings: 1, ..OK };
    let change = ("SET a = 'b'", &warned, &["b"][..]);
    let request = set(request(), AcquiredState::Reset, &mut backend, &connection_ids, change);
    let (_, to_server) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
    assert_eq!(to_server, [query("SET a='b'"), query("DO (SELECT 1 FROM (SELECT 1) t)")].concat());
}

#[test]
fn a_connection_is_acquired_for_a_whole_command() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let prepare = written(|out| encode_prepare(out, "SELECT 1").unwrap());
    session.process_client(&prepare, &mut backend).unwrap();
    session.process_server(&is_prepared(77), &mut backend).unwrap();
    let mut request = session.detach(&mut backend).unwrap().request.unwrap();
    let (short, long) = (query("SELECT 1"), query(&"x".repeat(1 << 20)));
    for (input, expected) in [
        (&short[..], FirstInput::Command),
        (&short[..short.len() - 1], FirstInput::Incomplete),
        (&short[..3], FirstInput::Incomplete),
        (&[0, 0, 0, 0], FirstInput::Command),
        (&long[..5], FirstInput::Incomplete),
        (&long[..1 << 15], FirstInput::Command),
        (&[1, 0, 0, 0, 1], FirstInput::Terminate),
    ] {
        assert_eq!(request.first_input(input), expected, "{} bytes", input.len());
    }
    // Statements are closed without one.
    let close = written(|out| encode_statement_close(out, 1));
    assert_eq!(request.take_unanswered(&[&close[..], &short].concat()), close.len());
    assert_eq!(request.take_unanswered(&short), 0);
    backend.prepared.clear();
    let (mut session, _) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
    let execute = written(|out| encode_execute(out, 1, &[]).unwrap());
    let processed = session.process_client(&execute, &mut backend).unwrap();
    assert!(!session.awaits_settings() && processed.insert[5..9] == [0; 4], "{processed:?}");
}

#[test]
fn pipelined_settings_are_sent_with_a_statement_that_is_prepared_again() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let prepare = written(|out| encode_prepare(out, "SELECT 1").unwrap());
    session.process_client(&prepare, &mut backend).unwrap();
    let processed = session.process_server(&is_prepared(77), &mut backend).unwrap();
    assert_eq!((processed.drop_bytes, processed.insert.len()), (16, 16));
    assert_eq!(session.process_server(b"", &mut backend).unwrap().phase, SessionPhase::CanDetach);
    let insert = OkPacket { last_insert_id: 9, ..OK };
    exchange(&mut session, &mut backend, &query("INSERT INTO t VALUES (1)"), &ok(&insert));
    let request = session.detach(&mut backend).unwrap().request.unwrap();
    backend.prepared.clear();
    let (mut session, to_server) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
    assert_eq!((session.awaits_settings(), to_server), (false, query("SET last_insert_id=9")));
    let execute = |id| written(|out| encode_execute(out, id, &[]).unwrap());
    let processed = session.process_client(&execute(1), &mut backend).unwrap();
    assert_eq!((processed.pass_bytes, processed.drop_bytes, processed.insert), (0, 0, prepare));
    assert!(session.awaits_settings());
    let processed = session.process_server(&[ok(&OK), is_prepared(5)].concat(), &mut backend).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Applied));
    assert_eq!(processed.phase, SessionPhase::Active, "the client's command follows");
    let processed = session.process_client(&execute(1), &mut backend).unwrap();
    assert_eq!((processed.drop_bytes, processed.insert), (9, execute(5)[..9].to_vec()));
}

/// The answer to a prepare without parameters and columns.
fn is_prepared(statement_id: u32) -> Vec<u8> {
    let mut payload = Vec::new();
    PrepareOk { statement_id, params: 0, columns: 0, warnings: 0 }.encode(&mut payload);
    written(|out| {
        write_payload(out, 1, &payload).unwrap();
    })
}

#[test]
fn a_statement_without_a_database_is_not_prepared_in_one() {
    let connection_ids = ConnectionIds::default();
    let mut backend = BackendState { database: None, ..backend(&connection_ids) };
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    session.process_client(&written(|out| encode_prepare(out, "SELECT 1").unwrap()), &mut backend).unwrap();
    session.process_server(&is_prepared(77), &mut backend).unwrap();
    let request = session.detach(&mut backend).unwrap().request.unwrap();
    backend.prepared.clear();
    // On another connection, the client chooses a database.
    let (mut session, _) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
    let phase = exchange(&mut session, &mut backend, &query("USE shop"), &ok(&OK));
    assert_eq!(phase, SessionPhase::NeedsQuery);
    session.query_settings(&backend, &mut Vec::new()).unwrap();
    session.process_server(&[row(&["73686F70"]), ok(&OK)].concat(), &mut backend).unwrap();
    let phase = exchange(&mut session, &mut backend, &query("SELECT 1"), &ok(&OK));
    assert!(matches!(phase, SessionPhase::Pinned(_)), "{phase:?}");
    let execute = written(|out| encode_execute(out, 1, &[]).unwrap());
    let processed = session.process_client(&execute, &mut backend).unwrap();
    assert_eq!((processed.pass_bytes, processed.insert), (0, ping()));
    // It stays: the client's command is next, and is refused.
    assert_eq!(session.process_server(&ok(&OK), &mut backend).unwrap().phase, SessionPhase::Active);
    let processed = session.process_client(&execute, &mut backend).unwrap();
    assert_eq!(processed.pass_bytes, 0);
    session.process_client(&execute[processed.drop_bytes..], &mut backend).unwrap();
    let refused = session.process_server(&ok(&OK), &mut backend).unwrap();
    assert!(refused.insert.windows(5).any(|part| part == b"HY000"));
}

#[test]
fn after_an_error_the_status_of_the_session_is_queried() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let refusal = written(|out| write_err(out, 1, &INTERRUPTED).unwrap());
    for (status, phase) in [(3, SessionPhase::Active), (2, SessionPhase::CanDetach)] {
        assert_eq!(
            exchange(&mut session, &mut backend, &query("CALL p()"), &refusal),
            SessionPhase::NeedsQuery
        );
        let mut to_server = Vec::new();
        session.query_settings(&backend, &mut to_server).unwrap();
        assert_eq!(to_server, ping());
        let processed = session.process_server(&ok(&OkPacket { status, ..OK }), &mut backend).unwrap();
        assert_eq!(processed.phase, phase);
        // A transaction is open, and ends.
        exchange(&mut session, &mut backend, &query("ROLLBACK"), &ok(&OK));
    }
    let warned = OkPacket { warnings: 1, ..OK };
    assert_eq!(
        exchange(&mut session, &mut backend, &query("SELECT 1"), &ok(&warned)),
        SessionPhase::CanDetach
    );
    let Release::Reset(left) = session.detach(&mut backend).unwrap().release else { panic!("it is reset") };
    assert_eq!(left.diagnostics, Diagnostics::Some);
}

#[test]
fn an_error_may_end_a_transaction() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let open = ok(&OkPacket { status: 3, ..OK });
    let refusal = written(|out| write_err(out, 1, &INTERRUPTED).unwrap());
    assert_eq!(exchange(&mut session, &mut backend, &query("BEGIN"), &open), SessionPhase::Active);
    for (status, phase) in [(3, SessionPhase::Active), (2, SessionPhase::CanDetach)] {
        let asks = exchange(&mut session, &mut backend, &query("CREATE TABLE t (a INT)"), &refusal);
        assert_eq!(asks, SessionPhase::NeedsQuery);
        let mut to_server = Vec::new();
        session.query_settings(&backend, &mut to_server).unwrap();
        assert_eq!(to_server, ping());
        let processed = session.process_server(&ok(&OkPacket { status, ..OK }), &mut backend).unwrap();
        assert_eq!(processed.phase, phase);
    }
}

#[test]
fn the_last_insert_id_is_the_servers() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let insert = OkPacket { last_insert_id: 9, ..OK };
    let text = query("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1");
    assert_eq!(exchange(&mut session, &mut backend, &text, &ok(&insert)), SessionPhase::NeedsQuery);
    let mut to_server = Vec::new();
    session.query_settings(&backend, &mut to_server).unwrap();
    assert_eq!(to_server, [query("SELECT LAST_INSERT_ID()"), ping()].concat());
    let processed = session.process_server(&[row(&["8"]), ok(&OK)].concat(), &mut backend).unwrap();
    assert_eq!(processed.phase, SessionPhase::CanDetach);
    let request = session.detach(&mut backend).unwrap().request.unwrap();
    let (_, to_server) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
    assert_eq!(to_server, query("SET last_insert_id=8"));
}

#[test]
fn limits_of_the_socket_are_known_until_the_reset() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let limits = |session: Box<ClientSession>, backend: &mut BackendState| {
        let Detached { request, release } = session.detach(backend).unwrap();
        let Release::Reset(released) = release else { panic!("{release:?}") };
        (request.unwrap(), released.open_state.socket_limits)
    };
    exchange(&mut session, &mut backend, &query("SET net_write_timeout=5"), &ok(&OK));
    session.query_settings(&backend, &mut Vec::new()).unwrap();
    session.process_server(&[row(&["5"]), ok(&OK)].concat(), &mut backend).unwrap();
    let (request, first) = limits(session, &mut backend);
    // The text is not seen again: on the same connection, and on another one, where the proxy sets it.
    let (mut session, _) = begin(request, AcquiredState::SameClient, &backend, &connection_ids);
    exchange(&mut session, &mut backend, &ping(), &ok(&OK));
    let (request, same) = limits(session, &mut backend);
    let (mut session, _) = begin(request, AcquiredState::Reset, &backend, &connection_ids);
    session.process_server(&ok(&OK), &mut backend).unwrap();
    let (_, other) = limits(session, &mut backend);
    assert_eq!([first, same, other], [SocketLimits::Changed; 3]);
}

#[test]
fn a_pin_is_reported_once() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let pinned = exchange(&mut session, &mut backend, &query("SET @x = 1"), &ok(&OK));
    assert_eq!(pinned, SessionPhase::Pinned("a user variable"));
    assert_eq!(exchange(&mut session, &mut backend, &query("SET @y = 1"), &ok(&OK)), SessionPhase::Active);
    // `COM_RESET_CONNECTION` by the client.
    assert_eq!(exchange(&mut session, &mut backend, b"\x01\0\0\0\x1f", &ok(&OK)), SessionPhase::NeedsQuery);
}

#[test]
fn a_command_that_was_cancelled_while_it_waited_is_refused() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let waiting = session.detach(&mut backend).unwrap().request.unwrap();
    let mut killer = connection_ids.register(FIRST_ID + 2, Some(8));
    killer.resolve_kill(FIRST_ID + 1, KillTarget::Query);
    assert_eq!(waiting.pending_kill(), PendingKill::Query);
    let (mut session, _) = begin(waiting, AcquiredState::Reset, &backend, &connection_ids);
    let input = [query("SELECT 'never'"), query("SELECT 'later'")].concat();
    let first = query("SELECT 'never'").len();
    // Not before the command is complete.
    let processed = session.process_client(&input[..first - 1], &mut backend).unwrap();
    assert_eq!((processed.pass_bytes, processed.drop_bytes), (0, 0));
    let processed = session.process_client(&input, &mut backend).unwrap();
    assert_eq!((processed.pass_bytes, processed.drop_bytes), (0, first));
    assert!(processed.insert.windows(6).any(|part| part == b"SIGNAL"));
    let processed = session.process_client(&input[first..], &mut backend).unwrap();
    assert_eq!(processed.pass_bytes, input.len() - first);
    // A client whose connection was killed does not start another session.
    let waiting = {
        let (session, _) = begin(
            Box::new(StartupRequest { connection_id: FIRST_ID + 3, ..*request() }),
            AcquiredState::Reset,
            &backend,
            &connection_ids,
        );
        session.detach(&mut backend).unwrap().request.unwrap()
    };
    killer.resolve_kill(FIRST_ID + 3, KillTarget::Connection);
    let failed = ClientSession::begin_pooled(
        waiting,
        AcquiredState::Reset,
        &backend,
        &connection_ids,
        &mut Vec::new(),
    );
    assert!(
        matches!(failed, Err(failed) if matches!(failed.error, session::Error::MySql(Error::Server { code: 1317, .. })))
    );
}

#[test]
fn a_database_whose_name_is_not_ascii_stays_on_its_connection() {
    for (answer, name, is_pinned) in [
        ("6F74686572", Some("other"), false),
        ("73686F70", None, false),
        ("E697A5", None, true),
        ("??", None, true),
    ] {
        let connection_ids = ConnectionIds::default();
        let mut backend = backend(&connection_ids);
        let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
        exchange(&mut session, &mut backend, &query("USE other"), &ok(&OK));
        let mut to_server = Vec::new();
        session.query_settings(&backend, &mut to_server).unwrap();
        assert_eq!(to_server, [query("SELECT HEX(DATABASE())"), ping()].concat());
        session.process_server(&[row(&[answer]), ok(&OK)].concat(), &mut backend).unwrap();
        let PoolingMode::Transaction(pooled) = &session.mode else { panic!("it is in transaction pooling") };
        assert_eq!(pooled.pin != PinState::None, is_pinned, "{answer}");
        assert_eq!(pooled.session_state.database.as_deref(), name, "{answer}");
    }
}

#[test]
fn a_pinned_client_that_resets_its_session_may_still_lack_its_database() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let phase = exchange(&mut session, &mut backend, &query("SELECT GET_LOCK('a', 1)"), &ok(&OK));
    assert!(matches!(phase, SessionPhase::Pinned(_)), "{phase:?}");
    let reset = written(encode_reset_connection);
    assert_eq!(exchange(&mut session, &mut backend, &reset, &ok(&OK)), SessionPhase::NeedsQuery);
    let mut to_server = Vec::new();
    session.query_settings(&backend, &mut to_server).unwrap();
    assert!(String::from_utf8_lossy(&to_server).contains("DATABASE()"));
}

#[test]
fn flags_of_the_connection_that_differ_from_those_of_the_login_pin_nobody() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let set_mode = ("SET sql_mode = ''", &OK, &[""][..]);
    let own = set(request(), AcquiredState::Reset, &mut backend, &connection_ids, set_mode);
    let other = OkPacket { status: 0x202, ..OK };
    // The initial state shows it.
    backend.initial_state = None;
    let mut greeted = request();
    greeted.greet(OK.status, &connection_ids, &mut Vec::new()).unwrap();
    let (mut session, _) = begin(greeted, AcquiredState::Reset, &backend, &connection_ids);
    let mut response =
        row(&["utf8mb4", "utf8mb4_general_ci", "utf8mb4", "NO_BACKSLASH_ESCAPES", "28800", "1", "SYSTEM"]);
    let high = response.len() - 3;
    response[high] = 2;
    session.process_server(&response, &mut backend).unwrap();
    assert_eq!(backend.status, other.status);
    let phase = exchange(&mut session, &mut backend, &query("SELECT 1"), &ok(&other));
    assert_eq!(phase, SessionPhase::CanDetach);
    // The next client has the same flags, unless it has set the mode itself.
    let mut greeted = request();
    greeted.greet(OK.status, &connection_ids, &mut Vec::new()).unwrap();
    let (mut session, _) = begin(greeted, AcquiredState::Reset, &backend, &connection_ids);
    let phase = exchange(&mut session, &mut backend, &query("SELECT 1"), &ok(&other));
    assert_eq!(phase, SessionPhase::CanDetach);
    let (mut session, _) = begin(own, AcquiredState::Reset, &backend, &connection_ids);
    session.process_server(&ok(&OK), &mut backend).unwrap();
    let phase = exchange(&mut session, &mut backend, &query("SELECT 1"), &ok(&OK));
    assert_eq!(phase, SessionPhase::CanDetach);
}

#[test]
fn commands_wait_for_the_answer_to_a_reset() {
    let connection_ids = ConnectionIds::default();
    let mut backend = backend(&connection_ids);
    let (mut session, _) = begin(request(), AcquiredState::Reset, &backend, &connection_ids);
    let (reset, text) =
        (written(encode_reset_connection), query("SELECT 'it\\'s', GET_LOCK('a', 1), 'it\\'s'"));
    let kill = query(&format!("KILL QUERY {}", FIRST_ID + 1));
    for behind in [&text, &kill] {
        let processed = session.process_client(&[&reset[..], behind].concat(), &mut backend).unwrap();
        assert_eq!((processed.pass_bytes, processed.drop_bytes, processed.insert.len()), (reset.len(), 0, 0));
        assert!(session.is_full());
        session.process_server(&ok(&OK), &mut backend).unwrap();
        assert!(!session.is_full());
    }
}
