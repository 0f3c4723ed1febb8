//! What a link carried, and what kept it from carrying more.

use super::limits::Limits;
use crate::time::Instant;
use crate::tunnel::links::Metered;
use crate::tunnel::recent::Recent;

/// Datagrams and bytes, outer UDP payload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Traffic {
    /// Datagrams.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Traffic {
    pub(in crate::tunnel) fn count(&mut self, bytes: usize) {
        self.datagrams += 1;
        self.bytes += bytes as u64;
    }

    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { datagrams: self.datagrams + other.datagrams, bytes: self.bytes + other.bytes }
    }
}

/// Test data of speed tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Filler {
    /// Sent.
    pub sent: Traffic,
    /// Received.
    pub received: Traffic,
}

/// Totals of a link.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnel) struct Counters {
    pub(in crate::tunnel) sent: Traffic,
    pub(in crate::tunnel) received: Traffic,
    /// How much lately: bytes sent, and received.
    pub(in crate::tunnel) recent: Recent,
    /// The same with IP and UDP headers.
    pub(in crate::tunnel) on_wire: Metered,
    /// How long each thing kept the link from carrying more.
    pub(in crate::tunnel) limits: Limits,
    /// What of it was test data.
    pub(in crate::tunnel) filler: Filler,
}

impl Counters {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            sent: Traffic::default(),
            received: Traffic::default(),
            recent: Recent::new(now),
            on_wire: Metered::default(),
            limits: Limits::new(now),
            filler: Filler::default(),
        }
    }

    /// A datagram of `size` bytes left, `on_wire` bytes with its IP and UDP headers.
    #[inline]
    pub(in crate::tunnel) fn on_sent(&mut self, size: usize, on_wire: usize) {
        self.sent.count(size);
        self.on_wire.sent += on_wire as u64;
    }

    /// The same of one that came.
    #[inline]
    pub(in crate::tunnel) fn on_received(&mut self, size: usize, on_wire: usize) {
        self.received.count(size);
        self.on_wire.received += on_wire as u64;
    }

    /// Keeps the totals of this moment for the rates of the last second.
    pub(in crate::tunnel) const fn mark(&mut self, now: Instant) {
        self.recent.mark(now, [self.sent.bytes, self.received.bytes]);
    }
}
