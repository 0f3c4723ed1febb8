//! The file in which a proxy of a fleet keeps the registry as it last knew it, for a start while etcd is away.

use std::io;
use std::path::PathBuf;

use ropewalk_control::folder;
use ropewalk_daemon::file;
use ropewalk_daemon::writer::Writer;
use ropewalk_fleet::last_known::{Content, KeptFile};
use tokio::sync::oneshot;

/// Bytes of the longest file that is read: a million clients with the longest names take about 450 MB.
const MAX_FILE_BYTES: u64 = 512 << 20;

/// The bits of a mode by which others than its owner may write: they could let clients in.
const OTHERS_WRITE: u32 = 0o022;

/// The file, with the thread that writes it. Dropped, it waits until what was begun is on disk.
#[derive(Debug)]
pub struct FleetFile {
    path: PathBuf,
    writer: Writer,
}

impl FleetFile {
    /// The file at this place, of the only proxy that writes it.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn open(path: PathBuf) -> io::Result<Self> {
        // What cannot be tidied up harms nobody.
        let _ = file::sweep(&path);
        Ok(Self { path, writer: Writer::start()? })
    }
}

impl KeptFile for FleetFile {
    fn read(&self) -> io::Result<Vec<u8>> {
        let mut content = folder::read(&self.path, MAX_FILE_BYTES)?;
        if content.is_others || content.mode & OTHERS_WRITE != 0 {
            let path = self.path.display();
            return Err(io::Error::other(format!(
                "others than its owner can write {path} (chmod 600 it, if what it says is yours)"
            )));
        }
        Ok(std::mem::take(&mut *content.bytes))
    }

    fn replace(&self, content: Content) -> oneshot::Receiver<io::Result<()>> {
        self.writer.replace_with(&self.path, content)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn kept(file: &FleetFile, content: &'static [u8]) {
        let written = file.replace(Box::new(move |out| out.write_all(content)));
        written.blocking_recv().unwrap().unwrap();
    }

    #[test]
    fn what_is_kept_is_its_owners_and_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/fleet.json");
        let file = FleetFile::open(path.clone()).unwrap();
        assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::NotFound);
        kept(&file, b"one");
        kept(&file, b"two");
        assert_eq!(file.read().unwrap(), b"two");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_that_others_can_write_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("fleet.json");
        let file = FleetFile::open(path.clone()).unwrap();
        kept(&file, b"one");
        for (mode, is_read) in [(0o600, true), (0o644, true), (0o620, false), (0o602, false)] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(file.read().is_ok(), is_read, "{mode:o}");
        }
        let told = file.read().unwrap_err().to_string();
        assert!(told.contains("others than its owner can write"), "{told}");
    }

    #[test]
    fn what_a_kill_left_is_swept_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let left = folder.path().join(".fleet.json.new-Ab12");
        std::fs::write(&left, "half").unwrap();
        FleetFile::open(folder.path().join("fleet.json")).unwrap();
        assert!(!left.exists());
    }
}
