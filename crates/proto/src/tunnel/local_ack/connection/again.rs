//! What the far end does not confirm goes again: all of it after a wait that doubles, or what lies in the holes that it tells.
//!
//! - **Holes** (RFC 6675): what it has beyond the first one it missed is marked. A segment that is not is lost once three beyond it
//!   are; all that are lost go at once, each again after half the wait at the earliest. Until all is confirmed that was under way by
//!   then, the first hole of that needs no more proof than something beyond it, as three segments may not follow (RFC 6582 §3.2).
//! - **As many as arrive**: the place behind the tunnel that dropped a thousand would drop most of them once more. So twice as many go
//!   at once as have arrived since the last look, and a sender's first window at least (RFC 6937).
//! - **Nothing told beyond** what it confirms, be it that it has no more, or that it tells no ranges: each acknowledgement that confirms
//!   a part of what was under way shows that the next segment is lost (RFC 6582), and so do three that say nothing new where it tells
//!   no ranges. From there on all goes again, one segment, two and so on, until the far end proves to have what comes next.
//! - **Too little beyond a hole, or nothing**: a wait takes the place of proof, and the last segment goes as a probe (`tail.rs`).
//! - **Nothing confirmed in time**: the far end may have discarded what it told to have (RFC 2018 §8). The marks are forgotten, and all
//!   goes again in the same way, but for what it tells to have from then on.

use super::Connection;
use super::tail::Found;
use crate::time::{Duration, Instant};
use crate::tunnel::local_ack::kept::Kept;
use crate::tunnel::local_ack::segment::{self, Range, Segment, beyond};

/// So many acknowledgements that say nothing new show that a segment is lost (RFC 5681 §3.2).
const DUPLICATES: u8 = 3;

/// Segments of holes that may go at once however little arrives: the first window of a sender (RFC 6928).
const LEAST_AT_ONCE: usize = 10;

/// And of each that arrives so many, as in slow start (RFC 6937, `PRR-SSRB`; RFC 5681 §3.1).
const FOR_EACH_ARRIVED: usize = 2;

/// The wait for the far end doubles so many times at most.
const MOST_DOUBLED: u32 = 6;

/// Segments that go again one after the other, twice as many each time that some are confirmed (slow start, RFC 5681 §3.1).
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

impl Recovery {
    const fn new(from: u32, to: u32) -> Self {
        Self { from, to, most: 1, is_due: true }
    }

