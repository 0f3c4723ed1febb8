//! The file: rings of [records](super::record), one for the steps of each length and one for events.
//!
//! | at byte | what | records | bytes |
//! | --- | --- | --- | --- |
//! | 0 | what it is, and its version | 1 | 512 |
//! | 512 | whether a daemon runs, and when it last wrote | 1 | 512 |
//! | 1,024 | fine steps | 400 | 204,800 |
//! | 205,824 | minutes | 1,500 | 768,000 |
//! | 973,824 | quarters of an hour | 3,000 | 1,536,000 |
//! | 2,509,824 | days | 32 | 16,384 |
//! | 2,526,208 | events | 1,024 | 262,144 |
//! | 2,788,352 | the end | | |
//!
//! Where a step stands follows from its time alone: the next one to come in the same place is the one that makes it too old. So nothing
//! is searched, grows or is tidied up, a clock that was wrong for a while takes no more than the places it wrote to, and a record that
//! is damaged is a gap in a graph. All of the file's space is taken when it is made: a disk that becomes full later takes nothing
//! from it.
//!
//! The file is opened for each writing and closed again, so that its disk can be made read-only while the daemon runs. It is not
//! synchronised: the kernel writes it back within half a minute or so, and a power cut costs as much.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use ropewalk_control::api::HistoryEvent;
use ropewalk_control::folder::{self, Folder};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::record::{self, Damaged, EVENT_LEN, STEP_LEN};
use super::steps::{Moment, Series, Steps, Tables, add_to};
use crate::file;
use crate::format::NewerFormat;

/// Its name in the state folder.
pub(super) const NAME: &str = "history.ring";

/// What is no history, or not whole, is put aside under this name.
pub(super) const ASIDE: &str = "history.damaged";

/// What the file begins with.
const MAGIC: [u8; 8] = *b"RopeHist";

/// The version of the layout.
const VERSION: u32 = 1;

/// Bytes of magic, version and their checksum.
const HEAD_LEN: usize = 16;

/// Bytes of whether a daemon runs, when it last wrote, and their checksum.
const RUN_LEN: usize = 13;

/// Where that stands: in a sector of its own, so that a power cut while it is written spares the head.
const RUN_AT: u64 = 512;

const STEPS_AT: u64 = 1024;

/// Events that are kept: those of four days with the worst link (`damper`), or of a year with good ones.
pub(super) const EVENTS: u64 = 1024;

/// The highest number that an event can have: a thousand in each second for a hundred million years. A higher one is none that was
/// counted, and the next would not follow from it.
const MOST_NUMBER: u64 = 1 << 62;

const EVENTS_AT: u64 = begin_of(Steps::Days) + Steps::Days.slots() * STEP_LEN as u64;

/// Bytes of the file, at any time.
pub(super) const FILE_LEN: u64 = EVENTS_AT + EVENTS * EVENT_LEN as u64;

const _: () = assert!(FILE_LEN == 2_788_352, "the table above says so");

/// Where the steps of a length begin.
const fn begin_of(steps: Steps) -> u64 {
    let (fine, minutes) = (Steps::Fine.slots(), Steps::Minutes.slots());
    let before = match steps {
        Steps::Fine => 0,
        Steps::Minutes => fine,
        Steps::Quarters => fine + minutes,
        Steps::Days => fine + minutes + Steps::Quarters.slots(),
    };
    STEPS_AT + before * STEP_LEN as u64
}

/// Where the step that begins then stands.
const fn place_of(steps: Steps, start: u64) -> u64 {
    begin_of(steps) + start / steps.seconds() % steps.slots() * STEP_LEN as u64
}

const fn place_of_event(number: u64) -> u64 {
    EVENTS_AT + number % EVENTS * EVENT_LEN as u64
}

/// Why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum RingError {
    /// The system says so.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A newer program wrote it.
    #[error(transparent)]
    Newer(#[from] NewerFormat),
    /// It does not begin as a history does.
    #[error("it is no history of ropewalk's, or damaged")]
    Foreign,
}

/// Whether a daemon runs that keeps its history in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// It was not told to stop, or has not stopped yet.
    pub(super) goes_on: bool,
    /// When it last wrote, seconds since 1970.
    pub(super) alive: u64,
}

/// What is found in a file at the start.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// When a daemon last wrote that ended without being told to.
    pub(super) crashed: Option<u64>,
    /// What people should know of the file.
    pub(super) told: Option<String>,
}

/// The file.
#[derive(Debug)]
pub(super) struct Ring {
    path: PathBuf,
    /// The number of the next event.
    next_event: u64,
}

