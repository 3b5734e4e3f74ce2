use proptest::prelude::*;

use super::*;

fn of(text: &str) -> Effects {
    Effects::of(text.as_bytes(), Escapes::Backslash)
}

#[test]
fn settings_are_found_in_every_notation() {
    for (text, names) in [
        ("SET sql_mode = ''", &["sql_mode"][..]),
        ("set\n session /* so */ Time_Zone := '+01:00'", &["time_zone"]),
        ("SET @@session.wait_timeout = 5, @@autocommit=0", &["wait_timeout", "autocommit"]),
        ("SET LOCAL `foreign_key_checks` = 0 -- set x=1", &["foreign_key_checks"]),
        ("SET a = (SELECT MAX(x, y) FROM t), b = 'x,c=1'", &["a", "b"]),
        ("SET GLOBAL max_connections = 5, @@session.x = 1", &["x"]),
        ("SET SESSION TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY", &TRANSACTIONS),
        ("SET tx_isolation = 'SERIALIZABLE'", &TRANSACTIONS[..1]),
        ("SET NAMES utf8mb4 COLLATE utf8mb4_bin", &CHARACTER_SETS),
        ("SET CHARACTER SET 'latin1'", &CHARACTER_SETS),
        ("SET character_set_connection = latin1", &CHARACTER_SETS[2..]),
        ("SET storage_engine = MEMORY, default_storage_engine = Aria", &["default_storage_engine"]),
        (
            "SET character_set_server = latin1, tmp_memory_table_size = 1",
            &["collation_server", "tmp_table_size"],
        ),
        ("SET STATEMENT max_statement_time=1 FOR SET sql_mode=''", &["sql_mode"]),
        ("SET max_join_size = 5", &["max_join_size", "sql_big_selects"]),
        ("BEGIN; UPDATE t SET a = 1; # set b\n SET c = off;", &["c"]),
    ] {
        let effects = of(text);
        assert_eq!((effects.pin, effects.next_transaction), (None, NextTransaction::Unchanged), "{text}");
        assert_eq!(effects.settings, names, "{text}");
    }
}

#[test]
fn effects_within_the_transaction_are_ignored() {
    for text in [
        "SELECT 1",
        "(SELECT 1) UNION (SELECT 2)",
        "SELECT @@version_comment, @@session.sql_mode",
        "UPDATE t SET a = 1 WHERE b = '; SET x = 1'",
        r"INSERT INTO t VALUES ('it\'s', 'GET_LOCK(', '@x', 'a\\')",
        "INSERT INTO t VALUES (LAST_INSERT_ID(), 1)",
        "SELECT LAST_INSERT_ID()",
        "SELECT get_lock, `row_count` FROM t /* GET_LOCK() */",
        "SET GLOBAL x = 1",
        "CREATE TABLE temporary_table (a INT)",
        "DROP TEMPORARY TABLE t",
        "START TRANSACTION READ ONLY",
        "SELECT 5--5, 6 -- @x\n, 7",
        "SELECT \"a@b.example\"",
        "FLUSH PRIVILEGES",
        "/* @x */ SELECT 1 # @y",
        ";",
        "",
    ] {
        assert!(of(text).is_none(), "{text}: {:?}", of(text));
    }
}

#[test]
fn connection_bound_state_pins() {
    for text in [
        "SET @x = 1",
        "SELECT 1 INTO @x",
        "SELECT @`x` := 1",
        "CREATE TEMPORARY TABLE t (a INT)",
        "create or replace temporary table t (a INT)",
        "LOCK TABLES t READ",
        "SELECT GET_LOCK('a', 1)",
        "DO `get_lock` ('a', 1)",
        "SELECT \"get_lock\"('a', 1)",
        "PREPARE p FROM 'SELECT 1'",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "HANDLER t OPEN",
        "SELECT SQL_CALC_FOUND_ROWS 1",
        "SELECT FOUND_ROWS()",
        "SELECT @@last_gtid",
        "SELECT MASTER_GTID_WAIT(@@session.`last_gtid`)",
        "SET system_versioning_asof = DEFAULT",
        "SET character_set_database = latin1",
        "SET @@session.collation_database = 'latin1_bin'",
        "SET default_master_connection = '1'",
        "SELECT ROW_COUNT ()",
        "FLUSH LOCAL TABLES WITH READ LOCK",
        "XA START 'x'",
        "SET sql_log_bin = 0",
        "SET timestamp = 1",
        "SET ROLE a",
        "SET PASSWORD = 'x'",
        "SET GLOBAL a = 1, b = 2",
        "SET a.b = 1",
        "SET \"sql_mode\" = ''",
        "SELECT LAST_INSERT_ID(5)",
        "/*!40101 SET NAMES utf8 */",
        "/*M!100100 SELECT 1 */",
        r#"SELECT "\" , @x"#,
        "SELECT 'open",
        "BEGIN NOT ATOMIC SELECT 1; END",
        "BACKUP STAGE START",
        "SELECT 1; whatever",
        "SET sql_mode = 'NO_BACKSLASH_ESCAPES'; SELECT 1",
        "'text'",
    ] {
        assert!(of(text).pin.is_some(), "{text}");
    }
}

