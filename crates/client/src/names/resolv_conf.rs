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
//! The record may stand where a less trusted user can write. Root then takes from it only what is a choice of name servers:
//! text of `resolv.conf(5)`, or a link to where a known program keeps one; and it puts that back only over a file that
//! begins as ours do. Whatever the record says, the file is root's with mode 644.
//!
//! A file that cannot be replaced (a container's is a mount of its own; a sandbox may allow this file and not its folder)
//! is written in place. A cut may then leave a part of ours, or of what was before; both are known by the record.

mod place;
mod record;
#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_control::folder::{self, Folder};
use ropewalk_daemon::file;

use place::{NEW, Place, Written};
use record::Record;

/// How our file begins.
const HEADER: &str =
    "# Written by the Ropewalk client while its tunnel is up. What stood here before";

/// Who writes the file more often than this, in this time, insists on it.
const INSISTING: (usize, Duration) = (3, Duration::from_secs(60));

/// How long a program may take between emptying the file and filling it.
const SETTLE: Duration = Duration::from_millis(50);

/// Resolvers ask no more servers than this (`resolv.conf(5)`).
pub(super) const MAX_SERVERS: usize = 3;

/// Bytes of the longest record: a file of 64 KiB, of which JSON makes six each at worst, and texts of ours.
const MAX_RECORD: u64 = 1 << 20;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
            Some(_) if begins_like_ours(&now) || !self.may_take(at) => {
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
            None if begins_like_ours(&now) => {
                return Err(ResolvConfError::Unknown { file: self.file.clone() });
            }
            None => {
                Record { before: now, written: vec![text.clone()], in_place: false, others: false }
            }
        };
        self.save(&record)?;
        let place = Place::File { content: text };
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
        let place =
            Place::look(&self.file).map_err(|source| self.failed("read", &self.file, source))?;
        place.ok_or_else(|| ResolvConfError::Odd { file: self.file.clone() })
    }

    fn put(&self, place: &Place, record: Record) -> Result<(), ResolvConfError> {
        let io = |source| self.failed("write", &self.file, source);
        match place.put(&self.file).map_err(io)? {
            Written::Whole => Ok(()),
            Written::Fixed => {
                if !record.in_place {
                    self.save(&Record { in_place: true, ..record })?;
                }
                place.put_in_place(&self.file).map_err(io)
            }
        }
    }

    fn read(&self) -> Result<Option<Record>, ResolvConfError> {
        let content = match folder::read(&self.record, MAX_RECORD) {
            Ok(content) => content,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed("read", &self.record, error)),
        };
        let damaged = |why| ResolvConfError::Damaged {
            file: self.file.clone(),
            record: self.record.clone(),
            why,
        };
        let record: Record =
            serde_json::from_slice(&content.bytes).map_err(|error| damaged(error.to_string()))?;
        match record.before.objection().filter(|_| content.is_others) {
            Some(why) => Err(damaged(why)),
            None => Ok(Some(Record { others: content.is_others, ..record })),
        }
    }

    fn save(&self, record: &Record) -> Result<(), ResolvConfError> {
        let text = serde_json::to_vec_pretty(record)
            .map_err(|error| self.failed("write", &self.record, error.into()))?;
        file::replace(&self.record, &text)
            .map_err(|error| self.failed("write", &self.record, error))
    }

    fn forget(&self) -> Result<(), ResolvConfError> {
        let done = Folder::of(&self.record).and_then(|(folder, name)| {
            match std::fs::remove_file(folder.at(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => folder.sync(),
            }
        });
        done.map_err(|error| self.failed("remove", &self.record, error))
    }

    fn failed(&self, what: &'static str, file: &Path, source: io::Error) -> ResolvConfError {
        ResolvConfError::Io { what, file: file.to_owned(), source }
    }
}

/// The folders in which programs keep the file that `/etc/resolv.conf` leads to.
pub(super) fn folders() -> impl Iterator<Item = &'static Path> {
    place::LINKS.iter().map(Path::new).filter(|link| link.is_absolute()).filter_map(Path::parent)
}

fn begins_like_ours(now: &Place) -> bool {
    matches!(now, Place::File { content } if is_ours(content))
}

/// Whether this text is one of a client, or begins as one.
pub(super) fn is_ours(text: &str) -> bool {
    text.starts_with(HEADER)
}

fn text(servers: &[IpAddr], record: &Path) -> String {
    let mut text =
        format!("{HEADER}\n# comes back when it ends; until then it is in {}\n", record.display());
    for server in servers.iter().take(MAX_SERVERS) {
        text.push_str(&format!("nameserver {server}\n"));
    }
    text
}
