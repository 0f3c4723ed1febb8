//! The queue of a tunnel that sends by arrival: flows take turns (deficit round robin, RFC 8290 §4), those of which
//! nothing waits go first, and what stands longer than the schedule needs is cut back ([`excess`](super::excess)).
//!
//! A flow that floods the tunnel waits behind itself, and what has to go is taken from the flow of which most waits: at its
//! head, where it notices soonest. The order within a flow stays.
//!
//! A packet whose sender was told that it has arrived is never given up, and is no excess: how much of it waits is bounded by
//! what the sender is told it may send ([`local_ack`](crate::tunnel)).
//!
//! A flow has a place by its hash. The places are there while anything waits, and so is a line of packets for each flow
//! that does.

mod overtaking;

use std::collections::VecDeque;

use super::excess::{Demand, ExcessLaw};
use super::sparse_first::{MOST_AHEAD, QUANTUM};
use super::{Dropped, EgressQueue, Label, Line, QueueLimits, Waiting};
use crate::ecn::Ecn;
use crate::link::train::TRAIN;
use crate::packet::buffer::PacketBuffer;
use crate::packet::{FlowKey, set_ecn};
use crate::time::{Duration, Instant, earliest};

/// Flows told apart. Two that meet in a place share their turns.
const PLACES: usize = 1024;

/// While no link answers, packets wait for the return of one for so long: a handover of a radio link, or the way from one cell to
/// the next, takes no longer, and who gives up sooner has lost what a second's patience would have saved.
const MOST_OUTAGE: Duration = Duration::from_secs(2);

/// What of the flows in one place waits.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Bytes among the sparse.
    sparse: u32,
    /// The line in which more waits.
    line: Option<u16>,
}

/// The packets of one place that have to take turns.
#[derive(Debug, Default)]
struct Backlog {
    place: u16,
    /// What it may send before the next has its turn: above zero for the one whose turn it is.
    deficit: i64,
    bytes: usize,
    /// Bytes of packets that may be given up.
    excess: usize,
    waiting: VecDeque<Waiting>,
    /// Places at the front whose packets have their numbers, and the bytes that wait there.
    numbered: usize,
    numbered_bytes: usize,
}

/// Which packet is next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Turn {
    /// The first of the sparse.
    Sparse,
    /// The first of the line whose turn it is.
    Backlogged,
}

/// Packets from the TUN that have no link yet, by flow.
#[derive(Debug)]
pub struct Fair {
    limits: QueueLimits,
    /// By how much longer packets may wait, as the schedule needs it.
    longer: Duration,
    law: ExcessLaw,
    /// Bytes of all turns of a round, if that is more than a quantum for each: what leaves in the time of a train. Packets of a flow
    /// that stay together cost both ends less.
    round: i64,
    /// No link answers.
    stalled: bool,
    /// When one did again: a packet's age counts from then.
    resumed_at: Instant,
    /// Empty while nothing waits, if memory was given back.
    places: Vec<Place>,
    sparse: VecDeque<Waiting>,
    lines: Vec<Backlog>,
    /// Lines in which nothing waits.
    free: Vec<u16>,
    /// Lines that wait for their turn, in its order: all but those of which something is still among the sparse.
    turns: VecDeque<u16>,
    /// Bytes of sparse flows that went since a packet of the others did, while those waited.
    ahead: usize,
    /// A first part of this head has gone.
    begun: Option<Turn>,
    bytes: usize,
    /// Bytes of packets that may be given up.
    excess: usize,
    packets: usize,
    /// No packet waits that may be given up and came before.
    oldest: Option<Instant>,
}

