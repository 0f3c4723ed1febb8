//! One step of a speed test while it goes on: what its links have carried, and whether it is over.

use std::collections::VecDeque;

use ropewalk_control::api::{Speed, SpeedWay};
use ropewalk_proto::client::LinkKey;
use ropewalk_proto::time::{Duration, Instant};

use super::Engine;
use super::figures::{Reading, Span, rate};
use super::plan::Step;

/// So much of a step, in percent, the rate is looked for: it does not count.
const RUN_IN_PERCENT: u32 = 30;

/// Test data that does not grow for so long has come to its bound, where it is near it. Two renewals of a grant may be lost in it.
const STALL: Duration = Duration::from_millis(500);

/// Bytes that may be missing to a bound that was reached: two datagrams.
const SLACK: u64 = 3000;

/// The rate that is shown is that of so many readings, about a second.
const SHOWN: usize = 20;

/// Over less than this, two readings, nothing is found.
const LEAST: Duration = Duration::from_millis(50);

/// One link in a step.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its place among all.
    pub(super) at: usize,
    pub(super) key: LinkKey,
    /// Most bytes of test data on it in this step.
    pub(super) most: u64,
}

/// Whether a step goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Progress {
    GoesOn,
    /// Its time is over.
    Over,
    /// The data that it may use is used up.
    UsedUp,
}

/// The counters of the step's links at a moment.
#[derive(Clone, Debug)]
struct Moment {
    at: Instant,
    links: Vec<Option<Reading>>,
}

/// A step that goes on.
#[derive(Debug)]
pub(super) struct Phase {
    pub(super) step: Step,
    pub(super) parts: Vec<Part>,
    /// Most bytes of test data in it.
    most: u64,
    began: Instant,
    pub(super) until: Instant,
    /// How long it takes.
    time: Duration,
    /// From the beginning to the end of the run-in.
    run_in: Vec<Moment>,
    /// Whether that is over.
    counts: bool,
    before: Moment,
    last: Moment,
    /// Test data of each link so far, at most; and what was taken of that.
    used: Vec<u64>,
    taken: Vec<u64>,
    /// Test data so far, at the last reading at which it had grown.
    tested: u64,
    grown: Moment,
    /// The one before that: up to then test data went all the time.
    full: Moment,
    /// Bytes of packets so far, at the last readings.
    shown: VecDeque<(Instant, u64)>,
}

impl Phase {
    /// It begins, with at most so many bytes of test data on all links.
    pub(super) fn begin(
        now: Instant,
        step: Step,
        time: Duration,
        parts: Vec<Part>,
        most: u64,
        engine: &impl Engine,
    ) -> Self {
        let first = Moment::read(now, &parts, engine);
        let none = vec![0; parts.len()];
        Self {
            step,
            parts,
            most,
            began: now,
            until: now + time,
            time,
            run_in: vec![first.clone()],
            counts: false,
            before: first.clone(),
            used: none.clone(),
            taken: none,
            tested: 0,
            grown: first.clone(),
            full: first.clone(),
            last: first,
            shown: VecDeque::from([(now, 0)]),
        }
    }

    /// Reads what the links have carried by now.
    pub(super) fn look(&mut self, now: Instant, engine: &mut impl Engine) -> Progress {
        let moment = Moment::read(now, &self.parts, engine);
        self.note_used(&moment.links);
        self.before = std::mem::replace(&mut self.last, moment);
        if !self.counts {
            self.run_in.push(self.last.clone());
            if self.elapsed(now) >= self.time * RUN_IN_PERCENT / 100 {
                self.counts = true;
                engine.forget_trips();
            }
        }
        let Some(way) = self.step.way() else { return self.timed(now) };
        if self.shown.len() > SHOWN {
            self.shown.pop_front();
        }
        self.shown.push_back((now, self.carried(way)));
        let tested = self.tested(way);
        let all: u64 = tested.iter().sum();
        if all > self.tested {
            self.tested = all;
            self.full = std::mem::replace(&mut self.grown, self.last.clone());
        }
        if self.has_used_up(now, &tested) { Progress::UsedUp } else { self.timed(now) }
    }

    fn timed(&self, now: Instant) -> Progress {
        if now >= self.until { Progress::Over } else { Progress::GoesOn }
    }

