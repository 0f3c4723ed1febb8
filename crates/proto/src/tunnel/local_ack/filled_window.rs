//! How much a far end lets be under way at most.
//!
//! A receiver opens its window while that is filled, as far as its memory goes (Linux: two thirds of what `tcp_rmem` ends at, often 6 MB).
//! One that was filled and has not opened further bounds the connection now, whether it will open or not: a link over which packets
//! take so long that the sooner links alone fill the window is worth nothing to the connection (`sched/arrival/least_under_way.rs`), and they
//! fill it as well, so that it opens.

/// Opening by less than one part in so many is none: a receiver counts the memory of its packets, and that varies.
const PARTS: u32 = 16;

/// The window of one far end.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FilledWindow {
    widest: u32,
    was_filled: bool,
}

impl FilledWindow {
    /// The far end takes so many bytes beyond what it confirms.
    pub(super) fn on_offered(&mut self, bytes: u32) {
        if bytes > self.widest.saturating_add(self.widest / PARTS) {
            *self = Self { widest: bytes, was_filled: false };
        }
    }

    /// As much is under way.
    pub(super) fn on_filled(&mut self) {
        self.was_filled = true;
    }

    /// Bytes that are under way at most; the largest number if nobody knows.
    pub(super) const fn most(&self) -> u32 {
        if self.was_filled { self.widest } else { u32::MAX }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_bounds_what_is_under_way_from_when_it_was_filled_until_it_opens() {
        let mut window = FilledWindow::default();
        for offered in [64_000, 128_000, 4_000_000] {
            window.on_offered(offered);
            assert_eq!(window.most(), u32::MAX, "nobody filled it yet");
            window.on_filled();
            assert_eq!(window.most(), offered);
        }
        window.on_offered(1_000_000);
        assert_eq!(window.most(), 4_000_000, "what waits there is read some time");
        window.on_offered(4_250_000);
        assert_eq!(window.most(), 4_000_000, "the memory of packets varies");
        window.on_offered(4_250_001);
        assert_eq!(window.most(), u32::MAX, "it opens");
    }
}
