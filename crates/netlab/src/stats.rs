//! Plain figures about measured times and rates.

use std::time::Duration;

use serde::Serialize;

/// The spread of a set of times, in milliseconds. The p-th percentile is the smallest value that
/// at least p percent do not exceed (nearest rank).
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    /// How many values.
    pub count: usize,
    /// The smallest.
    pub min_ms: f64,
    /// The arithmetic mean.
    pub mean_ms: f64,
    /// The median.
    pub p50_ms: f64,
    /// The 95th percentile.
    pub p95_ms: f64,
    /// The 99th percentile.
    pub p99_ms: f64,
    /// The largest.
    pub max_ms: f64,
}

impl Percentiles {
    /// Of `times`, in any order; all zero where there are none.
    #[must_use]
    pub fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let (Some(min), Some(max)) = (times.first(), times.last()) else { return Self::default() };
        let rank = |percent: usize| {
            let index = (times.len() * percent).div_ceil(100).max(1) - 1;
            millis(times[index])
        };
        #[expect(clippy::cast_precision_loss, reason = "a count of samples is far below 2^52")]
        let count = times.len() as f64;
        Self {
            count: times.len(),
            min_ms: millis(*min),
            mean_ms: times.iter().copied().map(millis).sum::<f64>() / count,
            p50_ms: rank(50),
            p95_ms: rank(95),
            p99_ms: rank(99),
            max_ms: millis(*max),
        }
    }
}

/// `bytes` in `time` as Mbit/s (10^6 bits a second); zero where no time passed.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "measured traffic is far below 2^52 bytes")]
pub fn mbit(bytes: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8.0 / 1e6 / time.as_secs_f64() }
}

/// `part` of `whole` in percent; zero where there is no whole.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
pub fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { 100.0 * part as f64 / whole as f64 }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_take_the_nearest_rank() {
        let of =
            |ms: &[u64]| Percentiles::of(ms.iter().copied().map(Duration::from_millis).collect());
        assert_eq!(of(&[]).count, 0);
        let hundred: Vec<u64> = (1..=100).rev().collect();
        let p = of(&hundred);
        assert_eq!(
            (p.min_ms, p.p50_ms, p.p95_ms, p.p99_ms, p.max_ms),
            (1.0, 50.0, 95.0, 99.0, 100.0)
        );
        assert_eq!(p.mean_ms, 50.5);
        let p = of(&[3, 1]);
        assert_eq!((p.p50_ms, p.p99_ms), (1.0, 3.0));
    }

    #[test]
    fn rates_are_in_decimal_megabits() {
        assert_eq!(mbit(1_250_000, Duration::from_secs(1)), 10.0);
        assert_eq!(mbit(1, Duration::ZERO), 0.0);
        assert_eq!(percent(1, 4), 25.0);
        assert_eq!(percent(1, 0), 0.0);
    }
}
