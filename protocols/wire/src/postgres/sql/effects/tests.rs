use proptest::prelude::*;

use super::*;

fn of(text: &str) -> Effects {
    Effects::of(text.as_bytes(), StringSyntax::Standard)
}

fn settings(text: &str) -> Vec<String> {
    let effects = of(text);
    assert_eq!((effects.pin, effects.deallocations.len()), (None, 0), "{text}");
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

/// They are set again on another connection, where the order may matter.
#[test]
fn settings_are_in_the_order_in_which_they_were_last_set() {
    assert_eq!(
        settings("SET ROLE a; SET geqo = off; RESET ROLE; SET jit = on; SET Geqo = on"),
        ["role", "jit", "geqo"]
    );
}

/// Columns may have the names of key words.
#[test]
fn a_temporary_table_is_found_behind_any_column() {
    for text in [
        "SELECT 1 AS insert INTO TEMP t",
        "SELECT 1 AS merge INTO TEMPORARY t",
        "SELECT insert INTO TEMP t FROM s",
        "SELECT (SELECT 1) insert INTO TEMP t",
        "WITH a AS (SELECT 1) SELECT 1 AS insert INTO TEMP t",
        "SELECT 1 INTO LOCAL TEMP t",
        "SELECT 42 AS a INTO GLOBAL TEMPORARY t",
    ] {
        assert_eq!(pin(text), Some("a temporary table"), "{text}");
    }
    assert_eq!(of("SELECT 1 AS insert INTO t").remains, Remains::Anything);
}

#[test]
fn a_quoted_setting_is_what_it_is_without_quotes() {
    for name in ["session_authorization", "Session_Authorization"] {
        assert_eq!(pin(&format!("SET \"{name}\" TO app")), Some("SET SESSION AUTHORIZATION"), "{name}");
    }
    assert_eq!(pin("SET \"seed\" TO 0.5"), Some("SET SEED"));
    assert_eq!(pin("SET \"work_mem\" TO 64"), None);
}

/// Afterwards, constants are read with other settings.
#[test]
fn a_server_that_analyses_its_statements_anew_keeps_its_client() {
    let effects = of("DISCARD PLANS");
    assert_eq!((effects.pin, effects.discard), (Some("DISCARD PLANS"), Discard::Plans));
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
        "SELECT set_config('work' || '_mem', '1', false)",
        "SELECT set_config($1, '1', false)",
        "SELECT set_config(name, '1', false) FROM t",
        "SELECT set_config(setting_name => 'work_mem', new_value => '1', is_local => false)",
        "SELECT set_config('search_path', 'pg_temp', false)",
        "SELECT set_config('Seed', '0.5', false)",
        "RESET ALL",
        "SET SESSION AUTHORIZATION app",
        "LOAD 'auto_explain'",
        "CREATE TABLE pg_temp.t (a int)",
        "SELECT query_to_xml('SELECT pg_advisory_lock(1)', true, true, '')",
        "SELECT * FROM crosstab('SELECT a, b, c FROM t') AS t (a int)",
    ] {
        assert!(pin(text).is_some(), "{text}");
    }
}

