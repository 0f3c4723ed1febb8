//! A packet that leaves before those in front of it, over a link on which it takes so much longer that it arrives in its turn.
//!
//! The receiver delivers a flow in the order of its numbers. So all in front of it get theirs now, and keep them: they are no
//! more given up to make the queue shorter, for the receiver would wait for them. Where the packet was its place stays, until it
//! is the first: to close the gap would move all that waits.

use super::super::{Numbers, Waiting};
use super::{Backlog, Fair, Turn};
use crate::packet::FlowKey;
use crate::packet::buffer::PacketBuffer;
use crate::time::{Instant, earliest};

/// Places in front of a packet that overtakes: half of the numbers that a receiver remembers.
const MOST_PLACES: usize = 8192;

impl Backlog {
    /// Adds a packet behind the others.
    pub(super) fn put(&mut self, waiting: Waiting) {
        let len = waiting.packet.len();
        self.bytes += len;
        if waiting.may_be_dropped() {
            self.excess += len;
        }
        if waiting.numbers.is_some() && self.numbered == self.waiting.len() {
            self.numbered += 1;
            self.numbered_bytes += len;
        }
        self.waiting.push_back(waiting);
    }

    /// Takes the packet at this place. The first place is never an empty one.
    pub(super) fn take(&mut self, at: usize) -> Option<Waiting> {
        let taken = if at == 0 || at >= self.numbered {
            self.waiting.remove(at)?
        } else {
            let place = self.waiting.get_mut(at)?;
            let empty = Waiting {
                since: place.since,
                label: place.label,
                packet: PacketBuffer::default(),
                numbers: place.numbers,
            };
            std::mem::replace(place, empty)
        };
        let len = taken.packet.len();
        self.bytes -= len;
        if taken.may_be_dropped() {
            self.excess -= len;
        }
        if at < self.numbered {
            self.numbered_bytes -= len;
            self.numbered -= usize::from(at == 0);
        }
        while self.waiting.front().is_some_and(|first| first.packet.is_empty()) {
            self.waiting.pop_front();
            self.numbered = self.numbered.saturating_sub(1);
        }
        Some(taken)
    }

    /// Takes the packet at this place, which will never be sent. If it has its numbers, the one behind it of its flow follows the
    /// one before it.
    pub(super) fn drop_at(&mut self, at: usize) -> Option<Waiting> {
        let dropped = self.take(at)?;
        if let Some(numbers) = dropped.numbers {
            let flow = dropped.label.meta.flow;
            let follows = |other: &&mut Waiting| {
                let awaits = other.numbers.and_then(|numbers| numbers.previous_of_flow);
                other.label.meta.flow == flow && awaits == Some(numbers.global)
            };
            let next = self.waiting.iter_mut().take(self.numbered).find(follows);
            if let Some(own) = next.and_then(|next| next.numbers.as_mut()) {
                own.previous_of_flow = numbers.previous_of_flow;
            }
        }
        Some(dropped)
    }

    /// The place of the first packet with so many bytes in front of it, if it is near enough.
    fn behind(&self, bytes: usize) -> Option<usize> {
        let len = |at: usize| self.waiting.get(at).map(|waiting| waiting.packet.len());
        let (mut at, mut before) = (self.numbered, self.numbered_bytes);
        while before > bytes && at > 0 {
            at -= 1;
            before = before.saturating_sub(len(at)?);
        }
        while before < bytes || len(at)? == 0 {
            before += len(at)?;
            at += 1;
        }
        (at <= MOST_PLACES).then_some(at)
    }

    /// Numbers the packets up to this place.
    fn number(&mut self, to: usize, mut next: impl FnMut(FlowKey) -> Numbers) {
        for at in self.numbered..=to {
            let Some(waiting) = self.waiting.get_mut(at) else { return };
            if waiting.numbers.is_none() {
                waiting.numbers = Some(next(waiting.label.meta.flow));
            }
            self.numbered = at + 1;
            self.numbered_bytes += waiting.packet.len();
        }
    }
}

impl Fair {
    /// Whether a packet may leave before those in front of it: not while a sparse flow goes first, or after a part of a packet.
    pub fn may_overtake(&self) -> bool {
        self.turn() == Turn::Backlogged && self.begun.is_none()
    }

