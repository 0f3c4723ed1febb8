//! `ropewalk man`: the manual pages, made from what `--help` says.

use std::path::Path;

use anyhow::Context as _;
use clap::CommandFactory as _;

use crate::args::Arguments;
use crate::exit::Failure;

/// Writes `ropewalk.1` and a page for each subcommand into `folder`.
pub(crate) fn run(folder: &Path) -> Result<(), Failure> {
    clap_mangen::generate_to(Arguments::command(), folder)
        .with_context(|| format!("cannot write the manual pages into {}", folder.display()))?;
    Ok(())
}
