//! The flows that this end sends, for people: which links carried each lately, what of it waits here, and for what it waits.
//!
//! All of it is found when somebody asks: in the queue, among the packets that are not confirmed, and in what was
//! counted since somebody asked before ([`flow_meter`](super::flow_meter)).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use arrayvec::{ArrayString, ArrayVec};

use super::Egress;
use super::flow_meter::{ByLink, FlowMeter};
use super::repair::Repair;
use super::views::Views;
use crate::config::MAX_LINKS;
use crate::packet::{FiveTuple, FlowKey, PacketView};
use crate::queue::Waiting;
use crate::sched::{PacketMeta, Scheduler};
use crate::time::{Duration, Instant};
use crate::tunnel::links::LinkSet;
use crate::tunnel::local_ack::{HeldBy, LocalAcks};
use crate::units::LinkId;
use crate::wire::frame::MAX_NAME;

/// What a flow waits for at this end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FlowWait {
    /// Nothing: what comes of it goes at once.
    #[default]
    Nothing,
    /// Its sender: it has no more to send at present, or may send no more yet.
    Sender,
    /// Its receiver, which takes no more at present.
    Receiver,
    /// The repair of packets that were lost.
    Repair,
    /// Its turn, of so many flows of which more waits than a packet.
    Turn(usize),
    /// This link, which has room for nothing at the moment: a packet arrives there first all the same. By how much later it
    /// would on the soonest link that has room; `None`: none has, or nobody knows.
    Link(LinkId, Option<Duration>),
    /// This link and no other: it is to go there.
    Bound(LinkId),
    /// Any link: none has room at the moment.
    Room,
    /// Any link: none carries packets.
    Links,
}

/// A flow of which something was sent lately, or waits.
#[derive(Clone, Debug)]
pub struct RecentFlow {
    /// Its name in tables.
    pub key: FlowKey,
    /// Where it comes from and goes.
    pub tuple: FiveTuple,
    /// Bytes of its packets that left since somebody asked before.
    pub carried: ByLink,
    /// Bytes that left and are not confirmed, where what is lost is sent again.
    pub under_way: u64,
    /// Bytes that wait for a link.
    pub waiting: u64,
    /// Packets that were lost, and have to be sent again.
    pub to_repair: u64,
    /// What it waits for.
    pub wait: FlowWait,
}

/// The flows that were busiest lately.
#[derive(Clone, Debug)]
pub struct RecentFlows {
    /// Over which time [`RecentFlow::carried`] was counted; zero: nobody asked before.
    pub over: Duration,
    /// Those of which most was sent or waits come first.
    pub flows: Vec<RecentFlow>,
    /// The links, by id, and their names.
    pub links: ArrayVec<(LinkId, ArrayString<MAX_NAME>), MAX_LINKS>,
    /// Flows that are not among them.
    pub left_out: usize,
    /// Bytes that left of flows which were not counted, since too many were.
    pub beyond: u64,
}

/// What was found of a flow.
struct Found {
    flow: RecentFlow,
    /// The first of its packets that waits.
    head: Option<PacketMeta>,
    /// It waits for this link, and no other.
    bound_to: Option<LinkId>,
}

impl Found {
    fn new(key: FlowKey, tuple: FiveTuple) -> Self {
        let flow = RecentFlow {
            key,
            tuple,
            carried: ByLink::new(),
            under_way: 0,
            waiting: 0,
            to_repair: 0,
            wait: FlowWait::Nothing,
        };
        Self { flow, head: None, bound_to: None }
    }

    fn note_waiting(&mut self, waiting: &Waiting) {
        self.flow.waiting += waiting.packet().len() as u64;
        // One that has overtaken others left its place.
        if !waiting.packet().is_empty() {
            self.head.get_or_insert(waiting.label().meta);
        }
    }

    /// How much was sent or waits, bytes.
    fn weight(&self) -> u64 {
        let carried: u64 = self.flow.carried.iter().map(|(_, bytes)| bytes).sum();
        carried + self.flow.waiting
    }
}

