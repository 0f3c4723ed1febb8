//! One direction of one emulated link, without I/O and without a clock.
//!
//! A packet passes, in this order:
//!
//! 1. the cut (an outage takes everything) and the MTU (too large: gone without a word, as behind a
//!    router whose ICMP is filtered);
//! 2. the drop-tail queue and the transmitter ([`crate::queue`]);
//! 3. the policer, as a provider has one behind a faster access ([`Policer`]);
//! 4. the CE mark and the random loss, which a packet meets after it used the link's capacity, as
//!    on a radio link;
//! 5. the delay with its jitter.
//!
//! Others may send over the same link. Their traffic is either made up ([`Conditions::background`]): it takes room and
//! time from ours, and is gone behind the transmitter. Or it is handed in ([`Netem::handle_foreign`]): it meets
//! whatever ours does, and comes out at the end, but is counted apart.
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

use crate::loss::{LossState, chance};
use crate::queue::{Bottleneck, Waiting};
pub use crate::queue::{QueueLimit, Rate};

mod conditions;
mod policer;
mod waits;

pub use conditions::{Conditions, Cut, Marking};
use policer::Bucket;
pub use policer::Policer;
pub use waits::Waits;

/// Packets between transmitter and receiver that a link holds at most; bounds the memory of a link
/// without a rate. 100,000 full packets are 1.2 s at 1 Gbit/s.
const MAX_IN_FLIGHT: usize = 100_000;

/// The length of others' packets at IP level.
const BACKGROUND_PACKET: u64 = 1500;

/// Bytes of others that wait at most, however long the queue may be: a second at 80 Mbit/s.
const MAX_BACKGROUND: u64 = 10_000_000;

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
    /// The policer's bucket was empty.
    pub policed: u64,
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
    /// Whether others sent it.
    pub foreign: bool,
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
    queue: Bottleneck<Content<T>>,
    /// When the background has its next packet.
    background: Option<Instant>,
    /// Bytes of it that wait.
    background_waiting: u64,
    bucket: Bucket,
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
    foreign: Counters,
    waits: Waits,
}

/// What a packet is.
enum Content<T> {
    /// Ours.
    Own(T),
    /// One that others handed in.
    Foreign(T),
    /// One of the background.
    Background,
}

impl<T> Netem<T> {
    /// A link that begins at `now`. The same seed and the same calls give the same result.
    #[must_use]
    pub fn new(now: Instant, conditions: Conditions, rng: SmallRng) -> Self {
        let mut netem = Self {
            queue: Bottleneck::new(now, &conditions.rate),
            background: None,
            background_waiting: 0,
            bucket: Bucket::new(now),
            conditions,
            changes: VecDeque::new(),
            flight: BinaryHeap::new(),
            loss: LossState::default(),
            rng,
            clock: now,
            last_due: now,
            next_number: 0,
            counters: Counters::default(),
            foreign: Counters::default(),
            waits: Waits::default(),
        };
        netem.background = netem.next_background(now);
        netem
    }

    /// A packet of `size` bytes at IP level came.
    pub fn handle_packet(&mut self, now: Instant, payload: T, size: usize, ecn: Ecn) {
        self.enter(now, Content::Own(payload), size as u64, ecn);
    }

    /// The same of a packet of others.
    pub fn handle_foreign(&mut self, now: Instant, payload: T, size: usize, ecn: Ecn) {
        self.enter(now, Content::Foreign(payload), size as u64, ecn);
    }

    fn enter(&mut self, now: Instant, content: Content<T>, size: u64, ecn: Ecn) {
        self.advance(now);
        let foreign = matches!(content, Content::Foreign(_));
        self.count(foreign).received += 1;
        let packet = Waiting { payload: content, size, ecn, arrived: self.clock };
        if self.conditions.cut.is_some() {
            self.count(foreign).cut += 1;
        } else if size > u64::from(self.conditions.mtu) {
            self.count(foreign).too_big += 1;
        } else if self.conditions.rate == Rate::Unlimited && self.queue.len() == 0 {
            self.leave(self.clock, packet, Duration::ZERO);
        } else {
            let limit = self.conditions.queue;
            let bytes = limit.bytes_at(&self.conditions.rate);
            if self.queue.push(self.clock, packet, bytes, limit.packets).is_err() {
                self.count(foreign).queue_full += 1;
            }
        }
    }

