//! The links of a tunnel, by id, with what is asked of all of them.
//!
//! | part | what it holds |
//! | --- | --- |
//! | [`Link`] | one link |
//! | [`RemovedLinks`] | links that left: what still comes from them, and saying so again |
//! | [`LeftBehind`] | what links had that left, for when they are back |
//! | [`Ledger`] | bytes by link as a provider counts them |
//! | [`Backups`] | links that are kept back until they are needed |

mod backup;
mod ledger;
mod left_behind;
mod removed;

use std::ops::{Index, IndexMut};

use arrayvec::ArrayVec;

use backup::Backups;
pub use ledger::{Ledger, Metered};
use left_behind::LeftBehind;
use removed::RemovedLinks;

use super::link::{Link, LinkState, Traffic};
use super::usage::Usage;
use crate::config::{MAX_LINKS, TunnelConfig};
use crate::link::rtt::MAX_REPORT_DELAY;
use crate::time::{Duration, Instant};
use crate::timer::{Timer, Wakeup, sooner};
use crate::units::LinkId;
use crate::wire::frame::{Halt, low32};

/// The links of a tunnel.
#[derive(Debug, Default)]
pub(super) struct LinkSet {
    /// Sorted by id.
    links: Vec<Link>,
    removed: RemovedLinks,
    left_behind: LeftBehind,
    /// What links carried that left.
    ledger: Ledger,
    backups: Backups,
    /// The largest inner packet, as last told.
    inner_mtu: Option<u16>,
}

impl Index<usize> for LinkSet {
    type Output = Link;

    #[inline]
    fn index(&self, at: usize) -> &Link {
        &self.links[at]
    }
}

impl IndexMut<usize> for LinkSet {
    #[inline]
    fn index_mut(&mut self, at: usize) -> &mut Link {
        &mut self.links[at]
    }
}

