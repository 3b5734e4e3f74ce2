use proptest::prelude::*;

use super::*;

#[test]
fn nothing_remains_after_values_of_the_servers_own_functions() {
    for text in [
        "",
        "SELECT 1",
        "select 1 ;",
        "SELECT 1, -2.5, .5, 1e5, 0x1F, 'a', \"b\", NULL, TRUE",
        "SELECT NOW(), UPPER(CONCAT('a', 'b')) AS name, CAST('1' AS DECIMAL(10, 2))",
        "SELECT CONNECTION_ID() AS `id`, USER(), DATABASE(), VERSION()",
        "SELECT @@version, @@session.sql_mode, @@global.max_connections AS limits",
        "SELECT 1 FROM DUAL",
        "/* a comment */ SELECT (1 + 2) * 3 IN (1, 2) -- and another",
        "SELECT CASE WHEN 1 < 2 THEN 'a' ELSE 'b' END",
        "BEGIN",
        "BEGIN WORK; SELECT 1; COMMIT WORK; ROLLBACK",
        "START TRANSACTION READ ONLY, WITH CONSISTENT SNAPSHOT",
    ] {
        assert_eq!(RemainsReader::of(text.as_bytes()), Remains::Nothing, "{text}");
    }
}

#[test]
fn triggers_views_and_routines_may_leave_something_after_plain_data_access() {
    for text in [
        "SELECT * FROM t",
        "SELECT a.b, `c` FROM d.t AS a WHERE a.id IN (1, 2) LIMIT 5",
        "SELECT 1 FROM DUAL, t",
        "SELECT 1 FROM DUAL d",
        "SELECT 1 FROM `dual`",
        "SELECT dual FROM dual.t",
        "SELECT 1 WHERE 1",
        "SELECT 1 UNION SELECT 2",
        "SELECT 1 LIMIT 0",
        "SELECT (SELECT 1)",
        "SELECT 1 one",
        "SELECT COUNT(*), MAX(a) OVER (PARTITION BY b) FROM t GROUP BY b",
        "INSERT INTO t (a, b) VALUES (1, 'x') ON DUPLICATE KEY UPDATE a = VALUES(a)",
        "INSERT INTO `shop`.`t` (`a`) VALUES (1)",
        "REPLACE INTO t VALUES (1)",
        "UPDATE t SET a = a + 1 WHERE b = UPPER('c')",
        "DELETE FROM t WHERE a = 1",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "SHOW TABLES",
        "SAVEPOINT a",
        "ROLLBACK TO SAVEPOINT a",
        "SELECT * FROM t FOR UPDATE",
    ] {
        assert_eq!(RemainsReader::of(text.as_bytes()), Remains::StateOfRoutines, "{text}");
    }
}

