//! What follows a client to another connection, or cannot follow it.

use super::*;

#[test]
fn last_insert_id_is_asked_for_if_no_response_reports_it() {
    let reported = OkPacket { last_insert_id: 9, ..OK };
    for (text, answer, expected) in [
        ("INSERT INTO t VALUES (1)", ok(&reported), InsertIdQuery::None),
        ("INSERT INTO t VALUES (1)", refusal(), InsertIdQuery::AfterError),
        ("SELECT 1 FROM t", refusal(), InsertIdQuery::None),
        ("INSERT INTO t VALUES (1) RETURNING id", ok(&OK), InsertIdQuery::Needed),
        ("UPDATE t SET a = LAST_INSERT_ID(a)", ok(&reported), InsertIdQuery::None),
        ("UPDATE t SET a = LAST_INSERT_ID(0)", ok(&OK), InsertIdQuery::Needed),
        ("INSERT t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", ok(&reported), InsertIdQuery::Needed),
        ("INSERT t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", ok(&OK), InsertIdQuery::None),
        ("UPDATE t SET a = LAST_INSERT_ID(0); SELECT 1", ok(&reported), InsertIdQuery::Needed),
    ] {
        let mut fixture = Fixture::new();
        fixture.says(&query(text), 1000);
        fixture.hears(&answer);
        assert_eq!(fixture.follow.settle().insert_id_query, expected, "{text}");
        // A prepared statement.
        let own = prepare(&mut fixture, text, 77, 0);
        fixture.says(&execute(own, &[]), 1000);
        fixture.hears(&answer);
        assert_eq!(fixture.follow.settle().insert_id_query, expected, "{text}");
    }
}

#[test]
fn diagnostics_stay_behind_commands_that_read_them() {
    let mut fixture = Fixture::new();
    for (command, answer, expected) in [
        (query("SELECT nonsense"), refusal(), Some(Diagnostics::Some)),
        (query("SHOW WARNINGS"), ok(&OK), None),
        (written(encode_ping), ok(&OK), None),
        (query("SELECT @@error_count"), ok(&OK), None),
        (query("SELECT 1 FROM t"), ok(&OK), Some(Diagnostics::None)),
        (query("SHOW WARNINGS; SELECT 1 FROM t"), ok(&OK), Some(Diagnostics::None)),
    ] {
        fixture.says(&command, 1000);
        fixture.hears(&answer);
        assert_eq!(fixture.follow.settle().diagnostics, expected, "{command:?}");
    }
    // A prepare reports its warnings before its definitions.
    for (warnings, expected) in [(1, Diagnostics::Some), (0, Diagnostics::None)] {
        fixture.says(&written(|out| encode_prepare(out, "SELECT ?").unwrap()), 1000);
        let reply = PrepareOk { statement_id: 7, params: 1, columns: 0, warnings };
        fixture.hears(&complete_prepare_with(reply));
        assert_eq!(fixture.follow.settle().diagnostics, Some(expected));
    }
}

#[test]
fn settings_may_leave_warnings() {
    const WARNED: OkPacket = OkPacket { warnings: 1, ..OK };
    for (text, answer, expected) in [
        ("SET big_tables = 1", WARNED, Diagnostics::Some),
        ("SET big_tables = 1", OK, Diagnostics::None),
        ("INSERT INTO t VALUES (1)", WARNED, Diagnostics::None),
    ] {
        let mut fixture = Fixture::new();
        fixture.says(&query(text), 1000);
        fixture.hears(&ok(&answer));
        fixture.says(&query("SELECT 1 FROM t"), 1000);
        fixture.hears(&ok(&OK));
        assert_eq!(fixture.follow.settle().diagnostics_of_settings, expected, "{text}");
    }
}

#[test]
fn commands_wait_when_many_responses_are_owed() {
    let mut fixture = Fixture::new();
    let Fixture { relay, follow, statements, prepared } = &mut fixture;
    let commands = written(encode_ping).repeat(10_000);
    let passed = follow.process_client(relay, &commands, statements, prepared).unwrap().pass_bytes;
    assert!(passed < commands.len() && relay.is_full(), "{passed}");
    // Those that are not answered wait, too.
    let close = written(|out| encode_statement_close(out, 7));
    let taken = follow.process_client(relay, &close, statements, prepared).unwrap();
    assert_eq!((taken.pass_bytes, taken.drop_bytes, taken.insert), (0, 0, Vec::new()));
    fixture.hears(&ok(&OK).repeat(passed / written(encode_ping).len()));
    assert!(fixture.is_clean());
    assert_eq!(fixture.says(&commands[..5], 5), (commands[..5].to_vec(), None));
}

