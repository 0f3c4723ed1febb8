//! A line on standard error that says how far something is, while it goes on.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use crate::exit::plain;

/// From one writing of the line to the next, at least: nobody reads faster.
const EVERY: Duration = Duration::from_millis(100);

/// The line, if standard error is a terminal; gone when dropped.
pub(crate) struct Live {
    is_terminal: bool,
    written: Option<Instant>,
}

impl Live {
    /// Nothing is written yet.
    pub(crate) fn start() -> Self {
        Self { is_terminal: io::stderr().is_terminal(), written: None }
    }

    /// Writes the line again, if it is time.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        let is_due = self.written.is_none_or(|at| at.elapsed() >= EVERY);
        if self.is_terminal && is_due {
            self.written = Some(Instant::now());
            // Nobody is left to tell if it is closed.
            drop(write!(io::stderr(), "\r{}\u{1b}[K", plain(&line())));
        }
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_terminal {
            drop(write!(io::stderr(), "\r\u{1b}[K"));
        }
    }
}
