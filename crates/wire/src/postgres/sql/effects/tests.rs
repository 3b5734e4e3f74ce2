use proptest::prelude::*;

use super::*;

fn of(text: &str) -> Effects {
    Effects::of(text.as_bytes(), StringSyntax::Standard)
}

fn settings(text: &str) -> Vec<String> {
    let effects = of(text);
    assert_eq!((effects.pin, &effects.deallocated), (None, &Deallocated::None), "{text}");
    effects.settings.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

fn pin(text: &str) -> Option<&'static str> {
    of(text).pin
}

#[test]
fn settings_are_found_in_every_notation() {
    for (text, name) in [
        ("SET statement_timeout = 5", "statement_timeout"),
        ("set\n session /* so /* it */ is */ Search_Path to a, b", "search_path"),
        ("SET TIME ZONE 'UTC'", "TimeZone"),
        ("SET NAMES 'UTF8'", "client_encoding"),
        ("SET ROLE app", "role"),
        ("RESET work_mem", "work_mem"),
        ("SET my.own = '1'", "my.own"),
        ("SET \"My Own\" = '1'", "My Own"),
        ("BEGIN; UPDATE t SET a = 1; -- set b\n SET geqo = off", "geqo"),
    ] {
        assert_eq!(settings(text), [name], "{text}");
    }
}

#[test]
fn effects_within_the_transaction_are_ignored() {
    for text in [
        "SELECT 1",
        "UPDATE t SET a = 1 WHERE b = '; SET x = 1'",
        "SET LOCAL work_mem = 1",
        "SET TRANSACTION READ ONLY",
        "INSERT INTO t VALUES ($1, $a$; SET x = 1; listen y$a$, E'it''s; load')",
        "CREATE TABLE temp_table (a int)",
        "SELECT pg_advisory_xact_lock(1)",
        "DECLARE c CURSOR FOR SELECT 1",
        "PREPARE TRANSACTION 'x'",
        "SELECT \"set_config\" FROM t /* ; SET x = 1 */",
        "DISCARD PLANS",
        "",
    ] {
        assert!(of(text).is_none(), "{text}: {:?}", of(text));
    }
}

#[test]
fn connection_bound_state_pins() {
    for text in [
        "CREATE TEMP TABLE t (a int)",
        "create local temporary view v as select 1",
        "SELECT 1 INTO TEMP t",
        "LISTEN news",
        "SELECT pg_catalog.pg_try_advisory_lock(1)",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "PREPARE p AS SELECT 1",
        "DO $$ BEGIN END $$",
        "SELECT set_config('a.b', '1', false)",
        "RESET ALL",
        "SET SESSION AUTHORIZATION app",
        "LOAD 'auto_explain'",
        "CREATE TABLE pg_temp.t (a int)",
    ] {
        assert!(pin(text).is_some(), "{text}");
    }
}

