use ciphertoll_wire::postgres::command::{
    encode_bind, encode_copy_data, encode_copy_done, encode_describe_statement, encode_execute, encode_parse,
    encode_query, encode_sync, encode_terminate,
};
use ciphertoll_wire::postgres::server::{
    Report, Startup, read_startup, write_command_complete, write_copy_in_response, write_data_row,
    write_error, write_notice, write_parameter_status, write_ready_for_query,
};
use ciphertoll_wire::postgres::startup::encode_startup;
use ciphertoll_wire::postgres::{CopyStart, ValueFormat};
use ciphertoll_wire::relay::Goodbye;
use ciphertoll_wire::session;

use super::*;
use crate::postgres::startup_request::StartupParameters;
use crate::postgres::transaction_pooling::{MAX_QUERIES, NOT_READABLE};

mod settings;

fn request(settings: &[(&str, &str)]) -> Box<StartupRequest> {
    let mut bytes = Vec::new();
    encode_startup(&mut bytes, &[&[("user", "app")], settings].concat()).unwrap();
    match read_startup(&mut &bytes[..]).unwrap() {
        Some(Startup::Login(message)) => {
            StartupRequest::new(StartupParameters::read(&message).unwrap().into())
        }
        other => panic!("{other:?}"),
    }
}

fn backend() -> BackendState {
    let mut parameters = Parameters::default();
    for (name, value) in [("application_name", ""), ("client_encoding", "UTF8"), ("TimeZone", "UTC")] {
        parameters.set(name.as_bytes(), value.as_bytes()).unwrap();
    }
    BackendState::of(parameters)
}

fn begin(
    request: &StartupRequest,
    known: &mut BackendState,
    to_server: &mut Vec<u8>,
) -> Result<Box<ClientSession>, Error> {
    Ok(ClientSession::new(Opening::set(request, known, to_server)?, None))
}

fn plain() -> Box<ClientSession> {
    begin(&request(&[]), &mut backend(), &mut Vec::new()).unwrap()
}

fn transaction_of(release: Release<ResetContext>) -> Release<TransactionStatus> {
    match release {
        Release::Clean => Release::Clean,
        Release::Reset(context) => Release::Reset(context.transaction),
        Release::Unsent(context) => Release::Unsent(context.transaction),
        Release::Close(reason) => Release::Close(reason),
    }
}

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

fn query() -> Vec<u8> {
    written(|out| encode_query(out, "SELECT 1").unwrap())
}

fn ready(status: TransactionStatus) -> Vec<u8> {
    written(|out| write_ready_for_query(out, status))
}

fn answer(status: TransactionStatus) -> Vec<u8> {
    let mut out = written(|out| {
        write_data_row(out, &[Some(b"1")]).unwrap();
        write_parameter_status(out, b"TimeZone", b"Europe/Vienna").unwrap();
        write_command_complete(out, b"SELECT 1").unwrap();
    });
    out.extend(ready(status));
    out
}

/// Feeds one side in pieces of `piece` bytes, as a socket might, and returns what was passed on.
fn feed(bytes: &[u8], piece: usize, mut step: impl FnMut(&[u8]) -> usize) -> Vec<u8> {
    let (mut passed, mut held) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        held.extend_from_slice(piece);
        let bytes = step(&held);
        passed.extend(held.drain(..bytes));
    }
    passed
}

#[test]
fn bytes_pass_unchanged_in_any_pieces() {
    let up: Vec<u8> = [query(), written(encode_sync), query()].concat();
    let down: Vec<u8> = [
        answer(TransactionStatus::Idle),
        ready(TransactionStatus::Failed),
        answer(TransactionStatus::InTransaction),
    ]
    .concat();
    for piece in 1..=down.len() {
        let (mut session, mut known) = (plain(), backend());
        let passed =
            feed(&up, piece, |held| session.process_client(held, &mut backend()).unwrap().pass_bytes);
        assert_eq!(passed, up, "{piece}");
        assert!(matches!(session.relay.connection_state(), ConnectionState::Unknown(_)));
        let passed = feed(&down, piece, |held| {
            let processed = session.process_server(held, &mut known).unwrap();
            assert!(
                matches!((processed.skip_bytes, &processed.settings_result), (0, SettingsResult::None)),
                "{processed:?}"
            );
            processed.pass_bytes
        });
        assert_eq!(passed, down, "{piece}");
        assert_eq!(known.parameters.get(b"timezone"), Some(&b"Europe/Vienna"[..]));
        let release = transaction_of(session.release(&mut known).unwrap());
        assert_eq!(release, Release::Reset(TransactionStatus::InTransaction), "{piece}");
    }
}

