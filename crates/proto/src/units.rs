//! Identifiers and quantities with their units; the only place with unit arithmetic.

use std::fmt;
use std::time::Duration;

/// One UDP path of a tunnel, as named on the wire. The client gives the ids; within one key an id
/// is never given twice (PROTOCOL §5).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u8);

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "link{}", self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The 24-bit index by which a receiver finds the session of a datagram (PROTOCOL §2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct SessionIndex(u32);

impl SessionIndex {
    /// The largest index.
    pub const MAX: u32 = 0xff_ffff;

    /// Takes the low 24 bits of `value`.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value & Self::MAX)
    }

    /// The index as a number below 2^24.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bitrate(u64);

impl Bitrate {
    /// `bps` bits per second.
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// `kbps` thousand bits per second.
    #[must_use]
    pub const fn from_kbps(kbps: u32) -> Self {
        Self(kbps as u64 * 1_000)
    }

    /// `mbps` million bits per second.
    #[must_use]
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(1_000_000))
    }

    /// The rate at which `bytes` in `duration` arrive; zero for no time at all.
    #[must_use]
    pub fn from_bytes_in(bytes: u64, duration: Duration) -> Self {
        let nanos = duration.as_nanos();
        if nanos == 0 {
            return Self(0);
        }
        Self(u64::try_from(u128::from(bytes) * 8_000_000_000 / nanos).unwrap_or(u64::MAX))
    }

    /// Bits per second.
    #[must_use]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// In units of 1,000 bit/s, rounded down; what is more than nothing is at least one.
    #[must_use]
    pub fn as_kbps(self) -> u32 {
        u32::try_from((self.0 / 1000).max(u64::from(self.0 > 0))).unwrap_or(u32::MAX)
    }

    /// How long `bytes` take at this rate; `Duration::MAX` at a rate of zero.
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(self.0);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl fmt::Debug for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}bit/s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_packet_takes_twelve_milliseconds_at_one_megabit() {
        assert_eq!(Bitrate::from_mbps(1).time_for(1500), Duration::from_millis(12));
        assert_eq!(Bitrate::from_bytes_in(1500, Duration::from_millis(12)), Bitrate::from_mbps(1));
    }

    #[test]
    fn rates_of_nothing_neither_divide_by_zero_nor_overflow() {
        assert_eq!(Bitrate::default().time_for(1), Duration::MAX);
        assert_eq!(Bitrate::from_bytes_in(9, Duration::ZERO), Bitrate::default());
        assert_eq!(Bitrate::from_bytes_in(u64::MAX, Duration::from_nanos(1)).as_bps(), u64::MAX);
    }

    #[test]
    fn a_session_index_keeps_twenty_four_bits() {
        assert_eq!(SessionIndex::new(0x1234_5678).get(), 0x34_5678);
    }
}