    /// Whether the next ones are to go, and there are any.
    const fn is_due(&self) -> bool {
        self.is_due && beyond(self.to, self.from) > 0
    }
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
        } else if !recovery.is_due {
            // Once, however many acknowledgements confirm what went together.
            recovery.most = recovery.most.saturating_mul(2);
            recovery.is_due = true;
        }
    }

    /// The far end confirmed more. If that is a part of what it misses, the next hole shows.
    pub(super) fn note_repaired(&mut self) {
        self.duplicates = 0;
        self.repairing = self.repairing.filter(|to| beyond(*to, self.confirmed) > 0);
        self.looks_for_holes |= self.repairing.is_some();
    }

    /// What the far end has beyond what it confirms. Of ranges that lie elsewhere than between that and what was sent nothing is
    /// believed: one below tells what came twice (RFC 2883).
    pub(super) fn note_ranges(&mut self, segment: &Segment) {
        let confirmed = self.confirmed;
        let ahead = |number: u32| number.wrapping_sub(confirmed);
        let sent = ahead(self.sent);
        let is_right = |&(start, end): &Range| {
            ahead(start) > 0 && ahead(end) > ahead(start) && ahead(end) <= sent
        };
        let ranges = segment.sacks.into_iter().flatten().filter(is_right);
        self.looks_for_holes |= self.kept.mark(ranges);
    }

    /// A far end that tells no ranges acknowledges what it did before. It answers so, too, when it takes nothing, or what it had comes
    /// again.
    pub(super) fn note_duplicate(&mut self, segment: &Segment) {
        let shows_loss = segment.is_pure_ack() && !self.is_shut && self.recovery.is_none();
        if !shows_loss || self.outstanding() == 0 {
            return;
        }
        self.duplicates = self.duplicates.saturating_add(1);
        if self.duplicates == DUPLICATES {
            self.looks_for_holes = true;
            self.far_window.on_loss();
            // Of what came later nothing is shown yet.
            self.repairing.get_or_insert(self.next);
        }
    }

    /// A part of what was under way is confirmed, and nothing told beyond it: it goes again from there on.
    fn start_over(&mut self) {
        let Some(to) = self.repairing else { return };
        if self.looks_for_holes && self.recovery.is_none() && !self.kept.has_marks() {
            self.looks_for_holes = false;
            self.recovery = Some(Recovery::new(self.confirmed, to));
        }
    }

    /// Below which number that which the far end does not have is lost, and how many segments of it may go after so many arrived.
    fn holes(&mut self, arrived: usize) -> Option<(u32, usize)> {
        if !std::mem::take(&mut self.looks_for_holes) {
            return None;
        }
        let below = self.kept.lost_below().or_else(|| self.first_hole_ends())?;
        Some((below, LEAST_AT_ONCE.max(arrived * FOR_EACH_ARRIVED)))
    }

    /// Where the first hole ends, while it shows by itself.
    fn first_hole_ends(&self) -> Option<u32> {
        let to = self.repairing?;
        let end = self.kept.first_marked()?;
        Some(if beyond(end, to) > 0 { to } else { end })
    }

    /// The segments that are to go again: those of the holes that the far end told, the last one as a probe, or the first ones of all
    /// where it says nothing for `patience`. `round_trip`: that of the tunnel. `is_waiting`: some of them have not gone yet. To be
    /// asked at regular times.
    pub(in crate::tunnel::local_ack) fn again(
        &mut self,
        now: Instant,
        patience: Duration,
        round_trip: Duration,
        is_waiting: bool,
    ) -> impl Iterator<Item = &Kept> {
        let arrived = self.kept.take_arrived();
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
            self.recovery = Some(Recovery::new(self.confirmed, self.next));
            self.kept.forget_marks();
            (self.duplicates, self.looks_for_holes) = (0, false);
            self.repairing = Some(self.next);
        }
        let found = self.look_at_tail(now, round_trip, is_waiting);
        self.start_over();
        let due = self.recovery.as_mut().filter(|recovery| recovery.is_due());
        let is_due = due.is_some();
        let (from, below, most, pause) = if let Some(recovery) = due {
            recovery.is_due = false;
            let from = recovery.from;
            recovery.from = self.kept.end_of(from, recovery.to, recovery.most);
            (from, recovery.to, recovery.most, Duration::ZERO)
        } else if let Found::Probe((_, end)) = found {
            (end.wrapping_sub(1), end, 1, Duration::ZERO)
        } else {
            let (below, most) = self.holes(arrived).unwrap_or((self.confirmed, 0));
            if let Some(recovery) = &mut self.recovery
                && beyond(below, recovery.from) > 0
            {
                // What lies below goes by the marks.
                recovery.from = self.kept.end_of(below, recovery.to, 0);
            }
            let pause = if let Found::Hole(wait) = found { wait } else { patience / 2 };
            (self.confirmed, below, most, pause)
        };
        let mut those = self.kept.again(now, from, below, most, pause).peekable();
        if those.peek().is_none() {
            if matches!(found, Found::Hole(_)) {
                // What of it went is not overdue. The next look tries again.
                self.repairing = None;
            }
        } else if !matches!(found, Found::Probe(_)) {
            self.far_trip.forget_asked();
            self.tail.forget_probe();
            if !is_due {
                self.far_window.on_loss();
                self.repairing.get_or_insert(self.next);
                // There may be more than may go at once.
                self.looks_for_holes = true;
            }
        }
        those
    }

    /// Writes what the near end says by now of the far one's numbers into a segment that goes again. A far end drops one that
    /// acknowledges too little (RFC 5961 §5), or has an old clock (RFC 7323 §5).
    pub(in crate::tunnel::local_ack) fn refresh(&self, packet: &mut [u8]) {
        segment::refresh(packet, self.near_ack, self.near_window, self.near_time);
    }

    fn late_at(&self, patience: Duration) -> Instant {
        let late_at = self.progress_at + patience * (1 << self.timeouts.min(MOST_DOUBLED));
        late_at.max(self.tail.answered_by())
    }

    /// Whether the far end was waited for in vain so often that nobody will ever hear of it.
    pub(in crate::tunnel::local_ack) const fn is_lost(&self) -> bool {
        self.timeouts > MOST_DOUBLED
    }
}