#[test]
fn the_database_and_the_next_transaction() {
    for text in ["USE `x`", "use x", "DROP DATABASE x", "drop schema if exists x"] {
        let effects = of(text);
        assert_eq!((effects.database, effects.pin), (DefaultDatabase::MayDiffer, None), "{text}");
    }
    for text in ["SET TRANSACTION READ ONLY", "SET @@transaction_isolation = 'SERIALIZABLE'"] {
        let effects = of(text);
        assert_eq!(
            (effects.next_transaction, effects.pin, effects.settings.len()),
            (NextTransaction::Configured, None, 0),
            "{text}"
        );
    }
}

#[test]
fn backslashes_follow_the_session_mode() {
    let text = br"SELECT '\', @x, '"; // An open literal for one mode, a literal and a variable for the other.
    assert_eq!(Effects::of(text, Escapes::Backslash).pin, None);
    let pin = Effects::of(text, Escapes::None).pin;
    assert_eq!(pin, Some("a user variable"));
}

#[test]
fn a_change_of_the_character_set_is_found_wherever_the_text_is_cut() {
    for text in ["SELECT 'é`'; SET NAMES gbk", "SET NAMES gbk; SELECT 'é`'", "SELECT @x, 'é`'; SET NAMES gbk"]
    {
        for size in 1..text.len() {
            let mut reader = TextReader::new(Escapes::Backslash);
            text.as_bytes().chunks(size).for_each(|piece| reader.read(piece));
            assert_eq!(reader.end(), Effects::of(text.as_bytes(), Escapes::Backslash), "{text}: {size}");
        }
    }
}

proptest! {
    #[test]
    fn pieces_give_the_same_effects_as_the_whole(
        text in r#"(SET|SELECT|a|=|,|@|@@|;|'|"|`|\\|/\*|\*/|!|-|#|\n| |GET_LOCK|\(|\)|sql_mode|NAMES |é){0,40}"#,
        size in 1..9_usize,
    ) {
        for escapes in [Escapes::Backslash, Escapes::None] {
            let mut reader = TextReader::new(escapes);
            text.as_bytes().chunks(size).for_each(|piece| reader.read(piece));
            prop_assert_eq!(reader.end(), Effects::of(text.as_bytes(), escapes));
        }
    }

    #[test]
    fn a_user_variable_outside_quotes_is_always_found(
        before in "[a-z0-9 ,()=;.]{0,30}", quoted in "[a-z@;# -]{0,10}", after in "[a-z0-9 ,()'`;]{0,30}",
    ) {
        let text = format!("{before} '{quoted}' /* {quoted} */ @x {after}");
        prop_assert!(Effects::of(text.as_bytes(), Escapes::Backslash).pin.is_some());
    }

    #[test]
    fn nothing_panics(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let effects = Effects::of(&bytes, Escapes::Backslash);
        prop_assert!(effects.settings.len() <= MAX_SETTINGS);
    }
}

#[test]
fn the_end_of_a_session_with_its_transaction_pins() {
    for text in
        ["COMMIT RELEASE", "rollback work release", "COMMIT AND NO CHAIN RELEASE", "DO 1; ROLLBACK RELEASE"]
    {
        assert_eq!(of(text).pin, Some("RELEASE"), "{text}");
    }
    for text in [
        "COMMIT",
        "COMMIT NO RELEASE",
        "ROLLBACK AND CHAIN",
        "ROLLBACK AND CHAIN NO RELEASE",
        "RELEASE SAVEPOINT a",
    ] {
        assert_eq!(of(text).pin, None, "{text}");
    }
    assert_eq!(of("SET completion_type = RELEASE").pin, Some("completion_type"));
}

