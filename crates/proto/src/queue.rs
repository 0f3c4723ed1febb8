//! What waits for a link: a first-in first-out queue, bounded in time and in bytes.
//!
//! Packets have no global number yet; they get one when they are sealed, so that a packet dropped
//! here leaves no hole for the receiver to wait for. Buffers are recycled.

mod sparse_first;

pub use sparse_first::SparseFirst;

use std::collections::VecDeque;

use crate::packet::checksum::Checksum;
use crate::packet::{FlowKey, transport};
use crate::time::{Duration, Instant};

/// Bounds of the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Longest wait; older packets are dropped from the head, where a flow notices soonest.
    pub time: Duration,
    /// Most bytes held.
    pub bytes: usize,
}

#[derive(Debug)]
struct Waiting {
    since: Instant,
    flow: FlowKey,
    packet: Vec<u8>,
    checksum: Checksum,
}

/// Packets in the order in which they came.
#[derive(Debug)]
pub struct EgressQueue {
    limits: QueueLimits,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// A first part of the head has gone.
    begun: bool,
    spare: Vec<Vec<u8>>,
}

/// Buffers kept for reuse; more are freed. Covers 100 ms at 300 Mbit/s.
const MAX_SPARE: usize = 4096;

impl EgressQueue {
    /// An empty queue.
    #[must_use]
    pub const fn new(limits: QueueLimits) -> Self {
        Self { limits, waiting: VecDeque::new(), bytes: 0, begun: false, spare: Vec::new() }
    }

    /// Copies `packet`, of `flow`, to the tail. `false`: full; the packet is to be counted as dropped.
    pub fn push(&mut self, now: Instant, flow: FlowKey, packet: &[u8], checksum: Checksum) -> bool {
        if self.bytes + packet.len() > self.limits.bytes {
            return false;
        }
        let mut buffer = self.spare.pop().unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(packet);
        self.bytes += packet.len();
        self.waiting.push_back(Waiting { since: now, flow, packet: buffer, checksum });
        true
    }

    /// The checksum of the packet whose turn it is.
    #[must_use]
    pub fn head_checksum(&self) -> Checksum {
        self.waiting.front().map_or(Checksum::Whole, |head| head.checksum)
    }

    /// Completes the checksum of the packet whose turn it is, if it is partial.
    pub fn complete_head(&mut self) {
        if let Some(head) = self.waiting.front_mut()
            && head.checksum == Checksum::Partial
        {
            head.checksum = Checksum::Whole;
            let complete = transport::complete(&mut head.packet);
            debug_assert!(complete, "what is marked was read before");
        }
    }

    /// Moves the head, with its age, to the tail of `other`, whose bound on bytes is the mover's business.
    pub fn pass_head_to(&mut self, other: &mut Self) {
        let Some(waiting) = self.waiting.pop_front() else { return };
        self.begun = false;
        self.bytes -= waiting.packet.len();
        other.bytes += waiting.packet.len();
        other.waiting.push_back(waiting);
    }

    /// Puts all that waits in `other`, with its age, before all that waits here. A packet that was begun begins anew.
    pub fn put_back(&mut self, other: &mut Self) {
        (self.begun, other.begun) = (false, false);
        self.bytes += std::mem::take(&mut other.bytes);
        while let Some(waiting) = other.waiting.pop_back() {
            self.waiting.push_front(waiting);
        }
    }

    /// The packet whose turn it is.
    #[must_use]
    pub fn head(&self) -> Option<&[u8]> {
        self.waiting.front().map(|waiting| waiting.packet.as_slice())
    }

    /// Its flow.
    #[must_use]
    pub fn flow(&self) -> Option<FlowKey> {
        self.waiting.front().map(|waiting| waiting.flow)
    }