    /// The place of the packet with so many bytes in front of it in the line whose turn it is; `None`: there is none, or it would
    /// overtake too many.
    pub fn behind(&self, bytes: usize) -> Option<usize> {
        self.next_line()?.behind(bytes)
    }

    /// The packet at this place of the line whose turn it is.
    pub fn at(&self, place: usize) -> Option<&Waiting> {
        self.next_line()?.waiting.get(place)
    }

    /// Gives all packets up to this place their numbers, which `next` says for one of a flow.
    pub fn number(&mut self, place: usize, next: impl FnMut(FlowKey) -> Numbers) {
        if let Some(&id) = self.turns.front() {
            self.lines[usize::from(id)].number(place, next);
        }
    }

    /// Takes the packet at this place of the line whose turn it is.
    pub fn take(&mut self, place: usize) -> Option<Waiting> {
        self.take_of(*self.turns.front()?, place)
    }

    /// Drops of a line what has waited too long, and returns how many. Those that were overtaken have twice the time: what
    /// left before them waits for them at the receiver.
    pub(super) fn drop_late_of(&mut self, id: u16, now: Instant) -> u64 {
        let mut dropped = 0;
        while self.overtaken_since(id).is_some_and(|since| self.late_at(since) <= now) {
            dropped += u64::from(self.drop_one_of(id, 0));
        }
        while let Some((at, first)) = self.droppable(id)
            && self.late_at(first.since) <= now
        {
            dropped += u64::from(self.drop_one_of(id, at));
        }
        dropped
    }

    /// Drops the first packets of a line that may be dropped and are said to be outdated; returns how many.
    pub(super) fn drop_first_of(
        &mut self,
        id: u16,
        is_outdated: &impl Fn(&Waiting) -> bool,
    ) -> u64 {
        let mut dropped = 0;
        while let Some((at, first)) = self.droppable(id)
            && is_outdated(first)
            && self.drop_one_of(id, at)
        {
            dropped += 1;
        }
        dropped
    }

    /// No packet of a line that may be given up came before.
    pub(super) fn oldest_of(&self, id: u16) -> Option<Instant> {
        earliest(self.overtaken_since(id), self.droppable(id).map(|(_, first)| first.since))
    }

    /// If others have overtaken the first packet of a line, and it may be given up at last: when it would have come if its time were
    /// no longer than that of others.
    fn overtaken_since(&self, id: u16) -> Option<Instant> {
        let first = self.lines[usize::from(id)].waiting.front()?;
        let has_longer = first.numbers.is_some() && first.may_be_dropped();
        has_longer.then(|| first.since + self.limits.time + self.longer)
    }

    /// The first that may be dropped and its place.
    fn droppable(&self, id: u16) -> Option<(usize, &Waiting)> {
        let line = &self.lines[usize::from(id)];
        let at = if line.excess > 0 { self.first_droppable(id) } else { return None };
        Some((at, line.waiting.get(at)?))
    }

