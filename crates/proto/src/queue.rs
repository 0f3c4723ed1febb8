//! What waits for a link: a first-in first-out queue, bounded in time and in bytes.
//!
//! Packets have no global number yet; they get one when they are sealed, so that a packet dropped
//! here leaves no hole for the receiver to wait for. Those that one behind them overtook over another link have theirs
//! ([`Numbers`]).

mod excess;
mod fair;
mod front;
mod sparse_first;

pub use excess::Demand;
pub use fair::Fair;
pub use front::FrontQueue;
pub use sparse_first::{MOST_AHEAD, SparseFirst};

use std::collections::VecDeque;

use ropewalk_settings::Redundant;

use crate::ecn::Ecn;
use crate::packet::buffer::PacketBuffer;
use crate::packet::checksum::Checksum;
use crate::packet::{FlowKey, PacketView, protocol, transport};
use crate::sched::PacketMeta;
use crate::time::{Duration, Instant};

/// Bounds of the queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueLimits {
    /// Longest wait; older packets are dropped from the head, where a flow notices soonest.
    pub time: Duration,
    /// Most bytes held.
    pub bytes: usize,
}

/// What is read of a packet when it comes, so that nobody needs to read it again.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    /// What schedulers look at.
    pub meta: PacketMeta,
    /// Its congestion notification bits.
    pub ecn: Ecn,
    /// How it is to be treated (RFC 2474): six bits.
    pub dscp: u8,
    /// How its checksum stands.
    pub checksum: Checksum,
    /// Its sender was told that it has arrived: it is not given up.
    pub is_acknowledged: bool,
    /// It goes over two links at once.
    pub is_redundant: bool,
    /// It comes neither with others of its flow nor soon after one: it waits for none of them.
    pub is_alone: bool,
    /// It acknowledges up to this number of its connection of TCP, and does nothing else: one that acknowledges more says it all.
    pub acknowledges: Option<u32>,
}

impl Label {
    /// That of a packet whose checksum stands so.
    #[must_use]
    pub fn of(packet: &PacketView<'_>, checksum: Checksum) -> Self {
        Self {
            meta: PacketMeta::new(packet),
            ecn: packet.ecn(),
            dscp: packet.dscp(),
            checksum,
            is_acknowledged: false,
            is_redundant: false,
            is_alone: false,
            acknowledges: None,
        }
    }

    /// Whether it is of use for a moment only: it comes alone, as a call's packets do, or its sender marked it as real time. What TCP
    /// sends is needed however late it is.
    #[must_use]
    pub fn is_real_time(&self) -> bool {
        let is_tcp = self.meta.tuple.protocol == Some(protocol::TCP);
        !is_tcp && (self.is_alone || self.dscp >= Redundant::LEAST_MARK)
    }
}

/// The place of a packet in the order that the receiver restores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Numbers {
    /// Its global number.
    pub global: u64,
    /// That of the packet before it of its flow, if it is known.
    pub previous_of_flow: Option<u64>,
}

/// A packet that waits.
#[derive(Debug)]
pub struct Waiting {
    since: Instant,
    label: Label,
    /// Without bytes it is but the place of one that has overtaken those before it.
    packet: PacketBuffer,
    /// Its numbers, if one behind it has left before it.
    numbers: Option<Numbers>,
}

impl Waiting {
    /// Its bytes.
    #[must_use]
    pub fn packet(&self) -> &[u8] {
        &self.packet
    }

    /// What was read of it.
    #[must_use]
    pub const fn label(&self) -> &Label {
        &self.label
    }

    /// Its numbers, if it has any before it leaves.
    #[must_use]
    pub const fn numbers(&self) -> Option<Numbers> {
        self.numbers
    }

    /// If it is of use for a moment only: when it came.
    #[must_use]
    pub fn real_time_since(&self) -> Option<Instant> {
        self.label.is_real_time().then_some(self.since)
    }

    /// Its buffer, to be kept or used again.
    #[must_use]
    pub fn into_packet(self) -> PacketBuffer {
        self.packet
    }

    /// Completes its checksum, if that is partial.
    pub(crate) fn complete(&mut self) {
        if self.label.checksum == Checksum::Partial {
            self.label.checksum = Checksum::Whole;
            let complete = transport::complete(self.packet.to_mut());
            debug_assert!(complete, "what is marked was read before");
        }
    }

