//! `ropewalk reference`: the reference pages of the documentation, made from what `--help` says and from the sample configs.

mod commands;
pub(crate) mod settings;

use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::exit::Failure;

/// The first lines of a page.
fn head(title: &str) -> String {
    format!(
        "# {title}\n\n\
         Written by `ropewalk reference docs/operations`; do not edit. A test fails when this page is not what the program \
         writes.\n"
    )
}

/// Text for a cell of a table: on one line, with no bar that would end the cell.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Writes `commands.md` and `settings.md` into `folder`.
pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    for (name, page) in [("commands.md", commands::page()), ("settings.md", settings::page()?)] {
        let path = folder.join(name);
        fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
