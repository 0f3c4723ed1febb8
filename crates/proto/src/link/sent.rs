//! The datagrams sent on one link, until a report says what became of them.
//!
//! Every local number is *open* from its sending until it is confirmed, lost or timed out; the open ones
//! stand in a queue without gaps that begins with the lowest unresolved number. A lost datagram is
//! remembered for a while longer: if a report confirms it after all, the loss was spurious, and whoever
//! counted it takes it back. So each datagram ends as exactly one of confirmed or lost, and reports may be
//! repeated, reordered or lost themselves.
//!
//! Once both queues have grown to the size of the window, nothing is allocated.

use std::collections::VecDeque;

use super::carried::Carried;
use super::delivery::Stamp;
use super::loss::MIN_THRESHOLD;
use super::received::Range;
use crate::congestion::MAX_WINDOW;
use crate::time::{Duration, Instant};

/// Open datagrams remembered: a full window, and as many outside it (reports in a flow of one direction,
/// at 10,000 a second, are confirmed within 1 s).
const MAX_OPEN: usize = 2 * MAX_WINDOW as usize;

/// Lost datagrams remembered: half a full window; at 1,000 losses a second it is [`LOST_MEMORY`].
const MAX_LOST: usize = MAX_WINDOW as usize / 2;

/// How long a lost datagram may still be confirmed. Longer than any stall that ends without the session
/// (a radio link keeps datagrams for a few seconds), and than twenty reports lost in a row.
const LOST_MEMORY: Duration = Duration::from_secs(10);

/// A sender with so many numbers beyond the largest confirmed one stops and probes: a quarter of the 24
/// bits on the wire, so that the receiver expands every number right (PROTOCOL §3).
pub const MAX_UNCONFIRMED: u64 = 1 << 22;

/// A datagram as the caller hands it in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sent {
    /// Bytes of outer UDP payload.
    pub size: u32,
    /// Bytes of IP and UDP headers in front of it.
    pub header: u8,
    /// Places that it takes in the congestion window: one for each packet in it, none if it carries none. Packets that
    /// share a datagram leave a link as much room as they would one by one.
    pub places: u8,
    /// Whether the peer reports it before long. One that does not elicit a report is confirmed when
    /// something else is.
    pub eliciting: bool,
    /// Whether more packets were waiting than the window let out.
    pub window_limited: bool,
    /// Whether the window had been full within the round trip before it.
    pub window_full: bool,
    /// Whether its link had been kept as busy as its pacing lets it be.
    pub paced: bool,
    /// What it carried.
    pub carried: Carried,
}

impl Sent {
    /// Whether it counts against the congestion window.
    #[must_use]
    pub const fn in_window(&self) -> bool {
        self.places > 0
    }
}

/// What became of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// It arrived.
    Confirmed,
    /// It arrived although it had been [`Lost`](Self::Lost) or [`TimedOut`](Self::TimedOut).
    ConfirmedLate,
    /// Enough later ones arrived.
    Lost,
    /// Nothing was confirmed for a whole timeout.
    TimedOut,
}

/// A datagram whose fate is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settled {
    /// Its local number.
    pub number: u64,
    /// When it was sent.
    pub sent_at: Instant,
    /// What the caller said of it.
    pub sent: Sent,
    /// What became of it.
    pub fate: Fate,
}

/// A report that no honest receiver sends; nothing of it was applied.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReportError {
    /// It has no ranges.
    #[error("a report without ranges")]
    Empty,
    /// A range is backwards, or ranges touch or are not ordered from the highest to the lowest.
    #[error("a report with disordered ranges")]
    Disordered,
    /// It confirms a number that was never sent.
    #[error("a report on {number}, but only numbers below {next} were sent")]
    NeverSent {
        /// The largest number reported.
        number: u64,
        /// The next number to be sent.
        next: u64,
    },
}

#[derive(Clone, Copy, Debug)]
struct Open {
    at: Instant,
    sent: Sent,
    stamp: Stamp,
    confirmed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    number: u64,
    at: Instant,
    lost_at: Instant,
    sent: Sent,
    fate: Fate,
}

/// A datagram that a report newly confirmed.
#[derive(Clone, Copy, Debug)]
pub struct Confirmed {
    /// It, with its fate.
    pub settled: Settled,
    /// What it remembered of the rate of delivery; `None` if it had counted as lost.
    pub stamp: Option<Stamp>,
    /// Whether it had counted as lost because others overtook it (not by a timeout).
    pub was_overtaken: bool,
}

