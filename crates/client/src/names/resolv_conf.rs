//! `/etc/resolv.conf`, replaced and put back.
//!
//! | on disk | what a crash or a power cut then leaves |
//! | --- | --- |
//! | 1. the record: what stands there, and what will | the file as it was, and a record that the next start removes |
//! | 2. the file, as a whole | our file, and a record that says what to put back |
//! | 3. at the end: the file that was | the same as after 1 |
//! | 4. no record | nothing |
//!
//! Each step is on disk before the next begins. Whatever stands there that is neither ours nor what was before is
//! somebody else's edit: it becomes what is put back, and ours is written again. Where that goes to and fro, and where
//! the client is at its end, the edit stays, and the record goes.
//!
//! A file that cannot be replaced (a container's is a mount of its own; a sandbox may allow this file and not its folder)
//! is written in place. A cut may then leave a part of ours, or of what was before; both are known by the record.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, fchown, symlink};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_daemon::file;
use serde::{Deserialize, Serialize};

/// How the name of a file begins that takes the place of this one when it is finished.
const NEW: &str = ".resolv.conf.ropewalk-";

/// How our file begins.
const HEADER: &str =
    "# Written by the Ropewalk client while its tunnel is up. What stood here before";

/// Bytes of the longest file that is kept: far beyond what a resolver reads.
const MAX_BYTES: u64 = 64 * 1024;

/// Who writes the file more often than this, in this time, insists on it.
const INSISTING: (usize, Duration) = (3, Duration::from_secs(60));

/// How long a program may take between emptying the file and filling it.
const SETTLE: Duration = Duration::from_millis(50);

/// Texts of ours that are kept in the record.
const MAX_WRITTEN: usize = 4;

/// Resolvers ask no more servers than this (`resolv.conf(5)`).
const MAX_SERVERS: usize = 3;

/// Why the file could not be set or put back.
#[derive(Debug, thiserror::Error)]
pub enum ResolvConfError {
    /// Another program writes it again and again, or changed a part of ours.
    #[error(
        "{} was changed by another program while the client ran, and stays so: names are not looked up at the tunnel's \
         servers until the client starts again (dns = \"none\" ends this warning)",
        file.display()
    )]
    Foreign {
        /// The file.
        file: PathBuf,
    },
    /// It is ours, and the record is lost.
    #[error(
        "{} was written by an earlier Ropewalk client, and what stood there before is not known: put the network's own \
         name servers there",
        file.display()
    )]
    Unknown {
        /// The file.
        file: PathBuf,
    },
    /// It is a folder, a device, or too long.
    #[error("{} is no file of name servers: it is left alone", file.display())]
    Odd {
        /// The file.
        file: PathBuf,
    },
    /// The record cannot be understood.
    #[error(
        "what stood in {} before cannot be understood ({why}): put the network's own name servers there, and remove {}",
        file.display(),
        record.display()
    )]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The record.
        record: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The system refused.
    #[error("cannot {what} {}: {source}", file.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// On which file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What there was to put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// It is back.
    Restored,
    /// Somebody else wrote the file since: it stays.
    Foreign,
}

/// The hold on the file.
#[derive(Clone, Debug)]
pub struct ResolvConf {
    file: PathBuf,
    record: PathBuf,
    /// Somebody else insists on the file: it is theirs for as long as this client runs.
    foreign: bool,
    /// When what somebody else wrote was written over, of late.
    taken: Vec<Instant>,
    /// Whether what a killed client left half written was removed.
    swept: bool,
}

/// What stands, or stood, at the file's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
enum Place {
    Absent,
    Symlink {
        target: PathBuf,
    },
    File {
        /// Each byte as one character, so that any bytes survive and text stays readable.
        content: String,
        mode: u32,
        uid: u32,
        gid: u32,
    },
}

/// What is kept on disk until the file is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    before: Place,
    /// What this client wrote, or was about to, oldest first: what stands there among them, whatever failed since.
    written: Vec<String>,
    /// Whether the file could not be replaced as a whole.
    in_place: bool,
}

