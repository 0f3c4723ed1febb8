//! The receiving half of a connection: what is in order goes to the application at once, what is not waits
//! and is told in selective acknowledgements (RFC 2018), with what came twice (RFC 2883). Acknowledgements
//! are delayed ([`delay`]), and the window follows what the application takes ([`window`]).

mod delay;
mod window;

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use arrayvec::ArrayVec;
use ropewalk_proto::time::Instant;

use super::clock;
use super::segment::{SACK_RANGES, is_as_sent};
use delay::{Delay, ReceivedSegment};
use window::Window;

/// Ranges that are remembered for acknowledgements, the last one that changed first.
const REMEMBERED: usize = 4;
/// So many ranges are expected to be told; when a later one changes, what was held back is sent first.
const EXPECTED: usize = 2;
/// A clock may be behind by this much where links reorder.
const CLOCK_SLACK: u32 = 1;

/// Data as they came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data<'a> {
    /// Their place in the stream.
    pub(crate) offset: u64,
    pub(crate) payload: &'a [u8],
    /// The peer's clock, and ours as it saw it last.
    pub(crate) time: u32,
    pub(crate) echo: u32,
}

/// What an acknowledgement is to say.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Report {
    /// The next byte expected.
    pub(crate) number: u64,
    /// How many bytes from there on are taken.
    pub(crate) window: u64,
    /// The peer's clock.
    pub(crate) echo: u32,
    pub(crate) sacks: ArrayVec<Range<u64>, SACK_RANGES>,
}

/// The receiving half of one connection.
#[derive(Clone, Debug)]
pub(crate) struct Receiver {
    nxt: u64,
    /// What came out of order, by its start, without gaps or overlaps within one.
    early: BTreeMap<u64, u64>,
    /// Ranges to tell, the last one that changed first.
    sacks: ArrayVec<Range<u64>, REMEMBERED>,
    /// What came twice since the last acknowledgement.
    twice: Option<Range<u64>>,
    /// The peer's clock to echo.
    echo: u32,
    /// The next byte expected when the last acknowledgement was sent.
    reported: u64,
    delay: Delay,
    window: Window,
    /// Bytes that came altered or at the wrong place.
    wrong: u64,
}

impl Receiver {
    /// Expects segments of up to `mss` bytes.
    pub(crate) fn new(mss: u64) -> Self {
        Self {
            nxt: 0,
            early: BTreeMap::new(),
            sacks: ArrayVec::new(),
            twice: None,
            echo: 0,
            reported: 0,
            delay: Delay::default(),
            window: Window::new(mss),
            wrong: 0,
        }
    }

    /// The first clock of the peer.
    pub(crate) fn shook_hands(&mut self, time: u32) {
        self.echo = time;
    }

    /// The next byte expected: all before went to the application.
    pub(crate) const fn came(&self) -> u64 {
        self.nxt
    }

    /// Bytes that came altered.
    pub(crate) const fn wrong(&self) -> u64 {
        self.wrong
    }

    /// The clock of any segment that came, to echo if it is the next one expected.
    pub(crate) fn note_time(&mut self, offset: u64, time: u32) {
        if offset <= self.reported {
            self.echo = self.echo.max(time);
        }
    }

    /// Data came; `rtt` is the round trip as far as this end knows it from sending.
    pub(crate) fn handle_data(&mut self, now: Instant, data: &Data<'_>, rtt: Option<Duration>) {
        let range = data.offset..data.offset + data.payload.len() as u64;
        if range.is_empty() {
            return;
        }
        if !is_as_sent(data.offset, data.payload) {
            self.wrong += data.payload.len() as u64;
        }
        // A clock that ran back tells of a segment older than what came already (RFC 7323 §5).
        let is_old = data.time < self.echo.saturating_sub(CLOCK_SLACK);
        if is_old || range.end <= self.nxt {
            if range.start < self.nxt {
                self.twice = Some(range.start..range.end.min(self.nxt));
            }
            self.delay.quicken(self.window.offered(), self.window.segment());
            self.delay.want_now();
            return;
        }
        self.note_time(data.offset, data.time);
        self.window.measure_echo(clock(now), data.echo, range.end - range.start);
        if range.start <= self.nxt {
            self.take(now, &range);
        } else {
            self.keep(range);
        }
        let arrival = ReceivedSegment {
            nxt: self.nxt,
            unreported: self.nxt - self.reported,
            segment: self.window.segment(),
            has_holes: !self.early.is_empty(),
            rtt: rtt.into_iter().chain(self.window.rtt()).min(),
        };
        self.delay.decide(now, arrival);
    }