    /// Whether it may be given up.
    const fn may_be_dropped(&self) -> bool {
        !self.label.is_acknowledged
    }

    /// Whether another packet of its flow says all that it says, and more.
    fn is_outdone_by(&self, label: &Label, packet: &[u8]) -> bool {
        let more = self.label.acknowledges.zip(label.acknowledges);
        let more = more.is_some_and(|(own, other)| other.wrapping_sub(own).cast_signed() > 0);
        more && self.label.meta.flow == label.meta.flow
            && self.numbers.is_none()
            && self.packet.len() == packet.len()
    }

    fn gone(&self) -> Gone {
        Gone { flow: self.label.meta.flow, len: self.packet.len() }
    }
}

/// Packets that leave one after the other.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a>(&'a VecDeque<Waiting>);

impl<'a> Line<'a> {
    /// The packet so many places behind the first; at 0 the first itself.
    #[must_use]
    pub fn nth(self, place: usize) -> Option<&'a Waiting> {
        self.0.get(place)
    }
}

/// What a queue dropped when a packet came.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Dropped {
    /// Packets for which there was no room.
    pub full: u64,
    /// Packets given up because the queue stood.
    pub standing: u64,
}

/// What has left a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gone {
    flow: FlowKey,
    len: usize,
}

/// Packets in the order in which they came.
#[derive(Debug)]
pub struct EgressQueue {
    limits: QueueLimits,
    /// By how much longer packets may wait, as the schedule needs it.
    longer: Duration,
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// A first part of the head has gone.
    begun: bool,
}

impl EgressQueue {
    /// An empty queue.
    #[must_use]
    pub const fn new(limits: QueueLimits) -> Self {
        Self { limits, longer: Duration::ZERO, waiting: VecDeque::new(), bytes: 0, begun: false }
    }

    /// Takes `packet` to the tail. `false`: full; the packet is to be counted as dropped.
    pub fn push(&mut self, now: Instant, label: &Label, packet: PacketBuffer) -> bool {
        if self.bytes + packet.len() > self.limits.bytes {
            return false;
        }
        self.put(Waiting { since: now, label: *label, packet, numbers: None });
        true
    }

    /// Packets may wait for so much longer than the limit.
    pub fn allow(&mut self, longer: Duration) {
        self.longer = longer;
    }

    /// Completes the checksum of the packet whose turn it is, if it is partial.
    pub fn complete_head(&mut self) {
        if let Some(head) = self.waiting.front_mut() {
            head.complete();
        }
    }

    /// Puts a packet, with its age, to the tail, whatever waits.
    pub(crate) fn put(&mut self, waiting: Waiting) {
        self.bytes += waiting.packet.len();
        self.waiting.push_back(waiting);
    }

    /// Puts all that waits in `other`, with its age, before all that waits here. A packet of which one part has gone starts again with the first.
    pub fn put_back(&mut self, other: &mut Self) {
        (self.begun, other.begun) = (false, false);
        self.bytes += std::mem::take(&mut other.bytes);
        while let Some(waiting) = other.waiting.pop_back() {
            self.waiting.push_front(waiting);
        }
    }

    /// The packet whose turn it is.
    #[must_use]
    pub fn head(&self) -> Option<&Waiting> {
        self.waiting.front()
    }

    /// The flows of all that waits, from the head on.
    pub(crate) fn flows(&self) -> impl Iterator<Item = FlowKey> {
        self.waiting.iter().map(|waiting| waiting.label.meta.flow)
    }