impl ResolvConf {
    /// A hold on `file`, with `record` for what must survive. Nothing is changed yet.
    #[must_use]
    pub const fn new(file: PathBuf, record: PathBuf) -> Self {
        Self { file, record, foreign: false, taken: Vec::new(), swept: false }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Puts these servers there; what stands so already is left alone. What somebody else wrote since is what will be put
    /// back.
    ///
    /// # Errors
    /// When it is not to be had, or somebody else insists on the file.
    pub fn set(&mut self, servers: &[IpAddr]) -> Result<(), ResolvConfError> {
        self.set_at(servers, Instant::now())
    }

    fn set_at(&mut self, servers: &[IpAddr], at: Instant) -> Result<(), ResolvConfError> {
        if self.foreign {
            return Err(ResolvConfError::Foreign { file: self.file.clone() });
        }
        let text = text(servers, &self.record);
        let record = self.read()?;
        let now = self.look_settled(record.as_ref())?;
        let record = match record {
            Some(record) if now.is(&text) && record.written.last() == Some(&text) => return Ok(()),
            Some(record) if record.is_ours(&now) || record.before.is_same(&now) => {
                record.with(&now, &text)
            }
            // A part of ours would be put back as if it were what was before.
            Some(_) if now.begins_like_ours() || !self.may_take(at) => {
                self.foreign = true;
                self.forget()?;
                return Err(ResolvConfError::Foreign { file: self.file.clone() });
            }
            // Another network, most likely: its name servers are the ones to go back to.
            Some(record) => {
                tracing::info!(
                    "{} was changed by another program: what it wrote comes back when the tunnel ends",
                    self.file.display()
                );
                Record { before: now, written: vec![text.clone()], ..record }
            }
            None if now.begins_like_ours() => {
                return Err(ResolvConfError::Unknown { file: self.file.clone() });
            }
            None => Record { before: now, written: vec![text.clone()], in_place: false },
        };
        self.save(&record)?;
        let place = Place::File { content: text, mode: 0o644, uid: 0, gid: 0 };
        self.put(&place, record)
    }

    /// Whether what somebody else wrote may be written over once more.
    fn may_take(&mut self, at: Instant) -> bool {
        self.taken.retain(|taken| at.saturating_duration_since(*taken) < INSISTING.1);
        let may = self.taken.len() < INSISTING.0;
        self.taken.extend(may.then_some(at));
        may
    }

    /// Puts back what stood there before this client, or a crashed one before it.
    ///
    /// # Errors
    /// When that is not to be had; it stays recorded.
    pub fn restore(&mut self) -> Result<Left, ResolvConfError> {
        self.sweep();
        let Some(record) = self.read()? else { return Ok(Left::Nothing) };
        let now = self.look_settled(Some(&record))?;
        let left = if record.before.is_same(&now) {
            Left::Nothing
        } else if record.is_ours(&now) {
            self.put(&record.before.clone(), record)?;
            Left::Restored
        } else {
            Left::Foreign
        };
        self.forget()?;
        Ok(left)
    }

    /// Removes what a client that was killed while it wrote has left beside the two files. What stays harms nobody.
    fn sweep(&mut self) {
        if !std::mem::replace(&mut self.swept, true) {
            let folder = self.file.parent().unwrap_or(Path::new("/"));
            let done = file::sweep(&self.record).and(file::sweep_of(folder, OsStr::new(NEW)));
            if let Err(error) = done {
                tracing::debug!("cannot tidy up beside {}: {error}", self.file.display());
            }
        }
    }

    /// What stands there. Of what is no whole text of ours, nor what was before, once more after a moment: another program may
    /// have emptied the file and not filled it yet, and that must not be taken for a cut of ours.
    fn look_settled(&self, record: Option<&Record>) -> Result<Place, ResolvConfError> {
        let now = self.look()?;
        if record.is_none_or(|record| record.is_whole(&now)) {
            return Ok(now);
        }
        thread::sleep(SETTLE);
        self.look()
    }

    fn look(&self) -> Result<Place, ResolvConfError> {
        let io = |source| self.failed("read", &self.file, source);
        let found = match std::fs::symlink_metadata(&self.file) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Place::Absent),
            Err(error) => return Err(io(error)),
        };
        if found.is_symlink() {
            return Ok(Place::Symlink { target: std::fs::read_link(&self.file).map_err(io)? });
        }
        let mut bytes = Vec::new();
        if found.is_file() {
            let file = File::open(&self.file).map_err(io)?;
            file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        }
        if !found.is_file() || bytes.len() as u64 > MAX_BYTES {
            return Err(ResolvConfError::Odd { file: self.file.clone() });
        }
        let content = bytes.into_iter().map(char::from).collect();
        let mode = found.mode() & 0o7777;
        Ok(Place::File { content, mode, uid: found.uid(), gid: found.gid() })
    }

    fn put(&self, place: &Place, record: Record) -> Result<(), ResolvConfError> {
        let io = |source| self.failed("write", &self.file, source);
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        let done = match place {
            Place::Absent => std::fs::remove_file(&self.file),
            Place::Symlink { target } => replace_by_link(&self.file, folder, target),
            Place::File { content, mode, uid, gid } => {
                let content = bytes(content);
                match replace(&self.file, folder, &content, *mode, (*uid, *gid)) {
                    Err(error) if is_fixed(&error) => {
                        if !record.in_place {
                            self.save(&Record { in_place: true, ..record })?;
                        }
                        return write_in_place(&self.file, &content).map_err(io);
                    }
                    done => done,
                }
            }
        };
        done.and_then(|()| File::open(folder)?.sync_all()).map_err(io)
    }

    fn read(&self) -> Result<Option<Record>, ResolvConfError> {
        let bytes = match std::fs::read(&self.record) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read", &self.record, error)),
        };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| ResolvConfError::Damaged {
            file: self.file.clone(),
            record: self.record.clone(),
            why: error.to_string(),
        })
    }

    fn save(&self, record: &Record) -> Result<(), ResolvConfError> {
        let text = serde_json::to_vec_pretty(record)
            .map_err(|error| self.failed("write", &self.record, error.into()))?;
        file::replace(&self.record, &text)
            .map_err(|error| self.failed("write", &self.record, error))
    }

    fn forget(&self) -> Result<(), ResolvConfError> {
        let folder = self.record.parent().unwrap_or(Path::new("/"));
        let done = match std::fs::remove_file(&self.record) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => File::open(folder).and_then(|folder| folder.sync_all()),
        };
        done.map_err(|error| self.failed("remove", &self.record, error))
    }

    fn failed(&self, what: &'static str, file: &Path, source: io::Error) -> ResolvConfError {
        ResolvConfError::Io { what, file: file.to_owned(), source }
    }
}