#[test]
fn the_clients_last_message_is_not_passed_on() {
    let bytes = [query(), written(encode_terminate), b"whatever".to_vec()].concat();
    let processed = plain().process_client(&bytes, &mut backend()).unwrap();
    assert_eq!((processed.pass_bytes, processed.goodbye), (query().len(), Goodbye::Said));
}

#[test]
fn unknown_messages_and_impossible_lengths_are_errors() {
    for bytes in [
        &b"?\0\0\0\x04"[..],
        b"p\0\0\0\x08pw\0\0",
        b"Q\0\0\0\x03",
        b"Q\xff\xff\xff\xff",
        b"Q\x7f\xff\xff\xff",
        b"\0\0\0\0\0\0",
    ] {
        assert!(plain().process_client(bytes, &mut backend()).is_err(), "{bytes:?}");
    }
    for bytes in [
        &b"?\0\0\0\x04"[..],
        b"R\0\0\0\x08\0\0\0\0",
        b"K\0\0\0\x0c\0\0\0\0\0\0\0\0",
        b"W\0\0\0\x07\0\0\0",
        b"Z\0\0\0\x05?",
        b"Z\0\0\0\x06II",
        b"S\x01\0\0\x05",
        b"D\0\0\0\0",
        b"D\x7f\xff\xff\xff",
    ] {
        assert!(plain().process_server(bytes, &mut backend()).is_err(), "{bytes:?}");
    }
}

/// The release of the connection after these bytes.
fn left(up: &[u8], down: &[u8], later_input: &[u8], later_output: &[u8]) -> Release<TransactionStatus> {
    let (mut session, mut known) = (plain(), backend());
    for (up, down) in [(up, down), (later_input, later_output)] {
        session.process_client(up, &mut backend()).unwrap();
        session.process_server(down, &mut known).unwrap();
    }
    transaction_of(session.release(&mut known).unwrap())
}

#[test]
fn a_connection_is_reset_only_if_its_state_is_known() {
    let idle = TransactionStatus::Idle;
    assert_eq!(left(b"", b"", b"", b""), Release::Clean);
    assert_eq!(left(&query(), &answer(idle), b"", b""), Release::Reset(idle));
    let unknown = |up: &[u8], down: &[u8]| matches!(left(up, down, b"", b""), Release::Close(_));
    assert!(unknown(&query(), b""));
    assert!(unknown(&query(), &answer(idle)[..9]));
    assert!(unknown(&query()[..8], b""));
    assert!(unknown(&query().repeat(2), &answer(idle)));
    // More responses than commands.
    assert!(unknown(&query(), &answer(idle).repeat(2)));
    // Without a `Sync`, the end of the responses is not known.
    assert!(unknown(b"P\0\0\0\x08\0\0\0\0", b"1\0\0\0\x04"));
    assert_eq!(left(b"H\0\0\0\x04", b"", b"", b""), Release::Reset(idle), "a Flush changes nothing");
}

#[test]
fn a_copy_is_complete_when_the_server_says_so() {
    let idle = TransactionStatus::Idle;
    let start = CopyStart { format: ValueFormat::Text, columns: 1 };
    let begins = written(|out| write_copy_in_response(out, &start).unwrap());
    let data = written(|out| encode_copy_data(out, b"1\n").unwrap());
    let done = written(encode_copy_done);
    let ends = [written(|out| write_command_complete(out, b"COPY 1").unwrap()), ready(idle)].concat();
    // By a simple query, and by `Execute` with a `Sync` that the server ignores during the copy.
    let execute = [&b"E\0\0\0\x09\0\0\0\0\0"[..], &written(encode_sync)].concat();
    let synced = [data.clone(), done.clone(), written(encode_sync)].concat();
    for (up, later) in [(query(), [data.clone(), done].concat()), (execute, synced)] {
        assert_eq!(left(&up, &begins, &later, &ends), Release::Reset(idle));
        assert!(matches!(left(&up, &begins, &data, b""), Release::Close(_)));
        assert!(matches!(left(&up, &begins, &later, b""), Release::Close(_)));
    }
}

