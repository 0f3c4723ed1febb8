//! When a datagram counts as lost, and how many did lately.
//!
//! A datagram is lost when `NUMDUPACK` = 3 later ones are confirmed (RFC 4341 §5). Where a link reorders,
//! that takes the late for lost. So when a datagram declared lost is confirmed after all, the threshold
//! rises to the distance seen (as RFC 4653 does for TCP), at most to 64; it sinks again when that does not
//! happen. At low rates 64 later datagrams take long: from the third on, one that was sent a round trip
//! before the newest confirmed one is lost too (RFC 8985 §6.2 bounds the reordering window the same way).
//!
//! How far a link reorders is a matter of time, not of numbers. Where the controller forgives losses, they need not be found
//! before they are certain: there a link that reorders is given the time by which datagrams came late, and no
//! number of later ones counts. On the other hand one that left so long before the newest confirmed one that its own answer was
//! overdue by then is lost, even if only that one overtook it (RFC 9002 §6.1.2): little may follow it, and after a silence the first
//! answer tells of all that went into it.

use ropewalk_settings::ControllerKind;

use crate::time::{Duration, Instant};

/// `NUMDUPACK` of RFC 4341 §5.
pub(crate) const MIN_THRESHOLD: u32 = 3;

/// The largest threshold: one batch of datagrams.
const MAX_THRESHOLD: u32 = 64;

/// No datagram is waited for longer. The round trip is no measure: where a link reorders, only those that overtake tell of it.
const MOST_LATENESS: Duration = Duration::from_millis(250);

/// A lateness below this is forgotten when it sinks.
const LEAST_LATENESS: Duration = Duration::from_micros(500);

/// After so long without a loss taken back, half of what the threshold rose by is given up: longer than the
/// fluctuations of a radio link, short enough that one odd minute does not delay detection for an hour.
const DECAY: Duration = Duration::from_secs(30);

/// Resolved datagrams in one half of the recent past.
const RECENT: u32 = 512;

/// Seconds of which [`LastingLoss`] is the median: a burst of losses, as when a window opens too far or somebody begins
/// to share the link, falls into one or two of them.
const SECONDS: usize = 5;

/// Before so many seconds are known nothing is said: the first may be a burst.
const LEAST_SECONDS: usize = 2;

/// Fewer resolved datagrams say too little of a second; it goes on.
const LEAST_RESOLVED: u64 = 20;

/// How many later datagrams must be confirmed before one is lost.
#[derive(Clone, Debug)]
pub(crate) struct LossThreshold {
    packets: u32,
    /// Whether lateness counts, and not numbers.
    by_time: bool,
    /// By how much datagrams that were taken for lost and came late were sent before those that overtook them.
    lateness: Duration,
    /// The same of all that were overtaken, at most.
    overtaken: Duration,
    changed: Instant,
}

impl LossThreshold {
    /// The least, for a link with such a controller.
    #[must_use]
    pub(crate) fn new(kind: ControllerKind) -> Self {
        let by_time = kind == ControllerKind::Model;
        let none = Duration::ZERO;
        let (lateness, overtaken, changed) = (none, none, Instant::ZERO);
        Self { packets: MIN_THRESHOLD, by_time, lateness, overtaken, changed }
    }

    /// The threshold at present.
    #[must_use]
    pub(crate) fn packets(&self) -> u32 {
        self.packets
    }

    /// How long before the newest confirmed datagram one was sent that is lost, if three overtook it.
    #[must_use]
    pub(crate) fn window(&self, srtt: Duration) -> Duration {
        match self.lateness() {
            Duration::ZERO => srtt,
            // While nothing was taken for lost that came, one that is late by a round trip is.
            lateness if self.lateness.is_zero() => lateness.min(srtt),
            lateness => lateness,
        }
    }

    /// How long one that others overtook is waited for because the link was seen to reorder. As long as it took until those came that
    /// were taken for lost; before there are any, as long as it took for all.
    #[must_use]
    pub(crate) fn lateness(&self) -> Duration {
        let is_known = self.by_time && self.packets != MIN_THRESHOLD;
        let seen = if self.lateness.is_zero() { self.overtaken } else { self.lateness };
        if is_known { seen.max(LEAST_LATENESS) * 5 / 4 } else { Duration::ZERO }
    }

    /// How long before the newest confirmed datagram one was sent that is lost, if only that one overtook it. `patience`: how long an
    /// answer takes at most.
    #[must_use]
    pub(crate) fn overdue(&self, patience: Option<Duration>) -> Option<Duration> {
        patience.filter(|_| self.by_time).map(|patience| patience.max(self.lateness()))
    }

