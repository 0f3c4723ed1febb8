//! What the scheduler sees of the links for one packet.

use arrayvec::ArrayVec;

use crate::config::MAX_LINKS;
use crate::sched::LinkView;
use crate::time::Instant;
use crate::tunnel::link::Link;
use crate::tunnel::links::LinkSet;

/// Views of the links that can carry a packet, with their places in the set. They are those for
/// any packet longer than what the widest link left out carries, and no longer than the narrowest's.
#[derive(Default)]
pub(super) struct Views {
    pub(super) links: ArrayVec<LinkView, MAX_LINKS>,
    pub(super) places: ArrayVec<usize, MAX_LINKS>,
    /// The largest packet that each of them can carry.
    narrowest: usize,
    /// The largest packet that a link which was left out can carry; `None`: none was.
    left_out: Option<usize>,
    /// Whether the scheduler looks at arrivals.
    with_arrivals: bool,
}

impl Views {
    /// None yet, for a scheduler that looks at arrivals or does not.
    pub(super) fn new(with_arrivals: bool) -> Self {
        Self { with_arrivals, ..Self::default() }
    }

    /// A link as the scheduler sees it for a packet of `len` bytes.
    #[inline]
    fn view(&self, link: &Link, now: Instant, len: usize) -> LinkView {
        if self.with_arrivals { link.view_with_arrival(now, len) } else { link.view(now) }
    }

    /// A packet of `len` bytes went on the link with this index: looks at it again.
    #[inline]
    pub(super) fn refresh(&mut self, index: usize, links: &LinkSet, now: Instant, len: usize) {
        self.links[index] = self.view(&links[self.places[index]], now, len);
    }

    /// Looks which links can carry a packet of `len` bytes, unless that is known.
    #[inline]
    pub(super) fn look_for(&mut self, links: &LinkSet, now: Instant, len: usize) {
        if !self.are_of(len) {
            self.look(links, now, len);
        }
    }

    /// Looks which links can carry a packet of `len` bytes now.
    pub(super) fn look(&mut self, links: &LinkSet, now: Instant, len: usize) {
        self.links.clear();
        self.places.clear();
        (self.narrowest, self.left_out) = (usize::MAX, None);
        for (at, link) in links.iter().enumerate() {
            if !link.carries(now) {
                continue;
            }
            let inner_mtu = usize::from(link.inner_mtu());
            if inner_mtu < len {
                self.left_out = self.left_out.max(Some(inner_mtu));
                continue;
            }
            self.links.push(self.view(link, now, len));
            self.places.push(at);
            self.narrowest = self.narrowest.min(inner_mtu);
        }
    }

    /// Whether they are those of the links that can carry a packet of `len` bytes.
    #[inline]
    pub(super) fn are_of(&self, len: usize) -> bool {
        len <= self.narrowest && self.left_out.is_none_or(|mtu| len > mtu)
    }

    /// Whether there are links, and none has room.
    #[inline]
    pub(super) fn are_full(&self) -> bool {
        !self.links.is_empty() && self.links.iter().all(|link| link.room == 0)
    }

    /// Packets went: looks at the room of these links again.
    pub(super) fn refresh_room(&mut self, links: &LinkSet, now: Instant) {
        for (view, at) in self.links.iter_mut().zip(&self.places) {
            view.room = links[*at].room(now);
        }
    }
}