#[test]
fn the_application_name_is_pipelined_and_its_response_is_dropped() {
    let (mut known, mut to_server) = (backend(), Vec::new());
    let mut session = begin(&request(&[("application_name", "psql")]), &mut known, &mut to_server).unwrap();
    assert!(!session.awaits_settings());
    assert_eq!(known.parameters.get(b"application_name"), Some(&b"psql"[..]));
    assert!(!to_server.is_empty());
    session.process_client(&query(), &mut backend()).unwrap();
    let own = [
        &b"1\0\0\0\x042\0\0\0\x04"[..],
        &written(|out| write_data_row(out, &[Some(b"psql")]).unwrap()),
        &written(|out| write_command_complete(out, b"SELECT 1").unwrap()),
        b"3\0\0\0\x04",
        &written(|out| write_parameter_status(out, b"application_name", b"psql").unwrap()),
        &ready(TransactionStatus::Idle),
    ]
    .concat();
    let clients = answer(TransactionStatus::Idle);
    let both = [own.clone(), clients.clone()].concat();
    for piece in 1..both.len() {
        let mut session =
            begin(&request(&[("application_name", "psql")]), &mut backend(), &mut Vec::new()).unwrap();
        session.process_client(&query(), &mut backend()).unwrap();
        let (mut held, mut passed) = (Vec::new(), Vec::new());
        for piece in both.chunks(piece) {
            held.extend_from_slice(piece);
            let processed = session.process_server(&held, &mut known).unwrap();
            assert!(matches!(processed.settings_result, SettingsResult::None), "{processed:?}");
            held.drain(..processed.skip_bytes);
            passed.extend(held.drain(..processed.pass_bytes));
        }
        assert_eq!(passed, clients, "{piece}");
        assert_eq!(
            transaction_of(session.release(&mut known).unwrap()),
            Release::Reset(TransactionStatus::Idle)
        );
    }
}

#[test]
fn a_session_that_sent_nothing_needs_no_reset() {
    let mut known = backend();
    let session = begin(&request(&[("application_name", "psql")]), &mut known, &mut Vec::new()).unwrap();
    assert_eq!(transaction_of(session.release(&mut known).unwrap()), Release::Clean);
    assert_eq!(known.parameters, backend().parameters);
}

#[test]
fn settings_that_can_fail_are_applied_before_the_client_starts() {
    let mut known = backend();
    let request = request(&[("TimeZone", "Nowhere"), ("client_encoding", "UTF8")]);
    let begin = |known: &mut BackendState| begin(&request, known, &mut Vec::new()).unwrap();
    let mut session = begin(&mut known);
    assert!(session.awaits_settings());
    let processed = session.process_server(&ready(TransactionStatus::Idle), &mut known).unwrap();
    assert!(
        matches!((processed.skip_bytes, &processed.settings_result), (6, SettingsResult::Applied)),
        "{processed:?}"
    );
    assert_eq!(transaction_of(session.release(&mut known).unwrap()), Release::Reset(TransactionStatus::Idle));

    let mut session = begin(&mut known);
    let report = Report { severity: Severity::Error, sqlstate: *b"22023", message: b"no such zone" };
    let mut no = written(|out| write_error(out, &report).unwrap());
    no.extend(ready(TransactionStatus::Idle));
    let processed = session.process_server(&no, &mut known).unwrap();
    assert!(
        matches!(
            processed.settings_result,
            SettingsResult::Refused(session::Error::Postgres(Error::Server { .. }))
        ),
        "{processed:?}"
    );
    assert_eq!((processed.skip_bytes, processed.pass_bytes), (no.len(), 0));
    assert_eq!(transaction_of(session.release(&mut known).unwrap()), Release::Reset(TransactionStatus::Idle));
}

