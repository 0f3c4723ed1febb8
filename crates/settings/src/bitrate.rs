//! Rates, with the arithmetic of their unit.

use std::fmt;
use std::time::Duration;

use crate::text::{Text, by_text};

/// Bits per second.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bitrate(u64);

impl Bitrate {
    /// Lowest and highest rate that can be told, bit/s: a modem, and more than a kernel forwards.
    const TELLABLE: std::ops::RangeInclusive<u64> = 1_000..=1_000_000_000_000;

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
    #[inline]
    #[must_use]
    pub fn time_for(self, bytes: u64) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        // What a datagram has is asked for each of them: the wide division is for gigabytes.
        let nanos = match bytes.checked_mul(8_000_000_000) {
            Some(bits) => bits / self.0,
            None => {
                let nanos = u128::from(bytes) * 8_000_000_000 / u128::from(self.0);
                u64::try_from(nanos).unwrap_or(u64::MAX)
            }
        };
        Duration::from_nanos(nanos)
    }
}

impl fmt::Debug for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}bit/s", self.0)
    }
}

impl Text for Bitrate {
    const EXPECTED: &'static str = "a rate with its unit, such as \"20 Mbit/s\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not {}", Self::EXPECTED);
        let split = text.find(|c: char| c.is_alphabetic()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(split);
        let number: f64 = number.trim().parse().map_err(|_| bad())?;
        let unit = Unit::of(unit.trim()).ok_or_else(bad)?;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and the bounds are checked"
        )]
        let bits = (number * unit.bits).round() as u64;
        let is_tellable = number.is_finite() && Self::TELLABLE.contains(&bits);
        if unit.is_bytes {
            let bits = is_tellable.then(|| format!(": write \"{}\"", Self(bits)));
            return Err(format!(
                "`{text}` is bytes, and a rate is told in bits{}",
                bits.unwrap_or_default()
            ));
        }
        if is_tellable {
            return Ok(Self(bits));
        }
        Err(format!("`{text}` is outside 1 kbit/s to 1000 Gbit/s"))
    }
}

/// A unit of a rate, as people write it.
struct Unit {
    /// Bits per second.
    bits: f64,
    is_bytes: bool,
}

impl Unit {
    /// Bits and bytes differ by a capital only: `Mbps` and `MBps`.
    fn of(text: &str) -> Option<Self> {
        let (factor, rest) = match text.split_at_checked(1)? {
            ("k" | "K", rest) => (1e3, rest),
            ("m" | "M", rest) => (1e6, rest),
            ("g" | "G", rest) => (1e9, rest),
            _ => (1.0, text),
        };
        let is_bytes = match (rest, rest.to_ascii_lowercase().as_str()) {
            (_, "bit/s" | "bit" | "bits" | "bits/s") | ("bps" | "b/s" | "b", _) => false,
            (_, "byte/s" | "bytes/s") | ("Bps" | "B/s" | "B", _) => true,
            _ => return None,
        };
        Some(Self { bits: factor * if is_bytes { 8.0 } else { 1.0 }, is_bytes })
    }
}

impl fmt::Display for Bitrate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "at most 10^12")]
        let bits = self.0 as f64;
        match self.0 {
            0..1_000_000 => write!(f, "{} kbit/s", bits / 1e3),
            1_000_000..1_000_000_000 => write!(f, "{} Mbit/s", bits / 1e6),
            _ => write!(f, "{} Gbit/s", bits / 1e9),
        }
    }
}

by_text!(Bitrate);

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
    fn a_rate_is_read_as_people_write_it_and_bytes_are_told_as_bits() {
        let table = [
            ("5Mbps", Ok(5_000_000)),
            ("5 mbps", Ok(5_000_000)),
            ("5 Mb/s", Ok(5_000_000)),
            ("5 MBit/s", Ok(5_000_000)),
            ("300 kbps", Ok(300_000)),
            ("2.5 Gbps", Ok(2_500_000_000)),
            ("64000 bps", Ok(64_000)),
            ("5 MB/s", Err("is bytes, and a rate is told in bits: write \"40 Mbit/s\"")),
            ("5MBps", Err("write \"40 Mbit/s\"")),
            ("125 kB/s", Err("write \"1 Mbit/s\"")),
            ("999 GB/s", Err("`999 GB/s` is bytes")),
            ("5", Err("such as \"20 Mbit/s\"")),
            ("5 M", Err("such as \"20 Mbit/s\"")),
            ("5 parsec", Err("such as \"20 Mbit/s\"")),
            ("5 é", Err("such as \"20 Mbit/s\"")),
        ];
        for (text, expected) in table {
            match (Bitrate::from_text(text), expected) {
                (Ok(rate), Ok(bps)) => assert_eq!(rate.as_bps(), bps, "{text}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn a_rate_is_the_same_after_the_way_through_text() {
        for bps in [1_000, 1_500, 999_999, 1_000_000, 12_345_678, 20_000_000, 1_000_000_000_000] {
            let rate = Bitrate::from_bps(bps);
            assert_eq!(Bitrate::from_text(&rate.to_string()), Ok(rate), "{rate}");
        }
    }
}
