//! Segments that the near end need not send again: they are kept until the far end has confirmed them.

use std::collections::VecDeque;

use super::segment::beyond;
use crate::packet::buffer::PacketBuffer;
use crate::time::{Duration, Instant};

/// A segment as it came, with all its headers.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) seq: u32,
    pub(super) end: u32,
    pub(super) packet: PacketBuffer,
    /// When it last went again.
    again_at: Option<Instant>,
}

impl Kept {
    pub(super) const fn new(seq: u32, end: u32, packet: PacketBuffer) -> Self {
        Self { seq, end, packet, again_at: None }
    }
}

/// They, by their numbers.
#[derive(Debug, Default)]
pub(super) struct Store {
    segments: VecDeque<Kept>,
}

impl Store {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Keeps one; nearly always the last.
    pub(super) fn keep(&mut self, kept: Kept) {
        let is_last = self.segments.back().is_none_or(|last| beyond(last.seq, kept.seq) <= 0);
        if is_last {
            return self.segments.push_back(kept);
        }
        // A sender may fill a long gap from its end on: to count places one by one would take ever longer.
        let at = self.segments.partition_point(|other| beyond(other.seq, kept.seq) <= 0);
        self.segments.insert(at, kept);
    }

    /// The far end has all below `confirmed`.
    pub(super) fn confirm(&mut self, confirmed: u32, mut free: impl FnMut(PacketBuffer)) {
        while self.segments.front().is_some_and(|first| beyond(first.end, confirmed) <= 0) {
            if let Some(first) = self.segments.pop_front() {
                free(first.packet);
            }
        }
    }

    /// All that is kept is needed no more.
    pub(super) fn clear(&mut self, mut free: impl FnMut(PacketBuffer)) {
        self.segments.drain(..).for_each(|kept| free(kept.packet));
    }

    /// Behind the last of up to `most` segments that end behind `from` and begin below `below`.
    pub(super) fn end_of(&self, from: u32, below: u32, most: usize) -> u32 {
        let all = self.segments.iter().filter(|kept| beyond(kept.end, from) > 0);
        let those = all.take_while(|kept| beyond(below, kept.seq) > 0).take(most);
        those.fold(from, |end, kept| if beyond(kept.end, end) > 0 { kept.end } else { end })
    }

    /// Up to `most` that end behind `from`, begin below `below`, and did not go again during `pause`.
    pub(super) fn again(
        &mut self,
        now: Instant,
        from: u32,
        below: u32,
        most: usize,
        pause: Duration,
    ) -> impl Iterator<Item = &Kept> {
        let all = self.segments.iter_mut().filter(move |kept| beyond(kept.end, from) > 0);
        let those = all.take_while(move |kept| beyond(below, kept.seq) > 0).take(most);
        let rested = move |kept: &Kept| kept.again_at.is_none_or(|at| now.since(at) >= pause);
        those.filter_map(move |kept| {
            rested(kept).then(|| {
                kept.again_at = Some(now);
                &*kept
            })
        })
    }
}
