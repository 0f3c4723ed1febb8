//! The file in which the counts of allowances survive a restart, and the task that writes it.
//!
//! It is written at most once a minute, and at the end: a crash costs a minute of counting. What cannot be written is
//! told and tried again; counting goes on, and so does the tunnel. A damaged file is put aside, not overwritten; with
//! one of a newer program the client does not start.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use ropewalk_control::folder::{self, Folder};
use ropewalk_daemon::file;
use ropewalk_daemon::format::{self, NewerFormat};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};

use crate::allowance::Counts;
use crate::daemon::Command;

/// The version of the file.
const VERSION: u32 = 1;

/// A file of the most links with the longest names is a tenth of this.
const MAX_BYTES: u64 = 1 << 20;

/// Shortest time between two writes.
const INTERVAL: Duration = Duration::from_secs(60);

#[derive(Serialize, Deserialize)]
struct CountersFile {
    version: u32,
    links: Counts,
}

/// The counts of the run before; where they cannot be read, none, and why, for people.
///
/// # Errors
/// A newer program wrote them. The file stays as it is: with counts from zero a link could cost more than its allowance.
pub(crate) fn load(path: &Path) -> anyhow::Result<(Counts, Option<String>)> {
    let trouble = match read(path) {
        Ok(counts) => return Ok((counts, None)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((Counts::new(), None)),
        Err(error) if is_newer(&error) => {
            let what = || format!("cannot read the counts of allowances {}", path.display());
            return Err(error).with_context(what);
        }
        Err(error) => error,
    };
    let aside = path.with_extension("damaged");
    let moved = put_aside(path, &aside);
    let path = path.display();
    let begins = "the allowances of this month are counted from zero";
    let text = match moved {
        Ok(()) => {
            format!(
                "cannot read {path}: {trouble}; {begins}. It was put aside as {}",
                aside.display()
            )
        }
        Err(_) => format!("cannot read {path}: {trouble}; {begins}"),
    };
    Ok((Counts::new(), Some(text)))
}

fn is_newer(error: &io::Error) -> bool {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<NewerFormat>());
    cause.is_some()
}

fn put_aside(path: &Path, aside: &Path) -> io::Result<()> {
    let (folder, name) = Folder::of(path)?;
    std::fs::rename(folder.at(name), folder.at(aside.file_name().unwrap_or_default()))
}

fn read(path: &Path) -> io::Result<Counts> {
    let text = folder::read(path, MAX_BYTES)?.bytes;
    format::check(&text, VERSION).map_err(io::Error::other)?;
    let file: CountersFile = serde_json::from_slice(&text)?;
    if file.version != VERSION {
        return Err(io::Error::other(format!("version {} is not {VERSION}", file.version)));
    }
    Ok(file.links)
}

fn write(path: &Path, links: Counts) -> anyhow::Result<()> {
    let json = serde_json::to_vec_pretty(&CountersFile { version: VERSION, links })?;
    let what = || format!("cannot write the counts of allowances to {}", path.display());
    file::replace(path, &json).with_context(what)
}

/// Writes the counts whenever they changed.
pub(crate) struct Keeper {
    /// The file.
    pub(crate) path: PathBuf,
    /// The counts as they are now; closed at the end.
    pub(crate) counts: watch::Receiver<Counts>,
    /// Told of trouble, and of its end.
    pub(crate) daemon: mpsc::Sender<Command>,
}

impl Keeper {
    /// Runs until told to stop (or forgotten), then writes a last time.
    pub(crate) async fn run(mut self, mut stop: oneshot::Receiver<()>) {
        // Where nothing is counted nothing is written. What was read is written again at once: trouble with that is told now.
        let mut kept = Some(Counts::new()).filter(|none| *none == *self.counts.borrow());
        let mut known = None;
        loop {
            let ends = stop.try_recv() != Err(oneshot::error::TryRecvError::Empty);
            let counts = self.counts.borrow_and_update().clone();
            let is_new = kept.as_ref() != Some(&counts);
            if is_new {
                let trouble = self.write(counts.clone()).await;
                kept = trouble.is_none().then_some(counts);
                if known != trouble && !ends {
                    // A daemon that is ending does not listen.
                    let _ = self.daemon.send(Command::Counters(trouble.clone())).await;
                }
                known = trouble;
            }
            if ends {
                return;
            }
            if is_new {
                // What failed is tried again then, too.
                let _ = tokio::time::timeout(INTERVAL, &mut stop).await;
                continue;
            }
            tokio::select! {
                _ = &mut stop => {}
                changed = self.counts.changed() => if changed.is_err() {
                    // The daemon is gone; the end follows.
                    let _ = (&mut stop).await;
                }
            }
        }
    }

    /// Returns why it was not possible.
    async fn write(&self, counts: Counts) -> Option<String> {
        let path = self.path.clone();
        match tokio::task::spawn_blocking(move || write(&path, counts)).await {
            Ok(written) => written.err().map(|error| format!("{error:#}; counting goes on")),
            Err(panicked) => Some(panicked.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allowance::Count;
    use jiff::civil::date;

    fn counts(bytes: u64) -> Counts {
        [("lte".to_owned(), Count { since: date(2026, 11, 1), bytes })].into()
    }

    #[test]
    fn what_is_written_is_read_again_and_what_is_damaged_is_put_aside() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/counters.json");
        assert_eq!(load(&path).unwrap(), (Counts::new(), None));
        write(&path, counts(7)).unwrap();
        assert_eq!(load(&path).unwrap(), (counts(7), None));
        let whole = std::fs::read(&path).unwrap();
        let other =
            String::from_utf8(whole.clone()).unwrap().replace("\"version\": 1", "\"version\": 0");
        for damaged in [&whole[..whole.len() / 2], &[][..], &[0xff; 64], other.as_bytes()] {
            std::fs::write(&path, damaged).unwrap();
            let (read, trouble) = load(&path).unwrap();
            let trouble = trouble.unwrap();
            assert!(read.is_empty() && trouble.contains("counted from zero"), "{trouble}");
            assert!(!path.exists() && path.with_extension("damaged").exists());
        }
    }

    #[test]
    fn a_file_of_a_newer_program_is_called_so_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("counters.json");
        let newer = "{\"version\":2,\"bundles\":[]}";
        std::fs::write(&path, newer).unwrap();
        let said = format!("{:#}", load(&path).unwrap_err());
        assert!(said.contains("newer version of ropewalk (format 2"), "{said}");
        assert!(said.contains("counters.json"), "{said}");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
        assert!(!path.with_extension("damaged").exists());
    }

    #[test]
    fn the_last_counts_are_written_at_the_end_and_trouble_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let run = |path: PathBuf| {
            let runtime = ropewalk_daemon::service::runtime().unwrap();
            runtime.block_on(async {
                let (sender, receiver) = watch::channel(counts(1));
                let (daemon, mut commands) = mpsc::channel(4);
                let (stop, stopped) = oneshot::channel::<()>();
                let keeper = Keeper { path, counts: receiver, daemon };
                let task = tokio::spawn(keeper.run(stopped));
                tokio::time::sleep(Duration::from_millis(100)).await;
                sender.send_replace(counts(2));
                drop(stop);
                task.await.unwrap();
                match commands.try_recv() {
                    Ok(Command::Counters(trouble)) => trouble,
                    _ => None,
                }
            })
        };
        let path = folder.path().join("counters.json");
        assert_eq!(run(path.clone()), None);
        assert_eq!(load(&path).unwrap().0, counts(2));
        let blocked = folder.path().join("counters.json/below-a-file");
        assert!(run(blocked).unwrap().contains("counting goes on"));
    }
}
