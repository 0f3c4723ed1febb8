//! The resequencer: puts the packets of all links back in order, and waits for a missing one only as
//! long as it can still come.
//!
//! The rules are those of Evensen et al. 2011 (section III.C, figure 3) with two changes: a hole is skipped only
//! when its packet is *proven* lost (the paper takes any gap in a link's local numbers for a lost packet,
//! but the lost datagram may have been a report and does not say which packet it carried), and the
//! timeout is the spread of the links' delays instead of a whole RTO. `docs/RESEQUENCER.md` says where
//! the paper is silent, what was chosen and what that costs.
//!
//! # Proof
//!
//! Global number `g` is proven lost when it did not come and
//!
//! - (a) a datagram says that `g` went before it on its link, and no lower local number of that link
//!   can still arrive; or
//! - (b) on every link that is waited for, a datagram sealed after `g` arrived, and no lower local number
//!   of that link can still arrive (RFC 1990 §4.1).
//!
//! It is sound: `g` went on exactly one link. If that is the link of (a), or any link of (b), `g` went in a
//! lower local number than the datagram that tells, and all lower ones arrived (then `g` came) or are
//! beyond the order of that link (then it is lost, or the tolerance was measured too small). A link that
//! joins later only carries numbers from its join on, so it starts with that floor. A link that left or is
//! down is not waited for: what still comes from there is late, not lost. Datagrams without data count
//! through the sender's next number; lost ones only delay the proof. (b) knows nothing of rekeying:
//! numbers go on. Several packets in a datagram are offered one by one with its local number, in order: each went later than
//! those of lower numbers on its link, in that datagram or before it. A packet sent as copies on several links must not be named as a previous number,
//! since losing one copy does not lose the packet.
//!
//! `proof.rs` holds the part about one link, `deadline.rs` the wait for what
//! cannot be proven, and `global.rs` what follows from both.
//!
//! # Two orders
//!
//! All this is the order of all packets. The sender may choose that within flows, packet by packet, and `by_flow.rs` restores
//! it. The order in force is that of the highest number that came. When that changes, what waits is delivered, and the other
//! order begins with the next number; what comes late of the order before is delivered once.
//!
//! # States
//!
//! ```text
//! event                     | InOrder              | Holding(k), k = 0, 1, 2 expiries in a row
//! --------------------------+----------------------+---------------------------------------------
//! the expected number       | deliver              | deliver, drain; k := 0
//! one ahead                 | store; Holding(0)    | store (again the same: duplicate, drop)
//! one behind, skipped       | late: deliver once   | late: deliver once
//! one behind, delivered     | duplicate: drop      | duplicate: drop
//! the hole is proven lost   | expect the next      | skip it, drain; k := 0
//! the deadline passes       | -                    | k < 2: release the lowest; k := k + 1
//!                           |                      | k = 2: release all
//! no room for one ahead     | deliver, expect next | release the lowest until there is room
//! ```
//!
//! With `enabled` off there are no states: every packet is delivered as it comes, and nothing is held or
//! skipped.
//!
//! Whenever nothing waits any more the state is `InOrder`. "Drain" delivers what directly follows;
//! "release the lowest" skips the hole before it. In-order packets are delivered from where they were
//! received: never stored, never copied.

mod buffer;
mod by_flow;
mod deadline;
mod evidence;
mod global;
mod histogram;
mod links;
mod pool;
mod proof;
mod skipped;
mod stats;

pub use deadline::{GRANULARITY, STALE_AFTER};
pub use evidence::{Evidence, EvidenceKind};
pub use stats::Stats;

use ropewalk_settings::Order;

use crate::link::reordering::Tolerance;
use crate::packet::Packet;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant, earliest};
use crate::units::LinkId;
use buffer::{Buffer, Slot};
use by_flow::{ByFlow, Placed, Shared};
use histogram::Histogram;
use links::Links;
use proof::Claim;
use skipped::{Below, Skipped};

/// Bounds and choices of a [`Resequencer`].
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// What a person may set.
    pub settings: ropewalk_settings::Resequencer,
    /// Numbers the buffer spans, missing ones included; the most packets that can wait.
    pub max_packets: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            settings: ropewalk_settings::Resequencer::default(),
            // 1 Gbit/s of full packets over links 150 ms apart; 400 KiB of slots while in use.
            max_packets: 16_384,
        }
    }
}

/// The state of figure 3 in the paper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// Nothing waits.
    InOrder,
    /// Packets wait behind a hole; so many deadlines in a row have passed (0 to 2).
    Holding {
        /// Deadlines that passed since a hole was last closed by arrival or proof.
        expiries: u8,
    },
}

