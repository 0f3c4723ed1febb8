//! The order within flows: a packet waits only for the one before it of its own flow.
//!
//! | a packet comes | then |
//! | --- | --- |
//! | the one before it was delivered or given up, is below the window, or is not named | it is delivered, and what waits for it |
//! | another packet waits for the same one, as no honest sender has it | it is delivered at once |
//! | else | it waits |
//! | it was given up | it is delivered at once, out of order: late |
//! | it was delivered, or waits | it is dropped: a duplicate |
//! | it is below the window | it is dropped: too old |
//!
//! Nothing proves a number lost: the sender may send the packet again, under its old number, on any link. So only time gives
//! one up, and then what waits for it is delivered ([`chains`]). The time is that in which a packet that was sent before may
//! arrive on the slowest link (`deadline.rs`), plus what it takes to send it again, at most [`MOST`]. It is looked at again when
//! it is over, so that a link whose queue has grown in the meantime is given the time that it needs.
//!
//! A packet is in [`chains`] only while its number is missing in the [`window`].
//!
//! When what was missing comes, all that waited could be delivered at once. TCP takes that, and of others as much is delivered as [`spreading`] lets.
//! What is left waits for the last of it until its next turn, like a packet whose predecessor is missing.

mod by_number;
mod chains;
mod spreading;
mod window;

use super::histogram::Histogram;
use super::links::Links;
use super::pool::Pool;
use super::{Config, Stats, deadline};
use crate::packet::{Packet, is_tcp};
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use chains::{Chains, Held, Wait};
use spreading::Spreading;
use window::{Fate, Window};

/// The longest that a packet waits, whatever the links' delays and the time of a repair are: TCP's sender would send it
/// again by then (RFC 6298).
pub(super) const MOST: Duration = Duration::from_secs(1);

/// A packet with its place in its flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub(super) global: u64,
    /// The packet before it of its flow.
    pub(super) before: Option<u64>,
    /// The link it came on, and its one-way delay in µs.
    pub(super) link: LinkId,
    pub(super) delay_us: i64,
}

/// What both orders share.
pub(super) struct Shared<'a> {
    pub(super) config: &'a Config,
    pub(super) links: &'a mut Links,
    pub(super) stats: &'a mut Stats,
    pub(super) waits: &'a mut Histogram,
}

/// Why a number is given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cause {
    Deadline,
    Full,
}

/// Delivers the packets of each flow in its sender's order.
#[derive(Debug)]
pub(super) struct ByFlow {
    window: Window,
    chains: Chains,
    pool: Pool,
    /// How long it takes to send a packet again.
    repair_time: Duration,
    /// When packets last ceased to wait for one that came.
    closed_at: Instant,
    spreading: Spreading,
}

impl ByFlow {
    /// Nothing has come; `first` is the first number that can.
    pub(super) fn new(config: &Config, first: u64) -> Self {
        Self {
            window: Window::new(config.max_packets, first),
            chains: Chains::default(),
            pool: Pool::default(),
            repair_time: Duration::ZERO,
            closed_at: Instant::ZERO,
            spreading: Spreading::new(),
        }
    }

    pub(super) fn set_repair_time(&mut self, time: Duration) {
        self.repair_time = time;
    }

    /// This order begins with the number `first`.
    pub(super) fn begin(&mut self, first: u64) {
        self.window.restart(first);
    }

    /// The first number of this order.
    pub(super) const fn first(&self) -> u64 {
        self.window.begin()
    }

    /// One above the highest number that came.
    pub(super) const fn next(&self) -> u64 {
        self.window.end()
    }

    /// Packets that wait.
    pub(super) fn held(&self) -> usize {
        self.chains.held()
    }

    /// Their bytes.
    pub(super) const fn held_bytes(&self) -> usize {
        self.chains.bytes()
    }

