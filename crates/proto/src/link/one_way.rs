//! How long a link takes one way, beside the others of its tunnel.
//!
//! The receiver's clock has an unknown epoch, the same for all links: differences between links are true. What counts is the
//! smallest of the last two seconds of the smoothed delay: with the present one a queue that passes looks like a long link,
//! and is waited for.

use crate::time::{Duration, Instant};

/// The share of a new delay in the smoothed one, as of round trips (RFC 6298).
const SHARE: i64 = 16;
/// After a pause the delays before it say less: a link that rests is asked once a second.
const SHARE_AFTER_PAUSE: i64 = 2;
const PAUSE: Duration = Duration::from_millis(250);
/// The memory of the smallest delay, in parts, and how long each lasts.
const PARTS: usize = 4;
const PART: Duration = Duration::from_millis(500);

/// The one-way delay of a link, µs, from an epoch that all links of the tunnel share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OneWay {
    smoothed: Option<i64>,
    /// The smallest of each part, the newest last.
    least: [Option<i64>; PARTS],
    /// The smallest of all: asked for with each packet.
    delay_us: Option<i64>,
    began: Instant,
    newest: Instant,
}

impl OneWay {
    /// A datagram took so long.
    pub(crate) fn on_delay(&mut self, now: Instant, delay_us: i64) {
        let before = self.smoothed.unwrap_or(delay_us);
        let share = if now.since(self.newest) < PAUSE { SHARE } else { SHARE_AFTER_PAUSE };
        let smoothed = before.saturating_add(delay_us.saturating_sub(before) / share);
        self.newest = now;
        self.smoothed = Some(smoothed);
        if now.since(self.began) >= PART {
            self.began = now;
            self.least.rotate_left(1);
            self.least[PARTS - 1] = None;
        }
        let newest = &mut self.least[PARTS - 1];
        *newest = Some(newest.map_or(smoothed, |least| least.min(smoothed)));
        self.delay_us = self.least.iter().flatten().min().copied();
    }

    /// The delay; `None`: nothing was measured.
    pub(crate) fn delay_us(&self) -> Option<i64> {
        self.delay_us
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_passes_changes_nothing_and_one_that_stays_counts_after_two_seconds() {
        let mut one_way = OneWay::default();
        assert_eq!(one_way.delay_us(), None);
        let mut now = Instant::ZERO;
        let mut run = |millis: u64, delay_us: i64| {
            for _ in 0..millis / 10 {
                now += Duration::from_millis(10);
                one_way.on_delay(now, delay_us);
            }
            one_way.delay_us().unwrap_or_default()
        };
        assert_eq!(run(1000, 20_000), 20_000);
        assert_eq!(run(1000, 120_000), 20_000, "a queue of a second");
        assert_eq!(run(500, 20_000), 20_000);
        assert!(run(3000, 120_000) > 110_000, "the path is another one");
        assert!(run(500, -40_000) < -30_000, "the epoch is any");
    }

    #[test]
    fn absurd_delays_do_not_overflow() {
        let mut one_way = OneWay::default();
        for delay in [i64::MAX, i64::MIN, 0, i64::MIN, i64::MAX] {
            one_way.on_delay(Instant::ZERO, delay);
        }
        assert!(one_way.delay_us().is_some());
    }
}
