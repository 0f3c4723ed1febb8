//! What was lost on a link is sent again, over whichever link has it there soonest.
//!
//! Packets are kept until the other end has confirmed them. One that was lost keeps its global number, and gets a new local
//! one with each attempt: so the receiver knows it for what it is, and a link's numbers stay without gaps of our making. It goes
//! before anything new, as often as it takes, until it is too old to be of use. One whose link does not answer is sent
//! again over the others before anybody knows whether it was lost ([`reinject`](Repair::reinject)).
//!
//! A packet that went over two links at once ([`redundant`](super::redundant)) has two datagrams under way. It is confirmed when either is, and lost
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
    /// The link that it was moved away from because that did not answer.
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
    /// the link lives. Returns how many packets are to be sent again for it.
    pub(super) fn reinject(
        &mut self,
        now: Instant,
        link: LinkId,
        all: bool,
        mut free: impl FnMut(PacketBuffer),
    ) -> u64 {
        let most = if all { usize::MAX } else { 1 };
        let base = self.base;
        let alone_there = |(place, copy): (usize, &mut Option<Unconfirmed>)| {
            let copy = copy.as_mut()?;
            let is_there = copy.sent.link == link || copy.copy.is_some_and(|way| way.link == link);
            (is_there && !(all && copy.has_another(link, None))).then_some(base + place as u64)
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
        self.lost.len().saturating_sub(lost) as u64
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
mod tests {
    use super::*;
    use crate::link::carried::{Carried, Packets};
    use crate::link::sent::Sent;

    const WLAN: LinkId = LinkId(0);
    const LTE: LinkId = LinkId(1);

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn unconfirmed(ms: u64, link: LinkId, number: u64) -> Unconfirmed {
        let sent = Attempt {
            checksum: Checksum::Whole,
            mark: Ecn::NotEct,
            flow: FlowKey(1),
            previous_of_flow: None,
            is_sparse: false,
            is_acknowledged: false,
            is_redundant: false,
            came: None,
            link,
            number,
            moved_from: None,
        };
        Unconfirmed { packet: vec![7; 100].into(), sent_at: at(ms), sent, copy: None }
    }

    /// Packets 10 to 13, on two links in turn.
    fn four() -> Repair {
        let mut repair = Repair::default();
        for (global, link, number) in [(10, WLAN, 5), (11, LTE, 9), (12, WLAN, 6), (13, LTE, 10)] {
            repair.keep(at(0), global, unconfirmed(0, link, number), drop);
        }
        repair
    }

    fn fate(number: u64, packets: Packets, fate: Fate) -> Settled {
        let carried = Carried { packets, ..Carried::default() };
        let sent = Sent {
            size: 100,
            header: 28,
            places: 1,
            eliciting: true,
            window_limited: false,
            window_full: false,
            paced: false,
            carried,
        };
        Settled { number, sent_at: at(0), sent, fate }
    }

    /// Settles the datagram with one packet; says how many buffers came back.
    fn settle(
        repair: &mut Repair,
        ms: u64,
        link: LinkId,
        number: u64,
        global: u64,
        of: Fate,
    ) -> usize {
        let mut freed = 0;
        repair.settle(at(ms), link, &fate(number, Packets::one(global), of), |_| freed += 1);
        freed
    }

    fn lost(repair: &Repair) -> Vec<u64> {
        repair.lost.iter().map(|lost| lost.global).collect()
    }

    #[test]
    fn what_is_confirmed_is_forgotten_and_its_buffer_comes_back() {
        let mut repair = four();
        assert_eq!(settle(&mut repair, 40, LTE, 9, 11, Fate::Confirmed), 1);
        assert_eq!(settle(&mut repair, 40, LTE, 9, 11, Fate::Confirmed), 0, "once");
        assert_eq!((repair.repairs().kept, repair.repairs().kept_bytes), (3, 300));
        for (link, number, global) in [(WLAN, 5, 10), (WLAN, 6, 12), (LTE, 10, 13)] {
            assert_eq!(settle(&mut repair, 50, link, number, global, Fate::Confirmed), 1);
        }
        assert!(repair.places.is_empty() && repair.repairs().kept_bytes == 0);
    }

    /// Packet 10 on both links.
    fn copied() -> Repair {
        let mut repair = Repair::default();
        repair.keep(at(0), 10, unconfirmed(0, WLAN, 5), drop);
        repair.on_copied(10, Way { link: LTE, number: 9 });
        repair
    }

    #[test]
    fn a_packet_on_two_links_is_confirmed_by_either_datagram_and_lost_with_both() {
        use Fate::{Confirmed, Lost, TimedOut};
        type Fates<'a> = &'a [(LinkId, u64, Fate)];
        let table: [(Fates<'_>, (usize, usize)); 9] = [
            (&[(WLAN, 5, Confirmed)], (0, 0)),
            (&[(LTE, 9, Confirmed)], (0, 0)),
            (&[(WLAN, 5, Lost)], (1, 0)),
            (&[(LTE, 9, Lost)], (1, 0)),
            (&[(WLAN, 5, TimedOut), (LTE, 9, Confirmed)], (0, 0)),
            (&[(LTE, 9, Lost), (WLAN, 5, Confirmed)], (0, 0)),
            (&[(WLAN, 5, Confirmed), (LTE, 9, Lost)], (0, 0)),
            (&[(WLAN, 5, Lost), (LTE, 9, Lost)], (1, 1)),
            (&[(LTE, 9, Lost), (WLAN, 5, TimedOut)], (1, 1)),
        ];
        for (fates, (kept, again)) in table {
            let mut repair = copied();
            for (link, number, fate) in fates {
                settle(&mut repair, 50, *link, *number, 10, *fate);
            }
            assert_eq!((repair.repairs().kept, lost(&repair).len()), (kept, again), "{fates:?}");
            assert_eq!(repair.repairs().sent, 0, "a copy is no repair");
        }
    }

    #[test]
    fn a_packet_on_two_links_goes_again_when_both_are_silent() {
        for links in [[WLAN, LTE], [LTE, WLAN]] {
            let mut repair = copied();
            repair.reinject(at(60), links[0], true, drop);
            assert_eq!(lost(&repair), [], "the other one carries it");
            repair.reinject(at(70), links[1], true, drop);
            assert_eq!(lost(&repair), [10]);
        }
    }

    #[test]
    fn what_was_lost_goes_again_the_lowest_first_and_once_for_each_loss() {
        let mut repair = four();
        settle(&mut repair, 50, LTE, 10, 13, Fate::Lost);
        settle(&mut repair, 60, WLAN, 5, 10, Fate::Lost);
        assert_eq!(lost(&repair), [10, 13]);
        assert_eq!(repair.next().map(|(global, _)| global), Some(10));
        repair.on_sent(0, 1, LTE, 11);
        assert_eq!(lost(&repair), [13]);
        // What is heard of the first attempt says nothing of the second.
        settle(&mut repair, 70, WLAN, 5, 10, Fate::Lost);
        assert_eq!(lost(&repair), [13]);
        settle(&mut repair, 80, LTE, 11, 10, Fate::Lost);
        assert_eq!((lost(&repair), repair.repairs().sent), (vec![10, 13], 1));
    }

    #[test]
    fn those_that_were_overtaken_are_kept_under_their_lower_numbers() {
        let mut repair = Repair::default();
        repair.keep(at(0), 13, unconfirmed(0, LTE, 9), drop);
        for (global, number) in [(10, 5), (12, 6), (11, 7), (14, 8)] {
            repair.keep(at(0), global, unconfirmed(0, WLAN, number), drop);
        }
        assert_eq!((repair.repairs().kept, repair.repairs().kept_bytes), (5, 500));
        for (link, number, global) in [(WLAN, 5, 10), (LTE, 9, 13), (WLAN, 7, 11)] {
            assert_eq!(settle(&mut repair, 40, link, number, global, Fate::Confirmed), 1);
        }
        settle(&mut repair, 50, WLAN, 6, 12, Fate::Lost);
        assert_eq!(lost(&repair), [12]);
        // One that comes far too late for its number is not kept.
        let mut freed = 0;
        let far = 12 + MOST_PACKETS as u64;
        repair.keep(at(60), far, unconfirmed(60, WLAN, 9), |_| freed += 1);
        repair.keep(at(60), 5, unconfirmed(60, WLAN, 10), |_| freed += 1);
        assert!(repair.get(5).is_none());
        assert!(freed > 0);
    }

    #[test]
    fn what_seemed_lost_and_came_does_not_go_again() {
        let mut repair = four();
        settle(&mut repair, 50, WLAN, 5, 10, Fate::Lost);
        assert_eq!(settle(&mut repair, 60, WLAN, 5, 10, Fate::ConfirmedLate), 1);
        assert!(repair.next().is_none());
    }

    #[test]
    fn nothing_goes_again_that_is_older_than_two_seconds() {
        let mut repair = four();
        assert_eq!(settle(&mut repair, 2001, WLAN, 5, 10, Fate::TimedOut), 1);
        assert_eq!((lost(&repair), repair.repairs().given_up), (vec![], 1));
    }

    #[test]
    fn what_follows_one_that_is_of_no_use_any_more_waits_for_the_one_before_that() {
        let mut repair = Repair::default();
        // 10, 11, 13 and 14 of a call, 12 of a download.
        let packets = [(10, 1, None), (11, 1, Some(10)), (12, 2, None), (13, 1, Some(11))];
        for (global, flow, before) in packets.into_iter().chain([(14, 1, Some(13))]) {
            let mut packet = unconfirmed(0, WLAN, global);
            packet.sent.flow = FlowKey(flow);
            packet.sent.previous_of_flow = before;
            packet.sent.came = (flow == 1).then(|| at(0));
            repair.keep(at(0), global, packet, drop);
        }
        let before = |repair: &Repair, global| repair.kept(global)?.sent.previous_of_flow;
        assert!(repair.give_up(13).is_some() && repair.give_up(11).is_some());
        assert_eq!(before(&repair, 14), Some(10));
        assert!(repair.give_up(10).is_some());
        assert_eq!((before(&repair, 14), before(&repair, 12)), (None, None));
        let given_up: Vec<_> = std::iter::from_fn(|| repair.poll_given_up()).collect();
        assert_eq!(given_up, [10, 11, 13].map(|global| (FlowKey(1), global)));
    }

    #[test]
    fn all_that_is_under_way_on_a_silent_link_goes_over_the_others() {
        let mut repair = four();
        repair.reinject(at(60), WLAN, false, drop);
        assert_eq!(lost(&repair), [10]);
        repair.reinject(at(60), WLAN, true, drop);
        assert_eq!(lost(&repair), [10, 12]);
        repair.on_sent(0, 2, LTE, 11);
        repair.reinject(at(70), WLAN, true, drop);
        assert_eq!(lost(&repair), [] as [u64; 0], "it is not there any more");
    }

    #[test]
    fn of_packets_in_one_datagram_each_has_its_own_fate() {
        let mut repair = Repair::default();
        // Packets 1, 2 and 4 in a datagram, 3 in another of the same moment.
        for (global, link, number) in [(1, WLAN, 5), (2, WLAN, 5), (3, LTE, 8), (4, WLAN, 5)] {
            repair.keep(at(0), global, unconfirmed(0, link, number), drop);
        }
        repair.settle(at(30), WLAN, &fate(5, Packets::several(1, 4, 3), Fate::Lost), drop);
        assert_eq!(lost(&repair), [1, 2, 4]);
    }

    #[test]
    fn neither_packets_nor_bytes_grow_without_bound() {
        let mut repair = Repair::default();
        let mut freed = 0;
        for global in 0..2 * MOST_PACKETS as u64 {
            repair.keep(at(0), global, unconfirmed(0, WLAN, global), |_| freed += 1);
        }
        assert_eq!((repair.repairs().kept, freed), (MOST_PACKETS, MOST_PACKETS));
        // A number was skipped; a far one begins again.
        repair.keep(at(0), 2 * MOST_PACKETS as u64 + 1, unconfirmed(0, WLAN, 1), drop);
        assert_eq!(repair.base, MOST_PACKETS as u64 + 2);
        repair.keep(at(0), 1 << 40, unconfirmed(0, WLAN, 2), drop);
        assert_eq!((repair.repairs().kept, repair.base), (1, 1 << 40));
        // What nobody reports is forgotten in the end.
        repair.keep(at(60_000), (1 << 40) + 1, unconfirmed(60_000, WLAN, 3), drop);
        assert_eq!((repair.repairs().kept, repair.base), (1, (1 << 40) + 1));
    }
}
