//! The size of packets.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

/// The MTU of the TUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mtu {
    /// What fits through all links in use, followed at run time.
    Auto,
    /// At most this many bytes; smaller where a link needs it.
    AtMost(u16),
}

impl Mtu {
    /// IPv6 needs 1280 (RFC 8200 section 5).
    pub const MIN: u16 = 1280;

    /// Jumbo frames end at 9000 on what one buys.
    pub const MAX: u16 = 9000;

    /// The MTU of a TUN while packets of so many bytes fit through all links. With IPv6 inside it is never below 1280:
    /// systems take IPv6 and its addresses off an interface with less. Packets that are then too long for a link are
    /// answered by the core.
    #[must_use]
    pub fn of_tun(self, fits: u16, has_v6: bool) -> u16 {
        let wanted = match self {
            Self::Auto => fits,
            Self::AtMost(most) => fits.min(most),
        };
        if has_v6 { wanted.max(Self::MIN) } else { wanted }
    }
}

impl fmt::Display for Mtu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::AtMost(bytes) => write!(f, "at most {bytes}"),
        }
    }
}

impl<'de> Deserialize<'de> for Mtu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MtuVisitor;

        impl Visitor<'_> for MtuVisitor {
            type Value = Mtu;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of bytes such as 1400, or \"auto\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Mtu, E> {
                match u16::try_from(bytes) {
                    Ok(bytes) if (Mtu::MIN..=Mtu::MAX).contains(&bytes) => Ok(Mtu::AtMost(bytes)),
                    _ => Err(E::custom(format!(
                        "{bytes} is outside {} to {} bytes",
                        Mtu::MIN,
                        Mtu::MAX
                    ))),
                }
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Mtu, E> {
                match text {
                    "auto" => Ok(Mtu::Auto),
                    _ => Err(E::invalid_value(serde::de::Unexpected::Str(text), &self)),
                }
            }
        }

        deserializer.deserialize_any(MtuVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tun_follows_the_links_within_the_users_bound_and_what_ipv6_needs() {
        let table = [
            (1440, Mtu::Auto, true, 1440),
            (1440, Mtu::AtMost(1400), true, 1400),
            (1380, Mtu::AtMost(1400), false, 1380),
            (1140, Mtu::Auto, false, 1140),
            (1140, Mtu::Auto, true, 1280),
        ];
        for (fits, limit, has_v6, expected) in table {
            assert_eq!(limit.of_tun(fits, has_v6), expected, "{fits} {limit:?} {has_v6}");
        }
    }
}
