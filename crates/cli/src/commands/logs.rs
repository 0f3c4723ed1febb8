//! `ropewalk logs`: where a daemon's log is, and its last lines.
//!
//! A daemon writes to its standard error; where that leads, the system says: `/proc/PID/fd/2`, and the unit in which the
//! process runs. A daemon that does not run may have left its lines in the journal.

use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use ropewalk_control::api::Role;
use ropewalk_control::{CLIENT_SOCKET, PROXY_SOCKET, folder};
use serde::Serialize;

use super::ask;
use crate::args::{self, Logs};
use crate::exit::{Failure, print};

/// Bytes from the end of a file in which the last lines are looked for.
const TAIL_BYTES: u64 = 1 << 20;

/// Where a log is.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "where")]
pub(crate) enum Place {
    /// In the journal, under this unit.
    Journal { unit: String, command: String },
    /// In a file.
    File { path: PathBuf, command: String },
    /// At the terminal, or with the program that reads what the daemon writes.
    Elsewhere { to: String },
}

/// What is known of a daemon's log.
#[derive(Debug, Serialize)]
struct Found {
    role: String,
    /// While it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(flatten)]
    place: Place,
}

/// Says where the log is, and shows its end where that can be read.
pub(crate) fn run(logs: &Logs) -> Result<(), Failure> {
    let found = find(logs)?;
    if logs.json {
        let json = serde_json::to_string_pretty(&found).context("cannot write it as JSON")?;
        return print(&(json + "\n"));
    }
    match &found.place {
        Place::Journal { unit, command } => {
            print(&format!("The {}'s log is in the journal: {command}\n", found.role))?;
            print(&journal(unit, logs.lines)?)
        }
        Place::File { path, command } => {
            print(&format!("The {}'s log is a file: {command}\n", found.role))?;
            let last = tail(path, logs.lines);
            print(&last.with_context(|| format!("cannot read {}", path.display()))?)
        }
        Place::Elsewhere { to } => {
            print(&format!("The {}'s log goes to {to}; it is kept nowhere else.\n", found.role))
        }
    }
}

fn find(logs: &Logs) -> Result<Found, Failure> {
    let wanted = logs.role.map(|role| match role {
        args::RoleArgument::Client => (Role::Client, CLIENT_SOCKET),
        args::RoleArgument::Proxy => (Role::Proxy, PROXY_SOCKET),
    });
    let socket = logs.daemon.socket.as_deref().or(wanted.map(|(_, socket)| Path::new(socket)));
    match ask::status(socket) {
        Ok(report) => {
            let (role, pid) = (report.daemon.role, report.daemon.pid);
            let place = place(pid, role)
                .with_context(|| format!("cannot tell where process {pid} writes its log"))?;
            Ok(Found { role: role.to_string(), pid: Some(pid), place })
        }
        // What it wrote before it ended may be in the journal.
        Err(none) if none.is_no_daemon() && logs.daemon.socket.is_none() => {
            let roles = match wanted {
                Some((role, _)) => vec![role],
                None => vec![Role::Client, Role::Proxy],
            };
            let kept = roles.into_iter().map(|role| (role, unit_of(role)));
            let mut kept =
                kept.filter(|(_, unit)| journal(unit, 1).is_ok_and(|text| !text.is_empty()));
            match kept.next() {
                Some((role, unit)) => {
                    Ok(Found { role: role.to_string(), pid: None, place: in_journal(unit) })
                }
                None => Err(none),
            }
        }
        Err(other) => Err(other),
    }
}

/// The unit of the packages.
pub(crate) fn unit_of(role: Role) -> String {
    format!("ropewalk-{role}.service")
}

fn in_journal(unit: String) -> Place {
    let command = format!("journalctl -u {unit}");
    Place::Journal { unit, command }
}

/// Where the log of a daemon is, as far as this user may see; of one that does not run, where the last one may have left it.
pub(crate) fn place_of(pid: Option<u32>, role: Role) -> Place {
    let seen = pid.and_then(|pid| place(pid, role).ok());
    seen.unwrap_or_else(|| in_journal(unit_of(role)))
}

/// Where the standard error of a process leads.
fn place(pid: u32, role: Role) -> io::Result<Place> {
    let target = std::fs::read_link(format!("/proc/{pid}/fd/2"))?;
    let groups = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap_or_default();
    Ok(judged(&target, &groups, role))
}

/// `groups`: the control groups of the process, which name its unit.
fn judged(target: &Path, groups: &str, role: Role) -> Place {
    let text = target.display().to_string();
    let unit = unit_of(role);
    if text.starts_with("socket:") && groups.lines().any(|line| line.ends_with(&format!("/{unit}")))
    {
        return in_journal(unit);
    }
    if text.starts_with("/dev/") {
        let to = if text == "/dev/null" {
            "nowhere (/dev/null)".to_owned()
        } else {
            format!("the terminal {text}")
        };
        return Place::Elsewhere { to };
    }
    if target.is_absolute() {
        let command = format!("tail -f {text}");
        return Place::File { path: target.to_owned(), command };
    }
    Place::Elsewhere { to: format!("the program that started it ({text})") }
}

/// The last lines of a unit in the journal; empty: it has none.
fn journal(unit: &str, lines: u16) -> Result<String, Failure> {
    let mut command = Command::new("journalctl");
    command.args([
        "--no-pager",
        "--quiet",
        "--output",
        "cat",
        "--lines",
        &lines.to_string(),
        "--unit",
        unit,
    ]);
    let done = command.output().context("cannot run journalctl")?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Failure::Failed(anyhow::anyhow!("journalctl failed: {}", said.trim())));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The last lines of a file.
pub(crate) fn tail(path: &Path, lines: u16) -> io::Result<String> {
    // The daemon says where its log is, and root need not believe it.
    let (mut file, _) = folder::open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let all: Vec<_> = text.lines().collect();
    let last = &all[all.len().saturating_sub(usize::from(lines))..];
    Ok(last.iter().map(|line| format!("{line}\n")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_a_log_goes_is_read_from_the_process() {
        let unit = "0::/system.slice/ropewalk-client.service\n";
        let table = [
            ("socket:[123]", unit, "journalctl -u ropewalk-client.service"),
            ("socket:[123]", "0::/user.slice\n", "the program that started it (socket:[123])"),
            ("pipe:[5]", unit, "the program that started it (pipe:[5])"),
            ("/var/log/ropewalk.log", unit, "tail -f /var/log/ropewalk.log"),
            ("/dev/pts/3", "", "the terminal /dev/pts/3"),
            ("/dev/null", "", "nowhere (/dev/null)"),
        ];
        for (target, groups, expected) in table {
            let json = serde_json::to_string(&judged(Path::new(target), groups, Role::Client));
            let json = json.unwrap();
            assert!(json.contains(expected), "{target}: {json}");
        }
    }

    #[test]
    fn the_last_lines_of_a_file_are_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo\nthree\n").unwrap();
        assert_eq!(tail(file.path(), 2).unwrap(), "two\nthree\n");
        assert_eq!(tail(file.path(), 9).unwrap(), "one\ntwo\nthree\n");
    }
}
