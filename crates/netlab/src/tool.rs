//! Calls of system tools (`ip`, `nft`, `conntrack`): run, feed, read, and say clearly what failed.
//!
//! A tool acts on the network namespace of the calling thread; [`crate::namespace::Namespace`]
//! provides a thread inside one.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::error::LabError;

/// Runs `program` with `arguments` and returns its standard output.
///
/// # Errors
/// [`LabError::Tool`] with the tool's standard error when it cannot be started or fails.
pub fn run(program: &str, arguments: &[&str]) -> Result<String, LabError> {
    feed(program, arguments, "")
}

/// Like [`run`], with `input` on the tool's standard input.
///
/// # Errors
/// As [`run`].
pub fn feed(program: &str, arguments: &[&str], input: &str) -> Result<String, LabError> {
    let failed = |reason: String| LabError::Tool {
        command: format!("{program} {}", arguments.join(" ")),
        reason,
    };
    let file = find(program);
    let mut child = Command::new(file.as_deref().unwrap_or(program.as_ref()))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A tool that ends before it read everything says why on its standard error.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let reason = match stderr.trim() {
        "" => output.status.to_string(),
        text if input.is_empty() => text.to_owned(),
        text => format!("{text}\nits input was:\n{input}"),
    };
    Err(failed(reason))
}

/// Where `program` stands on the search path (also in the folders for administrators, which a
/// user's path may lack), if anywhere.
#[must_use]
pub fn find(program: &str) -> Option<std::path::PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(
            ["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"]
                .map(std::path::PathBuf::from),
        )
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
