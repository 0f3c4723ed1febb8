//! The thread that gathers, writes and answers. It waits for the disk, and nobody waits for it.
//!
//! What cannot be written stays in memory, within the bounds of the file, and is written when the disk takes it again. So a full
//! disk, one that is read-only, a file that is a newer program's and a folder that is not there are one case: it is told, and the
//! history goes on in memory; what can be read of the file is answered, too.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};

use humantime::format_duration;
use ropewalk_control::api::{
    ApiError, EventKind, HistoryEvent, HistoryQuery, HistoryReport, HistoryState, HistoryStatus,
    Request, Response,
};
use ropewalk_control::server;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_settings::HistoryDays;
use tokio::sync::watch;

use super::answer::{self, Points};
use super::damper::Damper;
use super::day;
use super::gather::{Gather, Sample};
use super::record::{MAX_TEXT, shortened};
use super::ring::{EVENTS, FILE_LEN, Ring, RingError, Run};
use super::steps::{Series, Steps, add_to};

/// What is too old is wiped so often, and only when the clock was not set for as long: one that is a year ahead for a while after the
/// start takes nothing away.
const STEADY: Duration = Duration::from_secs(3600);

/// A step from further ahead than this is of a clock that was wrong; less may be a time zone.
const AHEAD_S: u64 = 86_400;

/// Events that wait for a date.
const MOST_UNDATED: usize = 64;

const DAY_S: u64 = 86_400;

/// What the loop tells it.
#[derive(Debug)]
pub(super) enum Message {
    /// What was seen since the last such message.
    Samples(Vec<Sample>),
    /// Something happened.
    Happened(Happened),
    /// Somebody asks, and this was seen since the last samples.
    Ask(server::Command, Vec<Sample>),
    /// It is kept for so long from now on; what there is now counts from now.
    Keep(HistoryDays, Sample),
}

/// Something that happened, before it has a date.
#[derive(Debug)]
pub(super) struct Happened {
    pub(super) at: Instant,
    pub(super) kind: EventKind,
    pub(super) link: Option<String>,
    pub(super) text: String,
}

/// The thread's own.
#[derive(Debug)]
pub(super) struct Keeper {
    days: HistoryDays,
    ring: Ring,
    /// Whether the ring has begun, and took what was written last.
    is_open: bool,
    /// Whether it was looked how the run before ended.
    has_begun: bool,
    gather: Gather,
    damper: Damper,
    undated: VecDeque<Happened>,
    /// Not written yet, the newest last.
    events: VecDeque<HistoryEvent>,
    /// The daemon was told to stop, as a message said.
    stops: bool,
    /// When it was told to, for which no message is needed.
    stopped: Arc<OnceLock<Instant>>,
    steady_since: Instant,
    tidied: Instant,
    trouble: Option<String>,
    told: watch::Sender<HistoryStatus>,
}

impl Keeper {
    /// Of a daemon that begins now and keeps `ring`. Its status is told to `told`; `stopped` says when the daemon was told to stop.
    pub(super) fn new(
        days: HistoryDays,
        ring: Ring,
        (now, unix_ms): (Instant, u64),
        told: watch::Sender<HistoryStatus>,
        stopped: Arc<OnceLock<Instant>>,
    ) -> Self {
        Self {
            days,
            ring,
            is_open: false,
            has_begun: false,
            gather: Gather::new(now, unix_ms),
            damper: Damper::default(),
            undated: VecDeque::new(),
            events: VecDeque::new(),
            stops: false,
            stopped,
            steady_since: now,
            tidied: now,
            trouble: None,
            told,
        }
    }

    /// Runs until nobody can tell it anything any more, then writes a last time.
    pub(super) fn run(mut self, queue: Receiver<Message>) {
        self.begin();
        for message in queue {
            self.handle(message);
        }
        self.end();
    }

    /// Opens the file and says there that a daemon runs, or removes it where nothing is to be kept.
    pub(super) fn begin(&mut self) {
        if self.days.is_off() {
            self.remove();
        } else if self.gather.present().is_some() {
            self.write();
        } else if let Err(error) = self.open() {
            self.complain(&error);
        }
        self.tell();
    }

    /// Writes a last time. What a daemon that was told to stop must not leave is a file that says that it still runs.
    fn end(&mut self) {
        if let Some(at) = self.stopped.get().copied().filter(|_| !self.stops) {
            // There was no room for the message.
            let (kind, text) = (EventKind::DaemonStopped, String::new());
            self.note(Happened { at, kind, link: None, text });
        }
        if self.write() || self.days.is_off() || !self.stops {
            return;
        }
        let run = Run { goes_on: false, alive: self.gather.present().unwrap_or(0) };
        if let Err(error) = self.ring.note_run(run) {
            let path = self.ring.path().display();
            tracing::warn!("that the daemon was told to stop cannot be noted in {path}: {error}");
        }
    }