/// A session on a connection that another client has left; returns what is sent first.
fn processed(known: &mut BackendState) -> (Box<ClientSession>, Vec<u8>) {
    let mut to_server = Vec::new();
    known.remains = Remains::Anything;
    let request = request(&[("application_name", "next"), ("statement_timeout", "5")]);
    (
        ClientSession::begin_pooled(request, AcquiredState::ResetPending, known, &mut to_server).unwrap(),
        to_server,
    )
}

#[test]
fn a_reset_is_pipelined_in_front_of_the_first_command() {
    let mut known = backend();
    known.parameters.set(b"TimeZone", b"Asia/Tokyo").unwrap();
    let (session, to_server) = processed(&mut known);
    assert!(!session.awaits_settings());
    assert_eq!(known.parameters.get(b"TimeZone"), Some(&b"UTC"[..]), "after the reset");
    assert_eq!(known.parameters.get(b"application_name"), Some(&b"next"[..]));
    assert!(session.unsent_settings(&known).is_some());
    let holds = |text: &[u8]| to_server.windows(text.len()).any(|window| window == text);
    assert!(holds(b"DISCARD ALL\0") && holds(b"statement_timeout") && !holds(b"S\0\0\0\x04"), "no Sync");

    let mut own = Vec::new();
    for command in [&b"DISCARD ALL\0"[..], b"BEGIN\0", b"SELECT 1\0", b"SELECT 1\0", b"COMMIT\0"] {
        let length = u32::try_from(4 + command.len()).unwrap().to_be_bytes();
        own.extend([&b"1\0\0\0\x042\0\0\0\x04C"[..], &length, command].concat());
    }
    own.extend(b"3\0\0\0\x04");
    let answered = answer(TransactionStatus::Idle);
    let ready = answered.len() - 6;
    // The server reports what it has not reported before.
    let reported = written(|out| write_parameter_status(out, b"application_name", b"next").unwrap());
    let theirs = [&answered[..ready], &reported, &answered[ready..]].concat();
    let down = [&own[..], &theirs[..]].concat();
    for piece in 1..=down.len() {
        let mut known = backend();
        let (mut session, _) = processed(&mut known);
        assert_eq!(session.process_client(&query(), &mut known).unwrap().pass_bytes, query().len());
        let (mut passed, mut held) = (Vec::new(), Vec::new());
        let mut phase = SessionPhase::Active;
        for piece in down.chunks(piece) {
            held.extend_from_slice(piece);
            let answers = session.process_server(&held, &mut known).unwrap();
            held.drain(..answers.skip_bytes);
            passed.extend(held.drain(..answers.pass_bytes));
            phase = answers.phase;
        }
        assert_eq!((passed, phase), (theirs.clone(), SessionPhase::CanDetach), "{piece}");
        let left = transaction_of(session.detach(&mut known).unwrap().release);
        assert_eq!(left, Release::Reset(TransactionStatus::Idle));
    }
}

#[test]
fn what_follows_the_first_sync_waits_for_the_reset() {
    let parse_and_bind = [&b"P\0\0\0\x09\0S\0\0\0"[..], b"B\0\0\0\x0c\0\0\0\0\0\0\0\0"].concat();
    let batch = [&parse_and_bind[..], b"S\0\0\0\x04"].concat();
    let up = [&batch[..], &batch, &query()].concat();
    for piece in 1..=up.len() {
        let mut known = backend();
        let (mut session, _) = processed(&mut known);
        let (mut passed, mut held) = (Vec::new(), Vec::new());
        for piece in up.chunks(piece) {
            held.extend_from_slice(piece);
            let bytes = session.process_client(&held, &mut known).unwrap().pass_bytes;
            passed.extend(held.drain(..bytes));
        }
        assert_eq!((passed, session.awaits_settings()), (batch.clone(), true), "{piece}");
        let answered = session.process_server(b"3\0\0\0\x04", &mut known).unwrap();
        assert!(matches!(answered.settings_result, SettingsResult::Applied), "{answered:?}");
        assert!(session.unsent_settings(&known).is_none(), "within a response");
        let rest = session.process_client(&held, &mut known).unwrap().pass_bytes;
        assert_eq!((rest, session.awaits_settings()), (up.len() - batch.len(), false), "{piece}");
    }
    // Without a `Sync` everything is passed on: if the reset fails, the server skips all of it.
    let mut known = backend();
    let (mut session, _) = processed(&mut known);
    let up = [query(), query()].concat();
    assert_eq!(session.process_client(&up, &mut known).unwrap().pass_bytes, up.len());
    assert!(!session.awaits_settings());
}