    /// The first packet of a line that may be dropped: no receiver waits for it, and nobody was told that it has arrived.
    pub(super) fn first_droppable(&self, id: u16) -> usize {
        let line = &self.lines[usize::from(id)];
        let first = self.first_whole(id).max(line.numbered);
        let waiting = line.waiting.iter().skip(first);
        first + waiting.take_while(|waiting| !waiting.may_be_dropped()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::{Demand, QueueLimits, label};
    use super::*;
    use crate::time::Duration;

    const FLOW: FlowKey = FlowKey(1);

    /// Twelve packets of 1,000 bytes of one flow, of which the first, a sparse one, has left: 1 is next.
    fn download() -> Fair {
        let limits = QueueLimits { time: Duration::from_millis(100), bytes: 1 << 20 };
        let mut queue = Fair::new(limits);
        for number in 0..12 {
            queue.push(Instant::ZERO, &label(FLOW), vec![number; 1000].into(), 1 << 20);
        }
        assert_eq!(queue.pop_packet().map(|first| first.packet()[0]), Some(0));
        queue
    }

    /// The packet behind so many bytes leaves; numbers go on from `next`.
    fn overtake(queue: &mut Fair, bytes: usize, next: &mut u64) -> Option<(u8, Numbers)> {
        let place = queue.behind(bytes)?;
        queue.number(place, |_| {
            let global = *next;
            *next += 1;
            Numbers { global, previous_of_flow: global.checked_sub(1) }
        });
        let taken = queue.take(place)?;
        Some((taken.packet()[0], taken.numbers()?))
    }

    /// What is left, with its numbers.
    fn left(queue: &mut Fair) -> Vec<(u8, Option<u64>)> {
        let next = || queue.pop_packet();
        let packets = std::iter::from_fn(next);
        packets
            .map(|left| (left.packet()[0], left.numbers().map(|numbers| numbers.global)))
            .collect()
    }

    #[test]
    fn those_that_were_overtaken_keep_the_numbers_before_it_and_those_behind_have_none_yet() {
        let (mut queue, mut next) = (download(), 10);
        assert!(queue.may_overtake());
        let taken =
            |number, global| Some((number, Numbers { global, previous_of_flow: Some(global - 1) }));
        assert_eq!(overtake(&mut queue, 3000, &mut next), taken(4, 13));
        assert_eq!(overtake(&mut queue, 3000, &mut next), taken(5, 14));
        // Somebody is slower now, and then faster.
        assert_eq!(overtake(&mut queue, 1000, &mut next), taken(2, 11));
        assert_eq!(overtake(&mut queue, 4500, &mut next), taken(9, 18));
        assert_eq!(overtake(&mut queue, 8000, &mut next), None, "so much does not wait");
        assert_eq!((queue.len(), queue.bytes()), (7, 7000));
        let numbered =
            [(1, 10), (3, 12), (6, 15), (7, 16), (8, 17)].map(|(n, global)| (n, Some(global)));
        assert_eq!(left(&mut queue), [&numbered[..], &[(10, None), (11, None)]].concat());
        assert_eq!((queue.len(), queue.bytes(), queue.flows()), (0, 0, 0));
    }

    #[test]
    fn a_queue_that_is_cut_back_loses_no_packet_that_the_receiver_would_wait_for() {
        let (mut queue, mut next) = (download(), 0);
        overtake(&mut queue, 5000, &mut next);
        let demand = Demand { rate: 1, ..Demand::default() };
        queue.allow(Duration::ZERO, demand);
        for number in 0..90 {
            queue.push(Instant::ZERO, &label(FLOW), vec![number + 100; 1000].into(), 1 << 20);
        }
        let left = left(&mut queue);
        assert!(left.len() < 70, "64 KiB are kept");
        assert_eq!(left[..5], [0, 1, 2, 3, 4].map(|place| (place + 1, Some(u64::from(place)))));
    }

    #[test]
    fn those_that_were_overtaken_have_twice_the_time() {
        let (mut queue, mut next) = (download(), 0);
        overtake(&mut queue, 3000, &mut next);
        let at = Instant::from_millis;
        assert_eq!(queue.poll_timeout(), Some(at(100)));
        assert_eq!((queue.handle_timeout(at(99)), queue.handle_timeout(at(100))), (0, 7));
        assert_eq!((queue.len(), queue.poll_timeout()), (3, Some(at(200))));
        queue.push(at(120), &label(FLOW), vec![77; 1000].into(), 1 << 20);
        assert_eq!((queue.handle_timeout(at(200)), queue.poll_timeout()), (3, Some(at(220))));
        assert_eq!((queue.handle_timeout(at(220)), queue.poll_timeout()), (1, None));
    }

    #[test]
    fn where_one_with_a_number_is_too_old_the_next_follows_the_one_before_it() {
        let (mut queue, mut next) = (download(), 1);
        overtake(&mut queue, 3000, &mut next);
        let dropped = queue.lines[0].drop_at(1).and_then(|dropped| dropped.numbers);
        assert_eq!(dropped, Some(Numbers { global: 2, previous_of_flow: Some(1) }));
        let third = queue.lines[0].waiting[2].numbers;
        assert_eq!(third, Some(Numbers { global: 3, previous_of_flow: Some(1) }));
    }
}
