//! What came in each second: the series that the papers draw, and how even it is.

use std::time::Duration;

use serde::Serialize;

/// Bytes that came, by the whole second since a beginning.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct PerSecond(Vec<u64>);

impl PerSecond {
    /// The most seconds kept, a day; what comes later counts in none.
    const MAX_SECONDS: usize = 86_400;

    /// So many bytes came at this time since the beginning.
    pub fn note(&mut self, at: Duration, bytes: u64) {
        let second = usize::try_from(at.as_secs()).unwrap_or(usize::MAX);
        if second >= Self::MAX_SECONDS {
            return;
        }
        if self.0.len() <= second {
            self.0.resize(second + 1, 0);
        }
        self.0[second] += bytes;
    }

    /// Adds what came in the seconds of another beginning.
    pub fn add(&mut self, other: &Self) {
        self.0.resize(self.0.len().max(other.0.len()), 0);
        for (ours, theirs) in self.0.iter_mut().zip(&other.0) {
            *ours += theirs;
        }
    }

    /// Mbit/s in each of the first so many seconds; nothing came in those that nobody noted.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "bytes of a second are far below 2^52")]
    pub fn mbit(&self, seconds: usize) -> Vec<f64> {
        let noted = self.0.iter().copied().chain(std::iter::repeat(0)).take(seconds);
        noted.map(|bytes| bytes as f64 * 8.0 / 1e6).collect()
    }
}

/// The standard deviation (of the values as the whole population) by the mean; `None` where there is no
/// value or the mean is zero.
#[must_use]
pub fn coefficient_of_variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
    let variance = squares / values.len() as f64;
    Some(variance.sqrt() / mean)
}

/// A value in percent of the mean of others; `None` where there are none or their mean is zero.
#[must_use]
pub fn percent_of_mean(value: f64, others: &[f64]) -> Option<f64> {
    mean(others).map(|mean| 100.0 * value / mean)
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn mean(values: &[f64]) -> Option<f64> {
    let sum: f64 = values.iter().sum();
    (sum > 0.0).then(|| sum / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_count_in_the_second_in_which_they_came() {
        let mut series = PerSecond::default();
        for (ms, bytes) in [(0, 100_000), (999, 25_000), (2_000, 250_000), (u64::MAX, 7)] {
            series.note(Duration::from_millis(ms), bytes);
        }
        assert_eq!(series.mbit(4), [1.0, 0.0, 2.0, 0.0]);
        assert_eq!(series.mbit(1), [1.0]);
        let mut other = PerSecond::default();
        other.note(Duration::from_secs(1), 125_000);
        other.add(&series);
        assert_eq!(other.mbit(3), [1.0, 1.0, 2.0]);
    }

    #[test]
    fn evenness_is_about_the_mean() {
        assert_eq!(coefficient_of_variation(&[2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0]), Some(0.4));
        assert_eq!(coefficient_of_variation(&[3.0, 3.0]), Some(0.0));
        assert_eq!(percent_of_mean(1.0, &[1.0, 2.0, 3.0]), Some(50.0));
        for none in [&[][..], &[0.0, 0.0]] {
            assert_eq!((coefficient_of_variation(none), percent_of_mean(1.0, none)), (None, None));
        }
    }
}
