use proptest::prelude::*;

use super::*;

/// Complete texts with this call in all places from which it is executed.
fn texts_with(call: &str) -> Vec<String> {
    let quoted = call.replacen('(', "\"(", 1);
    let doubled = call.replace('\'', "''");
    [
        format!("SELECT {call}"),
        format!("select * from pg_catalog.{call} as f"),
        format!("SELECT \"{quoted}"),
        format!("SELECT /* why */{call}"),
        format!("-- why\nSELECT {call}"),
        format!("SELECT 1; SELECT {call}"),
        format!("INSERT INTO t VALUES ($1, {call})"),
        format!("WITH a AS (SELECT {call}) SELECT * FROM a"),
        format!("EXPLAIN ANALYZE SELECT {call}"),
        format!("DO $$BEGIN PERFORM {call}; END$$"),
        format!("DO LANGUAGE plpgsql 'BEGIN PERFORM {doubled}; END'"),
        format!("DO E'BEGIN\\nPERFORM\\n{doubled}; END'"),
        format!("EXECUTE 'SELECT {doubled}'"),
        format!("PREPARE x AS SELECT {call}"),
        format!("CALL p({call})"),
        format!("COPY (SELECT {call}) TO STDOUT"),
        format!("CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'SELECT {doubled}'"),
        format!("DECLARE c CURSOR FOR SELECT {call}"),
        format!("SELECT query_to_xml('SELECT {doubled}', true, true, '')"),
        format!("SELECT \u{20ac} || {call}"),
    ]
    .into()
}

#[test]
fn every_function_is_found_wherever_it_is_executed() {
    for (name, _, meaning) in NAMES.names() {
        let Meaning::Leaves(reason) = meaning else { continue };
        for text in texts_with(&format!("{name}('a', true)")) {
            assert_eq!(Scanner::of(text.as_bytes()), Some(*reason), "{text}");
            assert_eq!(Scanner::of(text.to_uppercase().as_bytes()), Some(*reason), "{text}");
        }
    }
    for text in texts_with("dblink_connect_u('a', 'b')") {
        assert_eq!(Scanner::of(text.as_bytes()), Some("a connection of dblink"), "{text}");
    }
}

