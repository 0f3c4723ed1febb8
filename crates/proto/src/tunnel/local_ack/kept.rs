//! Segments that the near end need not send again: they are kept until the far end has confirmed them.

use std::collections::VecDeque;

use super::segment::beyond;
use crate::queue::Label;
use crate::time::{Duration, Instant};

/// A segment as it came, with all its headers.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) seq: u32,
    pub(super) end: u32,
    pub(super) packet: Vec<u8>,
    pub(super) label: Label,
    /// When it last went again.
    again_at: Option<Instant>,
}

impl Kept {
    pub(super) const fn new(seq: u32, end: u32, packet: Vec<u8>, label: Label) -> Self {
        Self { seq, end, packet, label, again_at: None }
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
        let before = |other: &&Kept| beyond(other.seq, kept.seq) > 0;
        let behind = self.segments.iter().rev().take_while(before).count();
        self.segments.insert(self.segments.len() - behind, kept);
    }

    /// The far end has all below `confirmed`.
    pub(super) fn confirm(&mut self, confirmed: u32, mut free: impl FnMut(Vec<u8>)) {
        while self.segments.front().is_some_and(|first| beyond(first.end, confirmed) <= 0) {
            if let Some(first) = self.segments.pop_front() {
                free(first.packet);
            }
        }
    }

    /// All that is kept is needed no more.
    pub(super) fn clear(&mut self, mut free: impl FnMut(Vec<u8>)) {
        self.segments.drain(..).for_each(|kept| free(kept.packet));
    }

    /// Those that begin below `limit` and did not go again during `pause`; `None`: the first one alone.
    pub(super) fn again(
        &mut self,
        now: Instant,
        limit: Option<u32>,
        pause: Duration,
    ) -> impl Iterator<Item = &Kept> {
        let most = if limit.is_some() { usize::MAX } else { 1 };
        let is_below = move |kept: &&mut Kept| limit.is_none_or(|end| beyond(end, kept.seq) > 0);
        let rested = move |kept: &Kept| kept.again_at.is_none_or(|at| now.since(at) >= pause);
        self.segments.iter_mut().take(most).take_while(is_below).filter_map(move |kept| {
            rested(kept).then(|| {
                kept.again_at = Some(now);
                &*kept
            })
        })
    }
}
