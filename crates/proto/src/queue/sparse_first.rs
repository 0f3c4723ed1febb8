//! The queue of a tunnel: flows that have nothing waiting go before those that have (RFC 8290 §4.2, the sparse flows of
//! FQ-CoDel).
//!
//! A call, a keystroke, a look-up of a name or the acknowledgements of a download do not wait behind what a download has
//! piled up. Within a flow the order stays. Who sends more than his link carries is in the queue all the time, and gains
//! nothing; and however many flows are new, the others have a share of the turns.

use super::{EgressQueue, Gone, Label, Line, QueueLimits, Waiting};
use crate::packet::FlowKey;
use crate::packet::buffer::PacketBuffer;
use crate::time::{Duration, Instant, earliest};

/// Most bytes of one flow that go before others: a full packet, as the quantum of RFC 8290 §5.2.3.
pub(super) const QUANTUM: usize = 1514;

/// Bytes of new flows that go one after the other while others wait; then one packet of those has its turn. So at least a
/// ninth of full packets is theirs, whoever floods the tunnel with new flows.
pub const MOST_AHEAD: usize = 8 * QUANTUM;

/// Flows told apart. Two that meet in a place wait as if they were one: no harm is done, only no favour.
const PLACES: usize = 256;

/// What of the flows in one place waits.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Bytes in the queue of sparse flows.
    sparse: u32,
    /// Packets in that of the others.
    backlogged: u32,
}

/// Which of the two queues has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    Sparse,
    Backlogged,
}

/// Packets from the TUN that have no link yet.
#[derive(Debug)]
pub struct SparseFirst {
    sparse: EgressQueue,
    backlogged: EgressQueue,
    places: Box<[Place; PLACES]>,
    /// Bytes of sparse flows that went since a packet of the others did, while those waited.
    ahead: usize,
}

