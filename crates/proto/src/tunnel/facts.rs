//! What the scheduler is told of the links, and when: facts that were told or sensed, looked at again every
//! [`INTERVAL`] while packets go.

use arrayvec::ArrayVec;
use ropewalk_settings::{Bitrate, LinkPolicy, Scheduling};

use super::Tunnel;
use super::egress::Egress;
use super::link::Link;
use super::links::LinkSet;
use crate::config::MAX_LINKS;
use crate::sched::{AnyScheduler, LinkFacts, LinkShare, Scheduler};
use crate::time::{Duration, Instant};
use crate::units::LinkId;

/// NATALIE follows cross-traffic within a second, of which its measurements take some; and a tenth of a second
/// is many packets.
const INTERVAL: Duration = Duration::from_millis(100);

/// How long what waits is judged by links of which one went: some round trips.
const GRACE: Duration = Duration::from_millis(500);

impl Tunnel {
    /// Another scheduler, or other settings, from now on, and what a person says of links. Nothing is lost by it: packets
    /// that waited for one link are scheduled again. The same settings again change nothing: flows stay on their links. With
    /// another profile links begin with another controller, and the order that the peer restores is another one from the next
    /// packet on.
    pub fn set_scheduling(&mut self, now: Instant, scheduling: Scheduling) {
        if !self.config.scheduling.schedules_like(&scheduling) {
            self.egress.set_scheduler(AnyScheduler::new(now, &scheduling));
            self.links.iter_mut().for_each(|link| link.scheduled_pace = None);
        }
        self.egress.set_redundant(scheduling.redundant.clone());
        let controller = self.config.controller_in_force();
        self.config.scheduling = scheduling;
        self.set_order();
        if self.config.controller_in_force() != controller {
            let controller = self.config.controller_in_force();
            self.links.iter_mut().for_each(|link| link.set_controller(controller));
        }
        let is_on = self.config.acknowledges_locally(self.session.order);
        self.ingress.local_acks.set_on(is_on);
        for at in 0..self.links.len() {
            self.apply_terms(at);
        }
        self.egress.facts_due = Instant::ZERO;
    }

    /// The peer restores the order that is in force now. What was lost in the moment in which repair ends stays lost.
    fn set_order(&mut self) {
        let order = self.config.order_towards(self.peer_orders_flows);
        if order != self.session.order {
            self.session.order = order;
            self.egress.set_order(order);
            let is_repaired = self.egress.repairs().is_some();
            self.links.iter_mut().for_each(|link| link.sender.set_repaired(is_repaired));
        }
    }

    /// The driver counted what others sent on a link's interface since its last count, over `interval`.
    pub fn on_others(&mut self, link: LinkId, bytes: u64, interval: Duration) {
        if let Ok(at) = self.links.position(link) {
            self.links[at].sensing.on_others(Bitrate::from_bytes_in(bytes, interval));
        }
    }

    /// The same of what others received there: the peer, who sends on the link, is told with the next datagram of
    /// frames.
    pub fn tell_others(&mut self, link: LinkId, bytes: u64, interval: Duration) {
        if let Ok(at) = self.links.position(link) {
            self.links[at].tell_others(Bitrate::from_bytes_in(bytes, interval));
        }
    }

    /// The owner of a link says this of it from now on: the client tells the proxy.
    pub fn set_policy(&mut self, link: LinkId, policy: LinkPolicy) {
        if let Ok(at) = self.links.position(link)
            && self.links[at].agreed.policy != policy
        {
            self.links[at].agreed.policy = policy;
            self.links[at].control.policy.change();
            self.apply_terms(at);
        }
    }

    /// The client says this of a link of its own, in a datagram with this number. It is said again with each repeated
    /// `Join`, and what was overtaken is old news.
    pub(super) fn on_policy(&mut self, at: usize, number: u64, policy: LinkPolicy) {
        let link = &mut self.links[at];
        if link.control.policy.is_news(number) && link.agreed.policy != policy {
            link.agreed.policy = policy;
            self.apply_terms(at);
        }
    }

    /// A link has its terms.
    pub(super) fn apply_terms(&mut self, at: usize) {
        let link = &mut self.links[at];
        link.set_terms(self.config.terms_of(&link.name, &link.agreed.policy));
        self.egress.facts_due = Instant::ZERO;
    }

    /// What the scheduler made of the link when it was last told. Its weight is by the terms of then: where these are others
    /// now, nothing was weighed yet.
    pub(super) fn share_of(&self, link: &Link) -> LinkShare {
        let share = self.egress.scheduler.share(link.id);
        LinkShare {
            weight: share.weight.filter(|_| self.egress.facts_due > Instant::ZERO),
            ..share
        }
    }
}

impl Egress {
    /// A link went while it carried packets: what its flows had under way waits for the others now. It may, until their senders
    /// have had time to find out that less is carried: a packet dropped at once would hold up all behind it for a round trip.
    pub(super) fn let_wait(&mut self, now: Instant) {
        if self.repairs().is_some() && self.scheduler.demand().is_some() {
            self.facts_due = self.facts_due.max(now + GRACE);
        }
    }

    /// Tells the scheduler what is known of the links, if it is time.
    pub(super) fn tell_facts(&mut self, now: Instant, links: &mut LinkSet) {
        if now < self.facts_due || !self.has_next() {
            return;
        }
        self.facts_due = now + INTERVAL;
        self.stop_metering(now);
        let facts: ArrayVec<_, MAX_LINKS> = links.iter().map(|link| facts(now, link)).collect();
        self.scheduler.refresh(&facts);
        self.allow_queue();
        let repairs = self.repairs().is_some();
        for link in links.iter_mut() {
            if repairs {
                let trip = link.sender.rtt().srtt().unwrap_or_default();
                let (fates, rate) = (link.sender.fates(), link.carried_rate());
                if link.shows_queue() {
                    link.held_up.note_queue(now, trip, link.is_steady() || link.is_queue_long());
                }
                let lateness = link.sender.lateness();
                link.held_up.look(now, fates, rate, trip, lateness);
            }
            link.scheduled_pace = self.scheduler.pace(link.id);
        }
    }
}

fn facts(now: Instant, link: &Link) -> LinkFacts {
    let terms = &link.agreed.terms;
    LinkFacts {
        id: link.id,
        name: link.name,
        carries: link.carries(now),
        weight_told: terms.weight,
        rate_told: terms.rate,
        cost: terms.cost,
        importance: terms.importance,
        capacity: link.sensing.capacity(),
        available: link.sensing.available(),
        throughput: link.sensing.throughput(),
        yielding_rate: link.sensing.yielding_rate(),
        one_way_us: link.sender.one_way_us(),
        held_up_us: link.held_up_us(),
        varies_us: link.varies_us(),
        losses: link.held_up.losses(),
        rate: link.carried_rate().as_bps() / 8,
        opening: link.sender.is_opening(),
        srtt: link.sender.rtt().srtt(),
        loss: link.sender.loss_ratio(),
        lasting_loss: link.sensing.lasting_loss(),
    }
}
