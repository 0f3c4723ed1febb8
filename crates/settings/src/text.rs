//! The one way from text to value; [`Parsed`] makes serde take it, so that an error stands
//! at the value and says what was expected, with the unit.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value that is written as text in a config file.
pub trait Text: Sized {
    /// What to write, with an example: "a duration with its unit, such as \"15s\"".
    const EXPECTED: &'static str;

    /// Reads the value.
    ///
    /// # Errors
    /// What is wrong, for the user.
    fn from_text(text: &str) -> Result<Self, String>;
}

/// Lets serde read a [`Text`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<T>(pub T);

impl<'de, T: Text> Deserialize<'de> for Parsed<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor(PhantomData)).map(Parsed)
    }
}

impl Serialize for Parsed<Duration> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&humantime::format_duration(self.0))
    }
}

impl Serialize for Parsed<ByteSize> {
    /// In bytes: a larger unit would round.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{} B", self.0.as_u64()))
    }
}

struct TextVisitor<T>(PhantomData<T>);

impl<T: Text> Visitor<'_> for TextVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        T::from_text(text).map_err(E::custom)
    }
}

/// One text or a list of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<'de, T: Text> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ListVisitor(PhantomData)).map(OneOrMany)
    }
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Text> Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, or a list of them", T::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Vec<T>, E> {
        T::from_text(text).map(|one| vec![one]).map_err(E::custom)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<T>, A::Error> {
        let mut values = Vec::new();
        while let Some(Parsed(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(values)
    }
}

impl Text for Duration {
    const EXPECTED: &'static str = "a duration with its unit, such as \"15s\" or \"100ms\"";

    fn from_text(text: &str) -> Result<Self, String> {
        // humantime reads a bare 0 as no time; here every duration has its unit.
        let unit = text.chars().any(char::is_alphabetic);
        match humantime::parse_duration(text) {
            Ok(duration) if unit => Ok(duration),
            Ok(_) => Err(format!("`{text}` has no unit: write {}", Self::EXPECTED)),
            Err(error) => Err(format!("`{text}` is not {}: {error}", Self::EXPECTED)),
        }
    }
}

impl Text for ByteSize {
    const EXPECTED: &'static str = "a size with its unit, such as \"16MiB\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.chars().all(|c| c.is_ascii_digit()) {
            return Err(format!("`{text}` has no unit: write {}", Self::EXPECTED));
        }
        text.parse().map_err(|error| format!("`{text}` is not {}: {error}", Self::EXPECTED))
    }
}

/// A prefix in which bits beyond its length are set means something else than it says.
macro_rules! prefix {
    ($type:ty, $expected:literal) => {
        impl Text for $type {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Result<Self, String> {
                let prefix: Self =
                    text.parse().map_err(|_| format!("`{text}` is not {}", Self::EXPECTED))?;
                if prefix == prefix.trunc() {
                    Ok(prefix)
                } else {
                    Err(format!(
                        "`{text}` has bits set beyond its length: write \"{}\"",
                        prefix.trunc()
                    ))
                }
            }
        }
    };
}

prefix!(IpNet, "a prefix, such as \"10.0.0.0/8\" or \"2001:db8::/32\"");
prefix!(Ipv4Net, "an IPv4 prefix, such as \"10.77.0.0/16\"");
prefix!(Ipv6Net, "an IPv6 prefix, such as \"fd12:3456:789a::/64\"");

/// Types whose own `FromStr` says all there is to say.
macro_rules! plain {
    ($type:ty, $expected:literal) => {
        impl Text for $type {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Result<Self, String> {
                text.parse().map_err(|_| format!("`{text}` is not {}", Self::EXPECTED))
            }
        }
    };
}

plain!(SocketAddr, "an address with a port, such as \"[::]:51900\" or \"192.0.2.1:51900\"");
plain!(IpAddr, "an address, such as \"192.168.1.1\" or \"fe80::1\"");
plain!(Ipv4Addr, "an IPv4 address, such as \"10.77.0.5\"");
plain!(Ipv6Addr, "an IPv6 address, such as \"fd12:3456:789a::5\"");

/// Makes serde read and write a type as its [`Text`], which its `Display` shows.
macro_rules! by_text {
    ($type:ty) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                crate::text::Parsed::deserialize(deserializer).map(|read| read.0)
            }
        }

        impl serde::Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    };
}

/// Makes choices show as they are written.
macro_rules! shown_as_written {
    ($($type:ty),*) => {$(
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                serde::Serialize::serialize(self, f)
            }
        }
    )*};
}

pub(crate) use {by_text, shown_as_written};

/// Whether a duration lies within its range; the message names it.
pub(crate) fn in_range(duration: Duration, range: &RangeInclusive<Duration>) -> Result<(), String> {
    if range.contains(&duration) {
        return Ok(());
    }
    Err(format!(
        "{} is outside {} to {}",
        humantime::format_duration(duration),
        humantime::format_duration(*range.start()),
        humantime::format_duration(*range.end())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{InterfaceName, Keepalive};

    #[test]
    fn values_that_make_no_sense_say_why() {
        let cases: [(Result<(), String>, &str); 9] = [
            (unit::<Duration>("15"), "`15` is not a duration with its unit"),
            (unit::<Duration>("0"), "`0` has no unit"),
            (unit::<Duration>("15 sek"), "unknown time unit"),
            (unit::<ByteSize>("16"), "has no unit"),
            (unit::<ByteSize>("16 MeB"), "is not a size with its unit"),
            (unit::<IpNet>("10.0.0.5/8"), "write \"10.0.0.0/8\""),
            (unit::<IpNet>("10.0.0.0/33"), "is not a prefix"),
            (unit::<InterfaceName>("a-name-much-too-long"), "has 20 characters"),
            (unit::<Keepalive>("20m"), "20m is outside 500ms to 10m"),
        ];
        for (result, expected) in cases {
            let message = result.unwrap_err();
            assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        }
        assert_eq!(Keepalive::from_text("15s"), Ok(Keepalive::default()));
        assert_eq!(Keepalive::from_text("auto"), Ok(Keepalive::Auto));
        assert_eq!(Keepalive::from_text("off"), Ok(Keepalive::Off));
        assert_eq!(Duration::from_text("1m 30s"), Ok(Duration::from_secs(90)));
    }

    fn unit<T: Text>(text: &str) -> Result<(), String> {
        T::from_text(text).map(|_| ())
    }
}
