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

/// Open datagrams remembered: a full window, and as many that are confirmed while one before them is not.
const MAX_OPEN: usize = 2 * MAX_WINDOW as usize;

/// Of these, datagrams outside the window: the reports that 1 Gbit/s elicits (one for 11,000 bytes) in the half second after
/// which one of them asks to be confirmed. The peer chooses how many it elicits, and whether it confirms them. That one is
/// remembered longer, among the lost; of the others nobody needs to know more.
const MAX_OUTSIDE: usize = 6 * 1024;

/// Lost datagrams remembered: half a full window; at 1,000 losses a second it is [`LOST_MEMORY`].
const MAX_LOST: usize = MAX_WINDOW as usize / 2;

/// How long a lost datagram, and one outside the window, may still be confirmed. Longer than any stall that ends without the session
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

impl Settled {
    /// Whether it arrived.
    #[must_use]
    pub const fn arrived(&self) -> bool {
        matches!(self.fate, Fate::Confirmed | Fate::ConfirmedLate)
    }
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
    /// How many in `open` are outside the window.
    outside: usize,
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
            outside: 0,
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

    /// One more than the largest number that is confirmed; the first number before that.
    #[must_use]
    pub const fn confirmed_below(&self) -> u64 {
        self.confirmed_below
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

    /// When the datagram with this number left; `None`: it is not remembered any more.
    #[must_use]
    pub fn sent_at(&self, number: u64) -> Option<Instant> {
        self.open.get(self.index(number)?).map(|open| open.at)
    }

    /// Makes place for one more: the oldest counts as lost while as many as can be remembered are open, and what is outside the
    /// window does so when it is too old, too.
    pub fn make_place(&mut self, now: Instant, mut each: impl FnMut(Settled)) {
        self.forget_old(now);
        while self.open.len() >= MAX_OPEN || self.outside >= MAX_OUTSIDE || self.is_outdated(now) {
            if self.open.front().is_some_and(|open| !open.sent.in_window() && !open.sent.eliciting)
            {
                self.pop_front();
            } else {
                each(self.lose_front(now, Fate::TimedOut));
            }
            self.drop_confirmed_front();
        }
    }

    /// Nothing was sent for long: gives back what only datagrams under way need.
    pub fn release_memory(&mut self, now: Instant) {
        self.forget_old(now);
        while self.is_outdated(now) {
            self.pop_front();
            self.drop_confirmed_front();
        }
        self.open.shrink_to_fit();
        self.lost.shrink_to_fit();
    }

    /// A datagram takes the next number; there must be [place](Self::make_place).
    pub fn push(&mut self, now: Instant, sent: Sent, stamp: Stamp) -> u64 {
        let number = self.next();
        self.in_flight += u32::from(sent.places);
        self.outside += usize::from(!sent.in_window());
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
        let number = self.base;
        let open = self.pop_front().expect("the caller saw a front");
        self.in_flight -= u32::from(open.sent.places);
        if self.lost.len() >= MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back(Lost { number, at: open.at, lost_at: now, sent: open.sent, fate });
        Settled { number, sent_at: open.at, sent: open.sent, fate }
    }

    fn drop_confirmed_front(&mut self) {
        while self.open.front().is_some_and(|open| open.confirmed) {
            self.pop_front();
        }
    }

    /// Takes the first open datagram out.
    fn pop_front(&mut self) -> Option<Open> {
        let open = self.open.pop_front()?;
        self.base += 1;
        self.outside -= usize::from(!open.sent.in_window());
        Some(open)
    }

    /// Whether the first open datagram is outside the window, so that no timeout ends it, and too old to be heard of.
    fn is_outdated(&self, now: Instant) -> bool {
        let outside = self.open.front().filter(|open| !open.sent.in_window());
        outside.is_some_and(|open| now.since(open.at) > LOST_MEMORY)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::carried::{Packets, SizeEvidence};
    use crate::link::delivery::Delivery;

    const REPORT: Sent = Sent {
        size: 60,
        header: 28,
        places: 0,
        eliciting: false,
        window_limited: false,
        window_full: false,
        paced: false,
        carried: Carried {
            packets: Packets { first: 0, span: 0, count: 0 },
            report: None,
            size: SizeEvidence::None,
        },
    };

    /// What docs/SECURITY.md section 5 says of a link whose window is closed.
    const MOST_BYTES: usize = 3 << 20;

    fn send(datagrams: &mut SentDatagrams, now: Instant, sent: Sent) -> usize {
        let mut told = 0;
        datagrams.make_place(now, |_| told += 1);
        datagrams.push(now, sent, Delivery::default().on_sent(now, 0));
        told
    }

    fn bytes(datagrams: &SentDatagrams) -> usize {
        datagrams.open.capacity() * size_of::<Open>()
            + datagrams.lost.capacity() * size_of::<Lost>()
    }

    #[test]
    fn what_a_peer_elicits_and_never_confirms_takes_little_memory_and_gives_it_back() {
        for (eliciting, every_us) in [(false, 1), (true, 1), (false, 300), (true, 300)] {
            let mut datagrams = SentDatagrams::new(0);
            let at = |number: u64| Instant::from_micros(1_000_000 + number * every_us);
            for number in 0..100_000 {
                send(&mut datagrams, at(number), Sent { eliciting, ..REPORT });
                assert!(datagrams.open.len() <= MAX_OUTSIDE);
            }
            let most = bytes(&datagrams);
            assert!(most <= MOST_BYTES, "{eliciting} {every_us}: {most}");
            datagrams.release_memory(at(100_000) + LOST_MEMORY * 2);
            assert_eq!((datagrams.open.len(), datagrams.outside), (0, 0));
            assert!(bytes(&datagrams) < 1024, "{eliciting} {every_us}: {}", bytes(&datagrams));
            assert_eq!(datagrams.next(), 100_000, "numbers go on");
        }
    }

    #[test]
    fn a_report_that_asks_to_be_confirmed_can_be_while_many_follow_it() {
        let mut datagrams = SentDatagrams::new(0);
        let at = |number: u64| Instant::from_micros(1_000_000 + number * 50);
        let count = 2 * MAX_OUTSIDE as u64;
        let mut told = send(&mut datagrams, at(0), Sent { eliciting: true, ..REPORT });
        told += (1..count).map(|number| send(&mut datagrams, at(number), REPORT)).sum::<usize>();
        assert_eq!(told, 1, "of reports alone nobody hears");
        let mut confirmed = Vec::new();
        let ranges = [Range { first: 0, last: count - 1 }];
        assert_eq!(datagrams.check(&ranges), Ok(()));
        datagrams.confirm(&ranges, |one| confirmed.push((one.settled.number, one.settled.fate)));
        assert_eq!(confirmed.len(), MAX_OUTSIDE + 1);
        assert_eq!(confirmed[0], (0, Fate::ConfirmedLate));
        assert_eq!((datagrams.open.len(), datagrams.outside), (0, 0));
    }

    #[test]
    fn packets_in_the_window_are_remembered_beside_any_number_of_reports() {
        let mut datagrams = SentDatagrams::new(0);
        let now = Instant::from_millis(1_000);
        for _ in 0..100 {
            send(&mut datagrams, now, Sent { places: 1, eliciting: true, ..REPORT });
        }
        for _ in 0..MAX_OUTSIDE {
            send(&mut datagrams, now, REPORT);
        }
        assert_eq!((datagrams.in_flight(), datagrams.outside), (100, MAX_OUTSIDE));
        let mut late = 0;
        datagrams.make_place(now + LOST_MEMORY * 2, |_| late += 1);
        assert_eq!((late, datagrams.in_flight()), (100, 0), "they make place for newer ones");
    }
}
