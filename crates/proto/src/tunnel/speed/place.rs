//! How many speed tests go on at a time, over all endpoints of a proxy.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

/// The tests that go on. A clone counts the same: the workers of a proxy share one.
#[derive(Clone, Debug, Default)]
pub struct SpeedPlaces(Arc<AtomicU16>);

/// The place of one test; given back when it is dropped.
#[derive(Debug)]
pub struct SpeedPlace(SpeedPlaces);

impl SpeedPlaces {
    /// A place for one more, if fewer than `most` go on.
    #[must_use]
    pub fn take(&self, most: u16) -> Option<SpeedPlace> {
        let one_more = |taken: u16| (taken < most).then_some(taken + 1);
        let taken = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| SpeedPlace(self.clone()))
    }
}

impl Drop for SpeedPlace {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_taken_up_to_the_bound_and_given_back() {
        let places = SpeedPlaces::default();
        let other = places.clone();
        let first = places.take(2);
        let second = other.take(2);
        assert!(first.is_some() && second.is_some());
        assert!(places.take(2).is_none() && other.take(2).is_none(), "they count together");
        drop(first);
        assert!(other.take(2).is_some());
        assert!(places.take(0).is_none());
    }
}
