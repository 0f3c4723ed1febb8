//! Links that left: what is still under way on them is delivered, and whoever goes on using one is told.
//!
//! The end of a link reaches the two ends at different times, and over another link than its last
//! packets. So a link that left, or was taken out, goes on receiving for a while. A `Leave` can be lost;
//! it is therefore repeated a few times, and whenever something authentic comes on a link that this end
//! took out. One that was under way for long does no harm: it is void if a later number came.

use arrayvec::ArrayVec;

use super::Tunnel;
use super::link::{Link, LinkState, Traffic};
use crate::config::MAX_LINKS;
use crate::event::{DownReason, Event};
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::frame::{Halt, low32};

/// How long a link goes on receiving: longer than any path's delay and queue. A rejoining link has another
/// id, so nothing is confused by it.
const GRACE: Duration = Duration::from_secs(2);

/// First interval between repetitions of a `Leave`; doubles each time.
const REPEAT: Duration = Duration::from_millis(250);
/// Repetitions: the last comes after a minute, when even a long outage of the other link is over.
const MAX_REPEATS: u32 = 8;

/// A link that left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departed {
    id: LinkId,
    until: Instant,
    /// One above the largest number that came.
    next_received: u64,
    /// Sent and received.
    traffic: (Traffic, Traffic),
    /// What the peer has to know, if this end took the link out.
    halt: Option<Halt>,
    repeats: u32,
    /// When it is said again.
    repeat_at: Instant,
}

impl Departed {
    fn repeat_at(&self) -> Option<Instant> {
        (self.halt.is_some() && self.repeats < MAX_REPEATS).then_some(self.repeat_at)
    }
}

/// The links that left most recently.
#[derive(Debug, Default)]
pub(super) struct Departures(ArrayVec<Departed, MAX_LINKS>);

impl Departures {
    /// `link` left; `halt` is what the peer has to know of it.
    pub(super) fn note(&mut self, now: Instant, link: &Link, halt: Option<Halt>) {
        let largest = link.receiver.largest();
        let next_received = largest.map_or(0, |largest| largest.saturating_add(1));
        self.put(now, link.id, next_received, (link.sent, link.received), halt);
    }

    fn put(
        &mut self,
        now: Instant,
        id: LinkId,
        next_received: u64,
        traffic: (Traffic, Traffic),
        halt: Option<Halt>,
    ) {
        self.forget(id);
        if self.0.is_full() {
            self.0.remove(0);
        }
        let (until, repeat_at) = (now + GRACE, now + REPEAT);
        let repeats = 0;
        self.0.push(Departed { id, until, next_received, traffic, halt, repeats, repeat_at });
    }

    /// The id is given anew.
    pub(super) fn forget(&mut self, id: LinkId) {
        self.0.retain(|departed| departed.id != id);
    }

    /// If the link left within the time of grace: one above the largest number that came on it.
    pub(super) fn next_received(&self, now: Instant, id: LinkId) -> Option<u64> {
        let mut recent = self.0.iter().filter(|departed| departed.until > now);
        recent.find(|departed| departed.id == id).map(|departed| departed.next_received)
    }

    /// The links.
    pub(super) fn ids(&self) -> impl Iterator<Item = LinkId> {
        self.0.iter().map(|departed| departed.id)
    }

    /// What a link that left had sent and received.
    pub(super) fn traffic(&self, id: LinkId) -> Option<(Traffic, Traffic)> {
        self.0.iter().find(|departed| departed.id == id).map(|departed| departed.traffic)
    }

    /// What the peer has to know about a link that this end took out.
    fn halt(&self, id: LinkId) -> Option<Halt> {
        self.0.iter().find(|departed| departed.id == id)?.halt
    }