impl Egress {
    /// The busiest flows, at most so many. Counting begins or goes on.
    pub(in crate::tunnel) fn recent_flows(
        &mut self,
        now: Instant,
        links: &LinkSet,
        local_acks: &LocalAcks,
        most: usize,
    ) -> RecentFlows {
        let meter = self.meter.get_or_insert_with(|| Box::new(FlowMeter::new(now)));
        let (over, metered, beyond) = meter.read(now);
        let mut found: BTreeMap<FlowKey, Found> = BTreeMap::new();
        for (key, metered) in metered {
            let flow = found.entry(key).or_insert_with(|| Found::new(key, metered.tuple));
            flow.flow.carried = metered.carried;
        }
        self.find_waiting(&mut found);
        if let Some(repair) = &self.repair {
            find_unconfirmed(repair, &mut found);
        }
        let mut flows: Vec<_> = found.into_values().collect();
        flows.sort_by_key(|found| Reverse((found.weight(), found.flow.under_way)));
        let left_out = flows.len().saturating_sub(most);
        flows.truncate(most);
        let mut views = Views::new(self.scheduler.looks_at_arrivals());
        let flows = flows.into_iter().map(|found| RecentFlow {
            wait: self.wait_of(now, &found, links, local_acks, &mut views),
            ..found.flow
        });
        let flows = flows.collect();
        let names = links.iter().map(|link| (link.id, link.name)).take(MAX_LINKS).collect();
        RecentFlows { over, flows, links: names, left_out, beyond }
    }

    fn find_waiting(&self, found: &mut BTreeMap<FlowKey, Found>) {
        let mut note = |waiting: &Waiting, bound_to: Option<LinkId>| {
            let meta = waiting.label().meta;
            let flow = found.entry(meta.flow).or_insert_with(|| Found::new(meta.flow, meta.tuple));
            flow.note_waiting(waiting);
            flow.bound_to = flow.bound_to.or(bound_to);
        };
        self.waiting.for_each(|link, waiting| note(waiting, Some(link)));
        self.queue.for_each(|waiting| note(waiting, None));
    }

    fn wait_of(
        &self,
        now: Instant,
        found: &Found,
        links: &LinkSet,
        local_acks: &LocalAcks,
        views: &mut Views,
    ) -> FlowWait {
        if found.flow.to_repair > 0 {
            return FlowWait::Repair;
        }
        let Some(head) = found.head else {
            return match local_acks.held_by(found.flow.key) {
                Some(HeldBy::Receiver) => FlowWait::Receiver,
                Some(HeldBy::Sender) => FlowWait::Sender,
                None => FlowWait::Nothing,
            };
        };
        if let Some(link) = found.bound_to {
            return FlowWait::Bound(link);
        }
        let head = self.queue.question_of(&head);
        views.look(links, now, head.len);
        if views.links.is_empty() {
            return FlowWait::Links;
        }
        if self.queue.takes_turns(head.flow) && head.backlogged_flows > 1 {
            return FlowWait::Turn(head.backlogged_flows);
        }
        if let Some(awaited) = self.scheduler.awaited(&head, &views.links) {
            return FlowWait::Link(awaited.link, awaited.later);
        }
        if views.are_full() { FlowWait::Room } else { FlowWait::Nothing }
    }
}

fn find_unconfirmed(repair: &Repair, found: &mut BTreeMap<FlowKey, Found>) {
    let tuple = |packet: &[u8]| {
        let view = PacketView::parse(packet);
        view.map_or(FiveTuple::UNKNOWN, |view| view.five_tuple())
    };
    for copy in repair.unconfirmed() {
        let key = copy.sent.flow;
        let flow = found.entry(key).or_insert_with(|| Found::new(key, tuple(&copy.packet)));
        flow.flow.under_way += copy.packet.len() as u64;
    }
    for (_, lost) in repair.lost() {
        if let Some(found) = found.get_mut(&lost.sent.flow) {
            found.flow.to_repair += 1;
        }
    }
}
