//! A small histogram of waiting times with logarithmic buckets: fixed memory, quantiles within an
//! eighth of their value.

/// Each power of two is cut into 2^3 buckets: a quantile is at most 12.5 % too high, which is finer
/// than anybody reads a waiting time.
const SUB_BITS: u32 = 3;
const SUB: usize = 1 << SUB_BITS;

/// Waits of 2^24 µs (16 s) and more share the last bucket; nothing is held longer than a second.
const OCTAVES: usize = 24 - SUB_BITS as usize;

/// Counts of waiting times in microseconds.
#[derive(Clone, Debug)]
pub(super) struct Histogram {
    buckets: [u64; SUB * (OCTAVES + 1)],
    total: u64,
}

impl Histogram {
    pub(super) const fn new() -> Self {
        Self { buckets: [0; SUB * (OCTAVES + 1)], total: 0 }
    }

    /// Counts one wait of `micros`.
    pub(super) fn record(&mut self, micros: u64) {
        self.buckets[bucket(micros)] += 1;
        self.total += 1;
    }

    /// The wait that `per_mille` of all waits do not exceed, rounded up to the end of its bucket;
    /// zero if nothing was recorded.
    pub(super) fn quantile_us(&self, per_mille: u64) -> u64 {
        let rank = (self.total * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_end(index);
            }
        }
        0
    }
}

/// The bucket of a wait: linear below 8 µs, then the three bits after the leading one.
fn bucket(micros: u64) -> usize {
    if micros < SUB as u64 {
        return usize::try_from(micros).unwrap_or(0);
    }
    let octave = micros.ilog2() - SUB_BITS;
    if octave as usize >= OCTAVES {
        return SUB * (OCTAVES + 1) - 1;
    }
    let within = (micros >> octave) & (SUB as u64 - 1);
    SUB * (octave as usize + 1) + usize::try_from(within).unwrap_or(0)
}

/// The largest wait that falls into a bucket, in microseconds.
fn upper_end(index: usize) -> u64 {
    let (octave, within) = (index / SUB, (index % SUB) as u64);
    if octave == 0 {
        return within;
    }
    ((SUB as u64 + within + 1) << (octave - 1)) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_lies_in_the_bucket_that_ends_at_or_above_it() {
        for micros in (0..5_000).chain((0..24).flat_map(|b| [(1 << b) - 1, 1 << b, (1 << b) + 1])) {
            let end = upper_end(bucket(micros));
            assert!(end >= micros && end <= micros + micros / 8 + 1, "{micros} -> {end}");
        }
        assert_eq!(bucket(u64::MAX), SUB * (OCTAVES + 1) - 1);
    }

    #[test]
    fn quantiles_split_the_recorded_waits() {
        let mut histogram = Histogram::new();
        assert_eq!(histogram.quantile_us(990), 0);
        for micros in 1..=1000 {
            histogram.record(micros);
        }
        let (p50, p99) = (histogram.quantile_us(500), histogram.quantile_us(990));
        assert!((500..=563).contains(&p50), "{p50}");
        assert!((990..=1114).contains(&p99), "{p99}");
    }
}
