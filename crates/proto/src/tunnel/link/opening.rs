//! When a link has room: its window, its pace, and whether they are what limits it.

use ropewalk_settings::Bitrate;

use crate::link::pacer::Pacer;
use crate::link::sender::LinkSender;
use crate::time::{Duration, Instant};

/// A paced link busy for less than this carries a burst, and shows nothing of its capacity.
const LEAST_BUSY: Duration = Duration::from_millis(20);

/// Whether a link is open for the next datagram.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::tunnel) struct Opening {
    pacer: Pacer,
    /// It had no room when last looked at.
    shut: bool,
    /// How much had been sent when the window was last full, and how large it was.
    limited_at: Option<(u64, u32)>,
    /// When it was full last.
    full_at: Option<Instant>,
}

impl Opening {
    /// The pacer as it stands.
    pub(in crate::tunnel) const fn pacer(&self) -> Pacer {
        self.pacer
    }

    /// Datagrams that may leave now at this pace.
    #[inline]
    pub(super) fn room(&self, now: Instant, pace: Option<Bitrate>, sender: &LinkSender) -> u32 {
        let shut = pace.is_some_and(|rate| !self.pacer.is_open(now, rate));
        if shut { 0 } else { sender.room() }
    }

    /// All that could be sent was: notes whether there is room left.
    pub(super) const fn note_room(&mut self, room: u32) {
        self.shut = room == 0;
    }

    /// When a paced link has room again, while its window has. One with room is not waited for: packets may wait for
    /// their turn on another.
    pub(super) fn opens_at(&self, pace: Option<Bitrate>, sender: &LinkSender) -> Option<Instant> {
        let rate = pace.filter(|_| self.shut && sender.room() > 0)?;
        self.pacer.opens_at(rate)
    }

    /// A datagram of so many bytes at IP level left, in the window or, as reports do, beside it.
    #[inline]
    pub(in crate::tunnel) fn on_sent(
        &mut self,
        now: Instant,
        on_wire: usize,
        pace: Option<Bitrate>,
        in_window: bool,
    ) {
        match pace {
            Some(rate) if in_window => self.pacer.on_sent(now, on_wire, rate),
            Some(rate) => self.pacer.on_sent_beside(now, on_wire, rate),
            None => {}
        }
    }

    /// Whether the window limits this sender, for a datagram of so many places about to be sent: it was full within the
    /// last window of datagrams (RFC 7661 §4.1).
    #[inline]
    pub(super) fn is_window_limited(
        &mut self,
        now: Instant,
        places: u8,
        sender: &LinkSender,
    ) -> bool {
        let last = sender.position() + u64::from(places.saturating_sub(1));
        if sender.room() <= u32::from(places) {
            self.limited_at = Some((last, sender.window()));
            self.full_at = Some(now);
        }
        self.limited_at
            .is_some_and(|(at, window)| last <= at + u64::from(sender.limited_for(window)))
    }

    /// Whether the window was full within the last round trip, which is `trip`. A sender with little to send stays limited by
    /// its window for many round trips, but what arrives of it shows nothing of the path.
    #[inline]
    pub(super) fn is_full(&self, now: Instant, trip: Option<Duration>) -> bool {
        self.full_at.is_some_and(|at| trip.is_none_or(|trip| now.since(at) <= trip.max(LEAST_BUSY)))
    }

    /// Whether the pacing limits it: the link has been busy without a pause for a round trip, which is `trip`.
    #[inline]
    pub(super) fn is_paced(&self, now: Instant, trip: Option<Duration>) -> bool {
        trip.is_some_and(|trip| self.pacer.busy_for(now) >= trip.max(LEAST_BUSY))
    }
}
