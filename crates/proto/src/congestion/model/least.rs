//! The smallest of the values of a moving span of time.

use std::collections::VecDeque;

/// Values kept at most. Those that are kept rise, and are apart by more than the span's share of [`APART`].
const MOST: usize = 256;
/// Values that rise within so small a share of the span stand for each other: a rate that falls for seconds gives one with
/// each report.
const APART: f64 = 1.0 / 128.0;

/// The smallest value of a moving span.
#[derive(Clone, Debug, Default)]
pub(super) struct Least(VecDeque<(f64, f64)>);

impl Least {
    /// Notes a value of the moment `at`, and returns the smallest of the last `span`.
    pub(super) fn note(&mut self, at: f64, value: f64, span: f64) -> f64 {
        while self.0.back().is_some_and(|(_, last)| *last >= value) {
            self.0.pop_back();
        }
        if self.0.back().is_none_or(|(then, _)| at - then >= span * APART) {
            if self.0.len() >= MOST {
                self.0.pop_front();
            }
            self.0.push_back((at, value));
        }
        while self.0.len() > 1 && self.0.front().is_some_and(|(then, _)| *then < at - span) {
            self.0.pop_front();
        }
        self.0.front().map_or(value, |(_, least)| *least)
    }

    /// Notes a value, and returns the largest of the last `span`.
    pub(super) fn note_for_most(&mut self, at: f64, value: f64, span: f64) -> f64 {
        -self.note(at, -value, span)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_a_span_is_forgotten_with_it() {
        let mut least = Least::default();
        let noted: Vec<f64> =
            [(0.0, 5.0), (1.0, 3.0), (2.0, 4.0), (3.0, 6.0), (4.5, 9.0), (9.0, 7.0)]
                .map(|(at, value)| least.note(at, value, 3.0))
                .to_vec();
        assert_eq!(noted, [5.0, 3.0, 3.0, 3.0, 4.0, 7.0]);
    }

    #[test]
    fn values_that_rise_all_the_time_are_remembered_for_the_whole_span() {
        let mut least = Least::default();
        let noted: Vec<f64> =
            (0..30_000).map(|ms| least.note(f64::from(ms) * 1e-3, f64::from(ms), 15.0)).collect();
        assert!((14_850.0..=15_150.0).contains(&noted[29_999]), "{}", noted[29_999]);
        assert!(least.0.len() <= 130, "{} values", least.0.len());
    }

    #[test]
    fn its_memory_is_bounded_if_the_span_grows_short() {
        let mut least = Least::default();
        for rising in 0..10_000_u32 {
            let span = 1.0 / f64::from(rising + 1);
            least.note(f64::from(rising), f64::from(rising), span);
            assert!(least.0.len() <= MOST);
        }
    }
}
