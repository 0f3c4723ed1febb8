//! The loop's side: it looks, notes what happens, and hands both to the thread without ever waiting.
//!
//! It looks when it turns anyway, at most every [`LOOK_INTERVAL`], and tells the thread once a minute. A loop with nothing to do is
//! woken for it every 90 s at most.

use std::io;
use std::path::Path;
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, OnceLock};
use std::thread::Builder;

use ropewalk_control::api::{ApiError, ErrorCode, EventKind, HistoryStatus};
use ropewalk_control::server;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::HistoryDays;
use tokio::sync::{oneshot, watch};

use super::gather::Sample;
use super::keeper::{Happened, Keeper, Message};
use super::record::{MAX_TEXT, shortened};
use super::ring::Ring;

/// From one look to the next: the finest step.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// From one writing to the next. A card of flash memory takes some sectors a minute for longer than it lasts otherwise.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);

/// How much longer a loop with nothing to do may sleep: its keepalives wake it before.
const PATIENCE: Duration = Duration::from_secs(30);

/// Messages that may wait for the thread: what happens in a minute in which the disk hangs.
const MOST_WAITING: usize = 64;

/// Looks that may wait for the next message: half an hour of a disk that hangs.
const MOST_LOOKS: usize = 180;

/// How long the last writing may take at the end.
const END_TIME: Duration = Duration::from_secs(2);

/// Tells the thread; without one it does nothing.
#[derive(Debug)]
pub struct Recorder {
    line: Option<Line>,
    days: HistoryDays,
    looks: Vec<Sample>,
    look_at: Instant,
    write_at: Instant,
    left_out: u64,
    /// The thread is gone, although nobody told it to go.
    has_failed: bool,
}

/// To the thread and back.
#[derive(Debug)]
struct Line {
    tell: SyncSender<Message>,
    told: watch::Receiver<HistoryStatus>,
    /// When the daemon was told to stop: the thread learns it also where its queue is full.
    stopped: Arc<OnceLock<Instant>>,
}

/// Tells when the thread has ended.
#[derive(Debug)]
pub struct Ending(oneshot::Receiver<()>);

impl Ending {
    /// Waits until all that was told is written, but not for a disk that hangs. The [`Recorder`] must be gone.
    pub async fn wait(self) {
        drop(tokio::time::timeout(END_TIME, self.0).await);
    }
}

impl Recorder {
    /// Starts the thread, which keeps its file in this folder for so many days. `unix`: the wall clock, time since 1970.
    ///
    /// # Errors
    /// The system gives no thread. Trouble with the file is told by the [status](Self::status).
    pub fn start(
        state_dir: &Path,
        days: HistoryDays,
        now: Instant,
        unix: Duration,
    ) -> io::Result<(Self, Ending)> {
        let (tell, queue) = mpsc::sync_channel(MOST_WAITING);
        let (status, told) = watch::channel(HistoryStatus::default());
        let (ended, ending) = oneshot::channel::<()>();
        let (ring, clocks) = (Ring::of(state_dir), (now, unix_ms(unix)));
        let stopped = Arc::new(OnceLock::new());
        let keeper = Keeper::new(days, ring, clocks, status, Arc::clone(&stopped));
        Builder::new().name("history".to_owned()).spawn(move || {
            keeper.run(queue);
            drop(ended);
        })?;
        let mut recorder = Self { line: Some(Line { tell, told, stopped }), ..Self::off() };
        (recorder.days, recorder.look_at) = (days, now + LOOK_INTERVAL);
        recorder.write_at = now + WRITE_INTERVAL;
        let version = concat!("version ", env!("CARGO_PKG_VERSION"));
        recorder.note(now, EventKind::DaemonStarted, None, version);
        Ok((recorder, Ending(ending)))
    }

