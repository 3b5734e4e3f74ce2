//! A table of the console: PgBouncer's column names and types, and its output as text and as JSON.

use std::fmt::Write as _;

use serde_json::{Map, Value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ColumnType {
    Text,
    Int4,
    Int8,
    Numeric,
    Bytes,
}

impl ColumnType {
    /// By PgBouncer's letter.
    fn of(letter: u8) -> Self {
        match letter {
            b'i' => Self::Int4,
            b'q' => Self::Int8,
            b'N' => Self::Numeric,
            b'b' => Self::Bytes,
            // `s`, and `T` for times, which are text.
            _ => Self::Text,
        }
    }

    /// The OID of the type, and its length in bytes; negative if it varies.
    pub(super) fn oid(self) -> (u32, i16) {
        match self {
            Self::Text => (25, -1),
            Self::Int4 => (23, 4),
            Self::Int8 => (20, 8),
            Self::Numeric => (1700, -1),
            Self::Bytes => (17, -1),
        }
    }

    fn is_number(self) -> bool {
        matches!(self, Self::Int4 | Self::Int8 | Self::Numeric)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Cell {
    Null,
    Text(String),
    Number(u64),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Cell {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl From<usize> for Cell {
    fn from(number: usize) -> Self {
        Self::Number(number as u64)
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Number(u64::from(number))
    }
}

impl From<bool> for Cell {
    fn from(is_true: bool) -> Self {
        Self::Number(u64::from(is_true))
    }
}

impl<T: Into<Self>> From<Option<T>> for Cell {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl Cell {
    pub(super) fn text(&self, column: ColumnType) -> Option<String> {
        match self {
            Self::Null => None,
            Self::Text(text) => Some(text.clone()),
            // Drivers refuse what does not fit into the type.
            Self::Number(number) if column == ColumnType::Int4 => {
                Some((*number).min(i32::MAX as u64).to_string())
            }
            Self::Number(number) => Some(number.to_string()),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ConsoleTable {
    pub(super) columns: Vec<(&'static str, ColumnType)>,
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A row of a table, from values of several types.
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::console::table::Cell::from($value)),*] };
}
pub(super) use row;

impl ConsoleTable {
    /// The columns by PgBouncer's letters of their types and by their names, which spaces separate.
    pub(super) fn new(types: &str, names: &'static str) -> Self {
        let names = names.split_whitespace();
        let columns: Vec<_> = names.zip(types.bytes().map(ColumnType::of)).collect();
        debug_assert_eq!(columns.len(), types.len());
        Self { columns, rows: Vec::new() }
    }

    pub(super) fn push(&mut self, row: Vec<Cell>) {
        debug_assert_eq!(row.len(), self.columns.len(), "{:?}", self.columns);
        self.rows.push(row);
    }

    /// As psql shows it.
    pub(super) fn to_text(&self) -> String {
        // A line end in a name must not start another row.
        let shown = |row: &Vec<Cell>| -> Vec<String> {
            let cells = row.iter().zip(&self.columns);
            cells
                .map(|(cell, (_, kind))| cell.text(*kind).unwrap_or_default().escape_debug().to_string())
                .collect()
        };
        let rows: Vec<Vec<String>> = self.rows.iter().map(shown).collect();
        let width = |at: usize| {
            let cells = rows.iter().map(|row| row[at].chars().count());
            cells.chain([self.columns[at].0.len()]).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        let mut text = String::new();
        let names: Vec<String> =
            self.columns.iter().zip(&widths).map(|((name, _), width)| format!(" {name:^width$} ")).collect();
        let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{}\n{}", names.join("|").trim_end(), rule.join("+"));
        for row in &rows {
            let cells = row.iter().zip(&widths).zip(&self.columns);
            let cells: Vec<String> =
                cells
                    .map(|((cell, width), (_, kind))| {
                        if kind.is_number() {
                            format!(" {cell:>width$} ")
                        } else {
                            format!(" {cell:<width$} ")
                        }
                    })
                    .collect();
            let _ = writeln!(text, "{}", cells.join("|").trim_end());
        }
        let _ = writeln!(text, "({} row{})", rows.len(), if rows.len() == 1 { "" } else { "s" });
        text
    }

    /// An array of objects.
    pub(super) fn to_json(&self) -> Value {
        let value = |cell: &Cell| match cell {
            Cell::Null => Value::Null,
            Cell::Text(text) => Value::from(text.as_str()),
            Cell::Number(number) => Value::from(*number),
        };
        let object = |row: &Vec<Cell>| {
            let cells = self.columns.iter().zip(row);
            Value::Object(
                cells.map(|((name, _), cell)| ((*name).to_owned(), value(cell))).collect::<Map<_, _>>(),
            )
        };
        self.rows.iter().map(object).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> ConsoleTable {
        let mut table = ConsoleTable::new("siNs", "name count time note");
        table.push(row!["a\nb", 12_usize, 7_u64, "x"]);
        table.push(row!["shop", u64::MAX, 0_u64, Option::<&str>::None]);
        table
    }

    #[test]
    fn a_table_is_shown_as_psql_shows_it() {
        let expected = " name |   count    | time | note\n------+------------+------+------\n a\\nb |         12 |    7 | x\n \
                        shop | 2147483647 |    0 |\n(2 rows)\n";
        assert_eq!(example().to_text(), expected);
        assert_eq!(ConsoleTable::new("s", "name").to_text(), " name\n------\n(0 rows)\n");
    }

    #[test]
    fn a_table_is_an_array_of_objects_in_json() {
        let expected = r#"{"count":12,"name":"a\nb","note":"x","time":7}"#;
        assert_eq!(example().to_json()[0].to_string(), expected);
        assert!(example().to_json()[1]["note"].is_null());
    }
}
