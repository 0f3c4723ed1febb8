//! How long to wait for a missing packet: the spread of the links' one-way delays.
//!
//! ```text
//! deadline = arrival of the first packet behind the hole
//!          + max over live links of (D_i + 4 OWDVAR_i)  -  the delay of that packet
//!          + GRANULARITY,                                   at most `max_wait` after that arrival
//! ```
//!
//! The missing packet was sealed before the one behind it. That one was sealed its delay before it
//! arrived; the missing one takes at most `D_i + 4 OWDVAR_i` on whichever link it went. (Within flows it may have been sealed
//! later, when others overtook it or it goes again: there the time of a repair is added.) This is the
//! timeout of Evensen et al. 2011 (TCP's RTO over one-way delays) with its zero moved to the moment of sending: the
//! paper's timer lets a hole wait for a whole one-way delay although the packet behind it has already
//! spent one. RFC 6298's gains are kept (1/8, 1/4); its floor of 1 s and its doubling are not, for
//! nothing is sent again.
//!
//! `D_i` is the larger of SOWD_i and the latest delay: when a burst fills a link's queue each datagram is
//! slower than the one before, and the smoothed delay lags behind by several, so that what still stands
//! in that queue would be given up. For the packet behind the hole its own delay is used, not its link's
//! smoothed one, which lags the other way when a queue drains.
//!
//! Clocks need not agree: a delay here is arrival by our clock minus sending by the peer's, so each
//! holds the same unknown offset, and only differences of delays are used. For the same reason the
//! first variation cannot be half the first delay as in RFC 6298; it is [`FIRST_VARIATION_US`].
//!
//! A link that was silent for [`STALE_AFTER`] while others delivered does not count in the maximum: a
//! live link sends something at least every 500 ms, so it is in trouble or gone, and its old estimate
//! must not hold up the others. Silence is measured in *active* time, which stands still while nothing
//! arrives on any link ([`ActiveClock`]): a link that is idle because all are is not in trouble. What it
//! showed before an idle time may be outdated; until it delivers again its variation counts as a first
//! one. A link that was added lately and has delivered nothing yet has an unknown delay: a hole then waits
//! for `max_wait`, because otherwise all first packets of a slow link would come late.

use crate::time::{Duration, Instant};

/// Added to every deadline: the batches and timers of both drivers and the difference between a
/// small and a full datagram's time on the wire. Without it a link with steady delay has a variation
/// near zero and expires on its own scheduling noise.
pub const GRANULARITY: Duration = Duration::from_millis(5);

/// The variation after the first sample of a link, in µs: 4 x 10 ms of extra wait, halved by every
/// two to three further samples, until the link has shown its own.
const FIRST_VARIATION_US: i64 = 10_000;

/// Twice the 500 ms within which every live link sends something.
pub const STALE_AFTER: Duration = Duration::from_secs(1);

/// A pause between two arrivals counts as active time up to this: four times the 25 ms within which idle
/// links speak while others are busy.
const ACTIVE_GAP: Duration = Duration::from_millis(100);

/// Time in which something arrived on some link.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ActiveClock {
    newest: Instant,
    active: Instant,
}

impl ActiveClock {
    /// Something arrived.
    pub(super) fn on_arrival(&mut self, now: Instant) {
        // The others of a batch.
        if now == self.newest {
            return;
        }
        self.active += now.since(self.newest).min(ACTIVE_GAP);
        self.newest = now;
    }

    /// The active time so far, as an instant of its own line.
    pub(super) fn active(&self) -> Instant {
        self.active
    }
}

/// Smoothed one-way delay and its variation on one link. All times are active times.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneWayDelay {
    /// SOWD, in µs, with the unknown offset between the clocks.
    smoothed_us: i64,
    /// OWDVAR, in µs.
    variation_us: i64,
    latest_us: i64,
    added: Instant,
    last: Option<Instant>,
    /// When the last sample came, by the ordinary clock.
    sampled: Instant,
}

impl OneWayDelay {
    /// The delay of a link that was added at this time.
    pub(super) fn new(added: Instant) -> Self {
        let sampled = Instant::ZERO;
        Self { smoothed_us: 0, variation_us: 0, latest_us: 0, added, last: None, sampled }
    }

    /// Takes the delay of a datagram that arrived `now`.
    pub(super) fn sample(&mut self, now: Instant, active: Instant, delay_us: i64) {
        let outdated = self.last.is_none() || now > self.sampled + STALE_AFTER;
        if outdated {
            (self.smoothed_us, self.variation_us) = (delay_us, FIRST_VARIATION_US);
        } else {
            let error = delay_us.saturating_sub(self.smoothed_us);
            let deviation = error.saturating_abs();
            self.variation_us += deviation.saturating_sub(self.variation_us) / 4;
            self.smoothed_us = self.smoothed_us.saturating_add(error / 8);
        }
        (self.last, self.sampled, self.latest_us) = (Some(active), now, delay_us);
    }

    /// SOWD in µs, with the unknown offset between the clocks, once something arrived.
    pub(super) fn smoothed_us(&self) -> Option<i64> {
        self.last.map(|_| self.smoothed_us)
    }

    /// OWDVAR, once something arrived.
    pub(super) fn variation(&self) -> Option<Duration> {
        self.last.map(|_| Duration::from_micros(self.variation_us.unsigned_abs()))
    }

