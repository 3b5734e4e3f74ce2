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
}

#[test]
fn without_its_database_a_client_can_only_choose_another_one() {
    let err = refusal()[HEADER_BYTES..].to_vec();
    let init = written(|out| {
        write_payload(out, 0, b"\x02other").unwrap();
    });
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
