//! What is printed, line by line, in the columns of the terminal.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use super::clean;

/// The lines so far.
pub(super) struct Page {
    pub(super) text: String,
    pub(super) columns: u16,
}

impl Page {
    /// Nothing yet.
    pub(super) fn new(columns: u16) -> Self {
        Self { text: String::new(), columns }
    }

    /// A line, broken between words where it is too long; what follows is indented two more.
    pub(super) fn line(&mut self, indent: usize, text: &str) {
        let text = clean(text);
        let mut column = indent;
        self.text.push_str(&" ".repeat(indent));
        let mut first = true;
        for word in text.split_whitespace() {
            let width = word.chars().count();
            if !first && column + 1 + width > usize::from(self.columns) {
                self.text.push('\n');
                self.text.push_str(&" ".repeat(indent + 2));
                column = indent + 2;
            } else if !first {
                self.text.push(' ');
                column += 1;
            }
            self.text.push_str(word);
            column += width;
            first = false;
        }
        self.text.push('\n');
    }

    /// A name and what is to be said of it, which is broken between words as a line is.
    pub(super) fn fact(&mut self, name: &str, value: &str) {
        // The padding is kept apart from the words that are wrapped.
        let mut wrapped = Self::new(self.columns);
        wrapped.line(13, value);
        let value = wrapped.text.trim_start();
        self.text.push_str(&format!("  {name:<10} {value}"));
    }

    /// A table without lines; the columns from `numbers` on are aligned to the right.
    pub(super) fn new_table(&self, header: &[&str], numbers: usize) -> Table {
        let mut table = Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(self.columns)
            .set_header(header);
        for column in table.column_iter_mut().skip(numbers) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }

    /// The lines of a table.
    pub(super) fn table(&mut self, table: &Table) {
        for line in table.lines() {
            self.text.push_str(line.trim_end());
            self.text.push('\n');
        }
    }

    /// What was dropped, by reasons; nothing where nothing was.
    pub(super) fn drops(&mut self, title: &str, drops: &BTreeMap<String, u64>) {
        let counted: Vec<String> = drops
            .iter()
            .filter(|&(_, count)| *count > 0)
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        if !counted.is_empty() {
            self.line(0, &format!("{title}: {}", counted.join(", ")));
        }
    }

    /// An empty line.
    pub(super) fn gap(&mut self) {
        self.text.push('\n');
    }
}
