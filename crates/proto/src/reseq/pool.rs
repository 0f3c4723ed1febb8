//! Copies of packets that wait, in recycled memory: buffers go back to a pool when their packet was delivered, so after the
//! first burst nothing is allocated any more.

use crate::packet::Packet;
use crate::packet::checksum::Checksum;
use crate::time::Instant;

/// Buffers grow in steps of this size: few reallocations until the pool fits the packets in use, and at
/// most this much lost on each.
const BUFFER_STEP: usize = 512;

/// A packet that came early.
#[derive(Debug)]
pub(super) struct Early {
    bytes: Vec<u8>,
    checksum: Checksum,
    /// When it came.
    pub(super) arrived: Instant,
}

impl Early {
    pub(super) fn packet(&self) -> Packet<'_> {
        Packet { bytes: &self.bytes, checksum: self.checksum }
    }
}

/// Buffers for packets to come.
#[derive(Debug, Default)]
pub(super) struct Pool {
    buffers: Vec<Vec<u8>>,
    /// Their capacity.
    bytes: usize,
}

impl Pool {
    /// Copies a packet that came `now`.
    pub(super) fn copy(&mut self, packet: &Packet<'_>, now: Instant) -> Early {
        let mut bytes = self.buffers.pop().unwrap_or_default();
        self.bytes -= bytes.capacity();
        if bytes.capacity() < packet.bytes.len() {
            bytes.reserve_exact(packet.bytes.len().next_multiple_of(BUFFER_STEP));
        }
        bytes.extend_from_slice(packet.bytes);
        Early { bytes, checksum: packet.checksum, arrived: now }
    }

    /// Takes back the memory of a delivered packet; `limit` bounds the pool in bytes.
    pub(super) fn recycle(&mut self, early: Early, limit: usize) {
        let mut bytes = early.bytes;
        if bytes.capacity() > 0 && self.bytes + bytes.capacity() <= limit {
            bytes.clear();
            self.bytes += bytes.capacity();
            self.buffers.push(bytes);
        }
    }

    /// Bytes kept.
    pub(super) const fn bytes(&self) -> usize {
        self.bytes
    }
}
