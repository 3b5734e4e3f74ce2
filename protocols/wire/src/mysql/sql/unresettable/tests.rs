use proptest::prelude::*;

use super::*;

#[test]
fn every_name_is_found_in_any_case() {
    for (name, _, meaning) in NAMES.names() {
        let Meaning::Leaves(reason) = meaning else { continue };
        for text in [
            format!("SELECT {name}('a')"),
            format!("SELECT * FROM `{name}`"),
            format!("CALL sys.{name}disable_thread(1)"),
            format!("/*!50000 SELECT {name}() */"),
            format!("SELECT 1; SET {name} = 1"),
            format!("PREPARE x FROM 'SELECT {name}()'"),
            format!("EXECUTE IMMEDIATE \"SELECT {name}()\""),
            format!("BEGIN NOT ATOMIC DO {name}(); END"),
        ] {
            assert_eq!(Scanner::of(text.as_bytes()), Some(*reason), "{text}");
            assert_eq!(Scanner::of(text.to_uppercase().as_bytes()), Some(*reason), "{text}");
        }
    }
}

#[test]
fn statements_are_found() {
    for (text, reason) in [
        ("SET ROLE r", ROLE),
        ("set\n role 'r'", ROLE),
        ("SET ROLE `r`@`h`", ROLE),
        ("SET ROLE NONE", ROLE),
        ("SET ROLE/**/r", ROLE),
        ("SET /* it */ ROLE r", ROLE),
        ("SET -- it\nROLE r", ROLE),
        ("SET # it\nROLE r", ROLE),
        ("/*!80000 SET ROLE r */", ROLE),
        ("/*!80000SET ROLE r */", ROLE),
        ("SET /*!ROLE*/ r", ROLE),
        ("SET STATEMENT max_statement_time = 1 FOR SET ROLE r", ROLE),
        ("PREPARE x FROM 'SET ROLE r'", ROLE),
        ("EXECUTE IMMEDIATE 'SET ROLE r'", ROLE),
        ("BEGIN NOT ATOMIC SET ROLE r; END", ROLE),
        ("SET NAMES utf8mb4, ROLE r", ROLE),
        ("SET @x = 1, ROLE 'r'", ROLE),
        ("SET @x = f(1, 2),\n/* it */ ROLE NONE", ROLE),
        ("SET RESOURCE GROUP g", GROUP),
        ("SET SESSION AUTHORIZATION a@b", AUTHORIZATION),
        ("BINLOG 'AAAA'", BINLOG),
        ("BINLOG\n@a, @b", BINLOG),
        ("BINLOG /* it */ 'AAAA'", BINLOG),
        ("XA PREPARE 'x'", XA),
        ("xa\nprepare 'x'", XA),
        ("XA /* it */ PREPARE 'x'", XA),
        ("PREPARE x FROM 'XA PREPARE 1'", XA),
        ("EXECUTE IMMEDIATE 'XA PREPARE 1'", XA),
        ("BEGIN NOT ATOMIC XA PREPARE 'x'; END", XA),
        ("SET net_write_timeout = 1", SOCKET_LIMIT),
        ("SET SESSION NET_READ_TIMEOUT= 86400, SESSION NET_WRITE_TIMEOUT= 86400", SOCKET_LIMIT),
        ("SET @@`net_retry_count` = 1", SOCKET_LIMIT),
        ("SET STATEMENT net_write_timeout = 1 FOR SELECT 1", SOCKET_LIMIT),
        ("UPDATE performance_schema.threads SET history = 'NO'", THREAD),
        ("update `Performance_Schema`.`threads` set history = 'NO'", THREAD),
        ("PREPARE x FROM @text", COMPUTED),
        ("PREPARE `x` FROM @text", COMPUTED),
        ("PREPARE x FROM 'SET RO' 'LE r'", COMPUTED),
        ("PREPARE x FROM 'SET RO\\LE r'", COMPUTED),
        ("PREPARE x FROM 'SET RO' || 'LE r'", COMPUTED),
        ("EXECUTE IMMEDIATE 'XA ' || 'PREPARE 1'", COMPUTED),
        ("PREPARE /* it */ x FROM 'SELECT 1'", COMPUTED),
        ("EXECUTE IMMEDIATE CONCAT('SET RO', 'LE r')", COMPUTED),
        ("EXECUTE IMMEDIATE @text", COMPUTED),
        ("EXECUTE IMMEDIATE 0x53", COMPUTED),
        ("EXECUTE IMMEDIATE (SELECT text FROM t)", COMPUTED),
    ] {
        assert_eq!(Scanner::of(text.as_bytes()), Some(reason), "{text}");
        assert_eq!(Scanner::of(text.to_lowercase().as_bytes()), Some(reason), "{text}");
        assert_eq!(Scanner::of(format!("SELECT 1;\n{text}").as_bytes()), Some(reason), "{text}");
    }
}

