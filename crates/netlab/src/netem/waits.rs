//! How long packets waited for the transmitter: a histogram, so that a run of any length needs the same memory.

use std::time::Duration;

/// Below this many microseconds every one has a bucket of its own.
const EXACT: u64 = 64;
/// Beyond, each doubling is divided into so many, which makes a figure wrong by 3 % at most.
const STEPS: usize = 32;
/// Waits are below 2 to the power of this, in microseconds: 134 s. Longer ones count as this.
const POWERS: usize = 27;
const FIRST_POWER: usize = EXACT.ilog2() as usize;
const BUCKETS: usize = EXACT as usize + (POWERS - FIRST_POWER) * STEPS;

/// Packets by how long they waited for their turn, their own transmission left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waits {
    buckets: Vec<u64>,
}

impl Default for Waits {
    fn default() -> Self {
        Self { buckets: vec![0; BUCKETS] }
    }
}

impl Waits {
    /// A packet waited.
    pub(super) fn note(&mut self, waited: Duration) {
        self.buckets[bucket(waited)] += 1;
    }

    /// Those noted since `earlier`, a copy of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&earlier.buckets);
        Self { buckets: pairs.map(|(now, then)| now - then).collect() }
    }

    /// Together with those of another link.
    #[must_use]
    pub fn with(&self, other: &Self) -> Self {
        let pairs = self.buckets.iter().zip(&other.buckets);
        Self { buckets: pairs.map(|(ours, theirs)| ours + theirs).collect() }
    }

    /// The wait that `percent` of the packets did not exceed, in milliseconds; no number where there were none.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "packets and microseconds are far below 2^52")]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "just said")]
    pub fn percentile_ms(&self, percent: f64) -> f64 {
        let all: u64 = self.buckets.iter().sum();
        let rank = ((all as f64 * percent / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        let reached = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        reached.map_or(f64::NAN, |bucket| lowest(bucket) as f64 / 1e3)
    }
}

fn bucket(waited: Duration) -> usize {
    let most = (1 << POWERS) - 1;
    let micros = u64::try_from(waited.as_micros()).unwrap_or(most).min(most);
    if micros < EXACT {
        return usize::try_from(micros).unwrap_or(0);
    }
    let power = micros.ilog2() as usize;
    let step = usize::try_from(micros >> (power - STEPS.ilog2() as usize)).unwrap_or(0) - STEPS;
    EXACT as usize + (power - FIRST_POWER) * STEPS + step
}

/// The shortest wait of a bucket, in microseconds.
fn lowest(bucket: usize) -> u64 {
    let Some(beyond) = bucket.checked_sub(EXACT as usize) else { return bucket as u64 };
    let (power, step) = (FIRST_POWER + beyond / STEPS, beyond % STEPS);
    ((STEPS + step) as u64) << (power - STEPS.ilog2() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_is_told_exactly_or_at_most_three_percent_too_short() {
        for micros in (0..5_000).chain([65_535, 65_536, 1_000_000, 99_999_999]) {
            let told = lowest(bucket(Duration::from_micros(micros)));
            assert!(told <= micros && (micros - told) * 32 <= micros, "{micros} as {told}");
            assert!(micros >= EXACT || told == micros, "{micros} as {told}");
        }
        assert_eq!(bucket(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_what_was_noted_since() {
        let mut waits = Waits::default();
        assert!(waits.percentile_ms(50.0).is_nan());
        (0..50).for_each(|_| waits.note(Duration::from_secs(9)));
        let earlier = waits.clone();
        (1..=100).for_each(|ms| waits.note(Duration::from_millis(ms)));
        let since = waits.since(&earlier);
        for (percent, expected) in [(1.0, 1.0), (50.0, 50.0), (95.0, 95.0), (100.0, 100.0)] {
            let told = since.percentile_ms(percent);
            assert!(told <= expected && told > 0.96 * expected, "{percent} %: {told} ms");
        }
        assert!(since.with(&earlier).percentile_ms(95.0) > 8_000.0);
    }
}
