//! When a datagram counts as lost, and how many did lately.
//!
//! A datagram is lost when `NUMDUPACK` = 3 later ones are confirmed (RFC 4341 §5). Where a link reorders,
//! that takes the late for lost. So when a datagram declared lost is confirmed after all, the threshold
//! rises to the distance seen (as RFC 4653 does for TCP), at most to 64; it sinks again when that does not
//! happen. At low rates 64 later datagrams take long: from the third on, one that was sent a round trip
//! before the newest confirmed one is lost too (RFC 8985 §6.2 bounds the reordering window the same way).

use crate::time::{Duration, Instant};

/// `NUMDUPACK` of RFC 4341 §5.
pub const MIN_THRESHOLD: u32 = 3;

/// The largest threshold: one batch of datagrams.
const MAX_THRESHOLD: u32 = 64;

/// After so long without a loss taken back, half of what the threshold rose by is given up: longer than the
/// fluctuations of a radio link, short enough that one odd minute does not delay detection for an hour.
const DECAY: Duration = Duration::from_secs(30);

/// Resolved datagrams in one half of the recent past.
const RECENT: u32 = 512;

/// How many later datagrams must be confirmed before one is lost.
#[derive(Clone, Debug)]
pub struct LossThreshold {
    packets: u32,
    changed: Instant,
}

impl Default for LossThreshold {
    fn default() -> Self {
        Self { packets: MIN_THRESHOLD, changed: Instant::ZERO }
    }
}

impl LossThreshold {
    /// The threshold at present.
    #[must_use]
    pub fn packets(&self) -> u32 {
        self.packets
    }

    /// A datagram declared lost was confirmed; by then `distance` numbers beyond it were.
    pub fn on_spurious(&mut self, now: Instant, distance: u64) {
        let seen = u32::try_from(distance).unwrap_or(MAX_THRESHOLD).saturating_add(1);
        self.packets = self.packets.max(seen.min(MAX_THRESHOLD));
        self.changed = now;
    }

    /// Lets the threshold sink; called with every report.
    pub fn decay(&mut self, now: Instant) {
        if self.packets > MIN_THRESHOLD && now.since(self.changed) >= DECAY {
            self.packets = MIN_THRESHOLD + (self.packets - MIN_THRESHOLD) / 2;
            self.changed = now;
        }
    }
}

/// The share of lost datagrams among the last 512 to 1,024 that were resolved.
#[derive(Clone, Debug, Default)]
pub struct RecentLoss {
    current: Tally,
    previous: Tally,
}

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    resolved: u32,
    lost: u32,
}

impl RecentLoss {
    /// One datagram was confirmed or lost.
    pub fn on_resolved(&mut self, lost: bool) {
        self.current.resolved += 1;
        self.current.lost += u32::from(lost);
        if self.current.resolved >= RECENT {
            self.previous = std::mem::take(&mut self.current);
        }
    }

    /// One that counted as lost was confirmed after all.
    pub fn on_spurious(&mut self) {
        let tally = if self.current.lost > 0 { &mut self.current } else { &mut self.previous };
        tally.lost = tally.lost.saturating_sub(1);
    }

    /// The share, from 0 to 1; 0 when nothing is known.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let resolved = self.current.resolved + self.previous.resolved;
        f64::from(self.current.lost + self.previous.lost) / f64::from(resolved.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_rises_to_what_was_seen_and_sinks_again() {
        let mut threshold = LossThreshold::default();
        let mut now = Instant::from_millis(5);
        for (distance, packets) in [(2, 3), (9, 10), (4, 10), (1000, 64)] {
            threshold.on_spurious(now, distance);
            assert_eq!(threshold.packets(), packets);
        }
        let mut seen = vec![];
        for _ in 0..8 {
            now += DECAY;
            threshold.decay(now);
            threshold.decay(now);
            seen.push(threshold.packets());
        }
        assert_eq!(seen, [33, 18, 10, 6, 4, 3, 3, 3]);
    }

    #[test]
    fn the_recent_share_follows_the_last_thousand() {
        let mut loss = RecentLoss::default();
        assert!(loss.ratio().abs() < f64::EPSILON);
        for number in 0..10_000 {
            loss.on_resolved(number % 10 == 0);
        }
        assert!((loss.ratio() - 0.1).abs() < 0.005, "{}", loss.ratio());
        for _ in 0..10_000 {
            loss.on_spurious();
        }
        assert!(loss.ratio().abs() < f64::EPSILON);
    }
}
