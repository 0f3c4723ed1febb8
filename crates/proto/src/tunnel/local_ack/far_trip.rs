//! How long a far end takes to confirm what was sent to it: the smoothed round trip of RFC 6298, one measurement at a time.
//!
//! It begins when a segment is taken over, so what that waits in the tunnel's queue counts. The opening gives the first one. What
//! goes again may be confirmed for either time that it went, so that ends a measurement without a result (Karn's algorithm, RFC 6298 §3).

use super::segment::beyond;
use crate::time::{Duration, Instant};

/// The newest measurement is one part in so many of the smoothed time (RFC 6298 §2, `alpha`).
const PARTS: u32 = 8;

/// What a far end is to confirm.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Instant,
    /// All below.
    end: u32,
}

/// The round trip to one far end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FarTrip {
    asked: Option<Asked>,
    smoothed: Option<Duration>,
    /// It was measured since the last probe went.
    is_fresh: bool,
}

impl FarTrip {
    /// The smoothed time.
    pub(super) const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }

    /// Whether it was measured since the last probe went.
    pub(super) const fn is_fresh(&self) -> bool {
        self.is_fresh
    }

    /// All below `end` is on its way, the last of it for the first time.
    pub(super) fn on_sent(&mut self, now: Instant, end: u32) {
        self.asked.get_or_insert(Asked { at: now, end });
    }

    /// The far end has all below `confirmed`.
    pub(super) fn on_confirmed(&mut self, now: Instant, confirmed: u32) {
        let answers = |asked: &mut Asked| beyond(confirmed, asked.end) >= 0;
        if let Some(asked) = self.asked.take_if(answers) {
            let took = now.since(asked.at);
            let smooth = |before: Duration| before - before / PARTS + took / PARTS;
            self.smoothed = Some(self.smoothed.map_or(took, smooth));
            self.is_fresh = true;
        }
    }

    /// Something goes again.
    pub(super) fn forget_asked(&mut self) {
        self.asked = None;
    }

    /// A probe goes. The next one wants a new measurement.
    pub(super) fn on_probe(&mut self) {
        self.forget_asked();
        self.is_fresh = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn the_first_measurement_counts_whole_and_each_other_an_eighth() {
        let mut trip = FarTrip::default();
        assert_eq!(trip.smoothed(), None);
        trip.on_sent(at(0), 1000);
        trip.on_sent(at(50), 2000);
        trip.on_confirmed(at(70), 999);
        assert!(!trip.is_fresh(), "not all of it is confirmed");
        trip.on_confirmed(at(80), 2000);
        assert_eq!(trip.smoothed(), Some(Duration::from_millis(80)));
        trip.on_sent(at(100), 3000);
        trip.on_confirmed(at(260), 3000);
        assert_eq!(trip.smoothed(), Some(Duration::from_millis(90)));
    }

    #[test]
    fn what_went_again_measures_nothing_and_a_probe_wants_a_new_measurement() {
        let mut trip = FarTrip::default();
        trip.on_sent(at(0), 1000);
        trip.on_confirmed(at(80), 1000);
        trip.on_sent(at(100), 2000);
        trip.forget_asked();
        trip.on_confirmed(at(900), 2000);
        assert_eq!(trip.smoothed(), Some(Duration::from_millis(80)));
        assert!(trip.is_fresh());
        trip.on_sent(at(1000), 3000);
        trip.on_probe();
        trip.on_confirmed(at(1900), 3000);
        assert!(!trip.is_fresh());
        assert_eq!(trip.smoothed(), Some(Duration::from_millis(80)));
        trip.on_sent(at(2000), 4000);
        trip.on_confirmed(at(2080), 4000);
        assert!(trip.is_fresh());
    }

    #[test]
    fn numbers_may_wrap_around_between_a_segment_and_its_confirmation() {
        let mut trip = FarTrip::default();
        trip.on_sent(at(0), 500);
        trip.on_confirmed(at(10), u32::MAX - 500);
        assert_eq!(trip.smoothed(), None);
        trip.on_confirmed(at(20), 500);
        assert_eq!(trip.smoothed(), Some(Duration::from_millis(20)));
    }
}
