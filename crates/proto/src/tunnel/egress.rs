//! The way of a packet out.
//!
//! 1. [`Egress::take`]: from the TUN, into the queue (bounded in time and bytes), where flows of which nothing waits go
//!    first. A packet that fits nowhere is answered ([`TooBig`]) or may go in two parts ([`parts`]).
//! 2. [`Egress::send`]: what waits for one link and no other goes first, when that link has room ([`waiting`]), then what was
//!    lost goes again ([`resend`], [`repair`]).
//! 3. Then, for the packet at the head: views of the links that can carry it, or a part of it ([`views`]).
//! 4. The scheduler picks a link, or none has room: a backup takes it, it waits, or is dropped. Where only one link will do
//!    and it has no room, the packet waits for that one and the next has its turn. One that has become too big for every
//!    link since it came is dropped at once, so that it does not hold up the others.
//! 5. The packet gets its global number ([`numbering`]), the datagram its local one; both are sealed into the batch. It leaves
//!    alone ([`single`], [`outgoing`]), or small packets that leave at one moment for one link share a datagram ([`bundle`]).
//! 6. What is to go over two links goes over a second one ([`redundant`]).
//! 7. Where nothing is left to send, so do the last packets of a burst whose answer is late ([`early_copy`]).
//!
//! What is of use for a moment only, as a call's packets are, goes no more when it is too old ([`real_time`]).

mod bundle;
mod early_copy;
mod flow_meter;
mod flows;
mod numbering;
mod outgoing;
mod real_time;
mod recent_flows;
mod redundant;
mod repair;
mod resend;
mod single;
mod spacing;
mod too_big;
mod views;
mod waiting;

use std::net::IpAddr;

use ropewalk_settings::{Order, WhenClosed};

pub(super) use bundle::is_small;
pub use bundle::{Bundled, MAX_PACKETS};
use early_copy::EarlyCopies;
pub use flow_meter::ByLink;
use flow_meter::FlowMeter;
use numbering::Numbering;
pub(super) use outgoing::evidence_of;
use real_time::Silence;
pub use recent_flows::{FlowWait, RecentFlow, RecentFlows};
use redundant::Copies;
pub use redundant::Redundancy;
use repair::Repair;
pub use repair::Repairs;
use single::Source;
use spacing::Spacing;
use too_big::TooBig;
use views::Views;
use waiting::LinkQueues;

use super::link::Traffic;
use super::links::LinkSet;
use super::local_ack::Backlog;
use super::parts::{self, Part};
use super::session::{Made, Session};
use crate::config::TunnelConfig;
use crate::error::{DropCounters, DropReason};
use crate::packet::buffer::{PacketBuffer, SpareBuffers};
use crate::packet::checksum::Checksum;
use crate::packet::{FlowKey, PacketView};
use crate::queue::{Dropped, FrontQueue, Label, QueueLimits};
use crate::sched::{AnyScheduler, PacketMeta, Pick, Scheduler};
use crate::sink::{PacketSink, TransmitSink};
use crate::time::{Duration, Instant, earliest};

/// A packet that was dropped because no link had room shows that packets wanted one for so long: the next packets of
/// its flow come a round trip later.
const WANTED: Duration = Duration::from_millis(100);

/// Buffers kept for packets to come; more are freed. Covers 100 ms at 300 Mbit/s.
const MOST_SPARE: usize = 4096;

/// The packets that this end sends: what waits, which link takes it, and its number.
#[derive(Debug)]
pub(super) struct Egress {
    policy: Policy,
    pub(super) scheduler: AnyScheduler,
    /// When the scheduler is told of the links again.
    pub(super) facts_due: Instant,
    queue: FrontQueue,
    waiting: LinkQueues,
    spare: SpareBuffers,
    /// When a packet was last dropped because no link had room.
    refused_at: Option<Instant>,
    numbering: Numbering,
    /// The packets that are not confirmed; `None`: what is lost stays lost.
    repair: Option<Repair>,
    /// Which packets go over two links.
    redundant: Copies,
    /// Which of the last packets of a burst go once more before anybody knows whether they were lost.
    early: EarlyCopies,
    /// Which packets need no order.
    spacing: Spacing,
    /// When no link answered.
    silence: Silence,
    /// Bytes of sparse flows that went since a lost packet did, while any was to go.
    ahead: usize,
    too_big: TooBig,
    /// Packets taken from the TUN.
    accepted: Traffic,
    /// Packets that shared their datagram with others.
    bundled: Bundled,
    /// What is counted by flow while somebody looks.
    meter: Option<Box<FlowMeter>>,
}

