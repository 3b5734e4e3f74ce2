//! The tables that sessions use, and what a client must find on a connection.

use std::time::{Duration, Instant};

use ciphertoll_model::Engine;

use super::command::Command;
use super::connection::{Connection, Packet};

const ROWS: &str = "INSERT INTO t VALUES (1, 'row 1', 10), (2, 'row 2', 20), (3, 'row 3', 30), \
                    (4, 'row 4', 40), (5, 'row 5', 50); INSERT INTO u VALUES (1, 'one'), (2, NULL)";

/// After sessions that changed rows only.
pub(crate) fn restore_rows() -> String {
    format!("TRUNCATE t; DELETE FROM u; {ROWS}")
}

pub(crate) fn restore_all() -> String {
    format!(
        "DROP VIEW IF EXISTS w; DROP TABLE IF EXISTS t, u, x, u2, made; DROP PROCEDURE IF EXISTS two; \
         DROP PROCEDURE IF EXISTS cursors; DROP PROCEDURE IF EXISTS fails; DROP PROCEDURE IF EXISTS works; \
         DROP PROCEDURE IF EXISTS gives; DROP PROCEDURE IF EXISTS saves; \
         DROP PROCEDURE IF EXISTS turns_off; DROP PROCEDURE IF EXISTS turns_off_and_fails; DROP FUNCTION IF EXISTS plus; \
         CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(50), n BIGINT) ENGINE=InnoDB; \
         CREATE TABLE u (a INT, b VARCHAR(50)) ENGINE=InnoDB; \
         CREATE VIEW w AS SELECT id, v FROM t; \
         CREATE FUNCTION plus(a INT, b INT) RETURNS INT DETERMINISTIC RETURN a + b; \
         CREATE PROCEDURE two() BEGIN SELECT 1 AS a; SELECT id, v FROM t ORDER BY id; END; \
         CREATE PROCEDURE cursors() BEGIN DECLARE i INT; DECLARE c CURSOR FOR SELECT id FROM t ORDER BY id; \
         OPEN c; FETCH c INTO i; CLOSE c; SELECT i AS first; SELECT 'second' AS s; END; \
         CREATE PROCEDURE fails() BEGIN SELECT 1 AS a; SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'fails'; END; \
         CREATE PROCEDURE works() BEGIN INSERT INTO t(v) VALUES ('works'); START TRANSACTION; \
         INSERT INTO u VALUES (7, 'works'); END; \
         CREATE PROCEDURE saves() SAVEPOINT a; \
         CREATE PROCEDURE turns_off() SET autocommit = 0; \
         CREATE PROCEDURE turns_off_and_fails() BEGIN SET autocommit = 0; \
         SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'fails'; END; \
         CREATE PROCEDURE gives(IN i INT, OUT o INT) BEGIN SET o = i + 1; END; \
         {ROWS}"
    )
}

/// Variables that differ by connection, by time, or by what the proxy documents.
const OWN: &str = "'timestamp','insert_id','last_insert_id','identity','pseudo_thread_id','rand_seed1',\
                   'rand_seed2','last_gtid','gtid_seq_no','error_count','warning_count','in_transaction',\
                   'session_track_state_change','proxy_user','external_user','statement_id','proxy_protocol',\
                   'host_cache_size','pseudo_slave_mode','gtid_owned','gtid_executed','gtid_purged'";

/// All settings, one row each.
fn settings(engine: Engine) -> String {
    let schema = if engine == Engine::MariaDb { "information_schema" } else { "performance_schema" };
    format!(
        "SELECT VARIABLE_NAME, VARIABLE_VALUE FROM {schema}.session_variables \
         WHERE LOWER(VARIABLE_NAME) NOT IN ({OWN}) ORDER BY VARIABLE_NAME"
    )
}

/// State that must not reach another client, one text each.
fn state(engine: Engine) -> [String; 7] {
    // The settings as a digest: hundreds of rows for each session would take most of its time.
    let (settings, last) = match engine {
        Engine::MariaDb => (
            format!(
                "SELECT MD5(GROUP_CONCAT(VARIABLE_NAME, '=', VARIABLE_VALUE ORDER BY VARIABLE_NAME)) \
                 FROM information_schema.session_variables WHERE LOWER(VARIABLE_NAME) NOT IN ({OWN})"
            ),
            "SELECT 'in transaction', @@in_transaction",
        ),
        _ => (settings(engine), "SELECT 1"),
    };
    [
        settings,
        "SELECT DATABASE(), LAST_INSERT_ID(), @a, @b, @@autocommit".to_owned(),
        // A connection that was closed may have its lock a moment longer.
        "SELECT IS_USED_LOCK('l') <=> CONNECTION_ID(), GET_LOCK('l', 1), RELEASE_LOCK('l')".to_owned(),
        "SELECT * FROM tt".to_owned(),
        "EXECUTE ps".to_owned(),
        // Fails if other tables are locked.
        "SELECT COUNT(*) >= 0 FROM w".to_owned(),
        last.to_owned(),
    ]
}

/// The settings that a client finds, for a report.
pub(crate) fn find_settings(engine: Engine, client: &mut Connection, limit: Duration) -> Vec<String> {
    client.send("", &[Command::Query(settings(engine))], &Vec::new(), 0);
    let packets = answer(client, Instant::now() + limit).unwrap_or_default();
    packets.iter().map(|packet| packet.payload.escape_ascii().to_string()).collect()
}

/// The state that a client finds; `None` if it is not answered in time.
pub(crate) fn find(engine: Engine, client: &mut Connection, limit: Duration) -> Option<Vec<String>> {
    let until = Instant::now() + limit;
    let mut found = Vec::new();
    for sql in state(engine) {
        client.send("", &[Command::Query(sql)], &Vec::new(), 0);
        found.extend(answer(client, until)?.iter().map(Packet::text));
    }
    Some(found)
}

/// The answer to a text with one result, for a client without EOF packets.
pub(crate) fn answer(client: &mut Connection, until: Instant) -> Option<Vec<Packet>> {
    let mut packets = vec![client.next(until)?];
    let is_result = !matches!(packets[0].payload.first(), None | Some(0 | 0xff));
    if !is_result {
        return Some(packets);
    }
    loop {
        let packet = client.next(until)?;
        let ends = matches!(packet.payload.first(), Some(0xff | 0xfe));
        packets.push(packet);
        if ends {
            return Some(packets);
        }
    }
}
