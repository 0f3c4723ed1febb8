//! `share` in `client.toml`: whose hosts use the tunnel too, what they are handed out, and how much each may have.
//!
//! It is written as a list of interfaces, or as a section with all that can be said.

use std::fmt;
use std::net::Ipv4Addr;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;

use ipnet::Ipv4Net;
use ropewalk_control::config::{ConfigError, Source};
use ropewalk_settings::{
    Bitrate, DeviceLimit, DeviceSelector, InterfaceName, OneOrMany, Parsed, Text,
};
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer, StrDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::LinksConfig;

/// Most interfaces in `share`.
const MAX_SHARED: usize = 16;

/// Most devices with a limit: for each packet to a device that has none the kernel asks them one after the other.
pub const MAX_LIMITS: usize = 64;

/// For how long an address may be lent. dnsmasq lends none for less than two minutes; what is lent for longer than a month
/// is missed by guests.
const LEASE: RangeInclusive<Duration> =
    Duration::from_secs(120)..=Duration::from_secs(31 * 24 * 3600);

/// For how long where nothing is said: a device that is away for a night has its address again.
const DEFAULT_LEASE: Duration = Duration::from_secs(12 * 3600);

/// The tunnel for hosts behind other interfaces of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareConfig {
    /// The interfaces.
    pub interfaces: Vec<InterfaceName>,
    /// The address that the client gives the only one of them, with the length of its network's prefix.
    pub address: Option<Ipv4Net>,
    /// Whether addresses are handed out there, and names answered.
    pub dhcp: bool,
    /// Which addresses; `None`: some of the interface's own network.
    pub range: Option<AddressRange>,
    /// For how long one is lent.
    pub lease: Duration,
    /// How much some devices may have.
    pub limits: Vec<DeviceLimit>,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            address: None,
            dhcp: false,
            range: None,
            lease: DEFAULT_LEASE,
            limits: Vec::new(),
        }
    }
}

/// Addresses that are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    /// The first one.
    pub first: Ipv4Addr,
    /// The last one.
    pub last: Ipv4Addr,
}

impl AddressRange {
    /// Whether all of it lies within this network.
    #[must_use]
    pub fn is_within(self, net: Ipv4Net) -> bool {
        net.contains(&self.first) && net.contains(&self.last)
    }
}

impl fmt::Display for AddressRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

impl Text for AddressRange {
    const EXPECTED: &'static str =
        "a range of addresses, such as \"192.168.77.100-192.168.77.199\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let (first, last) = text.split_once('-').ok_or_else(wrong)?;
        let address = |text: &str| text.trim().parse::<Ipv4Addr>().map_err(|_| wrong());
        let (first, last) = (address(first)?, address(last)?);
        if first > last {
            return Err(format!("`{text}` ends before it begins"));
        }
        Ok(Self { first, last })
    }
}

/// An address with the length of its network's prefix.
#[derive(Clone, Copy, Debug)]
struct OwnAddress(Ipv4Net);

impl Text for OwnAddress {
    const EXPECTED: &'static str =
        "an address with its network's prefix, such as \"192.168.77.1/24\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not {}", Self::EXPECTED);
        let net: Ipv4Net = text.parse().map_err(|_| wrong())?;
        let address = net.addr();
        if !(8..=30).contains(&net.prefix_len()) {
            return Err(format!("`{text}`: the network of a household is a /8 to a /30"));
        }
        let is_hosts = address != net.network() && address != net.broadcast();
        let is_special = address.is_loopback() || address.is_multicast() || address.is_link_local();
        if !is_hosts || is_special {
            return Err(format!("`{text}`: no host can have the address {address} there"));
        }
        Ok(Self(net))
    }
}

/// As it stands in the file.
#[derive(Debug, Default)]
pub(super) struct ShareFile {
    interfaces: Vec<InterfaceName>,
    /// Where these stand, where that is less than all of it.
    interfaces_at: Option<Range<usize>>,
    address: Option<Spanned<Parsed<OwnAddress>>>,
    dhcp: Option<Spanned<bool>>,
    range: Option<Spanned<Parsed<AddressRange>>>,
    lease: Option<Spanned<Parsed<Duration>>>,
    limit: Vec<Spanned<LimitFile>>,
}

/// With all that can be said.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    interfaces: Option<Spanned<OneOrMany<InterfaceName>>>,
    address: Option<Spanned<Parsed<OwnAddress>>>,
    dhcp: Option<Spanned<bool>>,
    range: Option<Spanned<Parsed<AddressRange>>>,
    lease: Option<Spanned<Parsed<Duration>>>,
    #[serde(default)]
    limit: Vec<Spanned<LimitFile>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitFile {
    device: Parsed<DeviceSelector>,
    down: Option<Parsed<Bitrate>>,
    up: Option<Parsed<Bitrate>>,
}

