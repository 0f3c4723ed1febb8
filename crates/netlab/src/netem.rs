//! One direction of one emulated link, without I/O and without a clock.
//!
//! A packet passes, in this order:
//!
//! 1. the cut (an outage takes everything) and the MTU (too large: gone without a word, as behind a
//!    router whose ICMP is filtered);
//! 2. the drop-tail queue and the transmitter ([`crate::queue`]);
//! 3. the CE mark and the random loss, which a packet meets after it used the link's capacity, as
//!    on a radio link;
//! 4. the delay with its jitter.
//!
//! Others may send over the same queue and transmitter ([`Conditions::background`]): their packets take room and
//! time from ours, and are gone behind it.
//!
//! Every moment is computed from the arrival and from departures in virtual time. A caller that
//! polls late gets every packet late, but with the right `due`, and the rate stays exact.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;

use rand::Rng;
use rand::rngs::SmallRng;
use rand_distr::StandardNormal;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::time::{Instant, earliest};
use ropewalk_settings::Bitrate;
use serde::Serialize;

use crate::loss::{Loss, LossState, chance};
use crate::queue::{Bottleneck, Waiting};
pub use crate::queue::{QueueLimit, Rate};

/// Packets between transmitter and receiver that a link holds at most; bounds the memory of a link
/// without a rate. 100,000 full packets are 1.2 s at 1 Gbit/s.
const MAX_IN_FLIGHT: usize = 100_000;

/// The length of others' packets at IP level.
const BACKGROUND_PACKET: u64 = 1500;

/// Bytes of others that wait at most, however long the queue may be: a second at 80 Mbit/s.
const MAX_BACKGROUND: u64 = 10_000_000;

/// What a link does to packets. May be changed at any time.
#[derive(Clone, PartialEq, Debug)]
pub struct Conditions {
    /// How fast the link transmits.
    pub rate: Rate,
    /// One way, apart from queue and transmission.
    pub delay: Duration,
    /// Standard deviation of the delay, which is distributed normally and never below zero.
    pub jitter: Duration,
    /// With it, no packet overtakes its predecessor: one that would waits for it. Jitter then delays
    /// more than `delay` in the mean.
    pub keep_order: bool,
    /// What is lost at random.
    pub loss: Loss,
    /// How much may wait for a transmitter with a rate.
    pub queue: QueueLimit,
    /// What others send over the same queue where there is a rate, in full packets whose gaps vary at random by half.
    /// They lose nothing for our sake, so that what is there for us is the rate less this.
    pub background: Bitrate,
    /// Which ECN-capable packets are marked.
    pub marking: Marking,
    /// The largest packet at IP level that passes, in bytes.
    pub mtu: u32,
    /// Whether the link is cut.
    pub cut: Option<Cut>,
}

impl Default for Conditions {
    /// A perfect cable: no limit of rate, no delay, no loss, packets of any size.
    fn default() -> Self {
        Self {
            rate: Rate::Unlimited,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            keep_order: true,
            loss: Loss::None,
            queue: QueueLimit::default(),
            background: Bitrate::default(),
            marking: Marking::default(),
            mtu: u32::MAX,
            cut: None,
        }
    }
}

/// When an ECN-capable packet gets the mark CE (RFC 3168).
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Marking {
    /// If it waited longer than this for its turn (as `ce_threshold` of Linux's `fq_codel`).
    pub above: Option<Duration>,
    /// And at random with this probability.
    pub probability: f64,
}

/// An outage. Nobody is told: no error, no ICMP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cut {
    /// What arrives is lost; what waits or is under way is still delivered.
    Arrivals,
    /// What waits or is under way is lost too.
    Everything,
}

/// What became of the packets of one direction. Every packet received is in exactly one of the
/// other packet counts, or still inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Counters {
    /// Packets that came in.
    pub received: u64,
    /// Packets that went out.
    pub delivered: u64,
    /// Their bytes at IP level.
    pub delivered_bytes: u64,
    /// Lost by the loss model.
    pub lost: u64,
    /// The queue was full.
    pub queue_full: u64,
    /// Larger than the MTU.
    pub too_big: u64,
    /// Taken by a cut.
    pub cut: u64,
    /// More under way than the emulator holds; a run with any of these says nothing.
    pub overflow: u64,
    /// Delivered with a CE mark that the link set.
    pub marked: u64,
    /// Bytes of others that the link carried beside.
    pub background_bytes: u64,
}

/// A packet that comes out.
#[derive(Debug)]
pub struct Delivery<T> {
    /// What was sent.
    pub payload: T,
    /// Its bytes at IP level.
    pub size: u64,
    /// Its ECN bits now.
    pub ecn: Ecn,
    /// Whether the link changed them to CE.
    pub marked: bool,
    /// When it came in.
    pub arrived: Instant,
    /// When it was to come out.
    pub due: Instant,
}