/// What is set for all packets.
#[derive(Clone, Copy, Debug)]
struct Policy {
    when_closed: WhenClosed,
    /// Bounds of what waits.
    limits: QueueLimits,
    /// Whether a packet's congestion mark is copied to its datagram.
    ecn: bool,
    /// Whether small packets may share datagrams.
    bundle: bool,
}

/// By which packets leave: the links, the session that seals, and the batch.
pub(super) struct Outlet<'a, T> {
    pub(super) links: &'a mut LinkSet,
    pub(super) session: &'a mut Session,
    pub(super) out: &'a mut T,
}

/// What became of the packet at the head of the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// It is gone, one way or another: the next has its turn.
    Next,
    /// Nothing more can be sent now: the queue is empty, no link is open, or nothing can be sealed.
    Waits,
    /// The batch is full.
    Full,
}

impl From<Made> for Step {
    fn from(made: Made) -> Self {
        match made {
            Made::Sent => Self::Next,
            Made::Full => Self::Full,
            Made::Refused => Self::Waits,
        }
    }
}

impl Egress {
    /// Nothing waits, and the first packet will have the number 0; the peer restores this order. ICMP answers come from the `gateways`.
    pub(super) fn new(
        now: Instant,
        config: &TunnelConfig,
        order: Order,
        gateways: Vec<IpAddr>,
    ) -> Self {
        let scheduler = AnyScheduler::new(now, &config.scheduling);
        Self {
            policy: Policy {
                when_closed: config.when_closed,
                limits: config.queue,
                ecn: config.ecn,
                bundle: config.bundle,
            },
            facts_due: Instant::ZERO,
            queue: FrontQueue::new(config.queue, scheduler.demand().is_some()),
            scheduler,
            waiting: LinkQueues::new(config.queue),
            spare: SpareBuffers::new(),
            refused_at: None,
            numbering: Numbering::new(order),
            repair: (order == Order::Flow).then(Repair::default),
            redundant: Copies::new(now, config.scheduling.redundant.clone()),
            early: EarlyCopies::new(now),
            spacing: Spacing::default(),
            silence: Silence::default(),
            ahead: 0,
            too_big: TooBig::new(now, gateways),
            accepted: Traffic::default(),
            bundled: Bundled::default(),
            meter: None,
        }
    }

    /// A copy of a packet that comes, for [`take`](Self::take).
    #[inline]
    pub(super) fn copy(&mut self, packet: &[u8]) -> PacketBuffer {
        self.spare.copy(packet)
    }

    /// The packet of this buffer is needed no more.
    #[inline]
    pub(super) fn recycle(&mut self, buffer: PacketBuffer) {
        self.spare.put(buffer, MOST_SPARE);
    }

