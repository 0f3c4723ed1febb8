//! The values of a config file that are written as text: durations, sizes, names, prefixes, keys.
//!
//! [`Text`] is the one way from text to value; [`Parsed`] makes serde take it, so that an error stands
//! at the value and says what was expected, with the unit.

use std::fmt;
use std::marker::PhantomData;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::keys::{PresharedKey, PrivateKey, PublicKey};

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

impl Text for bytesize::ByteSize {
    const EXPECTED: &'static str = "a size with its unit, such as \"16MiB\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if text.chars().all(|c| c.is_ascii_digit()) {
            return Err(format!("`{text}` has no unit: write {}", Self::EXPECTED));
        }
        text.parse().map_err(|error| format!("`{text}` is not {}: {error}", Self::EXPECTED))
    }
}

/// An amount of data, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataSize(pub u64);

impl DataSize {
    /// Least and largest amount that anybody can mean.
    const RANGE: std::ops::RangeInclusive<u64> = 1_000_000..=1_000_000_000_000_000;
}

impl Text for DataSize {
    const EXPECTED: &'static str =
        "an amount of data with its unit, such as \"50 GB\" (10^9 bytes) or \"50 GiB\" (2^30)";

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not {}", Self::EXPECTED);
        let split = text.find(|c: char| c.is_alphabetic());
        let (number, unit) = text.split_at(split.unwrap_or(text.len()));
        let number: f64 = number.trim().parse().map_err(|_| bad())?;
        let factor = match unit.trim() {
            "MB" => 1e6,
            "GB" => 1e9,
            "TB" => 1e12,
            "MiB" => 1024.0 * 1024.0,
            "GiB" => 1024.0 * 1024.0 * 1024.0,
            "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
            "" => return Err(format!("`{text}` has no unit: write {}", Self::EXPECTED)),
            bits if bits.to_ascii_lowercase().contains("bit") || bits.ends_with('b') => {
                return Err(format!("`{text}` means bits: write {}", Self::EXPECTED));
            }
            other => {
                let what = format!("`{}` is no unit of data here", other.escape_debug());
                return Err(format!("{what}: write {}", Self::EXPECTED));
            }
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a cast of a float saturates, and the bounds are checked"
        )]
        let bytes = (number * factor).round() as u64;
        if number.is_finite() && Self::RANGE.contains(&bytes) {
            return Ok(Self(bytes));
        }
        Err(format!("`{text}` is outside 1 MB to 1000 TB"))
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

/// Keys: the error never repeats the text.
macro_rules! key {
    ($type:ty, $expected:literal) => {
        impl Text for $type {
            const EXPECTED: &'static str = $expected;

            fn from_text(text: &str) -> Result<Self, String> {
                text.parse().map_err(|error: crate::keys::KeyError| error.to_string())
            }
        }
    };
}

key!(PublicKey, "a public key: 44 characters of base64");
key!(PrivateKey, "a private key: 44 characters of base64");
key!(PresharedKey, "a preshared key: 44 characters of base64");

/// The name of a network interface as the kernel takes it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct InterfaceName(String);

impl InterfaceName {
    /// Bytes of the longest name (Linux: `IFNAMSIZ` less the final zero).
    pub const MAX_BYTES: usize = 15;

