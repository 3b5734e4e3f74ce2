use ciphertoll_wire::mysql::Terms;
use ciphertoll_wire::mysql::command::{encode_ping, encode_query, encode_quit, encode_statement_close};
use ciphertoll_wire::mysql::err::ErrPacket;
use ciphertoll_wire::mysql::relay::Transaction;
use ciphertoll_wire::mysql::server::{write_err, write_payload};

use ciphertoll_wire::relay::Goodbye;

use super::*;
use crate::mysql::startup_request::PasswordProof;

const CAPABILITIES: Capabilities = Capabilities::DEPRECATE_EOF;
const TOKEN: CancelToken = CancelToken { process_id: 1, secret: [0; 4] };

fn request() -> Box<StartupRequest> {
    let terms = Terms { capabilities: CAPABILITIES, character_set: 45 };
    Box::new(StartupRequest {
        user: "app".into(),
        database: None,
        terms,
        connection_id: FIRST_ID + 1,
        sequence: 3,
        session_state: None,
        proof: PasswordProof::Settings,
        login_context: None,
    })
}

fn backend() -> BackendState {
    BackendState {
        capabilities: CAPABILITIES,
        connection_id: 7,
        status: 2,
        database: None,
        initial_state: None,
        product: ServerProduct::MariaDb,
        prepared: ConnectionStatements::default(),
        reset: ResetPolicy::Always,
        remains: Remains::Nothing,
        role: None,
        greeting: None,
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

/// The response to the query for the initial state.
fn initial_state_response() -> Vec<u8> {
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

/// A connection whose first session has started.
fn started_session() -> (Box<ClientSession>, BackendState) {
    let mut backend = backend();
    let mut to_server = Vec::new();
    let mut session =
        ClientSession::begin(&request(), &backend, &ConnectionIds::default(), &mut to_server).unwrap();
    assert!(session.awaits_settings());
    assert!(!to_server.is_empty());
    let processed = session.process_server(&initial_state_response(), &mut backend).unwrap();
    assert_eq!((processed.skip_bytes, processed.pass_bytes), (initial_state_response().len(), 0));
    assert!(matches!(processed.settings_result, SettingsResult::Applied));
    (session, backend)
}

#[test]
fn the_first_session_of_a_connection_queries_the_initial_state() {
    let (mut session, mut backend) = started_session();
    assert!(backend.initial_state.is_some());
    assert_eq!(
        written(|out| session.greet(&mut backend, TOKEN, out).unwrap()),
        b"\x07\0\0\x03\0\0\0\x02\0\0\0"
    );
    // The query was not the client's, and needs no reset.
    assert_eq!(session.release_action(), Release::Clean);
    // The next session starts at once.
    let mut to_server = Vec::new();
    let session =
        ClientSession::begin(&request(), &backend, &ConnectionIds::default(), &mut to_server).unwrap();
    assert_eq!((session.awaits_settings(), to_server), (false, Vec::new()));
    assert_eq!(session.release_action(), Release::Clean);
}

#[test]
fn a_connection_whose_client_left_during_the_query_is_closed() {
    let session =
        ClientSession::begin(&request(), &backend(), &ConnectionIds::default(), &mut Vec::new()).unwrap();
    assert!(matches!(session.release_action(), Release::Close(_)));
}

#[test]
fn a_server_error_during_the_query_is_passed_on() {
    let mut backend = backend();
    let mut session =
        ClientSession::begin(&request(), &backend, &ConnectionIds::default(), &mut Vec::new()).unwrap();
    let err = ErrPacket { code: 1820, sql_state: *b"HY000", message: b"You must reset your password" };
    let bytes = written(|out| write_err(out, 1, &err).unwrap());
    let processed = session.process_server(&bytes, &mut backend).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Refused(_)), "{processed:?}");
    // In the packet that the client waits for.
    let refused = written(|out| session.refuse(&Refusal::new(Refusal::FULL, "x"), out));
    assert_eq!(refused[3], 3);
}

#[test]
fn the_clients_last_message_is_not_passed_on() {
    let (mut session, mut backend) = started_session();
    let query = written(|out| encode_query(out, "SELECT 1").unwrap());
    let bytes = [query.clone(), written(encode_quit), b"whatever".to_vec()].concat();
    let processed = session.process_client(&bytes, &mut backend).unwrap();
    assert_eq!((processed.pass_bytes, processed.goodbye), (query.len(), Goodbye::Said));
}

#[test]
fn a_connection_is_reset_only_if_its_state_is_known() {
    let (ping, close) = (written(encode_ping), written(|out| encode_statement_close(out, 1)));
    let open = OpenState { transaction: Transaction::Open, ..OpenState::default() };
    let release = |up: &[u8], down: &[u8]| {
        let (mut session, mut backend) = started_session();
        session.process_client(up, &mut backend).unwrap();
        session.process_server(down, &mut backend).unwrap();
        session.release_action()
    };
    let pinged = ReleasedState { remains: Remains::Nothing, ..ReleasedState::default() };
    assert_eq!(release(&ping, &ok(2)), Release::Reset(pinged));
    assert_eq!(release(&ping, &ok(3)), Release::Reset(ReleasedState { open_state: open, ..pinged }));
    // This command has no response.
    assert_eq!(release(&close, b""), Release::Reset(ReleasedState::default()));
    for (up, down) in [
        (&ping[..], &b""[..]),
        (&ping, &ok(2)[..6]),
        (&ping[..4], b""),
        (&[&ping[..], &ping].concat(), &ok(2)),
    ] {
        let release = release(up, down);
        if up.len() > 4 || !down.is_empty() {
            assert!(matches!(release, Release::Close(_)), "{up:?} {down:?}: {release:?}");
        } else {
            // An incomplete command was not passed on.
            assert_eq!(release, Release::Clean);
        }
    }
}

#[test]
fn an_error_has_the_sequence_number_that_the_client_expects() {
    let (mut session, mut backend) = started_session();
    let number = |session: &ClientSession| {
        written(|out| session.refuse(&Refusal::new(Refusal::LOST, "the server is gone"), out))[3]
    };
    assert!(session.can_send_error());
    assert_eq!(number(&session), 1);
    session.process_client(&written(|out| encode_query(out, "SELECT 1").unwrap()), &mut backend).unwrap();
    // The number of columns, and a part of a definition.
    session.process_server(b"\x01\0\0\x01\x01", &mut backend).unwrap();
    assert_eq!(number(&session), 2);
    let definition = b"\x40\0\0\x02\x03def and so on, for 23 bytes and";
    session.process_server(definition, &mut backend).unwrap();
    assert!(!session.can_send_error());
}

#[test]
fn a_kill_is_translated_to_the_servers_connection_id() {
    let connection_ids = ConnectionIds::default();
    let mut backend = BackendState { connection_id: 11, ..started_session().1 };
    let target = ClientSession::begin(&request(), &backend, &connection_ids, &mut Vec::new()).unwrap();
    let killer = StartupRequest { connection_id: FIRST_ID + 2, ..*request() };
    let mut killer = ClientSession::begin(&killer, &backend, &connection_ids, &mut Vec::new()).unwrap();
    let kill = |number: u32| written(|out| encode_query(out, &format!("KILL QUERY {number}")).unwrap());
    for (number, expected) in [(FIRST_ID + 1, 11), (FIRST_ID + 77, FIRST_ID + 77)] {
        let bytes = [written(encode_ping), kill(number)].concat();
        let processed = killer.process_client(&bytes, &mut backend).unwrap();
        assert_eq!((processed.pass_bytes, processed.drop_bytes), (5, kill(number).len()));
        assert_eq!(processed.insert, kill(expected));
    }
    // Until the kill is answered it may take effect, and the connection cannot be reused.
    killer.process_server(&[ok(2), ok(2), ok(2)].concat(), &mut backend).unwrap();
    assert!(matches!(target.release_action(), Release::Close(_)));
    killer.process_server(&ok(2), &mut backend).unwrap();
    assert_eq!(target.release_action(), Release::Clean);
    // The server's own IDs are passed on.
    let processed = killer.process_client(&kill(11), &mut backend).unwrap();
    assert_eq!((processed.pass_bytes, processed.insert.len()), (kill(11).len(), 0));
}

/// What remains on a separate connection after commands with these responses.
fn remains_after(backend: &mut BackendState, exchanges: &[(&str, Vec<u8>)]) -> Remains {
    let mut session =
        ClientSession::begin(&request(), backend, &ConnectionIds::default(), &mut Vec::new()).unwrap();
    for (text, response) in exchanges {
        session.process_client(&written(|out| encode_query(out, text).unwrap()), backend).unwrap();
        session.process_server(response, backend).unwrap();
    }
    assert_eq!(session.process_client(&written(encode_quit), backend).unwrap().goodbye, Goodbye::Said);
    match session.leave(backend) {
        Release::Reset(released) => released.remains,
        release => panic!("{release:?}"),
    }
}

#[test]
fn what_earlier_sessions_have_left_is_known() {
    let (_, mut backend) = started_session();
    assert_eq!(remains_after(&mut backend, &[("BEGIN", ok(3)), ("COMMIT", ok(2))]), Remains::Nothing);
    // Tables may have triggers.
    assert_eq!(remains_after(&mut backend, &[("DELETE FROM t", ok(2))]), Remains::Anything);
    assert_eq!(remains_after(&mut backend, &[("BEGIN", ok(3)), ("COMMIT", ok(2))]), Remains::Anything);
}

#[test]
fn tracked_sessions_leave_what_the_server_does_not_report() {
    let (_, mut backend) = started_session();
    backend.reset = ResetPolicy::Tracked;
    let delete = [("DELETE FROM t", ok(2))];
    // The client has not negotiated that the server reports changes.
    assert_eq!(remains_after(&mut backend, &delete), Remains::Anything);
    backend.capabilities = backend.capabilities.with(Capabilities::SESSION_TRACK);
    (backend.initial_state, backend.remains) = (None, Remains::Nothing);
    let mut to_server = Vec::new();
    let mut session =
        ClientSession::begin(&request(), &backend, &ConnectionIds::default(), &mut to_server).unwrap();
    assert!(String::from_utf8_lossy(&to_server).contains("session_track_state_change=ON"));
    session.process_server(&initial_state_response(), &mut backend).unwrap();
    assert!(session.awaits_settings());
    session.process_server(&ok(0x4002), &mut backend).unwrap();
    assert!(!session.awaits_settings());
    assert_eq!(remains_after(&mut backend, &delete), Remains::StateOfRoutines);
    assert_eq!(remains_after(&mut backend, &[("SELECT 1", ok(2))]), Remains::StateOfRoutines);
    assert_eq!(remains_after(&mut backend, &[("DELETE FROM t", ok(0x4002))]), Remains::Anything);
}

#[test]
fn texts_in_an_ambiguous_encoding_are_not_trusted() {
    let (_, mut backend) = started_session();
    let row = initial_state_response().windows(7).position(|bytes| bytes == b"utf8mb4").unwrap();
    let mut response = initial_state_response();
    response[row..row + 7].copy_from_slice(b"gb18030");
    backend.initial_state = None;
    let mut session =
        ClientSession::begin(&request(), &backend, &ConnectionIds::default(), &mut Vec::new()).unwrap();
    session.process_server(&response, &mut backend).unwrap();
    assert_eq!(remains_after(&mut backend, &[("SELECT 1", ok(2))]), Remains::Anything);
}