#[test]
fn data_sent_ahead_can_leave_a_statement_in_an_error_state() {
    for (code, is_pinned) in [(1210, true), (1105, true), (1064, false)] {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "SELECT ?", 77, 1);
        fixture.says(&execute(own, &[Param::Bytes(b"")]), 1000);
        let err = ErrPacket { code, sql_state: *b"HY000", message: b"no" };
        fixture.hears(&written(|out| write_err(out, 1, &err).unwrap()));
        assert_eq!(fixture.follow.settle().effects.pin.is_some(), is_pinned, "{code}");
    }
}

#[test]
fn without_its_database_a_client_can_choose_another_one_or_change_its_user() {
    let err = refusal()[HEADER_BYTES..].to_vec();
    let init = written(|out| {
        write_payload(out, 0, b"\x02other").unwrap();
    });
    let mut fixture = Fixture::new();
    fixture.follow.database_refused(err.clone());
    let Fixture { relay, follow, statements, prepared } = &mut fixture;
    let change = written(|out| {
        write_payload(out, 0, b"\x11app\0\0\0").unwrap();
    });
    let client_bytes = follow.process_client(relay, &change, statements, prepared).unwrap();
    assert_eq!(client_bytes.goodbye, Some(Goodbye::ChangeUser));
    for (choice, pieces) in [(query(" use `other` ; "), 3), (query("USE other"), 1000), (init, 2)] {
        let mut fixture = Fixture::new();
        fixture.follow.database_refused(err.clone());
        for text in ["SELECT 1 FROM t", "USE a; SELECT 1 FROM t", "user", "US"] {
            assert_eq!(fixture.says(&query(text), pieces).0, written(encode_ping), "{text}");
            assert_eq!(fixture.hears(&ok(&OK)), refusal(), "{text}");
        }
        fixture.says(&choice, pieces);
        fixture.hears(&refusal());
        assert!(fixture.follow.has_no_database());
        // What follows waits for the response.
        assert_eq!(fixture.says(&choice, pieces).0, choice);
        let Fixture { relay, follow, statements, prepared } = &mut fixture;
        let later = query("SELECT 1 FROM t");
        let client_bytes = follow.process_client(relay, &later, statements, prepared).unwrap();
        assert_eq!((client_bytes.pass_bytes, client_bytes.drop_bytes), (0, 0));
        fixture.hears(&ok(&OK));
        assert!(!fixture.follow.has_no_database());
        assert_eq!(fixture.says(&later, pieces).0, later);
    }
}

#[test]
fn an_error_that_ends_the_transaction_ends_its_savepoints() {
    const OPEN: OkPacket = OkPacket { status: 1, ..OK };
    const ENDED: OkPacket = OkPacket { status: 0, ..OK };
    let mut fixture = Fixture::new();
    for (text, answer) in [
        ("SAVEPOINT a", ok(&ENDED)),
        ("INSERT INTO t VALUES (1)", ok(&OPEN)),
        ("CREATE TABLE t (a INT)", refusal()),
    ] {
        fixture.says(&query(text), 1000);
        fixture.hears(&answer);
        assert!(fixture.follow.may_have_savepoint(), "{text}");
    }
    assert_eq!(fixture.follow.status(), StatusFlags::Unknown);
    fixture.follow.report_status(ENDED);
    assert_eq!(fixture.follow.status(), StatusFlags::Reported);
    assert!(!fixture.follow.may_have_savepoint());
    // A routine may set a savepoint before it fails.
    for (text, answer) in [("INSERT INTO t VALUES (1)", ok(&OPEN)), ("CALL p()", refusal())] {
        fixture.says(&query(text), 1000);
        fixture.hears(&answer);
    }
    fixture.follow.report_status(ENDED);
    assert!(fixture.follow.may_have_savepoint());
}