#[test]
fn statements_and_hidden_names_are_found() {
    for (text, reason) in [
        ("LOAD 'auto_explain'", LIBRARY),
        (" load\n'x'", LIBRARY),
        ("LOAD'x'", LIBRARY),
        ("load E'x'", LIBRARY),
        ("LOAD $$x$$", LIBRARY),
        ("LOAD /* it */ 'x'", LIBRARY),
        ("LOAD -- it\n 'x'", LIBRARY),
        ("/* age */ LOAD 'age'", LIBRARY),
        ("-- age\nLOAD 'age'", LIBRARY),
        ("SELECT '--'; LOAD 'age'", LIBRARY),
        ("SELECT 1; load 'age'", LIBRARY),
        ("DO $$BEGIN LOAD 'age'; END$$", LIBRARY),
        ("DO $$ BEGIN IF true THEN LOAD 'age'; END IF; END $$", LIBRARY),
        ("SET seed = 0.5", SEED),
        ("set session seed to 0.5", SEED),
        ("SET LOCAL seed TO 0.5", SEED),
        ("SET \"seed\" = 0.5", SEED),
        ("SET /* it */ seed = 0.5", SEED),
        ("SET -- it\nseed = 0.5", SEED),
        ("-- it\nSET seed = 0.5", SEED),
        ("BEGIN; SET seed = 0.5", SEED),
        ("DO $$BEGIN SET seed = 0.5; END$$", SEED),
        ("SELECT set_config('seed', '0.5', false)", SEED),
        ("SELECT Set_Config('SEED', '0.5', false)", SEED),
        ("UPDATE pg_settings SET setting = '0.5' WHERE name = 'seed'", SEED),
        ("SELECT U&\"set\\0073eed\"(0.5)", UNICODE),
        ("SELECT u&\"set!0073eed\" UESCAPE '!' (0.5)", UNICODE),
        ("EXECUTE u&'x'", UNICODE),
        ("DO U&'BEGIN END'", UNICODE),
        ("DO LANGUAGE plperl '$_SHARED{a} = 1'", LANGUAGE),
        ("DO $$GD['a'] = 1$$ LANGUAGE plpython3u", LANGUAGE),
        ("DO LANGUAGE \"pltcl\" $$$$", LANGUAGE),
        ("DO LANGUAGE /* it */ plv8 $$x$$", LANGUAGE),
        ("DO /* it */ LANGUAGE plv8 $$x$$", LANGUAGE),
        ("DO 'x' LANGUAGE 'plv8'", LANGUAGE),
        ("DO $$BEGIN EXECUTE 'SELECT sets' || 'eed(0.5)'; END$$", COMPUTED),
        ("do 'begin execute format(''select %s(0.5)'', ''x''); end'", COMPUTED),
        ("DO E'BEGIN PERFORM set\\x73eed(0.5); END'", COMPUTED),
        ("DO $a$BEGIN OPEN c FOR EXECUTE t; END$a$", COMPUTED),
        ("SELECT query_to_xml('SELECT sets' || 'eed(0.5)', true, true, '')", COMPUTED),
        ("SELECT query_to_xml(E'SELECT set\\x73eed(0.5)', true, true, '')", COMPUTED),
        ("SELECT * FROM crosstab($1) AS t (a int)", COMPUTED),
        ("SELECT query_to_xml('SELECT set_config(''a.b'', ''1'', false)', true, true, '')", CUSTOM),
        ("SELECT * FROM crosstab('SET a.b = 1') AS t (a int)", CUSTOM),
        ("DO $$BEGIN SET a.b = 1; END$$", CUSTOM),
        ("DO $$BEGIN SET LOCAL \"a\" . b = 1; END$$", CUSTOM),
        ("DO 'BEGIN RESET \"a.b\"; END'", CUSTOM),
        ("DO $$BEGIN SET /* it */ a.b = 1; END$$", CUSTOM),
        ("DO $$BEGIN PERFORM set_config('a.b', '1', true); END$$", CUSTOM),
    ] {
        assert_eq!(Scanner::of(text.as_bytes()), Some(reason), "{text}");
        assert_eq!(Scanner::of(text.to_lowercase().as_bytes()), Some(reason), "{text}");
        assert_eq!(Scanner::of(format!("SELECT 1;\n{text}").as_bytes()), Some(reason), "{text}");
    }
}

#[test]
fn usual_texts_are_not_matched() {
    for text in [
        "",
        "SELECT 1",
        "SELECT * FROM users WHERE id = $1 AND name LIKE 'do%' ORDER BY created_at DESC LIMIT 10;",
        "INSERT INTO t (seed, load, language) VALUES ($1, 'load', 'do') ON CONFLICT (id) DO UPDATE SET seed = 1",
        "INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING",
        "UPDATE games SET seed = 5, load = '1' WHERE id = 3",
        "UPDATE \"games\" SET seed = 5",
        "UPDATE games g SET\n seed = 5",
        "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN UPDATE SET seed = 1",
        "DELETE FROM t WHERE kind = 'load' AND other = 'seed' AND b = 'it''s'",
        "SELECT load, cpu - load FROM servers WHERE load > 1 OR payload = 'x'",
        "SELECT 'high load', 'what to do', CASE WHEN a THEN load ELSE 'load' END",
        "SELECT a & b, menu&c, u & c FROM t",
        "SET LOCAL app.x = 'y'",
        "SET statement_timeout = 5; SET search_path = a, b",
        "SELECT set_config('app.tenant', $1, true)",
        "SELECT name, setting FROM pg_settings",
        "BEGIN; INSERT INTO t VALUES (1); COMMIT;",
        "/* controller='users', action='do' */ SELECT 1 -- please load it",
        "SELECT data->>'seed', data->'do' FROM t WHERE path = E'C:\\\\do'",
        "CREATE FUNCTION f() RETURNS int LANGUAGE plpgsql AS $$BEGIN EXECUTE format('x'); END$$",
        "CREATE FUNCTION f() RETURNS int AS 'return 1' LANGUAGE plpython3u",
        "DO $$BEGIN RAISE NOTICE 'hello'; END$$",
        "DO $$BEGIN CREATE TYPE a AS ENUM ('x'); EXCEPTION WHEN duplicate_object THEN null; END$$ LANGUAGE plpgsql",
        "DO $$BEGIN SET LOCAL work_mem = 1; UPDATE t SET a = b.c; END$$",
        "SELECT query_to_xml('SELECT a.b FROM a', true, true, '')",
        "PREPARE x AS SELECT $1::int + 1",
        "EXECUTE x(1)",
        "CREATE TRIGGER a BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()",
        "SELECT pg_advisory_lock(1), pg_backend_pid(), dblink('host=x', 'SELECT 1')",
        "SELECT * FROM crosstab('SELECT 1', 'SELECT 2') AS t (a int)",
        "SELECT random(), physical, logical_replication, isnt_weak FROM config_settings",
        "SELECT to_xml, original FROM pg_backups WHERE backup_id = 1",
    ] {
        assert_eq!(Scanner::of(text.as_bytes()), None, "{text}");
        assert_eq!(Scanner::of(text.to_lowercase().as_bytes()), None, "{text}");
    }
}