    /// The interface of this name, which need not exist.
    ///
    /// # Errors
    /// The kernel could not give an interface this name; the message says why.
    pub fn new(name: &str) -> Result<Self, String> {
        Self::from_text(name)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InterfaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Text for InterfaceName {
    const EXPECTED: &'static str = "the name of an interface, such as \"wlan0\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let legal = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | ':' | '%');
        if text.is_empty() || matches!(text, "." | "..") || !text.chars().all(legal) {
            return Err(format!("`{text}` is not {}", Self::EXPECTED));
        }
        if text.len() > Self::MAX_BYTES {
            return Err(format!(
                "`{text}` has {} characters; an interface's name has at most {}",
                text.len(),
                Self::MAX_BYTES
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A name or address of a host, and a UDP port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostPort {
    /// A DNS name, or an address without brackets.
    pub host: String,
    /// The UDP port.
    pub port: u16,
}

impl HostPort {
    /// The address, where the host is not a name.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, self.port))
    }

    fn of_address(address: SocketAddr) -> Result<Self, String> {
        match unusable(address.ip()) {
            Some(why) => Err(format!("`{address}` cannot be sent to: {why}")),
            None => Ok(Self { host: address.ip().to_string(), port: address.port() }),
        }
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            Some(address) => write!(f, "{address}"),
            None => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl Text for HostPort {
    const EXPECTED: &'static str = "a host and a port, such as \"vps.example.org:51900\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        // An address alone, IPv6 with or without brackets: the default port.
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Self::of_address(SocketAddr::new(ip, super::DEFAULT_PORT));
        }
        if let Ok(address) = text.parse::<SocketAddr>() {
            return match address.port() {
                0 => Err(format!("`{text}`: port 0 is no port")),
                _ => Self::of_address(address),
            };
        }
        let (host, port) = match text.split_once(':') {
            None => (text, super::DEFAULT_PORT),
            Some((host, port)) => match port.parse() {
                Ok(0) | Err(_) => {
                    return Err(format!("`{text}`: the port must be 1 to 65535"));
                }
                Ok(port) => (host, port),
            },
        };
        if is_dns_name(host) { Ok(Self { host: host.to_owned(), port }) } else { Err(wrong()) }
    }
}

/// Why an address cannot be that of the other end, on whatever link; `None` if it can.
#[must_use]
pub fn unusable(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    let (link_local, broadcast) = match address {
        IpAddr::V4(ip) => (ip.is_link_local(), ip.is_broadcast()),
        IpAddr::V6(ip) => (ip.is_unicast_link_local(), false),
    };
    if link_local {
        Some("a link-local address means another machine on each link")
    } else if address.is_unspecified() {
        Some("it is no machine's address")
    } else if address.is_multicast() || broadcast {
        Some("it means many machines")
    } else {
        None
    }
}

/// Whether a client could ask for names at this address through a tunnel: it is that of one other machine.
#[must_use]
pub fn is_name_server(address: IpAddr) -> bool {
    unusable(address).is_none() && !address.to_canonical().is_loopback()
}

/// RFC 1123 section 2.1 with underscores, which some resolvers' names have.
fn is_dns_name(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name of digits only is a mistyped address: 192.0.2 or 300.1.2.3.
    let numeric = host.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    host.len() <= 253 && !numeric && host.split('.').all(label)
}

/// How often an idle link sends something, so that the NATs on its way keep it open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keepalive {
    /// This long after the last datagram.
    Every(Duration),
    /// Adapted to the NAT.
    Auto,
    /// Never: the proxy may lose an idle link.
    Off,
}

impl Keepalive {
    /// Half of the shortest UDP timeout that is common among NATs (30 s, the default of Linux's
    /// conntrack for a flow without reply): one lost keepalive does no harm.
    pub const DEFAULT: Self = Self::Every(Duration::from_secs(15));

    /// Shorter would be traffic, not a keepalive.
    pub const MIN: Duration = Duration::from_millis(500);

    /// Longer keeps no NAT open (RFC 4787 REQ-5 recommends 5 minutes or more as the NAT's timeout).
    pub const MAX: Duration = Duration::from_secs(600);
}

impl fmt::Display for Keepalive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Every(interval) => write!(f, "{}", humantime::format_duration(*interval)),
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
        }
    }
}

impl Text for Keepalive {
    const EXPECTED: &'static str = "a duration such as \"15s\", or \"auto\", or \"off\"";

    fn from_text(text: &str) -> Result<Self, String> {
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            _ => match Duration::from_text(text) {
                Err(_) => Err(format!("`{text}` is not {}", Self::EXPECTED)),
                Ok(interval) => in_range(interval, Self::MIN, Self::MAX).map(Self::Every),
            },
        }
    }
}

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

