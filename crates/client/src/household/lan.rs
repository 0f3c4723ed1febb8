//! What is to be served behind an interface: from what the config says, and what the interface has.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use ropewalk_link_io::nft::is_plain_name;
use ropewalk_settings::InterfaceName;
use serde::{Deserialize, Serialize};

use crate::config::ShareConfig;

/// Most name servers that are asked for the devices: three of the proxy's or of the config's, or as many as a resolver asks.
pub const MAX_SERVERS: usize = 4;

/// Bits of a network whose devices choose their addresses themselves (RFC 4862, RFC 4291 §2.5.1).
const DEVICES_BITS: u8 = 64;

/// Addresses at the beginning of a network that are not handed out where nothing is said: for devices with addresses that
/// people give them.
const KEPT: u32 = 9;

/// Addresses that are looked at where nothing is said: those of a /24, as households have it, also where the network is larger.
const USUAL_BITS: u8 = 24;

/// What one interface's devices get.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lan {
    /// The interface.
    pub interface: String,
    /// Its address there, which devices use as their router and name server.
    pub own: Ipv4Net,
    /// The first and the last address that is handed out.
    pub range: (Ipv4Addr, Ipv4Addr),
    /// For how many seconds one is lent.
    pub lease_s: u32,
    /// Who is asked for names.
    pub servers: Vec<IpAddr>,
    /// The IPv6 network of the devices, which is routed here; a /64.
    pub prefix: Option<Ipv6Net>,
}

impl Lan {
    /// Whether it can be served, whoever says so.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let (first, last) = self.range;
        let lent = 120..=31 * 24 * 3600;
        is_plain_name(&self.interface)
            && first <= last
            && self.own.contains(&first)
            && self.own.contains(&last)
            && lent.contains(&self.lease_s)
            && self.servers.len() <= MAX_SERVERS
            && self.servers.iter().copied().all(is_server)
            && self.prefix.is_none_or(|prefix| {
                prefix.prefix_len() == DEVICES_BITS && prefix == prefix.trunc()
            })
    }
}

/// Whether a name server can be there: `resolv.conf(5)` may say 0.0.0.0 and mean this machine.
const fn is_server(address: IpAddr) -> bool {
    !address.is_unspecified() && !address.is_multicast()
}

/// What is to be served, and what cannot be, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What can be.
    pub lans: Vec<Lan>,
    /// Why the rest cannot be.
    pub problems: Vec<String>,
}

/// What is to be served, by config and host: `addresses` are those of a shared interface, `None` where there is no such
/// interface; `servers` are asked for names; `prefix` is the IPv6 network that the proxy routes here.
pub fn plan(
    share: &ShareConfig,
    addresses: impl Fn(&str) -> Option<Vec<IpNet>>,
    servers: &[IpAddr],
    prefix: Option<Ipv6Net>,
) -> Plan {
    let mut plan = Plan::default();
    if !share.dhcp {
        return plan;
    }
    let names: Vec<&str> = share.interfaces.iter().map(InterfaceName::as_str).collect();
    // A question that comes back here would go round without end.
    let own: Vec<IpAddr> =
        names.iter().filter_map(|name| addresses(name)).flatten().map(|net| net.addr()).collect();
    let may_be_asked = |server: &IpAddr| is_server(*server) && !own.contains(server);
    let servers = servers.iter().copied().filter(may_be_asked);
    let servers: Vec<IpAddr> = servers.take(MAX_SERVERS).collect();
    for (at, interface) in names.into_iter().enumerate() {
        match lan(share, interface, addresses(interface), prefix.and_then(|all| part(all, at))) {
            Ok(lan) => plan.lans.push(Lan { servers: servers.clone(), ..lan }),
            Err(problem) => plan.problems.push(problem),
        }
    }
    plan
}

