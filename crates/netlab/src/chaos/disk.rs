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
pub(super) struct Disk {
    at: PathBuf,
    is_full: bool,
    is_writable: bool,
}

impl Disk {
    /// Mounts it on a new folder.
    pub(super) fn mount(at: PathBuf) -> Result<Self, LabError> {
        fs::create_dir(&at).map_err(LabError::io(format!("making {}", at.display())))?;
        tool::run("mount", &["-t", "tmpfs", "-o", SIZE, "tmpfs", &at.display().to_string()])?;
        Ok(Self { at, is_full: false, is_writable: true })
    }

    pub(super) fn path(&self) -> &Path {
        &self.at
    }

    /// Whether it is full. One that is read-only becomes so when it can be written.
    pub(super) fn set_full(&mut self, full: bool) -> Result<(), LabError> {
        self.is_full = full;
        self.settle()
    }

    fn settle(&self) -> Result<(), LabError> {
        match (self.is_writable, self.is_full) {
            (false, _) => Ok(()),
            (true, true) => self.fill(),
            (true, false) => self.empty(),
        }
    }

    /// Writes until nothing fits.
    fn fill(&self) -> Result<(), LabError> {
        let filled = || -> io::Result<()> {
            let mut filler = File::create(self.at.join(FILLER))?;
            let chunk = [0x51; 4096];
            loop {
                match filler.write_all(&chunk) {
                    Ok(()) => {}
                    Err(error) if error.kind() == io::ErrorKind::StorageFull => return Ok(()),
                    Err(error) => return Err(error),
                }
            }
        };
        filled().map_err(LabError::io(format!("filling {}", self.at.display())))
    }

    /// Takes the filler away.
    fn empty(&self) -> Result<(), LabError> {
        match fs::remove_file(self.at.join(FILLER)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(LabError::io(format!("emptying {}", self.at.display()))(error))
            }
            _ => Ok(()),
        }
    }

    /// Whether it can be written.
    pub(super) fn set_writable(&mut self, writable: bool) -> Result<(), LabError> {
        let how = if writable { "remount,rw" } else { "remount,ro" };
        let remount = || tool::run("mount", &["-o", how, &self.at.display().to_string()]).map(drop);
        let begun = Instant::now();
        let mut done = remount();
        // The kernel refuses while a file is being written or replaced.
        while done.is_err() && begun.elapsed() < PATIENCE {
            thread::sleep(POLL);
            done = remount();
        }
        done?;
        self.is_writable = writable;
        self.settle()
    }

    /// The names in it.
    pub(super) fn names(&self) -> Vec<String> {
        let listed = fs::read_dir(&self.at).into_iter().flatten().flatten();
        let mut names: Vec<_> =
            listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        crate::scratch::unmount(&self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_that_is_full_and_read_only_is_whole_again_in_whichever_order_that_begins_and_ends() {
        let folder = tempfile::tempdir().unwrap();
        // Only root may mount.
        let Ok(mut disk) = Disk::mount(folder.path().join("disk")) else { return };
        let write = |disk: &Disk| fs::write(disk.path().join("state"), [0; 8192]);
        for (begins_full, ends_full) in [(true, true), (true, false), (false, true), (false, false)]
        {
            let set = |disk: &mut Disk, full_first: bool, on: bool| {
                for full in [full_first, !full_first] {
                    if full { disk.set_full(on) } else { disk.set_writable(!on) }.unwrap();
                    assert_eq!(write(disk).is_err(), on || full == full_first);
                }
            };
            set(&mut disk, begins_full, true);
            set(&mut disk, ends_full, false);
            assert_eq!(disk.names(), ["state"]);
            fs::remove_file(disk.path().join("state")).unwrap();
        }
    }
}