    /// What is in order, and what follows from it.
    fn take(&mut self, now: Instant, range: &Range<u64>) {
        let length = range.end - range.start;
        if range.start < self.nxt {
            self.twice = Some(range.start..self.nxt);
        }
        self.nxt = range.end;
        self.window.came(now, self.nxt, length);
        self.delay.data_came(now, self.window.offered(), self.window.segment());
        self.delay.quick_if(self.window.grow(length, self.waiting()));
        let had_holes = !self.early.is_empty();
        while let Some(entry) = self.early.first_entry()
            && *entry.key() <= self.nxt
        {
            let (start, end) = entry.remove_entry();
            if start < self.nxt {
                self.twice = Some(start..self.nxt.min(end));
            }
            self.nxt = self.nxt.max(end);
        }
        if had_holes && self.early.is_empty() {
            self.delay.want_now();
        }
        self.window.read(now, self.nxt, self.span());
        let nxt = self.nxt;
        self.sacks.retain(|sack| sack.start > nxt);
    }

    /// What is early waits.
    fn keep(&mut self, range: Range<u64>) {
        let before = self.early.range(..=range.start).next_back();
        if before.is_some_and(|(_, end)| *end >= range.end) {
            self.twice = Some(range.clone());
        } else {
            self.merge(range.clone());
            self.delay.quick_if(self.window.grow(range.end - range.start, self.waiting()));
            self.window.wait(self.span());
        }
        self.tell(range);
    }

    fn merge(&mut self, mut range: Range<u64>) {
        let touching = |start: u64, this: &Self| {
            let below = this.early.range(..=start).next_back();
            below.map(|(start, end)| *start..*end)
        };
        while let Some(other) = touching(range.end, self).filter(|other| other.end >= range.start) {
            self.early.remove(&other.start);
            range = range.start.min(other.start)..range.end.max(other.end);
        }
        self.early.insert(range.start, range.end);
    }

    /// Notes a range as the last one that changed.
    fn tell(&mut self, range: Range<u64>) {
        let touches =
            |one: &Range<u64>, other: &Range<u64>| one.start <= other.end && one.end >= other.start;
        let place = self.sacks.iter().position(|sack| touches(sack, &range));
        if place.unwrap_or(self.sacks.len()) >= EXPECTED && self.delay.is_holding() {
            self.delay.want_now();
        }
        let mut first = range;
        self.sacks.retain(|sack| {
            let merged = touches(sack, &first);
            if merged {
                first = first.start.min(sack.start)..first.end.max(sack.end);
            }
            !merged
        });
        self.sacks.truncate(REMEMBERED - 1);
        self.sacks.insert(0, first);
    }

    /// Bytes that wait.
    fn waiting(&self) -> u64 {
        self.early.iter().map(|(start, end)| end - start).sum()
    }

    /// From the next byte expected to the end of what waits.
    fn span(&self) -> u64 {
        self.early.last_key_value().map_or(0, |(_, end)| end - self.nxt)
    }

    /// When an acknowledgement is due that was delayed.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.delay.poll_timeout()
    }

    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        self.delay.handle_timeout(now);
    }

    /// The peer is to know at once.
    pub(crate) fn want_report(&mut self) {
        self.delay.want_now();
    }

    /// Whether an acknowledgement is due.
    pub(crate) const fn wants_report(&self) -> bool {
        self.delay.is_due()
    }

    /// What to say with a segment that is sent now.
    pub(crate) fn report(&mut self) -> Report {
        self.delay.reported();
        self.reported = self.nxt;
        let twice = self.twice.take();
        let sacks = twice.into_iter().chain(self.sacks.iter().cloned());
        let sacks = sacks.take(SACK_RANGES).collect();
        let window = self.window.offer(self.nxt, self.waiting());
        Report { number: self.nxt, window, echo: self.echo, sacks }
    }
}

#[cfg(test)]
mod tests;
