//! Links that left: what is still under way on them is delivered, and whoever goes on using one is told.
//!
//! The end of a link reaches the two ends at different times, and over another link than its last
//! packets. So a link that left, or was taken out, goes on receiving for a while. A `Leave` can be lost;
//! it is therefore repeated a few times, and whenever something authentic comes on a link that this end
//! took out. One that was under way for long does no harm: it is void if a later number came.

use arrayvec::ArrayVec;

use crate::config::MAX_LINKS;
use crate::time::{Duration, Instant};
use crate::tunnel::link::{Link, Traffic};
use crate::units::LinkId;
use crate::wire::frame::Halt;

/// How long a link goes on receiving: longer than any path's delay and queue. A rejoining link has another
/// id, so nothing is confused by it.
const GRACE: Duration = Duration::from_secs(2);

/// First interval between repetitions of a `Leave`; doubles each time.
const REPEAT: Duration = Duration::from_millis(250);
/// Repetitions: the last comes after a minute, when even a long outage of the other link is over.
const MAX_REPEATS: u32 = 8;

/// A link that left.
#[derive(Clone, Copy, Debug)]
pub(super) struct RemovedLink {
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

impl RemovedLink {
    fn repeat_at(&self) -> Option<Instant> {
        (self.halt.is_some() && self.repeats < MAX_REPEATS).then_some(self.repeat_at)
    }
}

/// The links that left most recently.
#[derive(Debug, Default)]
pub(super) struct RemovedLinks(ArrayVec<RemovedLink, MAX_LINKS>);

impl RemovedLinks {
    /// `link` left; `halt` is what the peer has to know of it.
    pub(super) fn note(&mut self, now: Instant, link: &Link, halt: Option<Halt>) {
        let largest = link.receiver.largest();
        let next_received = largest.map_or(0, |largest| largest.saturating_add(1));
        self.put(now, link.id, next_received, (link.counters.sent, link.counters.received), halt);
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
        self.0.push(RemovedLink { id, until, next_received, traffic, halt, repeats, repeat_at });
    }

    /// The id is given again.
    pub(super) fn forget(&mut self, id: LinkId) {
        self.0.retain(|link| link.id != id);
    }

    /// If the link left within the time of grace: one above the largest number that came on it.
    pub(super) fn next_received(&self, now: Instant, id: LinkId) -> Option<u64> {
        let mut recent = self.0.iter().filter(|link| link.until > now);
        recent.find(|link| link.id == id).map(|link| link.next_received)
    }

    /// The links.
    pub(super) fn ids(&self) -> impl Iterator<Item = LinkId> {
        self.0.iter().map(|link| link.id)
    }

    /// What a link that left had sent and received.
    pub(super) fn traffic(&self, id: LinkId) -> Option<(Traffic, Traffic)> {
        self.0.iter().find(|link| link.id == id).map(|link| link.traffic)
    }

    /// What the peer has to know about a link that this end took out.
    pub(super) fn halt(&self, id: LinkId) -> Option<Halt> {
        self.0.iter().find(|link| link.id == id)?.halt
    }

    /// When the next `Leave` is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.0.iter().filter_map(RemovedLink::repeat_at).min()
    }

    /// The next `Leave` that is due.
    pub(super) fn poll_repeat(&mut self, now: Instant) -> Option<Halt> {
        let due = |link: &&mut RemovedLink| link.repeat_at().is_some_and(|at| at <= now);
        let link = self.0.iter_mut().find(due)?;
        link.repeats += 1;
        link.repeat_at = now + REPEAT * (1 << link.repeats);
        link.halt
    }

    /// What a joining link says, too: when the last link was taken out, there was none to say so.
    pub(super) fn announce(&self, leaves: &mut ArrayVec<Halt, MAX_LINKS>) {
        for halt in self.0.iter().filter_map(|link| link.halt) {
            put(leaves, halt);
        }
    }
}

/// Adds what is not said yet, as far as there is room.
pub(super) fn put(leaves: &mut ArrayVec<Halt, MAX_LINKS>, halt: Halt) {
    if leaves.iter().all(|other| other.link != halt.link) {
        let _ = leaves.try_push(halt);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leave_is_repeated_ever_more_seldom_and_then_no_more() {
        let mut removed = RemovedLinks::default();
        let halt = Halt { link: LinkId(3), next: 7 };
        removed.put(Instant::ZERO, halt.link, 0, Default::default(), Some(halt));
        let mut at = Instant::ZERO;
        for repeat in 0..MAX_REPEATS {
            assert_eq!(removed.poll_repeat(at), None);
            at = removed.poll_timeout().expect("one more");
            assert_eq!(at.since(Instant::ZERO), REPEAT * ((1 << (repeat + 1)) - 1));
            assert_eq!(removed.poll_repeat(at), Some(halt));
        }
        assert_eq!(removed.poll_timeout(), None);
        removed.put(at, LinkId(4), 0, Default::default(), None);
        assert_eq!(removed.poll_timeout(), None, "the peer said so itself");
    }

    #[test]
    fn a_link_that_left_is_remembered_for_a_while_and_the_newest_first() {
        let mut removed = RemovedLinks::default();
        let now = Instant::ZERO;
        for id in 0..=MAX_LINKS {
            let link = LinkId(u8::try_from(id).unwrap());
            removed.put(now, link, id as u64, Default::default(), None);
        }
        assert!(removed.next_received(now, LinkId(0)).is_none(), "the oldest made room");
        assert_eq!(removed.next_received(now, LinkId(5)), Some(5));
        assert!(removed.next_received(now + GRACE, LinkId(5)).is_none());
    }
}
