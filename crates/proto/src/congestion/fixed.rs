//! A window that never changes, or a rate that never changes: the baseline for tests, and for links whose
//! capacity is known.

use super::{Controller, MAX_WINDOW};
use crate::units::Bitrate;

/// A constant window; or, for a link whose rate was told, that rate and no window.
#[derive(Clone, Debug)]
pub struct Fixed {
    window: u32,
    rate: Option<Bitrate>,
}

impl Fixed {
    /// Used when the configuration says only `fixed`: 64 full datagrams are 7.7 Mbit/s at 100 ms,
    /// the middle of what a home link carries.
    pub const DEFAULT_WINDOW: u32 = 64;

    /// A window of `window` datagrams, at least 1 and at most [`MAX_WINDOW`].
    #[must_use]
    pub fn new(window: u32) -> Self {
        Self { window: window.clamp(1, MAX_WINDOW), rate: None }
    }
}

impl Controller for Fixed {
    fn window(&self) -> u32 {
        if self.rate.is_some() { MAX_WINDOW } else { self.window }
    }

    fn pacing_rate(&self) -> Option<Bitrate> {
        self.rate
    }

    fn on_rate_told(&mut self, rate: Option<Bitrate>) {
        self.rate = rate;
    }
}
