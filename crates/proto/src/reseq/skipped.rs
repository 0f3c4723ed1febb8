//! The numbers that were passed over and may still come late: how a late packet is told from a
//! duplicate.
//!
//! Below the expected number every packet was either delivered or skipped. The skipped ones are few
//! and come in runs, so they are kept as ranges: a late packet is delivered if its number lies in one,
//! and is taken out, so that it can never be delivered twice. In-order traffic costs nothing here and
//! a jump over a million numbers costs one entry. When the list is full, the oldest range is forgotten;
//! what still comes from there cannot be told from a duplicate and is dropped and counted.

use super::Cause;
use std::collections::VecDeque;

/// Ranges kept. At 2 % loss and 10,000 packets a second these are the last ten seconds, twenty times
/// the longest time the resequencer waits; in memory at most 48 KiB.
const MAX_RANGES: usize = 2048;

/// Whether a number below the expected one may still be delivered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Below {
    /// It was skipped, for this reason, and had not come until now.
    Late(Cause),
    /// It was delivered before.
    Duplicate,
    /// So old that nobody remembers.
    Forgotten,
}

/// Numbers from `from` to below `to`.
#[derive(Clone, Copy, Debug)]
struct Range {
    from: u64,
    to: u64,
    cause: Cause,
}

/// Skipped numbers as sorted, disjoint ranges.
#[derive(Debug, Default)]
pub(super) struct Skipped {
    ranges: VecDeque<Range>,
    /// Everything below was forgotten.
    remembered_from: u64,
}

impl Skipped {
    /// Notes that `from..to` was passed over; called with rising numbers only.
    pub(super) fn push(&mut self, from: u64, to: u64, cause: Cause) {
        if from >= to {
            return;
        }
        match self.ranges.back_mut() {
            Some(last) if last.to == from && last.cause == cause => last.to = to,
            _ => self.ranges.push_back(Range { from, to, cause }),
        }
        self.bound();
    }

    /// Says what a packet below the expected number is; a late one is forgotten, so that it comes
    /// only once.
    pub(super) fn take(&mut self, number: u64) -> Below {
        if number < self.remembered_from {
            return Below::Forgotten;
        }
        let after = self.ranges.partition_point(|range| range.from <= number);
        let Some(index) = after.checked_sub(1) else { return Below::Duplicate };
        let Range { from, to, cause } = self.ranges[index];
        if number >= to {
            return Below::Duplicate;
        }
        match (number > from, number + 1 < to) {
            (false, false) => {
                self.ranges.remove(index);
            }
            (false, true) => self.ranges[index].from = number + 1,
            (true, false) => self.ranges[index].to = number,
            (true, true) => {
                self.ranges[index].to = number;
                self.ranges.insert(index + 1, Range { from: number + 1, to, cause });
                self.bound();
            }
        }
        Below::Late(cause)
    }

    fn bound(&mut self) {
        if self.ranges.len() > MAX_RANGES
            && let Some(Range { to, .. }) = self.ranges.pop_front()
        {
            self.remembered_from = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skipped_number_is_late_once_with_its_cause_and_a_duplicate_then() {
        let mut skipped = Skipped::default();
        skipped.push(10, 13, Cause::Deadline);
        skipped.push(13, 14, Cause::Proof);
        skipped.push(20, 21, Cause::Full);
        let table = [
            (9, Below::Duplicate),
            (11, Below::Late(Cause::Deadline)),
            (11, Below::Duplicate),
            (12, Below::Late(Cause::Deadline)),
            (13, Below::Late(Cause::Proof)),
            (10, Below::Late(Cause::Deadline)),
            (10, Below::Duplicate),
            (20, Below::Late(Cause::Full)),
            (20, Below::Duplicate),
            (30, Below::Duplicate),
        ];
        for (number, expected) in table {
            assert_eq!(skipped.take(number), expected, "{number}");
        }
        assert!(skipped.ranges.is_empty());
    }

    #[test]
    fn adjacent_runs_become_one_range() {
        let mut skipped = Skipped::default();
        for number in 0..100_000 {
            skipped.push(number, number + 1, Cause::Proof);
        }
        assert_eq!(skipped.ranges.len(), 1);
    }

    #[test]
    fn the_oldest_are_forgotten_rather_than_delivered_twice() {
        let mut skipped = Skipped::default();
        for number in 0..=MAX_RANGES as u64 {
            skipped.push(number * 2, number * 2 + 1, Cause::Proof);
        }
        assert_eq!(skipped.ranges.len(), MAX_RANGES);
        assert_eq!(skipped.take(0), Below::Forgotten);
        assert_eq!(skipped.take(2), Below::Late(Cause::Proof));
    }
}
