//! SQL texts of sessions. Their answers do not depend on time, on chance, or on the connection.

/// A part of the grammar, which can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feature {
    Plain,
    Transaction,
    Savepoint,
    Autocommit,
    Setting,
    Isolation,
    Variable,
    SqlPrepare,
    Temporary,
    Call,
    Lock,
    Database,
    Warning,
    LastId,
    Definition,
    FoundRows,
    Locals,
    SqlMode,
    Chain,
    /// The server closes the connection.
    Release,
}

use Feature as F;

/// Complete statements without parameters.
pub(crate) const TEXTS: &[(Feature, &[&str])] = &[
    (
        F::Plain,
        &[
            "SELECT 1",
            "SELECT 1 AS a, 'x' AS b, NULL",
            "SELECT id, v FROM t ORDER BY id",
            "SELECT * FROM t WHERE id = 2",
            "SELECT a, b FROM u ORDER BY a",
            "INSERT INTO t(id, v) VALUES (10, 'ten')",
            "INSERT INTO u VALUES (5, 'five')",
            "UPDATE t SET n = n + 1 WHERE id = 2",
            "UPDATE t SET v = 'same' WHERE id < 3",
            "DELETE FROM t WHERE id > 4",
            "SELECT nope",
            "SELECT * FROM missing",
            "SELEC",
            "",
            "-- nothing",
            "/* a */ SELECT 2",
            "SELECT 'a;b', \"c;d\", `v` FROM t WHERE id = 1",
            "SELECT 'it''s', 'a\\'b'",
            "SELECT plus(1, 2)",
            "SELECT v FROM w WHERE id = 1",
            "SELECT REPEAT('x', 9000)",
            "REPLACE INTO t(id, v) VALUES (1, 'replaced')",
            "DO 1",
            "SHOW TABLES LIKE 't'",
            "DESCRIBE u",
            "/*! SELECT 3 */",
            "SET STATEMENT max_statement_time = 10 FOR SELECT 4",
            "WITH x AS (SELECT 1 AS a) SELECT * FROM x",
            "SELECT 5 UNION SELECT 6",
        ],
    ),
    (
        F::Transaction,
        &[
            "BEGIN",
            "BEGIN",
            "START TRANSACTION",
            "START TRANSACTION READ ONLY",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT",
            "COMMIT",
            "COMMIT",
            "ROLLBACK",
            "ROLLBACK",
            "SELECT id FROM t WHERE id = 1 FOR UPDATE",
        ],
    ),
    (F::Release, &["COMMIT RELEASE", "ROLLBACK RELEASE"]),
    (F::Chain, &["COMMIT AND CHAIN", "ROLLBACK AND CHAIN", "COMMIT AND NO CHAIN", "SET completion_type = 1"]),
    (
        F::Savepoint,
        &[
            "SAVEPOINT a",
            "ROLLBACK TO a",
            "ROLLBACK TO SAVEPOINT a",
            "RELEASE SAVEPOINT a",
            "SAVEPOINT b",
            "CALL saves()",
            "SET STATEMENT max_statement_time = 10 FOR SAVEPOINT a",
        ],
    ),
    (
        F::Autocommit,
        &[
            "SET autocommit = 0",
            "SET autocommit = 0",
            "SET autocommit = 1",
            "SELECT @@autocommit",
            // Without autocommit it begins a transaction.
            "SAVEPOINT a",
            "ROLLBACK TO a",
        ],
    ),
    (
        F::Setting,
        &[
            "SET time_zone = '+05:00'",
            "SET @@session.time_zone = DEFAULT",
            "SET net_write_timeout = 77",
            "SET SESSION net_write_timeout = 78, time_zone = '-03:00'",
            "SELECT @@time_zone, @@net_write_timeout",
            "SET NAMES latin1",
            "SET NAMES utf8mb4 COLLATE utf8mb4_bin",
            "SET CHARACTER SET utf8mb4",
            "SELECT @@character_set_client, @@collation_connection",
            "SET nonsense = 1",
            "SET net_write_timeout = 'nonsense'",
            "SET sort_buffer_size = 400000",
            "SELECT @@sort_buffer_size",
            "SET sql_auto_is_null = 1",
            "SET foreign_key_checks = 0",
            "SELECT @@foreign_key_checks, @@sql_auto_is_null",
            "SET div_precision_increment = 2",
            "SELECT 1/3",
        ],
    ),
    (
        F::SqlMode,
        &[
            "SET sql_mode = ''",
            "SET sql_mode = 'ANSI_QUOTES'",
            "SET sql_mode = 'NO_BACKSLASH_ESCAPES'",
            "SET sql_mode = 'PIPES_AS_CONCAT'",
            "SET sql_mode = DEFAULT",
            "SELECT 'a' || 'b'",
            "SELECT \"v\" FROM t WHERE id = 1",
            "SELECT 'a\\\\'",
        ],
    ),
    (
        F::Isolation,
        &[
            "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET SESSION TRANSACTION READ ONLY",
            "SET SESSION TRANSACTION READ WRITE",
            "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            "SET TRANSACTION READ ONLY",
            "SELECT @@tx_isolation, @@tx_read_only",
        ],
    ),
    (
        F::Variable,
        &[
            "SET @a = 1",
            "SET @a := @a + 1, @b = 'x'",
            "SELECT @a, @b",
            "SELECT id INTO @a FROM t WHERE id = 3",
            "SELECT @a := 5",
            "CALL gives(1, @a)",
        ],
    ),
    (
        F::SqlPrepare,
        &[
            "PREPARE ps FROM 'SELECT 1'",
            "PREPARE ps FROM 'SELECT ?'",
            "EXECUTE ps",
            "DEALLOCATE PREPARE ps",
            "DROP PREPARE ps",
            "EXECUTE IMMEDIATE 'SELECT 8'",
        ],
    ),
    (
        F::Temporary,
        &[
            "CREATE TEMPORARY TABLE tt(a INT)",
            "CREATE TEMPORARY TABLE IF NOT EXISTS tt AS SELECT 1 AS a",
            "INSERT INTO tt VALUES (1)",
            "SELECT COUNT(*) FROM tt",
            "DROP TABLE tt",
            "DROP TEMPORARY TABLE IF EXISTS tt",
        ],
    ),
    (
        F::Call,
        &[
            "CALL two()",
            "CALL cursors()",
            "CALL fails()",
            "CALL works()",
            "CALL missing()",
            "BEGIN NOT ATOMIC SELECT 1; SELECT 2; END",
        ],
    ),
    (
        F::Lock,
        &[
            "SELECT GET_LOCK('l', 0)",
            "SELECT RELEASE_LOCK('l')",
            "DO RELEASE_ALL_LOCKS()",
            "LOCK TABLES t WRITE",
            "LOCK TABLES t READ, u READ",
            "UNLOCK TABLES",
            "HANDLER t OPEN",
            "HANDLER t READ FIRST",
            "HANDLER t CLOSE",
        ],
    ),
    (
        F::Database,
        &["USE information_schema", "USE sbtest", "USE nope", "SELECT DATABASE()", "SELECT COUNT(*) FROM t"],
    ),
    (
        F::Warning,
        &[
            "SHOW WARNINGS",
            "SHOW COUNT(*) WARNINGS",
            "SHOW ERRORS",
            "SELECT 1/0, CAST('x' AS SIGNED)",
            "DROP TABLE IF EXISTS missing",
            "SELECT @@warning_count, @@error_count",
        ],
    ),
    (
        F::LastId,
        &[
            "INSERT INTO t(v) VALUES ('key')",
            "INSERT INTO t(v) VALUES ('a'), ('b')",
            "SELECT LAST_INSERT_ID()",
            "UPDATE t SET n = LAST_INSERT_ID(77) WHERE id = 1",
            "SELECT LAST_INSERT_ID(88)",
            "INSERT INTO t(id, v) VALUES (50, LAST_INSERT_ID(50))",
        ],
    ),
    (
        F::FoundRows,
        // In one text: before their first use the proxy does not know that a client needs them.
        &[
            "SELECT SQL_CALC_FOUND_ROWS id FROM t ORDER BY id LIMIT 1; SELECT FOUND_ROWS()",
            "UPDATE t SET v = 'counted' WHERE id < 4; SELECT ROW_COUNT()",
        ],
    ),
    (
        F::Definition,
        &[
            "CREATE TABLE x(a INT)",
            "DROP TABLE x",
            "DROP TABLE IF EXISTS x",
            "ALTER TABLE u ADD c INT DEFAULT 3",
            "ALTER TABLE t MODIFY n VARCHAR(20)",
            "TRUNCATE u",
        ],
    ),
    (
        F::Locals,
        &[
            "LOAD DATA LOCAL INFILE 'f' INTO TABLE u",
            "SET ROLE NONE",
            "SET PASSWORD FOR 'nobody'@'nowhere' = 'nonsense'",
            "KILL QUERY 999999999",
            "XA START 'x'",
            "XA END 'x'",
            "XA ROLLBACK 'x'",
            "XA COMMIT 'x' ONE PHASE",
            "FLUSH STATUS",
        ],
    ),
];