    /// A datagram declared lost was confirmed; by then `distance` numbers beyond it were, the last of which was sent
    /// `lateness` after it.
    pub(crate) fn on_spurious(&mut self, now: Instant, distance: u64, lateness: Duration) {
        self.changed = now;
        if self.by_time {
            self.lateness = self.lateness.max(lateness).min(MOST_LATENESS * 4 / 5);
            self.packets = u32::MAX;
        } else {
            let seen = u32::try_from(distance).unwrap_or(MAX_THRESHOLD).saturating_add(1);
            self.packets = self.packets.max(seen.min(MAX_THRESHOLD));
        }
    }

    /// A datagram was confirmed after one that was sent `lateness` after it, whether or not it had counted as lost. While losses wait long
    /// enough none is taken back, and nothing would be learnt from those.
    pub(crate) fn on_overtaken(&mut self, lateness: Duration) {
        self.overtaken = self.overtaken.max(lateness).min(MOST_LATENESS * 4 / 5);
    }

    /// Lets the threshold sink; called with every report.
    pub(crate) fn decay(&mut self, now: Instant) {
        let is_least = self.packets == MIN_THRESHOLD && self.overtaken.is_zero();
        if is_least || now.since(self.changed) < DECAY {
            return;
        }
        self.changed = now;
        self.lateness /= 2;
        self.overtaken /= 2;
        if !self.by_time {
            self.packets = MIN_THRESHOLD + (self.packets - MIN_THRESHOLD) / 2;
        } else if self.lateness < LEAST_LATENESS {
            (self.packets, self.lateness) = (MIN_THRESHOLD, Duration::ZERO);
        }
    }
}

/// The share of lost datagrams among the last 512 to 1,024 that were resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct RecentLoss {
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
    pub(crate) fn on_resolved(&mut self, lost: bool) {
        self.current.resolved += 1;
        self.current.lost += u32::from(lost);
        if self.current.resolved >= RECENT {
            self.previous = std::mem::take(&mut self.current);
        }
    }

    /// One that counted as lost was confirmed after all.
    pub(crate) fn on_spurious(&mut self) {
        let tally = if self.current.lost > 0 { &mut self.current } else { &mut self.previous };
        tally.lost = tally.lost.saturating_sub(1);
    }

    /// The share, from 0 to 1; 0 when nothing is known.
    #[must_use]
    pub(crate) fn ratio(&self) -> f64 {
        let resolved = self.current.resolved + self.previous.resolved;
        f64::from(self.current.lost + self.previous.lost) / f64::from(resolved.max(1))
    }
}

/// How many datagrams were confirmed, and how many count as lost: one that is confirmed late does no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fates {
    /// Confirmed, early or late.
    pub confirmed: u64,
    /// Lost, as far as is known.
    pub lost: u64,
}

/// The share of lost datagrams that lasts: the median of the last five seconds in which enough was sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastingLoss {
    seconds: [f64; SECONDS],
    /// How many seconds were noted so far.
    noted: usize,
    began: Instant,
    /// As of the beginning of the present second, and as last heard.
    before: Fates,
    newest: Fates,
    /// Of the losses of the present second, those that are no fault of the link.
    excused: u64,
}

impl LastingLoss {
    /// The fates of all datagrams so far; what is `excused` was lost for another reason than the link.
    pub(crate) fn on_fates(&mut self, now: Instant, fates: Fates, excused: bool) {
        if excused {
            self.excused += fates.lost.saturating_sub(self.newest.lost);
        }
        self.newest = fates;
        let lost = fates.lost.saturating_sub(self.before.lost);
        let resolved = lost + fates.confirmed.saturating_sub(self.before.confirmed);
        if now.since(self.began) < Duration::from_secs(1) || resolved < LEAST_RESOLVED {
            return;
        }
        self.seconds[self.noted % SECONDS] = share(lost.saturating_sub(self.excused), resolved);
        self.noted += 1;
        (self.began, self.before, self.excused) = (now, fates, 0);
    }