impl<'de> Deserialize<'de> for ShareFile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ShareVisitor;

        impl<'de> Visitor<'de> for ShareVisitor {
            type Value = ShareFile;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of an interface, a list of them, or a section [share]")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<ShareFile, E> {
                let text = StrDeserializer::<E>::new(text);
                let OneOrMany(interfaces) = OneOrMany::deserialize(text)?;
                Ok(ShareFile { interfaces, ..ShareFile::default() })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<ShareFile, A::Error> {
                let list = SeqAccessDeserializer::new(list);
                let OneOrMany(interfaces) = OneOrMany::deserialize(list)?;
                Ok(ShareFile { interfaces, ..ShareFile::default() })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ShareFile, A::Error> {
                let table = Table::deserialize(MapAccessDeserializer::new(map))?;
                let Table { interfaces, address, dhcp, range, lease, limit } = table;
                let interfaces_at = interfaces.as_ref().map(Spanned::span);
                let interfaces = interfaces.map(|list| list.into_inner().0).unwrap_or_default();
                Ok(ShareFile { interfaces, interfaces_at, address, dhcp, range, lease, limit })
            }
        }

        deserializer.deserialize_any(ShareVisitor)
    }
}

/// What `share` means.
pub(super) fn resolve(
    source: &Source,
    share: Option<&Spanned<ShareFile>>,
    links: &LinksConfig,
) -> Result<ShareConfig, ConfigError> {
    let Some(share) = share else { return Ok(ShareConfig::default()) };
    let (all, file) = (share.span(), share.get_ref());
    let at = || file.interfaces_at.clone().unwrap_or_else(|| all.clone());
    check_interfaces(&file.interfaces, links).map_err(|message| source.error(at(), &message))?;
    let alone = |what: &str, place: Range<usize>| match file.interfaces.len() {
        1 => Ok(()),
        0 => Err(source.error(place, &format!("`{what}`, but `interfaces` names none"))),
        _ => Err(source.error(place, &format!("`{what}` goes with one interface")).with_help(
            "give each interface its address yourself, and its range follows from that",
        )),
    };
    let address = match &file.address {
        None => None,
        Some(address) => {
            alone("address", address.span())?;
            Some(address.get_ref().0.0)
        }
    };
    let range = match &file.range {
        None => None,
        Some(range) => {
            alone("range", range.span())?;
            let Parsed(wanted) = *range.get_ref();
            if let Some(net) = address.filter(|net| !wanted.is_within(*net)) {
                let message = format!("{wanted} does not lie in {}", net.trunc());
                return Err(source.error(range.span(), &message));
            }
            Some(wanted)
        }
    };
    let dhcp = file.dhcp.as_ref().is_some_and(|dhcp| *dhcp.get_ref());
    if let Some(said) = file.dhcp.as_ref().filter(|_| dhcp && file.interfaces.is_empty()) {
        return Err(source.error(said.span(), "`dhcp`, but `interfaces` names none"));
    }
    let lease = match &file.lease {
        None => DEFAULT_LEASE,
        Some(lease) if LEASE.contains(&lease.get_ref().0) => lease.get_ref().0,
        Some(lease) => {
            return Err(source.error(lease.span(), "an address is lent for 2m to 31days"));
        }
    };
    let interfaces = file.interfaces.clone();
    let limits = limits(source, &file.limit, interfaces.is_empty())?;
    Ok(ShareConfig { interfaces, address, dhcp, range, lease, limits })
}

/// Interfaces to share with: few, each once, and no links.
fn check_interfaces(list: &[InterfaceName], links: &LinksConfig) -> Result<(), String> {
    if list.len() > MAX_SHARED {
        return Err(format!("{} interfaces; at most {MAX_SHARED} are possible", list.len()));
    }
    let is_twice = |(at, name): &(usize, &InterfaceName)| list[..*at].contains(name);
    if let Some((_, name)) = list.iter().enumerate().find(is_twice) {
        return Err(format!("`{name}` stands here twice"));
    }
    let is_link = |name: &&InterfaceName| {
        links.listed.iter().any(|link| link.enabled && link.interface.as_str() == name.as_str())
    };
    match list.iter().find(is_link) {
        Some(name) => Err(format!("`{name}` is a link: it cannot be shared with")),
        None => Ok(()),
    }
}

fn limits(
    source: &Source,
    files: &[Spanned<LimitFile>],
    is_shared_with_nobody: bool,
) -> Result<Vec<DeviceLimit>, ConfigError> {
    let mut limits: Vec<DeviceLimit> = Vec::new();
    for file in files {
        let LimitFile { device: Parsed(device), down, up } = file.get_ref();
        let rate = |rate: &Option<Parsed<Bitrate>>| rate.map(|Parsed(rate)| rate);
        let limit = DeviceLimit { device: device.clone(), down: rate(down), up: rate(up) };
        let wrong = |message: &str| Err(source.error(file.span(), message));
        if is_shared_with_nobody {
            return wrong("a limit of a device, but `interfaces` of [share] names none");
        }
        if limits.len() == MAX_LIMITS {
            return wrong(&format!("more than {MAX_LIMITS} devices with a limit"));
        }
        if limits.iter().any(|known| known.device == limit.device) {
            return wrong(&format!("two limits of `{}`", limit.device));
        }
        if let Err(message) = limit.check() {
            return wrong(&message);
        }
        limits.push(limit);
    }
    Ok(limits)
}