    /// `D + 4 OWDVAR` in µs, the largest there is if it is unknown yet; `None` if the link was silent
    /// for long while others delivered.
    pub(super) fn worst_us(&self, clock: &ActiveClock) -> Option<i64> {
        if clock.active.since(self.last.unwrap_or(self.added)) > STALE_AFTER {
            return None;
        }
        if self.last.is_none() {
            return Some(i64::MAX);
        }
        let outdated = clock.newest.since(self.sampled) > STALE_AFTER;
        let least = if outdated { FIRST_VARIATION_US } else { 0 };
        let variation_us = self.variation_us.max(least);
        let delay_us = self.smoothed_us.max(self.latest_us);
        Some(delay_us.saturating_add(variation_us.saturating_mul(4)))
    }
}

/// The delay of a datagram in µs, with the unknown offset between the clocks.
pub(super) fn delay_us(now: Instant, sent_us: i64) -> i64 {
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX).saturating_sub(sent_us)
}

/// How long a packet that took `delay_us` may wait for one before it. `worst_us`: the maximum
/// over the live links, `None` if there is none (then there is nobody to wait for).
pub(super) fn patience(worst_us: Option<i64>, delay_us: i64, max_wait: Duration) -> Duration {
    let spread = worst_us.map_or(0, |worst| worst.saturating_sub(delay_us).max(0));
    Duration::from_micros(spread.unsigned_abs()).saturating_add(GRANULARITY).min(max_wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_millis(500);

    /// A link that delivered every millisecond for 100 ms, and the clock then.
    fn settled(delay_us: i64) -> (OneWayDelay, ActiveClock) {
        let mut clock = ActiveClock::default();
        let mut owd = OneWayDelay::new(clock.active());
        for ms in 0..100 {
            let now = Instant::from_millis(ms);
            clock.on_arrival(now);
            owd.sample(now, clock.active(), delay_us);
        }
        (owd, clock)
    }

    #[test]
    fn steady_links_wait_their_difference_whatever_the_offset_of_the_clocks() {
        for offset in [0, -7_000_000_000, 7_000_000_000] {
            let ((fast, clock), (slow, _)) = (settled(offset + 5_000), settled(offset + 50_000));
            let worst = fast.worst_us(&clock).max(slow.worst_us(&clock));
            let wait = patience(worst, offset + 5_000, CAP);
            let expected = Duration::from_millis(45) + GRANULARITY;
            assert!(wait >= expected && wait < expected + Duration::from_micros(50), "{wait:?}");
            let wait = patience(worst, offset + 50_000, CAP);
            assert!(wait < GRANULARITY + Duration::from_micros(50), "{wait:?}");
        }
    }

    #[test]
    fn gains_are_an_eighth_and_a_quarter() {
        let mut owd = OneWayDelay {
            smoothed_us: 80_000,
            variation_us: 4_000,
            last: Some(Instant::ZERO),
            ..OneWayDelay::new(Instant::ZERO)
        };
        owd.sample(Instant::from_millis(1), Instant::from_millis(1), 96_000);
        assert_eq!((owd.smoothed_us, owd.variation_us), (82_000, 7_000));
    }

    #[test]
    fn a_queue_that_fills_is_given_the_time_of_its_latest_datagram() {
        let (mut owd, mut clock) = settled(50_000);
        let mut now = Instant::from_millis(100);
        // A burst on a slow link: each datagram takes 6 ms longer than the one before.
        for place in 1..=16 {
            let delay_us = 50_000 + place * 6_000;
            let worst = owd.worst_us(&clock).unwrap();
            assert!(place == 1 || worst >= delay_us, "datagram {place} would be given up");
            now += Duration::from_millis(6);
            clock.on_arrival(now);
            owd.sample(now, clock.active(), delay_us);
        }
    }

    /// Others deliver every 10 ms for `millis`.
    fn others(clock: &mut ActiveClock, millis: u64) {
        for _ in 0..millis / 10 {
            clock.on_arrival(clock.newest + Duration::from_millis(10));
        }
    }

    #[test]
    fn a_link_silent_for_long_does_not_count_and_starts_afresh() {
        let (mut owd, mut clock) = settled(300_000);
        others(&mut clock, 1_000);
        assert!(owd.worst_us(&clock).is_some());
        others(&mut clock, 10);
        assert_eq!(owd.worst_us(&clock), None);
        owd.sample(Instant::from_millis(5_000), clock.active(), 20_000);
        assert_eq!(owd.smoothed_us, 20_000);
    }

    #[test]
    fn a_link_that_was_idle_with_all_others_still_counts() {
        let (owd, mut clock) = settled(50_000);
        clock.on_arrival(Instant::from_millis(60_000));
        let worst = owd.worst_us(&clock).unwrap();
        assert_eq!(worst, 50_000 + 4 * FIRST_VARIATION_US);
    }

    #[test]
    fn a_link_not_heard_of_yet_is_given_the_longest_wait_for_a_while() {
        let (_, mut clock) = settled(0);
        let owd = OneWayDelay::new(clock.active());
        others(&mut clock, 1_000);
        assert_eq!(patience(owd.worst_us(&clock), 5_000, CAP), CAP);
        others(&mut clock, 10);
        assert_eq!(owd.worst_us(&clock), None);
    }

    #[test]
    fn the_wait_is_capped_and_absurd_times_do_not_overflow() {
        assert_eq!(patience(Some(i64::MAX), i64::MIN, CAP), CAP);
        assert_eq!(patience(Some(i64::MIN), i64::MAX, CAP), GRANULARITY);
        assert_eq!(patience(None, 0, CAP), GRANULARITY);
        let mut owd = OneWayDelay::new(Instant::ZERO);
        for sent in [i64::MIN, i64::MAX, i64::MIN, 0] {
            let delay_us = delay_us(Instant::from_nanos(u64::MAX), sent);
            owd.sample(Instant::ZERO, Instant::ZERO, delay_us);
            let _ = owd.worst_us(&ActiveClock::default());
        }
    }
}