/// What is served behind one interface, but for who is asked for names.
fn lan(
    share: &ShareConfig,
    interface: &str,
    addresses: Option<Vec<IpNet>>,
    prefix: Option<Ipv6Net>,
) -> Result<Lan, String> {
    let nothing = |why: &str| Err(format!("no addresses are handed out on {interface}: {why}"));
    if !is_plain_name(interface) {
        return nothing("dnsmasq may take its name for something else; give it another name");
    }
    let Some(addresses) = addresses else { return nothing("there is no such interface") };
    let v4 = addresses.iter().filter_map(|net| match net {
        IpNet::V4(net) => Some(*net),
        IpNet::V6(_) => None,
    });
    let v4: Vec<Ipv4Net> = v4.collect();
    // Of several the one that the config speaks of.
    let meant = |net: &&Ipv4Net| match (share.address, share.range) {
        (Some(address), _) => **net == address,
        (None, Some(range)) => range.is_within(**net),
        (None, None) => true,
    };
    let Some(own) = v4.iter().find(meant).copied() else {
        return match (share.range, v4.first()) {
            (Some(range), Some(own)) => {
                nothing(&format!("`range` ({range}) does not lie in its network {}", own.trunc()))
            }
            _ => nothing("it has no IPv4 address; give it one, or write `address` into [share]"),
        };
    };
    let range = match share.range {
        Some(range) => Some((range.first, range.last)),
        None => usual_range(own),
    };
    let Some(range) = range else {
        return nothing(&format!("its network {} has no room for others", own.trunc()));
    };
    let lease_s = u32::try_from(share.lease.as_secs()).unwrap_or(u32::MAX);
    Ok(Lan { interface: interface.to_owned(), own, range, lease_s, servers: Vec::new(), prefix })
}

/// Which addresses are handed out where nothing is said: the longer part of the network beside the interface's own address.
fn usual_range(own: Ipv4Net) -> Option<(Ipv4Addr, Ipv4Addr)> {
    let bits = own.prefix_len().max(USUAL_BITS);
    let net = Ipv4Net::new(own.addr(), bits).ok()?.trunc();
    let (network, broadcast) = (u32::from(own.network()), u32::from(own.broadcast()));
    let (mut first, mut last) = (u32::from(net.network()), u32::from(net.broadcast()));
    first += u32::from(first == network);
    last -= u32::from(last == broadcast);
    if last.checked_sub(first)? > 4 * KEPT {
        first += KEPT;
    }
    let address = u32::from(own.addr());
    let below = (first, address.saturating_sub(1));
    let above = (address.saturating_add(1).max(first), last);
    let length = |(first, last): (u32, u32)| (last + 1).saturating_sub(first);
    let (first, last) = if length(below) > length(above) { below } else { above };
    (first <= last).then(|| (first.into(), last.into()))
}

/// The network of the interface at this place, of those that the proxy routes here.
#[must_use]
pub fn part(prefix: Ipv6Net, at: usize) -> Option<Ipv6Net> {
    prefix.subnets(DEVICES_BITS).ok()?.nth(at)
}

/// The interface's own address in its network.
#[must_use]
pub fn router_of(prefix: Ipv6Net) -> Ipv6Net {
    let address = Ipv6Addr::from(u128::from(prefix.network()) | 1);
    Ipv6Net::new(address, prefix.prefix_len()).unwrap_or(prefix)
}