/// Whether a duration lies within these bounds; the message names them.
pub(super) fn in_range(
    duration: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, String> {
    if (least..=most).contains(&duration) {
        return Ok(duration);
    }
    Err(format!(
        "{} is outside {} to {}",
        humantime::format_duration(duration),
        humantime::format_duration(least),
        humantime::format_duration(most)
    ))
}

/// Whether a path of a file that the daemon makes is absolute: a daemon has no folder of its own.
///
/// # Errors
/// It is not; for the user.
pub fn absolute(path: &Path) -> Result<(), String> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(format!("`{}` is not an absolute path", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_of_data_are_decimal_or_binary_and_never_bits_or_nonsense() {
        let table = [
            ("50 GB", Ok(50_000_000_000)),
            ("50GB", Ok(50_000_000_000)),
            ("1.5 TB", Ok(1_500_000_000_000)),
            ("2 GiB", Ok(2 << 30)),
            ("300 MiB", Ok(300 << 20)),
            ("50", Err("has no unit")),
            ("50 Gb", Err("means bits")),
            ("50 Gbit", Err("means bits")),
            ("50 G", Err("`G` is no unit of data here")),
            ("50 gigs", Err("`gigs` is no unit")),
            ("50 bananas", Err("`bananas` is no unit")),
            ("50 EUR", Err("`EUR` is no unit")),
            ("fifty GB", Err("is not an amount of data")),
            ("-5 GB", Err("outside 1 MB")),
            ("nan GB", Err("is not an amount")),
            ("0 GB", Err("outside 1 MB")),
            ("9999999 TB", Err("outside 1 MB")),
            ("", Err("is not an amount")),
        ];
        for (text, expected) in table {
            match (DataSize::from_text(text), expected) {
                (Ok(size), Ok(bytes)) => assert_eq!(size.0, bytes, "{text}"),
                (Err(error), Err(part)) => assert!(error.contains(part), "{text}: {error}"),
                (found, _) => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn hosts_and_ports_are_read() {
        let cases = [
            ("vps.example.org:51900", Some("vps.example.org:51900")),
            ("vps.example.org", Some("vps.example.org:51900")),
            ("localhost:1", Some("localhost:1")),
            ("192.0.2.1:4000", Some("192.0.2.1:4000")),
            ("192.0.2.1", Some("192.0.2.1:51900")),
            ("[2001:db8::1]:4000", Some("[2001:db8::1]:4000")),
            ("[2001:db8::1]", Some("[2001:db8::1]:51900")),
            ("2001:db8::1", Some("[2001:db8::1]:51900")),
            ("", None),
            (":51900", None),
            ("vps:0", None),
            ("192.0.2.1:0", None),
            ("vps:65536", None),
            ("vps:port", None),
            ("192.0.2", None),
            ("300.1.2.3:51900", None),
            ("two words:1", None),
            ("-x.example:1", None),
            ("a..b:1", None),
            ("https://vps.example.org", None),
        ];
        for (text, expected) in cases {
            let read = HostPort::from_text(text).ok().map(|host| host.to_string());
            assert_eq!(read.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_address_that_no_datagram_can_be_sent_to_says_why() {
        let cases = [
            ("[fe80::1]:51900", "another machine on each link"),
            ("169.254.1.1:1", "another machine on each link"),
            ("[::ffff:169.254.1.1]:1", "another machine on each link"),
            ("0.0.0.0:51900", "no machine's address"),
            ("[::]", "no machine's address"),
            ("224.0.0.1:1", "many machines"),
            ("ff02::1", "many machines"),
            ("255.255.255.255", "many machines"),
        ];
        for (text, expected) in cases {
            let message = HostPort::from_text(text).unwrap_err();
            assert!(message.contains(expected), "{text}: {message}");
        }
        for text in ["127.0.0.1:1", "[::1]:1", "192.168.1.1:1", "[fd00::1]:1"] {
            assert!(HostPort::from_text(text).is_ok(), "{text}");
        }
    }

    #[test]
    fn values_that_make_no_sense_say_why() {
        let cases: [(Result<(), String>, &str); 9] = [
            (unit::<Duration>("15"), "`15` is not a duration with its unit"),
            (unit::<Duration>("0"), "`0` has no unit"),
            (unit::<Duration>("15 sek"), "unknown time unit"),
            (unit::<bytesize::ByteSize>("16"), "has no unit"),
            (unit::<bytesize::ByteSize>("16 MeB"), "is not a size with its unit"),
            (unit::<IpNet>("10.0.0.5/8"), "write \"10.0.0.0/8\""),
            (unit::<IpNet>("10.0.0.0/33"), "is not a prefix"),
            (unit::<InterfaceName>("a-name-much-too-long"), "has 20 characters"),
            (unit::<Keepalive>("20m"), "20m is outside 500ms to 10m"),
        ];
        for (result, expected) in cases {
            let message = result.unwrap_err();
            assert!(message.contains(expected), "{message:?} lacks {expected:?}");
        }
        assert_eq!(Keepalive::from_text("15s"), Ok(Keepalive::DEFAULT));
        assert_eq!(Keepalive::from_text("auto"), Ok(Keepalive::Auto));
        assert_eq!(Keepalive::from_text("off"), Ok(Keepalive::Off));
        assert_eq!(Duration::from_text("1m 30s"), Ok(Duration::from_secs(90)));
    }

    fn unit<T: Text>(text: &str) -> Result<(), String> {
        T::from_text(text).map(|_| ())
    }
}
