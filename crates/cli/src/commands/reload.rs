//! `ropewalk reload`: have a daemon read its config again, and say what changed.

use std::fmt::Write as _;

use anyhow::Context as _;
use ropewalk_control::api::ReloadReport;

use super::ask;
use crate::args::Reload;
use crate::exit::{Failure, print};

/// Asks the daemon and prints what it says.
pub(crate) fn run(reload: &Reload) -> Result<(), Failure> {
    let report = ask::reload(reload.daemon.socket.as_deref())?;
    if reload.json {
        let json = serde_json::to_string_pretty(&report).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    print(&said(&report))
}

fn said(report: &ReloadReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    if report.changes.is_empty() {
        let _ = writeln!(text, "{} was read again: nothing is changed.", report.file);
        return text;
    }
    let _ = writeln!(text, "{} was read again.", report.file);
    for change in report.changes.iter().filter(|change| change.applied) {
        let _ = writeln!(text, "  {}: {} -> {}", change.key, change.before, change.after);
    }
    if report.waiting().next().is_some() {
        let _ = writeln!(text, "Not in force until the daemon is restarted:");
    }
    for change in report.waiting() {
        let _ = writeln!(
            text,
            "  {}: stays {} ({} in the file)",
            change.key, change.before, change.after
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_and_what_waits_are_told_apart() {
        let mut report = ReloadReport {
            file: "/etc/ropewalk/client/client.toml".to_owned(),
            ..Default::default()
        };
        assert_eq!(
            said(&report),
            "/etc/ropewalk/client/client.toml was read again: nothing is changed.\n"
        );
        report.compare("tun.name", ["a", "b"].map(str::to_owned), false);
        report.compare("keepalive", ["15s", "20s"].map(str::to_owned), true);
        let expected = "\
/etc/ropewalk/client/client.toml was read again.
  keepalive: 15s -> 20s
Not in force until the daemon is restarted:
  tun.name: stays a (b in the file)
";
        assert_eq!(said(&report), expected);
    }
}
