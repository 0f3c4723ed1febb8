//! When the tunnel carried packets, in either direction.

use super::link::SENSE_INTERVAL;
use crate::time::Instant;

/// When packets came from either side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// Without a pause of [`SENSE_INTERVAL`].
    since: Instant,
    last_packet: Instant,
}

impl Usage {
    pub(super) const fn new(now: Instant) -> Self {
        Self { since: now, last_packet: now }
    }

    /// A packet came, or was to go.
    pub(super) fn on_packet(&mut self, now: Instant) {
        if now > self.last_packet + SENSE_INTERVAL {
            self.since = now;
        }
        self.last_packet = now;
    }

    /// Since when it carries packets without a pause.
    pub(super) const fn since(self) -> Instant {
        self.since
    }

    /// When a packet last came.
    pub(super) const fn last_packet(self) -> Instant {
        self.last_packet
    }

    /// Whether it carries packets now.
    pub(super) fn is_on(self, now: Instant) -> bool {
        now < self.last_packet + SENSE_INTERVAL
    }
}
