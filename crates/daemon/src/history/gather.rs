//! From counters to steps: what was gained between two looks is spread over the steps between them.
//!
//! Two clocks are read at each look. The one that never steps says how long ago the last look was; the wall clock says only where the
//! *end* of that time lies. So however far the date jumps, no step gets the bytes of a year, and none is counted twice:
//!
//! | the wall clock | then |
//! | --- | --- |
//! | is set forward | there is a gap where nothing was |
//! | is set back | what comes is added to what is known of those steps |
//! | was never set (a machine without a battery begins in 1970) | looks wait, without a date, and get theirs when it is |
//!
//! What was gained while nobody looked for more than [`MOST_SPREAD`] counts for its day, and the rates have a gap there: the machine
//! slept, or the loop stood still.

use std::collections::{BTreeMap, VecDeque};

use ropewalk_proto::time::{Duration, Instant};

use super::steps::{Cell, Steps, Tables};

/// A time before this program was written is that of a clock that is not set: 2026-01-01, seconds since 1970.
pub(super) const EARLIEST: u64 = 1_767_225_600;

/// Longest time between two looks of which is known what was carried when: the loop of a daemon at rest looks every
/// [90 s](super::recorder).
const MOST_SPREAD: Duration = Duration::from_secs(150);

/// Looks without a date that are kept: two hours of them. What older ones gained counts with the next.
const MOST_UNDATED: usize = 720;

/// Names of links that are remembered. A client has 64 at a time; those that come and go do not fill the memory. What one had when it
/// was forgotten is not known when it comes back: only what it gains from then on counts.
const MOST_NAMES: usize = 256;

/// The wall clock is said to be set when it moves by more than this against the other one: less is what time servers correct.
const LEAST_JUMP_S: i64 = 60;

/// Bytes both ways since the daemon began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Proxy to client.
    pub down: u64,
    /// Client to proxy.
    pub up: u64,
}

impl Counters {
    /// What was gained since `before`; counters that began again have gained nothing that is known.
    const fn since(self, before: Self) -> Self {
        Self { down: self.down.saturating_sub(before.down), up: self.up.saturating_sub(before.up) }
    }

    /// Of these the share of `part` in `whole`, rounded down.
    fn share(self, part: u64, whole: u64) -> Self {
        let share = |bytes: u64| {
            let share = u128::from(bytes) * u128::from(part) / u128::from(whole.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        Self { down: share(self.down), up: share(self.up) }
    }
}

/// What a daemon sees of itself at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// When, by the clock that never steps.
    pub at: Instant,
    /// When, by the wall clock: milliseconds since 1970.
    pub unix_ms: u64,
    /// Packets of all links together.
    pub all: Counters,
    /// The links, each name once.
    pub links: Vec<LinkSample>,
}

/// What a daemon sees of a link at one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSample {
    /// Its name.
    pub name: String,
    /// Datagrams with IP and UDP headers.
    pub counters: Counters,
    /// Whether it carries packets.
    pub carries: bool,
    /// Smoothed round-trip time.
    pub rtt: Option<Duration>,
    /// Share of recent datagrams lost, 0 to 1.
    pub loss: Option<f64>,
}

/// What was gained, as it comes.
#[derive(Debug)]
pub(super) struct Gather {
    /// When it was last looked with a date, and what there was then.
    looked: Instant,
    all: Counters,
    links: BTreeMap<String, Counters>,
    /// A name that is not among them may have had counters before.
    has_forgotten: bool,
    /// Both clocks at the last look: the wall clock in milliseconds since 1970.
    clocks: (Instant, u64),
    undated: VecDeque<Sample>,
    tables: Tables,
}

impl Gather {
    /// Of a daemon whose counters are zero now; `unix_ms` is the wall clock.
    pub(super) fn new(now: Instant, unix_ms: u64) -> Self {
        let (links, undated) = (BTreeMap::new(), VecDeque::new());
        let (all, tables) = (Counters::default(), Tables::default());
        let (clocks, has_forgotten) = ((now, unix_ms), false);
        Self { looked: now, all, links, has_forgotten, clocks, undated, tables }
    }

    /// Goes on from this look: what was gained before it is nobody's business. What is at hand is forgotten.
    pub(super) fn begin_again(&mut self, sample: Sample) {
        let Sample { at, unix_ms, all, links } = sample;
        let links = links.into_iter().map(|link| (link.name, link.counters)).collect();
        // A link that is not there now had its counters before, too.
        *self = Self { all, links, has_forgotten: true, ..Self::new(at, unix_ms) };
    }

    /// What was gained and nobody took yet.
    pub(super) const fn tables(&self) -> &Tables {
        &self.tables
    }

    /// The same, to be taken or forgotten.
    pub(super) const fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// When it was last looked.
    pub(super) const fn looked(&self) -> Instant {
        self.clocks.0
    }

    /// Seconds since 1970 at the last look; `None`: the clock is not set.
    pub(super) fn present(&self) -> Option<u64> {
        Some(self.clocks.1 / 1000).filter(|seconds| *seconds >= EARLIEST)
    }

