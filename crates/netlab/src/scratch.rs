//! Temporary folders of a run: gone with their value, and also where a signal ends the process.
//!
//! They hold private keys and logs. The handler of [`crate::namespace`] removes those that are left, once
//! nothing runs any more that could write to them.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::namespace::leave_to_the_signal;

/// The folders that this process has made and not removed.
static LIVE: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

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
    /// Makes a folder whose name begins with `prefix`; only this user can look into it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn create(prefix: &str) -> io::Result<Self> {
        // The lock is held meanwhile: a folder that the handler does not know would stay.
        let mut live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = tempfile::Builder::new().prefix(prefix).tempdir()?.keep();
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
        let _ = std::fs::remove_dir_all(&self.folder);
        live.remove(&self.folder);
    }
}

/// Removes all of them. The process is to end now: no new one can be made any more.
pub(crate) fn remove_all() {
    let live = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let started = Instant::now();
    for folder in &*live {
        while std::fs::remove_dir_all(folder).is_err()
            && folder.exists()
            && started.elapsed() < PATIENCE
        {
            thread::sleep(PAUSE);
        }
    }
    // Whoever waits for it must not make another one before the process has ended.
    std::mem::forget(live);
}