#[test]
fn a_connection_whose_reset_fails_is_closed() {
    let mut known = backend();
    let (mut session, _) = processed(&mut known);
    let report = Report { severity: Severity::Error, sqlstate: *b"57014", message: b"canceled" };
    let no = written(|out| write_error(out, &report).unwrap());
    assert!(session.process_server(&no, &mut known).is_err());
    let (mut session, _) = processed(&mut known);
    session.process_client(&query(), &mut known).unwrap();
    assert!(
        matches!(transaction_of(session.release(&mut known).unwrap()), Release::Close(_)),
        "its state is not known"
    );
}

/// The server skips the client's commands, and the connection is closed.
#[test]
fn a_refused_restore_is_the_error_of_the_clients_commands() {
    let report = Report { severity: Severity::Error, sqlstate: *b"22023", message: b"no" };
    let no = written(|out| write_error(out, &report).unwrap());
    let one = [&no[..], &ready(TransactionStatus::Idle)].concat();
    let parse = [&b"P\0\0\0\x09\0S\0\0\0"[..], b"B\0\0\0\x0c\0\0\0\0\0\0\0\0"].concat();
    for (up, batches) in [
        (query(), Some(1)),
        (query().repeat(2), Some(2)),
        ([&parse[..], b"S\0\0\0\x04"].concat(), Some(1)),
        (parse, None),
        (query()[..8].to_vec(), None),
    ] {
        let mut known = backend();
        let (mut session, _) = processed(&mut known);
        session.process_client(&up, &mut known).unwrap();
        let answered = session.process_server(&no, &mut known);
        let Some(batches) = batches else {
            assert!(
                answered.is_err(),
                "the client sends more, which would be executed on another connection"
            );
            continue;
        };
        let FromServer { skip_bytes, insert, phase, .. } = answered.unwrap();
        assert_eq!((skip_bytes, insert, phase), (no.len(), one.repeat(batches), SessionPhase::CanDetach));
        let detached = session.detach(&mut known).unwrap();
        assert!(detached.request.is_some() && matches!(detached.release, Release::Close(_)));
    }
}

/// A session whose client has executed this text.
fn after(sql: &str, known: &mut BackendState) -> Box<ClientSession> {
    let acquired = AcquiredState::Reset;
    let mut session = ClientSession::begin_pooled(request(&[]), acquired, known, &mut Vec::new()).unwrap();
    session.process_client(&written(|out| encode_query(out, sql).unwrap()), known).unwrap();
    let done = [written(|out| write_command_complete(out, b"SET").unwrap()), ready(TransactionStatus::Idle)];
    session.process_server(&done.concat(), known).unwrap();
    session
}

#[test]
fn a_client_whose_settings_cannot_be_queried_keeps_its_connection() {
    // A timeout or a cancel request may hit the query; the other error comes again.
    for (sqlstate, times) in [(*b"57014", MAX_QUERIES), (*b"42501", 1)] {
        let mut known = backend();
        let mut session = after("SET work_mem = 1", &mut known);
        let report = Report { severity: Severity::Error, sqlstate, message: b"no" };
        let mut no = written(|out| write_error(out, &report).unwrap());
        no.extend(ready(TransactionStatus::Idle));
        for _ in 0..times {
            assert_eq!(session.process_server(b"", &mut known).unwrap().phase, SessionPhase::NeedsQuery);
            session.query_settings(&known, &mut Vec::new()).unwrap();
            let answered = session.process_server(&no, &mut known).unwrap();
            assert!(matches!(answered.settings_result, SettingsResult::Applied), "{answered:?}");
        }
        let phase = session.process_server(b"", &mut known).unwrap().phase;
        assert_eq!(phase, SessionPhase::Pinned(NOT_READABLE));
    }
}

