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

/// A higher rate holds for about this time: what waits came at it, and what comes may have paused since.
const MEMORY_MS: f64 = 250.0;

/// Until what still waits has its next turn. Timers are not finer.
pub(super) const PAUSE: Duration = Duration::from_millis(1);

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
            let elapsed_ms = elapsed.as_secs_f64() * 1e3;
            let remembered = self.per_ms * (1.0 - elapsed_ms / MEMORY_MS).max(0.0);
            self.per_ms = remembered.max(f64::from(self.came) / elapsed_ms);
            (self.counted_from, self.came) = (now, 0);
        }
    }

    /// Packets that may be delivered now: at least one.
    pub(super) fn packets(&mut self, now: Instant) -> usize {
        let filled_per_ms = LEAST_PER_MS + FOR_EACH * self.per_ms;
        let filled = filled_per_ms * now.since(self.filled).as_secs_f64() * 1e3;
        self.credit = (self.credit + filled).min(filled_per_ms.max(BURST));
        self.filled = now;
        (self.credit as usize).max(1)
    }

    /// So many were delivered.
    pub(super) fn spend(&mut self, packets: usize) {
        self.credit = (self.credit - packets as f64).max(0.0);
    }
}