/// One direction of one link.
pub struct Netem<T> {
    conditions: Conditions,
    /// What comes later, by time.
    changes: VecDeque<(Instant, Conditions)>,
    /// What waits; `None` is a packet of others.
    queue: Bottleneck<Option<T>>,
    /// When others send their next packet.
    background: Option<Instant>,
    /// Bytes of theirs that wait.
    background_waiting: u64,
    flight: BinaryHeap<InFlight<T>>,
    loss: LossState,
    rng: SmallRng,
    /// The latest moment seen; time never runs backwards in here.
    clock: Instant,
    /// When the last packet in order is due.
    last_due: Instant,
    /// Tells packets apart that are due at the same moment.
    next_number: u64,
    counters: Counters,
}

impl<T> Netem<T> {
    /// A link that begins at `now`. The same seed and the same calls give the same result.
    #[must_use]
    pub fn new(now: Instant, conditions: Conditions, rng: SmallRng) -> Self {
        let mut netem = Self {
            queue: Bottleneck::new(now, &conditions.rate),
            background: None,
            background_waiting: 0,
            conditions,
            changes: VecDeque::new(),
            flight: BinaryHeap::new(),
            loss: LossState::default(),
            rng,
            clock: now,
            last_due: now,
            next_number: 0,
            counters: Counters::default(),
        };
        netem.background = netem.next_background(now);
        netem
    }

    /// A packet of `size` bytes at IP level came.
    pub fn handle_packet(&mut self, now: Instant, payload: T, size: usize, ecn: Ecn) {
        self.advance(now);
        let size = size as u64;
        self.counters.received += 1;
        if self.conditions.cut.is_some() {
            self.counters.cut += 1;
        } else if size > u64::from(self.conditions.mtu) {
            self.counters.too_big += 1;
        } else if self.conditions.rate == Rate::Unlimited && self.queue.len() == 0 {
            let packet = Waiting { payload, size, ecn, arrived: self.clock };
            self.depart(self.clock, packet, Duration::ZERO);
        } else {
            let packet = Waiting { payload: Some(payload), size, ecn, arrived: self.clock };
            let limit = self.conditions.queue;
            let bytes = limit.bytes_at(&self.conditions.rate);
            if self.queue.push(self.clock, packet, bytes, limit.packets).is_err() {
                self.counters.queue_full += 1;
            }
        }
    }

    /// When others send a packet that follows one of `at`; `None` while they send nothing.
    fn next_background(&mut self, at: Instant) -> Option<Instant> {
        let Conditions { background, ref rate, .. } = self.conditions;
        if background == Bitrate::default() || *rate == Rate::Unlimited {
            return None;
        }
        Some(at + background.time_for(BACKGROUND_PACKET).mul_f64(self.rng.random_range(0.5..1.5)))
    }

    /// Others send a packet. Ours leave them no less room: theirs have a limit of their own.
    fn handle_background(&mut self, at: Instant) {
        let size = BACKGROUND_PACKET;
        let most = self.conditions.queue.bytes_at(&self.conditions.rate).min(MAX_BACKGROUND);
        let has_room = self.background_waiting + size <= most;
        let packet = Waiting { payload: None, size, ecn: Ecn::NotEct, arrived: at };
        if self.conditions.cut.is_none()
            && has_room
            && self.queue.push(at, packet, u64::MAX, usize::MAX).is_ok()
        {
            self.background_waiting += size;
        }
        self.background = self.next_background(at);
    }

    /// The conditions change at once.
    pub fn handle_change(&mut self, now: Instant, conditions: Conditions) {
        self.advance(now);
        self.change(self.clock, conditions);
    }

    /// The conditions will change at `at`, exactly, whenever the link is polled. What was planned for
    /// the same moment before happens before.
    pub fn plan_change(&mut self, at: Instant, conditions: Conditions) {
        let index = self.changes.partition_point(|(other, _)| *other <= at);
        self.changes.insert(index, (at, conditions));
    }

    /// The next packet that has come out at `now`, in the order in which they are due.
    pub fn poll_packet(&mut self, now: Instant) -> Option<Delivery<T>> {
        self.advance(now);
        if self.flight.peek()?.due > self.clock {
            return None;
        }
        let InFlight { delivery, .. } = self.flight.pop()?;
        self.counters.delivered += 1;
        self.counters.delivered_bytes += delivery.size;
        self.counters.marked += u64::from(delivery.marked);
        Some(delivery)
    }