    /// When the next `Leave` is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(Departed::repeat_at).min()
    }

    /// The next `Leave` that is due.
    pub(super) fn poll_repeat(&mut self, now: Instant) -> Option<Halt> {
        let due = |departed: &&mut Departed| departed.repeat_at().is_some_and(|at| at <= now);
        let departed = self.0.iter_mut().find(due)?;
        departed.repeats += 1;
        departed.repeat_at = now + REPEAT * (1 << departed.repeats);
        departed.halt
    }

    /// What a joining link says, too: when the last link was taken out, there was none to say so.
    pub(super) fn announce(&self, leaves: &mut ArrayVec<Halt, MAX_LINKS>) {
        for halt in self.0.iter().filter_map(|departed| departed.halt) {
            put(leaves, halt);
        }
    }
}

/// Adds what is not said yet, as far as there is room.
fn put(leaves: &mut ArrayVec<Halt, MAX_LINKS>, halt: Halt) {
    if leaves.iter().all(|other| other.link != halt.link) {
        let _ = leaves.try_push(halt);
    }
}

impl Tunnel {
    /// Takes link `id` out of the table and remembers what the peer has to know.
    pub(super) fn take_out(&mut self, now: Instant, id: LinkId) -> Option<Halt> {
        let at = self.position(id).ok()?;
        let link = self.links.remove(at);
        let halt = Halt { link: id, next: low32(link.sender.next_number()) };
        self.note_in_ledger(&link);
        self.departed.note(now, &link, Some(halt));
        Some(halt)
    }

    /// Makes room for a link: the one that has not been up for the longest time is forgotten. If its client
    /// still has it, it learns so by the next datagram on it.
    pub(super) fn forget_dead_link(&mut self, now: Instant, sink: &mut impl PacketSink) -> bool {
        let dead = self.links.iter().filter(|link| link.state != LinkState::Up);
        let Some(id) = dead.min_by_key(|link| link.since).map(|link| link.id) else { return false };
        self.take_out(now, id);
        self.with_gate(sink, |reseq, gate| reseq.link_left(now, id, None, gate));
        self.events.push_back(Event::LinkDown(id, DownReason::Left));
        true
    }

    /// The peer uses a link that this end took out: it is told, over the best of the others.
    pub(super) fn tell_departed(&mut self, id: LinkId) {
        if let Some(halt) = self.departed.halt(id) {
            self.say_leave(halt);
        }
    }

    /// Says again what may have been lost.
    pub(super) fn repeat_leaves(&mut self, now: Instant) {
        while let Some(halt) = self.departed.poll_repeat(now) {
            self.say_leave(halt);
        }
    }

    fn say_leave(&mut self, halt: Halt) {
        if let Some(at) = self.best_link(None) {
            put(&mut self.links[at].pending.leaves, halt);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leave_is_repeated_ever_more_seldom_and_then_no_more() {
        let mut departures = Departures::default();
        let halt = Halt { link: LinkId(3), next: 7 };
        departures.put(Instant::ZERO, halt.link, 0, Default::default(), Some(halt));
        let mut at = Instant::ZERO;
        for repeat in 0..MAX_REPEATS {
            assert_eq!(departures.poll_repeat(at), None);
            at = departures.poll_timeout().expect("one more");
            assert_eq!(at.since(Instant::ZERO), REPEAT * ((1 << (repeat + 1)) - 1));
            assert_eq!(departures.poll_repeat(at), Some(halt));
        }
        assert_eq!(departures.poll_timeout(), None);
        departures.put(at, LinkId(4), 0, Default::default(), None);
        assert_eq!(departures.poll_timeout(), None, "the peer said so itself");
    }

    #[test]
    fn a_link_that_left_is_remembered_for_a_while_and_the_newest_first() {
        let mut departures = Departures::default();
        let now = Instant::ZERO;
        for id in 0..=MAX_LINKS {
            let link = LinkId(u8::try_from(id).unwrap());
            departures.put(now, link, id as u64, Default::default(), None);
        }
        assert!(departures.next_received(now, LinkId(0)).is_none(), "the oldest made room");
        assert_eq!(departures.next_received(now, LinkId(5)), Some(5));
        assert!(departures.next_received(now + GRACE, LinkId(5)).is_none());
    }
}