#[test]
fn settings_that_a_failing_command_has_changed_are_seen_behind_it() {
    const ESCAPES: Option<&str> = Some("a sql_mode that was set out of sight");
    let call = query("CALL p()");
    for (status, settings, pin) in [
        (2, &[][..], None),
        (0, &["autocommit"][..], None),
        (0x202, &[], ESCAPES),
        (0x200, &["autocommit"], ESCAPES),
    ] {
        let mut fixture = Fixture::new();
        fixture.says(&call, 7);
        fixture.hears(&refusal());
        fixture.follow.settle();
        fixture.follow.report_status(OkPacket { status, ..OK });
        let SessionChanges { effects, status, .. } = fixture.follow.settle();
        assert_eq!(
            (effects.settings, effects.pin),
            (settings.iter().map(ToString::to_string).collect(), pin)
        );
        assert_eq!(status, StatusFlags::Reported);
        // It is reported once.
        fixture.follow.report_status(OkPacket { status: OK.status, ..OK });
        fixture.follow.settle();
        fixture.follow.report_status(OkPacket { status: OK.status, ..OK });
        assert!(fixture.follow.settle().effects.is_none());
    }
    // Changed for a while, within one text.
    for last in [ok(&OK), refusal()] {
        let mut fixture = Fixture::new();
        fixture.says(&query("CALL p(); SELECT 1; CALL q()"), 7);
        let changed = ok(&OkPacket { status: 0x208, ..OK });
        fixture.hears(&[changed.clone(), changed, last].concat());
        let effects = fixture.follow.settle().effects;
        assert_eq!((effects.settings, effects.pin), (vec!["autocommit".to_owned()], ESCAPES));
    }
}

#[test]
fn a_set_that_fails_behind_an_assignment_stays_on_its_connection() {
    const PIN: Option<&str> = Some("a SET of several settings that failed");
    for (text, code, expected) in [
        ("SET time_zone = '+05:00', GLOBAL innodb_log_file_size = 1", 1371, PIN),
        ("SET GLOBAL innodb_log_file_size = 1, @@session.time_zone = '+05:00'", 1371, PIN),
        ("SET time_zone = '+05:00', sql_mode = 'x'", 1231, PIN),
        ("SET time_zone = CONCAT('+05', ':00')", 1298, None),
        ("SET GLOBAL a = 1, GLOBAL b = 1", 1371, None),
        // Nothing was set.
        ("SET time_zone = '+05:00', nonsense = 1", 1193, None),
        ("SET time_zone = '+05:00', nonsense", 1064, None),
    ] {
        let err = ErrPacket { code, sql_state: *b"HY000", message: b"no" };
        let refusal = written(|out| write_err(out, 1, &err).unwrap());
        let mut fixture = Fixture::new();
        fixture.says(&query(text), 7);
        fixture.hears(&refusal);
        let effects = fixture.follow.settle().effects;
        assert_eq!((effects.pin, effects.settings.len()), (expected, 0), "{text}");
        let own = prepare(&mut fixture, text, 77, 0);
        fixture.says(&execute(own, &[]), 7);
        fixture.hears(&refusal);
        assert_eq!(fixture.follow.settle().effects.pin, expected, "{text}");
    }
}

#[test]
fn a_fetch_shows_that_a_cursor_is_closed() {
    for (code, is_open) in [(1421, false), (1243, false), (1317, true)] {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "SELECT ?", 77, 1);
        open_cursor(&mut fixture, own, CURSOR);
        fixture.says(&execute_with_cursor(own), 1000);
        fixture.hears(&refusal());
        assert!(fixture.follow.is_open());
        let fetch = [&b"\x1c"[..], &own.to_le_bytes(), b"\x01\0\0\0"].concat();
        let fetch = written(|out| {
            write_payload(out, 0, &fetch).unwrap();
        });
        fixture.says(&fetch, 1000);
        let err = ErrPacket { code, sql_state: *b"HY000", message: b"no" };
        fixture.hears(&written(|out| write_err(out, 1, &err).unwrap()));
        assert_eq!(fixture.follow.is_open(), is_open, "{code}");
    }
}

#[test]
fn a_statement_is_prepared_again_if_only_this_connection_executed_it_first_with_a_cursor() {
    for is_moved in [true, false] {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "SELECT ?", 77, 1);
        let plain = execute(own, &[Param::Bytes(b"")]);
        if is_moved {
            fixture.says(&plain, 3);
            fixture.hears(&cursor_response(2));
            // Another connection, on which it has been prepared again.
            fixture.prepared.clear();
            fixture.prepared.insert(own, 78);
        }
        open_cursor(&mut fixture, own, CURSOR);
        open_cursor(&mut fixture, own, CURSOR);
        let (sent, needs) = fixture.says(&plain, 3);
        // A direct client gets what the server answers.
        assert_eq!((sent.is_empty(), needs), if is_moved { (true, Some(own)) } else { (false, None) });
        if is_moved {
            fixture.prepared.insert(own, 79);
            let (sent, needs) = fixture.says(&plain, 3);
            assert_eq!((sent, needs), (execute(79, &[Param::Bytes(b"")]), None));
        }
        fixture.hears(&cursor_response(2));
        assert!(fixture.is_clean() && !fixture.follow.is_open());
    }
}