    /// All that waits, from the head on.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.waiting.iter()
    }

    /// The packets, from the head on.
    #[must_use]
    pub const fn line(&self) -> Line<'_> {
        Line(&self.waiting)
    }

    /// The head, to be changed.
    pub(super) fn head_mut(&mut self) -> Option<&mut Waiting> {
        self.waiting.front_mut()
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
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Gone> {
        Some(self.pop_packet()?.gone())
    }

    /// Removes the head and hands it over.
    #[inline]
    pub(crate) fn pop_packet(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.begun = false;
        self.bytes -= waiting.packet.len();
        Some(waiting)
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
        self.waiting.front().map(|waiting| waiting.since + self.limits.time + self.longer)
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

    /// Gives back memory that is kept for packets to come.
    pub fn release_memory(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

/// What is read of a packet of which only the flow matters.
#[cfg(test)]
pub(crate) fn label(flow: FlowKey) -> Label {
    let meta = PacketMeta { flow, ..PacketMeta::of_len(0) };
    Label {
        meta,
        ecn: Ecn::NotEct,
        dscp: 0,
        checksum: Checksum::Whole,
        is_acknowledged: false,
        is_redundant: false,
        is_alone: false,
        acknowledges: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue() -> EgressQueue {
        EgressQueue::new(QueueLimits { time: Duration::from_millis(100), bytes: 3000 })
    }

    fn push(queue: &mut EgressQueue, packet: &[u8]) -> bool {
        queue.push(Instant::ZERO, &label(FlowKey(0)), packet.into())
    }

    fn head(queue: &EgressQueue) -> Option<&[u8]> {
        queue.head().map(Waiting::packet)
    }

    fn head_checksum(queue: &EgressQueue) -> Option<Checksum> {
        queue.head().map(|head| head.label().checksum)
    }

    #[test]
    fn packets_leave_in_the_order_they_came() {
        let mut queue = queue();
        for byte in 0..3 {
            assert!(push(&mut queue, &[byte]));
        }
        for byte in 0..3 {
            assert_eq!(head(&queue), Some(&[byte][..]));
            queue.pop();
        }
        assert_eq!((head(&queue), queue.bytes()), (None, 0));
    }

    #[test]
    fn a_packet_that_waited_too_long_goes_and_a_younger_one_stays() {
        let mut queue = queue();
        push(&mut queue, &[1]);
        queue.push(Instant::from_millis(1), &label(FlowKey(0)), vec![2].into());
        assert_eq!(queue.poll_timeout(), Some(Instant::from_millis(100)));
        assert_eq!(queue.handle_timeout(Instant::from_millis(99)), 0);
        assert_eq!(queue.handle_timeout(Instant::from_millis(100)), 1);
        assert_eq!(head(&queue), Some(&[2][..]));
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
    fn a_call_and_what_is_marked_is_of_use_for_a_moment_and_tcp_for_ever() {
        // Protocol, whether it comes alone, DSCP.
        let table = [
            (protocol::UDP, false, 0, false),
            (protocol::UDP, true, 0, true),
            (protocol::UDP, false, 39, false),
            (protocol::UDP, false, 40, true),
            (protocol::ICMP, true, 0, true),
            (protocol::TCP, false, 46, false),
        ];
        for (protocol, is_alone, dscp, expected) in table {
            let mut label = Label { is_alone, dscp, ..label(FlowKey(0)) };
            label.meta.tuple.protocol = Some(protocol);
            assert_eq!(label.is_real_time(), expected, "{protocol}, {is_alone}, {dscp}");
            let since = Instant::from_millis(7);
            let waiting = Waiting { since, label, packet: vec![1].into(), numbers: None };
            assert_eq!(waiting.real_time_since(), expected.then_some(since));
        }
    }

    #[test]
    fn what_is_said_of_a_checksum_moves_with_its_packet_until_it_is_completed() {
        let (mut queue, mut other) = (queue(), queue());
        let mut udp = vec![0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        udp.extend([0, 1, 0, 2, 0, 10, 20, 28, 7, 7]);
        let partial = Label { checksum: Checksum::Partial, ..label(FlowKey(0)) };
        queue.push(Instant::ZERO, &partial, udp.clone().into());
        push(&mut queue, &[1]);
        assert_eq!(head_checksum(&queue), Some(Checksum::Partial));
        other.put(queue.pop_packet().expect("two wait"));
        assert_eq!(head_checksum(&queue), Some(Checksum::Whole));
        queue.put_back(&mut other);
        assert_eq!(head_checksum(&queue), Some(Checksum::Partial));
        queue.complete_head();
        assert_eq!(head_checksum(&queue), Some(Checksum::Whole));
        let completed = head(&queue).unwrap().to_vec();
        assert_ne!(completed, udp);
        queue.complete_head();
        assert_eq!(head(&queue), Some(&completed[..]), "only once");
    }

    #[test]
    fn a_released_queue_keeps_only_what_waits() {
        let mut queue = queue();
        for byte in 0..2 {
            push(&mut queue, &[byte]);
        }
        queue.pop();
        queue.release_memory();
        assert_eq!((head(&queue), queue.waiting.capacity()), (Some(&[1][..]), 1));
    }
}