#[test]
fn blanks_of_single_byte_character_sets_separate_words() {
    for text in [
        &b"SET\xa0ROLE r"[..],
        b"\xa0SET \xa0ROLE\xa0r",
        b"SELECT 1;\xa0set\x85role\xa0r",
        b"SET\xffROLE r",
        b"BEGIN\xa0NOT\xa0ATOMIC\xa0SET\xa0ROLE\xa0r;\xa0END",
    ] {
        assert!(Scanner::of(text).is_some(), "{}", String::from_utf8_lossy(text));
    }
    assert_eq!(Scanner::of("SET NAMES utf8; SELECT setàrole, réserve".as_bytes()), None);
}

#[test]
fn usual_texts_are_not_matched() {
    for text in [
        "",
        "SELECT 1",
        "SELECT * FROM users WHERE role = 'admin' AND profile_id = 3 ORDER BY created_at DESC LIMIT 10;",
        "UPDATE users SET role = 'admin', resource = 'x' WHERE id = 1",
        "UPDATE users SET role='admin'; UPDATE users SET `role` = 'a'",
        "UPDATE users SET name = f(1, 2), role = 'admin', `role` = 'a' WHERE a || b",
        "SET role := 1; SET @role = 2",
        "SET NAMES utf8mb4; SET autocommit = 0, sql_mode = 'ANSI'",
        "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET DEFAULT ROLE r FOR u",
        "SHOW VARIABLES LIKE 'binlog'",
        "SHOW BINLOG EVENTS",
        "SELECT * FROM performance_schema.threads",
        "PREPARE x FROM 'SELECT a FROM t WHERE b = ?'",
        "EXECUTE x USING @a",
        "EXECUTE IMMEDIATE 'SELECT 1'",
        "XA RECOVER",
        "XA START 'x'",
        "XA END 'x'",
        "XA COMMIT 'x' ONE PHASE",
        "SELECT xa, xa.prepare FROM xa",
        "SELECT xa FROM t; COMMIT",
        "SELECT @@net_read_timeout",
        "SET net_read_timeout = 10",
        "/* driver */SELECT @@character_set_client AS character_set_client, @@net_write_timeout AS net_write_timeout",
        "SELECT GET_LOCK('a', 0), LAST_INSERT_ID()",
        "CALL p(1); BEGIN; COMMIT",
        "INSERT INTO t VALUES ('it''s', 'a;b', \"set\") -- the role",
        "USE shop",
    ] {
        assert_eq!(Scanner::of(text.as_bytes()), None, "{text}");
        assert_eq!(Scanner::of(text.to_lowercase().as_bytes()), None, "{text}");
    }
}

/// Parts of texts, of which some together are found.
const PARTS: [&str; 28] = [
    "SELECT ",
    "SET ",
    "ROLE",
    " ",
    "r",
    "=",
    "RESOURCE ",
    "GROUP ",
    "BINLOG",
    "'",
    "\"",
    "PREPARE ",
    "FROM ",
    "EXECUTE ",
    "IMMEDIATE ",
    "@",
    "/*",
    "*/",
    "#",
    "\n",
    ";",
    "!",
    "50000",
    "profil",
    "profiling",
    "performance_schema",
    "XA ",
    "net_write_timeout",
];

proptest! {
    #[test]
    fn the_shortcut_and_all_cuts_agree(
        parts in proptest::collection::vec(proptest::sample::select(&PARTS[..]), 0..12),
        upper in proptest::collection::vec(any::<bool>(), 64),
        cuts in proptest::collection::vec(0_usize..100, 0..6),
        verb in proptest::sample::select(&["", "SELECT ", "update t set a = ", "REPLACE "][..]),
    ) {
        let mut text = [verb, &parts.concat()].concat().into_bytes();
        for (byte, upper) in text.iter_mut().zip(upper.iter().cycle()) {
            *byte = if *upper { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        }
        let mut whole = Scanner::default();
        whole.read(&text);
        if Scanner::is_plain(&text) {
            prop_assert!(whole.name.is_none()
                && !whole.findings.has(Mark::PerformanceSchema)
                && !whole.findings.has(Mark::SocketLimit));
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
}
