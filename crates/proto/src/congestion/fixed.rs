//! A window that never changes, or a rate that never changes: the baseline for tests, and for links whose
//! capacity is known.

use ropewalk_settings::Bitrate;

use super::{Controller, MAX_WINDOW};

/// A constant window; or, for a link whose rate was told, that rate and no window.
#[derive(Clone, Debug)]
pub struct Fixed {
    window: u32,
    rate: Option<Bitrate>,
}

impl Fixed {
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