    /// The flows of all that waits, from the head on.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.waiting.iter().map(|waiting| waiting.flow)
    }

    /// The packet so many places behind the head; at 0 the head itself.
    #[must_use]
    pub fn nth(&self, place: usize) -> Option<&[u8]> {
        self.waiting.get(place).map(|waiting| waiting.packet.as_slice())
    }

    /// Notes that a first part of the head has gone.
    pub const fn begin_head(&mut self) {
        self.begun = true;
    }

    /// Whether a first part of the head has gone.
    #[must_use]
    pub const fn is_head_begun(&self) -> bool {
        self.begun
    }

    /// Removes the head.
    pub fn pop(&mut self) {
        let Some(waiting) = self.waiting.pop_front() else { return };
        self.begun = false;
        self.bytes -= waiting.packet.len();
        if self.spare.len() < MAX_SPARE {
            self.spare.push(waiting.packet);
        }
    }

    /// Drops what has waited too long; returns how many.
    pub fn handle_timeout(&mut self, now: Instant) -> u64 {
        let mut dropped = 0;
        while self.poll_timeout().is_some_and(|due| due <= now) {
            self.pop();
            dropped += 1;
        }
        dropped
    }

    /// When the head will have waited too long.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.waiting.front().map(|waiting| waiting.since + self.limits.time)
    }

    /// Packets waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Bytes waiting.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes kept for packets to come.
    #[must_use]
    pub fn spare_bytes(&self) -> usize {
        self.spare.iter().map(Vec::capacity).sum()
    }

    /// Whether memory is kept for packets to come.
    #[must_use]
    pub const fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Gives that memory back.
    pub fn release_memory(&mut self) {
        self.spare = Vec::new();
        self.waiting.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> EgressQueue {
        EgressQueue::new(QueueLimits { time: Duration::from_millis(100), bytes: 3000 })
    }

    fn push(queue: &mut EgressQueue, packet: &[u8]) -> bool {
        queue.push(Instant::ZERO, FlowKey(0), packet, Checksum::Whole)
    }

    #[test]
    fn packets_leave_in_the_order_they_came() {
        let mut queue = queue();
        for byte in 0..3 {
            assert!(push(&mut queue, &[byte]));
        }
        for byte in 0..3 {
            assert_eq!(queue.head(), Some(&[byte][..]));
            queue.pop();
        }
        assert_eq!((queue.head(), queue.bytes()), (None, 0));
    }

    #[test]
    fn a_packet_that_waited_too_long_goes_and_a_younger_one_stays() {
        let mut queue = queue();
        push(&mut queue, &[1]);
        queue.push(Instant::from_millis(1), FlowKey(0), &[2], Checksum::Whole);
        assert_eq!(queue.poll_timeout(), Some(Instant::from_millis(100)));
        assert_eq!(queue.handle_timeout(Instant::from_millis(99)), 0);
        assert_eq!(queue.handle_timeout(Instant::from_millis(100)), 1);
        assert_eq!(queue.head(), Some(&[2][..]));
    }

    #[test]
    fn the_queue_never_holds_more_bytes_than_allowed() {
        let mut queue = queue();
        assert!(push(&mut queue, &[0; 1500]));
        assert!(push(&mut queue, &[0; 1500]));
        assert!(!push(&mut queue, &[0]));
        queue.pop();
        assert!(push(&mut queue, &[0]));
    }

    #[test]
    fn what_is_said_of_a_checksum_moves_with_its_packet_until_it_is_completed() {
        let (mut queue, mut other) = (queue(), queue());
        let mut udp = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        udp.extend([0, 1, 0, 2, 0, 10, 20, 28, 7, 7]);
        queue.push(Instant::ZERO, FlowKey(0), &udp, Checksum::Partial);
        push(&mut queue, &[1]);
        assert_eq!(queue.head_checksum(), Checksum::Partial);
        queue.pass_head_to(&mut other);
        assert_eq!(queue.head_checksum(), Checksum::Whole);
        queue.put_back(&mut other);
        assert_eq!(queue.head_checksum(), Checksum::Partial);
        queue.complete_head();
        assert_eq!(queue.head_checksum(), Checksum::Whole);
        let completed = queue.head().unwrap().to_vec();
        assert_ne!(completed, udp);
        queue.complete_head();
        assert_eq!(queue.head(), Some(&completed[..]), "only once");
    }

    #[test]
    fn a_released_queue_keeps_only_what_waits() {
        let mut queue = queue();
        for byte in 0..2 {
            push(&mut queue, &[byte]);
        }
        queue.pop();
        assert!(queue.has_spare() && queue.spare_bytes() > 0);
        queue.release_memory();
        assert_eq!((queue.has_spare(), queue.spare_bytes()), (false, 0));
        assert_eq!((queue.head(), queue.waiting.capacity()), (Some(&[1][..]), 1));
    }
}
