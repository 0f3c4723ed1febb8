//! Which local numbers of a link arrived, and the report that tells the peer.
//!
//! The numbers are kept as ranges, highest first. A range is *unconfirmed* until the peer has confirmed a
//! report that held it as it is now; every report repeats the unconfirmed ranges, so that a lost report
//! loses nothing. The highest range is always reported: it carries the largest number. If a link reorders far, more are
//! unconfirmed than a report holds. With a controller that forgives losses, a report holds all ranges down to the lowest unconfirmed
//! one then, as a bitmap, and more is remembered, so that nothing is taken for lost that came; with one that follows losses the
//! highest go first.
//!
//! Ranges stay known after they were confirmed: a late number is told from a copy, and by how much it is late.
//! The set is bounded: the lowest range is forgotten first, and with it the gaps beneath.

use smallvec::SmallVec;

use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// Ranges in one report that names them: at 4 bytes each with varints they fit beside a small packet in a datagram of the base
/// size several times over, and 32 gaps are 1,600 datagrams at 2 % loss, each repeated in a hundred reports.
pub const MAX_REPORT_RANGES: usize = 32;

/// Ranges remembered: twice a report, so that gaps already confirmed do not push out unconfirmed ones.
const MAX_KEPT: usize = 2 * MAX_REPORT_RANGES;

/// Numbers below the highest range that a report in a bitmap tells of: 512 bytes beside 25 others fit in a datagram of the base
/// size, and are half a second of a link of 100 Mbit/s.
pub const MAX_BITMAP: usize = 4096;

/// Ranges remembered with a controller that forgives losses: if every second number of a bitmap came, as many as it tells.
/// The memory grows with the ranges.
const FORGIVING_KEPT: usize = MAX_BITMAP / 2;

/// Local numbers `first..=last`, all of which arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Range {
    /// The lowest number.
    pub first: u64,
    /// The highest number, not below `first`.
    pub last: u64,
}

/// The ranges of a report, highest first, none touching the next. Of more than [`MAX_REPORT_RANGES`] only the wire's bitmap tells.
pub type Ranges = SmallVec<[Range; MAX_REPORT_RANGES]>;

/// What a receiver tells about one link (PROTOCOL §7.2).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// The link reported on; a copy may travel on another one.
    pub link: LinkId,
    /// Microseconds between the arrival of the largest number and this report.
    pub delay_us: u32,
    /// Datagrams that ever arrived on this link with a congestion mark, modulo 2^32.
    pub ce_count: u32,
    /// Received numbers, highest first; never empty in a report that is sent.
    pub ranges: Ranges,
}

/// Where a number fell among those that came before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Placement {
    /// The next one.
    Next,
    /// Beyond the next one: a new gap.
    Ahead,
    /// Behind one that came earlier: it was overtaken by `distance` numbers, the first of which came
    /// `lateness` ago.
    Late {
        /// Largest number that has arrived minus this one.
        distance: u64,
        /// Time since the gap that it fills was first seen.
        lateness: Duration,
    },
    /// Known to have arrived already.
    Duplicate,
    /// Below everything that is remembered.
    Forgotten,
}

#[derive(Clone, Copy, Debug)]
struct Kept {
    first: u64,
    last: u64,
    /// When the gap beneath was first seen.
    opened: Instant,
    /// The first report that held the range as it is now, and all that followed.
    epoch: u64,
}

/// The numbers received on one link.
#[derive(Clone, Debug)]
pub struct Received {
    /// Highest first; none touches the next.
    kept: Vec<Kept>,
    /// Whether the controller forgives losses.
    forgives: bool,
    /// Everything below is forgotten.
    floor: u64,
    /// When the largest number arrived.
    largest_at: Instant,
    /// Reports sent so far.
    epoch: u64,
    /// Ranges of this epoch or an earlier one are confirmed.
    confirmed: u64,
    /// Unconfirmed ranges that had to be forgotten.
    forgotten: u64,
}

impl Received {
    /// Nothing received; the first number of the link is `first`.
    #[must_use]
    pub fn new(first: u64) -> Self {
        Self {
            kept: Vec::new(),
            forgives: false,
            floor: first,
            largest_at: Instant::ZERO,
            epoch: 0,
            confirmed: 0,
            forgotten: 0,
        }
    }

