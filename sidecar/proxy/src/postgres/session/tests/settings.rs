//! Settings of a client: from its login, and changed later.

use super::*;

/// A connection with these reported settings after a reset.
fn connection(base: &[(&str, &str)]) -> BackendState {
    let mut parameters = backend().base;
    for (name, value) in base {
        parameters.set(name.as_bytes(), value.as_bytes()).unwrap();
    }
    BackendState::of(parameters)
}

/// A session of this client, and what is sent first.
fn begin_pooled(
    request: Box<StartupRequest>,
    acquired: AcquiredState,
    known: &mut BackendState,
) -> (Box<ClientSession>, String) {
    let mut to_server = Vec::new();
    let session = ClientSession::begin_pooled(request, acquired, known, &mut to_server).unwrap();
    (session, String::from_utf8_lossy(&to_server).into_owned())
}

/// The client behind its login, whose settings the server has accepted with these reports.
fn logged_in(
    settings: &[(&str, &str)],
    reports: &[(&str, &str)],
    known: &mut BackendState,
) -> Box<StartupRequest> {
    let (mut session, _) = begin_pooled(request(settings), AcquiredState::Reset, known);
    let processed = session.process_server(&answered(None, reports), known).unwrap();
    assert!(matches!(processed.settings_result, SettingsResult::Applied), "{processed:?}");
    session.detach(known).unwrap().request.unwrap()
}

/// The answer to a command with this tag.
fn answered(tag: Option<&str>, reports: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(tag) = tag {
        write_command_complete(&mut out, tag.as_bytes()).unwrap();
    }
    for (name, value) in reports {
        write_parameter_status(&mut out, name.as_bytes(), value.as_bytes()).unwrap();
    }
    write_ready_for_query(&mut out, TransactionStatus::Idle);
    out
}

/// The server answers nothing when the client's last message is complete.
#[test]
fn what_is_left_of_a_failed_copy_does_not_hold_a_connection() {
    let mut known = connection(&[]);
    let (mut session, _) = begin_pooled(request(&[]), AcquiredState::Reset, &mut known);
    let idle = |session: &ClientSession| session.awaits_nothing();
    assert!(!idle(&session), "it may be detached without this");
    session.process_client(&query(), &mut known).unwrap();
    assert!(!idle(&session));
    let start = CopyStart { format: ValueFormat::Text, columns: 1 };
    session.process_server(&written(|out| write_copy_in_response(out, &start).unwrap()), &mut known).unwrap();
    let data = written(|out| encode_copy_data(out, b"1\n").unwrap());
    let (begin, rest) = data.split_at(6);
    session.process_client(&[&data, begin].concat(), &mut known).unwrap();
    let report = Report { severity: Severity::Error, sqlstate: *b"22P02", message: b"no" };
    let mut failed = written(|out| write_error(out, &report).unwrap());
    failed.extend(ready(TransactionStatus::Idle));
    assert_eq!(session.process_server(&failed, &mut known).unwrap().phase, SessionPhase::Active);
    assert!(!idle(&session), "in the middle of a message");
    session.process_client(&[rest, &written(encode_copy_done)].concat(), &mut known).unwrap();
    assert!(idle(&session));
    assert_eq!(session.process_server(b"", &mut known).unwrap().phase, SessionPhase::CanDetach);
}

/// A connection that is not reset between two clients.
#[test]
fn the_statement_without_a_name_of_another_client_is_not_the_clients() {
    let parse = |sql: &str| written(|out| encode_parse(out, "", sql, &[]).unwrap());
    let execute = written(|out| {
        encode_bind(out, "", "", &[], ValueFormat::Text).unwrap();
        encode_execute(out, "", 0).unwrap();
        encode_sync(out);
    });
    let described = written(|out| {
        encode_describe_statement(out, "").unwrap();
        encode_sync(out);
    });
    let mut known = connection(&[]);
    let mut client = request(&[]);
    for (acquired, commands, answer) in [
        (AcquiredState::Reset, [parse("SELECT 1"), described], &b"1\0\0\0\x04t\0\0\0\x06\0\0n\0\0\0\x04"[..]),
        (
            AcquiredState::ResetPending,
            [parse("SELECT 2"), execute.clone()],
            b"3\0\0\0\x041\0\0\0\x042\0\0\0\x04C\0\0\0\x0dSELECT 1\0",
        ),
    ] {
        let is_other = acquired == AcquiredState::ResetPending;
        let begun = if is_other { request(&[]) } else { client.clone() };
        let (mut session, _) = begin_pooled(begun, acquired, &mut known);
        session.process_client(&commands.concat(), &mut known).unwrap();
        let answer = [answer, &ready(TransactionStatus::Idle)].concat();
        session.process_server(&answer, &mut known).unwrap();
        let detached = session.detach(&mut known).unwrap();
        assert_eq!(transaction_of(detached.release), Release::Reset(TransactionStatus::Idle));
        if !is_other {
            client = detached.request.unwrap();
        }
    }
    let (mut session, to_server) = begin_pooled(client, AcquiredState::ResetPending, &mut known);
    assert_eq!(to_server.as_bytes(), b"C\0\0\0\x06S\0", "no reset");
    let insert = session.process_client(&execute, &mut known).unwrap().insert;
    assert!(insert.starts_with(&parse("SELECT 1")), "it is prepared again: {insert:?}");
}

#[test]
fn a_part_of_a_setting_does_not_depend_on_another_client() {
    let base = [("DateStyle", "ISO, MDY")];
    let client = logged_in(&[("DateStyle", "iso")], &[], &mut connection(&base));
    let mut known = connection(&base);
    known.parameters.set(b"DateStyle", b"SQL, DMY").unwrap();
    let (_, to_server) = begin_pooled(client, AcquiredState::ResetPending, &mut known);
    assert!(to_server.contains("ISO, MDY") && !to_server.contains("DISCARD"), "{to_server:?}");
}