    /// One without a thread.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            line: None,
            days: HistoryDays::OFF,
            looks: Vec::new(),
            look_at: Instant::ZERO,
            write_at: Instant::ZERO,
            left_out: 0,
            has_failed: false,
        }
    }

    /// Whether it is time to look.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        self.is_on() && self.look_at <= now
    }

    /// When the loop is to turn although nothing goes.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.is_on().then(|| self.write_at + PATIENCE)
    }

    /// What the loop saw.
    pub fn look(&mut self, seen: Sample) {
        if !self.is_on() {
            return;
        }
        let now = seen.at;
        self.look_at = now + LOOK_INTERVAL;
        self.push(seen);
        if self.write_at <= now {
            self.write_at = now + WRITE_INTERVAL;
            self.send_looks();
        }
    }

    /// Something happened; `text` says more about it, and may be empty. It names no address that somebody visits.
    pub fn note(&mut self, now: Instant, kind: EventKind, link: Option<&str>, text: &str) {
        if self.is_on() {
            let link = link.map(str::to_owned);
            let text = shortened(text, MAX_TEXT).to_owned();
            self.send(Message::Happened(Happened { at: now, kind, link, text }));
        }
    }

    /// The daemon was told to stop; `seen` is what it carried until now.
    pub fn stop(&mut self, seen: Sample) {
        let now = seen.at;
        if let Some(line) = &self.line {
            // It is told once.
            let _ = line.stopped.set(now);
        }
        self.look(seen);
        self.send_looks();
        self.note(now, EventKind::DaemonStopped, None, "");
    }

    /// Somebody asks; `seen` is how things are now. The thread answers.
    pub fn ask(&mut self, asked: server::Command, seen: Sample) {
        self.push(seen);
        let looks = std::mem::take(&mut self.looks);
        self.send(Message::Ask(asked, looks));
    }

    /// It is kept for so long from now on; `seen` is how things are now.
    pub fn keep(&mut self, days: HistoryDays, seen: Sample) {
        if self.days == days {
            return;
        }
        let now = seen.at;
        // What was seen before counts as it did before.
        self.send_looks();
        if !self.send(Message::Keep(days, seen)) {
            tracing::warn!("the history waits for its disk: history.days stays {}", self.days);
            return;
        }
        if self.days.is_off() {
            (self.look_at, self.write_at) = (now + LOOK_INTERVAL, now + WRITE_INTERVAL);
        }
        self.days = days;
    }

    /// How it is kept.
    #[must_use]
    pub fn status(&self) -> HistoryStatus {
        let (days, left_out) = (self.days.days(), self.left_out);
        match &self.line {
            Some(line) => HistoryStatus { left_out, ..line.told.borrow().clone() },
            None => {
                let trouble = self.has_failed.then(|| FAILED.to_owned());
                HistoryStatus { days, left_out, trouble, ..HistoryStatus::default() }
            }
        }
    }

    fn is_on(&self) -> bool {
        self.line.is_some() && !self.days.is_off()
    }

    fn push(&mut self, seen: Sample) {
        if self.looks.len() >= MOST_LOOKS {
            // What it gained counts with the next.
            self.looks.remove(0);
            self.left_out += 1;
        }
        self.looks.push(seen);
    }

    fn send_looks(&mut self) {
        if self.is_on() && !self.looks.is_empty() {
            let looks = std::mem::take(&mut self.looks);
            self.send(Message::Samples(looks));
        }
    }

    /// Returns whether it will be heard.
    fn send(&mut self, message: Message) -> bool {
        let Some(line) = &self.line else { return refuse(message, ErrorCode::Failed, FAILED) };
        match line.tell.try_send(message) {
            Ok(()) => return true,
            // They go with the next message.
            Err(TrySendError::Full(Message::Samples(looks))) => self.looks = looks,
            Err(TrySendError::Full(Message::Ask(asked, looks))) => {
                self.looks = looks;
                refuse(Message::Ask(asked, Vec::new()), ErrorCode::Busy, BUSY);
            }
            Err(TrySendError::Full(Message::Happened(_) | Message::Keep(..))) => self.left_out += 1,
            Err(TrySendError::Disconnected(message)) => {
                tracing::error!("{FAILED}");
                (self.line, self.has_failed) = (None, true);
                refuse(message, ErrorCode::Failed, FAILED);
            }
        }
        false
    }
}

const BUSY: &str = "the history waits for its disk; try again";

const FAILED: &str = "the history has ended: its thread failed, as the log says; a restart of the daemon begins it again";

/// Answers who asked where nobody hears it.
fn refuse(message: Message, code: ErrorCode, why: &str) -> bool {
    if let Message::Ask(asked, _) = message {
        asked.answer(Err(ApiError::new(code, why)));
    }
    false
}

/// Milliseconds.
fn unix_ms(unix: Duration) -> u64 {
    u64::try_from(unix.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
