//! Which packets are sent over two links at once, and how much the copies may cost.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::time::Duration;

use ipnet::IpNet;
use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text::{Text, by_text};
use crate::{Bitrate, SettingError};

/// Which packets are sent over two links at once: those of which one of these says so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Redundant {
    /// Packets that their sender marked as real time: a DSCP of [`Redundant::LEAST_MARK`] or above.
    pub marked: bool,
    /// Packets of UDP and TCP from or to one of these ports. Fragments show no ports. At most [`Redundant::MOST`].
    pub ports: Vec<PortRange>,
    /// Packets from or to one of these networks. At most [`Redundant::MOST`].
    pub addresses: Vec<Network>,
    /// The most that the copies may cost, with all headers, within [`Redundant::BUDGET`].
    pub budget: Bitrate,
}

impl Redundant {
    /// CS5, the lowest mark of traffic that cannot wait (RFC 4594 §2.3). EF, of calls, is 46; above it is network control.
    pub const LEAST_MARK: u8 = 40;

    /// Most ranges of ports, and most networks: each packet is compared with all of them.
    pub const MOST: usize = 64;

    /// Less is no packet of a call in 100 ms; more is no call.
    pub const BUDGET: RangeInclusive<Bitrate> =
        Bitrate::from_kbps(10)..=Bitrate::from_kbps(100_000);

    /// Nine calls of 64 kbit/s in packets of 20 ms, which cost 104 kbit/s each with all headers: what a household says at once. It is
    /// a twentieth of a link of 20 Mbit/s.
    pub const DEFAULT_BUDGET: Bitrate = Bitrate::from_kbps(1_000);

    /// Copies that the budget allows at once: what so much time has saved up. A call sends a packet within 20 ms, a video its
    /// picture within 40; and copies never keep a link busy for longer.
    pub const BURST: Duration = Duration::from_millis(100);

    /// The least that is saved up, bytes at IP level: two full packets, which a small budget could else never pay for.
    pub const LEAST_BURST: u64 = 3000;

    /// No packet goes over two links.
    #[must_use]
    pub const fn off() -> Self {
        Self {
            marked: false,
            ports: Vec::new(),
            addresses: Vec::new(),
            budget: Self::DEFAULT_BUDGET,
        }
    }

    /// Whether no packet is meant.
    #[must_use]
    pub const fn is_off(&self) -> bool {
        !self.marked && self.ports.is_empty() && self.addresses.is_empty()
    }

    /// The most that is saved up of the budget, bytes at IP level.
    #[must_use]
    pub fn burst(&self) -> u64 {
        let saved = u128::from(self.budget.as_bps()) * Self::BURST.as_nanos() / 8_000_000_000;
        u64::try_from(saved).unwrap_or(u64::MAX).max(Self::LEAST_BURST)
    }

    /// Whether it is within its bounds.
    ///
    /// # Errors
    /// The first thing that is not.
    pub fn check(&self) -> Result<(), SettingError> {
        let error = |key: &str, problem: String| SettingError::new(["redundant", key], problem);
        for (key, count) in [("ports", self.ports.len()), ("addresses", self.addresses.len())] {
            if count > Self::MOST {
                let problem = format!("{count} are more than {}", Self::MOST);
                return Err(error(key, problem).with_help("write ranges that hold several"));
            }
        }
        let range = Self::BUDGET;
        if !range.contains(&self.budget) {
            let (budget, least, most) = (self.budget, range.start(), range.end());
            let problem = format!("{budget} is outside {least} to {most}");
            let help = "for no copies at all write marked = false, without ports and addresses";
            return Err(error("budget", problem).with_help(help));
        }
        Ok(())
    }

    /// Which packets, and the budget; "nothing" where no packet is meant.
    #[must_use]
    pub fn in_words(&self) -> String {
        if self.is_off() {
            return "nothing".to_owned();
        }
        let marked = self.marked.then(|| format!("DSCP {} and above", Self::LEAST_MARK));
        let ports = (!self.ports.is_empty()).then(|| format!("ports {}", list(&self.ports)));
        let addresses =
            (!self.addresses.is_empty()).then(|| format!("addresses {}", list(&self.addresses)));
        let which: Vec<_> = [marked, ports, addresses].into_iter().flatten().collect();
        format!("{}; copies of at most {}", which.join(", "), self.budget)
    }
}

impl Default for Redundant {
    /// What is marked: its sender asks for no less, and few programs do.
    fn default() -> Self {
        Self { marked: true, ..Self::off() }
    }
}

fn list<T: fmt::Display>(values: &[T]) -> String {
    values.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// A port, or several in a row. Written as a number, or as text such as "16384-32767".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange {
    first: u16,
    last: u16,
}

impl PortRange {
    /// The ports from `first` to `last`; `None` where there are none, or port 0 is among them.
    #[must_use]
    pub const fn new(first: u16, last: u16) -> Option<Self> {
        if first == 0 || first > last { None } else { Some(Self { first, last }) }
    }

    /// The lowest.
    #[must_use]
    pub const fn first(self) -> u16 {
        self.first
    }

    /// The highest.
    #[must_use]
    pub const fn last(self) -> u16 {
        self.last
    }

    /// Whether it is one port alone.
    #[must_use]
    pub const fn is_one(self) -> bool {
        self.first == self.last
    }

    /// Whether a port is one of both.
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.first <= other.last && other.first <= self.last
    }

    /// Whether the port is one of them.
    #[must_use]
    pub const fn contains(self, port: u16) -> bool {
        self.first <= port && port <= self.last
    }
}