#[test]
fn settings_of_the_login_are_set_again_behind_a_discard() {
    let (own, of_server) = ([("TimeZone", "Asia/Tokyo")], [("TimeZone", "UTC")]);
    for in_batch in ["", "SET application_name = 'later'"] {
        let mut known = connection(&[]);
        let client = logged_in(&own, &own, &mut known);
        let (mut session, to_server) = begin_pooled(client, AcquiredState::SameClient, &mut known);
        assert_eq!(to_server, "");
        let mut discard = written(|out| encode_query(out, "DISCARD ALL").unwrap());
        let mut answer = answered(Some("DISCARD ALL"), &of_server);
        if !in_batch.is_empty() {
            encode_query(&mut discard, in_batch).unwrap();
            answer.extend(answered(Some("SET"), &[("application_name", "later")]));
        }
        session.process_client(&discard, &mut known).unwrap();
        let phase = session.process_server(&answer, &mut known).unwrap().phase;
        assert_eq!(phase, SessionPhase::CanDetach);
        let mut client = session.detach(&mut known).unwrap().request.unwrap();
        // They are still due if the client has sent nothing.
        for _ in 0..2 {
            let (session, to_server) = begin_pooled(client, AcquiredState::SameClient, &mut known);
            assert!(to_server.contains("TimeZone\0") && to_server.contains("Asia/Tokyo"), "{to_server:?}");
            assert_eq!(to_server.contains("later"), !in_batch.is_empty(), "{to_server:?}");
            let detached = session.detach(&mut known).unwrap();
            assert_eq!(transaction_of(detached.release), Release::Unsent(TransactionStatus::Idle));
            assert_eq!(known.parameters.get(b"TimeZone"), Some(&b"UTC"[..]));
            client = detached.request.unwrap();
        }
        let (mut session, _) = begin_pooled(client, AcquiredState::SameClient, &mut known);
        session.process_client(&query(), &mut known).unwrap();
        let answer = [b"3\0\0\0\x04".to_vec(), answered(Some("SELECT 1"), &own)].concat();
        let phase = session.process_server(&answer, &mut known).unwrap().phase;
        assert_eq!(phase, SessionPhase::CanDetach);
        let client = session.detach(&mut known).unwrap().request.unwrap();
        assert_eq!(client.value("TimeZone"), Some("Asia/Tokyo"));
        assert_eq!(begin_pooled(client, AcquiredState::SameClient, &mut known).1, "");
    }
}

#[test]
fn the_servers_value_that_a_client_sets_behind_a_discard_is_its_own() {
    let (own, of_server) = ([("TimeZone", "Asia/Tokyo")], [("TimeZone", "UTC")]);
    let mut known = connection(&[]);
    let client = logged_in(&own, &own, &mut known);
    let (mut session, _) = begin_pooled(client, AcquiredState::SameClient, &mut known);
    let mut both = written(|out| encode_query(out, "DISCARD ALL").unwrap());
    encode_query(&mut both, "SET TimeZone = 'UTC'").unwrap();
    session.process_client(&both, &mut known).unwrap();
    let answer = [answered(Some("DISCARD ALL"), &of_server), answered(Some("SET"), &[])].concat();
    assert_eq!(session.process_server(&answer, &mut known).unwrap().phase, SessionPhase::CanDetach);
    let client = session.detach(&mut known).unwrap().request.unwrap();
    assert_eq!((client.value("TimeZone"), client.lacks_login_settings), (Some("UTC"), false));
}

/// A seed, and what the next client would wait for.
#[test]
fn a_login_may_leave_what_ends_with_its_connection() {
    for (name, value, is_closed) in [
        ("seed", "0.5", true),
        ("default_transaction_deferrable", "on", true),
        ("default_transaction_deferrable", "off", false),
        ("work_mem", "5MB", false),
    ] {
        let mut known = connection(&[]);
        let (mut session, _) = begin_pooled(request(&[(name, value)]), AcquiredState::Reset, &mut known);
        session.process_server(&answered(None, &[]), &mut known).unwrap();
        let release = session.detach(&mut known).unwrap().release;
        assert_eq!(matches!(release, Release::Close(_)), is_closed, "{name} = {value}");
    }
}

#[test]
fn a_client_with_a_setting_of_another_role_keeps_its_connection() {
    for (sql, is_pinned) in [
        ("SET ROLE boss; SET log_statement = 'all'; RESET ROLE", true),
        ("SET ROLE boss; SET search_path = a", false),
        ("SET log_statement = 'all'", false),
    ] {
        let session = after(sql, &mut backend());
        assert_eq!(session.pooled.unwrap().pin != PinState::None, is_pinned, "{sql}");
    }
}

/// The reset of a client whose time limit is not known, or may be short, is awaited.
#[test]
fn a_time_limit_that_was_set_may_be_short() {
    for (sql, may_be_short) in [
        ("SET statement_timeout = '1ms'", true),
        ("SET Transaction_Timeout = 1", true),
        ("LISTEN a", true),
        ("SET work_mem = '5MB'", false),
        ("SELECT 1", false),
    ] {
        let mut known = backend();
        let session = after(sql, &mut known);
        let release = session.release(&mut known).unwrap();
        let Release::Reset(context) = release else { panic!("{sql}: {release:?}") };
        assert_eq!(context.has_short_timeout, may_be_short, "{sql}");
    }
}
