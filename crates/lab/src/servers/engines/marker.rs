//! The table that the search for unencrypted data writes its marker to.

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