    /// Where packets of others, or ours, are counted.
    fn count(&mut self, foreign: bool) -> &mut Counters {
        if foreign { &mut self.foreign } else { &mut self.counters }
    }

    /// When the background has a packet that follows one of `at`; `None` while there is none.
    fn next_background(&mut self, at: Instant) -> Option<Instant> {
        let Conditions { background, ref rate, .. } = self.conditions;
        if background == Bitrate::default() || *rate == Rate::Unlimited {
            return None;
        }
        Some(at + background.time_for(BACKGROUND_PACKET).mul_f64(self.rng.random_range(0.5..1.5)))
    }

    /// The background has a packet. Ours leave it no less room: it has a limit of its own.
    fn handle_background(&mut self, at: Instant) {
        let size = BACKGROUND_PACKET;
        let most = self.conditions.queue.bytes_at(&self.conditions.rate).min(MAX_BACKGROUND);
        let has_room = self.background_waiting + size <= most;
        let packet = Waiting { payload: Content::Background, size, ecn: Ecn::NotEct, arrived: at };
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
        let counters = self.count(delivery.foreign);
        counters.delivered += 1;
        counters.delivered_bytes += delivery.size;
        counters.marked += u64::from(delivery.marked);
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

    /// What became of our packets so far.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// What became of those that others handed in.
    #[must_use]
    pub fn foreign_counters(&self) -> Counters {
        self.foreign
    }

    /// How long our packets waited so far; none of those dropped before their turn.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.waits
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
                self.leave(at, packet, waited);
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
    fn leave(&mut self, at: Instant, packet: Waiting<Content<T>>, waited: Duration) {
        let Waiting { payload: content, size, ecn, arrived } = packet;
        let (payload, foreign) = match content {
            Content::Own(payload) => (payload, false),
            Content::Foreign(payload) => (payload, true),
            Content::Background => {
                self.background_waiting -= size;
                self.counters.background_bytes += size;
                return;
            }
        };
        if !foreign {
            self.waits.note(waited);
        }
        if let Some(policer) = &self.conditions.policer
            && !self.bucket.admit(policer, at, size)
        {
            self.count(foreign).policed += 1;
            return;
        }
        self.depart(at, Waiting { payload, size, ecn, arrived }, foreign, waited);
    }

    /// A packet goes on its way.
    fn depart(&mut self, at: Instant, packet: Waiting<T>, foreign: bool, waited: Duration) {
        let marking = &self.conditions.marking;
        let marked = matches!(packet.ecn, Ecn::Ect0 | Ecn::Ect1)
            && (marking.above.is_some_and(|above| waited > above)
                || (marking.probability > 0.0 && chance(marking.probability, &mut self.rng)));
        if self.loss.next_is_lost(&self.conditions.loss, &mut self.rng) {
            self.count(foreign).lost += 1;
            return;
        }
        if self.flight.len() >= MAX_IN_FLIGHT {
            self.count(foreign).overflow += 1;
            return;
        }
        let mut due = at + self.draw_delay();
        if self.conditions.keep_order {
            due = due.max(self.last_due);
        }
        self.last_due = self.last_due.max(due);
        let Waiting { payload, size, ecn, arrived } = packet;
        let ecn = if marked { Ecn::Ce } else { ecn };
        let delivery = Delivery { payload, size, ecn, marked, foreign, arrived, due };
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
            let mut cut = [0, 0];
            self.flight.retain(|packet| {
                let comes = packet.due <= at;
                cut[usize::from(packet.delivery.foreign)] += u64::from(!comes);
                comes
            });
            for content in self.queue.clear() {
                match content {
                    Content::Own(_) => cut[0] += 1,
                    Content::Foreign(_) => cut[1] += 1,
                    Content::Background => {}
                }
            }
            self.counters.cut += cut[0];
            self.foreign.cut += cut[1];
            self.background_waiting = 0;
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
