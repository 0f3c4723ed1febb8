//! How late the emulator was, and when that makes a run worthless.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

/// Buckets of one microsecond; what is later than all of them is known only by its maximum.
const BUCKETS: usize = 20_000;

/// A histogram of times in microseconds.
pub(crate) struct Histogram {
    buckets: Vec<u64>,
    count: u64,
    max: Duration,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self { buckets: vec![0; BUCKETS], count: 0, max: Duration::ZERO }
    }

    pub(crate) fn record(&mut self, time: Duration) {
        let bucket = usize::try_from(time.as_micros()).unwrap_or(usize::MAX).min(BUCKETS - 1);
        self.buckets[bucket] += 1;
        self.count += 1;
        self.max = self.max.max(time);
    }

    /// The time that a share of `percent` did not exceed, to one microsecond; zero if nothing was
    /// recorded.
    fn percentile(&self, percent: u64) -> Duration {
        let rank = (self.count * percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (micros, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                let above = Duration::from_micros(micros as u64 + 1);
                return if micros == BUCKETS - 1 { self.max } else { above.min(self.max) };
            }
        }
        Duration::ZERO
    }

    pub(crate) fn summary(&self) -> Lateness {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        Lateness {
            count: self.count,
            p50_us: micros(self.percentile(50)),
            p99_us: micros(self.percentile(99)),
            max_us: micros(self.max),
        }
    }
}

/// Actual minus due time of the frames delivered, in microseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Lateness {
    /// Frames measured.
    pub count: u64,
    /// Half of them were not later.
    pub p50_us: u64,
    /// 99 of 100 were not later.
    pub p99_us: u64,
    /// The latest.
    pub max_us: u64,
}

impl fmt::Display for Lateness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, p50_us, p99_us, max_us } = self;
        write!(f, "{count} frames late by p50 {p50_us} µs, p99 {p99_us} µs, max {max_us} µs")
    }
}

/// The lateness above which a run is void.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bound {
    /// For 99 of 100 frames.
    pub p99: Duration,
    /// For every frame, and for the time in which the emulator did not look at its devices.
    pub max: Duration,
}

impl Default for Bound {
    /// One millisecond, a tenth of the shortest round trip emulated; and 20 ms for the worst frame,
    /// a fifth of the usual queue, which a busy virtual machine exceeds only if it stood still.
    fn default() -> Self {
        Self { p99: Duration::from_millis(1), max: Duration::from_millis(20) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_exact_to_a_microsecond() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.summary(), Lateness::default());
        for micros in 1..=1_000 {
            histogram.record(Duration::from_nanos(micros * 1_000 - 500));
        }
        let expected = Lateness { count: 1_000, p50_us: 500, p99_us: 990, max_us: 999 };
        assert_eq!(histogram.summary(), expected);
    }

    #[test]
    fn what_is_beyond_the_buckets_shows_as_the_maximum() {
        let mut histogram = Histogram::new();
        histogram.record(Duration::from_secs(3));
        let expected =
            Lateness { count: 1, p50_us: 3_000_000, p99_us: 3_000_000, max_us: 3_000_000 };
        assert_eq!(histogram.summary(), expected);
    }
}
