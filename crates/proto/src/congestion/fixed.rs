//! A window that never changes: the baseline for tests, and for links whose capacity is known.

use super::{Controller, MAX_WINDOW};

/// A constant window.
#[derive(Clone, Debug)]
pub struct Fixed {
    window: u32,
}

impl Fixed {
    /// Used when the configuration says only `fixed`: 64 full datagrams are 7.7 Mbit/s at 100 ms,
    /// the middle of what a home link carries.
    pub const DEFAULT_WINDOW: u32 = 64;

    /// A window of `window` datagrams, at least 1 and at most [`MAX_WINDOW`].
    #[must_use]
    pub fn new(window: u32) -> Self {
        Self { window: window.clamp(1, MAX_WINDOW) }
    }
}

impl Controller for Fixed {
    fn window(&self) -> u32 {
        self.window
    }
}