    /// When [`Self::poll_packet`] has something next, or must be asked to find out. Calling it
    /// earlier is harmless.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let under_way = self.flight.peek().map(|packet| packet.due);
        // A packet that leaves the transmitter cannot come out before the shortest delay has passed.
        let shortest =
            if self.conditions.jitter.is_zero() { self.conditions.delay } else { Duration::ZERO };
        let departure = self.queue.next_departure();
        let waiting = departure.map(|at| at + shortest);
        // A change matters to what waits; what is under way learns of it when it is polled.
        let change = departure.and(self.changes.front().map(|(at, _)| *at));
        earliest(under_way, earliest(waiting, change)).filter(|&at| at < NEVER)
    }

    /// The conditions at the last moment seen.
    #[must_use]
    pub fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// What became of the packets so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets and bytes that wait or are being transmitted.
    #[must_use]
    pub fn backlog(&self) -> (usize, u64) {
        (self.queue.len(), self.queue.bytes())
    }

    /// Brings everything up to `now`, in the order of virtual time.
    fn advance(&mut self, now: Instant) {
        self.clock = self.clock.max(now);
        loop {
            let departure = self.queue.next_departure().filter(|&at| at <= self.clock);
            let change = self.changes.front().map(|(at, _)| *at).filter(|&at| at <= self.clock);
            let background = self.background.filter(|&at| at <= self.clock);
            if let Some(at) = departure
                && earliest(change, background).is_none_or(|other| at <= other)
                && let Some((packet, waited)) = self.queue.pop()
            {
                let Waiting { payload, size, ecn, arrived } = packet;
                match payload {
                    Some(payload) => {
                        self.depart(at, Waiting { payload, size, ecn, arrived }, waited);
                    }
                    None => {
                        self.background_waiting -= size;
                        self.counters.background_bytes += size;
                    }
                }
            } else if let Some(at) = background
                && change.is_none_or(|change| at < change)
            {
                self.handle_background(at);
            } else if change.is_some()
                && let Some((at, conditions)) = self.changes.pop_front()
            {
                self.change(at, conditions);
            } else {
                return;
            }
        }
    }

    /// A packet leaves the transmitter.
    fn depart(&mut self, at: Instant, packet: Waiting<T>, waited: Duration) {
        let marking = &self.conditions.marking;
        let marked = matches!(packet.ecn, Ecn::Ect0 | Ecn::Ect1)
            && (marking.above.is_some_and(|above| waited > above)
                || (marking.probability > 0.0 && chance(marking.probability, &mut self.rng)));
        if self.loss.next_is_lost(&self.conditions.loss, &mut self.rng) {
            self.counters.lost += 1;
            return;
        }
        if self.flight.len() >= MAX_IN_FLIGHT {
            self.counters.overflow += 1;
            return;
        }
        let mut due = at + self.draw_delay();
        if self.conditions.keep_order {
            due = due.max(self.last_due);
        }
        self.last_due = self.last_due.max(due);
        let Waiting { payload, size, ecn, arrived } = packet;
        let ecn = if marked { Ecn::Ce } else { ecn };
        let delivery = Delivery { payload, size, ecn, marked, arrived, due };
        self.flight.push(InFlight { due, number: self.next_number, delivery });
        self.next_number += 1;
    }

    fn draw_delay(&mut self) -> Duration {
        let Conditions { delay, jitter, .. } = self.conditions;
        if jitter.is_zero() {
            return delay;
        }
        let deviation: f64 = self.rng.sample(StandardNormal);
        let seconds = delay.as_secs_f64() + jitter.as_secs_f64() * deviation;
        // Below zero: a packet cannot come before it left.
        Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
    }

    fn change(&mut self, at: Instant, conditions: Conditions) {
        if conditions.cut == Some(Cut::Everything) {
            let before = self.flight.len();
            self.flight.retain(|packet| packet.due <= at);
            let waited = self.queue.clear().flatten().count();
            self.background_waiting = 0;
            self.counters.cut += (before - self.flight.len() + waited) as u64;
        }
        self.queue.set_rate(at, &conditions.rate);
        let others = (conditions.background, conditions.rate == Rate::Unlimited);
        let before = (self.conditions.background, self.conditions.rate == Rate::Unlimited);
        self.conditions = conditions;
        if others != before {
            self.background = self.next_background(at);
        }
    }
}

/// The moment at which a link without a rate transmits: none.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// A packet under way; the one due first is the greatest, for the heap.
struct InFlight<T> {
    due: Instant,
    number: u64,
    delivery: Delivery<T>,
}

impl<T> Ord for InFlight<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        (other.due, other.number).cmp(&(self.due, self.number))
    }
}

impl<T> PartialOrd for InFlight<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> PartialEq for InFlight<T> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl<T> Eq for InFlight<T> {}

#[cfg(test)]
mod tests;
