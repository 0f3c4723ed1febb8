//! The resequencer: puts the packets of all links back in order, and waits for a missing one only as
//! long as it can still come.
//!
//! The rules are those of seed 004 (section III.C, figure 3) with two changes: a hole is skipped only
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
//! cannot be proven.
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
mod histogram;
mod links;
mod pool;
mod proof;
mod skipped;

pub use deadline::{GRANULARITY, STALE_AFTER};

use ropewalk_settings::{Order, Release};

use crate::link::reordering::Tolerance;
use crate::packet::Packet;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant, earliest};
use crate::units::LinkId;
use buffer::{Buffer, Slot};
use by_flow::{ByFlow, Placed, Shared};
use histogram::Histogram;
use links::Links;
use pool::Early;
use proof::Claim;
use skipped::{Below, Skipped};

/// What an authenticated datagram tells the resequencer. Every datagram of every link must be offered,
/// with data or without, in the order of arrival: each is evidence.
#[derive(Clone, Copy, Debug)]
pub struct Evidence {
    /// The link it came on.
    pub link: LinkId,
    /// Its number on that link, expanded to 64 bits.
    pub local: u64,
    /// When the peer sent it, in µs by the peer's clock, unwrapped; any epoch, the same for all links.
    pub sent_us: i64,
    /// With data: the packet's number. Without: the sender's next one. Expanded to 64 bits.
    pub global: u64,
    /// Whether it carries a packet.
    pub kind: EvidenceKind,
}

/// Whether a datagram carries a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EvidenceKind {
    /// It does.
    Data {
        /// The global number of the packet before it on the same link; `None`: there was none, or it
        /// is too far back for the wire, or it was sent as copies.
        prev_on_link: Option<u64>,
    },
    /// It does, and the packet has to wait for no other than the one before it of its flow.
    FlowData {
        /// The global number of that one; `None`: there was none, or it is too far back for the wire.
        prev_of_flow: Option<u64>,
    },
    /// It does not; everything below its `global` was sealed before it.
    Mark,
}

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

/// Counters since the start; sizes at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Packets delivered straight through.
    pub in_order: u64,
    /// Packets that waited and were delivered.
    pub resequenced: u64,
    /// Packets delivered as they came, since nothing is put in order.
    pub as_they_came: u64,
    /// Packets that came after their number was skipped: delivered at once, out of order.
    pub late: u64,
    /// Of these, packets whose number was skipped because it seemed proven lost. Zero as long as links
    /// keep the order that was measured and none that may still carry a packet is taken for dead.
    pub late_after_proof: u64,
    /// Packets dropped because their number was delivered or waits already.
    pub duplicates: u64,
    /// Packets dropped because they came so late that nobody remembers whether they did before.
    pub too_old: u64,
    /// Numbers skipped because they were proven lost.
    pub skipped_by_proof: u64,
    /// Numbers skipped because the wait was over.
    pub skipped_by_deadline: u64,
    /// Numbers skipped because there was no room to wait, a jump was too far, or the sender chose another order.
    pub skipped_by_full: u64,
    /// Deadlines that passed.
    pub expiries: u64,
    /// Packets that wait now.
    pub held: usize,
    /// Their bytes.
    pub held_bytes: usize,
    /// The most packets that ever waited at once.
    pub held_peak: usize,
    /// Median wait of the packets that waited, µs (in-order packets, which wait for nothing, are not
    /// counted).
    pub wait_p50_us: u64,
    /// 99th percentile of the same, µs.
    pub wait_p99_us: u64,
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