    pub(super) fn handle(&mut self, message: Message) {
        match message {
            Message::Samples(samples) => {
                self.look(samples);
                self.write();
            }
            Message::Happened(happened) => self.note(happened),
            Message::Ask(asked, samples) => {
                self.look(samples);
                let answer = match &asked.request {
                    Request::History(query) if !self.days.is_off() => self.answer(query),
                    _ => Ok(self.nothing()),
                };
                let answer = answer.map(|report| Response::History(Box::new(report)));
                asked.answer(answer);
            }
            Message::Keep(days, sample) => self.keep(days, sample),
        }
        self.tell();
    }

    fn look(&mut self, samples: Vec<Sample>) {
        if self.days.is_off() {
            return;
        }
        for sample in samples {
            let at = sample.at;
            if let Some(jump) = self.gather.add(sample, day::of) {
                self.steady_since = at;
                self.note(clock_set(at, jump));
            }
        }
        if self.gather.present().is_some() {
            for happened in std::mem::take(&mut self.undated) {
                self.note(happened);
            }
        }
    }

    fn note(&mut self, happened: Happened) {
        self.stops |= happened.kind == EventKind::DaemonStopped;
        if self.days.is_off() {
            return;
        }
        let Some(at) = self.gather.date_of(happened.at) else {
            if self.undated.len() < MOST_UNDATED {
                self.undated.push_back(happened);
            }
            return;
        };
        let Happened { kind, link, text, .. } = happened;
        let Some(left_out) = self.damper.admit(at, kind, link.as_deref()) else { return };
        let text = match (left_out, text.is_empty()) {
            (0, _) => text,
            (more, true) => format!("{more} like this before are left out"),
            (more, false) => format!("{text} ({more} like this before are left out)"),
        };
        self.happened(HistoryEvent { at, kind, link, text });
    }

    fn happened(&mut self, mut event: HistoryEvent) {
        event.text = shortened(&event.text, MAX_TEXT).to_owned();
        if self.events.len() as u64 >= EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }

    /// It is kept for so long from now on.
    fn keep(&mut self, days: HistoryDays, sample: Sample) {
        let before = std::mem::replace(&mut self.days, days);
        if days.is_off() {
            self.events.clear();
            self.undated.clear();
            self.remove();
        }
        if days.is_off() || before.is_off() {
            (self.steady_since, self.tidied) = (sample.at, sample.at);
            self.gather.begin_again(sample);
        }
        if before.is_off() && !days.is_off() {
            self.begin();
        } else if days.days() < before.days()
            && let Some(present) = self.gather.present()
        {
            // Somebody wants it so now.
            self.forget(present);
        }
    }

    fn open(&mut self) -> Result<(), RingError> {
        if self.is_open {
            return Ok(());
        }
        let found = self.ring.begin()?;
        self.is_open = true;
        if let Some(told) = found.told {
            tracing::warn!("{told}");
        }
        let crashed = found.crashed.filter(|_| !self.has_begun);
        self.has_begun = true;
        if let Some(at) = crashed {
            let text = "it could not note that it ended: it crashed or was killed, the power went, \
                        or the disk took nothing";
            let (kind, text) = (EventKind::DaemonCrashed, text.to_owned());
            self.happened(HistoryEvent { at, kind, link: None, text });
        }
        Ok(())
    }

    /// Writes what is not in the file yet. Returns whether all of it is.
    fn write(&mut self) -> bool {
        let present = self.gather.present().filter(|_| !self.days.is_off());
        let Some(present) = present else { return false };
        let run = Run { goes_on: !self.stops, alive: present };
        let written = match self.open() {
            Ok(()) => self.ring.write(self.gather.tables_mut(), &mut self.events, run),
            Err(error) => Err(error),
        };
        let is_written = written.is_ok();
        match written {
            Ok(()) => {
                if self.trouble.take().is_some() {
                    let path = self.ring.path().display();
                    tracing::info!("the history is written to {path} again");
                }
                self.tidy(present);
            }
            Err(error) => self.complain(&error),
        }
        self.tell();
        is_written
    }

    /// The file cannot be used: what is not in it stays in memory.
    fn complain(&mut self, error: &RingError) {
        self.is_open = false;
        self.gather.tables_mut().bound();
        let path = self.ring.path().display();
        let trouble = format!(
            "the history cannot be kept in {path} ({} MB) and is lost with the daemon: {error}",
            FILE_LEN.div_ceil(1_000_000)
        );
        if self.trouble.as_ref() != Some(&trouble) {
            tracing::warn!("{trouble}");
            self.trouble = Some(trouble);
        }
    }

