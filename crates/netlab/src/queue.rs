//! The bottleneck of a link: a drop-tail queue in front of a transmitter with a limited rate.
//!
//! Departures are computed in virtual time: a packet starts when its predecessor has left (or when
//! it arrives at an idle transmitter) and not when somebody looks, so that the rate is exact
//! however late the caller is.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::time::Instant;
use ropewalk_settings::Bitrate;

use crate::trace::{OPPORTUNITY_BYTES, Trace};

/// How fast a link transmits, counted at IP level.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Rate {
    /// At once: nothing ever waits.
    #[default]
    Unlimited,
    /// A constant rate. At zero everything waits until the rate changes.
    Fixed(Bitrate),
    /// A recorded one, from its beginning at the moment in which it is set.
    Trace(Arc<Trace>),
}

impl Rate {
    /// The rate in the long run; `None` if unlimited.
    #[must_use]
    pub fn mean(&self) -> Option<Bitrate> {
        match self {
            Self::Unlimited => None,
            Self::Fixed(rate) => Some(*rate),
            Self::Trace(trace) => Some(trace.mean_rate()),
        }
    }
}

/// How much may wait, the packet being transmitted included; the tightest limit counts. One packet
/// is always taken, else a limit below one packet's size would close the link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueLimit {
    /// As much as the link's mean rate carries in this time.
    pub time: Option<Duration>,
    /// Bytes at IP level.
    pub bytes: Option<u64>,
    /// Packets.
    pub packets: usize,
}

impl QueueLimit {
    /// What the mean rate carries in `time`.
    #[must_use]
    pub fn of_time(time: Duration) -> Self {
        Self { time: Some(time), ..Self::default() }
    }

    /// The limit in bytes at this rate.
    #[must_use]
    pub fn bytes_at(&self, rate: &Rate) -> u64 {
        let timed = self.time.zip(rate.mean()).map_or(u64::MAX, |(time, rate)| {
            let bytes = u128::from(rate.as_bps()) * time.as_nanos() / 8_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        });
        timed.min(self.bytes.unwrap_or(u64::MAX))
    }
}

impl Default for QueueLimit {
    /// No limit but one that bounds memory: 100,000 full packets are 150 MB, or 1.2 s at 1 Gbit/s.
    fn default() -> Self {
        Self { time: None, bytes: None, packets: 100_000 }
    }
}

/// A packet that waits.
pub(crate) struct Waiting<T> {
    pub(crate) payload: T,
    /// Bytes at IP level.
    pub(crate) size: u64,
    pub(crate) ecn: Ecn,
    pub(crate) arrived: Instant,
}

/// Queue and transmitter.
pub(crate) struct Bottleneck<T> {
    waiting: VecDeque<Waiting<T>>,
    /// Bytes of all that waits.
    bytes: u64,
    pace: Pace,
    /// The packet at the front of `waiting`, being transmitted.
    head: Option<Head>,
}

/// The packet in the transmitter.
struct Head {
    /// When its turn came.
    started: Instant,
    /// When the transmission of `bytes` began: `started`, or the last change of the rate.
    resumed: Instant,
    /// Bytes that were to be transmitted at `resumed`.
    bytes: u64,
    /// When its last bit leaves.
    done: Instant,
}

impl<T> Bottleneck<T> {
    pub(crate) fn new(now: Instant, rate: &Rate) -> Self {
        Self { waiting: VecDeque::new(), bytes: 0, pace: Pace::new(now, rate), head: None }
    }

