//! When to acknowledge, as Linux does: at once at the beginning of a connection, while the window grows,
//! and where something is wrong; else every second full segment, or after 40 ms. While something is missing,
//! three acknowledgements go out at once and then one a millisecond.

use std::time::Duration;

use ropewalk_proto::time::{Instant, earliest};

use crate::tcp::after;

/// The longest delay of a single segment's acknowledgement.
const DELAY: Duration = Duration::from_millis(40);
/// So many are not delayed at the beginning.
const QUICK: u64 = 16;
/// Segments out of order that are acknowledged at once.
const AT_ONCE: u32 = 3;
/// Afterwards one acknowledgement stands for so many at most, and waits for so long at most, or for a
/// twentieth of the round trip.
const HELD_BACK: u32 = 44;
const HOLD: Duration = Duration::from_millis(1);
const HOLD_SHARE: u32 = 20;
/// A pause of about a retransmission timeout makes acknowledgements quick again.
const PAUSE: Duration = Duration::from_millis(250);

/// What acknowledgements wait for.
#[derive(Clone, Debug, Default)]
pub(super) struct Delay {
    /// How many go out at once.
    quick: u64,
    /// One is to go out now.
    due: bool,
    timer: Option<Instant>,
    hold: Option<Instant>,
    /// Segments held back, and those acknowledged at once since the hole before `hole` appeared.
    held_back: u32,
    at_once: u32,
    hole: u64,
    last_data: Option<Instant>,
}

/// A segment that came and what is known then.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReceivedSegment {
    /// The next byte expected.
    pub(super) nxt: u64,
    /// Bytes in order that were not acknowledged.
    pub(super) unreported: u64,
    /// The longest segment.
    pub(super) segment: u64,
    /// Something is missing before what came.
    pub(super) has_holes: bool,
    pub(super) rtt: Option<Duration>,
}

impl Delay {
    /// Data came in order.
    pub(super) fn data_came(&mut self, now: Instant, window: u64, segment: u64) {
        if self.last_data.is_none_or(|last| now.since(last) > PAUSE) {
            self.quicken(window, segment);
        }
        self.last_data = Some(now);
    }

    /// The next acknowledgements go out at once: as many as half of the window has segments, within bounds.
    pub(super) fn quicken(&mut self, window: u64, segment: u64) {
        self.quick = self.quick.max((window / (2 * segment)).clamp(2, QUICK));
    }

    /// If the window grew, the peer is to know at once.
    pub(super) fn quick_if(&mut self, grew: bool) {
        self.quick |= u64::from(grew);
    }

    pub(super) fn want_now(&mut self) {
        self.due = true;
    }

    pub(super) const fn is_holding(&self) -> bool {
        self.held_back > 0
    }

    pub(super) const fn is_due(&self) -> bool {
        self.due
    }

    /// Decides about the segment that came.
    pub(super) fn decide(&mut self, now: Instant, arrival: ReceivedSegment) {
        let ReceivedSegment { nxt, unreported, segment, has_holes, rtt } = arrival;
        if unreported > segment || self.quick > 0 {
            self.due = true;
        } else if !has_holes {
            self.timer.get_or_insert(after(now, DELAY));
        } else {
            if self.hole != nxt {
                (self.hole, self.at_once) = (nxt, 0);
            }
            if self.at_once < AT_ONCE || self.held_back >= HELD_BACK {
                self.at_once = AT_ONCE.min(self.at_once + 1);
                self.due = true;
            } else {
                self.held_back += 1;
                let share = rtt.map_or(HOLD, |rtt| rtt / HOLD_SHARE);
                self.hold.get_or_insert(now + HOLD.min(share));
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.timer, self.hold)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.due |= self.poll_timeout().is_some_and(|at| at <= now);
    }

    /// An acknowledgement goes out.
    pub(super) fn reported(&mut self) {
        self.quick = self.quick.saturating_sub(u64::from(self.due));
        (self.due, self.held_back) = (false, 0);
        (self.timer, self.hold) = (None, None);
    }
}
