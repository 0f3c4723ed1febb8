//! What was lost on a link is sent again, over whichever link has it there soonest.
//!
//! Packets are kept until the other end has confirmed them. One that was lost keeps its global number, and gets a new local
//! one with each attempt: so the receiver knows it for what it is, and a link's numbers stay without gaps of our making. It goes
//! before anything new, as often as it takes, until it is too old to be of use. One whose link does not answer is sent
//! again over the others before anybody knows whether it was lost ([`reinject`](Repair::reinject)).
//!
//! A packet that went over two links at once ([`redundant`](super::redundant)), or was copied early ([`early_copy`](super::early_copy)), has two datagrams under way. It is confirmed when either is, and lost
//! when both are.
//!
//! A packet here is the one that waited in the queue: it is moved, not copied.

use std::collections::{BTreeSet, VecDeque};

use crate::ecn::Ecn;
use crate::link::sent::{Fate, Settled};
use crate::packet::FlowKey;
use crate::packet::buffer::PacketBuffer;
use crate::packet::checksum::Checksum;
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// A packet that is older is not sent again: its sender has done so, and the receiver waits no longer. The return of the last link is
/// waited for as long.
const MOST_AGE: Duration = Duration::from_secs(2);

/// The same of a packet whose sender was told that it has arrived: he will never send it again, and the receiver delivers it however
/// late. Over a satellite the first second passes before anybody knows that it was lost.
const MOST_AGE_ACKNOWLEDGED: Duration = Duration::from_secs(8);

/// Packets kept: the receiver remembers as many numbers.
const MOST_PACKETS: usize = 16_384;

/// After a gap of more numbers than this the packets kept before it are forgotten. One packet may overtake half as many.
const MOST_GAP: u64 = 16_384;

/// Packets to be sent again that one of them may overtake: each is looked at.
const MOST_OVERTAKEN: usize = 512;

/// Bytes kept: 100 ms at 1.3 Gbit/s, or 1 s at 130 Mbit/s.
const MOST_BYTES: usize = 16 << 20;

/// A packet that left.
#[derive(Debug)]
pub(super) struct Unconfirmed {
    pub(super) packet: PacketBuffer,
    /// When it first left.
    pub(super) sent_at: Instant,
    pub(super) sent: Attempt,
    /// Where a second datagram with it is under way.
    pub(super) copy: Option<Way>,
}

/// A link, and the number of a datagram there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Way {
    pub(super) link: LinkId,
    pub(super) number: u64,
}

/// How a packet left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) checksum: Checksum,
    /// The mark of its datagram.
    pub(super) mark: Ecn,
    /// Its flow, and the number of the packet before it of that.
    pub(super) flow: FlowKey,
    pub(super) previous_of_flow: Option<u64>,
    /// Nothing else of its flow waited.
    pub(super) is_sparse: bool,
    /// Its sender was told that it has arrived.
    pub(super) is_acknowledged: bool,
    /// It is to go over a second link, too.
    pub(super) is_redundant: bool,
    /// If it is of use for a moment only: when it came.
    pub(super) came: Option<Instant>,
    /// The link that it went on last, and its datagram's number there.
    pub(super) link: LinkId,
    pub(super) number: u64,
    /// The link that it was moved away from, or copied from early, because that did not answer.
    pub(super) moved_from: Option<LinkId>,
}

impl Unconfirmed {
    /// Whether it is young enough to be of use, unless that is for a moment only ([`real_time`](super::real_time)): that depends on
    /// the link, too.
    pub(super) fn is_worth_sending(&self, now: Instant) -> bool {
        let most = if self.sent.is_acknowledged { MOST_AGE_ACKNOWLEDGED } else { MOST_AGE };
        now.since(self.sent_at) <= most
    }

    /// Whether it went, or was copied, as this datagram.
    fn went(&self, way: Way) -> bool {
        Way { link: self.sent.link, number: self.sent.number } == way || self.copy == Some(way)
    }

    /// The datagram with this number on `link` is lost, or all of them that are there. Returns whether another one is under way.
    fn has_another(&mut self, link: LinkId, number: Option<u64>) -> bool {
        let is_it = |way: Way| way.link == link && number.is_none_or(|number| way.number == number);
        let Some(copy) = self.copy.take() else { return false };
        if !is_it(copy) {
            (self.sent.link, self.sent.number) = (copy.link, copy.number);
        }
        true
    }

