//! Segments that the near end need not send again: they are kept until the far end has confirmed them. Those that it told to have
//! beyond a hole are marked (the scoreboard of RFC 6675): they do not go again, and show which ones are lost.

mod marks;

use std::collections::VecDeque;
use std::mem;

use super::segment::{Range, beyond};
use crate::packet::buffer::PacketBuffer;
use crate::time::{Duration, Instant};
use marks::Marks;

/// Segments that are looked at for the ranges of one acknowledgement. What is left is marked with the next ones, which tell most
/// ranges once more: a far end that tells nonsense must not cost a walk through thousands for each of its words.
const MOST_LOOKED_AT: usize = 256;

/// A segment as it came, with all its headers.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) seq: u32,
    pub(super) end: u32,
    pub(super) packet: PacketBuffer,
    /// When it last went again.
    again_at: Option<Instant>,
    /// The far end told that it has it, and may still discard it (RFC 2018 §8).
    is_sacked: bool,
}

impl Kept {
    pub(super) const fn new(seq: u32, end: u32, packet: PacketBuffer) -> Self {
        Self { seq, end, packet, again_at: None, is_sacked: false }
    }
}

/// They, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Store {
    segments: VecDeque<Kept>,
    marks: Marks,
    /// Segments that the far end told to have since that was last asked.
    arrived: usize,
}

impl Store {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.segments.len()
    }

    /// Where the last one begins and ends.
    pub(super) fn last(&self) -> Option<Range> {
        self.segments.back().map(|kept| (kept.seq, kept.end))
    }

    /// Keeps one; nearly always the last.
    pub(super) fn keep(&mut self, kept: Kept) {
        self.marks.note_kept(kept.seq);
        let is_last = self.segments.back().is_none_or(|last| beyond(last.seq, kept.seq) <= 0);
        if is_last {
            return self.segments.push_back(kept);
        }
        // A sender may fill a long gap from its end on: to count places one by one would take ever longer.
        let at = self.segments.partition_point(|other| beyond(other.seq, kept.seq) <= 0);
        self.segments.insert(at, kept);
    }

    /// The far end has what lies in these ranges, each of which ends beyond its begin: segments that lie wholly in one are marked.
    /// Whether there was any range.
    ///
    /// Each costs a search for its begin and for the end of each part of it that is known (eight at most), and a look at each
    /// segment of the rest, nearly always the one or two that it has grown by; all of them together [`MOST_LOOKED_AT`].
    pub(super) fn mark(&mut self, ranges: impl Iterator<Item = Range>) -> bool {
        let mut left = MOST_LOOKED_AT;
        let mut is_told = false;
        for range in ranges {
            is_told = true;
            self.mark_range(range, &mut left);
        }
        is_told
    }

    fn mark_range(&mut self, (start, end): Range, left: &mut usize) {
        let mut at = self.first_from(start);
        let mut known = end;
        while let Some(kept) = self.segments.get_mut(at)
            && beyond(end, kept.seq) > 0
        {
            let seq = kept.seq;
            if let Some(to) = self.marks.known_to(seq) {
                at = self.first_from(to).max(at + 1);
                continue;
            }
            // One that is only begun may be in a longer range later.
            if *left == 0 || beyond(kept.end, end) > 0 {
                known = seq;
                break;
            }
            *left -= 1;
            if !kept.is_sacked {
                kept.is_sacked = true;
                self.marks.note_marked(seq);
                self.arrived += 1;
            }
            at += 1;
        }
        if beyond(known, start) > 0 {
            self.marks.remember((start, known));
        }
    }

    /// Where the first segment is that begins at this number or beyond.
    fn first_from(&self, number: u32) -> usize {
        self.segments.partition_point(|kept| beyond(number, kept.seq) > 0)
    }

    /// What is not marked and begins below this number is lost: the far end has enough beyond it.
    pub(super) fn lost_below(&self) -> Option<u32> {
        self.marks.lost_below()
    }

    /// Whether any segment is marked.
    pub(super) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// Whether the far end told to have one beyond the first, and not that.
    pub(super) fn begins_with_hole(&self) -> bool {
        self.has_marks() && self.segments.front().is_some_and(|first| !first.is_sacked)
    }

    /// How many segments the far end told to have since this was last asked.
    pub(super) fn take_arrived(&mut self) -> usize {
        mem::take(&mut self.arrived)
    }

    /// Where the first marked segment begins.
    pub(super) fn first_marked(&self) -> Option<u32> {
        self.segments.iter().find(|kept| kept.is_sacked).map(|kept| kept.seq)
    }

    /// The far end may have discarded what it told to have.
    pub(super) fn forget_marks(&mut self) {
        self.marks = Marks::default();
        self.segments.iter_mut().for_each(|kept| kept.is_sacked = false);
    }

    /// The far end has all below `confirmed`.
    pub(super) fn confirm(&mut self, confirmed: u32, mut free: impl FnMut(PacketBuffer)) {
        while self.segments.front().is_some_and(|first| beyond(first.end, confirmed) <= 0) {
            if let Some(first) = self.segments.pop_front() {
                self.arrived += usize::from(!first.is_sacked);
                free(first.packet);
            }
        }
        self.marks.confirm(confirmed);
    }

    /// All that is kept is needed no more.
    pub(super) fn clear(&mut self, mut free: impl FnMut(PacketBuffer)) {
        self.marks = Marks::default();
        self.segments.drain(..).for_each(|kept| free(kept.packet));
    }

    /// Behind the last of up to `most` segments that end behind `from`, begin below `below` and are not marked, and behind the marked
    /// ones that follow it.
    pub(super) fn end_of(&self, from: u32, below: u32, most: usize) -> u32 {
        let all = self.segments.iter().filter(|kept| beyond(kept.end, from) > 0);
        let mut left = most;
        let mut end = from;
        for kept in all.take_while(|kept| beyond(below, kept.seq) > 0) {
            if !kept.is_sacked {
                if left == 0 {
                    break;
                }
                left -= 1;
            }
            end = if beyond(kept.end, end) > 0 { kept.end } else { end };
        }
        end
    }

    /// Up to `most` that end behind `from`, begin below `below`, are not marked, and did not go again during `pause`.
    pub(super) fn again(
        &mut self,
        now: Instant,
        from: u32,
        below: u32,
        most: usize,
        pause: Duration,
    ) -> impl Iterator<Item = &Kept> {
        let all = self.segments.iter_mut();
        let missing = all.filter(move |kept| !kept.is_sacked && beyond(kept.end, from) > 0);
        let those = missing.take_while(move |kept| beyond(below, kept.seq) > 0);
        let rested = move |kept: &Kept| kept.again_at.is_none_or(|at| now.since(at) >= pause);
        let going = those.filter_map(move |kept| {
            rested(kept).then(|| {
                kept.again_at = Some(now);
                &*kept
            })
        });
        going.take(most)
    }
}