/// Parts of texts, of which some together are found.
const PARTS: [&str; 30] = [
    "SELECT ",
    "sets",
    "etseed",
    "eed(0.5)",
    "pg_backup_start",
    "LOAD",
    " ",
    "'",
    "\"",
    "$$",
    "DO ",
    "EXECUTE ",
    "U",
    "&",
    "LANGUAGE ",
    "plperl",
    "plpgsql",
    "SET ",
    "SESSION ",
    "seed",
    "--",
    "\n",
    "/*",
    "*/",
    ";",
    "E'",
    "\\",
    "||",
    "set_config(",
    "query_to_xml(",
];

proptest! {
    #[test]
    fn the_shortcut_and_all_cuts_agree(
        parts in proptest::collection::vec(proptest::sample::select(&PARTS[..]), 0..12),
        upper in proptest::collection::vec(any::<bool>(), 64),
        cuts in proptest::collection::vec(0_usize..100, 0..6),
        verb in proptest::sample::select(&["", "SELECT ", "update t set a = ", "WITH "][..]),
    ) {
        let mut text = [verb, &parts.concat()].concat().into_bytes();
        for (byte, upper) in text.iter_mut().zip(upper.iter().cycle()) {
            *byte = if *upper { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        }
        let mut whole = Scanner::default();
        whole.read(&text);
        if Scanner::is_plain(&text) {
            let marks = [Mark::Setter, Mark::SetConfig, Mark::Executor, Mark::UnicodeName];
            prop_assert!(whole.name.is_none() && !marks.iter().any(|mark| whole.findings.has(*mark)));
        } else {
            prop_assert_eq!(Scanner::of(&text), whole.found());
        }
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.sort_unstable();
        let mut pieces = Scanner::default();
        let mut from = 0;
        for cut in cuts.into_iter().chain([text.len()]) {
            pieces.read(&text[from..cut]);
            from = cut;
        }
        prop_assert_eq!(pieces.found(), whole.found());
    }

    #[test]
    fn a_name_is_found_at_every_place(
        index in 0..30_usize,
        before in "[ -~]{0,40}",
        after in "[ -~]{0,40}",
        upper in any::<u64>(),
    ) {
        let (name, _, Meaning::Leaves(_)) = NAMES.names()[index] else { panic!("another meaning") };
        let of_case = |(at, letter): (usize, char)| {
            if upper >> (at % 64) & 1 == 1 { letter.to_ascii_uppercase() } else { letter }
        };
        let name: String = name.char_indices().map(of_case).collect();
        let text = format!("SELECT {before}{name}{after}");
        prop_assert!(Scanner::of(text.as_bytes()).is_some());
    }
}
