//! How much a far end lets be under way at most.
//!
//! A receiver opens its window while that is filled, as far as its memory goes (Linux: two thirds of what `tcp_rmem` ends at, often 6 MB). Until then nobody
//! knows where it ends. One that was filled and had not opened further for some round trips is at its end. Then a link over which
//! packets take so long that the sooner links alone fill the window is worth nothing to the connection (`sched/arrival.rs`).

use crate::time::{Duration, Instant};

/// A window that is filled opens once in a round trip of the receiver (Linux: `tcp_rcv_space_adjust`). One that did not in so many is at
/// its end.
const ROUND_TRIPS: u32 = 4;

/// And no sooner than so long after it opened: a receiver opens its window when its application reads, and that may rest.
const LEAST: Duration = Duration::from_millis(500);

/// Opening by less than one part in so many is none: a receiver counts the memory of its packets, and that varies.
const PARTS: u32 = 16;

/// The window of one far end.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettledWindow {
    widest: u32,
    opened_at: Instant,
    is_settled: bool,
}

impl SettledWindow {
    /// Nothing was offered yet.
    pub(super) const fn new(now: Instant) -> Self {
        Self { widest: 0, opened_at: now, is_settled: false }
    }

    /// The far end takes so many bytes beyond what it confirms.
    pub(super) fn on_offered(&mut self, now: Instant, bytes: u32) {
        if bytes > self.widest.saturating_add(self.widest / PARTS) {
            *self = Self { widest: bytes, opened_at: now, is_settled: false };
        }
    }

    /// As much is under way, to a far end that confirms within `trip`.
    pub(super) fn on_filled(&mut self, now: Instant, trip: Duration) {
        self.is_settled |= now.since(self.opened_at) > (trip * ROUND_TRIPS).max(LEAST);
    }

    /// Bytes that are under way at most; the largest number if nobody knows.
    pub(super) const fn most(&self) -> u32 {
        if self.is_settled { self.widest } else { u32::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIP: Duration = Duration::from_millis(200);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    #[test]
    fn a_window_is_at_its_end_when_it_was_filled_and_did_not_open_for_four_round_trips() {
        let mut window = SettledWindow::new(at(0));
        for (ms, offered) in [(100, 64_000), (300, 128_000), (500, 4_000_000)] {
            window.on_offered(at(ms), offered);
            window.on_filled(at(ms + 100), TRIP);
            assert_eq!(window.most(), u32::MAX, "it opened just now");
        }
        window.on_offered(at(1200), 4_100_000);
        window.on_filled(at(1300), TRIP);
        assert_eq!(window.most(), u32::MAX, "four round trips are not over");
        window.on_filled(at(1301), TRIP);
        assert_eq!(window.most(), 4_000_000);
        window.on_offered(at(1400), 1_000_000);
        assert_eq!(window.most(), 4_000_000, "what waits there is read some time");
        window.on_offered(at(1500), 4_300_000);
        assert_eq!(window.most(), u32::MAX, "it opens");
    }

    #[test]
    fn one_that_is_never_filled_may_open_further() {
        let mut window = SettledWindow::new(at(0));
        window.on_offered(at(100), 4_000_000);
        window.on_offered(at(100_000), 4_000_000);
        assert_eq!(window.most(), u32::MAX);
    }

    #[test]
    fn over_a_short_way_a_receiver_is_given_half_a_second() {
        let mut window = SettledWindow::new(at(0));
        window.on_offered(at(0), 64_000);
        for (ms, most) in [(500, u32::MAX), (501, 64_000)] {
            window.on_filled(at(ms), Duration::from_millis(1));
            assert_eq!(window.most(), most);
        }
    }
}
