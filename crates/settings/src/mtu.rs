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