#[test]
fn set_config_with_a_literal_name_is_a_set() {
    for text in [
        "SELECT set_config('TimeZone', $1, false)",
        "SELECT pg_catalog . \"set_config\" /* so */ ('TimeZone', 'UTC', true), 1",
    ] {
        assert_eq!((settings(text), pin(text)), (vec!["timezone".to_owned()], None), "{text}");
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
    for text in [long.as_str(), "SET U&\"\\0061\" = 1", &format!("SET {0}.{0}.b = 1", "a".repeat(200))] {
        assert!(pin(text).is_some(), "{text}");
    }
}

fn named(name: &str) -> Deallocation {
    Deallocation::Named(name.as_bytes().to_vec())
}

#[test]
fn memory_does_not_grow_with_the_text() {
    let names =
        |count: usize| (0..count).map(|number| format!("DEALLOCATE s{number}")).collect::<Vec<_>>().join(";");
    assert_eq!(of(&names(MAX_NAMED)).deallocations.len(), MAX_NAMED);
    for text in [names(100_000), "DEALLOCATE a;".repeat(100_000)] {
        let many = of(&text);
        assert_eq!((&many.named, many.pin.is_some()), (&NamedStatements::Any, true));
        assert!(many.deallocations.len() <= MAX_NAMED);
    }
    assert_eq!(of(&"DEALLOCATE ALL;".repeat(100_000)).deallocations, [Deallocation::All]);
    let long = of(&format!("DEALLOCATE {}", "é".repeat(100)));
    assert_eq!((long.named, long.pin.is_some()), (NamedStatements::Any, true));
    let cut = Deallocation::Named("a".repeat(63).into_bytes());
    assert_eq!(of(&format!("DEALLOCATE {}", "a".repeat(200))).deallocations, [cut]);
}

#[test]
fn prepared_statements_are_deallocated_in_order() {
    let deallocated = |text: &str| of(text).deallocations;
    let expected = [named("s_1"), named("S 2")];
    assert_eq!(deallocated("DEALLOCATE S_1; deallocate prepare \"S 2\""), expected);
    assert_eq!(deallocated("DEALLOCATE a; DEALLOCATE ALL"), [named("a"), Deallocation::All]);
    assert_eq!(deallocated("DEALLOCATE a; DEALLOCATE a"), [named("a"), named("a")]);
    assert_eq!(deallocated("DEALLOCATE PREPARE ALL"), [Deallocation::All]);
    // Servers cut names at 63 bytes.
    assert_eq!(deallocated(&format!("DEALLOCATE {}", "a".repeat(64))), [named(&"a".repeat(63))]);
    assert_eq!(of("DISCARD ALL").discard, Discard::All);
}

#[test]
fn statements_that_sql_names_are_found() {
    use NameUse::{Executes, Mentions};
    for (text, name_use, name) in [
        ("EXECUTE s1", Executes, "s1"),
        ("execute \"S 1\"(1, 'x')", Executes, "S 1"),
        ("EXPLAIN (ANALYZE, COSTS off) EXECUTE s1(1)", Executes, "s1"),
        ("CREATE TABLE t AS EXECUTE s1", Executes, "s1"),
        ("CREATE TEMP TABLE t AS EXECUTE s1", Executes, "s1"),
        ("create table t (a) with (fillfactor = 70) as execute s1(1) with no data", Executes, "s1"),
        ("EXPLAIN ANALYZE VERBOSE CREATE TABLE t AS EXECUTE s1", Executes, "s1"),
        ("GRANT EXECUTE ON FUNCTION f() TO app; EXPLAIN EXECUTE s1", Executes, "s1"),
        ("DEALLOCATE S1", Mentions, "s1"),
        ("PREPARE s1 AS SELECT 1", Mentions, "s1"),
        ("PREPARE \"s1\" (int) AS SELECT 1", Mentions, "s1"),
        ("PREPARE transaction AS SELECT 1", Mentions, "transaction"),
        ("PREPARE Transaction(int) AS SELECT 1", Mentions, "transaction"),
        ("EXECUTE transaction", Executes, "transaction"),
        ("DEALLOCATE prepare", Mentions, "prepare"),
        ("DEALLOCATE PREPARE s1", Mentions, "s1"),
        ("DEALLOCATE PREPARE prepare", Mentions, "prepare"),
    ] {
        let expected = NamedStatements::These(vec![(name_use, name.as_bytes().to_vec())]);
        assert_eq!(of(text).named, expected, "{text}");
    }
    for text in [
        "SELECT 1",
        "PREPARE TRANSACTION 'x'",
        "DEALLOCATE ALL",
        "SELECT 'EXECUTE s1'",
        // It is not only a statement.
        "GRANT EXECUTE ON FUNCTION f() TO app",
        "REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA a FROM app",
        "ALTER DEFAULT PRIVILEGES GRANT EXECUTE ON FUNCTIONS TO app",
        "CREATE TRIGGER a BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "CREATE TRIGGER a AFTER INSERT ON t EXECUTE PROCEDURE f()",
        "SELECT execute s1 FROM t AS execute",
        "CREATE TABLE t AS SELECT execute s1 FROM u",
    ] {
        assert!(of(text).named.is_empty(), "{text}");
    }
    assert_eq!(of("DEALLOCATE U&\"\\0061\"").named, NamedStatements::Any);
}

#[test]
fn settings_of_a_transaction_do_not_follow() {
    for text in [
        "SET transaction_isolation = 'serializable'",
        "SET \"transaction_read_only\" = on",
        "RESET transaction_deferrable",
    ] {
        assert!(of(text).is_none(), "{text}");
    }
    assert_eq!(of("SET LOCAL app.tenant = '7'; SET LOCAL work_mem = 1").local_custom, [b"app.tenant"]);
    assert_eq!(of("SET LOCAL \"app\".\"tenant\" = '7'").local_custom, [b"app.tenant"]);
}

#[test]
fn key_words_may_be_names() {
    for text in [
        "PREPARE transaction AS SELECT 1",
        "PREPARE transaction (int) AS SELECT 1",
        "PREPARE transaction /* it */ AS SELECT 1",
    ] {
        assert_eq!(pin(text), Some("PREPARE"), "{text}");
    }
    for text in [
        "PREPARE TRANSACTION 'a'",
        "PREPARE TRANSACTION $$a$$",
        "INSERT INTO temp VALUES (1)",
        "INSERT INTO temp (a) SELECT 1",
        "EXPLAIN INSERT INTO temporary VALUES (1)",
        "WITH a AS (SELECT 1) INSERT INTO temp SELECT * FROM a",
        "MERGE INTO temp USING s ON a = b WHEN MATCHED THEN DELETE",
    ] {
        assert_eq!(pin(text), None, "{text}");
    }
    assert_eq!(pin("INSERT INTO temp VALUES (1); SELECT 1 INTO TEMP t"), Some("a temporary table"));
    assert_eq!(of("INSERT INTO temp (a) VALUES (1)").remains, Remains::Nothing);
}

#[test]
fn servers_cut_each_part_of_a_name() {
    let long = "a".repeat(70);
    let cut = |prefix: &str, bytes: usize| [format!("{prefix}{}", "a".repeat(bytes)).into_bytes()];
    assert_eq!(of(&format!("SET app.{long} = 1")).settings, cut("app.", 63));
    assert_eq!(of(&format!("SET \"app.{long}\" = 1")).settings, cut("app.", 59));
    assert_eq!(of(&format!("RESET {long}")).settings, cut("", 63));
    assert_eq!(of(&format!("SET LOCAL app.{long} = 1")).local_custom, cut("app.", 63));
    let text = format!("SET app.{} = 1", "é".repeat(35));
    assert_eq!(pin(&text), Some("a setting with a long name"), "where the server cuts it is not known");
}

#[test]
fn definitions_may_define_custom_settings() {
    for text in [
        "ALTER ROLE a SET app.tenant = '1'",
        "alter user a in database b set \"app.tenant\" to 1",
        "ALTER DATABASE a RESET app.tenant",
        "ALTER SYSTEM SET app.tenant = 1",
        "ALTER FUNCTION f(int) SET app.tenant FROM CURRENT",
        "CREATE OR REPLACE FUNCTION f() RETURNS int LANGUAGE sql SET app.tenant = '1' AS 'SELECT 1'",
        "SELECT 1; CREATE PROCEDURE p() LANGUAGE sql SET work_mem = 1 SET app.tenant = '1' AS ''",
    ] {
        assert!(of(text).may_define_custom() && pin(text) == Some("a custom setting"), "{text}");
    }
    for text in [
        "ALTER ROLE a SET search_path = app.tenant",
        "ALTER TABLE app.t ALTER a SET DEFAULT app.f()",
        "ALTER TABLE t SET (toast.autovacuum_enabled = off)",
        "CREATE TABLE t (a int); UPDATE t SET app.a = 1",
        "CREATE FUNCTION f() RETURNS int LANGUAGE sql SET work_mem = 1 AS 'SET app.tenant = 1'",
    ] {
        assert!(!of(text).may_define_custom() && pin(text).is_none(), "{text}");
    }
}

#[test]
fn the_schema_of_temporary_tables_pins_in_every_notation() {
    for text in [
        "SET search_path = pg_temp, public",
        "SET search_path = 'pg_temp', public",
        "SET search_path TO \"pg_temp\"",
        "SET SESSION \"search_path\" = 'public, PG_TEMP'",
        "SET LOCAL search_path = 'pg_temp'",
        "SET SCHEMA 'pg_temp'",
        "SET search_path = E'pg\\x5ftemp'",
        "CREATE TABLE \"pg_temp\".t (n int)",
        "SET search_path = $$pg_temp$$",
    ] {
        assert_eq!(pin(text), Some("a temporary table"), "{text}");
    }
    assert_eq!(pin("SET search_path = 'app', \"Public\""), None);
    assert_eq!(pin("SET application_name = 'pg_temp'"), None);
}

#[test]
fn an_update_of_the_settings_pins() {
    for text in [
        "UPDATE pg_settings SET setting = '1' WHERE name = 'work_mem'",
        "update \"pg_catalog\".\"pg_settings\" set setting = 1",
        "WITH a AS (UPDATE pg_catalog.pg_settings SET setting = 1 RETURNING 1) SELECT 1",
    ] {
        assert_eq!((pin(text), of(text).remains), (Some("an UPDATE of pg_settings"), Remains::Anything));
    }
    assert_eq!(pin("SELECT * FROM pg_settings"), None);
}

#[test]
fn constants_may_depend_on_settings_and_on_the_time() {
    for (text, constants) in [
        ("SELECT 1, $1", Constants::None),
        ("SELECT 'a', 'nowhere', 'renown', 'the-days'", Constants::None),
        ("SELECT '1 day'::interval", Constants::OfSettings),
        ("SELECT time with time zone 'allballs'", Constants::OfSettings),
        ("SELECT '{NULL}'::text[]", Constants::OfSettings),
        ("SELECT 'é'", Constants::OfSettings),
        ("SELECT 'now'::timestamptz", Constants::OfTheTime),
        ("SELECT date ' Tomorrow 12:00'", Constants::OfTheTime),
        ("SELECT E'n\\x6fw'::timestamptz", Constants::OfTheTime),
        ("SELECT $$today$$::date", Constants::OfTheTime),
        ("SELECT '{now}'::timestamptz[]", Constants::OfTheTime),
        ("SELECT '{\"NOW\"}'::timestamptz[]", Constants::OfTheTime),
        ("SELECT '{infinity,n\\ow}'::timestamptz[]", Constants::OfTheTime),
        ("SELECT '[infinity,\"no\"w)'::tstzrange", Constants::OfTheTime),
        ("SELECT '[now,infinity)'::tstzrange", Constants::OfTheTime),
        ("SELECT '(a,now)'::t", Constants::OfTheTime),
        ("SELECT '10:00 today'::timestamptz", Constants::OfTheTime),
        ("SELECT '10:00today'::timestamptz", Constants::OfTheTime),
        ("SELECT 'today10:00'::timestamptz", Constants::OfTheTime),
        ("SELECT 'to'\n'day'::date", Constants::OfTheTime),
        ("SELECT N'today'::date", Constants::OfTheTime),
        ("SELECT U&'\\0074oday'::date", Constants::OfTheTime),
    ] {
        assert_eq!(of(text).constants, constants, "{text}");
    }
    let long = |list: &str, last: &str| of(&format!("SELECT '{{{list}{last}}}'::timestamptz[]")).constants;
    for bytes in [100, 200, 10_000] {
        assert_eq!(long(&"infinity,".repeat(bytes / 9), "now"), Constants::OfTheTime);
        assert_eq!(long(&"infinity,".repeat(bytes / 9), "no"), Constants::OfSettings);
    }
    assert_eq!(long(&"infinity,".repeat(10_000), "a"), Constants::OfTheTime, "it is not searched");
    let text = format!("SELECT 'words {}'", "and now ".repeat(10_000));
    assert_eq!(of(&text.replacen("and now", "and then", 20)).constants, Constants::OfSettings, "no list");
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

/// Words that matter somewhere, words that begin like them, and others.
const WORDS: &str = "select insert into merge update delete values table with as explain analyze create temp temporary \
                     table or replace set reset local session time zone names all search_path pg_temp pg_temp.t pg_tem \
                     set_config pg_catalog.set_config setseed sets settings pg_settings pg_advisory_lock \
                     public.pg_try_advisory_lock dblink_connect dblink_ prepare execute deallocate transaction discard \
                     declare cursor hold fetch listen load do alter role my.own seed inserts intos t a.b \"into\" \
                     \"pg_temp\" 'x' '1' $1 ( ) , ; . -- /*";

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]
    /// Most names within a statement are passed over.
    #[test]
    fn names_that_are_passed_over_have_no_effect(
        words in prop::collection::vec(prop::sample::select(WORDS.split_whitespace().collect::<Vec<_>>()), 0..12),
    ) {
        let text = words.join(" ");
        let mut thorough = TextReader::thorough(StringSyntax::Standard);
        thorough.read(text.as_bytes());
        prop_assert_eq!(of(&text), thorough.end());
    }
}