    /// Remembers more, and tells all of it, for a controller that forgives losses.
    pub fn forgive(&mut self) {
        self.forgives = true;
    }

    /// `number` arrived.
    #[inline]
    pub fn insert(&mut self, now: Instant, number: u64) -> Placement {
        let next = self.next();
        if number >= next {
            self.largest_at = now;
            let ahead = number > next;
            match self.kept.first_mut() {
                Some(top) if !ahead => {
                    top.last = number;
                    top.epoch = self.epoch + 1;
                }
                _ => self.keep(0, now, number),
            }
            return if ahead { Placement::Ahead } else { Placement::Next };
        }
        if number < self.floor {
            return Placement::Forgotten;
        }
        self.insert_late(now, number)
    }

    /// The largest number that arrived.
    #[must_use]
    pub fn largest(&self) -> Option<u64> {
        self.kept.first().map(|top| top.last)
    }

    /// Ranges whose report the peer has not confirmed.
    #[must_use]
    pub fn unconfirmed(&self) -> usize {
        self.kept.iter().filter(|kept| kept.epoch > self.confirmed).count()
    }

    /// Whether one of them is another than the highest, which every report holds.
    #[must_use]
    pub fn has_unconfirmed_gaps(&self) -> bool {
        self.kept.iter().skip(1).any(|kept| kept.epoch > self.confirmed)
    }

    /// Ranges that were forgotten before the peer confirmed them: it may take what arrived for lost.
    #[must_use]
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// When the largest number arrived.
    #[must_use]
    pub fn largest_at(&self) -> Instant {
        self.largest_at
    }

    /// The ranges of a report that is sent now: the highest, and all that are unconfirmed. Of more than a report names, the highest;
    /// or, for a controller that forgives losses, all down to the lowest unconfirmed one that a bitmap reaches.
    #[must_use]
    pub fn ranges(&self) -> Ranges {
        let unconfirmed = |kept: &&Kept| kept.epoch > self.confirmed;
        let below = || self.kept.iter().skip(1);
        let range = |kept: &Kept| Range { first: kept.first, last: kept.last };
        if self.forgives && below().filter(unconfirmed).nth(MAX_REPORT_RANGES - 1).is_some() {
            let top = self.kept[0].first;
            let reaches = |kept: &&Kept| top - kept.first <= MAX_BITMAP as u64;
            let lowest = self.kept.iter().rposition(|kept| unconfirmed(&kept)).unwrap_or(0);
            return self.kept[..=lowest].iter().take_while(reaches).map(range).collect();
        }
        self.kept
            .iter()
            .take(1)
            .chain(below().filter(unconfirmed))
            .take(MAX_REPORT_RANGES)
            .map(range)
            .collect()
    }

    /// A report with these `ranges` (at least one) of [`ranges`](Self::ranges) was sent. Returns the
    /// number to confirm it by.
    pub fn on_reported(&mut self, ranges: &[Range]) -> u64 {
        self.epoch += 1;
        let mut held = ranges.iter().peekable();
        for (index, kept) in self.kept.iter_mut().enumerate() {
            let is_held = held.next_if(|range| range.last == kept.last).is_some();
            // What was left out was not held by this report: it stays news.
            if !is_held && index > 0 && kept.epoch > self.confirmed {
                kept.epoch = self.epoch + 1;
            }
        }
        self.epoch
    }

    /// The peer has the report that [`on_reported`](Self::on_reported) numbered `epoch`.
    pub fn on_confirmed(&mut self, epoch: u64) {
        self.confirmed = self.confirmed.max(epoch.min(self.epoch));
    }

    /// Reports sent so far.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// One more than the largest number that arrived.
    fn next(&self) -> u64 {
        self.largest().map_or(self.floor, |largest| largest + 1)
    }

    /// Remembers `number` as a range of its own at `index`, forgetting the lowest range if need be.
    fn keep(&mut self, index: usize, opened: Instant, number: u64) {
        let most = if self.forgives { FORGIVING_KEPT } else { MAX_KEPT };
        if self.kept.len() >= most {
            if index == self.kept.len() {
                // It would be the lowest itself.
                self.floor = number + 1;
                self.forgotten += 1;
                return;
            }
            if let Some(lowest) = self.kept.pop() {
                self.floor = lowest.last + 1;
                self.forgotten += u64::from(lowest.epoch > self.confirmed);
            }
        }
        let epoch = self.epoch + 1;
        let range = Kept { first: number, last: number, opened, epoch };
        self.kept.insert(index, range);
    }

