//! Rates over about the last second, from two samples of the totals.
//!
//! A sample is taken when something happens and the newest one is a second old, so an idle client does
//! not wake for it. A rate is what came since the newest sample that is old enough to give a steady
//! figure.

use std::collections::BTreeMap;

use ropewalk_proto::client::{ClientStats, LinkKey};
use ropewalk_proto::time::{Duration, Instant};

/// Time between samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// Over less, one burst of a few datagrams would look like a rate.
const LEAST_SPAN: Duration = Duration::from_millis(500);

/// Whose bytes: the tunnel's packets, or the datagrams of a link.
type Key = Option<LinkKey>;

/// Bytes client to proxy, and proxy to client.
type Bytes = (u64, u64);

/// The last two samples.
#[derive(Debug)]
pub(crate) struct Rates {
    older: Sample,
    newer: Sample,
}

#[derive(Clone, Debug)]
struct Sample {
    at: Instant,
    totals: BTreeMap<Key, Bytes>,
}

/// What rates are computed from.
#[derive(Debug)]
pub(crate) struct Span<'a> {
    base: &'a Sample,
    seconds: f64,
}

impl Rates {
    /// Nothing has come before `now`.
    pub(crate) fn new(now: Instant) -> Self {
        let empty = Sample { at: now, totals: BTreeMap::new() };
        Self { older: empty.clone(), newer: empty }
    }

    /// Whether it is time for a sample.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.since(self.newer.at) >= INTERVAL
    }

    /// Takes a sample.
    pub(crate) fn sample(&mut self, now: Instant, stats: &ClientStats) {
        self.push(Sample { at: now, totals: totals(stats) });
    }

    /// The time up to `now` that rates are given for.
    pub(crate) fn until(&self, now: Instant) -> Span<'_> {
        let old_enough = now.since(self.newer.at) >= LEAST_SPAN;
        let base = if old_enough { &self.newer } else { &self.older };
        Span { base, seconds: now.since(base.at).as_secs_f64() }
    }

    fn push(&mut self, sample: Sample) {
        self.older = std::mem::replace(&mut self.newer, sample);
    }
}

impl Span<'_> {
    /// Bits per second up and down.
    pub(crate) fn of(&self, key: Key, (up, down): Bytes) -> (f64, f64) {
        // What was not there yet began at zero.
        let base = self.base.totals.get(&key).copied().unwrap_or_default();
        (self.rate(base.0, up), self.rate(base.1, down))
    }

    #[expect(clippy::cast_precision_loss, reason = "the bytes of a second are below 2^53")]
    fn rate(&self, base: u64, total: u64) -> f64 {
        if self.seconds <= 0.0 {
            return 0.0;
        }
        total.saturating_sub(base) as f64 * 8.0 / self.seconds
    }
}

fn totals(stats: &ClientStats) -> BTreeMap<Key, Bytes> {
    let links = stats.links.iter();
    let links = links.map(|link| (Some(link.key), (link.sent.bytes, link.received.bytes)));
    let tunnel = (None, (stats.accepted.bytes, stats.delivered.bytes));
    links.chain([tunnel]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINK: Key = Some(LinkKey(3));

    fn sample(millis: u64, totals: &[(Key, Bytes)]) -> Sample {
        Sample { at: Instant::from_millis(millis), totals: totals.iter().copied().collect() }
    }

    #[test]
    fn a_rate_is_over_the_newest_sample_that_is_old_enough() {
        let mut rates = Rates::new(Instant::ZERO);
        rates.push(sample(1_000, &[(LINK, (1_000, 0))]));
        rates.push(sample(2_000, &[(LINK, (3_000, 500))]));
        let rate = |millis, bytes| rates.until(Instant::from_millis(millis)).of(LINK, bytes);
        // 500 ms after the newer sample: over it. Sooner: over the older one.
        assert_eq!(rate(2_500, (4_000, 500)), (16_000.0, 0.0));
        assert_eq!(rate(2_250, (3_500, 1_000)), (16_000.0, 6_400.0));
        // After a long idle time: the mean since the newest sample.
        assert_eq!(rate(12_000, (4_250, 500)), (1_000.0, 0.0));
    }

    #[test]
    fn samples_are_a_second_apart_and_what_is_new_begins_at_zero() {
        let rates = Rates::new(Instant::ZERO);
        assert!(!rates.is_due(Instant::from_millis(999)));
        assert!(rates.is_due(Instant::from_millis(1_000)));
        assert_eq!(rates.until(Instant::from_millis(1_000)).of(LINK, (125, 0)), (1_000.0, 0.0));
        assert_eq!(rates.until(Instant::ZERO).of(LINK, (125, 0)), (0.0, 0.0));
    }
}
