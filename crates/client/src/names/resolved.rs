//! systemd-resolved: the TUN as the way to all names.
//!
//! `resolvectl` is asked and not the bus behind it: it is part of the same package, checks what it sends, and is what an
//! operator would type. All settings belong to the interface and vanish with it.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::net::IpAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

/// An answer takes milliseconds; who waits longer waits for a bus that is stuck.
const PATIENCE: Duration = Duration::from_secs(5);

/// More than any message that helps.
const MAX_SAID: usize = 300;

/// What `resolvectl`, and the service behind it, say of an interface that is not there.
const GONE: [&str; 3] = ["No such device", "NoSuchLink", "not known"];

/// Why systemd-resolved could not be told.
#[derive(Debug, thiserror::Error)]
pub enum ResolvedError {
    /// The program could not be started.
    #[error(
        "cannot tell systemd-resolved the tunnel's name servers: {program}: {source}; install it (package systemd-resolved), \
         or write dns = \"none\""
    )]
    Start {
        /// What was to be run.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The program may not be started.
    #[error(
        "cannot start {program}: {source}; where an upgrade replaced it while this client ran, its sandbox knows the old one \
         only: restart the client"
    )]
    Closed {
        /// What was to be run.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It refused; its own words follow.
    #[error(
        "cannot tell systemd-resolved the tunnel's name servers: resolvectl {what}: {said} (a client that does not run as \
         root needs a rule of polkit for org.freedesktop.resolve1)"
    )]
    Refused {
        /// The arguments.
        what: String,
        /// What it wrote, shortened.
        said: String,
    },
    /// It did not end in time.
    #[error("systemd-resolved did not answer within {} s", PATIENCE.as_secs())]
    Slow,
}

/// Speaks to systemd-resolved.
#[derive(Debug)]
pub struct Resolved {
    program: OsString,
}

impl Resolved {
    /// Asks by this program.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self { program: program.into() }
    }

    /// Has all names looked up at these servers through `tun`. Asked first, so that nothing is said twice.
    ///
    /// # Errors
    /// When it cannot be asked, or refuses.
    pub async fn set(&mut self, tun: &str, servers: &[IpAddr]) -> Result<(), ResolvedError> {
        if told(&self.run(&["dns", tun]).await?) == servers.iter().copied().collect() {
            return Ok(());
        }
        let words: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let servers = words.iter().map(String::as_str);
        let dns: Vec<&str> = ["dns", tun].into_iter().chain(servers).collect();
        // The names first: without servers they change nothing yet.
        self.run(&["domain", tun, "~."]).await?;
        self.run(&["default-route", tun, "yes"]).await?;
        self.run(&dns).await?;
        Ok(())
    }

    /// Has it forget the answers that it keeps.
    ///
    /// # Errors
    /// When it cannot be asked, or refuses.
    pub async fn flush(&mut self) -> Result<(), ResolvedError> {
        self.run(&["flush-caches"]).await.map(drop)
    }

    /// Takes that back. An interface that is gone took it along.
    ///
    /// # Errors
    /// When it cannot be asked, or refuses.
    pub async fn revert(&mut self, tun: &str) -> Result<(), ResolvedError> {
        match self.run(&["revert", tun]).await {
            Ok(_) => Ok(()),
            Err(ResolvedError::Refused { said, .. })
                if GONE.iter().any(|gone| said.contains(gone)) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    async fn run(&self, arguments: &[&str]) -> Result<String, ResolvedError> {
        let mut command = Command::new(&self.program);
        // Its words are to be understood here.
        command.args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).kill_on_drop(true);
        let start = |source: std::io::Error| {
            let program = self.program.to_string_lossy().into_owned();
            match source.kind() {
                std::io::ErrorKind::PermissionDenied => ResolvedError::Closed { program, source },
                _ => ResolvedError::Start { program, source },
            }
        };
        let output = tokio::time::timeout(PATIENCE, command.output())
            .await
            .map_err(|_| ResolvedError::Slow)?
            .map_err(start)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(ResolvedError::Refused {
            what: arguments.join(" "),
            said: said.trim().chars().take(MAX_SAID).collect(),
        })
    }
}