    /// A number below the largest and not below the floor.
    fn insert_late(&mut self, now: Instant, number: u64) -> Placement {
        // The lowest range above or around the number; there is one, for the number is not the largest.
        let around = self.kept.partition_point(|kept| kept.last >= number);
        let Some(above) = around.checked_sub(1) else { return Placement::Forgotten };
        if self.kept[above].first <= number {
            return Placement::Duplicate;
        }
        let opened = self.kept[above].opened;
        let distance = self.next() - 1 - number;
        let touches_above = self.kept[above].first == number + 1;
        let touches_below = self.kept.get(around).is_some_and(|below| below.last + 1 == number);
        match (touches_above, touches_below) {
            (true, true) => {
                let below = self.kept.remove(around);
                let above = &mut self.kept[above];
                (above.first, above.opened) = (below.first, below.opened);
                above.epoch = self.epoch + 1;
            }
            (true, false) => {
                let above = &mut self.kept[above];
                above.first = number;
                above.epoch = self.epoch + 1;
            }
            (false, true) => {
                let below = &mut self.kept[around];
                below.last = number;
                below.epoch = self.epoch + 1;
            }
            (false, false) => self.keep(around, opened, number),
        }
        Placement::Late { distance, lateness: now.since(opened) }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    /// Each number arrives a millisecond after the one before.
    fn received(numbers: &[u64]) -> Received {
        let mut received = Received::new(0);
        for (&number, millis) in numbers.iter().zip(0..) {
            received.insert(at(millis), number);
        }
        received
    }

    fn pairs(ranges: &Ranges) -> Vec<(u64, u64)> {
        ranges.iter().map(|range| (range.first, range.last)).collect()
    }

    #[test]
    fn arrivals_form_ranges() {
        for (numbers, ranges) in [
            (vec![], vec![]),
            (vec![0, 1, 2], vec![(0, 2)]),
            (vec![3, 4], vec![(3, 4)]),
            (vec![0, 2, 4], vec![(4, 4), (2, 2), (0, 0)]),
            (vec![0, 2, 4, 3], vec![(2, 4), (0, 0)]),
            (vec![0, 9, 8, 1], vec![(8, 9), (0, 1)]),
            (vec![0, 9, 5, 4, 6], vec![(9, 9), (4, 6), (0, 0)]),
            (vec![9, 5, 0, 5], vec![(9, 9), (5, 5), (0, 0)]),
            (vec![3, 1, 0, 2], vec![(0, 3)]),
        ] {
            assert_eq!(pairs(&received(&numbers).ranges()), ranges, "{numbers:?}");
        }
    }

    #[test]
    fn a_late_number_says_by_how_much() {
        let mut received = received(&[0, 1, 2, 5, 6]);
        assert_eq!(received.insert(at(9), 7), Placement::Next);
        assert_eq!(received.insert(at(9), 20), Placement::Ahead);
        let late = Placement::Late { distance: 16, lateness: MS * 7 };
        assert_eq!(received.insert(at(10), 4), late, "the gap was seen at 3 ms");
        let late = Placement::Late { distance: 17, lateness: MS * 8 };
        assert_eq!(received.insert(at(11), 3), late);
        assert_eq!(received.insert(at(12), 4), Placement::Duplicate);
        assert_eq!(Received::new(100).insert(at(1), 99), Placement::Forgotten);
    }

    #[test]
    fn ranges_are_repeated_until_a_report_that_held_them_is_confirmed() {
        let mut received = received(&[0, 2, 4]);
        let first = received.on_reported(&received.ranges());
        received.insert(at(9), 6);
        let second = received.on_reported(&received.ranges());
        assert_eq!(pairs(&received.ranges()), [(6, 6), (4, 4), (2, 2), (0, 0)]);
        received.on_confirmed(first);
        assert_eq!(pairs(&received.ranges()), [(6, 6)], "4 and below were in the first report");
        received.insert(at(10), 1);
        received.on_confirmed(second);
        assert_eq!(pairs(&received.ranges()), [(6, 6), (0, 2)], "0..2 changed after both");
        let third = received.on_reported(&received.ranges());
        received.on_confirmed(third);
        assert_eq!(pairs(&received.ranges()), [(6, 6)], "the largest is always told");
    }

    #[test]
    fn only_what_lies_beneath_a_gap_needs_a_confirmation() {
        let mut received = received(&[0, 1]);
        assert_eq!((received.unconfirmed(), received.has_unconfirmed_gaps()), (1, false));
        received.insert(at(9), 3);
        assert!(received.has_unconfirmed_gaps());
        let told = received.on_reported(&received.ranges());
        received.on_confirmed(told);
        received.insert(at(10), 4);
        assert_eq!((received.unconfirmed(), received.has_unconfirmed_gaps()), (1, false));
    }

    #[test]
    fn ranges_left_out_of_a_report_are_not_confirmed_by_it() {
        let mut received = received(&[0, 2, 4]);
        let cut = received.on_reported(&received.ranges()[..2]);
        received.on_confirmed(cut);
        assert_eq!(pairs(&received.ranges()), [(4, 4), (0, 0)]);
        let rest = received.on_reported(&received.ranges());
        received.on_confirmed(rest);
        assert_eq!(received.unconfirmed(), 0);
    }

    #[test]
    fn a_confirmation_of_a_report_never_sent_confirms_nothing() {
        let mut received = received(&[0, 2]);
        received.on_confirmed(77);
        assert_eq!(received.unconfirmed(), 2);
    }

    #[test]
    fn the_lowest_range_is_forgotten_first() {
        let even: Vec<_> = (0..1000).map(|n| n * 2).collect();
        let mut received = received(&even);
        let ranges = received.ranges();
        assert_eq!((ranges.len(), ranges[0].last), (MAX_REPORT_RANGES, 1998));
        assert_eq!(received.unconfirmed(), MAX_KEPT);
        assert_eq!(received.forgotten(), 1000 - 64);
        assert_eq!(received.insert(at(0), 1998 - 2 * 64), Placement::Forgotten);
    }

    #[test]
    fn if_more_is_unconfirmed_than_a_report_names_a_bitmap_tells_all_of_it() {
        let mut received = Received::new(0);
        received.forgive();
        (0..100).for_each(|n| {
            received.insert(at(n), n * 2);
        });
        let ranges = received.ranges();
        assert_eq!(ranges.len(), 100);
        let told = received.on_reported(&ranges);
        received.on_confirmed(told);
        assert_eq!(pairs(&received.ranges()), [(198, 198)]);
        received.insert(at(9), 51);
        assert_eq!(pairs(&received.ranges()), [(198, 198), (50, 52)], "few are named again");
    }

    #[test]
    fn a_bitmap_ends_where_its_length_does_and_what_is_beneath_stays_unconfirmed() {
        let mut received = Received::new(0);
        received.forgive();
        (0..3000).for_each(|n| {
            received.insert(at(n), n * 2);
        });
        assert_eq!((received.kept.len(), received.forgotten()), (MAX_BITMAP / 2, 3000 - 2048));
        received.insert(at(3001), 6001);
        (0..40).for_each(|n| {
            received.insert(at(4000), 6010 + n * 2);
        });
        let ranges = received.ranges();
        let reach = ranges[0].first - ranges.last().unwrap().first;
        assert!((4090..=4096).contains(&reach), "{reach}");
        let told = received.on_reported(&ranges);
        received.on_confirmed(told);
        assert_eq!(received.unconfirmed(), 2048 - ranges.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn the_set_agrees_with_a_plain_set(
            numbers in prop::collection::vec(0u64..60, 0..80),
        ) {
            let received = received(&numbers);
            let plain: BTreeSet<_> = numbers.iter().copied().collect();
            let from_ranges: BTreeSet<_> =
                received.ranges().iter().flat_map(|range| range.first..=range.last).collect();
            prop_assert_eq!(&from_ranges, &plain);
            for pair in received.ranges().windows(2) {
                prop_assert!(pair[1].last + 1 < pair[0].first, "ranges touch");
            }
        }
    }
}
