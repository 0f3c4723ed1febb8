//! The queue in front of the links: by flow where the schedule says how much has to wait, else [`SparseFirst`].

use super::excess::Demand;
use super::{Dropped, EgressQueue, Fair, Label, Line, Numbers, QueueLimits, SparseFirst, Waiting};
use crate::packet::FlowKey;
use crate::packet::buffer::PacketBuffer;
use crate::sched::PacketMeta;
use crate::time::{Duration, Instant};

/// Packets from the TUN that have no link yet.
#[derive(Debug)]
pub enum FrontQueue {
    /// Sparse flows first, the others as they came, bounded by age.
    SparseFirst(SparseFirst),
    /// Flows take turns, bounded by delay.
    Fair(Fair),
}

/// The same of either.
macro_rules! either {
    ($of:expr, $queue:ident => $do:expr) => {
        match $of {
            FrontQueue::SparseFirst($queue) => $do,
            FrontQueue::Fair($queue) => $do,
        }
    };
}

impl FrontQueue {
    /// An empty queue, in which flows take turns or do not.
    #[must_use]
    pub fn new(limits: QueueLimits, turns: bool) -> Self {
        match turns {
            true => Self::Fair(Fair::new(limits)),
            false => Self::SparseFirst(SparseFirst::new(limits)),
        }
    }

    /// Flows take turns from now on, or do not any more. What waits keeps its age and, by flow, its order. A packet of which
    /// one part has gone starts again with the first.
    pub fn take_turns(&mut self, limits: QueueLimits, turns: bool) {
        if turns == matches!(self, Self::Fair(_)) {
            return;
        }
        let mut before = std::mem::replace(self, Self::new(limits, turns));
        while let Some(waiting) = before.pop_packet() {
            either!(self, queue => queue.put(waiting));
        }
    }

    /// Takes a packet into the queue while at most `most_bytes` wait. What it dropped for that may be this packet or, where
    /// flows take turns, another.
    #[inline]
    pub fn push(
        &mut self,
        now: Instant,
        label: &Label,
        packet: PacketBuffer,
        most_bytes: usize,
    ) -> Dropped {
        match self {
            Self::SparseFirst(queue) => {
                let fits = queue.bytes() + packet.len() <= most_bytes;
                let pushed = fits && queue.push(now, label, packet);
                Dropped { full: u64::from(!pushed), standing: 0 }
            }
            Self::Fair(queue) => queue.push(now, label, packet, most_bytes),
        }
    }

    /// What a scheduler is asked about a packet that waits here.
    #[inline]
    #[must_use]
    pub fn question(&self, label: &Label) -> PacketMeta {
        self.question_of(&label.meta)
    }

    /// The same, of what schedulers look at in the packet.
    #[inline]
    #[must_use]
    pub fn question_of(&self, packet: &PacketMeta) -> PacketMeta {
        let backlog = self.backlog_of(packet.flow);
        PacketMeta { backlog, backlogged_flows: self.flows(), ..*packet }
    }

    /// Looks at all packets that wait; of each flow in its order.
    pub(crate) fn for_each(&self, look: impl FnMut(&Waiting)) {
        either!(self, queue => queue.waiting().for_each(look));
    }

    /// Whether this flow has to take turns with others.
    #[must_use]
    pub fn takes_turns(&self, flow: FlowKey) -> bool {
        match self {
            Self::SparseFirst(_) => false,
            Self::Fair(queue) => queue.takes_turns(flow),
        }
    }

    /// Bytes that wait of a flow; of all where flows take no turns.
    #[inline]
    #[must_use]
    pub fn backlog_of(&self, flow: FlowKey) -> usize {
        match self {
            Self::SparseFirst(queue) => queue.bytes(),
            Self::Fair(queue) => queue.backlog_of(flow),
        }
    }

    /// Flows that take turns; at least 1.
    #[inline]
    #[must_use]
    pub fn flows(&self) -> usize {
        match self {
            Self::SparseFirst(_) => 1,
            Self::Fair(queue) => queue.flows().max(1),
        }
    }

    /// Packets may wait for so much longer than the limit, and where flows take turns the schedule needs this.
    pub fn allow(&mut self, longer: Duration, demand: Demand) {
        match self {
            Self::SparseFirst(queue) => queue.allow(longer),
            Self::Fair(queue) => queue.allow(longer, demand),
        }
    }

    /// Whether no link answers: where flows take turns, packets wait for one to return.
    #[inline]
    pub fn set_stalled(&mut self, now: Instant, stalled: bool) {
        if let Self::Fair(queue) = self {
            queue.set_stalled(now, stalled);
        }
    }

    /// The packet whose turn it is.
    #[inline]
    #[must_use]
    pub fn head(&self) -> Option<&Waiting> {
        either!(self, queue => queue.head())
    }

    /// Whether it is of a flow of which nothing else waits.
    #[must_use]
    pub fn is_next_sparse(&self) -> bool {
        either!(self, queue => queue.is_next_sparse())
    }

    /// Completes its checksum, if that is partial.
    pub fn complete_head(&mut self) {
        if let Some(head) = either!(self, queue => queue.head_mut()) {
            head.complete();
        }
    }

