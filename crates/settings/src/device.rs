//! The devices behind a client that shares its tunnel: how one is named, and how much it may have.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

use crate::bitrate::Bitrate;
use crate::text::{Text, by_text};

/// The hardware address of a device (IEEE 802, 48 bits).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        f.pad(&format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"))
    }
}

impl Text for MacAddress {
    const EXPECTED: &'static str = "a hardware address, such as \"52:54:00:12:34:56\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let separator = if text.contains('-') { '-' } else { ':' };
        let mut bytes = [0; 6];
        let mut parts = text.split(separator);
        for byte in &mut bytes {
            let part = parts.next().filter(|part| part.len() == 2).ok_or_else(wrong)?;
            // A sign would be read as part of a number.
            if !part.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return Err(wrong());
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
        }
        if parts.next().is_some() {
            return Err(wrong());
        }
        // The lowest bit of the first byte says that it is a group's (IEEE 802, 8.2).
        if bytes[0] & 1 != 0 {
            return Err(format!("`{text}` is the address of a group of devices, not of one"));
        }
        Ok(Self(bytes))
    }
}

by_text!(MacAddress);

/// How a device is named.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceSelector {
    /// The one with this hardware address.
    Mac(MacAddress),
    /// The one with this address.
    Address(IpAddr),
    /// The one that says this name of itself when it asks for an address; in small letters.
    Name(String),
}

/// Bytes of the longest name of a device: a label of a host's name (RFC 1035 §2.3.4).
const MAX_NAME: usize = 63;

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mac(mac) => mac.fmt(f),
            Self::Address(address) => address.fmt(f),
            Self::Name(name) => f.pad(name),
        }
    }
}

impl Text for DeviceSelector {
    const EXPECTED: &'static str =
        "a device: its name, its hardware address such as \"52:54:00:12:34:56\", or its address";

    fn from_text(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            let is_one =
                !(address.is_unspecified() || address.is_multicast() || address.is_loopback());
            return match is_one {
                true => Ok(Self::Address(address)),
                false => Err(format!("`{text}` is no device's address")),
            };
        }
        let digits = |separator: char| text.split(separator).count() == 6;
        let looks_like_mac = text.len() == 17 && (digits(':') || digits('-'));
        if looks_like_mac && let Ok(mac) = MacAddress::from_text(text) {
            return Ok(Self::Mac(mac));
        }
        if text.contains(':') {
            return MacAddress::from_text(text).map(Self::Mac);
        }
        let is_usual = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if text.is_empty() || text.len() > MAX_NAME || !text.bytes().all(is_usual) {
            return Err(format!("`{text}` is not {}", Self::EXPECTED));
        }
        Ok(Self::Name(text.to_ascii_lowercase()))
    }
}

by_text!(DeviceSelector);

/// How much a device may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceLimit {
    /// Which device.
    pub device: DeviceSelector,
    /// The most that comes to it; `None`: as much as there is.
    pub down: Option<Bitrate>,
    /// The most that it sends through the tunnel; `None`: as much as there is.
    pub up: Option<Bitrate>,
}

impl DeviceLimit {
    /// What a limit may be, bit/s: with less a packet of full length waits for more than a tenth of a second, and the
    /// kernel counts the rate of a queue as bytes in 32 bits.
    pub const RANGE: RangeInclusive<u64> = 100_000..=10_000_000_000;

    /// Whether both rates can be limits.
    ///
    /// # Errors
    /// What is wrong, for the user.
    pub fn check(&self) -> Result<(), String> {
        if self.down.is_none() && self.up.is_none() {
            return Err(format!("{}: a limit says `down`, `up` or both", self.device));
        }
        for (name, rate) in [("down", self.down), ("up", self.up)] {
            if let Some(rate) = rate.filter(|rate| !Self::RANGE.contains(&rate.as_bps())) {
                return Err(format!(
                    "{}: {name} = {rate} is outside {} to {}",
                    self.device,
                    Bitrate::from_bps(*Self::RANGE.start()),
                    Bitrate::from_bps(*Self::RANGE.end())
                ));
            }
        }
        Ok(())
    }
}

impl fmt::Display for DeviceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.device)?;
        if let Some(down) = self.down {
            write!(f, " at most {down} down")?;
        }
        if let Some(up) = self.up {
            let and = if self.down.is_some() { "," } else { " at most" };
            write!(f, "{and} {up} up")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_named_by_what_the_text_looks_like() {
        let mac = MacAddress([0x52, 0x54, 0, 0x12, 0x34, 0x56]);
        for (text, expected) in [
            ("52:54:00:12:34:56", DeviceSelector::Mac(mac)),
            ("52-54-00-12-34-56", DeviceSelector::Mac(mac)),
            (
                "52:54:00:12:34:5A",
                DeviceSelector::Mac(MacAddress([0x52, 0x54, 0, 0x12, 0x34, 0x5a])),
            ),
            ("192.168.77.20", DeviceSelector::Address("192.168.77.20".parse().unwrap())),
            ("2001:db8::20", DeviceSelector::Address("2001:db8::20".parse().unwrap())),
            ("Kids-Tablet", DeviceSelector::Name("kids-tablet".into())),
            ("tv_1", DeviceSelector::Name("tv_1".into())),
            ("aa-bb-cc-dd-ee-tv", DeviceSelector::Name("aa-bb-cc-dd-ee-tv".into())),
        ] {
            let device = DeviceSelector::from_text(text).unwrap();
            assert_eq!(device, expected, "{text}");
            assert_eq!(DeviceSelector::from_text(&device.to_string()), Ok(device), "{text}");
        }
    }

    #[test]
    fn what_names_no_device_is_told_with_what_does() {
        for (text, expected) in [
            ("", "is not a device"),
            ("the tv", "is not a device"),
            ("tv.lan", "is not a device"),
            ("52:54:00:12:34", "is not a hardware address"),
            ("52:54:00:12:34:56:78", "is not a hardware address"),
            ("+2:54:00:12:34:56", "is not a hardware address"),
            ("53:54:00:12:34:56", "of a group of devices"),
            ("0.0.0.0", "is no device's address"),
            ("ff02::1", "is no device's address"),
        ] {
            let error = DeviceSelector::from_text(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
        assert!(DeviceSelector::from_text(&"x".repeat(64)).is_err());
    }

    #[test]
    fn a_limit_says_at_least_one_way_within_what_can_be_kept() {
        let limit = |down: Option<u64>, up: Option<u64>| DeviceLimit {
            device: DeviceSelector::Name("tv".into()),
            down: down.map(Bitrate::from_bps),
            up: up.map(Bitrate::from_bps),
        };
        for (limit, shown) in [
            (limit(Some(5_000_000), None), "tv at most 5 Mbit/s down"),
            (limit(None, Some(1_000_000)), "tv at most 1 Mbit/s up"),
            (limit(Some(5_000_000), Some(1_000_000)), "tv at most 5 Mbit/s down, 1 Mbit/s up"),
        ] {
            assert_eq!((limit.check(), limit.to_string().as_str()), (Ok(()), shown));
        }
        for (limit, expected) in [
            (limit(None, None), "tv: a limit says `down`, `up` or both"),
            (
                limit(Some(99_999), None),
                "tv: down = 99.999 kbit/s is outside 100 kbit/s to 10 Gbit/s",
            ),
            (limit(None, Some(20_000_000_000)), "up = 20 Gbit/s is outside"),
        ] {
            let error = limit.check().unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }
}
