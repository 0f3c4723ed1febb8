//! Packets that wait for one link and no other ([`Pick::Wait`](crate::sched::Pick::Wait)).
//!
//! They have the age and the bounds that they had in the tunnel's queue, and go back to its head when their
//! link carries packets no more.

use crate::config::MAX_LINKS;
use crate::queue::{EgressQueue, FrontQueue, QueueLimits, Waiting};
use crate::time::{Instant, earliest};
use crate::units::LinkId;
use arrayvec::ArrayVec;

/// A queue for each link that was ever waited for.
#[derive(Debug)]
pub(super) struct LinkQueues {
    limits: QueueLimits,
    queues: ArrayVec<(LinkId, EgressQueue), MAX_LINKS>,
}

impl LinkQueues {
    pub(super) const fn new(limits: QueueLimits) -> Self {
        Self { limits, queues: ArrayVec::new_const() }
    }

    /// Moves the head of `from` to the tail of the link's queue. `false`: no room for another link's.
    pub(super) fn take_head(&mut self, link: LinkId, from: &mut FrontQueue) -> bool {
        if self.of(link).is_none() {
            self.queues.retain(|(_, queue)| !queue.is_empty());
            if self.queues.try_push((link, EgressQueue::new(self.limits))).is_err() {
                return false;
            }
        }
        if let Some(queue) = self.of(link) {
            from.pass_head_to(queue);
        }
        true
    }

    /// The link's queue.
    pub(super) fn of(&mut self, link: LinkId) -> Option<&mut EgressQueue> {
        self.queues.iter_mut().find(|(id, _)| *id == link).map(|(_, queue)| queue)
    }

    /// Takes the head of the link's queue out.
    pub(super) fn take_head_of(&mut self, link: LinkId) -> Option<Waiting> {
        self.of(link)?.pop_packet()
    }

    /// The links that packets wait for.
    pub(super) fn links(&self) -> ArrayVec<LinkId, MAX_LINKS> {
        let waiting = self.queues.iter().filter(|(_, queue)| !queue.is_empty());
        waiting.map(|(link, _)| *link).collect()
    }

    /// Looks at all packets that wait, and at their links.
    pub(super) fn for_each(&self, mut look: impl FnMut(LinkId, &Waiting)) {
        for (link, queue) in &self.queues {
            queue.waiting().for_each(|waiting| look(*link, waiting));
        }
    }

    /// Packets waiting, and their bytes.
    pub(super) fn held(&self) -> (usize, usize) {
        let queues = self.queues.iter().map(|(_, queue)| (queue.len(), queue.bytes()));
        queues.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1))
    }

    /// Drops what has waited too long; returns how many.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> u64 {
        self.queues.iter_mut().map(|(_, queue)| queue.handle_timeout(now)).sum()
    }

    /// When the first will have waited too long.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.queues.iter().map(|(_, queue)| queue.poll_timeout()).fold(None, earliest)
    }

    /// Gives that memory back.
    pub(super) fn release_memory(&mut self) {
        self.queues.iter_mut().for_each(|(_, queue)| queue.release_memory());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::FlowKey;
    use crate::queue::label;
    use crate::time::Duration;

    #[test]
    fn a_packet_keeps_its_age_on_the_way_to_a_links_queue_and_back() {
        let limits = QueueLimits { time: Duration::from_millis(100), bytes: 3000 };
        let mut queue = FrontQueue::new(limits, false);
        let mut links = LinkQueues::new(limits);
        let at = Instant::from_millis;
        for byte in 0..3 {
            queue.push(at(u64::from(byte) * 10), &label(FlowKey(0)), vec![byte; 100].into(), 3000);
        }
        assert!(links.take_head(LinkId(1), &mut queue));
        assert!(links.take_head(LinkId(2), &mut queue));
        assert_eq!((queue.len(), links.held()), (1, (2, 200)));
        assert_eq!(links.links()[..], [LinkId(1), LinkId(2)]);
        assert_eq!(links.poll_timeout(), Some(at(100)));
        if let Some(own) = links.of(LinkId(2)) {
            queue.put_back(own);
        }
        assert_eq!(
            (queue.head().map(Waiting::packet), queue.poll_timeout()),
            (Some(&[1; 100][..]), Some(at(110)))
        );
        assert_eq!((queue.bytes(), links.held()), (200, (1, 100)));
        assert_eq!(links.handle_timeout(at(100)), 1);
        assert_eq!((links.held(), links.poll_timeout()), ((0, 0), None));
    }
}
