//! Which code and which machine results come from.

use std::fs;
use std::hash::{DefaultHasher, Hasher};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::results::Machine;

/// Where the results of experiments are kept; changes there change no code.
const RESULTS: &str = ":!benches/results";

/// The state of the sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sources {
    /// The commit; `unknown` without git.
    pub commit: String,
    /// Its date; year, month, day.
    pub date: String,
    /// Whether something differs from it.
    pub dirty: bool,
}

impl Sources {
    /// Of the repository in `folder`.
    #[must_use]
    pub fn of(folder: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        Self {
            commit: git(folder, &["rev-parse", "HEAD"]).unwrap_or_else(unknown),
            date: git(folder, &["log", "-1", "--format=%cs"]).unwrap_or_else(unknown),
            dirty: git(folder, &["status", "--porcelain", "--", ".", RESULTS])
                .is_none_or(|changes| !changes.is_empty()),
        }
    }
}

fn git(folder: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(folder).args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// A hash of the contents of files, to tell one build from another.
///
/// # Errors
/// When one cannot be read.
pub fn hash(files: &[&Path]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        let bytes = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        hasher.write_usize(bytes.len());
        hasher.write(&bytes);
    }
    Ok(format!("{:016x}", hasher.finish()))
}

/// This machine.
#[must_use]
pub fn machine() -> Machine {
    let value = |file: &str, key: &str, separator: char| {
        let text = fs::read_to_string(file).unwrap_or_default();
        let line = text.lines().find_map(|line| {
            let (found, value) = line.split_once(separator)?;
            (found.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
        });
        line.unwrap_or_else(|| "unknown".to_owned())
    };
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    Machine {
        cpu: value("/proc/cpuinfo", "model name", ':'),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: kernel.trim().to_owned(),
        os: value("/etc/os-release", "PRETTY_NAME", '='),
    }
}

/// Today (UTC); year, month, day.
///
/// # Errors
/// When `date` cannot be run.
pub fn today() -> Result<String> {
    let output =
        Command::new("date").args(["-u", "+%Y-%m-%d"]).output().context("running `date`")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_tells_files_apart_and_a_boundary_between_them() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let (a, ab, b, empty) = (file("1", "a"), file("2", "ab"), file("3", "b"), file("4", ""));
        let of = |files: &[&Path]| hash(files).unwrap();
        assert_eq!(of(&[&a, &b]), of(&[&a, &b]));
        assert_ne!(of(&[&a, &b]), of(&[&ab, &empty]));
        assert!(hash(&[Path::new("/nowhere")]).is_err());
    }

    #[test]
    fn without_a_repository_the_commit_is_unknown() {
        let folder = tempfile::tempdir().unwrap();
        let sources = Sources::of(folder.path());
        assert_eq!((sources.commit.as_str(), sources.dirty), ("unknown", true));
    }
}
