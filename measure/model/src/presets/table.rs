//! Published figures as comma-separated values with a header. They are part of the program, so a parse error is a bug.

/// Rows under named columns.
pub(crate) struct Table {
    columns: Vec<&'static str>,
    rows: Vec<Vec<&'static str>>,
}

#[derive(Clone, Copy)]
pub(crate) struct FigureRow<'a> {
    table: &'a Table,
    values: &'a [&'static str],
}

impl Table {
    pub(crate) fn parse(text: &'static str) -> Self {
        let mut lines = text.lines().map(|line| line.split(',').map(str::trim).collect::<Vec<_>>());
        let columns = lines.next().unwrap_or_default();
        Self { columns, rows: lines.collect() }
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = FigureRow<'_>> {
        self.rows.iter().map(|values| FigureRow { table: self, values })
    }
}

impl FigureRow<'_> {
    /// The value in `column`, or an empty string.
    pub(crate) fn text(self, column: &str) -> &'static str {
        let index = self.table.columns.iter().position(|name| *name == column);
        index.and_then(|index| self.values.get(index)).copied().unwrap_or_default()
    }

    /// The value as a number.
    pub(crate) fn number(self, column: &str) -> Option<f64> {
        self.text(column).parse().ok()
    }

    /// `NAME_mean` and `NAME_sd` as printed: `77.04 ± 6.14 connects/s`.
    pub(crate) fn printed(self, name: &str, unit: &str) -> String {
        format!("{} ± {} {unit}", self.text(&format!("{name}_mean")), self.text(&format!("{name}_sd")))
    }

    /// `NAME_mean` and `NAME_sd`.
    pub(crate) fn mean_and_sd(self, name: &str) -> Option<(f64, Option<f64>)> {
        Some((self.number(&format!("{name}_mean"))?, self.number(&format!("{name}_sd"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_their_columns() {
        let table = Table::parse("key,rate_mean,rate_sd\n1024,77.04,6.14\n2048,5,\n");
        let rows: Vec<_> = table.rows().collect();
        assert_eq!((rows[0].text("key"), rows[0].mean_and_sd("rate")), ("1024", Some((77.04, Some(6.14)))));
        assert_eq!(rows[1].mean_and_sd("rate"), Some((5.0, None)));
        assert_eq!((rows[0].text("none"), rows[0].number("none")), ("", None));
    }
}