/// The expiry in a row that gives up: it releases all.
const LAST_EXPIRY: u8 = 3;

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
    /// With [`Release::One`]: the expiry that restarted the timer.
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

    /// Puts a packet in its place: out, into the buffer, or away.
    fn place(
        &mut self,
        now: Instant,
        global: u64,
        delay_us: i64,
        packet: &Packet<'_>,
        out: &mut impl PacketSink,
    ) {
        let Some(offset) = global.checked_sub(self.expected) else {
            return self.place_behind(global, packet, out);
        };
        if offset == 0 && !matches!(self.buffer.slot(0), Some(Slot::Held(_))) {
            return self.pass_through(now, packet, out);
        }
        if matches!(self.buffer.slot(offset), Some(Slot::Held(_))) {
            self.stats.duplicates += 1;
            return;
        }
        self.buffer.unmark_lost(offset);
        match self.make_room(now, global, packet.bytes.len(), out) {
            Some(offset) => {
                self.buffer.store(offset, packet, global, now, delay_us);
                self.stats.held_peak = self.stats.held_peak.max(self.buffer.held());
            }
            None => self.pass_through(now, packet, out),
        }
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

    /// A packet came on a link: if others wait for it, the link was waited for since the first of them came, or since
    /// the hole before was closed.
    fn note_waited(&mut self, now: Instant, link: LinkId, global: u64) {
        let behind = self.buffer.first_behind().filter(|_| global == self.expected);
        if let Some(behind) = behind {
            self.links.on_waited(link, now.since(self.closed_at.max(behind.arrived)));
            self.closed_at = now;
        }
    }

    /// Delivers the expected packet from where it was received, and what it was waited for by.
    fn pass_through(&mut self, now: Instant, packet: &Packet<'_>, out: &mut impl PacketSink) {
        out.deliver(*packet);
        self.stats.in_order += 1;
        let _ = self.buffer.pop();
        self.expected += 1;
        self.progress();
        self.drain(now, out);
        self.finish_step();
    }

    /// Releases the lowest until there is room for `global`; returns its offset. `None`: it is itself
    /// the lowest, and has become the expected number.
    fn make_room(
        &mut self,
        now: Instant,
        global: u64,
        len: usize,
        out: &mut impl PacketSink,
    ) -> Option<usize> {
        loop {
            let offset = global - self.expected;
            let small = usize::try_from(offset).ok().filter(|o| *o < self.config.max_packets);
            if let Some(offset) = small
                && self.buffer.bytes() + len <= self.config.settings.buffer
            {
                return Some(offset);
            }
            match self.buffer.lowest() {
                Some(lowest) if lowest < offset => self.release_lowest(now, Cause::Full, out),
                _ => {
                    self.advance_to(now, global, Cause::Full, out);
                    return None;
                }
            }
            if self.expected >= global {
                return None;
            }
        }
    }

    /// Applies what is proven, but does not expect more than `limit`.
    fn settle(&mut self, now: Instant, limit: u64, out: &mut impl PacketSink) {
        self.links.mature(now);
        match self.order {
            // What is proven lost may be sent again; before the first packet nobody knows.
            None | Some(Order::Flow) => {
                while self.links.take_proven().is_some() {}
                return;
            }
            Some(Order::Global) => {}
        }
        while let Some(lost) = self.links.take_proven() {
            // The packet in hand closed the gap that hid it: nothing is missing.
            if lost == limit {
                continue;
            }
            if let Some(offset) = lost.checked_sub(self.expected)
                && let Some(offset) = usize::try_from(offset).ok()
                && offset < self.config.max_packets
            {
                self.buffer.mark_lost(offset);
            }
        }
        let before = self.expected;
        let floor = self.links.floor().unwrap_or(0).min(self.next_unseen).min(limit);
        self.advance_to(now, floor, Cause::Proof, out);
        if self.expected > before || matches!(self.buffer.slot(0), Some(Slot::Lost)) {
            self.progress();
            self.drain(now, out);
        }
        // A packet in hand is not in the buffer yet, and marks before it must outlive this call.
        if limit == u64::MAX {
            self.finish_step();
        }
    }

    /// The deadline of the hole passed.
    fn expire(&mut self, now: Instant, out: &mut impl PacketSink) {
        self.stats.expiries += 1;
        self.expiries += 1;
        if self.expiries < LAST_EXPIRY {
            self.release_lowest(now, Cause::Deadline, out);
            self.restarted = (self.config.settings.release == Release::One).then_some(now);
        } else {
            self.advance_to(now, self.expected + self.buffer.span(), Cause::Deadline, out);
        }
        self.finish_step();
    }

    /// When the hole has been waited for long enough; `None` if nothing waits.
    fn deadline(&self) -> Option<Instant> {
        let first = self.buffer.first_behind()?;
        let from = self.restarted.map_or(first.arrived, |at| at.max(first.arrived));
        Some(
            from + deadline::patience(
                self.links.worst_us(),
                first.delay_us,
                self.config.settings.max_wait,
            ),
        )
    }

    /// Skips the hole and delivers the packet behind it.
    fn release_lowest(&mut self, now: Instant, cause: Cause, out: &mut impl PacketSink) {
        let Some(lowest) = self.buffer.lowest() else { return };
        self.advance_to(now, self.expected + lowest + 1, cause, out);
        if self.config.settings.release == Release::Drain {
            self.drain(now, out);
        }
        self.buffer.trim(self.expected);
    }

    /// Delivers what directly follows, passing over what is proven lost.
    fn drain(&mut self, now: Instant, out: &mut impl PacketSink) {
        while let Some(Slot::Held(_) | Slot::Lost) = self.buffer.slot(0) {
            self.advance_to(now, self.expected + 1, Cause::Proof, out);
        }
    }

    /// Expects `target` next: delivers what waits below it and skips the rest.
    fn advance_to(&mut self, now: Instant, target: u64, cause: Cause, out: &mut impl PacketSink) {
        while self.expected < target {
            let next = self.expected + 1;
            match self.buffer.pop() {
                Some(Slot::Held(early)) => self.deliver_early(now, early, out),
                Some(Slot::Lost) => self.skip_to(next, Cause::Proof),
                Some(Slot::Missing) => self.skip_to(next, cause),
                None => {
                    self.skip_to(target, cause);
                    self.expected = target;
                    return;
                }
            }
            self.expected = next;
        }
    }

    fn deliver_early(&mut self, now: Instant, early: Early, out: &mut impl PacketSink) {
        out.deliver(early.packet());
        self.stats.resequenced += 1;
        let micros = now.since(early.arrived).as_micros();
        self.waits.record(u64::try_from(micros).unwrap_or(u64::MAX));
        self.buffer.recycle(early, self.config.settings.buffer);
    }

    fn skip_to(&mut self, to: u64, cause: Cause) {
        let counter = match cause {
            Cause::Proof => &mut self.stats.skipped_by_proof,
            Cause::Deadline => &mut self.stats.skipped_by_deadline,
            Cause::Full => &mut self.stats.skipped_by_full,
        };
        *counter += to - self.expected;
        self.skipped.push(self.expected, to, cause);
    }

    /// A hole was closed by arrival or proof: expiries are no longer in a row.
    fn progress(&mut self) {
        self.expiries = 0;
        self.restarted = None;
    }

    /// Brings the buffer and the state in line with the expected number.
    fn finish_step(&mut self) {
        self.buffer.trim(self.expected);
        if self.buffer.held() == 0 {
            self.progress();
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
