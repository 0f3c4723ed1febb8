//! What the far end does not confirm goes again: all of it after a wait that doubles, or what lies in a hole that it tells.

use super::Connection;
use crate::time::{Duration, Instant};
use crate::tunnel::local_ack::kept::Kept;
use crate::tunnel::local_ack::segment::{self, Segment, beyond};

/// The wait for the far end doubles so many times at most.
const MOST_DOUBLED: u32 = 6;

/// Segments that go again one after the other, twice as many with each that is confirmed (slow start, RFC 5681 §3.1).
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// The next one begins here.
    from: u32,
    /// The last one begins below.
    to: u32,
    /// So many go at once.
    most: usize,
    /// Some were confirmed, so the next go.
    is_due: bool,
}

impl Connection {
    /// A far end that takes nothing is not lost while it answers (RFC 1122 §4.2.2.17); when it takes some again, it may miss what
    /// it did not take.
    pub(super) fn note_window(&mut self, segment: &Segment) {
        let was_shut = std::mem::replace(&mut self.is_shut, segment.window == 0);
        if self.is_shut {
            self.timeouts = self.timeouts.min(MOST_DOUBLED - 1);
        } else if was_shut && self.keeps() {
            self.ask_for_all();
        }
    }

    /// What is kept goes again at once: the far end may have missed all of it.
    pub(in crate::tunnel::local_ack) fn ask_for_all(&mut self) {
        (self.timeouts, self.goes_again) = (0, self.keeps());
    }

    /// The far end has all below this.
    pub(super) fn recover(&mut self, confirmed: u32) {
        let Some(recovery) = &mut self.recovery else { return };
        // More than went again is confirmed: the first ones have arrived.
        if beyond(confirmed, recovery.from) > 0 || beyond(recovery.to, confirmed) <= 0 {
            self.recovery = None;
        } else {
            recovery.most = recovery.most.saturating_mul(2);
            recovery.is_due = true;
        }
    }

    /// The segments that are to go again: those of a hole that the far end told, or the first ones of all where it says nothing
    /// for `patience`. `is_waiting`: some of them have not gone yet.
    pub(in crate::tunnel::local_ack) fn again(
        &mut self,
        now: Instant,
        patience: Duration,
        is_waiting: bool,
    ) -> impl Iterator<Item = &Kept> {
        if self.kept.is_empty() || is_waiting {
            self.progress_at = self.progress_at.max(now);
        }
        let is_late = now >= self.late_at(patience) || (self.goes_again && !is_waiting);
        if is_late {
            if !std::mem::take(&mut self.goes_again) {
                self.timeouts = self.timeouts.saturating_add(1);
                self.far_window.on_loss();
            }
            self.progress_at = now;
            let (from, to) = (self.confirmed, self.next);
            self.recovery = Some(Recovery { from, to, most: 1, is_due: true });
        }
        let hole = self.hole.take();
        if hole.is_some() {
            self.far_window.on_loss();
        }
        let due = self.recovery.as_mut().filter(|recovery| recovery.is_due);
        let (from, below, most, pause) = match (due, hole) {
            (Some(recovery), _) => {
                recovery.is_due = false;
                let from = recovery.from;
                recovery.from = self.kept.end_of(from, recovery.to, recovery.most);
                (from, recovery.to, recovery.most, Duration::ZERO)
            }
            (None, Some(hole)) => (self.confirmed, hole, usize::MAX, patience / 2),
            (None, None) => (self.confirmed, self.confirmed, 0, Duration::ZERO),
        };
        self.kept.again(now, from, below, most, pause)
    }

    /// Writes what the near end says by now of the far one's numbers into a segment that goes again. A far end drops one that
    /// acknowledges too little (RFC 5961 §5), or has an old clock (RFC 7323 §5).
    pub(in crate::tunnel::local_ack) fn refresh(&self, packet: &mut [u8]) {
        segment::refresh(packet, self.near_ack, self.near_window, self.near_time);
    }

    fn late_at(&self, patience: Duration) -> Instant {
        self.progress_at + patience * (1 << self.timeouts.min(MOST_DOUBLED))
    }

    /// Whether the far end was waited for in vain so often that nobody will ever hear of it.
    pub(in crate::tunnel::local_ack) const fn is_lost(&self) -> bool {
        self.timeouts > MOST_DOUBLED
    }
}