    const fn lost(&self, global: u64) -> Lost {
        Lost { is_backlogged: !self.sent.is_sparse, global }
    }
}

/// How many packets were sent again, and what became of the others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Repairs {
    /// Packets sent again, each time counted.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that were lost, and too old to be sent again.
    pub given_up: u64,
    /// Packets kept until they are confirmed, and their bytes.
    pub kept: usize,
    /// Their bytes.
    pub kept_bytes: usize,
}

/// A packet to be sent again, in the order in which they go: those of sparse flows first, for somebody waits for them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Lost {
    is_backlogged: bool,
    global: u64,
}

/// The packets that left and are not confirmed.
#[derive(Debug, Default)]
pub(super) struct Repair {
    /// The number of the first place.
    base: u64,
    places: VecDeque<Option<Unconfirmed>>,
    packets: usize,
    bytes: usize,
    /// The numbers of those to be sent again.
    lost: BTreeSet<Lost>,
    /// The packets that were given up since somebody asked, and their flows.
    given_up: Vec<(FlowKey, u64)>,
    /// The links from which packets were moved that were confirmed since somebody asked.
    resumed: Vec<LinkId>,
    repairs: Repairs,
}

impl Repair {
    /// The packet `global` left: the highest yet, or one that others have overtaken. Buffers that are not needed any more go to
    /// `free`.
    #[inline]
    pub(super) fn keep(
        &mut self,
        now: Instant,
        global: u64,
        copy: Unconfirmed,
        mut free: impl FnMut(PacketBuffer),
    ) {
        let next = self.base + self.places.len() as u64;
        if global < next && self.packets > 0 {
            return self.keep_overtaken(global, copy, free);
        }
        match global.checked_sub(next) {
            Some(0) => {}
            // Numbers between went without a packet.
            Some(gap @ 1..MOST_GAP) if self.packets > 0 => {
                (0..gap).for_each(|_| self.places.push_back(None));
            }
            _ => {
                self.release_memory();
                self.base = global;
            }
        }
        self.packets += 1;
        self.bytes += copy.packet.len();
        self.places.push_back(Some(copy));
        while self.is_over(now) {
            let number = self.base;
            let lost = self.lost.len();
            if let Some(copy) = self.take(number) {
                if self.lost.len() < lost {
                    self.note_given_up(number, &copy);
                }
                free(copy.packet);
            }
            self.trim();
        }
    }

    /// A packet left that others have overtaken.
    fn keep_overtaken(
        &mut self,
        global: u64,
        copy: Unconfirmed,
        mut free: impl FnMut(PacketBuffer),
    ) {
        let missing = self.base.saturating_sub(global);
        if missing + self.places.len() as u64 > MOST_PACKETS as u64 {
            return free(copy.packet);
        }
        (0..missing).for_each(|_| self.places.push_front(None));
        self.base -= missing;
        let Some(place) = self.place(global) else { return free(copy.packet) };
        let (packets, bytes) = (self.packets + 1, self.bytes + copy.packet.len());
        match self.places[place].replace(copy) {
            // Numbers are given once.
            Some(other) => free(other.packet),
            None => (self.packets, self.bytes) = (packets, bytes),
        }
    }

    /// Whether the first is to be forgotten: for want of room, or because nobody will ever say what became of it.
    #[inline]
    fn is_over(&self, now: Instant) -> bool {
        let forgotten = |copy: &Unconfirmed| now.since(copy.sent_at) > MOST_AGE * 5;
        self.places.len() > MOST_PACKETS
            || self.bytes > MOST_BYTES
            || self.places.front().and_then(Option::as_ref).is_some_and(forgotten)
    }