impl Fair {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            longer: Duration::ZERO,
            law: ExcessLaw::default(),
            round: 0,
            stalled: false,
            resumed_at: Instant::ZERO,
            places: Vec::new(),
            sparse: VecDeque::new(),
            lines: Vec::new(),
            free: Vec::new(),
            turns: VecDeque::new(),
            ahead: 0,
            begun: None,
            bytes: 0,
            excess: 0,
            packets: 0,
            oldest: None,
        }
    }

    /// Takes a packet into the queue while at most `most_bytes` wait, and gives up others of the flow of which most waits
    /// where too much does.
    #[inline]
    pub fn push(
        &mut self,
        now: Instant,
        label: &Label,
        packet: PacketBuffer,
        most_bytes: usize,
    ) -> Dropped {
        let mut dropped = Dropped::default();
        if label.acknowledges.is_some() && self.replace_outdone(label, &packet) {
            return dropped;
        }
        let most = most_bytes.min(self.limits.bytes);
        while self.bytes + packet.len() > most {
            if !self.drop_one_of_most() {
                return Dropped { full: dropped.full + 1, ..dropped };
            }
            dropped.full += 1;
        }
        self.put(Waiting { since: now, label: *label, packet, numbers: None });
        if label.is_acknowledged {
            return dropped;
        }
        if !self.stalled && self.law.on_more(now, self.excess as u64) && self.cut_one_of_most() {
            dropped.standing += 1;
        }
        while self.excess as u64 > self.law.most() && self.drop_one_of_most() {
            dropped.full += 1;
        }
        dropped
    }

    /// An acknowledgement takes the place of one of its flow that says less (RFC 3135 §3.1.4): a narrow link is not to be filled
    /// with what is old. `false`: none waits last.
    fn replace_outdone(&mut self, label: &Label, packet: &[u8]) -> bool {
        let Some(place) = self.places.get(usize::from(place_of(label.meta.flow))) else {
            return false;
        };
        let flow = label.meta.flow;
        let last = match place.line {
            _ if self.begun.is_some() => None,
            Some(line) => self.lines[usize::from(line)].waiting.back_mut(),
            None if place.sparse == 0 => None,
            None => self.sparse.iter_mut().rev().find(|waiting| waiting.label.meta.flow == flow),
        };
        let Some(last) = last.filter(|last| last.is_outdone_by(label, packet)) else {
            return false;
        };
        last.label = *label;
        last.packet.to_mut().copy_from_slice(packet);
        true
    }

    /// Puts a packet, with its age, behind those of its flow, whatever waits.
    #[inline]
    pub(crate) fn put(&mut self, waiting: Waiting) {
        if self.places.is_empty() {
            self.places.resize(PLACES, Place::default());
        }
        let len = waiting.packet.len();
        if waiting.may_be_dropped() {
            self.oldest = earliest(self.oldest, Some(waiting.since));
            self.excess += len;
        }
        self.bytes += len;
        self.packets += 1;
        let number = place_of(waiting.label.meta.flow);
        let place = &mut self.places[usize::from(number)];
        if let Some(line) = place.line {
            self.lines[usize::from(line)].put(waiting);
        } else if place.sparse as usize + len <= QUANTUM {
            place.sparse += counted(len);
            self.sparse.push_back(waiting);
        } else {
            let id = self.free.pop().unwrap_or_else(|| {
                self.lines.push(Backlog::default());
                u16::try_from(self.lines.len() - 1).unwrap_or(u16::MAX)
            });
            place.line = Some(id);
            if place.sparse == 0 {
                self.turns.push_back(id);
            }
            let line = &mut self.lines[usize::from(id)];
            (line.place, line.deficit) = (number, quantum());
            line.put(waiting);
        }
    }

    /// Packets may wait for so much longer than the limit, and the schedule needs this.
    pub fn allow(&mut self, longer: Duration, demand: Demand) {
        self.longer = longer + demand.patience();
        let round = u128::from(demand.rate) * TRAIN.as_micros() / 1_000_000;
        self.round = i64::try_from(round).unwrap_or(i64::MAX);
        self.law.set_demand(demand);
    }

    /// Whether no link answers. Then packets wait for the return of one, and a queue that stands is nobody's fault.
    #[inline]
    pub fn set_stalled(&mut self, now: Instant, stalled: bool) {
        if self.stalled && !stalled {
            self.resumed_at = now;
        }
        self.stalled = stalled;
    }

    /// When a packet that came then has waited too long.
    fn late_at(&self, since: Instant) -> Instant {
        let longest = self.limits.time + self.longer;
        match self.stalled {
            true => since + longest.max(MOST_OUTAGE),
            false => since.max(self.resumed_at) + longest,
        }
    }

    /// The packet whose turn it is.
    #[inline]
    #[must_use]
    pub fn head(&self) -> Option<&Waiting> {
        match self.turn() {
            Turn::Sparse => self.sparse.front(),
            Turn::Backlogged => self.next_line()?.waiting.front(),
        }
    }

    /// Whether it is of a flow of which nothing else waits.
    #[inline]
    #[must_use]
    pub fn is_next_sparse(&self) -> bool {
        !self.sparse.is_empty() && self.turn() == Turn::Sparse
    }

    /// The same, to be changed.
    pub(super) fn head_mut(&mut self) -> Option<&mut Waiting> {
        match self.turn() {
            Turn::Sparse => self.sparse.front_mut(),
            Turn::Backlogged => {
                let line = *self.turns.front()?;
                self.lines[usize::from(line)].waiting.front_mut()
            }
        }
    }

    /// Bytes of this flow that wait.
    #[inline]
    #[must_use]
    pub fn backlog_of(&self, flow: FlowKey) -> usize {
        let Some(place) = self.places.get(usize::from(place_of(flow))) else { return 0 };
        let line = place.line.map_or(0, |line| self.lines[usize::from(line)].bytes);
        line + place.sparse as usize
    }

    /// Flows that have to take turns.
    #[inline]
    #[must_use]
    pub fn flows(&self) -> usize {
        self.lines.len() - self.free.len()
    }

    /// The packets whose turn it is, and how many of them go at least before others have theirs, if none has more than
    /// `longest` bytes.
    pub(crate) fn line(&self, longest: usize) -> (Line<'_>, usize) {
        let longest = longest.max(1);
        match (self.turn(), self.next_line()) {
            (Turn::Backlogged, Some(line)) => {
                let one = self.sparse.is_empty() && self.turns.len() == 1;
                let deficit = usize::try_from(line.deficit).unwrap_or(0);
                let most = match self.sparse.is_empty() {
                    _ if one => usize::MAX,
                    true => deficit.div_ceil(longest).max(1),
                    false => 1,
                };
                (Line(&line.waiting), most)
            }
            _ => {
                let most = match self.flows() {
                    0 => usize::MAX,
                    _ => MOST_AHEAD.saturating_sub(self.ahead).div_ceil(longest).max(1),
                };
                (Line(&self.sparse), most)
            }
        }
    }

    /// Notes that a first part of the head has gone.
    pub fn begin_head(&mut self) {
        self.begun = Some(self.turn());
    }

    /// Whether a first part of the head has gone.
    #[must_use]
    pub const fn is_head_begun(&self) -> bool {
        self.begun.is_some()
    }

    /// Removes the head.
    #[inline]
    pub fn pop_packet(&mut self) -> Option<Waiting> {
        let waiting = match self.turn() {
            Turn::Sparse => {
                let waiting = self.sparse.pop_front()?;
                let len = waiting.packet.len();
                self.ahead = if self.flows() == 0 { 0 } else { self.ahead + len };
                self.note_sparse_gone(&waiting);
                waiting
            }
            Turn::Backlogged => {
                let id = *self.turns.front()?;
                return self.take_of(id, 0);
            }
        };
        self.begun = None;
        self.note_gone(&waiting);
        Some(waiting)
    }

    /// Takes the packet at this place of the line whose turn it is.
    fn take_of(&mut self, id: u16, place: usize) -> Option<Waiting> {
        let line = &mut self.lines[usize::from(id)];
        let waiting = line.take(place)?;
        line.deficit -= i64::from(counted(waiting.packet.len()));
        self.ahead = 0;
        self.note_line_shorter(id);
        self.begun = None;
        self.note_gone(&waiting);
        Some(waiting)
    }

    /// Puts all that waits in `other`, with its age, before all that waits here. A packet of which one part has gone starts again with the first.
    pub fn put_back(&mut self, other: &mut EgressQueue) {
        let mut own = Vec::with_capacity(self.packets);
        while let Some(waiting) = self.pop_packet() {
            own.push(waiting);
        }
        while let Some(waiting) = other.pop_packet() {
            self.put(waiting);
        }
        own.into_iter().for_each(|waiting| self.put(waiting));
    }

    /// Drops what has waited too long; returns how many.
    pub fn handle_timeout(&mut self, now: Instant) -> u64 {
        if self.poll_timeout().is_none_or(|due| due > now) {
            return 0;
        }
        let mut dropped = 0;
        while self
            .sparse
            .front()
            .is_some_and(|first| first.may_be_dropped() && self.late_at(first.since) <= now)
        {
            if self.begun == Some(Turn::Sparse) {
                self.begun = None;
            }
            if let Some(waiting) = self.sparse.pop_front() {
                self.note_sparse_gone(&waiting);
                self.note_gone(&waiting);
                dropped += 1;
            }
        }
        for id in 0..counted_lines(&self.lines) {
            dropped += self.drop_late_of(id, now);
        }
        let line = |id| self.oldest_of(id);
        let lines = (0..counted_lines(&self.lines)).filter_map(line);
        let sparse = self.sparse.front().filter(|first| first.may_be_dropped());
        self.oldest = lines.chain(sparse.map(|first| first.since)).min();
        dropped
    }

    /// Drops what is said to be outdated, of flows that take turns from their first packets on; returns how many.
    pub(crate) fn drop_outdated(&mut self, is_outdated: impl Fn(&Waiting) -> bool) -> u64 {
        let mut dropped = 0;
        // One that was begun is finished.
        let mut at = usize::from(self.begun == Some(Turn::Sparse));
        while let Some(waiting) = self.sparse.get(at) {
            if !waiting.may_be_dropped() || !is_outdated(waiting) {
                at += 1;
            } else if let Some(waiting) = self.sparse.remove(at) {
                self.note_sparse_gone(&waiting);
                self.note_gone(&waiting);
                dropped += 1;
            }
        }
        for id in 0..counted_lines(&self.lines) {
            dropped += self.drop_first_of(id, &is_outdated);
        }
        dropped
    }

    /// When the first may have waited too long.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.oldest.map(|since| self.late_at(since))
    }

    /// All that waits; of each flow in its order.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.sparse.iter().chain(self.lines.iter().flat_map(|line| &line.waiting))
    }

    /// Whether more of this flow waits than goes before others.
    #[must_use]
    pub fn takes_turns(&self, flow: FlowKey) -> bool {
        self.places.get(usize::from(place_of(flow))).is_some_and(|place| place.line.is_some())
    }

    /// Packets waiting.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.packets
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.packets == 0
    }

    /// Bytes waiting.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether memory is kept for packets to come.
    #[must_use]
    pub const fn has_spare(&self) -> bool {
        self.is_empty() && !self.places.is_empty()
    }

    /// Gives that memory back.
    pub fn release_memory(&mut self) {
        self.sparse.shrink_to_fit();
        if self.is_empty() {
            (self.places, self.lines) = (Vec::new(), Vec::new());
            (self.free, self.turns) = (Vec::new(), VecDeque::new());
        }
    }

    /// Which packet is next.
    #[inline]
    fn turn(&self) -> Turn {
        // The second part of a packet follows its first.
        if let Some(turn) = self.begun {
            return turn;
        }
        let waits_too_long = self.ahead >= MOST_AHEAD && !self.turns.is_empty();
        if self.sparse.is_empty() || waits_too_long { Turn::Backlogged } else { Turn::Sparse }
    }

    #[inline]
    fn next_line(&self) -> Option<&Backlog> {
        self.turns.front().map(|line| &self.lines[usize::from(*line)])
    }

    /// Bytes that a flow may send in its turn.
    #[inline]
    fn turn_of_each(&self) -> i64 {
        let flows = i64::try_from(self.turns.len()).unwrap_or(i64::MAX);
        quantum().max(self.round / flows.max(1))
    }

    /// The turn goes on until it comes to a line that may send.
    #[inline]
    fn pass_turn(&mut self) {
        let turn = self.turn_of_each();
        while let Some(&id) = self.turns.front()
            && let line = &mut self.lines[usize::from(id)]
            && line.deficit <= 0
        {
            line.deficit += turn;
            if self.turns.len() > 1 {
                self.turns.rotate_left(1);
            }
        }
    }

    /// Nothing of a flow is among the sparse any more: what else of it waits takes turns.
    #[inline]
    fn note_sparse_gone(&mut self, waiting: &Waiting) {
        let place = &mut self.places[usize::from(place_of(waiting.label.meta.flow))];
        place.sparse = place.sparse.saturating_sub(counted(waiting.packet.len()));
        if place.sparse == 0
            && let Some(line) = place.line
        {
            self.turns.push_back(line);
        }
    }

    /// A packet of this line has gone: perhaps the last.
    #[inline]
    fn note_line_shorter(&mut self, id: u16) {
        let line = &self.lines[usize::from(id)];
        if line.waiting.is_empty() {
            self.places[usize::from(line.place)].line = None;
            self.free.push(id);
            if self.turns.front() == Some(&id) {
                self.turns.pop_front();
            } else {
                self.turns.retain(|other| *other != id);
            }
        }
        self.pass_turn();
    }

    #[inline]
    fn note_gone(&mut self, waiting: &Waiting) {
        self.bytes -= waiting.packet.len();
        if waiting.may_be_dropped() {
            self.excess -= waiting.packet.len();
        }
        self.packets -= 1;
        if self.packets == 0 {
            self.oldest = None;
        }
        self.law.on_fewer(self.excess as u64);
    }

    /// The line in which most bytes wait that may be given up.
    fn fattest(&self) -> Option<u16> {
        let lines = (0..).zip(&self.lines).filter(|(_, line)| line.excess > 0);
        lines.max_by_key(|(_, line)| line.excess).map(|(id, _)| id)
    }

    /// The first of a line that was not begun: its place in the line.
    fn first_whole(&self, id: u16) -> usize {
        let begun = self.begun == Some(Turn::Backlogged) && self.turns.front() == Some(&id);
        usize::from(begun && self.lines[usize::from(id)].waiting.len() > 1)
    }

    /// Drops a packet of the flow of which most waits. `false`: no flow has more than its first packets here.
    fn drop_one_of_most(&mut self) -> bool {
        let Some(id) = self.fattest() else { return false };
        self.drop_one_of(id, self.first_droppable(id))
    }

    /// Marks the first packet of the flow of which most waits if it can be, or drops it. Whether it was dropped.
    fn cut_one_of_most(&mut self) -> bool {
        let Some(id) = self.fattest() else { return false };
        let at = self.first_whole(id);
        let droppable = self.first_droppable(id);
        let Some(first) = self.lines[usize::from(id)].waiting.get_mut(at) else { return false };
        if first.label.ecn == Ecn::NotEct || first.label.is_acknowledged {
            return self.drop_one_of(id, droppable);
        }
        // Its datagram goes unmarked: that would be a mark of the link.
        set_ecn(first.packet.to_mut(), Ecn::Ce);
        false
    }

    /// Drops the packet at this place of a line, if there is one.
    fn drop_one_of(&mut self, id: u16, at: usize) -> bool {
        if at == 0 && self.begun == Some(Turn::Backlogged) && self.turns.front() == Some(&id) {
            self.begun = None;
        }
        let Some(waiting) = self.lines[usize::from(id)].drop_at(at) else { return false };
        self.note_line_shorter(id);
        self.note_gone(&waiting);
        true
    }
}

/// What a place counts a packet of `len` bytes as.
#[inline]
fn counted(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

fn counted_lines(lines: &[Backlog]) -> u16 {
    u16::try_from(lines.len()).unwrap_or(u16::MAX)
}

#[inline]
const fn quantum() -> i64 {
    QUANTUM as i64
}

#[inline]
fn place_of(flow: FlowKey) -> u16 {
    u16::try_from(flow.0 % PLACES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests;
