//! `ropewalk bugreport`: gathers what is needed to find a fault, and writes it into one file.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::args::Bugreport;
use crate::bugreport::{make, moment, subjects, write};
use crate::exit::{Failure, plain, print};

/// Gathers, writes, and says what to do with it.
pub(crate) fn run(wanted: &Bugreport) -> Result<(), Failure> {
    let subjects = subjects(wanted)?;
    let report = make(wanted, &subjects, tell)?;
    let text = match wanted.json {
        true => report.json().context("cannot write the report as JSON")?,
        false => report.text(),
    };
    if wanted.stdout {
        return print(&text);
    }
    let kind = if wanted.json { "json" } else { "md" };
    let usual = || PathBuf::from(format!("ropewalk-bugreport-{}.{kind}", moment()));
    let file = wanted.output.clone().unwrap_or_else(usual);
    write(&file, &text)?;
    let more = match report.missing() {
        0 => String::new(),
        count if rustix::process::geteuid().is_root() => {
            format!("{count} parts could not be had; it says why.\n")
        }
        count => format!("{count} parts could not be had; with sudo there may be more of them.\n"),
    };
    print(&format!(
        "{}\n{more}Read it through before you send it: it begins with what is in it, and what was left out.\n",
        file.display()
    ))
}

/// What is done at the moment, for a person who waits.
fn tell(what: &str) {
    drop(writeln!(std::io::stderr(), "{}", plain(what)));
}
