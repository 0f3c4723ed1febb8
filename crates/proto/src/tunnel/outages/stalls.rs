//! How long what was moved off links stood still, as a distribution: counts of a few ranges, however many outages there were.

use crate::time::Duration;

/// Where the ranges end: at what is asked of a tunnel, so that the share within it is exact, and near it on both sides, since a
/// quantile is a guess within its range. A stall includes one round trip.
///
/// * 20 ms is the distance between two packets of a call: less is no gap;
/// * 50 ms is what 99 of 100 stalls are to stay within where somebody told of the link, and 150 ms where nobody did;
/// * 200 ms is when a late answer becomes an outage;
/// * half a second and more is what a person sees without a call.
pub const STALL_BOUNDS: [Duration; 10] = [
    Duration::from_millis(20),
    Duration::from_millis(35),
    Duration::from_millis(50),
    Duration::from_millis(75),
    Duration::from_millis(100),
    Duration::from_millis(150),
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// Outages by how long what was moved stood still; those of which that is not known are not in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stalls {
    /// How many were in each range: up to and with its bound, and beyond the one before. The last has no bound.
    pub counts: [u64; STALL_BOUNDS.len() + 1],
    /// All together.
    pub sum: Duration,
}

impl Stalls {
    /// One more.
    pub(super) fn add(&mut self, stall: Duration) {
        self.counts[STALL_BOUNDS.partition_point(|bound| *bound < stall)] += 1;
        self.sum = self.sum.saturating_add(stall);
    }

    /// Those of a later session belong to these.
    pub(super) fn merge(&mut self, later: &Self) {
        for (count, more) in self.counts.iter_mut().zip(later.counts) {
            *count += more;
        }
        self.sum = self.sum.saturating_add(later.sum);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_is_in_the_range_that_ends_at_or_above_it_and_the_longest_in_the_last() {
        let mut stalls = Stalls::default();
        for bound in STALL_BOUNDS {
            stalls.add(bound);
        }
        assert_eq!(stalls.counts, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0]);
        stalls.add(Duration::from_micros(50_001));
        stalls.add(Duration::from_secs(60));
        assert_eq!(stalls.counts, [1, 1, 1, 2, 1, 1, 1, 1, 1, 1, 1]);
        assert_eq!(stalls.sum, Duration::from_micros(65_180_001));
    }
}