    /// Step 1: takes a packet from the TUN. What the sender of a packet that fits nowhere has to be told
    /// goes to `sink`, back into the TUN. Returns whether it may go, or was dropped for lack of room alone.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: Instant,
        packet: PacketBuffer,
        label: &Label,
        links: &LinkSet,
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) -> bool {
        let by_flow = self.repair.is_some();
        let is_alone = by_flow && self.spacing.comes_alone(now, label);
        // One whose checksum is partial by now was found to fit.
        if label.checksum == Checksum::Whole
            && let Some(limit) = links.too_big_for(now, packet.len())
            && let Ok(view) = PacketView::parse(&packet)
            && !parts::may_split(&view, label.is_acknowledged)
        {
            self.too_big.answer(now, &view, limit, sink);
            drops.count(DropReason::PacketTooBig);
            return false;
        }
        self.accepted.count(packet.len());
        let is_redundant = by_flow && self.redundant.means(label);
        let label = &Label { is_redundant, is_alone, ..*label };
        let most = self.policy.limits.bytes.saturating_sub(self.waiting.held().1);
        let dropped = self.queue.push(now, label, packet, most);
        if dropped != Dropped::default() {
            drops.add(DropReason::QueueFull, dropped.full);
            drops.add(DropReason::QueueStanding, dropped.standing);
        }
        true
    }

    /// Packets taken so far.
    pub(super) const fn accepted(&self) -> Traffic {
        self.accepted
    }

    /// Packets that shared their datagram with others, and those datagrams.
    pub(super) const fn bundled(&self) -> Bundled {
        self.bundled
    }

    /// The number of the next packet.
    pub(super) const fn next_global(&self) -> u64 {
        self.numbering.next()
    }

    /// Packets that wait for a link, and their bytes.
    #[inline]
    pub(super) fn waiting_for_links(&self) -> (usize, usize) {
        let (packets, bytes) = self.waiting.held();
        (self.queue.len() + packets, self.queue.bytes() + bytes)
    }

    /// Whether the queue takes a packet of so many bytes without giving up others.
    #[inline]
    pub(super) fn has_room(&self, len: usize) -> bool {
        self.waiting_for_links().1 + len <= self.policy.limits.bytes
    }

    /// Bytes of a flow that wait for a link.
    #[inline]
    pub(super) fn waiting_of(&self, flow: FlowKey) -> usize {
        self.queue.backlog_of(flow)
    }

    /// How much senders may send ahead over these links.
    pub(super) fn backlog(&self, now: Instant, links: &LinkSet) -> Backlog {
        let demand = self.scheduler.demand().unwrap_or_default();
        let flows = self.queue.flows() as u64;
        let waiting = self.waiting_for_links().1;
        Backlog {
            share: (demand.rate > 0 && !demand.opening).then_some(demand.rate / flows),
            needed: demand.bytes_at_no_cost / flows,
            unused: links.any_unused(now),
            waiting,
            room: self.policy.limits.bytes.saturating_sub(waiting),
            in_flight: links.in_flight(),
            flows,
            round_trip: links.longest_round_trip(),
            least_round_trip: links.longest_least_round_trip(),
        }
    }

    /// Counts by flow no more if nobody looks any more.
    pub(super) fn stop_metering(&mut self, now: Instant) {
        self.meter.take_if(|meter| meter.is_over(now));
    }

    /// Whether any packet waits for a link.
    pub(super) fn has_waiting(&self) -> bool {
        !self.queue.is_empty() || self.waiting.held().0 > 0 || self.has_lost()
    }

    /// Whether packets want links: some wait, or one was lately refused because none had room.
    pub(super) fn has_demand(&self, now: Instant) -> bool {
        self.refused_at.is_some_and(|at| now.since(at) < WANTED) || self.has_waiting()
    }

    /// Packets may wait for as long as the schedule needs.
    pub(super) fn allow_queue(&mut self) {
        let demand = self.scheduler.demand().unwrap_or_default();
        self.queue.allow(self.scheduler.allowance(), demand);
    }

    /// Schedules by other rules, or again by the same. What waits goes on as those need it.
    pub(super) fn set_scheduler(&mut self, scheduler: AnyScheduler) {
        self.free_waiting();
        self.queue.take_turns(self.policy.limits, scheduler.demand().is_some());
        self.scheduler = scheduler;
    }

    /// The peer restores this order from the next packet on.
    pub(super) fn set_order(&mut self, order: Order) {
        self.numbering.set_order(order);
        self.repair = (order == Order::Flow).then(Repair::default);
    }

    /// Whether a packet is next in the tunnel's queue.
    pub(super) fn has_next(&self) -> bool {
        !self.queue.is_empty()
    }

    /// When the first packet will have waited too long.
    pub(super) fn late_at(&self) -> Option<Instant> {
        earliest(self.queue.poll_timeout(), self.waiting.poll_timeout())
    }

    /// Where packets are sent again, they wait for a link that answers.
    #[inline]
    pub(super) fn note_answers(&mut self, now: Instant, links: &LinkSet) {
        let waits = !self.queue.is_empty() || self.has_lost() || self.silence.lasts();
        if self.repair.is_some() && waits {
            self.silence.note(now, links.any_answers(now), || links.up());
            self.queue.set_stalled(now, self.silence.lasts());
        }
    }

    /// Drops what has waited too long; returns how many.
    pub(super) fn drop_late(&mut self, now: Instant, links: &LinkSet) -> u64 {
        self.note_answers(now, links);
        self.queue.handle_timeout(now) + self.waiting.handle_timeout(now)
    }

    /// What waited for one link and no other may take any.
    fn free_waiting(&mut self) {
        for link in self.waiting.links() {
            if let Some(queue) = self.waiting.of(link) {
                self.queue.put_back(queue);
            }
        }
    }

    /// Bytes of memory kept for packets to come.
    pub(super) fn spare_bytes(&self) -> usize {
        self.spare.bytes()
    }

    /// Whether memory is kept for packets to come.
    pub(super) fn has_spare(&self) -> bool {
        let keeps = self.repair.as_ref().is_some_and(Repair::has_spare);
        let notes = self.numbering.has_spare() || self.spacing.has_spare();
        keeps || notes || self.queue.has_spare() || !self.spare.is_empty()
    }

    /// Gives that memory back.
    pub(super) fn release_memory(&mut self, now: Instant) {
        self.stop_metering(now);
        self.spare.release();
        self.queue.release_memory();
        self.waiting.release_memory();
        self.numbering.release_memory();
        self.redundant.release_memory();
        self.spacing.release_memory();
        self.repair.iter_mut().for_each(Repair::release_memory);
    }

    /// Steps 2 to 7: sends what may be sent now. `false`: the batch is full.
    pub(super) fn send<T: TransmitSink>(&mut self, now: Instant, to: &mut Outlet<'_, T>) -> bool {
        self.note_answers(now, to.links);
        let outdated = self.drop_outdated(now, to.links);
        to.session.drops.add(DropReason::QueueTimeout, outdated);
        self.tell_facts(now, to.links);
        self.send_once(now, to) && self.send_copies(now, to) && self.send_early_copies(now, to)
    }

    /// Steps 2 to 5: each packet once.
    fn send_once<T: TransmitSink>(&mut self, now: Instant, to: &mut Outlet<'_, T>) -> bool {
        if !self.send_waiting(now, to) {
            return false;
        }
        let mut views = Views::new(self.scheduler.looks_at_arrivals());
        let mut lost_waits = false;
        loop {
            let resends = !lost_waits && self.lost_goes_first();
            let step = match resends {
                true => self.send_lost(now, &mut views, to),
                false => self.send_next(now, &mut views, to),
            };
            match step {
                Step::Next => {}
                // What is closed for a moment does not keep new packets from the other links.
                Step::Waits if resends => lost_waits = true,
                Step::Waits => return true,
                Step::Full => return false,
            }
        }
    }

    /// Step 2: what waits for one link goes there, or back to the queue if it cannot. `false`: the batch is full.
    fn send_waiting<T: TransmitSink>(&mut self, now: Instant, to: &mut Outlet<'_, T>) -> bool {
        for link in self.waiting.links() {
            let at = to.links.position(link).ok().filter(|at| to.links[*at].carries(now));
            while let Some(queue) = self.waiting.of(link)
                && let Some(head) = queue.head()
            {
                let len = head.packet().len();
                let fits = |at: &usize| len <= usize::from(to.links[*at].inner_mtu());
                let Some(at) = at.filter(fits) else {
                    self.queue.put_back(queue);
                    break;
                };
                if to.links[at].room(now) == 0 {
                    break;
                }
                let shares = bundle::begins_run(queue.line()) && self.may_bundle(to.session);
                let made = match shares {
                    true => self.send_waiting_run(now, at, to),
                    false => self.send_head(now, at, Source::LinkQueue, None, to),
                };
                match made {
                    Made::Sent => {}
                    Made::Full => return false,
                    Made::Refused => return true,
                }
            }
        }
        true
    }

    /// Steps 3 to 5 for the packet at the head of the queue, or for the run that begins with it.
    #[inline]
    fn send_next<T: TransmitSink>(
        &mut self,
        now: Instant,
        views: &mut Views,
        to: &mut Outlet<'_, T>,
    ) -> Step {
        let Some(head) = self.queue.head() else { return Step::Waits };
        let mut meta = self.queue.question(head.label());
        if is_small(meta.len) && self.has_run() && self.may_bundle(to.session) {
            match self.send_run(now, views, to) {
                Made::Refused => {}
                made => return made.into(),
            }
        }
        views.look_for(to.links, now, meta.len);
        let mut part = None;
        if views.links.is_empty() && to.links.too_big_for(now, meta.len).is_some() {
            let fits = |part: &Part| to.links.too_big_for(now, part.len(meta.len)).is_none();
            part = self.next_part().filter(fits);
            let Some(part) = part else {
                self.drop_head();
                to.session.drops.count(DropReason::PacketTooBig);
                return Step::Next;
            };
            meta.len = part.len(meta.len);
            views.look(to.links, now, meta.len);
        }
        if part.is_none()
            && views.are_full()
            && let Some(at) = to.links.helper(now, meta.len)
        {
            let made = self.send_head(now, at, Source::Queue, None, to);
            if made == Made::Sent {
                to.links.note_helped(true);
            }
            return made.into();
        }
        self.send_as_scheduled(now, &meta, part, views, to)
    }

    /// Step 4.
    #[inline]
    fn send_as_scheduled<T: TransmitSink>(
        &mut self,
        now: Instant,
        meta: &PacketMeta,
        part: Option<Part>,
        views: &mut Views,
        to: &mut Outlet<'_, T>,
    ) -> Step {
        match self.scheduler.pick(now, meta, &views.links) {
            Pick::Send(index) => {
                let Some(&at) = views.places.get(index) else { return Step::Waits };
                let made = self.send_head(now, at, Source::Queue, part, to);
                if made == Made::Sent {
                    views.refresh(index, to.links, now, meta.len);
                    self.scheduler.on_sent(now, meta, to.links[at].id);
                    to.links.note_helped(false);
                }
                made.into()
            }
            Pick::SendBehind(index, bytes) => {
                let Some(&at) = views.places.get(index) else { return Step::Waits };
                let overtakes = part.is_none() && self.repair.is_some();
                let made = match overtakes && self.queue.may_overtake() {
                    true => match self.queue.behind(bytes) {
                        Some(place) => self.send_behind(now, at, place, to),
                        None => return Step::Waits,
                    },
                    false => self.send_head(now, at, Source::Queue, part, to),
                };
                if made == Made::Sent {
                    views.refresh(index, to.links, now, meta.len);
                    self.scheduler.on_sent(now, meta, to.links[at].id);
                    to.links.note_helped(false);
                }
                made.into()
            }
            Pick::Wait(_) | Pick::Blocked if self.policy.when_closed == WhenClosed::Drop => {
                self.drop_head();
                self.refused_at = Some(now);
                to.session.drops.count(DropReason::NoRoom);
                Step::Next
            }
            Pick::Wait(index) if part.is_none() => {
                let Some(link) = views.links.get(index) else { return Step::Waits };
                if !self.waiting.take_head(link.id, &mut self.queue) {
                    return Step::Waits;
                }
                self.scheduler.on_sent(now, meta, link.id);
                Step::Next
            }
            Pick::Wait(_) | Pick::Blocked => Step::Waits,
        }
    }

    /// The head of the queue will not go.
    fn drop_head(&mut self) {
        if let Some(waiting) = self.queue.pop_packet() {
            self.recycle(waiting.into_packet());
        }
    }
}
