//! Generated rows as text: the values of a statement, or lines for `COPY`.

use std::fmt::Write;
use std::iter;

/// Far below the maximum packet size, and large enough that the overhead of a statement is negligible.
const BATCH_BYTES: usize = 200_000;

pub(crate) struct TableRows {
    pub(crate) table: &'static str,
    pub(crate) columns: &'static str,
    pub(crate) rows: u32,
    /// Writes the values of the row with this index, in the order of `columns`.
    pub(crate) write_row: WriteRow,
}

type WriteRow = Box<dyn FnMut(u32, &mut RowBatch)>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RowFormat {
    Insert,
    Copy,
}

/// Rows as text. Their values need no escaping.
pub(crate) struct RowBatch {
    format: RowFormat,
    text: String,
    first_value: bool,
}

impl TableRows {
    /// The rows in batches, each with the number of rows up to its end.
    pub(crate) fn batches(mut self, format: RowFormat) -> impl Iterator<Item = (String, u32)> {
        let mut done = 0;
        iter::from_fn(move || {
            if done == self.rows {
                return None;
            }
            let mut batch = RowBatch { format, text: self.opening(format), first_value: true };
            while done < self.rows && batch.text.len() < BATCH_BYTES {
                batch.begin_row();
                (self.write_row)(done, &mut batch);
                batch.end_row();
                done += 1;
            }
            Some((batch.finish(), done))
        })
    }

    fn opening(&self, format: RowFormat) -> String {
        match format {
            RowFormat::Insert => format!("INSERT INTO {} ({}) VALUES ", self.table, self.columns),
            RowFormat::Copy => String::new(),
        }
    }
}

impl RowBatch {
    pub(crate) fn number(&mut self, number: u32) {
        self.separate();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{number}");
    }

    /// Appends what `write` writes as the next value: digits, letters and dashes only.
    pub(crate) fn text(&mut self, write: impl FnOnce(&mut String)) {
        self.separate();
        match self.format {
            RowFormat::Insert => {
                self.text.push('\'');
                write(&mut self.text);
                self.text.push('\'');
            }
            RowFormat::Copy => write(&mut self.text),
        }
    }

    fn separate(&mut self) {
        if !self.first_value {
            self.text.push(match self.format {
                RowFormat::Insert => ',',
                RowFormat::Copy => '\t',
            });
        }
        self.first_value = false;
    }

    fn begin_row(&mut self) {
        self.first_value = true;
        if self.format == RowFormat::Insert {
            self.text.push('(');
        }
    }

    fn end_row(&mut self) {
        self.text.push_str(match self.format {
            RowFormat::Insert => "),",
            RowFormat::Copy => "\n",
        });
    }

    fn finish(mut self) -> String {
        if self.format == RowFormat::Insert {
            self.text.pop();
        }
        self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(rows: u32) -> TableRows {
        let write_row = Box::new(|index, batch: &mut RowBatch| {
            batch.number(index);
            batch.text(|text| text.push_str("a-b"));
        });
        TableRows { table: "t", columns: "n, word", rows, write_row }
    }

    #[test]
    fn rows_are_written_as_a_statement_or_as_lines() {
        let one = |format| counted(2).batches(format).next();
        let statement = "INSERT INTO t (n, word) VALUES (0,'a-b'),(1,'a-b')".to_owned();
        assert_eq!(one(RowFormat::Insert), Some((statement, 2)));
        assert_eq!(one(RowFormat::Copy), Some(("0\ta-b\n1\ta-b\n".to_owned(), 2)));
        assert_eq!(counted(0).batches(RowFormat::Insert).next(), None);
    }

    #[test]
    fn batches_are_bounded_and_complete() {
        let pieces: Vec<(String, u32)> = counted(60_000).batches(RowFormat::Copy).collect();
        assert!(pieces.len() > 2 && pieces.iter().all(|(text, _)| text.len() < BATCH_BYTES + 100));
        assert_eq!(pieces.iter().map(|(text, _)| text.lines().count()).sum::<usize>(), 60_000);
        assert_eq!(pieces.last().map(|(_, done)| *done), Some(60_000));
    }
}