/// The servers in an answer such as `Link 7 (ropewalk0): 9.9.9.9 2620:fe::fe`.
fn told(answer: &str) -> BTreeSet<IpAddr> {
    let words = answer.split_whitespace();
    words.filter_map(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    /// A `resolvectl` that remembers the servers and writes down what it is told.
    fn fake(folder: &Path, end: &str) -> Resolved {
        let program = folder.join("resolvectl");
        let text = format!(
            "#!/bin/sh\ncd {}\necho \"$@\" >> said\nif [ $# = 2 ] && [ $1 = dns ]; then\n\
             echo \"Link 7 ($2): $(cat servers 2>/dev/null)\"; fi\n\
             if [ $# -gt 2 ] && [ $1 = dns ]; then shift 2; echo \"$@\" > servers; fi\n\
             if [ $1 = revert ]; then rm -f servers; fi\n{end}\n",
            folder.display()
        );
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
        Resolved::new(program)
    }

    fn said(folder: &Path) -> String {
        let said = folder.join("said");
        let text = std::fs::read_to_string(&said).unwrap_or_default();
        let _ = std::fs::remove_file(said);
        text
    }

    #[tokio::test]
    async fn resolved_is_told_once_again_when_it_forgot_and_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let mut resolved = fake(folder.path(), "");
        let servers = ["9.9.9.9", "2620:fe::fe"].map(|ip| ip.parse().unwrap());
        resolved.set("rope0", &servers).await.unwrap();
        let all =
            "dns rope0\ndomain rope0 ~.\ndefault-route rope0 yes\ndns rope0 9.9.9.9 2620:fe::fe\n";
        assert_eq!(said(folder.path()), all);
        resolved.set("rope0", &servers).await.unwrap();
        assert_eq!(said(folder.path()), "dns rope0\n");
        std::fs::remove_file(folder.path().join("servers")).unwrap();
        resolved.set("rope0", &servers).await.unwrap();
        assert_eq!(said(folder.path()), all);
        resolved.set("rope0", &servers[..1]).await.unwrap();
        assert!(said(folder.path()).ends_with("dns rope0 9.9.9.9\n"));
        resolved.flush().await.unwrap();
        assert_eq!(said(folder.path()), "flush-caches\n");
        resolved.revert("rope0").await.unwrap();
        assert_eq!(said(folder.path()), "revert rope0\n");
    }

    #[tokio::test]
    async fn what_resolved_answers_to_a_refusal_is_told_and_only_an_interface_that_is_gone_is_fine()
    {
        let folder = tempfile::tempdir().unwrap();
        let mut resolved = fake(folder.path(), "echo Access denied >&2; exit 1");
        let error = resolved.set("rope0", &["9.9.9.9".parse().unwrap()]).await.unwrap_err();
        assert!(error.to_string().contains("Access denied"), "{error}");
        assert!(error.to_string().contains("polkit"), "{error}");
        let error = resolved.revert("rope0").await.unwrap_err();
        assert!(error.to_string().contains("revert rope0: Access denied"), "{error}");
        for gone in [
            "Failed to resolve interface \"rope0\": No such device",
            "Failed to revert interface configuration: Link 7 not known",
        ] {
            let mut resolved = fake(folder.path(), &format!("echo '{gone}' >&2; exit 1"));
            resolved.revert("rope0").await.unwrap();
        }
        let mut missing = Resolved::new("/nowhere/resolvectl");
        let error = missing.set("rope0", &["9.9.9.9".parse().unwrap()]).await.unwrap_err();
        assert!(error.to_string().contains("package systemd-resolved"), "{error}");
    }
}
