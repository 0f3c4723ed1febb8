//! How packets are put back in order.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::figures::exact_size;
use crate::text::shown_as_written;

/// How packets are put back in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resequencer {
    /// Whether they are; if not, each is delivered as it comes.
    pub enabled: bool,
    /// Longest time that a packet waits for those before it, whatever the links' delays are.
    pub max_wait: Duration,
    /// Most bytes held.
    pub buffer: usize,
    /// What the first two deadlines in a row release.
    pub release: Release,
}

/// What the first and the second missed deadline in a row release besides the packet that waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// Also those that follow it without a gap: no hole lies in between, so waiting longer could not bring it into a
    /// better order. The next deadline is that of the next hole.
    #[default]
    Drain,
    /// Only that one, as the paper says literally. What directly follows it waits for the next deadline, whose timer
    /// starts at this one.
    One,
}

shown_as_written!(Release);

impl Resequencer {
    /// Below it, timers decide more than links do; above it an application notices a stall.
    pub const MAX_WAIT: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_millis(500);

    /// Fewer than 40 full packets hold back no link; 256 MiB are 4 Gbit/s over 500 ms, and a proxy has a buffer for each
    /// client.
    pub const BUFFER: RangeInclusive<usize> = 64 << 10..=256 << 20;

    /// For people.
    #[must_use]
    pub fn in_words(&self) -> String {
        if !self.enabled {
            return "off".to_owned();
        }
        let Self { enabled: _, max_wait, buffer, release } = self;
        let (wait, buffer) = (humantime::format_duration(*max_wait), exact_size(*buffer as u64));
        format!("at most {wait}, buffer {buffer}, release {release}")
    }
}

impl Default for Resequencer {
    /// 16 MiB are 250 Mbit/s over the longest wait: all that home links carry, and little enough for a proxy to have it
    /// for each of its clients.
    fn default() -> Self {
        Self {
            enabled: true,
            max_wait: *Self::MAX_WAIT.end(),
            buffer: 16 << 20,
            release: Release::default(),
        }
    }
}
