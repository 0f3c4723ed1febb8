//! Rates over about the last second, from two samples of the totals.
//!
//! While there are sessions the daemon takes a sample each second; a rate is what came since the newest
//! sample that is old enough to give a steady figure.

use std::collections::BTreeMap;

use ropewalk_proto::crypto::PublicKey;
use ropewalk_proto::endpoint::EndpointStats;
use ropewalk_proto::time::{Duration, Instant};
use ropewalk_proto::units::{LinkId, SessionIndex};

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

/// Whose bytes: a client's packets, or the datagrams of one link of one session.
type Key = (PublicKey, Option<(SessionIndex, LinkId)>);

/// The last two samples.
#[derive(Debug)]
pub struct Rates {
    older: Sample,
    newer: Sample,
}

#[derive(Debug)]
struct Sample {
    at: Instant,
    totals: BTreeMap<Key, Bytes>,
}

/// What rates are computed from.
#[derive(Debug)]
pub struct Span<'a> {
    base: &'a Sample,
    seconds: f64,
}

impl Rates {
    /// Nothing has come before `now`.
    #[must_use]
    pub fn new(now: Instant) -> Self {
        let empty = || Sample { at: now, totals: BTreeMap::new() };
        Self { older: empty(), newer: empty() }
    }

    /// Takes a sample.
    pub fn sample(&mut self, now: Instant, stats: &EndpointStats) {
        let newer = Sample { at: now, totals: totals(stats) };
        self.older = std::mem::replace(&mut self.newer, newer);
    }

    /// The time up to `now` that rates are given for.
    #[must_use]
    pub fn until(&self, now: Instant) -> Span<'_> {
        let old_enough = now.since(self.newer.at) >= LEAST_SPAN;
        let base = if old_enough { &self.newer } else { &self.older };
        Span { base, seconds: now.since(base.at).as_secs_f64() }
    }
}

impl Span<'_> {
    /// Bits per second up and down of a client's packets.
    #[must_use]
    pub fn of_peer(&self, key: &PublicKey, total: Bytes) -> (f64, f64) {
        self.of((*key, None), total)
    }

    /// Bits per second up and down of a link's datagrams.
    #[must_use]
    pub fn of_link(
        &self,
        key: &PublicKey,
        session: SessionIndex,
        link: LinkId,
        total: Bytes,
    ) -> (f64, f64) {
        self.of((*key, Some((session, link))), total)
    }

    fn of(&self, key: Key, total: Bytes) -> (f64, f64) {
        // What was not there yet began at zero.
        let base = self.base.totals.get(&key).copied().unwrap_or_default();
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

fn totals(stats: &EndpointStats) -> BTreeMap<Key, Bytes> {
    let mut totals = BTreeMap::new();
    for peer in &stats.peers {
        let bytes = Bytes { up: peer.delivered.bytes, down: peer.accepted.bytes };
        totals.insert((peer.key, None), bytes);
        let Some(session) = &peer.session else { continue };
        for link in &session.tunnel.links {
            let bytes = Bytes { up: link.received.bytes, down: link.sent.bytes };
            totals.insert((peer.key, Some((session.info.index, link.id))), bytes);
        }
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PublicKey = PublicKey([1; 32]);

    #[test]
    fn a_rate_is_over_the_newest_sample_that_is_old_enough() {
        let mut rates = Rates::new(Instant::ZERO);
        let set = |rates: &mut Rates, millis, up, down| {
            let totals = BTreeMap::from([((KEY, None), Bytes { up, down })]);
            let newer = Sample { at: Instant::from_millis(millis), totals };
            rates.older = std::mem::replace(&mut rates.newer, newer);
        };
        set(&mut rates, 1_000, 1_000, 0);
        set(&mut rates, 2_000, 3_000, 500);
        let rate = |millis, up, down| {
            rates.until(Instant::from_millis(millis)).of_peer(&KEY, Bytes { up, down })
        };
        // 500 ms after the newer sample: over it.
        assert_eq!(rate(2_500, 4_000, 500), (16_000.0, 0.0));
        // Sooner: over the older one.
        assert_eq!(rate(2_250, 3_500, 625), (16_000.0, 4_000.0));
        // A session that began since.
        let link = rates.until(Instant::from_millis(3_000)).of_link(
            &KEY,
            SessionIndex::new(1),
            LinkId(0),
            Bytes { up: 125, down: 0 },
        );
        assert_eq!(link, (1_000.0, 0.0));
    }

    #[test]
    fn no_time_gives_no_rate_and_a_total_that_fell_none_below_zero() {
        let rates = Rates::new(Instant::ZERO);
        assert_eq!(rates.until(Instant::ZERO).of_peer(&KEY, Bytes { up: 9, down: 9 }), (0.0, 0.0));
        let mut rates = Rates::new(Instant::ZERO);
        rates.newer.totals.insert((KEY, None), Bytes { up: 100, down: 0 });
        let later = rates.until(Instant::from_millis(1_000));
        assert_eq!(later.of_peer(&KEY, Bytes::default()), (0.0, 0.0));
    }
}
