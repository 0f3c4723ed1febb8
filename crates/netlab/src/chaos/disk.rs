//! A small disk of its own for a daemon's state, that can be full or read-only.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::LabError;
use crate::tool;

/// Room for what the daemons keep, and filled in no time. The history takes 2.8 MB of it at the start.
const SIZE: &str = "size=4m,mode=700";
/// What fills it.
const FILLER: &str = "filler";

/// A daemon writes its files within milliseconds.
const PATIENCE: Duration = Duration::from_secs(2);
const POLL: Duration = Duration::from_millis(50);

/// A mounted file system. Dropped, it is gone.
#[derive(Debug)]
pub(super) struct Disk(PathBuf);

impl Disk {
    /// Mounts it on a new folder.
    pub(super) fn mount(at: PathBuf) -> Result<Self, LabError> {
        fs::create_dir(&at).map_err(LabError::io(format!("making {}", at.display())))?;
        tool::run("mount", &["-t", "tmpfs", "-o", SIZE, "tmpfs", &at.display().to_string()])?;
        Ok(Self(at))
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes until nothing fits.
    pub(super) fn fill(&self) -> Result<(), LabError> {
        let filled = || -> io::Result<()> {
            let mut filler = File::create(self.0.join(FILLER))?;
            let chunk = [0x51; 4096];
            loop {
                match filler.write_all(&chunk) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        filled().map_err(LabError::io(format!("filling {}", self.0.display())))
    }

    /// Takes the filler away.
    pub(super) fn empty(&self) -> Result<(), LabError> {
        match fs::remove_file(self.0.join(FILLER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::io(format!("emptying {}", self.0.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Whether it can be written.
    pub(super) fn set_writable(&self, writable: bool) -> Result<(), LabError> {
        let how = if writable { "remount,rw" } else { "remount,ro" };
        let remount = || tool::run("mount", &["-o", how, &self.0.display().to_string()]).map(drop);
        let begun = Instant::now();
        let mut done = remount();
        // The kernel refuses while a file is being written or replaced.
        while done.is_err() && begun.elapsed() < PATIENCE {
            thread::sleep(POLL);
            done = remount();
        }
        done
    }

    /// The names in it.
    pub(super) fn names(&self) -> Vec<String> {
        let listed = fs::read_dir(&self.0).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        crate::scratch::unmount(&self.0);
    }
}