#[test]
fn what_may_have_used_temporary_tables_is_recorded() {
    for (sql, may_have) in
        [("CREATE TEMP TABLE t ()", true), ("SELECT 1", false), ("SET work_mem = 1", false)]
    {
        let mut known = backend();
        after(sql, &mut known).release(&mut known).unwrap();
        assert_eq!(known.may_have_temporary, may_have, "{sql}");
    }
}

#[test]
fn an_error_can_be_sent_only_between_responses() {
    let (mut session, mut known) = (plain(), backend());
    let report = Report { severity: Severity::Notice, sqlstate: *b"00000", message: b"by the way" };
    let notice = written(|out| write_notice(out, &report).unwrap());
    assert!(session.can_send_error());
    session.process_server(&notice[..notice.len() - 1], &mut known).unwrap();
    assert!(!session.can_send_error());
    session.process_server(&notice[notice.len() - 1..], &mut known).unwrap();
    assert!(session.can_send_error());
    let report = Report { severity: Severity::Fatal, sqlstate: *b"57P01", message: b"bye" };
    session.process_server(&written(|out| write_error(out, &report).unwrap()), &mut known).unwrap();
    assert!(!session.can_send_error());
}

#[test]
fn a_connection_on_which_nothing_remains_needs_no_reset() {
    let begin = |known: &mut BackendState, settings: &[(&str, &str)]| {
        let mut to_server = Vec::new();
        let acquired = AcquiredState::ResetPending;
        let session =
            ClientSession::begin_pooled(request(settings), acquired, known, &mut to_server).unwrap();
        (session, String::from_utf8_lossy(&to_server).into_owned())
    };
    let mut known = backend();
    let (session, to_server) = begin(&mut known, &[("TimeZone", "UTC")]);
    assert_eq!((to_server.as_str(), session.command.is_none()), ("", true));

    known.remains = Remains::UnnamedStatement;
    let (_, to_server) = begin(&mut known, &[]);
    assert_eq!((to_server.as_bytes(), known.remains), (&b"C\0\0\0\x06S\0"[..], Remains::Nothing));

    // What the last client has set is set back.
    let (_, to_server) = begin(&mut known, &[("application_name", "a")]);
    assert!(to_server.contains("set_config") && to_server.contains("application_name"), "{to_server:?}");
    assert_eq!(known.parameters.get(b"application_name"), Some(&b"a"[..]));
    let (_, to_server) = begin(&mut known, &[]);
    assert!(to_server.contains("set_config") && !to_server.contains("DISCARD"), "{to_server:?}");
    assert_eq!(known.parameters.get(b"application_name"), Some(&b""[..]));

    // A setting that the server does not report cannot be set back.
    let (_, to_server) = begin(&mut known, &[("statement_timeout", "5")]);
    assert!(!to_server.contains("DISCARD"), "{to_server:?}");
    let (_, to_server) = begin(&mut known, &[]);
    assert!(to_server.contains("DISCARD ALL"), "{to_server:?}");
}

/// A session without transaction pooling on a connection that another client has left; returns what is sent first.
fn behind_reset(known: &mut BackendState, settings: &[(&str, &str)]) -> (Box<ClientSession>, String) {
    let mut to_server = Vec::new();
    known.remains = Remains::Anything;
    let acquired = AcquiredState::ResetPending;
    let session = ClientSession::begin_unpooled(&request(settings), acquired, known, &mut to_server).unwrap();
    (session, String::from_utf8_lossy(&to_server).into_owned())
}

#[test]
fn a_session_can_begin_with_the_reset_after_another() {
    let mut known = backend();
    known.parameters.set(b"application_name", b"last").unwrap();
    let (session, to_server) = behind_reset(&mut known, &[]);
    assert!(to_server.contains("DISCARD ALL") && !session.awaits_settings(), "{to_server:?}");
    assert_eq!(known.parameters, known.base);
    // A setting that may be refused is set before the client may begin.
    let (mut session, to_server) = behind_reset(&mut known, &[("TimeZone", "Mars")]);
    let discard = to_server.find("DISCARD ALL").expect("a reset");
    assert!(to_server[discard..].contains("TimeZone") && session.awaits_settings(), "{to_server:?}");
    let report = Report { severity: Severity::Error, sqlstate: *b"22023", message: b"no" };
    let mut refused = written(|out| write_error(out, &report).unwrap());
    refused.extend(ready(TransactionStatus::Idle));
    let processed = session.process_server(&refused, &mut known).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Refused(_)), "{processed:?}");
    let Release::Reset(context) = session.release(&mut known).unwrap() else { panic!("no reset") };
    assert_eq!(context.remains, Remains::Anything, "a refused setting may have undone the reset");
}