#[test]
fn texts_behind_a_change_of_the_character_set_are_read_with_care() {
    const PIN: Option<&str> = Some("a text behind a change of its character set");
    let with_text = |text: &[u8]| {
        written(|out| {
            write_payload(out, 0, &[&b"\x03"[..], text].concat()).unwrap();
        })
    };
    let (tricky, utf8) =
        (&b"SELECT '\xbf\\', GET_LOCK(1,1), '\xbf\\', 1 -- '"[..], "SELECT 'é', `a`, '\\''".as_bytes());
    for (text, size, expected) in [(tricky, 1, PIN), (tricky, 1000, PIN), (utf8, 1, None), (utf8, 1000, None)]
    {
        let in_transaction = ok(&OkPacket { status: 3, ..OK });
        let mut fixture = Fixture::new();
        fixture.says(&query("SET NAMES gbk"), 7);
        fixture.hears(&in_transaction);
        fixture.says(&with_text(text), size);
        fixture.hears(&in_transaction);
        assert_eq!(fixture.follow.settle().effects.pin, expected);
        // Pipelined, and in one text.
        fixture.says(&[query("SET NAMES gbk"), with_text(text)].concat(), size);
        fixture.hears(&[ok(&OK), ok(&OK)].concat());
        assert_eq!(fixture.follow.settle().effects.pin, expected);
        fixture.says(&with_text(&[b"SET character_set_client=gbk;", text].concat()), size);
        fixture.hears(&ok(&OK));
        assert_eq!(fixture.follow.settle().effects.pin, expected);
    }
    // Settled: the value is known.
    let mut fixture = Fixture::new();
    fixture.says(&query("SET NAMES utf8mb4"), 7);
    fixture.hears(&ok(&OK));
    fixture.follow.settle();
    fixture.says(&with_text("SELECT 'é\\''".as_bytes()), 7);
    fixture.hears(&ok(&OK));
    assert_eq!(fixture.follow.settle().effects.pin, None);
}

#[test]
fn an_execute_without_types_fails_for_that_first() {
    // No types were ever sent for the statement: the server finds that before it finds that it may not be executed.
    let mut fixture = Fixture::new();
    let own = prepare(&mut fixture, "UPDATE t SET a = ? WHERE id = ?", 77, 2);
    fixture.moves();
    let typed = execute(own, &[Param::Bytes(b"x"), Param::Bytes(b"1")]);
    let new_types_at = HEADER_BYTES + 10 + 1;
    let mut untyped = typed[..=new_types_at].to_vec();
    untyped[new_types_at] = 0;
    untyped.extend_from_slice(b"\x01x\x011");
    untyped[0] = u8::try_from(untyped.len() - HEADER_BYTES).unwrap();
    let read_only = refusal()[HEADER_BYTES..].to_vec();
    let commands = [(&untyped, 1, false), (&untyped, 1000, false), (&typed, 1, true), (&untyped, 1000, true)];
    // The types of an execute that failed are those of the next one.
    for (command, size, has_types) in commands {
        assert_eq!(fixture.says(command, size).1, Some(own));
        fixture.follow.preparation_failed(own, read_only.clone());
        assert_eq!(fixture.says(command, size), (written(encode_ping), None));
        let heard = fixture.hears(&ok(&OK));
        assert_eq!(heard == refusal(), has_types, "{heard:?}");
        assert!(has_types || heard.ends_with(b"Incorrect arguments to mysqld_stmt_execute"), "{heard:?}");
    }
}

#[test]
fn an_empty_response_is_read_alike_whatever_follows_it() {
    let ends = |behind: &[u8]| {
        let mut fixture = Fixture::new();
        let own = prepare(&mut fixture, "SELECT ?", 77, 0);
        fixture.moves();
        fixture.follow.preparation_failed(own, refusal()[HEADER_BYTES..].to_vec());
        fixture.says(&execute(own, &[]), 1000);
        let Fixture { relay, follow, statements, prepared } = &mut fixture;
        let empty_and_behind = [&[0, 0, 0, 1][..], behind].concat();
        follow.process_server(relay, &empty_and_behind, statements, prepared).unwrap_err()
    };
    // The response to the ping that stands for the execute: an OK would start with a zero.
    assert_eq!(ends(&[]), ends(&[0]));
    assert_eq!(ends(&[]), ends(&[0xff]));
}