impl Record {
    /// The same before `text` is written over what stands there now.
    fn with(self, now: &Place, text: &str) -> Self {
        let standing = match now {
            Place::File { content, .. } if content != text && !self.before.is_same(now) => {
                Some(content)
            }
            _ => None,
        };
        let mut written = self.written;
        written.retain(|old| old != text && Some(old) != standing);
        // A power cut may bring back one that was written over, but hardly one from long ago.
        let surplus = written.len().saturating_sub(MAX_WRITTEN - 2);
        written.drain(..surplus);
        written.extend(standing.cloned());
        written.push(text.to_owned());
        Self { written, ..self }
    }

    /// Whether what stands there now is a whole text of this client's, or what was before.
    fn is_whole(&self, now: &Place) -> bool {
        self.written.iter().any(|text| now.is(text)) || self.before.is_same(now)
    }

    /// Whether this client wrote what stands there now.
    fn is_ours(&self, now: &Place) -> bool {
        let Place::File { content, .. } = now else { return false };
        let before = match &self.before {
            Place::File { content, .. } => Some(content),
            Place::Absent | Place::Symlink { .. } => None,
        };
        self.written.contains(content)
            || self.in_place
                && self.written.iter().chain(before).any(|whole| whole.starts_with(content))
    }
}

impl Place {
    fn is(&self, text: &str) -> bool {
        matches!(self, Self::File { content, .. } if content == text)
    }

    /// Whether programs read the same there.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::File { content: one, .. }, Self::File { content: other, .. }) => one == other,
            _ => self == other,
        }
    }

    fn begins_like_ours(&self) -> bool {
        matches!(self, Self::File { content, .. } if content.starts_with(HEADER))
    }
}

fn text(servers: &[IpAddr], record: &Path) -> String {
    let mut text =
        format!("{HEADER}\n# comes back when it ends; until then it is in {}\n", record.display());
    for server in servers.iter().take(MAX_SERVERS) {
        text.push_str(&format!("nameserver {server}\n"));
    }
    text
}

/// The bytes of a content; what is no byte (a record that was tampered with) becomes a question mark.
fn bytes(content: &str) -> Vec<u8> {
    content.chars().map(|character| u8::try_from(character).unwrap_or(b'?')).collect()
}