/// Why a number is passed over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Proof,
    Deadline,
    Full,
}

/// Numbers from here on are refused: the arithmetic of the buffer then needs no checks, and 2^62
/// packets are never sent.
const NUMBER_LIMIT: u64 = 1 << 62;

/// Receives packets in any order and delivers them in the sender's.
#[derive(Debug)]
pub struct Resequencer {
    config: Config,
    /// The number to be delivered next; everything below was delivered or skipped.
    expected: u64,
    /// One above the highest number that a packet had, or the highest that a mark named.
    next_unseen: u64,
    expiries: u8,
    /// With [`Release::One`](ropewalk_settings::Release::One): the expiry that restarted the timer.
    restarted: Option<Instant>,
    /// When the last hole was closed.
    closed_at: Instant,
    buffer: Buffer,
    skipped: Skipped,
    /// The order in force; `None` before the first packet.
    order: Option<Order>,
    /// One above the highest number that a packet had.
    next_packet: u64,
    by_flow: ByFlow,
    /// The peer has stopped: what comes all the same waits for nothing.
    is_finished: bool,
    links: Links,
    stats: Stats,
    waits: Histogram,
}

impl Resequencer {
    /// A resequencer whose first packet will have the number `first`.
    #[must_use]
    pub fn new(config: Config, first: u64) -> Self {
        Self {
            config,
            expected: first,
            next_unseen: first,
            expiries: 0,
            restarted: None,
            closed_at: Instant::ZERO,
            buffer: Buffer::default(),
            skipped: Skipped::default(),
            order: None,
            next_packet: first,
            by_flow: ByFlow::new(&config, first),
            is_finished: false,
            links: Links::default(),
            stats: Stats::default(),
            waits: Histogram::new(),
        }
    }

    /// A link may carry packets from now on, none of them below `first_global`. Call it with the first
    /// datagram on the link, and [`next_unseen`](Self::next_unseen): that datagram is a `Join`, its answer, or
    /// a challenge, and the peer sends packets there only after our answer to it.
    pub fn link_added(&mut self, link: LinkId, first_global: u64) {
        self.links.add(link, first_global);
    }

    /// The link sends no more. `end` is one above the last local number it used, where the peer said so:
    /// then what is still under way is waited for, at most `max_wait`. Without it nothing is.
    pub fn link_left(
        &mut self,
        now: Instant,
        link: LinkId,
        end: Option<u64>,
        out: &mut impl PacketSink,
    ) {
        self.links.leave(link, end, now + self.config.settings.max_wait);
        self.settle(now, u64::MAX, out);
    }

    /// The link is down: its packets are not waited for.
    pub fn link_down(&mut self, now: Instant, link: LinkId, out: &mut impl PacketSink) {
        self.links.set_up(link, false);
        self.settle(now, u64::MAX, out);
    }

    /// The link works again: its packets are waited for.
    pub fn link_up(&mut self, link: LinkId) {
        self.links.set_up(link, true);
    }

    /// The link's path changed, so datagrams on the new path may overtake those on the old one: for
    /// `max_wait` no gap of this link is taken for a loss.
    pub fn link_rerouted(&mut self, now: Instant, link: LinkId) {
        self.links.be_patient(link, now + self.config.settings.max_wait);
    }

    /// How much the link was measured to reorder by itself.
    pub fn set_tolerance(&mut self, link: LinkId, tolerance: Tolerance) {
        self.links.set_tolerance(link, tolerance);
    }

    /// How long it takes the peer to notice that a packet was lost, and to send it again. A packet waits that much longer for
    /// the one before it of its flow, at most a second in all.
    pub fn set_repair_time(&mut self, time: Duration) {
        self.by_flow.set_repair_time(time);
    }

