//! Test data that an end may send: on which links, how much, and until when.

use arrayvec::ArrayVec;

use crate::config::MAX_LINKS;
use crate::time::Instant;
use crate::units::LinkId;

/// What may be sent.
#[derive(Debug)]
pub(super) struct Fill {
    /// Each link, with the bytes that may still be sent there.
    links: ArrayVec<(LinkId, u64), MAX_LINKS>,
    /// Bytes that may still be sent on all of them.
    left: u64,
    /// Until when; at first it is not allowed yet.
    until: Instant,
    /// When a link that is shut now opens; `None`: none does by itself.
    pub(super) opens_at: Option<Instant>,
    /// Bytes that were sent since they were last taken.
    sent: u64,
}

impl Fill {
    /// So much on these links, when it is allowed. All bytes are with IP and UDP headers.
    pub(super) const fn new(links: ArrayVec<(LinkId, u64), MAX_LINKS>, bytes: u64) -> Self {
        Self { links, left: bytes, until: Instant::ZERO, opens_at: None, sent: 0 }
    }

    /// It is allowed until then.
    pub(super) const fn allow(&mut self, until: Instant) {
        self.until = until;
    }

    /// No more than so many bytes are left to be sent.
    pub(super) fn bound(&mut self, bytes: u64) {
        self.left = self.left.min(bytes);
    }

    /// Whether it is allowed now.
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        now < self.until
    }

    /// The link in this place.
    pub(super) fn link(&self, place: usize) -> Option<LinkId> {
        self.links.get(place).map(|(id, _)| *id)
    }

    /// Whether a datagram of so many bytes may be sent on the link in this place.
    pub(super) fn allows(&self, place: usize, bytes: u64) -> bool {
        self.left >= bytes && self.links.get(place).is_some_and(|(_, left)| *left >= bytes)
    }

    /// It was.
    pub(super) fn spend(&mut self, place: usize, bytes: u64) {
        self.left = self.left.saturating_sub(bytes);
        self.sent = self.sent.saturating_add(bytes);
        if let Some((_, left)) = self.links.get_mut(place) {
            *left = left.saturating_sub(bytes);
        }
    }

    /// The bytes that were sent since the last call.
    pub(super) fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_is_bounded_by_the_link_and_by_all_links_together() {
        let links = [(LinkId(1), 2000), (LinkId(4), 9000)].into_iter().collect();
        let mut fill = Fill::new(links, 5000);
        assert!(!fill.is_allowed(Instant::ZERO), "nobody said so yet");
        fill.allow(Instant::from_millis(800));
        assert!(fill.is_allowed(Instant::from_millis(799)));
        assert!(!fill.is_allowed(Instant::from_millis(800)));
        assert_eq!((fill.link(1), fill.link(2)), (Some(LinkId(4)), None));
        fill.spend(0, 1500);
        assert!(!fill.allows(0, 501) && fill.allows(0, 500) && fill.allows(1, 3500));
        assert!(!fill.allows(1, 3501), "all together");
        fill.bound(1000);
        assert!(fill.allows(1, 1000) && !fill.allows(1, 1001) && !fill.allows(2, 0));
        fill.bound(u64::MAX);
        assert!(!fill.allows(1, 1001), "a bound takes nothing back");
        assert_eq!((fill.take_sent(), fill.take_sent()), (1500, 0));
    }
}
