//! What was sent and is not acknowledged: the scoreboard of selective acknowledgements (RFC 6675), one
//! entry a segment, with the three marks of Linux. A segment may be sacked, lost, and sent again; it is in
//! the network once, or never, or twice.

use std::collections::VecDeque;
use std::ops::Range;

use ropewalk_proto::time::Instant;

/// A segment under way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Sent {
    /// Its bytes of the stream.
    pub(crate) bytes: Range<u64>,
    /// When it was sent last.
    pub(crate) at: Instant,
    /// How many segments were known as delivered then.
    pub(crate) delivered: u64,
    /// It came out of order.
    pub(crate) sacked: bool,
    /// It is thought lost.
    pub(crate) lost: bool,
    /// A second transmission of it is thought under way.
    pub(crate) again: bool,
    /// It was ever sent again.
    pub(crate) ever_again: bool,
}

/// Whether the first of two, each told by its moment and its end, was sent after the second.
pub(crate) fn is_after(one: (Instant, u64), other: (Instant, u64)) -> bool {
    one > other
}

/// All segments between the first unacknowledged byte and the last one sent.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Scoreboard {
    /// By their place in the stream, without gaps.
    queue: VecDeque<Sent>,
    sacked: u32,
    lost: u32,
    again: u32,
    /// The end of the highest one that was sacked; of use while one is.
    highest_sacked: u64,
}