    /// Packets that wait, with the one being transmitted.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Their bytes at IP level.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Takes a packet, or gives it back if the queue is full.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        packet: Waiting<T>,
        limit_bytes: u64,
        limit_packets: usize,
    ) -> Result<(), Waiting<T>> {
        let full = self.waiting.len() >= limit_packets
            || self.bytes.saturating_add(packet.size) > limit_bytes;
        if full && !self.waiting.is_empty() {
            return Err(packet);
        }
        self.bytes += packet.size;
        self.waiting.push_back(packet);
        if self.head.is_none() {
            self.pace.wake(now);
            self.start(now);
        }
        Ok(())
    }

    /// When the next packet leaves the transmitter.
    pub(crate) fn next_departure(&self) -> Option<Instant> {
        self.head.as_ref().map(|head| head.done)
    }

    /// Takes the packet that leaves next and how long it waited for its turn.
    pub(crate) fn pop(&mut self) -> Option<(Waiting<T>, Duration)> {
        let head = self.head.take()?;
        let packet = self.waiting.pop_front()?;
        self.bytes -= packet.size;
        self.pace.spend(head.bytes);
        self.start(head.done);
        let waited = head.started.since(packet.arrived);
        Some((packet, waited))
    }

    /// Continues at another rate; what is already transmitted of the head stays transmitted.
    pub(crate) fn set_rate(&mut self, now: Instant, rate: &Rate) {
        if self.pace.is(rate) {
            return;
        }
        let left = self.head.as_ref().map(|head| self.pace.left(head, now));
        self.pace = Pace::new(now, rate);
        if let (Some(head), Some(left)) = (&mut self.head, left) {
            self.pace.wake(now);
            (head.resumed, head.bytes) = (now, left);
            head.done = self.pace.finish(now, left);
        }
    }

    /// Takes out everything that waits.
    pub(crate) fn clear(&mut self) -> impl Iterator<Item = T> {
        (self.bytes, self.head) = (0, None);
        self.waiting.drain(..).map(|packet| packet.payload)
    }

    /// Begins to transmit the packet at the front, if there is one.
    fn start(&mut self, now: Instant) {
        self.head = self.waiting.front().map(|packet| Head {
            started: now,
            resumed: now,
            bytes: packet.size,
            done: self.pace.finish(now, packet.size),
        });
    }
}

/// A rate and where the transmitter stands in it.
enum Pace {
    Unlimited,
    Fixed(Bitrate),
    Trace {
        trace: Arc<Trace>,
        origin: Instant,
        /// The next opportunity that is not used.
        next: u64,
        /// Bytes left of the opportunity before it; lost when nothing waits to use them.
        spare: u64,
    },
}

impl Pace {
    fn new(now: Instant, rate: &Rate) -> Self {
        match rate {
            Rate::Unlimited => Self::Unlimited,
            Rate::Fixed(rate) => Self::Fixed(*rate),
            Rate::Trace(trace) => {
                Self::Trace { trace: Arc::clone(trace), origin: now, next: 0, spare: 0 }
            }
        }
    }

    /// Whether this is that rate already (a trace then goes on where it is).
    fn is(&self, rate: &Rate) -> bool {
        match (self, rate) {
            (Self::Unlimited, Rate::Unlimited) => true,
            (Self::Fixed(ours), Rate::Fixed(theirs)) => ours == theirs,
            (Self::Trace { trace, .. }, Rate::Trace(theirs)) => trace == theirs,
            _ => false,
        }
    }

    /// Ends an idle time at `now`: what could have been sent meanwhile is gone.
    fn wake(&mut self, now: Instant) {
        if let Self::Trace { trace, origin, next, spare } = self {
            *next = (*next).max(trace.first_after(*origin, now));
            *spare = 0;
        }
    }

    /// When `bytes` that begin at `start` are out.
    fn finish(&self, start: Instant, bytes: u64) -> Instant {
        match self {
            Self::Unlimited => start,
            Self::Fixed(rate) => start + rate.time_for(bytes),
            Self::Trace { trace, origin, next, spare } => {
                let opportunities = bytes.saturating_sub(*spare).div_ceil(OPPORTUNITY_BYTES);
                match opportunities {
                    0 => start,
                    n => trace.opportunity(*origin, next + n - 1),
                }
            }
        }
    }

    /// Takes note that `bytes` went out.
    fn spend(&mut self, bytes: u64) {
        if let Self::Trace { next, spare, .. } = self {
            let opportunities = bytes.saturating_sub(*spare).div_ceil(OPPORTUNITY_BYTES);
            *next += opportunities;
            *spare = *spare + opportunities * OPPORTUNITY_BYTES - bytes;
        }
    }