    /// The fate of a datagram on `link` is known.
    #[inline]
    pub(super) fn settle(
        &mut self,
        now: Instant,
        link: LinkId,
        settled: &Settled,
        mut free: impl FnMut(PacketBuffer),
    ) {
        let packets = settled.sent.carried.packets;
        if packets.count == 0 || self.places.is_empty() {
            return;
        }
        let way = Way { link, number: settled.number };
        for global in packets.first..=packets.last() {
            let went_so = |copy: &&mut Unconfirmed| copy.went(way);
            let Some(place) = self.place(global) else { continue };
            let Some(copy) = self.places[place].as_mut().filter(went_so) else { continue };
            match settled.fate {
                Fate::Confirmed | Fate::ConfirmedLate => {
                    if let Some(copy) = self.take_from(place, global) {
                        self.note_resumed(&copy);
                        free(copy.packet);
                    }
                }
                Fate::Lost | Fate::TimedOut => {
                    if !copy.has_another(link, Some(way.number)) {
                        self.lose(now, global, &mut free);
                    }
                }
            }
        }
        self.trim();
    }

    /// Nothing is heard of `link`: what is under way there goes over the others. `all`: else only the first, to find out whether
    /// the link lives. Returns how many packets go over others for it, including those that were copied early.
    pub(super) fn reinject(
        &mut self,
        now: Instant,
        link: LinkId,
        all: bool,
        mut free: impl FnMut(PacketBuffer),
    ) -> u64 {
        let most = if all { usize::MAX } else { 1 };
        let (base, mut copied) = (self.base, 0);
        let alone_there = |(place, copy): (usize, &mut Option<Unconfirmed>)| {
            let copy = copy.as_mut()?;
            let is_there = copy.sent.link == link || copy.copy.is_some_and(|way| way.link == link);
            if is_there && all && copy.has_another(link, None) {
                copied += u64::from(copy.sent.moved_from == Some(link));
                return None;
            }
            is_there.then_some(base + place as u64)
        };
        let numbers: Vec<u64> =
            self.places.iter_mut().enumerate().filter_map(alone_there).take(most).collect();
        let lost = self.lost.len();
        for global in numbers {
            self.lose(now, global, &mut free);
            if let Some(copy) = self.place(global).and_then(|at| self.places[at].as_mut()) {
                copy.sent.moved_from = Some(link);
            }
        }
        self.trim();
        self.lost.len().saturating_sub(lost) as u64 + copied
    }

    #[inline]
    fn note_resumed(&mut self, copy: &Unconfirmed) {
        if let Some(link) = copy.sent.moved_from
            && !self.resumed.contains(&link)
        {
            self.resumed.push(link);
        }
    }

    /// The next link from which packets were moved, of which one was confirmed.
    pub(super) fn poll_resumed(&mut self) -> Option<LinkId> {
        self.resumed.pop()
    }

    fn lose(&mut self, now: Instant, global: u64, free: &mut impl FnMut(PacketBuffer)) {
        let Some(copy) = self.get(global) else { return };
        if copy.is_worth_sending(now) {
            let lost = copy.lost(global);
            self.lost.insert(lost);
        } else if let Some(copy) = self.take(global) {
            self.note_given_up(global, &copy);
            free(copy.packet);
        }
    }

    /// The next packet to be sent again, and its number.
    pub(super) fn next(&self) -> Option<(u64, &Unconfirmed)> {
        self.lost().next()
    }

    /// The place among them of the first with so many bytes in front of it.
    pub(super) fn behind(&self, bytes: usize) -> Option<usize> {
        let mut before = 0;
        let is_in_front = |(_, copy): &(u64, &Unconfirmed)| {
            before += copy.packet.len();
            before <= bytes
        };
        let place = self.lost().take(MOST_OVERTAKEN).take_while(is_in_front).count();
        (place < self.lost.len()).then_some(place)
    }

    /// All packets to be sent again, in the order of their numbers.
    pub(super) fn lost(&self) -> impl Iterator<Item = (u64, &Unconfirmed)> + Clone {
        self.lost.iter().filter_map(|lost| Some((lost.global, self.get(lost.global)?)))
    }

    /// All packets that left and are not confirmed, in the order of their numbers.
    pub(super) fn unconfirmed(&self) -> impl Iterator<Item = &Unconfirmed> {
        self.places.iter().flatten()
    }

    /// So many from this place on left again, on this link as this datagram.
    pub(super) fn on_sent(&mut self, place: usize, packets: usize, link: LinkId, number: u64) {
        for _ in 0..packets {
            let Some(lost @ Lost { global, .. }) = self.lost.iter().nth(place).copied() else {
                return;
            };
            self.lost.remove(&lost);
            self.repairs.sent += 1;
            if let Some(copy) = self.place(global).and_then(|at| self.places[at].as_mut()) {
                (copy.sent.link, copy.sent.number) = (link, number);
                self.repairs.sent_bytes += copy.packet.len() as u64;
            }
        }
    }