    /// The share, from 0 to 1; 0 when little is known.
    #[must_use]
    pub(crate) fn ratio(&self) -> f64 {
        let mut seconds = self.seconds;
        let known = &mut seconds[..self.noted.min(SECONDS)];
        if known.len() < LEAST_SECONDS {
            return 0.0;
        }
        known.sort_by(f64::total_cmp);
        known[(known.len() - 1) / 2]
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share needs no 53 bits of precision")]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_rises_to_what_was_seen_and_sinks_again() {
        let mut threshold = LossThreshold::new(ControllerKind::Ccid2);
        let mut now = Instant::from_millis(5);
        for (distance, packets) in [(2, 3), (9, 10), (4, 10), (1000, 64)] {
            threshold.on_spurious(now, distance, Duration::ZERO);
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
    fn where_losses_are_forgiven_a_link_that_reorders_is_given_the_time_that_it_takes() {
        let mut threshold = LossThreshold::new(ControllerKind::Model);
        let srtt = Duration::from_millis(40);
        assert_eq!((threshold.packets(), threshold.window(srtt)), (3, srtt));
        for (late_ms, window_ms) in [(8, 10), (4, 10), (20, 25), (500, 250)] {
            threshold.on_spurious(Instant::ZERO, 500, Duration::from_millis(late_ms));
            assert_eq!(threshold.packets(), u32::MAX);
            assert_eq!(threshold.window(srtt), Duration::from_millis(window_ms), "{late_ms}");
        }
        let mut now = Instant::ZERO;
        for _ in 0..9 {
            now += DECAY;
            threshold.decay(now);
        }
        assert_eq!((threshold.packets(), threshold.window(srtt)), (3, srtt), "it was long ago");
    }

    #[test]
    fn while_nothing_that_was_taken_for_lost_came_all_that_were_overtaken_tell_how_long_to_wait() {
        let (srtt, ms) = (Duration::from_millis(640), Duration::from_millis);
        let mut threshold = LossThreshold::new(ControllerKind::Model);
        threshold.on_overtaken(ms(40));
        assert_eq!(
            (threshold.window(srtt), threshold.lateness()),
            (srtt, ms(0)),
            "three are proof"
        );
        // In a train those that overtake left in the same moment.
        threshold.on_spurious(Instant::ZERO, 3, ms(0));
        assert_eq!((threshold.window(srtt), threshold.lateness()), (ms(50), ms(50)));
        assert_eq!(threshold.window(ms(30)), ms(30), "never longer than a round trip");
        threshold.on_overtaken(ms(60));
        assert_eq!(threshold.window(srtt), ms(75));
        threshold.on_spurious(Instant::ZERO, 80, ms(80));
        threshold.on_overtaken(ms(100));
        assert_eq!((threshold.window(srtt), threshold.window(ms(30))), (ms(100), ms(100)));
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
    fn a_burst_of_losses_does_not_last_and_a_lossy_link_is_found_out_within_three_seconds() {
        let (mut loss, mut fates) = (LastingLoss::default(), Fates::default());
        let mut at = (0..).map(|tenth| Instant::from_millis(tenth * 100));
        let mut second = |loss: &mut LastingLoss, confirmed: u64, lost: u64| {
            at.by_ref().take(10).for_each(|now| {
                fates.confirmed += confirmed;
                fates.lost += lost;
                loss.on_fates(now, fates, false);
            });
            loss.ratio()
        };
        let burst = [second(&mut loss, 43, 40), second(&mut loss, 83, 0), second(&mut loss, 83, 0)];
        assert!(burst.iter().all(|ratio| *ratio < 1e-9), "{burst:?}");
        let lossy: Vec<_> = (0..5).map(|_| second(&mut loss, 76, 4)).collect();
        assert!(lossy[0] < 0.005 && (lossy[3] - 0.05).abs() < 0.005, "{lossy:?}");
        let clean: Vec<_> = (0..5).map(|_| second(&mut loss, 83, 0)).collect();
        assert!(clean[1] > 0.04 && clean[3] < 1e-9, "{clean:?}");
        let (mut fresh, mut fates) = (LastingLoss::default(), Fates::default());
        let first: Vec<_> = (0..4)
            .map(|second| {
                fates = Fates { confirmed: fates.confirmed + 80, lost: fates.lost + 20 };
                fresh.on_fates(Instant::from_millis(second * 1000), fates, false);
                fresh.ratio()
            })
            .collect();
        assert!(first[1] < 1e-9 && (first[2] - 0.2).abs() < 0.005, "{first:?}");
    }

    #[test]
    fn what_was_late_or_too_much_was_not_lost_and_few_datagrams_are_no_second() {
        let mut loss = LastingLoss::default();
        let mut fates = Fates::default();
        let mut after =
            |seconds: std::ops::Range<u64>, confirmed: [u64; 2], lost: [u64; 2], excused| {
                for second in seconds {
                    for (half, at) in [(0, 0), (1, 500)] {
                        fates.confirmed += confirmed[half];
                        fates.lost = if lost[half] > 0 { fates.lost + lost[half] } else { 0 };
                        let now = Instant::from_millis(second * 1000 + at);
                        loss.on_fates(now, fates, excused);
                    }
                }
                loss.ratio()
            };
        for (seconds, confirmed, lost, excused, expected) in [
            (0..20, [30, 10], [10, 0], false, 0.0),
            (20..40, [20, 20], [5, 5], true, 0.0),
            (40..50, [0, 0], [1, 1], false, 0.0),
            (50..70, [20, 20], [5, 5], false, 0.2),
        ] {
            let ratio = after(seconds.clone(), confirmed, lost, excused);
            assert!((ratio - expected).abs() < 1e-9, "by {seconds:?}: {ratio}");
        }
    }
}
