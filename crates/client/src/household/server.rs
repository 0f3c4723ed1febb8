//! One `dnsmasq`, from its start to its end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::lan::Lan;
use super::text::{Identity, config};
use super::{NO_DNSMASQ, find_dnsmasq, ports};

/// How long it may take to end when it is told to: it writes nothing then but what is lent.
const END_TIME: Duration = Duration::from_secs(2);

/// Bytes of what it says that are looked at, and characters of a line that are told.
const MAX_SAID: u64 = 64 << 10;
const MAX_LINE: usize = 300;

/// One that runs; dropped, it is told to end.
#[derive(Debug)]
pub(super) struct Server {
    _stop: oneshot::Sender<()>,
}

/// One has ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The interface that it served.
    pub(super) interface: String,
    /// What it said, or how it ended.
    pub(super) why: String,
}

/// The file of its config.
pub(super) fn config_file(folder: &Path, interface: &str) -> PathBuf {
    folder.join(format!("{interface}.conf"))
}

/// The file of what it lends.
pub(super) fn leases_file(folder: &Path, interface: &str) -> PathBuf {
    folder.join(format!("{interface}{LEASES}"))
}

/// How the names of these files end.
pub(super) const LEASES: &str = ".leases";

/// By this argument it is found again.
pub(super) fn argument(folder: &Path, interface: &str) -> String {
    format!("--conf-file={}", config_file(folder, interface).display())
}

impl Server {
    /// Starts one. Its end is told by `ends`, once.
    ///
    /// # Errors
    /// In words: it is not there or cannot be started, or another program serves at the interface.
    pub(super) fn start(
        folder: &Path,
        lan: &Lan,
        identity: &Identity,
        ends: mpsc::Sender<Ended>,
    ) -> Result<Self, String> {
        let program = find_dnsmasq().ok_or(NO_DNSMASQ)?;
        if let Some(taken) = ports::taken(lan) {
            return Err(taken);
        }
        let file = config_file(folder, &lan.interface);
        let text = config(lan, &leases_file(folder, &lan.interface), identity);
        std::fs::write(&file, text)
            .map_err(|error| format!("cannot write {}: {error}", file.display()))?;
        let mut command = Command::new(&program);
        command
            .arg(argument(folder, &lan.interface))
            // Its words are to be understood here.
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // A terminal's Ctrl-C is the client's.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| {
            let program = program.display();
            let help = "where an upgrade replaced it, restart the client";
            format!("cannot start {program} ({error}); {help}")
        })?;
        let said = child.stderr.take();
        let (stop, stopped) = oneshot::channel();
        let interface = lan.interface.clone();
        tokio::spawn(async move {
            let why = run(child, said, stopped).await;
            // The helper may be ending, too.
            let _ = ends.send(Ended { interface, why }).await;
        });
        Ok(Self { _stop: stop })
    }
}

/// Waits for its end, and sees to it when it is to end. Returns what it said, or how it ended.
async fn run(
    mut child: Child,
    said: Option<ChildStderr>,
    stopped: oneshot::Receiver<()>,
) -> String {
    let said = tokio::spawn(last_words(said));
    let mut ended = tokio::select! {
        ended = child.wait() => Some(ended),
        // Told to, or its value was dropped.
        _ = stopped => None,
    };
    if ended.is_none() {
        terminate(&child);
        ended = timeout(END_TIME, child.wait()).await.ok();
    }
    if ended.is_none() {
        let _ = child.start_kill();
        ended = Some(child.wait().await);
    }
    let how = match ended {
        Some(Ok(status)) => format!("dnsmasq ended ({status})"),
        Some(Err(error)) => format!("dnsmasq ended: {error}"),
        None => "dnsmasq ended".to_owned(),
    };
    match said.await {
        Ok(Some(words)) => words,
        Ok(None) | Err(_) => how,
    }
}

/// Asks it to end.
fn terminate(child: &Child) {
    let id = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Some(id) = id {
        // It has not been waited for, so the number is its own, also if it has ended.
        let _ = kill_process(id, Signal::TERM);
    }
}

/// Logs what it says; its last line, where it says why it ends.
async fn last_words(said: Option<ChildStderr>) -> Option<String> {
    let mut lines = BufReader::new(said?.take(MAX_SAID));
    let (mut last, mut line) = (None, Vec::new());
    // What it says is text, mostly; and a pipe that cannot be read has no more to say.
    while lines.read_until(b'\n', &mut line).await.is_ok_and(|bytes| bytes > 0) {
        let text = String::from_utf8_lossy(&line);
        let text: String = text.trim().chars().take(MAX_LINE).collect();
        if !text.is_empty() {
            tracing::debug!("{text}");
        }
        if is_reason(&text) {
            last = Some(text);
        }
        line.clear();
    }
    // Whoever says more than is looked at must not wait for a full pipe.
    let mut rest = lines.into_inner().into_inner();
    let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    last
}

/// Whether a line says why it ends, and not that it begins, or goes on.
fn is_reason(line: &str) -> bool {
    let words = line.trim_start_matches("dnsmasq: ");
    ["failed", "cannot", "unknown", "bad ", "process is missing", "illegal", "inconsistent"]
        .iter()
        .any(|reason| words.starts_with(reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_end_is_told_from_what_else_is_said() {
        for (line, expected) in [
            ("dnsmasq: failed to bind DHCP server socket: Address already in use", true),
            ("dnsmasq: failed to create listening socket for 10.7.0.1: in use", true),
            ("dnsmasq: unknown interface lan0", true),
            ("dnsmasq: process is missing required capability NET_ADMIN", true),
            ("dnsmasq: bad option at line 3 of /run/x.conf", true),
            ("dnsmasq: started, version 2.90 cachesize 1000", false),
            ("dnsmasq: exiting on receipt of SIGTERM", false),
            ("dnsmasq-dhcp: DHCP, IP range 192.168.77.10 -- 192.168.77.254, lease time 12h", false),
            ("", false),
        ] {
            assert_eq!(is_reason(line), expected, "{line}");
        }
    }

    #[test]
    fn one_is_found_again_by_the_file_of_its_config() {
        let folder = Path::new("/run/ropewalk/client/lan-7");
        assert_eq!(argument(folder, "lan0"), "--conf-file=/run/ropewalk/client/lan-7/lan0.conf");
    }
}