impl Ring {
    /// That of a state folder.
    pub(super) fn of(state_dir: &Path) -> Self {
        Self { path: state_dir.join(NAME), next_event: 0 }
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the file, or goes on with it. One that is no history is put aside.
    pub(super) fn begin(&mut self) -> Result<Found, RingError> {
        // What cannot be tidied up harms nobody.
        let _ = file::sweep(&self.path);
        let mut found = Found::default();
        match self.open() {
            Ok(file) => {
                if file.metadata()?.len() < FILE_LEN {
                    let path = self.path.display();
                    found.told = Some(format!("{path} was cut short: what is missing is a gap"));
                }
                self.reserve()?;
            }
            Err(RingError::Io(error)) if error.kind() == io::ErrorKind::NotFound => self.make()?,
            Err(RingError::Foreign) => {
                self.put_aside()?;
                self.make()?;
                let path = self.path.display();
                found.told =
                    Some(format!("{path} was no history, or damaged: it was put aside as {ASIDE}"));
            }
            Err(error) => return Err(error),
        }
        let file = self.open()?;
        let (numbers, mut damaged) = read_events(&file)?;
        self.next_event = numbers.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        for steps in Steps::ALL {
            damaged += read_steps(&file, steps)?.1;
        }
        if damaged > 0 {
            let path = self.path.display();
            found.told = Some(format!(
                "{damaged} records of {path} are damaged and left out: the power went, or the disk fails"
            ));
        }
        let run = read_run(&file)?.filter(|run| run.goes_on);
        found.crashed = run.map(|run| run.alive);
        Ok(found)
    }

    /// Adds these steps and events to what the file holds. What is written is taken from them, also where the rest fails.
    pub(super) fn write(
        &mut self,
        tables: &mut Tables,
        events: &mut VecDeque<HistoryEvent>,
        run: Run,
    ) -> Result<(), RingError> {
        let old = self.open()?;
        let new = self.open_to_write()?;
        for steps in Steps::ALL {
            let series = tables.of_mut(steps);
            while let Some((start, moment)) = series.first_key_value() {
                let at = place_of(steps, *start);
                let mut sum = known_at(&old, at, *start)?;
                add_to(&mut sum, moment);
                new.write_all_at(&record::step(*start, &sum), at)?;
                series.pop_first();
            }
        }
        while let Some(event) = events.front() {
            let number = self.next_event;
            new.write_all_at(&record::event(number, event), place_of_event(number))?;
            self.next_event += 1;
            events.pop_front();
        }
        new.write_all_at(&run_record(run), RUN_AT)?;
        Ok(())
    }

    /// Says only whether a daemon runs: a disk that takes nothing else may take these few bytes.
    pub(super) fn note_run(&self, run: Run) -> Result<(), RingError> {
        // What it is was looked at: nothing else is written to.
        let _history = self.open()?;
        Ok(self.open_to_write()?.write_all_at(&run_record(run), RUN_AT)?)
    }

    /// The steps of one length that begin in this time.
    pub(super) fn series(
        &self,
        steps: Steps,
        time: &RangeInclusive<u64>,
    ) -> Result<Series, RingError> {
        let (found, _) = read_steps(&self.open()?, steps)?;
        Ok(found.into_iter().filter(|(start, _)| time.contains(start)).collect())
    }

    /// The events, the newest first.
    pub(super) fn events(&self) -> Result<Vec<HistoryEvent>, RingError> {
        let (mut found, _) = read_events(&self.open()?)?;
        found.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        Ok(found.into_iter().map(|(_, event)| event).collect())
    }

    /// Wipes the steps and events that this is not true of; of an event it is asked for its second.
    pub(super) fn retain(
        &self,
        keeps_step: impl Fn(Steps, u64) -> bool,
        keeps_event: impl Fn(u64) -> bool,
    ) -> Result<(), RingError> {
        let old = self.open()?;
        let new = self.open_to_write()?;
        for steps in Steps::ALL {
            for (start, _) in read_steps(&old, steps)?.0 {
                if !keeps_step(steps, start) {
                    new.write_all_at(&[0; STEP_LEN], place_of(steps, start))?;
                }
            }
        }
        for (number, event) in read_events(&old)?.0 {
            if !keeps_event(event.at) {
                new.write_all_at(&[0; EVENT_LEN], place_of_event(number))?;
            }
        }
        Ok(())
    }

    /// Removes the file, and one that was put aside.
    pub(super) fn remove(&self) -> io::Result<()> {
        for path in [self.path.clone(), self.path.with_file_name(ASIDE)] {
            match folder::remove(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }

    /// Opens the file to be read. It is a history of a version that is known.
    fn open(&self) -> Result<File, RingError> {
        let (file, _) = folder::open(&self.path)?;
        let mut head = [0; HEAD_LEN];
        let len = read_up_to(&file, &mut head, 0)?;
        if len < HEAD_LEN || !head.starts_with(&MAGIC) {
            return Err(RingError::Foreign);
        }
        let version = head[8..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes));
        if version > VERSION {
            return Err(NewerFormat { found: version.into(), known: VERSION }.into());
        }
        // The only older one is none.
        if head == self::head() { Ok(file) } else { Err(RingError::Foreign) }
    }

    fn open_to_write(&self) -> io::Result<File> {
        let (folder, name) = Folder::of(&self.path)?;
        folder.open_to_write(name)
    }

    /// Makes an empty one. Where there is no room for all of it, none is left.
    fn make(&self) -> io::Result<()> {
        file::create(&self.path, &head())?;
        self.reserve().inspect_err(|_| drop(folder::remove(&self.path)))
    }

    /// Takes the space of the whole file, what was cut off it too.
    fn reserve(&self) -> io::Result<()> {
        let file = self.open_to_write()?;
        if file.metadata()?.len() >= FILE_LEN {
            return Ok(());
        }
        match fallocate(&file, FallocateFlags::empty(), 0, FILE_LEN) {
            // This file system gives space only when it is written.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => file.set_len(FILE_LEN),
            reserved => Ok(reserved?),
        }
    }

    fn put_aside(&self) -> io::Result<()> {
        let (folder, name) = Folder::of(&self.path)?;
        std::fs::rename(folder.at(name), folder.at(OsStr::new(ASIDE)))
    }
}

fn head() -> [u8; HEAD_LEN] {
    let mut head = [0; HEAD_LEN];
    head[..8].copy_from_slice(&MAGIC);
    head[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let checksum = crc32fast::hash(&head[..12]);
    head[12..].copy_from_slice(&checksum.to_le_bytes());
    head
}

fn run_record(run: Run) -> [u8; RUN_LEN] {
    let mut record = [0; RUN_LEN];
    record[0] = run.goes_on.into();
    record[1..9].copy_from_slice(&run.alive.to_le_bytes());
    let checksum = crc32fast::hash(&record[..9]);
    record[9..].copy_from_slice(&checksum.to_le_bytes());
    record
}

/// `None`: none has run yet, or it was damaged.
fn read_run(file: &File) -> io::Result<Option<Run>> {
    let mut record = [0; RUN_LEN];
    read_up_to(file, &mut record, RUN_AT)?;
    let mut alive = [0; 8];
    alive.copy_from_slice(&record[1..9]);
    let run = Run { goes_on: record[0] == 1, alive: u64::from_le_bytes(alive) };
    Ok((run_record(run) == record).then_some(run))
}

/// What stands at this place of the step that begins then.
fn known_at(file: &File, at: u64, start: u64) -> io::Result<Moment> {
    let mut bytes = [0; STEP_LEN];
    read_up_to(file, &mut bytes, at)?;
    let known = record::read_step(&bytes).ok().flatten().filter(|(known, _)| *known == start);
    Ok(known.map(|(_, moment)| moment).unwrap_or_default())
}

/// The steps of one length, and how many records are damaged.
fn read_steps(file: &File, steps: Steps) -> io::Result<(Vec<(u64, Moment)>, usize)> {
    let bytes = read_all(file, begin_of(steps), steps.slots(), STEP_LEN)?;
    Ok(whole(bytes.chunks_exact(STEP_LEN).map(record::read_step)))
}

/// The events with their numbers, and how many records are damaged.
fn read_events(file: &File) -> io::Result<(Vec<(u64, HistoryEvent)>, usize)> {
    let bytes = read_all(file, EVENTS_AT, EVENTS, EVENT_LEN)?;
    let records = bytes.chunks_exact(EVENT_LEN).map(|record| match record::read_event(record) {
        Ok(Some((number, _))) if number > MOST_NUMBER => Err(Damaged),
        read => read,
    });
    Ok(whole(records))
}

/// The records that hold something, and how many are damaged.
fn whole<T, E>(records: impl Iterator<Item = Result<Option<T>, E>>) -> (Vec<T>, usize) {
    let (mut found, mut damaged) = (Vec::new(), 0);
    for record in records {
        match record {
            Ok(record) => found.extend(record),
            Err(_) => damaged += 1,
        }
    }
    (found, damaged)
}

/// So many records; what the file does not have was never written.
fn read_all(file: &File, at: u64, records: u64, len: usize) -> io::Result<Vec<u8>> {
    let records = usize::try_from(records).map_err(io::Error::other)?;
    let mut bytes = vec![0; records * len];
    read_up_to(file, &mut bytes, at)?;
    Ok(bytes)
}

/// Reads until the end of the file or of the buffer.
fn read_up_to(file: &File, bytes: &mut [u8], at: u64) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read_at(&mut bytes[len..], at + len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}

#[cfg(test)]
mod tests;