    /// The packet, if it is not confirmed.
    pub(super) fn kept(&self, global: u64) -> Option<&Unconfirmed> {
        self.get(global)
    }

    /// Those of the first numbers that left and are not confirmed, of so many.
    pub(super) fn first(&self, numbers: usize) -> impl Iterator<Item = (u64, &Unconfirmed)> {
        let places = (self.base..).zip(&self.places).take(numbers);
        places.filter_map(|(number, kept)| Some((number, kept.as_ref()?)))
    }

    /// The packet was sent again before anybody knew whether it was lost, as this datagram.
    pub(super) fn on_copied_early(&mut self, global: u64, way: Way) {
        self.on_copied(global, way);
        let Some(kept) = self.place(global).and_then(|at| self.places[at].as_mut()) else { return };
        kept.sent.moved_from.get_or_insert(kept.sent.link);
        self.repairs.sent += 1;
        self.repairs.sent_bytes += kept.packet.len() as u64;
    }

    /// The packet went over a second link, as this datagram.
    pub(super) fn on_copied(&mut self, global: u64, way: Way) {
        if let Some(kept) = self.place(global).and_then(|at| self.places[at].as_mut()) {
            kept.copy = Some(way);
        }
    }

    /// The packet will not be sent again.
    pub(super) fn give_up(&mut self, global: u64) -> Option<PacketBuffer> {
        let copy = self.take(global)?;
        self.note_given_up(global, &copy);
        self.trim();
        Some(copy.packet)
    }

    fn note_given_up(&mut self, global: u64, copy: &Unconfirmed) {
        self.repairs.given_up += 1;
        self.given_up.push((copy.sent.flow, global));
        // The receiver is still patient with one that was of use for a moment only.
        if copy.sent.came.is_some() {
            self.pass_over(global, &copy.sent);
        }
    }

    /// This packet is gone: the next one of its flow follows the one before it, if it goes again.
    fn pass_over(&mut self, global: u64, gone: &Attempt) {
        let Some(place) = self.place(global) else { return };
        let is_of_flow = |other: &&mut Unconfirmed| other.sent.flow == gone.flow;
        let next = self.places.iter_mut().skip(place + 1).flatten().find(is_of_flow);
        if let Some(next) = next
            && next.sent.previous_of_flow == Some(global)
        {
            next.sent.previous_of_flow = gone.previous_of_flow;
        }
    }

    /// The next packet that was given up, and its flow.
    pub(super) fn poll_given_up(&mut self) -> Option<(FlowKey, u64)> {
        self.given_up.pop()
    }

    /// Whether any packet is to be sent again.
    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// Counters and sizes.
    pub(super) fn repairs(&self) -> Repairs {
        Repairs { kept: self.packets, kept_bytes: self.bytes, ..self.repairs }
    }

    /// Forgets all, for nothing was sent or came for long, and gives the memory back.
    pub(super) fn release_memory(&mut self) {
        *self = Self { repairs: self.repairs, ..Self::default() };
    }

    /// Whether memory is kept.
    pub(super) fn has_spare(&self) -> bool {
        self.places.capacity() > 0
    }

    #[inline]
    fn place(&self, global: u64) -> Option<usize> {
        let place = usize::try_from(global.checked_sub(self.base)?).ok()?;
        (place < self.places.len()).then_some(place)
    }

    #[inline]
    fn get(&self, global: u64) -> Option<&Unconfirmed> {
        self.places.get(self.place(global)?)?.as_ref()
    }

    fn take(&mut self, global: u64) -> Option<Unconfirmed> {
        self.take_from(self.place(global)?, global)
    }

    #[inline]
    fn take_from(&mut self, place: usize, global: u64) -> Option<Unconfirmed> {
        let copy = self.places.get_mut(place)?.take()?;
        if !self.lost.is_empty() {
            self.lost.remove(&copy.lost(global));
        }
        self.packets -= 1;
        self.bytes -= copy.packet.len();
        Some(copy)
    }

    /// Forgets the places before the first packet.
    #[inline]
    fn trim(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.base += 1;
        }
    }
}

#[cfg(test)]
mod tests;