    /// Takes an authenticated datagram and, with data, its `packet`; without data `packet` is ignored. One with several
    /// packets is offered once for each, in order.
    pub fn offer(
        &mut self,
        now: Instant,
        arrival: &Evidence,
        packet: Packet<'_>,
        out: &mut impl PacketSink,
    ) {
        let global = arrival.global;
        if global >= NUMBER_LIMIT {
            self.stats.too_old += 1;
            return;
        }
        let delay_us = deadline::delay_us(now, arrival.sent_us);
        let (claim, prev) = match arrival.kind {
            EvidenceKind::Data { prev_on_link } => (global + 1, prev_on_link),
            // A packet that is sent again has an old number: nothing follows from it for those behind it on its link.
            EvidenceKind::FlowData { .. } => (0, None),
            EvidenceKind::Mark => (global, None),
        };
        let previous = prev.filter(|p| *p < global && self.is_missing(*p));
        let claim = Claim { floor: claim, previous };
        self.links.on_arrival(now, arrival.link, arrival.local, claim, delay_us);
        self.next_unseen = self.next_unseen.max(match arrival.kind {
            EvidenceKind::Data { .. } | EvidenceKind::FlowData { .. } => global + 1,
            EvidenceKind::Mark => global,
        });
        if !self.config.settings.enabled {
            return self.let_pass(now, arrival, &packet, out);
        }
        self.links.mature(now);
        self.choose_order(now, arrival, out);
        match arrival.kind {
            EvidenceKind::Mark => self.settle(now, u64::MAX, out),
            _ if self.order == Some(Order::Flow) => {
                self.offer_by_flow(now, arrival, delay_us, &packet, out);
            }
            _ if self.is_next(global) => {
                out.deliver(packet);
                self.stats.in_order += 1;
                self.expected += 1;
            }
            EvidenceKind::Data { .. } | EvidenceKind::FlowData { .. } => {
                // Not past the packet in hand: it would be late before it was looked at.
                self.settle(now, global, out);
                self.note_waited(now, arrival.link, global);
                self.place(now, global, delay_us, &packet, out);
                if self.buffer.held() > 0 {
                    self.settle(now, u64::MAX, out);
                } else {
                    self.finish_step();
                }
            }
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) has something to do.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let in_all =
            self.deadline().and_then(|deadline| earliest(Some(deadline), self.links.due()));
        earliest(in_all, self.by_flow.poll_timeout())
    }

    /// Releases what is due; early calls do no harm.
    pub fn handle_timeout(&mut self, now: Instant, out: &mut impl PacketSink) {
        self.settle(now, u64::MAX, out);
        while self.deadline().is_some_and(|deadline| now >= deadline) {
            self.expire(now, out);
        }
        let (by_flow, mut shared) = self.parts();
        by_flow.handle_timeout(now, &mut shared, out);
    }

    /// The number to be delivered next, of the order of all packets.
    #[must_use]
    pub fn expected(&self) -> u64 {
        self.expected
    }

    /// No packet with this number or a higher one has been heard of.
    #[must_use]
    pub fn next_unseen(&self) -> u64 {
        self.next_unseen
    }

    /// Where figure 3 stands. In the order of flows no expiries are in a row.
    #[must_use]
    pub fn state(&self) -> State {
        match self.buffer.held() + self.by_flow.held() {
            0 => State::InOrder,
            _ => State::Holding { expiries: self.expiries },
        }
    }

    /// The largest difference between the one-way delays of two links.
    #[must_use]
    pub fn delay_spread(&self) -> Duration {
        self.links.delay_spread()
    }

    /// Variation of the one-way delay of a link, once something arrived on it.
    #[must_use]
    pub fn delay_variation(&self, link: LinkId) -> Option<Duration> {
        self.links.delay_variation(link)
    }

    /// Counters and sizes.
    #[must_use]
    pub fn stats(&self) -> Stats {
        Stats {
            held: self.buffer.held() + self.by_flow.held(),
            held_bytes: self.buffer.bytes() + self.by_flow.held_bytes(),
            wait_p50_us: self.waits.quantile_us(500),
            wait_p99_us: self.waits.quantile_us(990),
            ..self.stats
        }
    }

    /// For how long packets that had come waited here for one that then came on this link.
    #[must_use]
    pub fn waited_for(&self, link: LinkId) -> Duration {
        self.links.waited_for(link)
    }

    /// Bytes kept for packets to come.
    #[must_use]
    pub fn spare_bytes(&self) -> usize {
        self.buffer.spare_bytes() + self.by_flow.spare_bytes()
    }

    /// Whether memory is kept for packets to come.
    #[must_use]
    pub fn has_spare(&self) -> bool {
        self.buffer.has_spare() || self.by_flow.spare_bytes() > 0
    }

    /// Gives that memory back.
    pub fn release_memory(&mut self) {
        self.buffer.release_memory();
        self.by_flow.release_memory();
    }

