//! How much of what waited is delivered at once, when what it waited for has come.
//!
//! TCP takes all. A socket of UDP does not: its buffer, 212,992 bytes by default on Linux, holds 92 full packets, for each counts
//! for 2,304 bytes there, and its application loses the rest. So what is not TCP is spread: [`BURST`] packets at once, and then somewhat more
//! than what comes, whatever waits. The application may then take some milliseconds to be woken, as it may where no packet waits.

use crate::time::{Duration, Instant};

/// Packets at once. A quarter of what the buffer of a socket holds.
const BURST: f64 = 24.0;

/// Packets in each millisecond beside those that come: 96 Mbit/s of full packets. So what waits goes soon where little or nothing comes.
const LEAST_PER_MS: f64 = 8.0;

/// Packets for each that comes. More than one, so that a flow of any rate catches up.
const FOR_EACH: f64 = 1.25;

/// The rate at which packets come is told by so much time: a radio brings them in trains that are some milliseconds apart.
const COUNTED: Duration = Duration::from_millis(8);

/// A higher rate is forgotten in about this time: as long as a packet waits at most, since what waits came at it.
const MEMORY: Duration = super::MOST;

/// Packets to one socket at once, however late a turn comes or high the rate of all flows is: half of what its buffer holds.
const MOST_AT_ONCE: usize = 46;

/// Until what still waits has its next turn, at least and at most. A timer is exact to about 0.1 ms.
const PAUSE: (Duration, Duration) = (Duration::from_micros(200), Duration::from_millis(1));

/// While packets wait for their turn, what may go adds up over so long a delay of it: a busy machine comes to it some milliseconds late.
const LATE: Duration = Duration::from_millis(16);

/// What may be delivered of what waited: a token bucket (RFC 2697) that fills faster than packets come.
#[derive(Debug)]
pub(super) struct Spreading {
    /// Since when packets are counted, and how many came.
    counted_from: Instant,
    came: u32,
    /// Packets that come in a millisecond.
    per_ms: f64,
    /// Packets that may be delivered, and up to when the bucket was filled.
    credit: f64,
    filled: Instant,
}

impl Spreading {
    pub(super) const fn new() -> Self {
        Self {
            counted_from: Instant::ZERO,
            came: 0,
            per_ms: 0.0,
            credit: BURST,
            filled: Instant::ZERO,
        }
    }

    /// A packet that is not TCP's has come.
    #[inline]
    pub(super) fn on_arrival(&mut self, now: Instant) {
        self.came = self.came.saturating_add(1);
        let elapsed = now.since(self.counted_from);
        if elapsed >= COUNTED {
            let forgotten = millis(elapsed) / millis(MEMORY);
            let remembered = self.per_ms * (1.0 - forgotten).max(0.0);
            self.per_ms = remembered.max(f64::from(self.came) / millis(elapsed));
            (self.counted_from, self.came) = (now, 0);
        }
    }

    /// Packets to one socket that may be delivered now: at least one. `waits`: some wait for their turn already.
    pub(super) fn packets(&mut self, now: Instant, waits: bool) -> usize {
        let filled = self.filled_per_ms() * millis(now.since(self.filled));
        let most = if waits { self.filled_per_ms() * millis(LATE) } else { 0.0 };
        self.credit = (self.credit + filled).min(most.max(BURST));
        self.filled = now;
        (self.credit as usize).clamp(1, MOST_AT_ONCE)
    }

    /// So many were delivered. Returns when more may be, if they were due then.
    pub(super) fn spend(&mut self, now: Instant, due: Instant, packets: usize) -> Instant {
        let (least, most) = PAUSE;
        self.credit = (self.credit - packets as f64).max(0.0);
        if self.credit < 1.0 {
            return now + most;
        }
        let pause = Duration::from_secs_f64(packets as f64 / self.filled_per_ms() * 1e-3);
        due + pause.clamp(least, most)
    }

    fn filled_per_ms(&self) -> f64 {
        LEAST_PER_MS + FOR_EACH * self.per_ms
    }
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