/// Statements after literals, comments and names that look as if they continued.
#[test]
fn statements_after_a_literal_are_read() {
    for text in [
        r"SELECT E'\'x'; LISTEN y",
        "SELECT E'a'\n'\\'b'; LISTEN y",
        "SELECT E'a' -- \\\n -- '\n '\\'b'; LISTEN y",
        r"SELECT E'a''\'b'; LISTEN y",
        r"SELECT N'a\'; LISTEN y",
        r"SELECT 'a\'; LISTEN y",
        r"SELECT U&'\0061\'; LISTEN y",
        r#"SELECT 1 AS "a""'"; LISTEN y"#,
        "SELECT 1 -- '\rFROM t; LISTEN y",
        "SELECT $1$a$ AS $a$; LISTEN y",
        "SELECT a$b$c, 1; LISTEN y; SELECT a$b$c",
        "SELECT $é$ ' $é$; LISTEN y",
        "EXPLAIN ANALYZE CREATE TEMP TABLE t AS SELECT 1",
        "SELECT \"pg_catalog\" . \"set_config\" ('a.b', '1', false)",
        "SELECT \"set_config\"('a.b', '1', false)",
    ] {
        assert!(pin(text).is_some(), "{text}");
    }
    assert_eq!(settings(r#"SET "my" . own = '\'; SET geqo = off"#), ["my.own", "geqo"]);
    assert_eq!(settings(r#"SET "a"".b" = 1"#), ["a\".b"]);
}

#[test]
fn statements_in_a_literal_are_ignored() {
    for text in [
        r"SELECT E'\'; LISTEN y; --'",
        "SELECT E'a'\n'\\'; LISTEN y; --'",
        "SELECT 'a' -- '\n'; LISTEN y; --'",
        "SELECT B'1' '; LISTEN y; --'",
        "SELECT 1 AS \"a\"\"; LISTEN y; --\"",
        "SELECT $1$a$; LISTEN y; $a$",
    ] {
        assert_eq!(pin(text), None, "{text}");
    }
}

#[test]
fn backslashes_follow_the_server_setting() {
    let pin = |text: &str, string_syntax| Effects::of(text.as_bytes(), string_syntax).pin;
    let (behind, within) = (r"SELECT 'a\'; LISTEN y", r"SELECT 'a\'; LISTEN y; --'");
    assert_eq!(pin(behind, StringSyntax::Standard), Some("LISTEN"));
    assert_eq!(pin(within, StringSyntax::Escaped), None);
    assert_eq!(pin(r"SELECT '\''; LISTEN y; --'", StringSyntax::Escaped), Some("LISTEN"));
    for text in [behind, within] {
        assert!(pin(text, StringSyntax::Unknown).is_some(), "{text}");
    }
    assert_eq!(pin(r"SELECT '\\', 'C:\dir', E'\''", StringSyntax::Unknown), None);
    assert_eq!(
        pin("SET standard_conforming_strings = off", StringSyntax::Standard),
        Some("standard_conforming_strings")
    );
}

#[test]
fn unreadable_texts_pin() {
    let long = format!("SELECT ${0}$ ' ${0}$", "a".repeat(200));
    for text in [long.as_str(), "SET U&\"\\0061\" = 1", &format!("SET {}.b = 1", "a".repeat(200))] {
        assert!(pin(text).is_some(), "{text}");
    }
}

#[test]
fn memory_does_not_grow_with_the_text() {
    let names =
        |count: usize| (0..count).map(|number| format!("DEALLOCATE s{number}")).collect::<Vec<_>>().join(";");
    assert!(
        matches!(of(&names(MAX_DEALLOCATED)).deallocated, Deallocated::Named(names) if names.len() == MAX_DEALLOCATED)
    );
    let many = of(&names(100_000));
    assert_eq!((many.deallocated, many.pin.is_some()), (Deallocated::All, true));
    assert_eq!(of(&"DEALLOCATE a;".repeat(100_000)).deallocated, Deallocated::Named(vec![b"a".to_vec()]));
    let long = of(&format!("DEALLOCATE {}", "a".repeat(64)));
    assert_eq!((long.deallocated, long.pin.is_some()), (Deallocated::All, true));
}

#[test]
fn prepared_statements_are_deallocated_by_name() {
    let named =
        |names: &[&str]| Deallocated::Named(names.iter().map(|name| name.as_bytes().to_vec()).collect());
    let deallocated = |text: &str| of(text).deallocated;
    assert_eq!(deallocated("DEALLOCATE S_1; deallocate prepare \"S 2\""), named(&["s_1", "S 2"]));
    assert_eq!(deallocated("DEALLOCATE a; DEALLOCATE ALL"), Deallocated::All);
    assert_eq!(deallocated("DEALLOCATE a; DEALLOCATE a"), named(&["a"]));
    assert_eq!(of("DISCARD ALL").discard, Discard::All);
}

proptest! {
    #[test]
    fn a_text_may_be_cut_anywhere(
        text in "(SET|LISTEN|[a-z_.]{1,9}|[EUBXNu]|[;'\"$/*&\\\\\n\r-]|\\$a\\$| ){0,40}",
        string_syntax in prop::sample::select(vec![StringSyntax::Standard, StringSyntax::Escaped, StringSyntax::Unknown]),
        cuts in proptest::collection::vec(0_usize..100, 0..6),
    ) {
        let mut reader = TextReader::new(string_syntax);
        let mut rest = text.as_bytes();
        for cut in cuts {
            let (piece, behind) = rest.split_at(cut.min(rest.len()));
            reader.read(piece);
            rest = behind;
        }
        reader.read(rest);
        prop_assert_eq!(reader.end(), Effects::of(text.as_bytes(), string_syntax));
    }
}

#[test]
fn only_plain_data_access_leaves_nothing() {
    let remains = |text: &str| of(text).remains;
    for text in [
        "",
        "SELECT 1",
        "select count(*), coalesce(max(a), 0) from t where b in (1, 2) and c = any ($1)",
        "INSERT INTO t (a, b) VALUES (1, lower('x')) ON CONFLICT (a) DO UPDATE SET b = excluded.b RETURNING *",
        "INSERT INTO public.\"T\" (a) SELECT a FROM s",
        "WITH moved AS (DELETE FROM a RETURNING *) INSERT INTO b SELECT * FROM moved",
        "MERGE INTO t USING s ON (t.a = s.a) WHEN MATCHED THEN DELETE",
        "BEGIN; UPDATE t SET a = a + 1 WHERE b = 'set_config(1)'; COMMIT",
        "(SELECT 1) UNION ALL (SELECT 2)",
        "SELECT row_number() OVER (PARTITION BY a), x::numeric(10, 2) FROM t FOR UPDATE",
        "START TRANSACTION READ ONLY; SAVEPOINT a; RELEASE a; ROLLBACK",
        "COPY t FROM STDIN",
    ] {
        assert_eq!(remains(text), Remains::Nothing, "{text}");
    }
    for text in [
        "SET a.b = 1",
        "SELECT 1; LISTEN x",
        "SELECT pg_advisory_lock(1)",
        "SELECT pg_advisory_lock (1)",
        "SELECT pg_catalog.lower('x')",
        "SELECT \"lower\"('x')",
        "SELECT my_function(1)",
        "SELECT nextval('s')",
        "SELECT 1 INTO TEMP t",
        "SELECT * INTO t FROM s",
        "INSERT INTO t SELECT 1; SELECT 2 INTO t",
        "CREATE TEMP TABLE t (n int)",
        "EXPLAIN ANALYZE EXECUTE s",
        "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
        "PREPARE s AS SELECT 1",
        "CALL p()",
        "DO $$ BEGIN END $$",
        "\"select\" 1",
        "SELECT U&\"a\"('x')",
    ] {
        assert_eq!(remains(text), Remains::Anything, "{text}");
    }
}
