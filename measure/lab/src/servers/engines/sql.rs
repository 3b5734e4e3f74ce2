//! What the SQL engines have in common: the table of the search for unencrypted data, and reading all tables.

use ciphertoll_net::blocking::Client;

use crate::error::Error;
use crate::servers::control;

/// Runs `statements`, which read all pages, until a pass causes no buffer misses, or as many as the pass before.
pub(super) fn prewarm(
    client: &mut Client,
    statements: &[&str],
    buffer_misses: fn(&mut Client) -> Result<u64, Error>,
) -> Result<(), Error> {
    let mut fewest = u64::MAX;
    loop {
        let before = buffer_misses(client)?;
        for sql in statements {
            control::execute(client, "read all rows", sql)?;
        }
        let misses = buffer_misses(client)?.saturating_sub(before);
        if misses == 0 || misses >= fewest {
            return Ok(());
        }
        fewest = misses;
    }
}

pub(super) fn drop_statement(table: &str) -> String {
    format!("DROP TABLE IF EXISTS {table}")
}

/// Statements that write a table and an index with `texts`.
pub(super) fn write_statements(table: &str, texts: &[String]) -> [String; 4] {
    let values: Vec<String> =
        texts.iter().enumerate().map(|(number, text)| format!("({number}, '{text}')")).collect();
    [
        drop_statement(table),
        format!("CREATE TABLE {table} (id INT PRIMARY KEY, word VARCHAR(80) NOT NULL)"),
        format!("CREATE INDEX {table}_word ON {table} (word)"),
        format!("INSERT INTO {table} VALUES {}", values.join(", ")),
    ]
}
