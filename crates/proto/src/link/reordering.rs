//! How far datagrams overtake each other inside one link.
//!
//! The main paper assumes that a link keeps its order. Links with retransmission on the radio, or with
//! several queues, do not. The receiver measures by how many numbers and by how much time datagrams came
//! late; the resequencer takes a gap for a loss only beyond that. The measure is the largest of the last
//! one to two minutes: what has not happened for that long is not waited for.

use crate::time::{Duration, Instant};

/// How long a late datagram is remembered. Radio conditions change within minutes; a link that reorders
/// at all does so more often than once a minute.
const MEMORY: Duration = Duration::from_secs(60);

/// The largest distance taken seriously: the replay window is 8,192 datagrams, a tenth of it is far beyond
/// any reordering that is not a stall.
const MAX_DISTANCE: u64 = 800;

/// The longest lateness taken seriously: the cap of the resequencer's own deadline.
const MAX_LATENESS: Duration = Duration::from_millis(500);

/// How late datagrams may come inside one link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tolerance {
    /// By how many local numbers a late datagram was overtaken.
    pub distance: u64,
    /// How long after the first datagram that overtook it a late datagram came.
    pub lateness: Duration,
}

impl Tolerance {
    fn widened(self, other: Self) -> Self {
        Self {
            distance: self.distance.max(other.distance),
            lateness: self.lateness.max(other.lateness),
        }
    }
}

/// The measure of one link.
#[derive(Clone, Debug, Default)]
pub struct Reordering {
    current: Tolerance,
    previous: Tolerance,
    since: Instant,
}

impl Reordering {
    /// A datagram came late. Beyond the bounds it counts as the bounds: a delayed burst after a stall must
    /// not make the resequencer wait for ever.
    pub fn on_late(&mut self, now: Instant, distance: u64, lateness: Duration) {
        self.forget_old(now);
        let seen = Tolerance {
            distance: distance.min(MAX_DISTANCE),
            lateness: lateness.min(MAX_LATENESS),
        };
        self.current = self.current.widened(seen);
    }

    /// What has to be tolerated at present.
    #[must_use]
    pub fn tolerance(&self, now: Instant) -> Tolerance {
        if now >= self.since + MEMORY * 2 {
            Tolerance::default()
        } else if now < self.since + MEMORY {
            self.current.widened(self.previous)
        } else {
            self.current
        }
    }

    fn forget_old(&mut self, now: Instant) {
        let age = now.since(self.since);
        if age < MEMORY {
            return;
        }
        self.previous = if age < MEMORY * 2 { self.current } else { Tolerance::default() };
        self.current = Tolerance::default();
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(secs: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(secs)
    }

    #[test]
    fn the_largest_of_each_is_kept() {
        let mut reordering = Reordering::default();
        reordering.on_late(at(1), 3, MS * 9);
        reordering.on_late(at(2), 7, MS * 2);
        assert_eq!(reordering.tolerance(at(3)), Tolerance { distance: 7, lateness: MS * 9 });
    }

    #[test]
    fn what_has_not_happened_for_two_minutes_is_forgotten() {
        let mut reordering = Reordering::default();
        reordering.on_late(at(100), 7, MS);
        assert_eq!(reordering.tolerance(at(219)).distance, 7);
        assert_eq!(reordering.tolerance(at(220)).distance, 0);
        reordering.on_late(at(150), 2, MS);
        reordering.on_late(at(165), 1, MS);
        assert_eq!(reordering.tolerance(at(170)).distance, 7, "the previous minute counts");
        reordering.on_late(at(230), 1, MS);
        assert_eq!(reordering.tolerance(at(231)).distance, 1);
    }

    #[test]
    fn a_stall_counts_as_the_bound() {
        let mut reordering = Reordering::default();
        reordering.on_late(at(1), u64::MAX, Duration::MAX);
        let bound = Tolerance { distance: MAX_DISTANCE, lateness: MAX_LATENESS };
        assert_eq!(reordering.tolerance(at(1)), bound);
    }
}
