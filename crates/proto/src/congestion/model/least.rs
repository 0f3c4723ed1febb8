//! The smallest of the values of a moving span of time.

use std::collections::VecDeque;

/// Values kept at most. Those that are kept rise, so that they are few but in contrived cases; then the oldest goes early.
const MOST: usize = 256;

/// The smallest value of a moving span.
#[derive(Clone, Debug, Default)]
pub(super) struct Least(VecDeque<(f64, f64)>);

impl Least {
    /// Notes a value of the moment `at`, and returns the smallest of the last `span`.
    pub(super) fn note(&mut self, at: f64, value: f64, span: f64) -> f64 {
        while self.0.back().is_some_and(|(_, last)| *last >= value) {
            self.0.pop_back();
        }
        if self.0.len() >= MOST {
            self.0.pop_front();
        }
        self.0.push_back((at, value));
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
    fn its_memory_is_bounded() {
        let mut least = Least::default();
        for rising in 0..10_000_u32 {
            least.note(f64::from(rising) * 1e-6, f64::from(rising), 1.0);
        }
        assert_eq!(least.0.len(), MOST);
    }
}