/// Texts that belong together. Each stage is one of its texts.
pub(crate) const STORIES: &[(Feature, &[&[&str]])] = &[
    (
        F::Savepoint,
        &[
            &["SET autocommit = 0"],
            &["SAVEPOINT a", "CALL saves()", "SET STATEMENT max_statement_time = 10 FOR SAVEPOINT a"],
            &["SELECT 1", "ROLLBACK TO a"],
            &["INSERT INTO u VALUES (5, 'five')", "ROLLBACK TO a"],
            &["ROLLBACK TO a", "RELEASE SAVEPOINT a"],
        ],
    ),
    (
        F::Setting,
        &[
            &["SET NAMES utf8mb4 COLLATE utf8mb4_bin", "SET NAMES latin1"],
            &["SELECT 'text' AS t", "SELECT v FROM t WHERE id = 1"],
        ],
    ),
    (
        F::Setting,
        &[
            &[
                "SET time_zone = '+05:00'",
                "SET net_write_timeout = 77",
                "SET time_zone = '+05:00', nonsense = 1",
            ],
            &["SELECT 1", "SELECT nope", "SET net_write_timeout = 79, time_zone = 'nonsense'"],
            &["SELECT @@time_zone, @@net_write_timeout"],
        ],
    ),
    (
        F::Autocommit,
        &[
            &["SET autocommit = 0", "CALL turns_off()", "CALL turns_off_and_fails()"],
            &["INSERT INTO u VALUES (5, 'five')"],
            &["ROLLBACK"],
            &["SELECT a, b FROM u ORDER BY a", "SELECT @@autocommit"],
        ],
    ),
    (
        F::Isolation,
        &[
            &[
                "SET SESSION TRANSACTION READ ONLY",
                "SET TRANSACTION READ ONLY",
                "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            ],
            &["SELECT @@tx_isolation, @@tx_read_only", "INSERT INTO u VALUES (5, 'five')"],
        ],
    ),
    (F::Variable, &[&["SET @a = 1", "CALL gives(1, @a)", "SELECT @a := 5"], &["SELECT @a, @b"]]),
    (
        F::Temporary,
        &[
            &["CREATE TEMPORARY TABLE tt(a INT)", "CREATE TEMPORARY TABLE IF NOT EXISTS tt AS SELECT 1 AS a"],
            &["INSERT INTO tt VALUES (1)", "SELECT COUNT(*) FROM tt"],
        ],
    ),
    (F::Lock, &[&["SELECT GET_LOCK('l', 0)"], &["SELECT RELEASE_LOCK('l')"]]),
    (F::Lock, &[&["LOCK TABLES t READ"], &["SELECT COUNT(*) FROM u", "UNLOCK TABLES"]]),
    (F::Database, &[&["USE information_schema", "USE nope"], &["SELECT DATABASE()"]]),
    (
        F::LastId,
        &[
            &[
                "INSERT INTO t(v) VALUES ('key')",
                "SELECT LAST_INSERT_ID(88)",
                "UPDATE t SET n = LAST_INSERT_ID(77) WHERE id = 1",
            ],
            &["SELECT 1", "SELECT nope"],
            &["SELECT LAST_INSERT_ID()"],
        ],
    ),
    (
        F::SqlPrepare,
        &[&["PREPARE ps FROM 'SELECT 1'"], &["EXECUTE ps", "DEALLOCATE PREPARE ps"], &["EXECUTE ps"]],
    ),
];

/// Texts that change what statements mean.
pub(crate) const CHANGES: &[(Feature, &str)] = &[
    (F::SqlMode, "SET sql_mode = 'ANSI_QUOTES'"),
    (F::SqlMode, "SET sql_mode = 'PIPES_AS_CONCAT'"),
    (F::SqlMode, "SET sql_mode = DEFAULT"),
    (F::Setting, "SET div_precision_increment = 2"),
    (F::Database, "USE information_schema"),
    (F::Definition, "ALTER TABLE t MODIFY n VARCHAR(20)"),
    (F::Definition, "DROP TABLE u"),
    (F::Transaction, "BEGIN"),
    (F::Plain, "SELECT nope"),
];

/// Statements to prepare: the text, and how many parameters it has.
pub(crate) const PARAMETRISED: &[(&str, usize)] = &[
    ("SELECT ?", 1),
    ("SELECT ?, ?", 2),
    ("SELECT id, v FROM t WHERE id = ?", 1),
    ("SELECT * FROM t WHERE id >= ? ORDER BY id", 1),
    ("SELECT * FROM t ORDER BY id", 0),
    ("SELECT * FROM u ORDER BY a", 0),
    ("INSERT INTO u VALUES (?, ?)", 2),
    ("INSERT INTO t(v) VALUES (?)", 1),
    ("UPDATE t SET v = ? WHERE id = ?", 2),
    ("DELETE FROM t WHERE id = ?", 1),
    ("SELECT 'constant'", 0),
    ("SELECT 'a' || 'b'", 0),
    ("SELECT \"v\" FROM t WHERE id = 1", 0),
    ("SELECT 1/3", 0),
    ("CALL two()", 0),
    ("CALL cursors()", 0),
    ("CALL fails()", 0),
    ("CALL works()", 0),
    ("CALL gives(?, ?)", 2),
    ("SELECT @a, ?", 1),
    ("SELECT * FROM missing", 0),
    ("SELEC", 0),
    ("SELECT 1; SELECT 2", 0),
];

/// What an administrator does in between.
pub(crate) const ADMIN: &[&str] = &[
    "ALTER TABLE t MODIFY n VARCHAR(20)",
    "ALTER TABLE t MODIFY v VARCHAR(40)",
    "ALTER TABLE t ADD e INT DEFAULT 8",
    "ALTER TABLE u RENAME u2",
    "ALTER TABLE u2 RENAME u",
    "DROP TABLE u",
    "UPDATE t SET v = 'by admin' WHERE id = 1",
    "DROP FUNCTION plus",
    "CREATE TABLE x (a VARCHAR(10))",
];