/// The numbers of one link from the sender's side.
#[derive(Clone, Debug)]
pub struct SentDatagrams {
    open: VecDeque<Open>,
    /// The number of the first in `open`.
    base: u64,
    /// Ascending in number and in time.
    lost: VecDeque<Lost>,
    in_flight: u32,
    /// One more than the largest number confirmed; the first number before that.
    confirmed_below: u64,
    /// When the largest number confirmed was sent.
    largest_sent_at: Instant,
    /// When the first eliciting datagram beyond the largest confirmed one was sent.
    unanswered: Option<Instant>,
}

impl SentDatagrams {
    /// Nothing sent; the first number is `first`.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self {
            open: VecDeque::new(),
            base: first,
            lost: VecDeque::new(),
            in_flight: 0,
            confirmed_below: first,
            largest_sent_at: Instant::ZERO,
            unanswered: None,
        }
    }

    /// The number of the next datagram.
    #[must_use]
    pub fn next(&self) -> u64 {
        self.base + self.open.len() as u64
    }

    /// When the largest number that is confirmed was sent.
    #[must_use]
    pub fn largest_sent_at(&self) -> Instant {
        self.largest_sent_at
    }

    /// Places in the window of which nothing is known yet.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Numbers beyond the largest confirmed one.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        self.next() - self.confirmed_below
    }

    /// When the oldest eliciting datagram was sent to which, and to all after it, there was no answer.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.unanswered
    }

    /// Makes place for one more, if as many as can be remembered are open: the oldest counts as lost.
    pub fn make_place(&mut self, now: Instant) -> Option<Settled> {
        (self.open.len() >= MAX_OPEN).then(|| {
            let settled = self.lose_front(now, Fate::TimedOut);
            self.drop_confirmed_front();
            settled
        })
    }

    /// A datagram takes the next number; there must be [place](Self::make_place).
    pub fn push(&mut self, now: Instant, sent: Sent, stamp: Stamp) -> u64 {
        let number = self.next();
        self.in_flight += u32::from(sent.places);
        if sent.eliciting {
            self.unanswered.get_or_insert(now);
        }
        self.open.push_back(Open { at: now, sent, stamp, confirmed: false });
        number
    }

    /// Whether an honest receiver can have sent these ranges.
    ///
    /// # Errors
    /// [`ReportError`] says what is wrong with them.
    pub fn check(&self, ranges: &[Range]) -> Result<(), ReportError> {
        let largest = ranges.first().ok_or(ReportError::Empty)?.last;
        let backwards = ranges.iter().any(|range| range.first > range.last);
        // At least one missing number between two ranges: `last + 1 < first`, without overflow.
        let touching =
            ranges.windows(2).any(|pair| pair[1].last >= pair[0].first.saturating_sub(1));
        if backwards || touching {
            return Err(ReportError::Disordered);
        }
        let next = self.next();
        if largest >= next {
            return Err(ReportError::NeverSent { number: largest, next });
        }
        Ok(())
    }

    /// Confirms the numbers of `ranges` (already [`check`](Self::check)ed), in ascending order, those that
    /// counted as lost first.
    pub fn confirm(&mut self, ranges: &[Range], mut each: impl FnMut(Confirmed)) {
        for range in ranges.iter().rev() {
            self.confirm_lost(*range, &mut each);
        }
        for range in ranges.iter().rev() {
            self.confirm_open(*range, &mut each);
        }
        self.drop_confirmed_front();
        if let Some(top) = ranges.first().filter(|top| top.last >= self.confirmed_below) {
            self.confirmed_below = top.last + 1;
            self.unanswered = self.first_eliciting_from(top.last + 1);
        }
    }

    /// Declares lost what at least `threshold` later confirmed datagrams overtook, and what at least three
    /// overtook and was sent `window` before the largest confirmed one, or `overdue` before it. In ascending order.
    pub fn detect_lost(
        &mut self,
        now: Instant,
        threshold: u32,
        (window, overdue): (Duration, Option<Duration>),
        mut each: impl FnMut(Settled),
    ) {
        let (near, far) = self.overtaken_below(threshold);
        while let Some(front) = self.open.front() {
            let is_before = |time| front.at + time <= self.largest_sent_at;
            let few = self.base < near && is_before(window);
            let one = self.base < self.confirmed_below && overdue.is_some_and(is_before);
            if self.base >= far && !few && !one {
                break;
            }
            each(self.lose_front(now, Fate::Lost));
            self.drop_confirmed_front();
        }
    }

    /// Everything open is taken for lost. In ascending order.
    pub fn time_out(&mut self, now: Instant, mut each: impl FnMut(Settled)) {
        while !self.open.is_empty() {
            each(self.lose_front(now, Fate::TimedOut));
            self.drop_confirmed_front();
        }
    }

    /// Forgets losses that are too old to be taken back.
    pub fn forget_old(&mut self, now: Instant) {
        while self.lost.front().is_some_and(|lost| now.since(lost.lost_at) > LOST_MEMORY) {
            self.lost.pop_front();
        }
    }

    fn confirm_lost(&mut self, range: Range, each: &mut impl FnMut(Confirmed)) {
        let start = self.lost.partition_point(|lost| lost.number < range.first);
        let end = self.lost.partition_point(|lost| lost.number <= range.last);
        if start == end {
            return;
        }
        for lost in self.lost.drain(start..end) {
            if lost.number >= self.confirmed_below {
                self.largest_sent_at = lost.at;
            }
            each(Confirmed {
                settled: Settled {
                    number: lost.number,
                    sent_at: lost.at,
                    sent: lost.sent,
                    fate: Fate::ConfirmedLate,
                },
                stamp: None,
                was_overtaken: lost.fate == Fate::Lost,
            });
        }
    }

    fn confirm_open(&mut self, range: Range, each: &mut impl FnMut(Confirmed)) {
        if range.last < self.base {
            return;
        }
        let first = range.first.max(self.base);
        for number in first..=range.last {
            let Some(open) = self.index(number).and_then(|index| self.open.get_mut(index)) else {
                return;
            };
            if open.confirmed {
                continue;
            }
            open.confirmed = true;
            self.in_flight -= u32::from(open.sent.places);
            if number >= self.confirmed_below {
                self.largest_sent_at = open.at;
            }
            each(Confirmed {
                settled: Settled {
                    number,
                    sent_at: open.at,
                    sent: open.sent,
                    fate: Fate::Confirmed,
                },
                stamp: Some(open.stamp),
                was_overtaken: false,
            });
        }
    }

    /// The numbers below which everything was overtaken by at least three, and by `threshold`, confirmed
    /// datagrams.
    fn overtaken_below(&self, threshold: u32) -> (u64, u64) {
        let (mut near, mut far) = (self.base, self.base);
        let mut seen = 0;
        let reach =
            self.confirmed_below.checked_sub(self.base).and_then(|n| usize::try_from(n).ok());
        for index in (0..reach.unwrap_or(0).min(self.open.len())).rev() {
            seen += u32::from(self.open[index].confirmed);
            if seen == MIN_THRESHOLD && near == self.base {
                near += index as u64;
            }
            if seen >= threshold {
                far += index as u64;
                break;
            }
        }
        (near, far)
    }

    /// Moves the first open datagram, which is unresolved, to the lost ones.
    fn lose_front(&mut self, now: Instant, fate: Fate) -> Settled {
        let open = self.open.pop_front().expect("the caller saw a front");
        let number = self.base;
        self.base += 1;
        self.in_flight -= u32::from(open.sent.places);
        if self.lost.len() >= MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back(Lost { number, at: open.at, lost_at: now, sent: open.sent, fate });
        Settled { number, sent_at: open.at, sent: open.sent, fate }
    }

    fn drop_confirmed_front(&mut self) {
        while self.open.front().is_some_and(|open| open.confirmed) {
            self.open.pop_front();
            self.base += 1;
        }
    }

    fn first_eliciting_from(&self, number: u64) -> Option<Instant> {
        let lost = self.lost.partition_point(|lost| lost.number < number);
        let lost = self.lost.range(lost..).find(|lost| lost.sent.eliciting).map(|lost| lost.at);
        let open = || {
            let from = self.index(number.max(self.base)).unwrap_or(0).min(self.open.len());
            self.open.range(from..).find(|open| open.sent.eliciting).map(|open| open.at)
        };
        lost.or_else(open)
    }

    fn index(&self, number: u64) -> Option<usize> {
        number.checked_sub(self.base).and_then(|index| usize::try_from(index).ok())
    }
}
