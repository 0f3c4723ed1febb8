//! The file that remembers which settings of the kernel this proxy switched, beside the firewall table.
//!
//! Where a proxy was killed and somebody flushed the firewall before its next start, that one would take forwarding for
//! somebody else's and leave it on for good. The file says otherwise, but only in the boot that it is of, and in a network
//! namespace of the same number, whose settings they are. What cannot be written is logged once: the table still remembers.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ropewalk_control::folder;
use ropewalk_daemon::file;
use ropewalk_link_io::forwarding::Forwarding;
use serde::{Deserialize, Serialize};

/// Its name in the state folder.
const NAME: &str = "switched.json";

/// The version of the file.
const VERSION: u32 = 1;

/// Thousands of names of interfaces.
const MAX_BYTES: u64 = 1 << 16;

/// The bits of a mode by which others than its owner may write or read.
const OF_OTHERS: u32 = 0o077;

/// Whose settings they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Here {
    boot: String,
    /// The number of the network namespace.
    namespace: u64,
}

#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    here: Here,
    families: BTreeSet<String>,
    accept_ra: BTreeSet<String>,
}

/// The file, and what stands in it.
#[derive(Debug)]
pub struct SwitchedFile {
    path: PathBuf,
    /// `None` where that cannot be told: nothing is kept, or believed.
    here: Option<Here>,
    /// What it says; `None` where it is not believed.
    kept: Option<Forwarding>,
    /// Whether the last writing failed.
    failed: bool,
}

impl SwitchedFile {
    /// The file in this folder; it is not read yet. To be called in front of the sandbox, which closes what tells one boot from
    /// another.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self { path: state_dir.join(NAME), here: here().ok(), kept: None, failed: false }
    }

    /// What an earlier proxy switched here. To be called by the only one who writes it.
    pub fn read(&mut self) -> Forwarding {
        // What cannot be tidied up harms nobody.
        let _ = file::sweep(&self.path);
        self.kept = match read(&self.path, self.here.as_ref()) {
            Ok(kept) => kept,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(Forwarding::default()),
            Err(error) => {
                tracing::warn!("{} is not used: {error}", self.path.display());
                None
            }
        };
        self.kept.clone().unwrap_or_default()
    }

    /// Has the file say this; where nothing is switched, it is removed.
    pub async fn keep(&mut self, switched: &Forwarding) {
        if self.kept.as_ref() == Some(switched) {
            return;
        }
        let nothing = *switched == Forwarding::default();
        let record = match self.here.clone() {
            _ if nothing => None,
            Some(here) => {
                let [families, accept_ra] = switched.names().map(Clone::clone);
                Some(Record { version: VERSION, here, families, accept_ra })
            }
            None => return,
        };
        let path = self.path.clone();
        // Beside the packets, which wait for no disk.
        let written = tokio::task::spawn_blocking(move || match record {
            Some(record) => write(&path, &record),
            None => remove(&path),
        });
        match written.await.unwrap_or_else(|error| Err(error.into())) {
            Ok(()) => (self.kept, self.failed) = (Some(switched.clone()), false),
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(
                        "cannot keep in {} which settings were switched: {error}; only the firewall table remembers them",
                        self.path.display()
                    );
                }
            }
        }
    }
}

fn here() -> io::Result<Here> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned();
    let namespace = std::fs::metadata("/proc/thread-self/ns/net")?.ino();
    Ok(Here { boot, namespace })
}

fn read(path: &Path, here: Option<&Here>) -> io::Result<Option<Forwarding>> {
    // For root, whose `--purge` reads it, the proxy's user is somebody else: what it says is bounded by its names.
    let content = folder::read(path, MAX_BYTES)?;
    if content.mode & OF_OTHERS != 0 {
        return Err(io::Error::other("others than its owner can read or write it"));
    }
    let record: Record = serde_json::from_slice(&content.bytes)?;
    if record.version != VERSION {
        return Err(io::Error::other(format!("version {} is not {VERSION}", record.version)));
    }
    let is_of_here = here == Some(&record.here);
    Ok(is_of_here.then(|| Forwarding::of_names([record.families, record.accept_ra])))
}

fn write(path: &Path, record: &Record) -> io::Result<()> {
    file::replace(path, &serde_json::to_vec_pretty(record)?)
}

fn remove(path: &Path) -> io::Result<()> {
    match folder::remove(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn switched() -> Forwarding {
        let names = |name: &str| BTreeSet::from([name.to_owned()]);
        Forwarding::of_names([names("ipv4"), names("eth0")])
    }

    #[tokio::test]
    async fn what_was_switched_is_known_after_a_crash_until_nothing_is() {
        let folder = tempfile::tempdir().unwrap();
        let again = || SwitchedFile::of(folder.path()).read();
        assert_eq!(again(), Forwarding::default());
        let mut file = SwitchedFile::of(folder.path());
        file.keep(&switched()).await;
        assert_eq!(again(), switched());
        let mode = std::fs::metadata(folder.path().join(NAME)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        file.keep(&Forwarding::default()).await;
        assert_eq!(again(), Forwarding::default());
        assert!(!folder.path().join(NAME).exists());
    }

    #[tokio::test]
    async fn a_file_of_another_boot_or_namespace_or_that_others_can_write_is_not_believed() {
        let folder = tempfile::tempdir().unwrap();
        let again = || SwitchedFile::of(folder.path()).read();
        SwitchedFile::of(folder.path()).keep(&switched()).await;
        let path = folder.path().join(NAME);
        let text = std::fs::read_to_string(&path).unwrap();
        let here = here().unwrap();
        let number = here.namespace.to_string();
        for (from, to) in [
            (&*here.boot, "another"),
            (&*number, "1"),
            ("\"version\": 1", "\"version\": 2"),
            ("{", ""),
        ] {
            assert!(text.contains(from), "{from}");
            std::fs::write(&path, text.replace(from, to)).unwrap();
            assert_eq!(again(), Forwarding::default(), "{to}");
        }
        std::fs::write(&path, &text).unwrap();
        assert_eq!(again(), switched());
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o620)).unwrap();
        assert_eq!(again(), Forwarding::default());
        // It goes all the same.
        let mut file = SwitchedFile::of(folder.path());
        file.read();
        file.keep(&Forwarding::default()).await;
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_written_ends_nothing_and_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        std::fs::write(&state, "in the way").unwrap();
        let mut file = SwitchedFile::of(&state);
        file.read();
        file.keep(&switched()).await;
        std::fs::remove_file(&state).unwrap();
        file.keep(&switched()).await;
        assert_eq!(SwitchedFile::of(&state).read(), switched());
    }
}