    fn tidy(&mut self, present: u64) {
        let now = self.gather.looked();
        if now.since(self.steady_since) >= STEADY && now.since(self.tidied) >= STEADY {
            self.tidied = now;
            self.forget(present);
        }
    }

    /// Wipes what is too old, and what is of a clock that was ahead.
    fn forget(&mut self, present: u64) {
        let (oldest, newest) = (self.oldest(present), present.saturating_add(AHEAD_S));
        let keeps_step = |steps: Steps, start: u64| {
            start.saturating_add(steps.seconds()) > oldest && start <= newest
        };
        let keeps_event = |at: u64| (oldest..=newest).contains(&at);
        self.gather.tables_mut().retain(keeps_step);
        self.events.retain(|event| keeps_event(event.at));
        if self.is_open
            && let Err(error) = self.ring.retain(keeps_step, keeps_event)
        {
            self.complain(&error);
        }
    }

    /// The first second that is kept.
    fn oldest(&self, present: u64) -> u64 {
        present.saturating_sub(u64::from(self.days.days()) * DAY_S)
    }

    fn remove(&mut self) {
        (self.is_open, self.has_begun, self.trouble) = (false, true, None);
        if let Err(error) = self.ring.remove() {
            let path = self.ring.path().display();
            let trouble = format!("the history is off, and {path} cannot be removed: {error}");
            tracing::warn!("{trouble}");
            self.trouble = Some(trouble);
        }
    }

    fn answer(&mut self, query: &HistoryQuery) -> Result<HistoryReport, ApiError> {
        let Some(now) = self.gather.present() else { return Ok(self.nothing()) };
        let (oldest, link) = (self.oldest(now), query.link.as_deref());
        let points = Points::of(query, now);
        let time = points.time();
        let series = self.known(points.steps, &(oldest.max(*time.start())..=*time.end()));
        let (all, links) = points.fill(&series, link)?;
        // The day in which the oldest second is, and one that has begun further east.
        let days = self.known(Steps::Days, &(oldest.saturating_sub(DAY_S - 1)..=now + AHEAD_S));
        let since = now.saturating_sub(query.since_s).max(oldest);
        let events = self.all_events().into_iter().filter(|event| {
            event.at >= since && link.is_none_or(|link| event.link.as_deref() == Some(link))
        });
        let events = events.take(query.events.into()).collect();
        let (from, step_s) = (points.from, points.step_s);
        let (history, used) = (self.status(), answer::days(&days, link));
        Ok(HistoryReport { history, now, from, step_s, all, links, used, events })
    }

    /// What is answered where there is nothing.
    fn nothing(&self) -> HistoryReport {
        HistoryReport { history: self.status(), ..HistoryReport::default() }
    }

    /// The steps that begin in this time, of the file and of what is not there yet.
    fn known(&mut self, steps: Steps, time: &RangeInclusive<u64>) -> Series {
        let written = self.ring.series(steps, time);
        let mut series = written.unwrap_or_else(|error| {
            self.note_unread(&error);
            Series::new()
        });
        for (start, moment) in self.gather.tables().of(steps).range(time.clone()) {
            add_to(series.entry(*start).or_default(), moment);
        }
        series
    }

    /// The file cannot be read. Where it cannot be written either that was told, and it may be there all the same, on a disk that is
    /// read-only.
    fn note_unread(&mut self, error: &RingError) {
        if self.is_open {
            self.complain(error);
        }
    }

    /// The newest first.
    fn all_events(&mut self) -> Vec<HistoryEvent> {
        let written = self.ring.events().unwrap_or_else(|error| {
            self.note_unread(&error);
            Vec::new()
        });
        self.events.iter().rev().cloned().chain(written).collect()
    }

    fn status(&self) -> HistoryStatus {
        let state = match (self.days.is_off(), &self.trouble, self.gather.present()) {
            (true, ..) => HistoryState::Off,
            (false, Some(_), _) => HistoryState::Memory,
            (false, None, None) => HistoryState::NoClock,
            (false, None, Some(_)) => HistoryState::On,
        };
        let (days, trouble) = (self.days.days(), self.trouble.clone());
        HistoryStatus { state, days, trouble, left_out: 0 }
    }

    fn tell(&self) {
        let status = self.status();
        self.told.send_if_modified(|told| {
            let differs = *told != status;
            *told = status;
            differs
        });
    }
}

/// The clock was set by so many seconds.
fn clock_set(at: Instant, jump: i64) -> Happened {
    let way = if jump < 0 { "back" } else { "forward" };
    let time = format_duration(Duration::from_secs(jump.unsigned_abs())).to_string();
    // Two units say enough.
    let time = time.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Happened { at, kind: EventKind::ClockSet, link: None, text: format!("{way} by {time}") }
}

#[cfg(test)]
mod tests;
