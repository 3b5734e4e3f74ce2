//! Tables in plain text.

/// Aligns the columns of a table. Lines have no trailing spaces.
pub(crate) fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> =
            row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_as_wide_as_its_widest_cell() {
        let rows = [["engine", "v"], ["MariaDB", "10.11"], ["ü", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(columns(&rows), "engine   v\nMariaDB  10.11\nü\n");
    }
}
