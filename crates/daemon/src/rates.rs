//! Rates over about the last second, from two samples of the totals.
//!
//! The daemon says when a sample is taken: about each second while there is something to count, so that
//! an idle one does not wake for it. A rate is what came since the newest sample that is old enough to
//! give a steady figure.

use std::collections::BTreeMap;

use ropewalk_proto::time::{Duration, Instant};

/// Time between samples.
pub const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// Over less, one burst of a few datagrams would look like a rate.
const LEAST_SPAN: Duration = Duration::from_millis(500);

/// Bytes in both directions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Client to proxy.
    pub up: u64,
    /// Proxy to client.
    pub down: u64,
}

/// The last two samples. `K` tells whose bytes they count.
#[derive(Debug)]
pub struct Rates<K> {
    older: Sample<K>,
    newer: Sample<K>,
}

#[derive(Debug)]
struct Sample<K> {
    at: Instant,
    totals: BTreeMap<K, Bytes>,
}

/// What rates are computed from.
#[derive(Debug)]
pub struct Span<'a, K> {
    base: &'a Sample<K>,
    seconds: f64,
}

impl<K: Ord> Rates<K> {
    /// Nothing has come before `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let empty = || Sample { at: now, totals: BTreeMap::new() };
        Self { older: empty(), newer: empty() }
    }

    /// Whether it is time for a sample.
    #[must_use]
    pub fn is_due(&self, now: Instant) -> bool {
        now.since(self.newer.at) >= SAMPLE_INTERVAL
    }

    /// Takes a sample.
    pub fn sample(&mut self, now: Instant, totals: BTreeMap<K, Bytes>) {
        self.older = std::mem::replace(&mut self.newer, Sample { at: now, totals });
    }

    /// The time up to `now` that rates are given for.
    #[must_use]
    pub fn until(&self, now: Instant) -> Span<'_, K> {
        let old_enough = now.since(self.newer.at) >= LEAST_SPAN;
        let base = if old_enough { &self.newer } else { &self.older };
        Span { base, seconds: now.since(base.at).as_secs_f64() }
    }
}

impl<K: Ord> Span<'_, K> {
    /// Bits per second up and down of what has the total `total` by now.
    #[must_use]
    pub fn of(&self, key: &K, total: Bytes) -> (f64, f64) {
        // What was not there yet began at zero.
        let base = self.base.totals.get(key).copied().unwrap_or_default();
        (self.rate(base.up, total.up), self.rate(base.down, total.down))
    }

    #[expect(clippy::cast_precision_loss, reason = "the bytes of a second are below 2^53")]
    fn rate(&self, base: u64, total: u64) -> f64 {
        if self.seconds <= 0.0 {
            return 0.0;
        }
        total.saturating_sub(base) as f64 * 8.0 / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u8 = 3;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn totals(up: u64, down: u64) -> BTreeMap<u8, Bytes> {
        BTreeMap::from([(KEY, Bytes { up, down })])
    }

    #[test]
    fn a_rate_is_over_the_newest_sample_that_is_old_enough() {
        let mut rates = Rates::new(Instant::ZERO);
        rates.sample(at(1_000), totals(1_000, 0));
        rates.sample(at(2_000), totals(3_000, 500));
        let rate = |millis, up, down| rates.until(at(millis)).of(&KEY, Bytes { up, down });
        // 500 ms after the newer sample: over it. Sooner: over the older one.
        assert_eq!(rate(2_500, 4_000, 500), (16_000.0, 0.0));
        assert_eq!(rate(2_250, 3_500, 1_000), (16_000.0, 6_400.0));
        // After a long idle time: the mean since the newest sample.
        assert_eq!(rate(12_000, 4_250, 500), (1_000.0, 0.0));
    }

    #[test]
    fn samples_are_a_second_apart_and_what_is_new_begins_at_zero() {
        let mut rates = Rates::new(Instant::ZERO);
        assert!(!rates.is_due(at(999)));
        assert!(rates.is_due(at(1_000)));
        rates.sample(at(1_000), totals(500, 500));
        assert!(!rates.is_due(at(1_999)));
        let new = rates.until(at(2_000)).of(&(KEY + 1), Bytes { up: 125, down: 0 });
        assert_eq!(new, (1_000.0, 0.0));
    }

    #[test]
    fn no_time_gives_no_rate_and_a_total_that_fell_none_below_zero() {
        let mut rates = Rates::new(Instant::ZERO);
        let none = (0.0, 0.0);
        assert_eq!(rates.until(Instant::ZERO).of(&KEY, Bytes { up: 9, down: 9 }), none);
        rates.sample(Instant::ZERO, totals(100, 0));
        assert_eq!(rates.until(at(1_000)).of(&KEY, Bytes::default()), none);
    }
}
