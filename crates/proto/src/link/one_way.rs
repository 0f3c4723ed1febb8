//! How long a link takes one way, beside the others of its tunnel.
//!
//! The receiver's clock has an unknown epoch, the same for all links: differences between links are true. What counts is the
//! smallest of the last two seconds of the smoothed delay: with the present one a queue that passes looks like a long link,
//! and is waited for.

use crate::time::{Duration, Instant};

/// A new delay is one part in so many of the smoothed one; the first ones are shares of their mean.
const PARTS_OF_MEAN: i64 = 16;
/// A link that rests is asked once a second. After a pause a delay that is further from those before it than so many times what they
/// vary by says that the path is another one, and counts for half.
const PAUSE: Duration = Duration::from_millis(250);
const USUAL: i64 = 3;
/// How a delay varies that hardly does, µs: by the turns of the machines.
const LEAST_VARIATION_US: i64 = 1_000;
/// The memory of the smallest delay, in parts, and how long each lasts.
const PARTS: usize = 4;
const PART: Duration = Duration::from_millis(500);

/// The one-way delay of a link, µs, from an epoch that all links of the tunnel share.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OneWay {
    smoothed: Option<i64>,
    /// The mean of what delays differ from that by.
    variation: i64,
    /// How many delays the mean has, up to [`PARTS_OF_MEAN`].
    known: i64,
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
        let error = delay_us.saturating_sub(before);
        let usual = self.variation.max(LEAST_VARIATION_US).saturating_mul(USUAL);
        if now.since(self.newest) >= PAUSE && error.saturating_abs() > usual {
            self.known = 1;
        }
        self.known = (self.known + 1).min(PARTS_OF_MEAN);
        let smoothed = before.saturating_add(error / self.known);
        self.variation += error.saturating_abs().saturating_sub(self.variation) / self.known;
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
    fn a_link_that_rests_is_believed_by_the_mean_of_many_delays_unless_its_path_changed() {
        let mut one_way = OneWay::default();
        let mut now = Instant::ZERO;
        let mut ask = |delay_ms: i64| {
            now += Duration::from_secs(1);
            one_way.on_delay(now, delay_ms * 1000);
            one_way.delay_us().unwrap_or_default()
        };
        // 25 ms more or less: with half of each new one it looked like one of 30 ms every few seconds.
        let asked: Vec<_> = (0..100).map(|nth| ask([25, 75, 50, 80, 20][nth % 5])).collect();
        assert!(asked[10..].iter().all(|us| (40_000..=60_000).contains(us)), "{asked:?}");
        for ms in [300, 300, 300] {
            ask(ms);
        }
        assert!(ask(300) > 170_000, "a path that changed");
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
