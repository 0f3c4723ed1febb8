//! The tests that somebody may ask for: the last one, and for a moment the one before. Who began that may ask once more for what it
//! found, although another program was quicker to begin the next.

use ropewalk_proto::time::Instant;

use super::{PATIENCE, SpeedTest};

/// The last tests.
#[derive(Debug, Default)]
pub(crate) struct KnownTests {
    last: Option<SpeedTest>,
    /// It is over; and until when it is kept.
    before: Option<(SpeedTest, Instant)>,
}

impl KnownTests {
    /// By which the next one will be asked for.
    pub(crate) fn next_id(&self) -> u64 {
        self.last.as_ref().map_or(1, |last| last.id() + 1)
    }

    /// Another one began; none went on.
    pub(crate) fn begin(&mut self, now: Instant, test: SpeedTest) {
        let before = self.last.replace(test);
        self.before = before.map(|before| (before, now + PATIENCE));
    }

    /// The one that goes on.
    pub(crate) fn running(&mut self) -> Option<&mut SpeedTest> {
        self.last.as_mut().filter(|test| test.goes_on())
    }

    /// The one with this id.
    pub(crate) fn of(&mut self, now: Instant, id: u64) -> Option<&mut SpeedTest> {
        self.before.take_if(|(_, until)| *until < now);
        let before = self.before.as_mut().map(|(test, _)| test);
        self.last.as_mut().into_iter().chain(before).find(|test| test.id() == id)
    }

    /// When the one that goes on has something to do.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        self.last.as_ref()?.poll_timeout()
    }
}