impl SparseFirst {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        let (sparse, backlogged) = (EgressQueue::new(limits), EgressQueue::new(limits));
        Self { sparse, backlogged, places: Box::new([Place::default(); PLACES]), ahead: 0 }
    }

    /// Takes a packet into the queue. `false`: full; the packet is to be counted as dropped.
    pub fn push(&mut self, now: Instant, label: &Label, packet: PacketBuffer) -> bool {
        let len = packet.len();
        let is_sparse = self.is_sparse(label.meta.flow, len);
        let queue = if is_sparse { &mut self.sparse } else { &mut self.backlogged };
        let pushed = queue.push(now, label, packet);
        if pushed {
            self.note_come(label.meta.flow, len, is_sparse);
        }
        pushed
    }

    /// Puts a packet, with its age, behind those of its flow, whatever waits.
    pub(crate) fn put(&mut self, waiting: Waiting) {
        let (flow, len) = (waiting.label.meta.flow, waiting.packet.len());
        let is_sparse = self.is_sparse(flow, len);
        let queue = if is_sparse { &mut self.sparse } else { &mut self.backlogged };
        queue.put(waiting);
        self.note_come(flow, len, is_sparse);
    }

    /// Whether another packet of this flow, of so many bytes, goes before what others have waiting.
    fn is_sparse(&self, flow: FlowKey, len: usize) -> bool {
        let place = &self.places[place_of(flow)];
        place.backlogged == 0 && place.sparse as usize + len <= QUANTUM
    }

    fn note_come(&mut self, flow: FlowKey, len: usize, is_sparse: bool) {
        let place = &mut self.places[place_of(flow)];
        if is_sparse {
            place.sparse += counted(len);
        } else {
            place.backlogged += 1;
        }
    }

    /// Packets may wait for so much longer than the limit.
    pub fn allow(&mut self, longer: Duration) {
        self.backlogged.allow(longer);
    }

    /// The packet whose turn it is.
    #[must_use]
    pub fn head(&self) -> Option<&Waiting> {
        self.of(self.turn()).head()
    }

    /// Whether it is of a sparse flow.
    #[must_use]
    pub fn is_next_sparse(&self) -> bool {
        !self.sparse.is_empty() && self.turn() == Turn::Sparse
    }

    /// The same, to be changed.
    pub(super) fn head_mut(&mut self) -> Option<&mut Waiting> {
        let turn = self.turn();
        self.of_mut(turn).head_mut()
    }

    /// The queue whose turn it is, and how many packets of it go at least before the other has its turn, if none has more
    /// than `longest` bytes.
    pub(crate) fn line(&self, longest: usize) -> (Line<'_>, usize) {
        let turn = self.turn();
        let most = match turn {
            Turn::Sparse if self.backlogged.is_empty() => usize::MAX,
            Turn::Sparse => MOST_AHEAD.saturating_sub(self.ahead).div_ceil(longest.max(1)).max(1),
            Turn::Backlogged if self.sparse.is_empty() => usize::MAX,
            Turn::Backlogged => 1,
        };
        (self.of(turn).line(), most)
    }

    /// Notes that a first part of the head has gone.
    pub fn begin_head(&mut self) {
        let turn = self.turn();
        self.of_mut(turn).begin_head();
    }

    /// Whether a first part of the head has gone.
    #[must_use]
    pub const fn is_head_begun(&self) -> bool {
        self.sparse.is_head_begun() || self.backlogged.is_head_begun()
    }

    /// Removes the head.
    #[inline]
    pub fn pop(&mut self) {
        let turn = self.turn();
        if let Some(gone) = self.of_mut(turn).pop() {
            self.note_gone(turn, gone);
        }
    }

    /// Removes the head and hands it over.
    #[inline]
    pub fn pop_packet(&mut self) -> Option<Waiting> {
        let turn = self.turn();
        let waiting = self.of_mut(turn).pop_packet()?;
        self.note_gone(turn, waiting.gone());
        Some(waiting)
    }

    /// Puts all that waits in `other`, with its age, before all that waits here.
    pub fn put_back(&mut self, other: &mut EgressQueue) {
        // What is sparse here came after it, and before what is not: it keeps its place between them.
        for flow in self.sparse.flows() {
            let place = &mut self.places[place_of(flow)];
            (place.sparse, place.backlogged) = (0, place.backlogged + 1);
        }
        for flow in other.flows() {
            self.places[place_of(flow)].backlogged += 1;
        }
        self.backlogged.put_back(&mut self.sparse);
        self.backlogged.put_back(other);
    }

    /// Drops what has waited too long; returns how many.
    pub fn handle_timeout(&mut self, now: Instant) -> u64 {
        let mut dropped = 0;
        for turn in [Turn::Sparse, Turn::Backlogged] {
            while self.of(turn).poll_timeout().is_some_and(|due| due <= now) {
                if let Some(gone) = self.of_mut(turn).pop() {
                    self.note_gone(turn, gone);
                }
                dropped += 1;
            }
        }
        dropped
    }

    /// When the first will have waited too long.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        earliest(self.sparse.poll_timeout(), self.backlogged.poll_timeout())
    }

    /// All that waits.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.sparse.waiting().chain(self.backlogged.waiting())
    }

    /// Packets waiting.
    #[must_use]
    pub fn len(&self) -> usize {
        self.sparse.len() + self.backlogged.len()
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.sparse.is_empty() && self.backlogged.is_empty()
    }

    /// Bytes waiting.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.sparse.bytes() + self.backlogged.bytes()
    }

    /// Gives back memory that is kept for packets to come.
    pub fn release_memory(&mut self) {
        self.sparse.release_memory();
        self.backlogged.release_memory();
    }

    /// Whose head is next.
    fn turn(&self) -> Turn {
        // The second part of a packet follows its first.
        if self.backlogged.is_head_begun() || self.sparse.is_empty() {
            return Turn::Backlogged;
        }
        if self.sparse.is_head_begun() || self.ahead < MOST_AHEAD {
            return Turn::Sparse;
        }
        // What of its own flow came before it is still among the sparse.
        let is_later = |flow| self.places[place_of(flow)].sparse > 0;
        match self.backlogged.head() {
            Some(head) if !is_later(head.label().meta.flow) => Turn::Backlogged,
            _ => Turn::Sparse,
        }
    }

    const fn of(&self, turn: Turn) -> &EgressQueue {
        match turn {
            Turn::Sparse => &self.sparse,
            Turn::Backlogged => &self.backlogged,
        }
    }

    const fn of_mut(&mut self, turn: Turn) -> &mut EgressQueue {
        match turn {
            Turn::Sparse => &mut self.sparse,
            Turn::Backlogged => &mut self.backlogged,
        }
    }

    /// The head of one of the queues has gone.
    fn note_gone(&mut self, turn: Turn, Gone { flow, len }: Gone) {
        let place = &mut self.places[place_of(flow)];
        match turn {
            Turn::Sparse => {
                place.sparse = place.sparse.saturating_sub(counted(len));
                self.ahead = if self.backlogged.is_empty() { 0 } else { self.ahead + len };
            }
            Turn::Backlogged => {
                place.backlogged = place.backlogged.saturating_sub(1);
                self.ahead = 0;
            }
        }
    }
}

