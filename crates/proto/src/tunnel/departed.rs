//! Links that left: what is still under way on them is delivered, and whoever goes on using one is told.
//!
//! The end of a link reaches the two ends at different times, and over another link than its last
//! packets. So a link that left, or was taken out, goes on receiving for a while. A `Leave` can be lost;
//! it is therefore repeated whenever something authentic comes on a link that this end does not have.

use arrayvec::ArrayVec;

use super::Tunnel;
use super::link::LinkState;
use crate::config::MAX_LINKS;
use crate::event::{DownReason, Event};
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::frame::Halt;

/// How long a link goes on receiving: longer than any path's delay and queue. A rejoining link has another
/// id, so nothing is confused by it.
const GRACE: Duration = Duration::from_secs(2);

/// A link that left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Departed {
    id: LinkId,
    until: Instant,
    /// One above the largest number that came.
    next_received: u64,
    /// What the peer has to know, if this end took the link out.
    halt: Option<Halt>,
}

/// The links that left most recently.
#[derive(Debug, Default)]
pub(super) struct Departures(ArrayVec<Departed, MAX_LINKS>);

impl Departures {
    /// Link `id` left, on which nothing from `next_received` on had come.
    pub(super) fn note(
        &mut self,
        now: Instant,
        id: LinkId,
        next_received: u64,
        halt: Option<Halt>,
    ) {
        self.forget(id);
        if self.0.is_full() {
            self.0.remove(0);
        }
        self.0.push(Departed { id, until: now + GRACE, next_received, halt });
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
    /// Makes room for a link: the one that has not been up for the longest time is forgotten. If its client
    /// still has it, it learns so by the next datagram on it.
    pub(super) fn forget_dead_link(&mut self, now: Instant, sink: &mut impl PacketSink) -> bool {
        let dead = self.links.iter().filter(|link| link.state != LinkState::Up);
        let Some(id) = dead.min_by_key(|link| link.since).map(|link| link.id) else { return false };
        self.links.retain(|link| link.id != id);
        self.with_gate(sink, |reseq, gate| reseq.link_left(now, id, None, gate));
        self.events.push_back(Event::LinkDown(id, DownReason::Left));
        true
    }

    /// The peer uses a link that this end does not have: it is told, over the best of the others.
    pub(super) fn tell_departed(&mut self, id: LinkId) {
        let Some(at) = self.best_link(None) else { return };
        // What the last number was is known no more, or was said before.
        put(&mut self.links[at].pending.leaves, Halt { link: id, next: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_left_is_remembered_for_a_while_and_the_newest_first() {
        let mut departures = Departures::default();
        let now = Instant::ZERO;
        for id in 0..=MAX_LINKS {
            departures.note(now, LinkId(u8::try_from(id).unwrap()), id as u64, None);
        }
        assert!(departures.next_received(now, LinkId(0)).is_none(), "the oldest made room");
        assert_eq!(departures.next_received(now, LinkId(5)), Some(5));
        assert!(departures.next_received(now + GRACE, LinkId(5)).is_none());
    }
}
