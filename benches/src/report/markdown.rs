//! Tables in Markdown.

use std::fmt;

/// A table, written by its `Display`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Table {
    columns: usize,
    lines: String,
}

impl Table {
    /// With these headings and no rows.
    pub fn new<H: AsRef<str>>(headings: &[H]) -> Self {
        let mut table = Self { columns: headings.len(), lines: String::new() };
        table.row(headings);
        table.lines.push_str(&"| --- ".repeat(table.columns));
        table.lines.push_str("|\n");
        table
    }

    /// Adds a row; cells that are absent are empty.
    pub fn row<C: AsRef<str>>(&mut self, cells: &[C]) {
        for column in 0..self.columns {
            let cell = cells.get(column).map(AsRef::as_ref).unwrap_or_default();
            // A bar would end the cell, a line break the table.
            let cell = cell.replace('|', "\\|").replace('\n', " ");
            self.lines.push_str("| ");
            if !cell.is_empty() {
                self.lines.push_str(&cell);
                self.lines.push(' ');
            }
        }
        self.lines.push_str("|\n");
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.lines)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_heading() {
        let mut table = Table::new(&["a", "b"]);
        table.row(&["1|2"]);
        table.row(&["3", "4\n5", "6"]);
        assert_eq!(table.to_string(), "| a | b |\n| --- | --- |\n| 1\\|2 | |\n| 3 | 4 5 |\n");
    }
}