    /// The order of the highest number that came is in force.
    #[inline]
    fn choose_order(&mut self, now: Instant, arrival: &Evidence, out: &mut impl PacketSink) {
        let order = match arrival.kind {
            EvidenceKind::Data { .. } => Order::Global,
            EvidenceKind::FlowData { .. } => Order::Flow,
            EvidenceKind::Mark => return,
        };
        if arrival.global < self.next_packet {
            return;
        }
        match (self.order.replace(order), order) {
            (None | Some(Order::Global), Order::Flow) => self.begin_flows(now, out),
            (Some(Order::Flow), Order::Global) => self.end_flows(now, out),
            (Some(Order::Flow), Order::Flow) | (None | Some(Order::Global), Order::Global) => {}
        }
        self.next_packet = arrival.global + 1;
    }

    /// Nothing more comes: delivers what still waits for others of its flow. In the order of all packets nothing does once every
    /// link has left.
    pub fn finish(&mut self, now: Instant, out: &mut impl PacketSink) {
        if self.order == Some(Order::Flow) {
            self.end_flows(now, out);
        }
        self.is_finished = true;
    }

    /// From the next number on a packet waits for those of its flow alone.
    fn begin_flows(&mut self, now: Instant, out: &mut impl PacketSink) {
        self.advance_to(now, self.next_packet, Cause::Full, out);
        self.progress();
        self.finish_step();
        self.by_flow.begin(self.expected);
    }

    /// From the next number on a packet waits for all before it.
    fn end_flows(&mut self, now: Instant, out: &mut impl PacketSink) {
        let Self { by_flow, links, config, stats, waits, skipped, .. } = self;
        let mut shared = Shared { config, links, stats, waits };
        let mut passed_over = 0;
        by_flow.finish(now, &mut shared, out, |from, to| {
            passed_over += to - from;
            skipped.push(from, to, Cause::Full);
        });
        stats.skipped_by_full += passed_over;
        self.expected = by_flow.next();
    }

    /// A packet while the order of flows is in force.
    fn offer_by_flow(
        &mut self,
        now: Instant,
        arrival: &Evidence,
        delay_us: i64,
        packet: &Packet<'_>,
        out: &mut impl PacketSink,
    ) {
        let Evidence { link, global, .. } = *arrival;
        if global < self.by_flow.first() {
            return self.place_behind(global, packet, out);
        }
        let before = match arrival.kind {
            EvidenceKind::FlowData { prev_of_flow } if !self.is_finished => prev_of_flow,
            _ => None,
        };
        let placed = Placed { global, before, link, delay_us };
        let (by_flow, mut shared) = self.parts();
        by_flow.offer(now, &placed, packet, &mut shared, out);
    }

    /// The order of flows, and what it shares with that of all packets.
    const fn parts(&mut self) -> (&mut ByFlow, Shared<'_>) {
        let Self { by_flow, links, config, stats, waits, .. } = self;
        (by_flow, Shared { config, links, stats, waits })
    }

    /// Delivers a packet whatever its number is. None comes twice: it goes on one link, which lets no number in
    /// twice; unless the sender sends lost packets again.
    fn let_pass(
        &mut self,
        now: Instant,
        arrival: &Evidence,
        packet: &Packet<'_>,
        out: &mut impl PacketSink,
    ) {
        // Nothing is missing below what was heard of, so nothing is ever skipped.
        self.expected = self.next_unseen;
        self.settle(now, u64::MAX, out);
        match arrival.kind {
            EvidenceKind::Data { .. } => {
                out.deliver(*packet);
                self.stats.as_they_came += 1;
            }
            EvidenceKind::FlowData { .. } => {
                if self.by_flow.let_pass(arrival.global, &mut self.stats) {
                    out.deliver(*packet);
                }
            }
            EvidenceKind::Mark => {}
        }
    }

    /// Whether the packet with this number is the expected one, and all there is to do is to deliver it: nothing waits, so no
    /// expiry is remembered, and none is proven lost by name. What floors prove is below it.
    fn is_next(&self, global: u64) -> bool {
        global == self.expected && self.buffer.is_empty() && !self.links.has_proven()
    }

    fn place_behind(&mut self, global: u64, packet: &Packet<'_>, out: &mut impl PacketSink) {
        match self.skipped.take(global) {
            Below::Late(cause) => {
                self.stats.late += 1;
                self.stats.late_after_proof += u64::from(cause == Cause::Proof);
                out.deliver(*packet);
            }
            Below::Duplicate => self.stats.duplicates += 1,
            Below::Forgotten => self.stats.too_old += 1,
        }
    }

    /// Whether a packet with this number may still be waited for.
    fn is_missing(&self, number: u64) -> bool {
        number.checked_sub(self.expected).is_some_and(|offset| {
            !matches!(self.buffer.slot(offset), Some(Slot::Held(_) | Slot::Lost))
        })
    }
}

#[cfg(test)]
mod tests;