/// Whether hosts can have addresses of this network: what a proxy says is not taken for granted.
#[must_use]
pub fn is_for_hosts(network: Ipv6Net) -> bool {
    let first = network.network().segments()[0];
    // Global unicast (RFC 4291 section 2.4) and unique local (RFC 4193 section 3.1).
    first & 0xe000 == 0x2000 || first & 0xfe00 == 0xfc00
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// What is to be served behind `lan0`, with nobody to ask for names.
    pub(crate) fn lan() -> Lan {
        Lan {
            interface: "lan0".into(),
            own: "192.168.77.1/24".parse().unwrap(),
            range: ("192.168.77.10".parse().unwrap(), "192.168.77.20".parse().unwrap()),
            lease_s: 3600,
            servers: Vec::new(),
            prefix: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::AddressRange;
    use ropewalk_settings::Text as _;

    fn share(interfaces: &[&str]) -> ShareConfig {
        let name = |name: &&str| InterfaceName::new(name).unwrap();
        let interfaces = interfaces.iter().map(name).collect();
        ShareConfig { interfaces, dhcp: true, ..ShareConfig::default() }
    }

    fn nets(list: &[&str]) -> Vec<IpNet> {
        list.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn range(text: &str) -> Option<(Ipv4Addr, Ipv4Addr)> {
        let AddressRange { first, last } = AddressRange::from_text(text).unwrap();
        Some((first, last))
    }

    #[test]
    fn the_range_is_the_longer_part_of_the_network_beside_its_own_address() {
        for (own, expected) in [
            ("192.168.77.1/24", "192.168.77.10-192.168.77.254"),
            ("192.168.77.254/24", "192.168.77.10-192.168.77.253"),
            ("192.168.77.100/24", "192.168.77.101-192.168.77.254"),
            ("192.168.77.200/24", "192.168.77.10-192.168.77.199"),
            ("10.42.7.1/16", "10.42.7.9-10.42.7.255"),
            ("10.42.0.1/16", "10.42.0.10-10.42.0.255"),
            ("10.42.255.1/16", "10.42.255.9-10.42.255.254"),
            ("192.168.77.1/29", "192.168.77.2-192.168.77.6"),
            ("192.168.77.6/29", "192.168.77.1-192.168.77.5"),
            ("192.168.77.1/30", "192.168.77.2-192.168.77.2"),
        ] {
            let found = usual_range(own.parse().unwrap());
            assert_eq!(found, range(expected), "{own}");
        }
        assert_eq!(usual_range("192.168.77.1/32".parse().unwrap()), None);
    }

    #[test]
    fn each_interface_is_served_by_its_own_network_and_never_asks_itself() {
        let addresses = |name: &str| match name {
            "lan0" => Some(nets(&["fd42::1/64", "192.168.77.1/24"])),
            "lan1" => Some(nets(&["192.168.78.1/24"])),
            "lan2" => Some(nets(&["fe80::1/64"])),
            _ => None,
        };
        let servers = ["192.168.78.1", "10.77.0.1"].map(|server| server.parse().unwrap());
        let share = share(&["lan0", "lan1", "lan2", "lan3"]);
        let plan = plan(&share, addresses, &servers, Some("2001:db8:1::/63".parse().unwrap()));
        let names: Vec<_> = plan.lans.iter().map(|lan| lan.interface.as_str()).collect();
        assert_eq!(names, ["lan0", "lan1"]);
        assert_eq!(plan.lans[0].own, "192.168.77.1/24".parse().unwrap());
        assert_eq!(plan.lans[0].servers, servers[1..]);
        assert_eq!(plan.lans[0].lease_s, 12 * 3600);
        let prefixes = [0, 1].map(|at| plan.lans[at].prefix.unwrap().to_string());
        assert_eq!(prefixes, ["2001:db8:1::/64", "2001:db8:1:1::/64"]);
        assert!(plan.lans.iter().all(Lan::is_sound));
        assert_eq!(plan.problems.len(), 2);
        assert!(plan.problems[0].contains("lan2: it has no IPv4 address"), "{:?}", plan.problems);
        assert!(plan.problems[1].contains("lan3: there is no such interface"));
    }

    #[test]
    fn what_dnsmasq_would_take_for_something_else_is_kept_from_it() {
        let addresses = |_: &str| Some(nets(&["192.168.77.1/24"]));
        let servers = ["0.0.0.0", "::", "224.0.0.53", "9.9.9.9"].map(|ip| ip.parse().unwrap());
        let planned = plan(&share(&["lan0", "lan*"]), addresses, &servers, None);
        assert_eq!(planned.lans.len(), 1);
        assert_eq!(planned.lans[0].servers, servers[3..]);
        assert!(planned.lans[0].is_sound());
        let problems = planned.problems;
        assert!(problems[0].contains("on lan*: dnsmasq may take its name"), "{problems:?}");
    }

    #[test]
    fn what_the_config_says_of_addresses_chooses_the_network() {
        let addresses = |_: &str| Some(nets(&["10.9.0.1/24", "192.168.77.1/24"]));
        let said = ShareConfig {
            range: Some(AddressRange::from_text("192.168.77.50-192.168.77.60").unwrap()),
            ..share(&["lan0"])
        };
        let planned = plan(&said, addresses, &[], None);
        assert_eq!(planned.lans[0].own, "192.168.77.1/24".parse().unwrap());
        assert_eq!(Some(planned.lans[0].range), range("192.168.77.50-192.168.77.60"));
        let said =
            ShareConfig { address: Some("10.9.0.1/24".parse().unwrap()), ..share(&["lan0"]) };
        assert_eq!(plan(&said, addresses, &[], None).lans[0].own, "10.9.0.1/24".parse().unwrap());
        let elsewhere = ShareConfig {
            range: Some(AddressRange::from_text("10.1.0.1-10.1.0.9").unwrap()),
            ..share(&["lan0"])
        };
        let problems = plan(&elsewhere, addresses, &[], None).problems;
        assert!(problems[0].contains("does not lie in its network 10.9.0.0/24"), "{problems:?}");
        let none = ShareConfig { dhcp: false, ..share(&["lan0"]) };
        assert_eq!(plan(&none, addresses, &[], None), Plan::default());
    }

    #[test]
    fn a_network_is_one_of_those_that_are_routed_here_and_has_the_router_first() {
        let prefix = |text: &str| text.parse::<Ipv6Net>().unwrap();
        assert_eq!(part(prefix("2001:db8:1::/64"), 0), Some(prefix("2001:db8:1::/64")));
        assert_eq!(part(prefix("2001:db8:1::/64"), 1), None);
        assert_eq!(part(prefix("2001:db8:1::/48"), 9), Some(prefix("2001:db8:1:9::/64")));
        assert_eq!(router_of(prefix("2001:db8:1::/64")).to_string(), "2001:db8:1::1/64");
        for (text, expected) in [
            ("2001:db8:1::/64", true),
            ("fd12:3456:789a::/48", true),
            ("fe80::/64", false),
            ("ff02::/64", false),
            ("::/64", false),
        ] {
            assert_eq!(is_for_hosts(prefix(text)), expected, "{text}");
        }
    }

    #[test]
    fn what_is_not_sound_is_not_served_whoever_asks_for_it() {
        let sound = Lan {
            servers: vec!["10.77.0.1".parse().unwrap()],
            prefix: Some("2001:db8::/64".parse().unwrap()),
            ..testing::lan()
        };
        assert!(sound.is_sound());
        for broken in [
            Lan { interface: "lan0\nlog-queries".into(), ..sound.clone() },
            Lan { interface: "*".into(), ..sound.clone() },
            Lan { range: range("10.0.0.1-10.0.0.9").unwrap(), ..sound.clone() },
            Lan { range: (sound.range.1, sound.range.0), ..sound.clone() },
            Lan { lease_s: 0, ..sound.clone() },
            Lan { servers: vec!["0.0.0.0".parse().unwrap()], ..sound.clone() },
            Lan { servers: vec!["9.9.9.9".parse().unwrap(); 5], ..sound.clone() },
            Lan { prefix: Some("2001:db8::/48".parse().unwrap()), ..sound.clone() },
            Lan { prefix: Some("2001:db8::1/64".parse().unwrap()), ..sound },
        ] {
            assert!(!broken.is_sound(), "{broken:?}");
        }
    }
}