    /// For how long it has gone on.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now.since(self.began)
    }

    /// How long it takes if nothing ends it.
    pub(super) const fn time(&self) -> Duration {
        self.time
    }

    /// What was under way when it ended has come, or is lost.
    pub(super) fn settle(&mut self, engine: &impl Engine) {
        let links = readings(&self.parts, engine);
        self.note_used(&links);
    }

    /// Test data of each link since the last call, also what was lost: bytes with IP and UDP headers.
    pub(super) fn take_used(&mut self) -> Vec<u64> {
        let taken = std::mem::replace(&mut self.taken, self.used.clone());
        self.used.iter().zip(taken).map(|(used, taken)| used.saturating_sub(taken)).collect()
    }

    /// What the links used until these readings. What was found once stays, also of a link that is gone.
    fn note_used(&mut self, links: &[Option<Reading>]) {
        let Some(way) = self.step.way() else { return };
        let before = self.run_in.first().map_or(&[][..], |moment| &moment.links);
        let links = before.iter().zip(links).map(|(before, after)| Span::of_link(*before, *after));
        for ((part, used), span) in self.parts.iter().zip(&mut self.used).zip(links) {
            // The end that sends it keeps to its bounds.
            let most = part.most.min(self.most);
            let found = span.map_or(0, |span| span.used(way).min(most));
            *used = (*used).max(found);
        }
    }

    /// Test data of each link that arrived, bytes with IP and UDP headers.
    fn tested(&self, way: SpeedWay) -> Vec<u64> {
        let spans = spans(self.run_in.first(), &self.last);
        spans.map(|span| span.map_or(0, |span| span.test_bytes(way))).collect()
    }

    /// What a link, by its place in this step, carried between the last two readings, both ways.
    pub(super) fn lately(&self, part: usize) -> u64 {
        let span = spans(Some(&self.before), &self.last).nth(part).flatten();
        span.map_or(0, |span| span.all_bytes())
    }

    /// Bits per second of packets and test data, in about the last second.
    pub(super) fn rate(&self) -> f64 {
        let ends = self.shown.front().zip(self.shown.back());
        ends.map_or(0.0, |((from, before), (to, after))| {
            rate(after.saturating_sub(*before), to.since(*from))
        })
    }

    /// The figures of each link so far. If its data was used up, only the time counts in which there was some.
    ///
    /// # Errors
    /// Why there are none, for people.
    pub(super) fn speeds(
        &self,
        way: SpeedWay,
        cut_short: bool,
        engine: &impl Engine,
    ) -> Vec<Result<Speed, &'static str>> {
        let end = if cut_short { &self.full } else { &self.last };
        let base = self.base(end);
        let over = base.map_or(Duration::ZERO, |base| end.at.since(base.at));
        let speed = |(part, span): (&Part, Option<Span>)| {
            let span = span.ok_or("it went down while it was tested")?;
            if over < LEAST {
                return Err("too little data for its rate: --max or --metered allow more");
            }
            let trip = |percent| {
                engine.trip(part.key, percent).map(|trip: Duration| trip.as_secs_f64() * 1e3)
            };
            let speed = span.speed(way, over);
            Ok(Speed { rtt_p50_ms: trip(50), rtt_p95_ms: trip(95), cut_short, ..speed })
        };
        self.parts.iter().zip(spans(base, end)).map(speed).collect()
    }

    /// From when on it counts: the end of the run-in, or of as large a part of the time that there was.
    fn base(&self, end: &Moment) -> Option<&Moment> {
        let known = self.run_in.last().filter(|_| self.counts);
        let from = self.began + end.at.since(self.began) * RUN_IN_PERCENT / 100;
        let early = || self.run_in.iter().find(|moment| moment.at >= from);
        known.filter(|base| end.at.since(base.at) >= LEAST).or_else(early)
    }

    fn carried(&self, way: SpeedWay) -> u64 {
        let spans = spans(self.run_in.first(), &self.last).flatten();
        spans.map(|span| span.carried(way)).sum()
    }

    fn has_used_up(&self, now: Instant, tested: &[u64]) -> bool {
        let parts = self.parts.iter().zip(tested).map(|(part, tested)| (part.most, *tested));
        let mut bounds = parts.chain([(self.most, self.tested)]);
        let stalls = now.since(self.grown.at) >= STALL;
        // What was lost on the way was sent, too.
        bounds.any(|(most, tested)| {
            tested.saturating_add(SLACK) >= most || (stalls && tested >= most / 5 * 4)
        })
    }
}

impl Moment {
    fn read(at: Instant, parts: &[Part], engine: &impl Engine) -> Self {
        Self { at, links: readings(parts, engine) }
    }
}

/// The counters of these links now.
fn readings(parts: &[Part], engine: &impl Engine) -> Vec<Option<Reading>> {
    parts.iter().map(|part| engine.reading(part.key)).collect()
}

/// The links from one moment to another.
fn spans<'a>(
    from: Option<&'a Moment>,
    to: &'a Moment,
) -> impl Iterator<Item = Option<Span>> + use<'a> {
    let before = from.map_or(&[][..], |moment| &moment.links);
    before.iter().zip(&to.links).map(|(before, after)| Span::between(*before, *after))
}