impl LinkSet {
    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.links.len()
    }

    /// Whether there may be no more.
    pub(super) const fn is_full(&self) -> bool {
        self.links.len() >= MAX_LINKS
    }

    /// The links, by id.
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Link> {
        self.links.iter()
    }

    /// The same, to change them.
    pub(super) fn iter_mut(&mut self) -> std::slice::IterMut<'_, Link> {
        self.links.iter_mut()
    }

    /// Their ids.
    pub(super) fn ids(&self) -> ArrayVec<LinkId, MAX_LINKS> {
        self.links.iter().map(|link| link.id).take(MAX_LINKS).collect()
    }

    /// The place of a link, or where it would be.
    pub(super) fn position(&self, id: LinkId) -> Result<usize, usize> {
        self.links.binary_search_by_key(&id, |link| link.id)
    }

    /// The link in this place.
    #[inline]
    pub(super) fn get_mut(&mut self, at: usize) -> Option<&mut Link> {
        self.links.get_mut(at)
    }

    /// Adds a link, whose id is given again if another had it. Returns its place.
    pub(super) fn insert(&mut self, mut link: Link) -> usize {
        self.removed.forget(link.id);
        if link.control.pending.join {
            self.removed.announce(&mut link.control.pending.leaves);
        }
        let at = self.links.partition_point(|other| other.id < link.id);
        self.links.insert(at, link);
        at
    }

    /// Takes out the link in this place, as the peer said.
    pub(super) fn remove_left(&mut self, now: Instant, at: usize) {
        let link = self.links.remove(at);
        self.ledger.add(link.name, link.counters.on_wire);
        self.left_behind.note(now, &link);
        self.removed.note(now, &link, None);
    }

    /// Takes link `id` out and remembers what the peer has to know.
    pub(super) fn remove(&mut self, now: Instant, id: LinkId) -> Option<Halt> {
        let at = self.position(id).ok()?;
        let link = self.links.remove(at);
        let halt = halt_of(&link);
        self.ledger.add(link.name, link.counters.on_wire);
        self.left_behind.note(now, &link);
        self.removed.note(now, &link, Some(halt));
        Some(halt)
    }

    /// Link `at` was taken in: if one of its name left, it begins with what that had.
    pub(super) fn recall(&mut self, now: Instant, at: usize) {
        self.left_behind.give(now, &mut self.links[at]);
    }

    /// The link that has not been up for the longest time: it makes room for another.
    pub(super) fn longest_dead(&self) -> Option<LinkId> {
        let dead = self.links.iter().filter(|link| !link.life.is_up());
        dead.min_by_key(|link| link.life.since()).map(|link| link.id)
    }

    /// Link `at` does not answer: it carries nothing until it does, and the peer is told over the others. Returns its id.
    pub(super) fn give_up(&mut self, now: Instant, at: usize) -> LinkId {
        let link = &mut self.links[at];
        link.enter(now, LinkState::Down);
        let id = link.id;
        self.announce_down(at);
        id
    }

    /// Every other link says that nothing passes on this one.
    pub(super) fn announce_down(&mut self, at: usize) {
        let halt = halt_of(&self.links[at]);
        for other in self.links.iter_mut().filter(|other| other.id != halt.link) {
            let _ = other.control.pending.downs.try_push(halt);
        }
    }

    /// Every link says that this one was taken out.
    pub(super) fn announce_leave(&mut self, halt: Halt) {
        for link in &mut self.links {
            let _ = link.control.pending.leaves.try_push(halt);
        }
    }

    /// A link that asks again to join says, too, what was taken out: when the last link was, there was none to say so.
    pub(super) fn announce_on_joining(&mut self, at: usize) {
        let pending = &mut self.links[at].control.pending;
        if pending.join {
            self.removed.announce(&mut pending.leaves);
        }
    }

    /// The peer uses a link that this end took out: it is told, over the best of the others.
    pub(super) fn tell_removed(&mut self, id: LinkId) {
        if let Some(halt) = self.removed.halt(id) {
            self.say_leave(halt);
        }
    }

    /// Says again what may have been lost.
    pub(super) fn repeat_leaves(&mut self, now: Instant) {
        while let Some(halt) = self.removed.poll_repeat(now) {
            self.say_leave(halt);
        }
    }

    fn say_leave(&mut self, halt: Halt) {
        if let Some(at) = self.best(None) {
            removed::put(&mut self.links[at].control.pending.leaves, halt);
        }
    }

    /// The ids of links that left lately.
    pub(super) fn removed_ids(&self) -> impl Iterator<Item = LinkId> {
        self.removed.ids()
    }

    /// If the link left within the time of grace: one above the largest number that came on it.
    pub(super) fn next_received_on_removed(&self, now: Instant, id: LinkId) -> Option<u64> {
        self.removed.next_received(now, id)
    }

    /// One above the largest number that came on the link in this place of the list.
    pub(super) fn next_received(&self, place: Option<usize>) -> u64 {
        let largest = place.and_then(|at| self.links[at].receiver.largest());
        largest.map_or(0, |largest| largest.saturating_add(1))
    }

    /// What was sent and received on a link, also if it left just now.
    pub(super) fn traffic_of(&self, id: LinkId) -> Option<(Traffic, Traffic)> {
        let present = self.links.iter().find(|link| link.id == id);
        let present = present.map(|link| (link.counters.sent, link.counters.received));
        present.or_else(|| self.removed.traffic(id))
    }

    /// What all links carried, those that left too.
    pub(super) fn ledger(&self) -> Ledger {
        let mut all = self.ledger.clone();
        self.links.iter().for_each(|link| all.add(link.name, link.counters.on_wire));
        all
    }

    /// The best link that answers, by round-trip time; not `except`.
    pub(super) fn best(&self, except: Option<LinkId>) -> Option<usize> {
        let live = |link: &Link| link.life.is_up() && Some(link.id) != except;
        let links = self.links.iter().enumerate().filter(|(_, link)| live(link));
        links.min_by_key(|(_, link)| link.sender.rtt().srtt()).map(|(at, _)| at)
    }

    /// The places of the links, those first that a person prefers.
    pub(super) fn by_preference(&self, config: &TunnelConfig) -> ArrayVec<usize, MAX_LINKS> {
        let mut places: ArrayVec<usize, MAX_LINKS> =
            (0..self.links.len()).take(MAX_LINKS).collect();
        let reluctance = |place: &usize| {
            let link = &self.links[*place];
            config.reluctance(&link.name, &link.agreed.policy)
        };
        places.sort_by(|one, other| reluctance(one).total_cmp(&reluctance(other)));
        places
    }

    /// How long it takes until a packet that was lost on any link, and twice again, is here, from when it should have come: that
    /// nothing behind it came on that link either is known when an answer is overdue, and it is sent over the fastest. Of a hundred
    /// packets that a link loses at 2 %, two are lost again, and one given up too early halves the window of a TCP flow.
    pub(super) fn repair_time(&self) -> Duration {
        let up = || self.links.iter().filter(|link| link.life.is_up());
        let overdue = up().filter_map(|link| link.sender.rtt().patience()).max();
        let least = up().filter_map(|link| link.sender.rtt().srtt()).min();
        let again = least.unwrap_or_default() * 5 / 4 + MAX_REPORT_DELAY;
        overdue.unwrap_or_default() + again * 2
    }

    /// Whether any link carries packets, and no answer is overdue there.
    #[inline]
    pub(super) fn any_answers(&self, now: Instant) -> bool {
        self.links.iter().any(|link| link.carries(now) && !link.sender.is_suspect(now))
    }

    /// How many links are up, whether an answer is overdue there or not.
    pub(super) fn up(&self) -> usize {
        self.links.iter().filter(|link| link.life.is_up()).count()
    }

    /// The longest smoothed round trip of the links that answer.
    pub(super) fn longest_round_trip(&self) -> Duration {
        let up = self.links.iter().filter(|link| link.life.is_up());
        up.filter_map(|link| link.sender.rtt().srtt()).max().unwrap_or_default()
    }

    /// The same where nothing delays it: of the links that are up, the longest of their least round trips.
    pub(super) fn longest_least_round_trip(&self) -> Duration {
        let up = self.links.iter().filter(|link| link.life.is_up());
        up.filter_map(|link| link.sender.rtt().min()).max().unwrap_or_default()
    }

    /// Bytes on their way, if each datagram has as many as most links carry at a time.
    pub(super) fn in_flight(&self) -> u64 {
        const DATAGRAM: u64 = 1500;
        self.links.iter().map(|link| u64::from(link.sender.in_flight()) * DATAGRAM).sum()
    }

    /// Whether a link that carries packets, of which nobody knows yet how many, has none under way.
    pub(super) fn any_unused(&self, now: Instant) -> bool {
        let mut unknown = self.links.iter().filter(|link| link.sender.is_opening());
        unknown.any(|link| link.sender.in_flight() == 0 && link.carries(now))
    }

    /// Whether any link answers.
    pub(super) fn any_up(&self) -> bool {
        self.links.iter().any(|link| link.life.is_up())
    }

    /// The largest inner packet any link carries, if that is less than `len`.
    pub(super) fn too_big_for(&self, now: Instant, len: usize) -> Option<u16> {
        let mut largest = None;
        for link in self.links.iter().filter(|link| link.carries(now)) {
            let mtu = link.inner_mtu();
            // Of most packets the first link looked at decides.
            if len <= usize::from(mtu) {
                return None;
            }
            largest = largest.max(Some(mtu));
        }
        largest
    }

    /// The smallest inner MTU over the links that carry packets, if it is another than last told.
    pub(super) fn poll_inner_mtu(&mut self, now: Instant) -> Option<u16> {
        self.links.iter_mut().for_each(Link::watch_mtu);
        let usable = self.links.iter().filter(|link| link.is_usable(now));
        let mtu = usable.map(Link::inner_mtu).min()?;
        (self.inner_mtu.replace(mtu) != Some(mtu)).then_some(mtu)
    }

    /// The largest inner packet, as last told.
    pub(super) const fn inner_mtu(&self) -> Option<u16> {
        self.inner_mtu
    }

    /// When a paced link has room.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.links.iter().filter_map(Link::opens_at).min()
    }

    /// All that could be sent now was: looks at what room is left, and what keeps each link from carrying more.
    /// `waits`: packets wait for a link.
    pub(super) fn note_limits(&mut self, now: Instant, waits: bool) {
        for link in &mut self.links {
            link.note_room(now);
            link.note_limit(now, waits);
        }
    }

    /// After how much silence a link says that it is there, whose time for it has come: others may join in.
    pub(super) fn keepalive_rhythm(&self, now: Instant) -> Option<Duration> {
        let due = |link: &&Link| link.keepalive_at().is_some_and(|at| at <= now);
        self.links.iter().find(due).and_then(|link| link.keepalive.interval())
    }

    /// The earliest timer. While nothing can be sealed what only a datagram ends would be due for ever.
    pub(super) fn poll_timeout(&self, owed: u64, usage: Usage, can_seal: bool) -> Option<Wakeup> {
        let links = self.links.iter().map(|link| match can_seal {
            true => link.poll_timeout(owed, usage),
            false => link.poll_silent(),
        });
        let own =
            [(self.removed.poll_timeout(), Timer::Leave), (self.poll_backups(), Timer::Backup)];
        let own = own.map(|(at, timer)| at.map(|at| (at, timer)));
        links.chain(own).fold(None, sooner)
    }
}

/// Where the numbers of a link end.
fn halt_of(link: &Link) -> Halt {
    Halt { link: link.id, next: low32(link.sender.next_number()) }
}