    /// When the wait for a missing packet may be over.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.chains.next_due().map(|(at, _)| at)
    }

    /// Bytes kept for packets to come.
    pub(super) const fn spare_bytes(&self) -> usize {
        self.pool.bytes()
    }

    /// Gives that memory back.
    pub(super) fn release_memory(&mut self) {
        self.pool = Pool::default();
        self.chains.release_memory();
    }

    /// A packet is to be delivered as it comes, but only once. Returns whether it is.
    pub(super) fn let_pass(&mut self, global: u64, stats: &mut Stats) -> bool {
        self.window.advance(global + 1);
        match self.window.fate(global) {
            Fate::Missing | Fate::GivenUp => {
                self.window.deliver(global);
                stats.as_they_came += 1;
                return true;
            }
            Fate::Delivered => stats.duplicates += 1,
            Fate::Below => stats.too_old += 1,
        }
        false
    }

    /// Takes a packet.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        placed: &Placed,
        packet: &Packet<'_>,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) {
        let global = placed.global;
        if !is_tcp(packet.bytes) {
            self.spreading.on_arrival(now);
        }
        self.advance(now, global + 1, shared, out);
        match self.window.fate(global) {
            Fate::Below => shared.stats.too_old += 1,
            Fate::Delivered => shared.stats.duplicates += 1,
            Fate::GivenUp => {
                shared.stats.late += 1;
                self.deliver(now, placed, packet, shared, out);
            }
            Fate::Missing => self.place(now, placed, packet, shared, out),
        }
    }

    /// Takes a packet that was neither delivered nor given up.
    #[inline]
    fn place(
        &mut self,
        now: Instant,
        placed: &Placed,
        packet: &Packet<'_>,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) {
        if !self.chains.is_empty() && self.chains.holds(placed.global) {
            shared.stats.duplicates += 1;
            return;
        }
        let Some(before) = self.make_place(now, placed, packet, shared, out) else {
            shared.stats.in_order += 1;
            return self.deliver(now, placed, packet, shared, out);
        };
        let Placed { global, delay_us, .. } = *placed;
        let deadline = now + self.patience(delay_us, shared);
        let wait = Wait { arrived: now, delay_us, deadline, since: now };
        self.chains.push(before, Held { global, early: self.pool.copy(packet, now) }, wait);
        shared.stats.held_peak = shared.stats.held_peak.max(self.chains.held());
    }

    /// The packet that this one has to wait for.
    fn awaited(&self, placed: &Placed) -> Option<u64> {
        let before = placed.before.filter(|before| *before < placed.global)?;
        (self.window.fate(before) == Fate::Missing).then_some(before)
    }

    /// Makes room for a packet by giving up what is due first; returns the number that it waits for. `None`: none.
    fn make_place(
        &mut self,
        now: Instant,
        placed: &Placed,
        packet: &Packet<'_>,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) -> Option<u64> {
        let Config { max_packets, settings } = *shared.config;
        let is_full = |chains: &Chains| {
            chains.held() >= max_packets || chains.bytes() + packet.bytes.len() > settings.buffer
        };
        let before = self.awaited(placed).filter(|before| !self.chains.is_awaited(*before))?;
        while is_full(&self.chains) {
            let (_, missing) = self.chains.next_due()?;
            self.give_up(now, missing, Cause::Full, shared, out);
        }
        // The one before it may have been among those.
        self.awaited(placed).filter(|awaited| *awaited == before)
    }

    /// Delivers a packet from where it was received, and what waits for it.
    #[inline]
    fn deliver(
        &mut self,
        now: Instant,
        placed: &Placed,
        packet: &Packet<'_>,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) {
        out.deliver(*packet);
        self.window.deliver(placed.global);
        if !self.chains.is_empty()
            && let Some(since) = self.release(now, now, placed.global, shared, out)
        {
            shared.links.on_waited(placed.link, now.since(self.closed_at.max(since)));
            self.closed_at = now;
        }
    }

    /// Delivers what waits for a number and was due then, if anything does, or the first of it; returns since when.
    fn release(
        &mut self,
        now: Instant,
        due: Instant,
        missing: u64,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) -> Option<Instant> {
        let waits = self.chains.are_paused();
        let chain = self.chains.release(missing)?;
        let most = self.spreading.packets(now, waits);
        let (mut next, mut delivered) = (missing, 0);
        while let Some(held) = self.chains.take(next) {
            next = held.global;
            let takes_all = is_tcp(held.early.packet().bytes);
            self.deliver_held(now, held, shared, out);
            if takes_all {
                continue;
            }
            delivered += 1;
            if delivered >= most {
                break;
            }
        }
        let next_turn = self.spreading.spend(now, due, delivered);
        self.chains.pause(next, chain, next_turn);
        Some(chain.wait.since)
    }

    fn deliver_held(
        &mut self,
        now: Instant,
        held: Held,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) {
        let Held { global, early } = held;
        out.deliver(early.packet());
        self.window.deliver(global);
        shared.stats.resequenced += 1;
        let micros = now.since(early.arrived).as_micros();
        shared.waits.record(u64::try_from(micros).unwrap_or(u64::MAX));
        self.pool.recycle(early, shared.config.settings.buffer);
    }

    /// The window takes in a number; what waited for those that leave it is delivered.
    #[inline]
    fn advance(
        &mut self,
        now: Instant,
        end: u64,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) {
        if end <= self.window.end() {
            return;
        }
        if !self.chains.is_empty() {
            let base = self.window.base(end);
            // A packet that waits has a higher number than the one it waits for, so the lowest is missing, not waiting.
            while let Some(lowest) = self.chains.lowest_below(base) {
                self.give_up(now, lowest, Cause::Full, shared, out);
            }
        }
        self.window.advance(end);
    }

    /// Gives up what is due.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) {
        while let Some((at, missing)) = self.chains.next_due()
            && at <= now
        {
            let Some(wait) = self.chains.wait(missing) else { return };
            if self.window.fate(missing) != Fate::Missing {
                self.release(now, at, missing, shared, out);
                continue;
            }
            let deadline = wait.arrived + self.patience(wait.delay_us, shared);
            let deadline = deadline.min(wait.until(MOST));
            if deadline > now {
                self.chains.postpone(missing, deadline);
            } else {
                shared.stats.expiries += 1;
                self.give_up(now, missing, Cause::Deadline, shared, out);
            }
        }
    }

    /// How long a packet that took so long waits for the one before it.
    fn patience(&self, delay_us: i64, shared: &Shared<'_>) -> Duration {
        let most = shared.config.settings.max_wait;
        let patience = deadline::patience(shared.links.worst_us(), delay_us, most);
        patience.saturating_add(self.repair_time).min(MOST)
    }

    fn give_up(
        &mut self,
        now: Instant,
        missing: u64,
        cause: Cause,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
    ) {
        if self.window.fate(missing) == Fate::Missing {
            self.window.give_up(missing);
            match cause {
                Cause::Deadline => shared.stats.skipped_by_deadline += 1,
                Cause::Full => shared.stats.skipped_by_full += 1,
            }
        }
        self.release(now, now, missing, shared, out);
    }

    /// This order ends: what waits is delivered by rising numbers. Calls `undelivered` with the ranges of numbers that may
    /// still come, rising.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        shared: &mut Shared<'_>,
        out: &mut impl PacketSink,
        mut undelivered: impl FnMut(u64, u64),
    ) {
        let mut held: Vec<Held> = self.chains.take_all().collect();
        held.sort_unstable_by_key(|held| held.global);
        for held in held {
            self.deliver_held(now, held, shared, out);
        }
        self.window.undelivered().for_each(|(from, to)| undelivered(from, to));
    }
}

#[cfg(test)]
mod tests;
