//! Links of which somebody says that nothing passes there: the kernel that refuses to send, or the peer.
//!
//! Nobody waits until an answer is overdue then: what is under way goes over the others at once, and the peer does the same as
//! soon as it hears of it. The link is asked, and used again with the first answer. Where nothing is sent again, silence alone
//! decides.

use super::Tunnel;
use super::link::Link;
use super::outages::{Gone, OutageCause};
use crate::path::Path;
use crate::time::Instant;

impl Tunnel {
    /// The kernel refused a datagram on `path`, for want of the interface, the address or a route.
    pub fn on_send_refused(&mut self, now: Instant, path: Path) {
        let on_path = |link: &Link| link.path().socket == path.socket;
        if let Some(at) = self.links.iter().position(on_path)
            && self.doubt(now, at, OutageCause::Refused)
        {
            self.links.announce_down(at);
        }
    }

    /// Nothing passes on link `at`, as somebody says. Returns whether that was news.
    pub(super) fn doubt(&mut self, now: Instant, at: usize, who: OutageCause) -> bool {
        let link = &mut self.links[at];
        let is_news = self.egress.repairs().is_some() && link.life.is_up() && link.sender.doubt();
        if is_news {
            link.control.pending.ping = true;
            let gone = Gone::of(now, &self.links[at]);
            let moved = self.leave_to_others(now, at);
            self.note_outage(now, &gone, who, moved);
        }
        is_news
    }

    /// What is under way on link `at` goes over the others, and where there are none its first packet once more, by which the
    /// link shows that it lives. Returns how many packets go over others.
    pub(super) fn leave_to_others(&mut self, now: Instant, at: usize) -> u64 {
        let id = self.links[at].id;
        let answers = |link: &Link| link.carries(now) && !link.sender.is_suspect(now);
        let others = self.links.iter().any(|link| link.id != id && answers(link));
        let again = self.egress.reinject(now, id, others);
        if others { again } else { 0 }
    }
}
