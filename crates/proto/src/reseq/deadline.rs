//! How long to wait for a missing packet: the spread of the links' one-way delays.
//!
//! ```text
//! deadline = arrival of the first packet behind the hole
//!          + max over live links of (SOWD_i + 4 OWDVAR_i)  -  SOWD of the link it came on
//!          + GRANULARITY,                                     at most `max_wait` after that arrival
//! ```
//!
//! The missing packet was sealed before the one behind it. That one was sealed about `SOWD` of its
//! own link before it arrived; the missing one takes at most `SOWD_i + 4 OWDVAR_i` on whichever link
//! it went. This is the timeout of seed 004 (TCP's RTO over one-way delays) with its zero moved to the
//! moment of sending: the paper's timer lets a hole wait for a whole one-way delay although the packet
//! behind it has already spent one. RFC 6298's gains are kept (1/8, 1/4); its floor of 1 s and its
//! doubling are not, for nothing is sent again.
//!
//! Clocks need not agree: a delay here is arrival by our clock minus sending by the peer's, so each
//! holds the same unknown offset, and only differences of delays are used. For the same reason the
//! first variation cannot be half the first delay as in RFC 6298; it is [`FIRST_VARIATION`].
//!
//! A link that was silent for [`STALE_AFTER`] while others delivered does not count in the maximum: a
//! live link sends something at least every 500 ms, so it is in trouble or gone, and its old estimate
//! must not hold up the others. Silence is measured against the newest arrival of any link, not against
//! the clock: when nothing arrives at all, nothing changes. A link that returns starts its estimate
//! afresh. A link that was added lately and has delivered nothing yet has an unknown delay: a hole then
//! waits for `max_wait`, lest all first packets of a slow link come late.

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

/// Smoothed one-way delay and its variation on one link.
#[derive(Clone, Copy, Debug)]
pub(super) struct OneWayDelay {
    /// SOWD, in µs, with the unknown offset between the clocks.
    smoothed_us: i64,
    /// OWDVAR, in µs.
    variation_us: i64,
    added: Instant,
    last: Option<Instant>,
}

impl OneWayDelay {
    /// The delay of a link that was added at this time.
    pub(super) fn new(added: Instant) -> Self {
        Self { smoothed_us: 0, variation_us: 0, added, last: None }
    }

    /// Takes the delay of a datagram that arrived `now`; returns SOWD after it.
    pub(super) fn sample(&mut self, now: Instant, delay_us: i64) -> i64 {
        match self.last {
            Some(last) if now.since(last) <= STALE_AFTER => {
                let error = delay_us.saturating_sub(self.smoothed_us);
                let deviation = error.saturating_abs();
                self.variation_us += deviation.saturating_sub(self.variation_us) / 4;
                self.smoothed_us = self.smoothed_us.saturating_add(error / 8);
            }
            _ => (self.smoothed_us, self.variation_us) = (delay_us, FIRST_VARIATION_US),
        }
        self.last = Some(now);
        self.smoothed_us
    }

    /// `SOWD + 4 OWDVAR` in µs, the largest there is if it is unknown yet; `None` if the link was silent
    /// for long before `newest`, the latest arrival on any link.
    pub(super) fn worst_us(&self, newest: Instant) -> Option<i64> {
        if newest.since(self.last.unwrap_or(self.added)) > STALE_AFTER {
            return None;
        }
        Some(match self.last {
            Some(_) => self.smoothed_us.saturating_add(self.variation_us.saturating_mul(4)),
            None => i64::MAX,
        })
    }
}

/// The delay of a datagram in µs, with the unknown offset between the clocks.
pub(super) fn delay_us(now: Instant, sent_us: i64) -> i64 {
    i64::try_from(now.as_micros()).unwrap_or(i64::MAX).saturating_sub(sent_us)
}

/// How long a packet from a link with `sowd_us` may wait for one before it. `worst_us`: the maximum
/// over the live links, `None` if there is none (then there is nobody to wait for).
pub(super) fn patience(worst_us: Option<i64>, sowd_us: i64, max_wait: Duration) -> Duration {
    let spread = worst_us.map_or(0, |worst| worst.saturating_sub(sowd_us).max(0));
    Duration::from_micros(spread.unsigned_abs()).saturating_add(GRANULARITY).min(max_wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAP: Duration = Duration::from_millis(500);

    fn settled(delay_us: i64) -> OneWayDelay {
        let mut owd = OneWayDelay::new(Instant::ZERO);
        for ms in 0..100 {
            owd.sample(Instant::from_millis(ms), delay_us);
        }
        owd
    }

    #[test]
    fn steady_links_wait_their_difference_whatever_the_offset_of_the_clocks() {
        let now = Instant::from_millis(99);
        for offset in [0, -7_000_000_000, 7_000_000_000] {
            let (fast, slow) = (settled(offset + 5_000), settled(offset + 50_000));
            let worst = fast.worst_us(now).max(slow.worst_us(now));
            let wait = patience(worst, fast.smoothed_us, CAP);
            let expected = Duration::from_millis(45) + GRANULARITY;
            assert!(wait >= expected && wait < expected + Duration::from_micros(50), "{wait:?}");
            let wait = patience(worst, slow.smoothed_us, CAP);
            assert!(wait < GRANULARITY + Duration::from_micros(50), "{wait:?}");
        }
    }

    #[test]
    fn gains_are_an_eighth_and_a_quarter() {
        let last = Some(Instant::ZERO);
        let mut owd =
            OneWayDelay { smoothed_us: 80_000, variation_us: 4_000, added: Instant::ZERO, last };
        owd.sample(Instant::from_millis(1), 96_000);
        assert_eq!((owd.smoothed_us, owd.variation_us), (82_000, 7_000));
    }

    #[test]
    fn a_link_silent_for_long_does_not_count_and_starts_afresh() {
        let mut owd = settled(300_000);
        assert!(owd.worst_us(Instant::from_millis(1_099)).is_some());
        assert_eq!(owd.worst_us(Instant::from_millis(1_100)), None);
        assert_eq!(owd.sample(Instant::from_millis(5_000), 20_000), 20_000);
    }

    #[test]
    fn a_link_not_heard_of_yet_is_given_the_longest_wait_for_a_while() {
        let owd = OneWayDelay::new(Instant::from_millis(100));
        assert_eq!(patience(owd.worst_us(Instant::from_millis(1_100)), 5_000, CAP), CAP);
        assert_eq!(owd.worst_us(Instant::from_millis(1_101)), None);
    }

    #[test]
    fn the_wait_is_capped_and_absurd_times_do_not_overflow() {
        assert_eq!(patience(Some(i64::MAX), i64::MIN, CAP), CAP);
        assert_eq!(patience(Some(i64::MIN), i64::MAX, CAP), GRANULARITY);
        assert_eq!(patience(None, 0, CAP), GRANULARITY);
        let mut owd = OneWayDelay::new(Instant::ZERO);
        for sent in [i64::MIN, i64::MAX, i64::MIN, 0] {
            owd.sample(Instant::ZERO, delay_us(Instant::from_nanos(u64::MAX), sent));
            let _ = owd.worst_us(Instant::ZERO);
        }
    }
}