#[test]
fn anything_else_needs_a_reset() {
    for text in [
        "SET @a = 1",
        "SET NAMES latin1",
        "SELECT @a",
        "SELECT @a := 1",
        "SELECT 1 INTO @a",
        "SELECT 1 INTO a",
        "SELECT 1 INTO OUTFILE 'f'",
        "SELECT GET_LOCK('a', 0)",
        "SELECT 1, get_lock('a', 0)",
        "DO GET_LOCK('a', 0)",
        "SELECT LAST_INSERT_ID(5)",
        "SELECT ROW_COUNT(), FOUND_ROWS()",
        "SELECT SQL_CALC_FOUND_ROWS * FROM t",
        "SELECT own()",
        "SELECT d.own()",
        "SELECT d.abs(1)",
        "SELECT 1d.abs(1)",
        "SELECT `abs`(1)",
        "SELECT \"abs\"(1)",
        "SELECT abs.abs(1)",
        "SELECT RAND()",
        "SELECT end(1)",
        "SELECT NEXT VALUE FOR s",
        "SELECT NEXTVAL(s), s.nextval",
        "SELECT 1 PROCEDURE ANALYSE()",
        "SELECT /*! GET_LOCK('a', 0) */ 1",
        "SELECT /*M!100000 1 */",
        "SELECT 'a\\'', GET_LOCK('a', 0), '1'",
        "SELECT 'not closed",
        "LOCK TABLES t READ",
        "UNLOCK TABLES",
        "FLUSH TABLES WITH READ LOCK",
        "HANDLER t OPEN",
        "XA START 'a'",
        "BACKUP STAGE START",
        "PREPARE a FROM 'SELECT 1'",
        "CREATE TEMPORARY TABLE t (a INT)",
        "CALL p()",
        "USE d",
        "SET TRANSACTION READ ONLY",
        "BEGIN NOT ATOMIC SET @a = 1; END",
        "BEGIN SELECT 1; END",
        "START SLAVE",
        "COMMIT AND CHAIN",
        "KILL 5",
        "(SELECT 1)",
        "1",
        "LOAD DATA LOCAL INFILE 'f' INTO TABLE t",
        "SELECT 1; SET @a = 1",
        "INSERT INTO t VALUES (1) RETURNING id",
        "REPLACE t VALUES (1) returning a",
        "SELECT 1 FROM",
        "SELECT {d '2020-01-01'}",
        "INSERT INTO t VALUES (own())",
        "UPDATE t SET a = GET_LOCK('a', 0)",
        "SELECT * FROM t WHERE own (a)",
    ] {
        assert_eq!(RemainsReader::of(text.as_bytes()), Remains::Anything, "{text}");
    }
}

/// Pieces of statements, and what may surround them.
fn piece() -> impl Strategy<Value = &'static str> {
    prop::sample::select(vec![
        "SELECT", "1", "(", ")", ",", ".", "FROM", "DUAL", "AS", "abs", "own", "@@", "'x'", "`t`", "\"q\"",
        ";", "BEGIN", "COMMIT", "INSERT", "INTO", "GET_LOCK", "@", "=", ":=", "SET", "--", "\n", "/*", "*/",
        "/*!", "#", "\\", "1d", "end",
    ])
}

proptest! {
    #[test]
    fn a_text_is_read_alike_in_any_pieces(pieces in prop::collection::vec(piece(), 0..12), size in 1_usize..5) {
        let text = pieces.join(" ");
        let mut reader = RemainsReader::default();
        text.as_bytes().chunks(size).for_each(|piece| reader.read(piece));
        prop_assert_eq!(reader.end(), RemainsReader::of(text.as_bytes()));
    }

    /// Whatever else a text has.
    #[test]
    fn a_call_of_an_unknown_function_needs_a_reset(
        before in prop::collection::vec(piece(), 0..6),
        name in "[a-z_][a-z0-9_$]{0,12}",
        after in prop::collection::vec(piece(), 0..6),
    ) {
        prop_assume!(if_called(PlainWord::of(name.as_bytes())) == Remains::Anything && name != "dual");
        let is_open = |text: &str| ["--", "#", "/*", "\\"].iter().any(|opening| text.contains(opening));
        prop_assume!(!is_open(&before.join(" ")));
        // The columns of a table may follow its name.
        prop_assume!(!before.contains(&"INTO"));
        let text = format!("SELECT {} , {name} ( 1 ) {}", before.join(" "), after.join(" "));
        prop_assert_eq!(RemainsReader::of(text.as_bytes()), Remains::Anything, "{}", text);
    }

    #[test]
    fn no_more_text_makes_less_remain(pieces in prop::collection::vec(piece(), 0..12)) {
        let mut reader = RemainsReader::default();
        let mut before = Remains::Nothing;
        for piece in pieces {
            reader.read(piece.as_bytes());
            reader.read(b" ");
            prop_assert!(reader.at_least() >= before);
            before = reader.at_least();
        }
        prop_assert!(reader.end() >= before);
    }
}