#[test]
fn a_reset_that_was_not_sent_is_still_due() {
    let mut known = backend();
    known.parameters.set(b"application_name", b"last").unwrap();
    let last = known.parameters.clone();
    let (session, _) = behind_reset(&mut known, &[("application_name", "next")]);
    assert_eq!(known.parameters.get(b"application_name"), Some(&b"next"[..]));
    let Release::Unsent(context) = session.release(&mut known).unwrap() else { panic!("it is due") };
    assert_eq!(context.remains, Remains::Nothing);
    assert_eq!(context.transaction, TransactionStatus::Idle);
    assert_eq!((&known.parameters, known.remains), (&last, Remains::Anything));
    let (session, _) = processed(&mut known);
    let detached = session.detach(&mut known).unwrap();
    assert_eq!(transaction_of(detached.release), Release::Unsent(TransactionStatus::Idle));
    assert_eq!((&known.parameters, known.remains), (&last, Remains::Anything));
}

#[test]
fn a_reset_is_sent_if_the_client_sends_nothing() {
    let mut known = backend();
    let (mut session, _) = behind_reset(&mut known, &[]);
    assert!(session.owes_reset());
    let mut to_server = Vec::new();
    session.send_reset(&mut to_server);
    assert_eq!(to_server, b"S\0\0\0\x04");
    assert!(session.awaits_settings() && !session.owes_reset());
    let mut done = b"1\0\0\0\x042\0\0\0\x043\0\0\0\x04".to_vec();
    done.extend(ready(TransactionStatus::Idle));
    let processed = session.process_server(&done, &mut known).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Applied), "{processed:?}");
    let Release::Reset(context) = session.release(&mut known).unwrap() else { panic!("no reset") };
    assert_eq!(context.remains, Remains::Nothing, "the reset after this session may wait, too");
    // With a command of the client it is sent anyway.
    let (mut session, _) = behind_reset(&mut known, &[]);
    session.process_client(&query(), &mut known).unwrap();
    assert!(!session.owes_reset());
}

#[test]
fn only_after_plain_data_access_may_the_reset_wait() {
    let left_by = |settings: &[(&str, &str)], sql: &str, answer: &[u8]| {
        let (mut known, mut to_server) = (backend(), Vec::new());
        let acquired = AcquiredState::Reset;
        let mut session =
            ClientSession::begin_unpooled(&request(settings), acquired, &mut known, &mut to_server).unwrap();
        if session.awaits_settings() {
            let encoding = written(|out| write_parameter_status(out, b"client_encoding", b"SJIS").unwrap());
            let done = [&encoding[..], &ready(TransactionStatus::Idle)].concat();
            session.process_server(&done, &mut known).unwrap();
        }
        session.process_client(&written(|out| encode_query(out, sql).unwrap()), &mut known).unwrap();
        session.process_server(answer, &mut known).unwrap();
        match session.release(&mut known).unwrap() {
            Release::Reset(context) => Some(context.remains),
            Release::Close(_) => None,
            _ => panic!("no reset"),
        }
    };
    let set = ready(TransactionStatus::Idle);
    let plain = [written(|out| write_command_complete(out, b"SELECT 1").unwrap()), set.clone()].concat();
    assert_eq!(left_by(&[], "SELECT 1", &plain), Some(Remains::Nothing));
    let named = [("application_name", "a")];
    assert_eq!(left_by(&named, "SELECT 1", &[&set[..], &plain].concat()), Some(Remains::Nothing));
    assert_eq!(left_by(&[], "LISTEN a", &plain), Some(Remains::Anything));
    assert_eq!(left_by(&[("client_encoding", "SJIS")], "SELECT 1", &plain), None, "it cannot be read");
    // The server's configuration was changed meanwhile.
    assert_eq!(left_by(&[], "SELECT 1", &answer(TransactionStatus::Idle)), Some(Remains::Anything));
}