/// What a place counts a packet of `len` bytes as.
fn counted(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn place_of(flow: FlowKey) -> usize {
    usize::try_from(flow.0 % PLACES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::super::label;
    use super::*;
    use crate::time::Duration;

    const DOWNLOAD: FlowKey = FlowKey(1);
    const CALL: FlowKey = FlowKey(2);

    fn queue() -> SparseFirst {
        SparseFirst::new(QueueLimits { time: Duration::from_millis(100), bytes: 1 << 20 })
    }

    /// A packet of a flow, with a number to know it by.
    fn packet(number: u8, len: usize) -> PacketBuffer {
        vec![number; len].into()
    }

    /// The numbers of the packets, in the order in which they leave.
    fn drained(queue: &mut SparseFirst) -> Vec<u8> {
        let mut numbers = Vec::new();
        while let Some(head) = queue.head() {
            numbers.push(head.packet()[0]);
            queue.pop();
        }
        numbers
    }

    #[test]
    fn a_call_does_not_wait_behind_a_download() {
        let mut queue = queue();
        for number in 0..10 {
            assert!(queue.push(Instant::ZERO, &label(DOWNLOAD), packet(number, 1400)));
        }
        assert!(queue.push(Instant::ZERO, &label(CALL), packet(100, 160)));
        assert!(queue.push(Instant::ZERO, &label(CALL), packet(101, 160)));
        // The download's first packet was a new flow's, too.
        assert_eq!(drained(&mut queue), [0, 100, 101, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
        assert_eq!((queue.len(), queue.bytes()), (0, 0));
    }

    #[test]
    fn the_line_of_the_next_packets_is_the_order_in_which_they_leave() {
        for calls in [0, 1, 30, 200_u8] {
            for download in [0, 1, 5] {
                let mut queue = queue();
                for number in 0..download {
                    assert!(queue.push(Instant::ZERO, &label(DOWNLOAD), packet(number, 300)));
                    assert!(queue.push(Instant::ZERO, &label(DOWNLOAD), packet(number, 1400)));
                }
                for number in 0..calls {
                    let flow = FlowKey(2 + u64::from(number));
                    assert!(queue.push(Instant::ZERO, &label(flow), packet(number, 500)));
                }
                while !queue.is_empty() {
                    let (line, most) = queue.line(1400);
                    let line: Vec<_> = (0..most.min(queue.len()))
                        .map_while(|place| line.nth(place).map(|next| next.packet().to_vec()))
                        .collect();
                    assert!(!line.is_empty());
                    for packet in line {
                        assert_eq!(queue.head().map(Waiting::packet), Some(&packet[..]));
                        queue.pop();
                    }
                }
            }
        }
    }

    #[test]
    fn a_flow_keeps_its_order_however_much_of_it_waits() {
        let mut queue = queue();
        let mut left = Vec::new();
        for number in 0..200_u8 {
            let (flow, len) = [(DOWNLOAD, 1400), (CALL, 400)][usize::from(number % 2)];
            assert!(queue.push(Instant::ZERO, &label(flow), packet(number, len)));
            if number % 3 == 0 {
                left.push(queue.head().expect("one waits").packet()[0]);
                queue.pop();
            }
        }
        left.extend(drained(&mut queue));
        for parity in 0..2 {
            let own: Vec<_> = left.iter().filter(|number| *number % 2 == parity).collect();
            assert!(own.is_sorted(), "{own:?}");
        }
        assert_eq!(left.len(), 200);
    }

    #[test]
    fn a_flood_of_new_flows_leaves_the_others_a_ninth() {
        let mut queue = queue();
        for number in 0..20 {
            queue.push(Instant::ZERO, &label(DOWNLOAD), packet(number, 1514));
        }
        for flow in 3..203 {
            queue.push(Instant::ZERO, &label(FlowKey(flow)), packet(255, 1514));
        }
        let first: Vec<_> = drained(&mut queue).into_iter().take(91).collect();
        let downloads = first.iter().filter(|number| **number < 20).count();
        assert_eq!(downloads, 11, "its first packet, and then each ninth: {first:?}");
    }

    #[test]
    fn a_packet_that_goes_in_parts_is_finished_before_any_other() {
        for first in [DOWNLOAD, CALL] {
            let mut queue = queue();
            for number in 0..3 {
                queue.push(Instant::ZERO, &label(first), packet(number, 1280));
            }
            if first == DOWNLOAD {
                queue.pop();
            }
            let begun = queue.head().expect("two wait").packet()[0];
            queue.begin_head();
            queue.push(Instant::ZERO, &label(FlowKey(3)), packet(100, 100));
            assert_eq!(
                (queue.head().expect("it waits").packet()[0], queue.is_head_begun()),
                (begun, true)
            );
            queue.pop();
            assert!(!queue.is_head_begun());
            assert_eq!(queue.head().expect("the new one").packet()[0], 100);
        }
    }

    #[test]
    fn what_comes_back_from_a_link_goes_before_the_rest_of_a_packet_that_begins_again() {
        for first in [DOWNLOAD, CALL] {
            let mut queue = queue();
            let mut other = EgressQueue::new(QueueLimits { time: Duration::ZERO, bytes: 0 });
            for number in 0..3 {
                queue.push(Instant::ZERO, &label(first), packet(number, 1280));
            }
            other.put(queue.pop_packet().expect("it waits"));
            if first == CALL {
                queue.push(Instant::ZERO, &label(DOWNLOAD), packet(3, 1280));
            }
            queue.begin_head();
            queue.put_back(&mut other);
            assert!(!queue.is_head_begun(), "the head is another");
            // The first of a new flow was not begun either.
            queue.push(Instant::ZERO, &label(FlowKey(3)), packet(100, 1280));
            assert!(!queue.is_head_begun());
            assert_eq!(queue.head().expect("it waits").packet()[0], 100);
        }
    }

    #[test]
    fn what_waited_too_long_goes_from_both() {
        let mut queue = queue();
        let at = Instant::from_millis;
        queue.push(at(0), &label(DOWNLOAD), packet(0, 1400));
        queue.push(at(1), &label(DOWNLOAD), packet(1, 1400));
        queue.push(at(2), &label(CALL), packet(2, 160));
        assert_eq!(queue.poll_timeout(), Some(at(100)));
        assert_eq!(queue.handle_timeout(at(101)), 2);
        assert_eq!(queue.poll_timeout(), Some(at(102)));
        assert_eq!(drained(&mut queue), [2]);
        queue.push(at(103), &label(DOWNLOAD), packet(3, 1400));
        assert_eq!(queue.sparse.len(), 1, "a flow of which nothing waits is new again");
    }

    #[test]
    fn what_comes_back_from_a_link_goes_first_and_no_flow_loses_its_order() {
        let mut queue = queue();
        let mut other = EgressQueue::new(QueueLimits { time: Duration::ZERO, bytes: 0 });
        for number in 0..3 {
            queue.push(Instant::ZERO, &label(DOWNLOAD), packet(number, 1400));
        }
        for _ in 0..3 {
            other.put(queue.pop_packet().expect("it waits"));
        }
        for number in 3..6 {
            queue.push(Instant::ZERO, &label(DOWNLOAD), packet(number, 1400));
        }
        queue.push(Instant::ZERO, &label(CALL), packet(100, 160));
        queue.put_back(&mut other);
        assert_eq!(drained(&mut queue), [0, 1, 2, 3, 100, 4, 5]);
        assert!(queue.places.iter().all(|place| place.sparse == 0 && place.backlogged == 0));
        assert_eq!((queue.len(), queue.bytes(), other.len()), (0, 0, 0));
    }
}