impl Text for PortRange {
    const EXPECTED: &'static str = "a port or a range of ports, such as 5060 or \"16384-32767\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let bad = || format!("`{text}` is not {}", Self::EXPECTED);
        let port = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (port(first).ok_or_else(bad)?, port(last).ok_or_else(bad)?);
        if first > last {
            return Err(format!("`{text}` ends before it begins: write \"{last}-{first}\""));
        }
        Ok(Self { first, last })
    }
}

impl fmt::Display for PortRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.first == self.last {
            true => write!(f, "{}", self.first),
            false => write!(f, "{}-{}", self.first, self.last),
        }
    }
}

impl<'de> Deserialize<'de> for PortRange {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PortVisitor)
    }
}

impl Serialize for PortRange {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

struct PortVisitor;

impl Visitor<'_> for PortVisitor {
    type Value = PortRange;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PortRange::EXPECTED)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<PortRange, E> {
        PortRange::from_text(text).map_err(E::custom)
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<PortRange, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<PortRange, E> {
        self.visit_str(&number.to_string())
    }
}

/// An address, or all of a prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// The prefix; of an address alone one of its whole length.
    #[must_use]
    pub const fn net(self) -> IpNet {
        self.0
    }

    /// Whether the address is one of them.
    #[must_use]
    pub fn contains(&self, address: &IpAddr) -> bool {
        self.0.contains(address)
    }
}

impl Text for Network {
    const EXPECTED: &'static str =
        "an address or a prefix, such as \"192.0.2.7\" or \"2001:db8::/32\"";

    fn from_text(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Self(address.into()));
        }
        match text.contains('/') {
            true => IpNet::from_text(text).map(Self),
            false => Err(format!("`{text}` is not {}", Self::EXPECTED)),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.prefix_len() == self.0.max_prefix_len() {
            true => self.0.addr().fmt(f),
            false => self.0.fmt(f),
        }
    }
}

by_text!(Network);

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Redundant, String> {
        let read: Redundant = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        read.check().map_err(|error| error.to_string())?;
        Ok(read)
    }

    #[test]
    fn what_is_written_is_read_again_and_said_in_words() {
        let table = [
            ("", "DSCP 40 and above; copies of at most 1 Mbit/s"),
            ("marked = false", "nothing"),
            (
                "ports = [5060, \"16384-32767\"]\nbudget = \"300 kbit/s\"",
                "DSCP 40 and above, ports 5060, 16384-32767; copies of at most 300 kbit/s",
            ),
            (
                "marked = false\naddresses = [\"192.0.2.7\", \"2001:db8::/32\"]",
                "addresses 192.0.2.7, 2001:db8::/32; copies of at most 1 Mbit/s",
            ),
        ];
        for (text, words) in table {
            let settings = read(text).unwrap();
            assert_eq!(settings.in_words(), words);
            assert_eq!(read(&toml::to_string(&settings).unwrap()), Ok(settings), "{text}");
        }
        assert!(Redundant::off().is_off() && !Redundant::default().is_off());
    }

    #[test]
    fn what_makes_no_sense_says_why_and_what_to_write() {
        let many = format!("ports = {:?}", (1..=65).collect::<Vec<_>>());
        let table = [
            ("ports = [0]", "`0` is not a port or a range of ports, such as 5060"),
            ("ports = [65536]", "`65536` is not a port"),
            ("ports = [-1]", "`-1` is not a port"),
            ("ports = [\"9-7\"]", "write \"7-9\""),
            ("ports = [\"sip\"]", "`sip` is not a port"),
            ("ports = [true]", "expected a port or a range of ports"),
            (&many, "redundant ports: 65 are more than 64"),
            ("addresses = [\"10.0.0.5/8\"]", "write \"10.0.0.0/8\""),
            ("addresses = [\"host\"]", "`host` is not an address or a prefix"),
            (
                "budget = \"1 Gbit/s\"",
                "redundant budget: 1 Gbit/s is outside 10 kbit/s to 100 Mbit/s",
            ),
            ("budget = \"9 kbit/s\"", "9 kbit/s is outside"),
            ("budget = 5", "a rate with its unit"),
            ("port = [1]", "unknown field `port`"),
        ];
        for (text, expected) in table {
            let error = read(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn a_range_holds_its_ends_and_a_network_its_addresses() {
        let ports = PortRange::from_text("100-200").unwrap();
        let held = [99, 100, 200, 201].map(|port| ports.contains(port));
        assert_eq!(held, [false, true, true, false]);
        assert_eq!((ports.first(), ports.last(), ports.is_one()), (100, 200, false));
        let table =
            [(1, 99, false), (1, 100, true), (150, 150, true), (200, 201, true), (201, 300, false)];
        for (first, last, expected) in table {
            let other = PortRange::new(first, last).unwrap();
            let found = (ports.overlaps(other), other.overlaps(ports));
            assert_eq!(found, (expected, expected), "{other}");
        }
        assert!(PortRange::new(0, 5).is_none() && PortRange::new(6, 5).is_none());
        let network = Network::from_text("2001:db8::/32").unwrap();
        for (address, within) in
            [("2001:db8::1", true), ("2001:db9::1", false), ("192.0.2.1", false)]
        {
            assert_eq!(network.contains(&address.parse().unwrap()), within, "{address}");
        }
    }

    #[test]
    fn the_burst_is_what_the_budget_saves_up_and_two_full_packets_at_least() {
        for (kbps, bytes) in [(10, 3000), (1_000, 12_500), (100_000, 1_250_000)] {
            let settings = Redundant { budget: Bitrate::from_kbps(kbps), ..Redundant::off() };
            assert_eq!(settings.burst(), bytes, "{kbps} kbit/s");
        }
    }
}