    /// How many bytes of the head are not out at `now`.
    fn left(&self, head: &Head, now: Instant) -> u64 {
        let sent = match self {
            Self::Unlimited => head.bytes,
            Self::Fixed(rate) => {
                let nanos = now.since(head.resumed).as_nanos();
                let sent = u128::from(rate.as_bps()) * nanos / 8_000_000_000;
                u64::try_from(sent).unwrap_or(u64::MAX)
            }
            Self::Trace { trace, origin, next, spare } => {
                let passed = trace.first_after(*origin, now).saturating_sub(*next);
                spare.saturating_add(passed.saturating_mul(OPPORTUNITY_BYTES))
            }
        };
        head.bytes.saturating_sub(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u32, size: u64, arrived: Instant) -> Waiting<u32> {
        Waiting { payload: number, size, ecn: Ecn::NotEct, arrived }
    }

    fn fixed(mbps: u64) -> Rate {
        Rate::Fixed(Bitrate::from_mbps(mbps))
    }

    /// Departures in microseconds.
    fn drain(queue: &mut Bottleneck<u32>) -> Vec<(u32, u64)> {
        std::iter::from_fn(|| {
            let at = queue.next_departure()?.as_micros();
            queue.pop().map(|(packet, _)| (packet.payload, at))
        })
        .collect()
    }

    #[test]
    fn a_change_of_rate_counts_for_what_is_not_out_yet() {
        // 1500 bytes take 12 ms at 1 Mbit/s; half of the first is out after 6 ms, the other half takes
        // 1.5 ms at 4 Mbit/s, the second packet 3 ms.
        let mut queue = Bottleneck::new(Instant::ZERO, &fixed(1));
        for n in 0..2 {
            assert!(queue.push(Instant::ZERO, packet(n, 1500, Instant::ZERO), 9999, 9).is_ok());
        }
        queue.set_rate(Instant::from_millis(6), &fixed(4));
        assert_eq!(drain(&mut queue), [(0, 7_500), (1, 10_500)]);
    }

    #[test]
    fn a_stopped_link_keeps_its_packet_until_the_rate_returns() {
        let mut queue = Bottleneck::new(Instant::ZERO, &fixed(0));
        assert!(queue.push(Instant::ZERO, packet(0, 1500, Instant::ZERO), 9999, 9).is_ok());
        assert_eq!(queue.next_departure(), Some(Instant::from_nanos(u64::MAX)));
        queue.set_rate(Instant::from_millis(50), &fixed(1));
        assert_eq!(drain(&mut queue), [(0, 62_000)]);
    }

    #[test]
    fn a_trace_is_used_byte_by_byte_and_idle_opportunities_are_lost() {
        let trace = Arc::new(Trace::parse("1\n2\n3\n4\n5\n6\n".as_bytes()).unwrap());
        let mut queue = Bottleneck::new(Instant::ZERO, &Rate::Trace(trace));
        // Arrives with the opportunity of 1 ms already gone: 2 ms. The next two share that of 3 ms
        // (1000 + 500 bytes), the rest of the third goes at 4 ms together with the fourth.
        let arrival = Instant::from_millis(1);
        for (n, size) in [(0, 1500), (1, 1000), (2, 1000), (3, 1000)] {
            assert!(queue.push(arrival, packet(n, size, arrival), 9999, 9).is_ok());
        }
        assert_eq!(drain(&mut queue), [(0, 2_000), (1, 3_000), (2, 4_000), (3, 4_000)]);
        // What was left of 4 ms is not kept for a packet that comes later; the trace repeats every 6 ms.
        let late = Instant::from_micros(6_500);
        assert!(queue.push(late, packet(9, 3000, late), 9999, 9).is_ok());
        assert_eq!(drain(&mut queue), [(9, 8_000)]);
    }

    #[test]
    fn the_tightest_limit_counts_but_one_packet_is_always_taken() {
        let limit =
            QueueLimit { bytes: Some(50_000), ..QueueLimit::of_time(Duration::from_millis(100)) };
        assert_eq!(limit.bytes_at(&fixed(2)), 25_000);
        assert_eq!(limit.bytes_at(&fixed(8)), 50_000);
        assert_eq!(limit.bytes_at(&Rate::Unlimited), 50_000);

        let mut queue = Bottleneck::new(Instant::ZERO, &fixed(1));
        let now = Instant::ZERO;
        assert!(queue.push(now, packet(0, 1500, now), 1000, 9).is_ok());
        assert!(queue.push(now, packet(1, 1, now), 1000, 9).is_err());
        assert!(queue.push(now, packet(1, 1, now), 9999, 1).is_err());
        assert!(queue.push(now, packet(1, 1, now), 1501, 2).is_ok());
        assert_eq!((queue.len(), queue.bytes()), (2, 1501));
        assert_eq!(queue.clear().count(), 2);
        assert_eq!(queue.next_departure(), None);
    }
}