fn replace(
    file: &Path,
    folder: &Path,
    content: &[u8],
    mode: u32,
    (uid, gid): (u32, u32),
) -> io::Result<()> {
    let mut new = tempfile::Builder::new().prefix(NEW).tempfile_in(folder)?;
    new.write_all(content)?;
    let now = new.as_file().metadata()?;
    if (now.uid(), now.gid()) != (uid, gid) {
        // Everybody reads it all the same.
        let _ = fchown(new.as_file(), Some(uid), Some(gid));
    }
    new.as_file().set_permissions(Permissions::from_mode(mode))?;
    new.as_file().sync_all()?;
    new.persist(file).map(drop).map_err(|error| error.error)
}

fn replace_by_link(file: &Path, folder: &Path, target: &Path) -> io::Result<()> {
    let new = tempfile::Builder::new().prefix(NEW).make_in(folder, |path| symlink(target, path))?;
    new.persist(file).map(drop).map_err(|error| error.error)
}

/// Whether the file is one that cannot be replaced, and perhaps written.
fn is_fixed(error: &io::Error) -> bool {
    use io::ErrorKind::{CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy};
    [CrossesDevices, PermissionDenied, ReadOnlyFilesystem, ResourceBusy].contains(&error.kind())
}

fn write_in_place(file: &Path, content: &[u8]) -> io::Result<()> {
    // What a link leads to is not recorded.
    if std::fs::symlink_metadata(file)?.is_symlink() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let mut file = OpenOptions::new().write(true).truncate(true).open(file)?;
    file.write_all(content)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &[u8] = b"# by hand, \xe4\xff\nnameserver 192.168.1.1\nsearch lan\n";

    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let folder = Self(tempfile::tempdir().unwrap());
            std::fs::write(folder.file(), BEFORE).unwrap();
            folder
        }
        fn file(&self) -> PathBuf {
            self.0.path().join("resolv.conf")
        }
        fn record(&self) -> PathBuf {
            self.0.path().join("state/record.json")
        }
        /// As after a start.
        fn open(&self) -> ResolvConf {
            ResolvConf::new(self.file(), self.record())
        }
        fn read(&self) -> Vec<u8> {
            std::fs::read(self.file()).unwrap()
        }
        fn names(&self) -> Vec<String> {
            let list = std::fs::read_dir(self.0.path()).unwrap();
            list.map(|one| one.unwrap().file_name().into_string().unwrap()).collect()
        }
    }

    fn servers(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|address| address.parse().unwrap()).collect()
    }

    #[test]
    fn any_bytes_the_mode_and_the_owner_come_back() {
        let folder = Folder::new();
        std::fs::set_permissions(folder.file(), Permissions::from_mode(0o640)).unwrap();
        let before = std::fs::metadata(folder.file()).unwrap();
        let mut conf = folder.open();
        conf.set(&servers(&["9.9.9.9", "2620:fe::fe", "1.1.1.1", "8.8.8.8"])).unwrap();
        let text = String::from_utf8(folder.read()).unwrap();
        assert!(text.ends_with("nameserver 9.9.9.9\nnameserver 2620:fe::fe\nnameserver 1.1.1.1\n"));
        assert_eq!(std::fs::metadata(folder.file()).unwrap().mode() & 0o777, 0o644);
        assert_eq!(conf.restore().unwrap(), Left::Restored);
        assert_eq!(folder.read(), BEFORE);
        let after = std::fs::metadata(folder.file()).unwrap();
        assert_eq!(
            (after.mode(), after.uid(), after.gid()),
            (before.mode(), before.uid(), before.gid())
        );
        assert!(!folder.record().exists());
        assert_eq!(folder.names().len(), 2, "a temporary file stayed: {:?}", folder.names());
        assert_eq!(conf.restore().unwrap(), Left::Nothing);
    }

    #[test]
    fn a_symlink_and_no_file_at_all_come_back_too() {
        let folder = Folder::new();
        for target in [Some("../run/resolve/stub.conf"), None] {
            let _ = std::fs::remove_file(folder.file());
            if let Some(target) = target {
                symlink(target, folder.file()).unwrap();
            }
            folder.open().set(&servers(&["9.9.9.9"])).unwrap();
            assert!(String::from_utf8(folder.read()).unwrap().contains("9.9.9.9"));
            assert_eq!(folder.open().restore().unwrap(), Left::Restored);
            match target {
                Some(target) => {
                    assert_eq!(std::fs::read_link(folder.file()).unwrap(), Path::new(target));
                }
                None => assert!(!folder.file().exists()),
            }
        }
    }

    #[test]
    fn wherever_it_is_cut_the_next_start_puts_back_what_was() {
        // What stands in the record and in the file after each step, first to last.
        let folder = Folder::new();
        folder.open().set(&servers(&["9.9.9.9"])).unwrap();
        let (record, ours) = (std::fs::read(folder.record()).unwrap(), folder.read());
        folder.open().set(&servers(&["1.1.1.1"])).unwrap();
        let (second_record, second_ours) = (std::fs::read(folder.record()).unwrap(), folder.read());
        assert_ne!((&record, &ours), (&second_record, &second_ours));
        for (step, record, file) in [
            ("recorded", &record, BEFORE),
            ("replaced", &record, &ours),
            ("recorded again", &second_record, &ours),
            ("replaced again", &second_record, &second_ours),
            ("put back", &second_record, BEFORE),
        ] {
            std::fs::write(folder.record(), record).unwrap();
            std::fs::write(folder.file(), file).unwrap();
            folder.open().restore().unwrap();
            assert_eq!(folder.read(), BEFORE, "{step}");
            assert!(!folder.record().exists(), "{step}");
        }
        // And what was half written beside them.
        let half = [
            folder.0.path().join(".resolv.conf.ropewalk-x1"),
            folder.record().with_file_name(".record.json.new-x1"),
        ];
        half.iter().for_each(|file| std::fs::write(file, "nameser").unwrap());
        folder.open().restore().unwrap();
        assert!(half.iter().all(|file| !file.exists()));
    }

    #[test]
    fn a_file_written_in_place_comes_back_wherever_the_writing_was_cut() {
        let folder = Folder::new();
        folder.open().set(&servers(&["9.9.9.9"])).unwrap();
        let mut record: Record =
            serde_json::from_slice(&std::fs::read(folder.record()).unwrap()).unwrap();
        record.in_place = true;
        let ours = folder.read();
        let cuts = [&ours[..0], &ours[..1], &ours[..ours.len() - 1], &ours[..], &BEFORE[..20]];
        for cut in cuts {
            folder.open().save(&record).unwrap();
            std::fs::write(folder.file(), cut).unwrap();
            folder.open().restore().unwrap();
            assert_eq!(folder.read(), BEFORE, "{cut:?}");
        }
    }

    #[test]
    fn what_was_comes_back_however_often_writing_failed() {
        let folder = Folder::new();
        let mut conf = folder.open();
        conf.set(&servers(&["9.9.9.9"])).unwrap();
        let standing = folder.read();
        // Recorded each time, and then the disk was full.
        for list in [["1.1.1.1"], ["1.1.1.1"], ["8.8.8.8"], ["1.1.1.1"], ["8.8.4.4"], ["9.9.9.10"]]
        {
            conf.set(&servers(&list)).unwrap();
            std::fs::write(folder.file(), &standing).unwrap();
        }
        let record: Record =
            serde_json::from_slice(&std::fs::read(folder.record()).unwrap()).unwrap();
        assert!(record.written.len() <= MAX_WRITTEN, "{record:?}");
        conf.set(&servers(&["1.1.1.1"])).unwrap();
        assert_ne!(folder.read(), standing);
        assert_eq!(folder.open().restore().unwrap(), Left::Restored);
        assert_eq!(folder.read(), BEFORE);
    }

    #[test]
    fn what_somebody_else_writes_is_what_comes_back() {
        let folder = Folder::new();
        let (list, begun) = (servers(&["9.9.9.9"]), Instant::now());
        let mut conf = folder.open();
        conf.set_at(&list, begun).unwrap();
        let ours = folder.read();
        // Each with another network than the one before.
        for round in 0..10_u8 {
            let edit = format!("nameserver 10.0.{round}.1\n");
            std::fs::write(folder.file(), &edit).unwrap();
            conf.set_at(&list, begun + INSISTING.1 / 2 * u32::from(round)).unwrap();
            assert_eq!(folder.read(), ours, "{round}");
            // A crash now puts back the new one.
            let record = std::fs::read(folder.record()).unwrap();
            assert_eq!(folder.open().restore().unwrap(), Left::Restored);
            assert_eq!(folder.read(), edit.as_bytes());
            std::fs::write(folder.record(), record).unwrap();
            std::fs::write(folder.file(), &ours).unwrap();
        }
        // A lease that writes what was before is no change.
        let last = b"nameserver 10.0.9.1\n";
        for _ in 0..10 {
            std::fs::write(folder.file(), last).unwrap();
            conf.set_at(&list, begun + INSISTING.1 * 5).unwrap();
            assert_eq!(folder.read(), ours);
        }
        assert_eq!(conf.restore().unwrap(), Left::Restored);
        assert_eq!(folder.read(), last);
    }

    #[test]
    fn a_file_that_another_program_is_about_to_fill_is_not_taken_for_a_cut_of_ours() {
        let folder = Folder::new();
        let (mut conf, list) = (folder.open(), servers(&["9.9.9.9"]));
        conf.set(&list).unwrap();
        let mut record: Record =
            serde_json::from_slice(&std::fs::read(folder.record()).unwrap()).unwrap();
        record.in_place = true;
        conf.save(&record).unwrap();
        let file = folder.file();
        std::fs::write(&file, "").unwrap();
        let writing = thread::spawn(move || {
            thread::sleep(SETTLE / 5);
            std::fs::write(file, "nameserver 10.0.0.1\n").unwrap();
        });
        conf.set(&list).unwrap();
        writing.join().unwrap();
        assert_eq!(conf.restore().unwrap(), Left::Restored);
        assert_eq!(folder.read(), b"nameserver 10.0.0.1\n");
    }

    #[test]
    fn who_insists_on_the_file_or_edits_ours_keeps_it() {
        let folder = Folder::new();
        let list = servers(&["9.9.9.9"]);
        folder.open().set(&list).unwrap();
        let ours = folder.read();
        let part_of_ours = [&ours[..], b"nameserver 10.0.0.1\n"].concat();
        // How often the edit is written over before.
        for (edit, times) in [(b"nameserver 10.0.0.1\n".to_vec(), 3), (part_of_ours, 0)] {
            std::fs::write(folder.file(), BEFORE).unwrap();
            let mut conf = folder.open();
            let begun = Instant::now();
            conf.set_at(&list, begun).unwrap();
            for time in 0..times {
                std::fs::write(folder.file(), [&edit[..], &[b'#'; 9][..time]].concat()).unwrap();
                conf.set_at(&list, begun + INSISTING.1 / 10).unwrap();
                assert_eq!(folder.read(), ours);
            }
            std::fs::write(folder.file(), [&edit[..], b"# last\n"].concat()).unwrap();
            let last = folder.read();
            let error = conf.set_at(&list, begun + INSISTING.1 / 5).unwrap_err();
            assert!(error.to_string().contains("changed by another program"), "{error}");
            assert_eq!(folder.read(), last);
            // Not even after it was set aside for a while.
            assert_eq!(conf.restore().unwrap(), Left::Nothing);
            assert!(conf.set_at(&list, begun + INSISTING.1 * 9).is_err());
            assert_eq!(folder.read(), last);
            // And while the client was away.
            std::fs::write(folder.file(), BEFORE).unwrap();
            folder.open().set(&list).unwrap();
            std::fs::write(folder.file(), &edit).unwrap();
            assert_eq!(folder.open().restore().unwrap(), Left::Foreign);
            assert_eq!(folder.read(), edit);
        }
    }

    #[test]
    fn what_cannot_be_put_back_is_not_taken_away() {
        let folder = Folder::new();
        let list = servers(&["9.9.9.9"]);
        // Ours, without a record: what was before is not known.
        folder.open().set(&list).unwrap();
        let ours = folder.read();
        std::fs::remove_file(folder.record()).unwrap();
        let error = folder.open().set(&list).unwrap_err();
        assert!(error.to_string().contains("is not known"), "{error}");
        assert_eq!(folder.read(), ours);
        // A record that cannot be understood.
        std::fs::write(folder.record(), "{").unwrap();
        for error in [folder.open().set(&list).unwrap_err(), folder.open().restore().unwrap_err()] {
            assert!(matches!(error, ResolvConfError::Damaged { .. }), "{error}");
        }
        // No file, and one without end.
        std::fs::remove_file(folder.record()).unwrap();
        std::fs::write(folder.file(), vec![b'#'; 70_000]).unwrap();
        assert!(matches!(folder.open().set(&list), Err(ResolvConfError::Odd { .. })));
        std::fs::remove_file(folder.file()).unwrap();
        std::fs::create_dir(folder.file()).unwrap();
        assert!(matches!(folder.open().set(&list), Err(ResolvConfError::Odd { .. })));
        // Nowhere to keep it: a file stands where the folder should.
        std::fs::remove_dir(folder.file()).unwrap();
        std::fs::write(folder.file(), BEFORE).unwrap();
        let mut conf = ResolvConf::new(folder.file(), folder.file().join("record.json"));
        assert!(conf.set(&list).is_err());
        assert_eq!(folder.read(), BEFORE);
    }
}