    /// Whether a packet may leave before those in front of it.
    #[must_use]
    pub fn may_overtake(&self) -> bool {
        match self {
            Self::SparseFirst(_) => false,
            Self::Fair(queue) => queue.may_overtake(),
        }
    }

    /// The place of the packet with so many bytes in front of it among those whose turn it is; `None`: there is none, or it would
    /// overtake too many.
    #[must_use]
    pub fn behind(&self, bytes: usize) -> Option<usize> {
        match self {
            Self::SparseFirst(_) => None,
            Self::Fair(queue) => queue.behind(bytes),
        }
    }

    /// The packet at that place.
    #[must_use]
    pub fn at(&self, place: usize) -> Option<&Waiting> {
        match self {
            Self::SparseFirst(_) => None,
            Self::Fair(queue) => queue.at(place),
        }
    }

    /// Gives all packets up to that place their numbers, which `next` says for one of a flow.
    pub fn number(&mut self, place: usize, next: impl FnMut(FlowKey) -> Numbers) {
        if let Self::Fair(queue) = self {
            queue.number(place, next);
        }
    }

    /// Takes the packet at that place.
    pub fn take(&mut self, place: usize) -> Option<Waiting> {
        match self {
            Self::SparseFirst(_) => None,
            Self::Fair(queue) => queue.take(place),
        }
    }

    /// The packets whose turn it is, and how many of them go at least before others have theirs, if none has more than
    /// `longest` bytes.
    pub(crate) fn line(&self, longest: usize) -> (Line<'_>, usize) {
        either!(self, queue => queue.line(longest))
    }

    /// Notes that a first part of the head has gone.
    pub fn begin_head(&mut self) {
        either!(self, queue => queue.begin_head());
    }

    /// Whether a first part of the head has gone.
    #[must_use]
    pub const fn is_head_begun(&self) -> bool {
        either!(self, queue => queue.is_head_begun())
    }

    /// Removes the head.
    #[inline]
    pub fn pop_packet(&mut self) -> Option<Waiting> {
        either!(self, queue => queue.pop_packet())
    }

    /// Moves the head, with its age, to the tail of `other`, whose bound on bytes is the mover's business.
    pub fn pass_head_to(&mut self, other: &mut EgressQueue) {
        if let Some(waiting) = self.pop_packet() {
            other.put(waiting);
        }
    }

    /// Puts all that waits in `other`, with its age, before all that waits here. A packet of which one part has gone starts again with the first.
    pub fn put_back(&mut self, other: &mut EgressQueue) {
        either!(self, queue => queue.put_back(other));
    }

    /// Drops what has waited too long; returns how many.
    pub fn handle_timeout(&mut self, now: Instant) -> u64 {
        either!(self, queue => queue.handle_timeout(now))
    }

    /// Drops what waited for an answer of any link in vain and is said to be of no use any more; returns how many.
    pub(crate) fn drop_outdated(&mut self, is_outdated: impl Fn(&Waiting) -> bool) -> u64 {
        match self {
            // Nothing waits longer than usual there.
            Self::SparseFirst(_) => 0,
            Self::Fair(queue) => queue.drop_outdated(is_outdated),
        }
    }

    /// When the first may have waited too long.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        either!(self, queue => queue.poll_timeout())
    }

    /// Packets waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        either!(self, queue => queue.len())
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        either!(self, queue => queue.is_empty())
    }

    /// Bytes waiting.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        either!(self, queue => queue.bytes())
    }

    /// Whether memory is kept for packets to come.
    #[must_use]
    pub const fn has_spare(&self) -> bool {
        match self {
            Self::SparseFirst(_) => false,
            Self::Fair(queue) => queue.has_spare(),
        }
    }

    /// Gives that memory back.
    pub fn release_memory(&mut self) {
        either!(self, queue => queue.release_memory());
    }
}

#[cfg(test)]
mod tests {
    use super::super::label;
    use super::*;

    #[test]
    fn what_waits_outlives_a_change_of_the_queue_with_its_order_and_its_age() {
        let limits = QueueLimits { time: Duration::from_millis(100), bytes: 1 << 20 };
        for turns in [false, true] {
            let mut queue = FrontQueue::new(limits, turns);
            for number in 0..60_u8 {
                let flow = label(FlowKey(u64::from(number % 3)));
                let at = Instant::from_millis(number.into());
                let dropped = queue.push(at, &flow, vec![number; 900].into(), limits.bytes);
                assert_eq!(dropped, Dropped::default());
            }
            queue.begin_head();
            queue.take_turns(limits, turns);
            assert!(queue.is_head_begun(), "that is no change");
            queue.take_turns(limits, !turns);
            assert_eq!((queue.len(), queue.bytes()), (60, 60 * 900));
            assert!(!queue.is_head_begun());
            assert_eq!(queue.poll_timeout(), Some(Instant::from_millis(100)));
            let mut left = Vec::new();
            while let Some(waiting) = queue.pop_packet() {
                left.push(waiting.packet()[0]);
            }
            assert_eq!(left.len(), 60);
            for flow in 0..3 {
                let own: Vec<_> = left.iter().filter(|number| *number % 3 == flow).collect();
                assert!(own.is_sorted(), "{own:?}");
            }
        }
    }
}
