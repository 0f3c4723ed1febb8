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

/// Seconds of which [`LastingLoss`] is the median: a burst of losses, as when a window opens too far or somebody begins
/// to share the link, falls into one or two of them.
const SECONDS: usize = 5;

/// Fewer resolved datagrams say too little of a second; it goes on.
const LEAST_RESOLVED: u32 = 20;

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

/// The share of lost datagrams that lasts: the median of the last five seconds in which enough was sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct LastingLoss {
    seconds: [f64; SECONDS],
    next: usize,
    current: Tally,
    began: Instant,
}

impl LastingLoss {
    /// A report confirmed so many, of which `late` had counted as lost, and proved so many lost.
    pub fn on_report(&mut self, now: Instant, confirmed: u32, late: u32, lost: u32) {
        let Tally { resolved, lost: before } = self.current;
        if now.since(self.began) >= Duration::from_secs(1) && resolved >= LEAST_RESOLVED {
            self.seconds[self.next] = f64::from(before) / f64::from(resolved);
            self.next = (self.next + 1) % SECONDS;
            (self.current, self.began) = (Tally::default(), now);
        }
        let Tally { resolved, lost: before } = self.current;
        self.current = Tally {
            resolved: resolved.saturating_add(confirmed.saturating_sub(late)).saturating_add(lost),
            lost: before.saturating_add(lost).saturating_sub(late),
        };
    }

    /// The share, from 0 to 1; 0 when little is known.
    #[must_use]
    pub fn ratio(&self) -> f64 {
        let mut seconds = self.seconds;
        seconds.sort_by(f64::total_cmp);
        seconds[SECONDS / 2]
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

    #[test]
    fn a_burst_of_losses_does_not_last_and_a_lossy_link_is_found_out_in_three_seconds() {
        let mut loss = LastingLoss::default();
        let mut at = (0..).map(|tenth| Instant::from_millis(tenth * 100));
        let mut second = |loss: &mut LastingLoss, confirmed: u32, lost: u32| {
            at.by_ref().take(10).for_each(|now| loss.on_report(now, confirmed, 0, lost));
            loss.ratio()
        };
        let burst = [second(&mut loss, 43, 40), second(&mut loss, 83, 0), second(&mut loss, 83, 0)];
        assert!(burst.iter().all(|ratio| *ratio < 1e-9), "{burst:?}");
        let lossy: Vec<_> = (0..5).map(|_| second(&mut loss, 76, 4)).collect();
        assert!(lossy[1] < 1e-9 && (lossy[4] - 0.05).abs() < 0.005, "{lossy:?}");
        let clean: Vec<_> = (0..5).map(|_| second(&mut loss, 83, 0)).collect();
        assert!(clean[1] > 0.04 && clean[4] < 1e-9, "{clean:?}");
    }

    #[test]
    fn what_was_late_was_not_lost_and_few_datagrams_are_no_second() {
        let mut loss = LastingLoss::default();
        for second in 0..20 {
            let now = Instant::from_millis(second * 1000);
            loss.on_report(now, 30, 0, 10);
            loss.on_report(now, 10, 10, 0);
        }
        assert!(loss.ratio() < 1e-9, "{}", loss.ratio());
        for second in 20..30 {
            loss.on_report(Instant::from_millis(second * 1000), 0, 0, 1);
        }
        assert!(loss.ratio() < 1e-9, "{}", loss.ratio());
    }
}