impl Scoreboard {
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Segments not acknowledged.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.queue.len()).unwrap_or(u32::MAX)
    }

    pub(crate) const fn sacked(&self) -> u32 {
        self.sacked
    }

    pub(crate) const fn lost(&self) -> u32 {
        self.lost
    }

    /// Second transmissions under way.
    pub(crate) const fn again(&self) -> u32 {
        self.again
    }

    /// Segments thought in the network.
    pub(crate) fn in_flight(&self) -> u32 {
        (self.len() + self.again).saturating_sub(self.sacked + self.lost)
    }

    /// The end of what is known to have come, whatever is missing before it.
    pub(crate) fn forward_ack(&self, una: u64) -> u64 {
        if self.sacked == 0 { una } else { self.highest_sacked.max(una) }
    }

    pub(crate) fn head(&self) -> Option<&Sent> {
        self.queue.front()
    }

    pub(crate) fn get(&self, place: usize) -> Option<&Sent> {
        self.queue.get(place)
    }

    /// A segment was sent for the first time.
    pub(crate) fn push(&mut self, bytes: Range<u64>, at: Instant, delivered: u64) {
        let (sacked, lost, again, ever_again) = (false, false, false, false);
        self.queue.push_back(Sent { bytes, at, delivered, sacked, lost, again, ever_again });
    }

    /// Takes the first segment if it lies below `una`. One that `una` cuts loses its head.
    pub(crate) fn pop_below(&mut self, una: u64) -> Option<Sent> {
        let head = self.queue.front_mut()?;
        if head.bytes.end > una {
            head.bytes.start = head.bytes.start.max(una);
            return None;
        }
        let sent = self.queue.pop_front()?;
        self.sacked -= u32::from(sent.sacked);
        self.lost -= u32::from(sent.lost);
        self.again -= u32::from(sent.again);
        Some(sent)
    }

    /// The places of the segments that lie wholly within `bytes`.
    pub(crate) fn within(&self, bytes: &Range<u64>) -> Range<usize> {
        let first = self.queue.partition_point(|sent| sent.bytes.start < bytes.start);
        let end = self.queue.partition_point(|sent| sent.bytes.end <= bytes.end);
        first..end.max(first)
    }

    /// All places.
    pub(crate) fn places(&self) -> Range<usize> {
        0..self.queue.len()
    }

    /// It came. What was thought lost is not; a second transmission of what was not thought lost is
    /// believed under way still.
    pub(crate) fn sack(&mut self, place: usize) {
        let Some(sent) = self.queue.get_mut(place).filter(|sent| !sent.sacked) else { return };
        if sent.lost {
            self.lost -= 1;
            self.again -= u32::from(sent.again);
            (sent.lost, sent.again) = (false, false);
        }
        sent.sacked = true;
        self.sacked += 1;
        self.highest_sacked = self.highest_sacked.max(sent.bytes.end);
    }

    /// Its second transmission came too.
    pub(crate) fn came_twice(&mut self, place: usize) {
        if let Some(sent) = self.queue.get_mut(place).filter(|sent| sent.again) {
            sent.again = false;
            self.again -= 1;
        }
    }

    /// It is thought lost, and so is its second transmission; `true` if that is new.
    pub(crate) fn lose(&mut self, place: usize) -> bool {
        let Some(sent) = self.queue.get_mut(place).filter(|sent| !sent.sacked) else {
            return false;
        };
        let is_new = !sent.lost || sent.again;
        self.again -= u32::from(sent.lost && sent.again);
        sent.again &= !sent.lost;
        self.lost += u32::from(!sent.lost);
        sent.lost = true;
        is_new
    }

    /// Nothing is thought lost any more.
    pub(crate) fn find_all(&mut self) {
        self.queue.iter_mut().for_each(|sent| sent.lost = false);
        self.lost = 0;
    }

    /// It was sent again; `counts`: as a repair that is under way now.
    pub(crate) fn sent_again(&mut self, place: usize, at: Instant, delivered: u64, counts: bool) {
        let Some(sent) = self.queue.get_mut(place) else { return };
        (sent.at, sent.delivered, sent.ever_again) = (at, delivered, true);
        if counts && !sent.again {
            sent.again = true;
            self.again += 1;
        }
    }

    /// Cuts a segment after `len` bytes, if it is longer.
    pub(crate) fn split(&mut self, place: usize, len: u64) {
        let Some(sent) = self.queue.get_mut(place) else { return };
        let cut = sent.bytes.start + len;
        if len == 0 || cut >= sent.bytes.end {
            return;
        }
        let mut rest = sent.clone();
        rest.bytes.start = cut;
        sent.bytes.end = cut;
        self.sacked += u32::from(rest.sacked);
        self.lost += u32::from(rest.lost);
        self.again += u32::from(rest.again);
        self.queue.insert(place + 1, rest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten segments of a hundred bytes.
    fn ten() -> Scoreboard {
        let mut board = Scoreboard::default();
        (0..10).for_each(|n| board.push(n * 100..n * 100 + 100, Instant::from_millis(n), 0));
        board
    }

    #[test]
    fn each_mark_counts_for_what_is_in_the_network() {
        let mut board = ten();
        assert_eq!(board.in_flight(), 10);
        board.within(&(300..500)).for_each(|place| board.sack(place));
        assert_eq!((board.in_flight(), board.forward_ack(0)), (8, 500));
        assert!(board.lose(1) && !board.lose(1) && !board.lose(3));
        assert_eq!(board.in_flight(), 7);
        board.sent_again(1, Instant::from_millis(50), 2, true);
        assert_eq!((board.in_flight(), board.again()), (8, 1));
        // Lost again.
        assert!(board.lose(1));
        assert_eq!((board.in_flight(), board.again(), board.lost()), (7, 0, 1));
        board.sent_again(1, Instant::from_millis(60), 2, true);
        board.sack(1);
        assert_eq!((board.in_flight(), board.again(), board.lost()), (7, 0, 0));
        while board.pop_below(500).is_some() {}
        assert_eq!((board.in_flight(), board.len(), board.sacked()), (5, 5, 0));
        assert_eq!(board.forward_ack(500), 500);
    }

    #[test]
    fn only_whole_segments_lie_within_a_range() {
        let board = ten();
        assert_eq!(board.within(&(250..600)), 3..6);
        assert_eq!(board.within(&(210..290)).len(), 0);
        assert_eq!(board.within(&(950..2000)).len(), 0);
    }

    #[test]
    fn the_parts_of_a_segment_have_its_marks() {
        let mut board = ten();
        board.lose(2);
        board.split(2, 60);
        board.split(2, 60);
        assert_eq!((board.len(), board.lost(), board.in_flight()), (11, 2, 9));
        assert_eq!(board.get(3).map(|sent| sent.bytes.clone()), Some(260..300));
        assert_eq!(board.pop_below(50), None);
        assert_eq!(board.head().map(|sent| sent.bytes.clone()), Some(50..100));
    }
}
