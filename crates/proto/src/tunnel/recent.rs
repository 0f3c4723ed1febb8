//! How much passed in about the last second, for people.
//!
//! Two marks of the totals are kept beside what they count, at least a second apart, and set only when the tunnel has its
//! turn anyway: nothing wakes for them, and whoever has ten thousand sessions that rest looks at none of them. A rate is
//! what came since the newer mark, or, while that is too fresh for a steady figure, since the older one.

use crate::time::{Duration, Instant};

/// Time between marks, at least.
const INTERVAL: Duration = Duration::from_secs(1);

/// Over less, one burst of a few datagrams would look like a rate.
const LEAST_SPAN: Duration = Duration::from_millis(500);

/// Two totals in bytes, as they were at two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Recent {
    older: Mark,
    newer: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Mark {
    at: Instant,
    totals: [u64; 2],
}

impl Recent {
    /// Nothing has passed before `now`.
    pub(super) const fn new(now: Instant) -> Self {
        let zero = Mark { at: now, totals: [0; 2] };
        Self { older: zero, newer: zero }
    }

    /// Whether it is time for another mark.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now.since(self.newer.at) >= INTERVAL
    }

    /// So much has passed by now.
    pub(super) const fn mark(&mut self, now: Instant, totals: [u64; 2]) {
        self.older = self.newer;
        self.newer = Mark { at: now, totals };
    }

    /// Bits per second of each, if the totals are these now.
    #[must_use]
    pub fn rates(&self, now: Instant, totals: [u64; 2]) -> [f64; 2] {
        let steady = now.since(self.newer.at) >= LEAST_SPAN;
        let base = if steady { self.newer } else { self.older };
        let seconds = now.since(base.at).as_secs_f64();
        let rate = |total: u64, base: u64| rate(total.saturating_sub(base), seconds);
        [rate(totals[0], base.totals[0]), rate(totals[1], base.totals[1])]
    }
}

#[expect(clippy::cast_precision_loss, reason = "the bytes of a second are below 2^53")]
fn rate(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_rate_is_over_the_newest_mark_that_is_old_enough() {
        let mut recent = Recent::new(Instant::ZERO);
        recent.mark(at(1_000), [1_000, 0]);
        recent.mark(at(2_000), [3_000, 500]);
        // 500 ms after the newer mark: over it. Sooner: over the older one.
        assert_eq!(recent.rates(at(2_500), [4_000, 500]), [16_000.0, 0.0]);
        assert_eq!(recent.rates(at(2_250), [3_500, 1_000]), [16_000.0, 6_400.0]);
        // After a long idle time: the mean since the newer mark.
        assert_eq!(recent.rates(at(12_000), [4_250, 500]), [1_000.0, 0.0]);
    }

    #[test]
    fn marks_are_a_second_apart_and_what_is_new_began_at_zero() {
        let mut recent = Recent::new(Instant::ZERO);
        assert!(!recent.is_due(at(999)));
        assert!(recent.is_due(at(1_000)));
        assert_eq!(recent.rates(at(1_000), [125, 250]), [1_000.0, 2_000.0]);
        recent.mark(at(1_000), [500, 500]);
        assert!(!recent.is_due(at(1_999)));
    }

    #[test]
    fn no_time_gives_no_rate_and_a_total_that_fell_none_below_zero() {
        let mut recent = Recent::new(Instant::ZERO);
        assert_eq!(recent.rates(Instant::ZERO, [9, 9]), [0.0; 2]);
        recent.mark(Instant::ZERO, [100, 0]);
        assert_eq!(recent.rates(at(1_000), [0, 0]), [0.0; 2]);
    }
}
