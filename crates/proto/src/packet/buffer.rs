//! The bytes of packets that wait or are kept. A packet waits for a link, is kept until the peer has confirmed it, and may be
//! kept until the far end of its connection has: one copy serves all of them, and returns to be used again when the last one
//! needs it no more.

use std::iter;
use std::ops::Deref;
use std::sync::Arc;

/// A fresh buffer has room for so many bytes, or several times that: one that served a small packet soon serves another.
const STEP: usize = 512;

/// The bytes of one packet. A clone shares them.
#[derive(Clone, Debug, Default)]
pub struct PacketBuffer {
    /// The packet, and room for a longer one.
    bytes: Arc<[u8]>,
    len: usize,
}

impl PacketBuffer {
    /// The same buffer with the bytes of another packet, if these fit and nobody shares it.
    fn refill(&mut self, packet: &[u8]) -> bool {
        let room = Arc::get_mut(&mut self.bytes).and_then(|bytes| bytes.get_mut(..packet.len()));
        let Some(room) = room else { return false };
        room.copy_from_slice(packet);
        self.len = packet.len();
        true
    }

    /// The bytes, to be changed by this holder alone: shared ones are copied first.
    pub(crate) fn to_mut(&mut self) -> &mut [u8] {
        let len = self.len;
        &mut Arc::make_mut(&mut self.bytes)[..len]
    }

    /// Whether somebody else holds it, too.
    fn is_shared(&self) -> bool {
        Arc::strong_count(&self.bytes) > 1
    }

    /// Its length, which is known without a look at the bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no packet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Deref for PacketBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl From<&[u8]> for PacketBuffer {
    fn from(packet: &[u8]) -> Self {
        let bytes = iter::repeat_n(0, packet.len().next_multiple_of(STEP)).collect();
        let mut buffer = Self { bytes, len: 0 };
        let refilled = buffer.refill(packet);
        debug_assert!(refilled, "it has the room, and nobody else has it");
        buffer
    }
}

impl From<Vec<u8>> for PacketBuffer {
    fn from(packet: Vec<u8>) -> Self {
        Self::from(packet.as_slice())
    }
}

/// Buffers for packets to come: the last ones that were used first, for they are in the processor's caches.
#[derive(Debug, Default)]
pub struct SpareBuffers(Vec<PacketBuffer>);

impl SpareBuffers {
    /// None yet.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// A copy of a packet, in a spare buffer if there is one.
    #[inline]
    pub fn copy(&mut self, packet: &[u8]) -> PacketBuffer {
        let spare = self.0.pop();
        let refilled = spare.and_then(|mut spare| spare.refill(packet).then_some(spare));
        refilled.unwrap_or_else(|| PacketBuffer::from(packet))
    }

    /// A holder needs its buffer no more. If it was the last one and fewer than `most` are spare, another packet may have it.
    #[inline]
    pub fn put(&mut self, buffer: PacketBuffer, most: usize) {
        if self.0.len() < most && !buffer.is_shared() {
            self.0.push(buffer);
        }
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Bytes of memory that they take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|buffer| buffer.bytes.len()).sum()
    }

    /// Gives the memory back.
    pub fn release(&mut self) {
        self.0 = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_serves_another_packet_once_its_last_holder_gave_it_back() {
        let mut spare = SpareBuffers::new();
        let first = spare.copy(&[1; 1000]);
        let at = first.as_ptr();
        let second = first.clone();
        assert_eq!(second.as_ptr(), at, "one copy");
        spare.put(first, 9);
        assert!(spare.is_empty(), "somebody still holds it");
        spare.put(second, 9);
        assert_eq!((spare.len(), spare.bytes() >= 1000), (1, true));
        let other = spare.copy(&[2; 600]);
        assert_eq!((other.as_ptr(), &other[..]), (at, &[2; 600][..]));
        assert!(spare.is_empty());
        spare.put(other, 9);
        assert_eq!(&spare.copy(&[3; 2000])[..], &[3; 2000], "a longer one has one of its own");
        spare.put(PacketBuffer::from(vec![4]), 0);
        assert!(spare.is_empty(), "no more than that");
    }

    #[test]
    fn who_changes_a_shared_packet_changes_his_own_copy() {
        let mut own = PacketBuffer::from(vec![1, 2, 3]);
        let other = own.clone();
        own.to_mut()[0] = 9;
        assert_eq!((&own[..], &other[..]), (&[9, 2, 3][..], &[1, 2, 3][..]));
        let at = own.as_ptr();
        own.to_mut()[1] = 9;
        assert_eq!(own.as_ptr(), at, "nobody shares it any more");
    }
}