#[test]
fn ambiguous_texts_pin() {
    for text in [
        "SELECT /*+ QB_NAME(`*/ '`) */ 1",
        "SELECT 1 --\u{a0}'\n; SET x = 1",
        "SELECT 1,\u{a0}get_lock('a', 0)",
        "SELECT 1, get_lock\u{a0}('a', 0)",
        "SELECT 1, get_lock\u{ff}('a', 0)",
        "CREATE \u{a0}TEMPORARY TABLE t (a INT)",
        // With the mode `MSSQL`.
        "SELECT 1 AS [a'b]; SET x = 1; SELECT 'x' AS [y'z]",
    ] {
        let latin1: Vec<u8> = text.chars().map(|character| u8::try_from(character).unwrap()).collect();
        assert!(Effects::of(&latin1, Escapes::Backslash).pin.is_some(), "{text}");
    }
    for text in
        ["SELECT /*+ MAX_EXECUTION_TIME(1000) */ 1", "SELECT 1 --é\n", "SELECT é, à, 表, a表à FROM tàé"]
    {
        assert_eq!(of(text).pin, None, "{text}");
    }
}

#[test]
fn texts_whose_responses_do_not_show_last_insert_id_are_found() {
    for (text, expected) in [
        ("SELECT 1", InsertId::Unchanged),
        ("DELETE FROM t RETURNING id", InsertId::Unchanged),
        ("ANALYZE TABLE t", InsertId::Unchanged),
        ("ANALYZE SELECT `insert` FROM t", InsertId::Unchanged),
        ("INSERT INTO t VALUES (1)", InsertId::Reported),
        ("SET STATEMENT max_statement_time = 1 FOR REPLACE t VALUES (1)", InsertId::Reported),
        ("UPDATE t SET a = LAST_INSERT_ID()", InsertId::Reported),
        ("UPDATE t SET a = LAST_INSERT_ID(0)", InsertId::ReportedUnlessZero),
        ("INSERT t VALUES (1); UPDATE t SET a = `last_insert_id` (a + 1)", InsertId::ReportedUnlessZero),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = 1", InsertId::ReportedIfZero),
        ("INSERT INTO t VALUES (1) ON DUPLICATE KEY UPDATE a = LAST_INSERT_ID(a)", InsertId::NotReported),
        ("INSERT INTO t VALUES (1) RETURNING id", InsertId::NotReported),
        ("REPLACE INTO t VALUES (1) RETURNING id; SELECT 1", InsertId::NotReported),
        ("LOAD DATA INFILE 'x' INTO TABLE t", InsertId::NotReported),
        ("ANALYZE INSERT INTO t VALUES (1)", InsertId::NotReported),
        ("ANALYZE FORMAT=JSON REPLACE INTO t VALUES (1)", InsertId::NotReported),
    ] {
        let effects = of(text);
        assert_eq!((effects.insert_id, effects.pin), (expected, None), "{text}");
        assert_eq!(effects.is_none(), expected <= InsertId::Reported, "{text}");
    }
}

#[test]
fn texts_that_read_diagnostics_leave_them() {
    for text in [
        "SHOW WARNINGS",
        "show errors limit 1",
        "SHOW COUNT(*) WARNINGS",
        "SELECT @@warning_count",
        "SELECT @@session.`error_count`",
    ] {
        assert_eq!(of(text).reads_diagnostics, ReadsDiagnostics::Yes, "{text}");
        assert!(of(text).is_none(), "{text}");
    }
    for text in ["SHOW TABLES", "SELECT warnings FROM errors", "SELECT COUNT(*) FROM t"] {
        assert_eq!(of(text).reads_diagnostics, ReadsDiagnostics::No, "{text}");
    }
}

#[test]
fn a_default_database_that_is_replaced_is_unset() {
    for (text, expected) in [
        ("CREATE OR REPLACE DATABASE a", DefaultDatabase::MayDiffer),
        ("create or replace schema a", DefaultDatabase::MayDiffer),
        ("DROP DATABASE a", DefaultDatabase::MayDiffer),
        ("CREATE OR REPLACE TABLE a (b int)", DefaultDatabase::Unchanged),
    ] {
        assert_eq!(Effects::of(text.as_bytes(), Escapes::Backslash).database, expected, "{text}");
    }
}
