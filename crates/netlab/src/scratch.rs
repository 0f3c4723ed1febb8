//! Temporary folders of a run: gone with their value, and also where a signal ends the process.
//!
//! They hold private keys and logs. The handler of [`crate::namespace`] removes those that are left, once
//! nothing runs any more that could write to them. The name carries the owner's process id: what a killed
//! owner left is removed by the next process that builds a network.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::namespace::leave_to_the_signal;
use crate::tool;

/// The folders that this process has made and not removed.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// What the names of all of them begin with, before the owner's process id.
const PREFIX: &str = "ropewalk-lab-";

/// A folder that somebody still writes to is tried again for so long: killed processes end within
/// milliseconds, and a user who pressed Ctrl-C waits.
const PATIENCE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(10);

/// A temporary folder, removed when dropped.
#[derive(Debug)]
pub struct Scratch {
    folder: PathBuf,
}

impl Scratch {
    /// Makes a folder; only this user can look into it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create() -> io::Result<Self> {
        let prefix = format!("{PREFIX}{}-", std::process::id());
        // The lock is held meanwhile: a folder that the handler does not know would stay.
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix(&prefix).tempdir()?.keep();
        live.insert(folder.clone());
        Ok(Self { folder })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        leave_to_the_signal();
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        // What cannot be removed is left: there is nobody to tell.
        let _ = remove(&self.folder);
        live.remove(&self.folder);
    }
}

/// Removes what owners that no longer live have left; returns the folders.
pub(crate) fn remove_stale() -> Vec<PathBuf> {
    let folders = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let stale = folders.map(|entry| entry.path()).filter(|path| {
        let name = path.file_name().and_then(|name| name.to_str());
        let owner = name.and_then(owner_of);
        owner.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists())
    });
    // One that cannot be removed is another user's.
    stale.filter(|folder| remove(folder).is_ok()).collect()
}

/// Removes a folder with all that is mounted in it.
fn remove(folder: &Path) -> io::Result<()> {
    // `root`, `mount point`: the fourth and the fifth field (proc_pid_mountinfo(5)). Our folders need no escapes.
    let mounted = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = mounted.lines().filter_map(|line| line.split(' ').nth(4)).map(Path::new);
    points.filter(|point| point.starts_with(folder)).for_each(unmount);
    std::fs::remove_dir_all(folder)
}

/// Takes a mount away, also where a process still uses it.
pub(crate) fn unmount(at: &Path) {
    // What is not mounted any more needs no more.
    let _ = tool::run("umount", &["--lazy", &at.display().to_string()]);
}

/// The process id in a folder's name, if it is one of ours.
fn owner_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// Removes all of them. The process is to end now: no new one can be made any more.
pub(crate) fn remove_all() {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    for folder in &*live {
        while remove(folder).is_err() && folder.exists() && started.elapsed() < PATIENCE {
            thread::sleep(PAUSE);
        }
    }
    // Whoever waits for it must not make another one before the process has ended.
    std::mem::forget(live);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_removed_and_what_a_living_one_has_is_not() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let dead = child.id();
        child.wait().unwrap();
        let left = std::env::temp_dir().join(format!("{PREFIX}{dead}-left"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join("client.key"), "secret").unwrap();
        let ours = Scratch::create().unwrap();
        // Another test may have removed it meanwhile.
        remove_stale();
        assert!(!left.exists() && ours.path().exists());
    }

    #[test]
    fn only_our_names_have_an_owner() {
        for (name, owner) in [
            ("ropewalk-lab-12-Ab", Some(12)),
            ("ropewalk-lab-12", None),
            ("ropewalk-lab-x-Ab", None),
            ("other-12-Ab", None),
        ] {
            assert_eq!(owner_of(name), owner, "{name}");
        }
    }
}
