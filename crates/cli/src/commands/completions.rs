//! `ropewalk completions`: what a shell needs to complete command lines.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Arguments;
use crate::exit::{Failure, print};

/// Prints the script for `shell`.
pub(crate) fn run(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "ropewalk", &mut script);
    print(&String::from_utf8_lossy(&script))
}