    /// The date of an instant, seconds since 1970, as the wall clock has it now; `None`: it is not set.
    pub(super) fn date_of(&self, at: Instant) -> Option<u64> {
        let (present, looked) = (self.present()?, self.looked());
        let ago = looked.since(at).as_secs();
        Some(present.saturating_sub(ago).saturating_add(at.since(looked).as_secs()))
    }

    /// Another look. `day_of`: the step of [`Steps::Days`] for a time since 1970. Returns by how many seconds the wall clock was set
    /// since the last look, if it was.
    pub(super) fn add(&mut self, sample: Sample, day_of: impl Fn(u64) -> u64) -> Option<i64> {
        let jump = self.note_clocks(&sample);
        if sample.unix_ms / 1000 < EARLIEST {
            if self.undated.len() == MOST_UNDATED {
                self.undated.pop_front();
            }
            self.undated.push_back(sample);
            return None;
        }
        let (at, unix_ms) = (sample.at, sample.unix_ms);
        for undated in std::mem::take(&mut self.undated) {
            let unix_ms = unix_ms.saturating_sub(millis(at.since(undated.at)));
            self.note(Sample { unix_ms, ..undated }, &day_of);
        }
        self.note(sample, &day_of);
        jump
    }

    fn note_clocks(&mut self, sample: &Sample) -> Option<i64> {
        let (at, unix_ms) = std::mem::replace(&mut self.clocks, (sample.at, sample.unix_ms));
        let expected = unix_ms.saturating_add(millis(sample.at.since(at)));
        let seconds = |ms: u64| i64::try_from(ms / 1000).unwrap_or(i64::MAX);
        let jump = seconds(sample.unix_ms) - seconds(expected);
        (jump.abs() >= LEAST_JUMP_S).then_some(jump)
    }

    fn note(&mut self, sample: Sample, day_of: &impl Fn(u64) -> u64) {
        let Sample { at, unix_ms: to, all, mut links } = sample;
        links.truncate(MOST_NAMES);
        let passed = at.since(self.looked);
        if passed.is_zero() {
            return;
        }
        self.looked = at;
        let day = day_of(to / 1000);
        let time = Time { from: to.saturating_sub(millis(passed)), to };
        let is_known = passed <= MOST_SPREAD;
        let before = std::mem::replace(&mut self.all, all);
        self.gained("", all.since(before), day, is_known.then_some((time, None)));
        for link in &links {
            let unknown = if self.has_forgotten { link.counters } else { Counters::default() };
            let before = self.links.insert(link.name.clone(), link.counters);
            let gained = link.counters.since(before.unwrap_or(unknown));
            if !link.carries && gained == Counters::default() {
                continue;
            }
            let seen = is_known.then_some((time, Some(link)));
            self.gained(&link.name, gained, day, seen);
        }
        self.forget_names(&links);
    }

    /// Of too many names some go whose links are not there now.
    fn forget_names(&mut self, present: &[LinkSample]) {
        let mut spare = self.links.len().saturating_sub(MOST_NAMES);
        self.has_forgotten |= spare > 0;
        self.links.retain(|name, _| {
            let goes = spare > 0 && present.iter().all(|link| link.name != *name);
            spare -= usize::from(goes);
            !goes
        });
    }

    /// What one link, or all together, gained on a day and, where that is known, within a time.
    fn gained(
        &mut self,
        name: &str,
        gained: Counters,
        day: u64,
        seen: Option<(Time, Option<&LinkSample>)>,
    ) {
        let Counters { down, up } = gained;
        self.tables.add(Steps::Days, day, name, &Cell { down, up, ..Cell::default() });
        let Some((time, link)) = seen else { return };
        let carries = link.is_none_or(|link| link.carries);
        let measured = link.filter(|_| carries);
        let rtt = measured.and_then(|link| link.rtt);
        let rtt_us = rtt.map(|rtt| u32::try_from(rtt.as_micros()).unwrap_or(u32::MAX));
        let lost_ppm = measured.and_then(|link| link.loss).map(millionths);
        for steps in Steps::RATES {
            time.spread(steps, gained, |start, lasted, part| {
                let lasted = u32::try_from(lasted).unwrap_or(u32::MAX);
                let covered_ms = if carries { lasted } else { 0 };
                let Counters { down, up } = part;
                let cell = Cell { covered_ms, down, up, rtt_us, lost_ppm };
                self.tables.add(steps, start, name, &cell);
            });
        }
    }
}

/// From one moment to another, milliseconds since 1970.
#[derive(Clone, Copy, Debug)]
struct Time {
    from: u64,
    to: u64,
}

impl Time {
    /// Gives each step that it touches, with its milliseconds there, its part of what was gained. The parts add up.
    fn spread(self, steps: Steps, gained: Counters, mut each: impl FnMut(u64, u64, Counters)) {
        let (length, whole) = (steps.seconds() * 1000, self.to - self.from);
        let (mut at, mut given) = (self.from, Counters::default());
        while at < self.to {
            let start = at - at % length;
            let end = (start + length).min(self.to);
            let until = gained.share(end - self.from, whole);
            each(start / 1000, end - at, until.since(given));
            (at, given) = (end, until);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of one has at most a million millionths, and a float cast saturates"
)]
fn millionths(share: f64) -> u32 {
    (share.clamp(0.0, 1.0) * 1e6).round() as u32
}

#[cfg(test)]
mod tests;
