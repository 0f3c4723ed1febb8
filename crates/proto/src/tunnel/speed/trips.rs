//! The round trips of a link in a phase of a speed test.

use crate::time::Duration;

/// Most round trips that are kept: those of ten seconds at 800 reports a second.
const MOST: usize = 8192;

/// Round trips in the order in which they were measured. Where they are many, every second, fourth, eighth and so on is kept: all parts
/// of the time count alike.
#[derive(Clone, Debug)]
pub struct Trips {
    micros: Vec<u32>,
    /// One of so many is kept.
    every: u32,
    /// So many came since the last that was kept.
    since: u32,
}

impl Default for Trips {
    fn default() -> Self {
        Self { micros: Vec::new(), every: 1, since: 0 }
    }
}

impl Trips {
    /// One more was measured.
    pub(super) fn record(&mut self, trip: Duration) {
        self.since += 1;
        if self.since < self.every {
            return;
        }
        self.since = 0;
        if self.micros.len() == MOST {
            let mut keep = false;
            self.micros.retain(|_| {
                keep = !keep;
                keep
            });
            self.every = self.every.saturating_mul(2);
        }
        self.micros.push(u32::try_from(trip.as_micros()).unwrap_or(u32::MAX));
    }

    /// How many are kept.
    #[must_use]
    pub fn count(&self) -> usize {
        self.micros.len()
    }

    /// The round trip that `percent` of all do not exceed; `None`: none was measured.
    #[must_use]
    pub fn percentile(&self, percent: u8) -> Option<Duration> {
        let mut sorted = self.micros.clone();
        sorted.sort_unstable();
        let rank = (sorted.len() * usize::from(percent.min(100))).div_ceil(100).max(1);
        let micros = sorted.get(rank - 1)?;
        Some(Duration::from_micros(u64::from(*micros)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trips(micros: impl IntoIterator<Item = u64>) -> Trips {
        let mut trips = Trips::default();
        micros.into_iter().for_each(|micros| trips.record(Duration::from_micros(micros)));
        trips
    }

    #[test]
    fn percentiles_are_those_of_what_was_measured() {
        let some = trips((1..=100).rev());
        for (percent, expected) in [(0, 1), (1, 1), (50, 50), (95, 95), (100, 100), (255, 100)] {
            assert_eq!(some.percentile(percent), Some(Duration::from_micros(expected)));
        }
        assert_eq!(trips([]).percentile(50), None);
        assert_eq!(trips([7]).percentile(95), Some(Duration::from_micros(7)));
    }

    #[test]
    fn of_many_a_part_is_kept_and_the_percentiles_stay() {
        let many = trips(0..1_000_000);
        assert!((MOST / 2..=MOST).contains(&many.count()), "{}", many.count());
        for (percent, expected) in [(50, 500_000.0), (95, 950_000.0)] {
            let found = many.percentile(percent).unwrap().as_secs_f64() * 1e6;
            assert!((found - expected).abs() < 2_000.0, "{percent} %: {found}");
        }
    }
}
