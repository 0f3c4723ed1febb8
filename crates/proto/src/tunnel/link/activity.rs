//! When a link was last used, and when it has to be used again: silence has to be explained.

use crate::path::Path;
use crate::time::{Duration, Instant};
use crate::tunnel::usage::Usage;

/// An idle link says that nothing is under way on it this long after its last word, while others carry
/// packets (PROTOCOL §8).
pub(in crate::tunnel) const MARK_INTERVAL: Duration = Duration::from_millis(25);

/// A link that carried packets to the client and falls silent is asked this long after its last word: a NAT
/// in front of it may have changed, and only the client can show the proxy its new address.
const SILENCE: Duration = Duration::from_millis(500);

/// A link on which nothing asks for a report is asked this often while the tunnel is in use: often enough for whoever
/// shares traffic out by round-trip times and losses, and 134 bytes there and back.
pub(in crate::tunnel) const SENSE_INTERVAL: Duration = Duration::from_secs(1);

/// The same on a backup that rests: it must be known whether it lives, but its bytes are spared.
const RESTING_SENSE_INTERVAL: Duration = Duration::from_secs(5);

/// When a link was last used for what.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnel) struct Activity {
    last_sent: Instant,
    /// When something that elicits a report was last sent.
    last_asked: Instant,
    last_received: Instant,
    /// When a packet last came.
    last_packet: Option<Instant>,
    /// Where its newest datagram came from.
    received_path: Option<Path>,
}

impl Activity {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            last_sent: now,
            last_asked: now,
            last_received: now,
            last_packet: None,
            received_path: None,
        }
    }

    /// A datagram left.
    #[inline]
    pub(in crate::tunnel) const fn on_sent(&mut self, now: Instant, eliciting: bool) {
        self.last_sent = now;
        if eliciting {
            self.last_asked = now;
        }
    }

    /// A datagram came.
    #[inline]
    pub(in crate::tunnel) const fn on_received(&mut self, now: Instant) {
        self.last_received = now;
    }

    /// A packet came.
    #[inline]
    pub(in crate::tunnel) const fn on_packet(&mut self, now: Instant) {
        self.last_packet = Some(now);
    }

    /// The newest datagram came from `path`. Returns whether that is another than the one before it.
    #[inline]
    pub(in crate::tunnel) fn on_path(&mut self, path: &Path) -> bool {
        let other = self.received_path.as_ref() != Some(path);
        if other {
            self.received_path = Some(*path);
        }
        other
    }

    /// When it was last sent on, and last used in either direction.
    pub(super) fn last_used(&self) -> (Instant, Instant) {
        (self.last_sent, self.last_sent.max(self.last_received))
    }

    /// When a mark is due if others carried packets since the last word here.
    pub(super) fn mark_at(&self) -> Instant {
        self.last_sent + MARK_INTERVAL
    }

    /// When the client asks whether the link still works, because packets came until shortly before its last word.
    pub(super) fn doubt_at(&self) -> Option<Instant> {
        let recent = self.last_packet.is_some_and(|at| at + SILENCE > self.last_sent);
        recent.then(|| self.last_sent + SILENCE)
    }

    /// When it is asked how it does: the tunnel has been in use for as long, and nothing on this link shows it.
    pub(super) fn probe_at(&self, usage: Usage, rests: bool) -> Option<Instant> {
        let interval = if rests { RESTING_SENSE_INTERVAL } else { SENSE_INTERVAL };
        let unknown = usage.last_packet() > self.last_asked;
        unknown.then(|| self.last_asked.max(usage.since()) + interval)
    }
}
