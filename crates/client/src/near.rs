//! Which routes of the main table win over the tunnel.
//!
//! A network that one joins may hand out routes: DHCP's option 121, the route information of router advertisements, a subnet
//! mask as wide as it likes. A route to `0.0.0.0/1` is more special than the default route, and a route to one host more
//! special than any: whoever runs the network could so lead all traffic, or that to one site, past every tunnel
//! (TunnelVision, CVE-2024-3661; TunnelCrack, CVE-2023-36672). So the rules in front of the tunnel do not ask the main table,
//! but a copy of those of its routes that the network cannot choose at will:
//!
//! | route | wins |
//! | --- | --- |
//! | refuses or drops | yes |
//! | through another tunnel that is no link, and not handed out by it | yes: somebody set that up |
//! | without a router, holds an address of its interface, or lies within the network of one | up to a width: /16 or /48 if public |
//! | without a router, to the router of its interface alone | yes |
//! | otherwise, made by DHCP, by a router advertisement, or by an ICMP redirect | no |
//! | otherwise, to private addresses | yes |
//! | otherwise, by a routing daemon, or `proto static` | yes |
//! | otherwise (`ip route add` says `proto boot`, and so do DHCP clients that are scripts) | no |
//!
//! What does not win is told; `exclude` makes it win, because for excluded prefixes the main table itself is asked.

use std::fmt;
use std::net::IpAddr;

use ipnet::IpNet;
use ropewalk_link_io::netlink::{Address, FoundRoute, Gateway, Hop, Interface, Kind};

use crate::interfaces::is_tunnel;

/// Prefixes that no network on the Internet has: RFC 1918, RFC 3927, RFC 6598, RFC 4193, RFC 4291.
const PRIVATE: [&str; 7] = [
    "10.0.0.0/8",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "169.254.0.0/16",
    "100.64.0.0/10",
    "fc00::/7",
    "fe80::/10",
];

/// The widest network with public addresses that is believed of an interface. Universities and providers have IPv4 networks
/// of this size, hardly any puts more of them on one wire; in IPv6 a wire has 64 bits (RFC 4291 §2.5.1), and a whole site at
/// most 48 (RFC 6177).
const WIDEST: (u8, u8) = (16, 48);

/// No host that the client is for has more routes; bounds the table of copies.
const MAX_ROUTES: usize = 4096;

/// Protocol numbers of routes (`/etc/iproute2/rt_protos`) that are made at the word of the network.
const FROM_NETWORK: [(u8, &str); 3] =
    [(1, "an ICMP redirect"), (9, "a router advertisement"), (16, "DHCP")];

/// Those that say nothing of who made a route: none, the kernel, a command or script.
const BY_ANYBODY: [u8; 3] = [0, 2, 3];
const KERNEL: u8 = 2;

/// The main table, divided.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Near {
    /// Routes that win over the tunnel.
    pub(crate) routes: Vec<FoundRoute>,
    /// Those that would lead past it, and do not.
    pub(crate) passed_over: Vec<PassedOver>,
}

/// A route that does not win over the tunnel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PassedOver {
    /// Where it leads.
    pub destination: IpNet,
    /// By which interface.
    pub interface: String,
    /// To which router.
    pub gateway: Option<IpAddr>,
    /// What is wrong with it.
    pub why: Why,
}

/// Why a route does not win over the tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
    /// The network handed it out, by this.
    Network(&'static str),
    /// The interface's own network is too wide to be believed.
    Width,
    /// Nothing says who made it, and it leads to public addresses.
    Unknown,
    /// There are too many routes.
    Number,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { destination, interface, gateway, why } = self;
        write!(f, "the route to {destination}")?;
        if let Some(gateway) = gateway {
            write!(f, " by {gateway}")?;
        }
        write!(f, " on {interface} would lead past the tunnel and is not followed: ")?;
        match why {
            Why::Network(how) => write!(f, "the network handed it out ({how})")?,
            Why::Width => write!(f, "no network is as wide as this one claims to be")?,
            Why::Unknown => {
                write!(f, "it leads to public addresses, and nothing says that you made it")?;
            }
            Why::Number => write!(f, "more than {MAX_ROUTES} routes are not looked through")?,
        }
        write!(f, "; if it is wanted, add \"{destination}\" to `exclude` in [tun]")
    }
}

/// What is known of the host beside its routes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings<'a> {
    /// The name of our TUN.
    pub(crate) tun: &'a str,
    /// The names of our links: whatever their kind is, a network is behind them.
    pub(crate) links: &'a [&'a str],
    /// All interfaces.
    pub(crate) interfaces: &'a [Interface],
    /// Their default ways out.
    pub(crate) gateways: &'a [Gateway],
}

/// Divides the routes of the main table. Those that concern no `routed` prefix, or only `excluded` ones, are not told of.
pub(crate) fn near(
    main: &[FoundRoute],
    around: &Surroundings<'_>,
    routed: &[IpNet],
    excluded: &[IpNet],
) -> Near {
    let mut near = Near::default();
    for route in main.iter().filter(|route| route.destination.prefix_len() > 0) {
        // The TUN's own table is ours.
        if route.hops.iter().any(|hop| around.name(hop.index) == Some(around.tun)) {
            continue;
        }
        let destination = route.destination;
        let why = match around.objection(destination, route.protocol, &route.hops) {
            None if near.routes.len() < MAX_ROUTES => {
                near.routes.push(route.clone());
                continue;
            }
            None => Why::Number,
            Some(why) => why,
        };
        let within = |nets: &[IpNet]| nets.iter().any(|net| net.contains(&destination));
        if within(routed) && !within(excluded) {
            near.passed_over.extend(route.hops.first().map(|hop| PassedOver {
                destination,
                interface: around.name(hop.index).unwrap_or("?").to_owned(),
                gateway: hop.gateway,
                why,
            }));
        }
    }
    near.passed_over.sort();
    near.passed_over.dedup();
    near
}

/// The prefixes of private addresses.
pub(crate) fn private() -> impl Iterator<Item = IpNet> {
    PRIVATE.iter().filter_map(|private| private.parse().ok())
}

/// Whether all addresses of this prefix are private.
pub(crate) fn is_private(net: &IpNet) -> bool {
    private().any(|all| all.contains(net))
}

/// Whether no interface's own network is believed to be so wide.
pub(crate) fn is_too_wide(net: &IpNet) -> bool {
    let widest = if net.addr().is_ipv4() { WIDEST.0 } else { WIDEST.1 };
    net.prefix_len() < widest && !is_private(net)
}

impl Surroundings<'_> {
    fn interface(&self, index: u32) -> Option<&Interface> {
        self.interfaces.iter().find(|one| one.index == index)
    }

    fn name(&self, index: u32) -> Option<&str> {
        self.interface(index).map(|one| one.name.as_str())
    }

    /// What speaks against letting a route win; one that sends nowhere only refuses.
    fn objection(&self, destination: IpNet, protocol: u8, hops: &[Hop]) -> Option<Why> {
        hops.iter().find_map(|hop| self.objection_to(destination, protocol, hop))
    }

    fn objection_to(&self, destination: IpNet, protocol: u8, hop: &Hop) -> Option<Why> {
        let interface = self.interface(hop.index);
        let handed_out = FROM_NETWORK.iter().find(|(number, _)| *number == protocol);
        // By a line of PPP no routes are handed out.
        let is_set_up = |one: &Interface| {
            let kind = is_tunnel(&one.kind) || one.kind == Kind::Virtual("ppp".to_owned());
            kind && !self.links.contains(&one.name.as_str())
        };
        if handed_out.is_none() && interface.is_some_and(is_set_up) {
            return None;
        }
        let addresses = interface.map_or(&[][..], |one| &one.addresses);
        if hop.gateway.is_none() {
            let holds = |one: &Address| destination.contains(&one.net.addr());
            let lies_within =
                |one: &Address| one.net.trunc().contains(&destination) && !is_too_wide(&one.net);
            // IPv4 routes of the kernel come from addresses alone; that to the other end of a line holds none of ours.
            let by_kernel = protocol == KERNEL && destination.addr().is_ipv4();
            if addresses.iter().any(holds) || by_kernel {
                let how = handed_out.map_or(Why::Width, |(_, how)| Why::Network(how));
                return is_too_wide(&destination).then_some(how);
            }
            if addresses.iter().any(lies_within) || self.is_router(destination, hop.index) {
                return None;
            }
        }
        if let Some((_, how)) = handed_out {
            return Some(Why::Network(how));
        }
        let wins = is_private(&destination) || !BY_ANYBODY.contains(&protocol);
        (!wins).then_some(Why::Unknown)
    }

    /// Whether this is the router of that interface, and nothing else.
    fn is_router(&self, destination: IpNet, index: u32) -> bool {
        let mut gateways = self.gateways.iter().filter(|gateway| gateway.index == index);
        destination.prefix_len() == destination.max_prefix_len()
            && gateways.any(|gateway| gateway.via == Some(destination.addr()))
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_link_io::netlink::Family;

    use super::*;
    use crate::interfaces::testing;

    fn interface(index: u32, name: &str, kind: &str, addresses: &[&str]) -> Interface {
        let kind = match kind {
            "" => Kind::Physical,
            kind => Kind::Virtual(kind.into()),
        };
        Interface { kind, ..testing::interface(index, name, addresses) }
    }

    #[test]
    fn what_a_network_can_hand_out_does_not_win_and_what_was_set_up_does() {
        let interfaces = [
            interface(2, "wlan0", "", &["192.168.1.7/24", "2001:db8:1::7/64", "fe80::7/64"]),
            interface(3, "cafe", "", &["1.2.3.4/1", "2001::9/3"]),
            interface(4, "campus", "", &["130.149.3.4/16", "2001:db8:2::7/128"]),
            interface(5, "wg0", "wireguard", &["10.9.0.2/32"]),
            interface(6, "docker0", "bridge", &["172.17.0.1/16"]),
            interface(7, "cloud", "", &["203.0.113.7/32"]),
            interface(8, "ppp0", "ppp", &["100.64.0.2/32"]),
            interface(9, "tap0", "tun", &["192.168.9.7/24"]),
        ];
        let gateways = [Gateway {
            family: Family::V4,
            index: 7,
            via: Some("203.0.113.1".parse().unwrap()),
            metric: 0,
            table: 254,
            protocol: 16,
        }];
        let around = Surroundings {
            tun: "rope0",
            links: &["wlan0", "tap0"],
            interfaces: &interfaces,
            gateways: &gateways,
        };
        let (redirect, kernel, boot, fixed, ra, dhcp, bird) = (1, 2, 3, 4, 9, 16, 12);
        let handed = |how| Some(Why::Network(how));
        for (destination, protocol, index, gateway, expected) in [
            // TunnelVision, in its sizes, as the usual programs install it.
            ("0.0.0.0/1", dhcp, 2, "192.168.1.1", handed("DHCP")),
            ("128.0.0.0/2", dhcp, 2, "192.168.1.1", handed("DHCP")),
            ("198.51.100.9/32", dhcp, 2, "192.168.1.1", handed("DHCP")),
            ("10.0.0.0/8", dhcp, 2, "192.168.1.1", handed("DHCP")),
            ("198.51.100.9/32", dhcp, 2, "", handed("DHCP")),
            ("0.0.0.0/1", boot, 2, "192.168.1.1", Some(Why::Unknown)),
            ("198.51.100.9/32", boot, 2, "", Some(Why::Unknown)),
            ("198.51.100.9/32", redirect, 2, "192.168.1.1", handed("an ICMP redirect")),
            ("2000::/4", ra, 2, "fe80::1", handed("a router advertisement")),
            ("2001:db8:99::1/128", ra, 2, "fe80::1", handed("a router advertisement")),
            // A prefix that is advertised as on the link, without an address of ours in it.
            ("2001:db8:99::/64", kernel, 2, "", Some(Why::Unknown)),
            // Also where it is no link, or a tunnel.
            ("0.0.0.0/1", dhcp, 6, "172.17.0.9", handed("DHCP")),
            ("0.0.0.0/1", dhcp, 5, "", handed("DHCP")),
            ("0.0.0.0/1", boot, 5, "", None),
            ("10.0.0.0/7", boot, 5, "", None),
            // A tunnel that is a link.
            ("0.0.0.0/1", boot, 9, "192.168.9.1", Some(Why::Unknown)),
            // The mask of a lease.
            ("0.0.0.0/1", kernel, 3, "", Some(Why::Width)),
            ("2000::/3", kernel, 3, "", Some(Why::Width)),
            ("1.2.3.0/24", dhcp, 3, "", None),
            // The networks of the interfaces.
            ("192.168.1.0/24", kernel, 2, "", None),
            ("192.168.1.0/24", dhcp, 2, "", None),
            ("192.168.1.53/32", dhcp, 2, "", None),
            ("2001:db8:1::/64", kernel, 2, "", None),
            ("fe80::/64", kernel, 2, "", None),
            ("130.149.0.0/16", kernel, 4, "", None),
            // A prefix on the link with an address by DHCPv6.
            ("2001:db8:2::/64", kernel, 4, "", None),
            ("172.17.0.0/16", kernel, 6, "", None),
            ("203.0.113.1/32", dhcp, 7, "", None),
            ("203.0.113.2/32", dhcp, 7, "", handed("DHCP")),
            ("100.64.0.1/32", kernel, 8, "", None),
            // What somebody set up.
            ("198.51.100.0/24", boot, 5, "", None),
            ("198.51.100.0/24", boot, 8, "", None),
            ("10.50.0.0/16", boot, 2, "192.168.1.9", None),
            ("fd50::/48", boot, 2, "fe80::9", None),
            ("169.254.0.0/16", boot, 2, "", None),
            ("198.51.100.0/24", fixed, 2, "192.168.1.9", None),
            ("198.51.100.0/24", bird, 2, "192.168.1.9", None),
            // The interface is gone meanwhile.
            ("198.51.100.0/24", boot, 99, "", Some(Why::Unknown)),
        ] {
            let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
            let destination: IpNet = destination.parse().unwrap();
            let found = around.objection(destination, protocol, &[Hop { index, gateway }]);
            assert_eq!(found, expected, "{destination} proto {protocol} by {index} {gateway:?}");
        }
        let everything = "0.0.0.0/1".parse().unwrap();
        assert_eq!(around.objection(everything, dhcp, &[]), None, "it refuses");
        let hop = |index, gateway: &str| Hop { index, gateway: Some(gateway.parse().unwrap()) };
        let several = [hop(5, "10.9.0.1"), hop(2, "192.168.1.1")];
        assert_eq!(around.objection(everything, boot, &several), Some(Why::Unknown));
    }

    #[test]
    fn private_networks_may_be_as_wide_as_they_are_and_public_ones_have_a_bound() {
        for (net, private, wide) in [
            ("10.0.0.0/8", true, false),
            ("10.0.0.0/7", false, true),
            ("192.168.3.0/24", true, false),
            ("11.0.0.0/15", false, true),
            ("11.0.0.0/16", false, false),
            ("fc00::/7", true, false),
            ("2001:db8::/47", false, true),
            ("2001:db8::/48", false, false),
        ] {
            let net: IpNet = net.parse().unwrap();
            assert_eq!((is_private(&net), is_too_wide(&net)), (private, wide), "{net}");
        }
    }

    #[test]
    fn a_route_that_is_passed_over_is_told_with_what_makes_it_win() {
        let route = PassedOver {
            destination: "0.0.0.0/1".parse().unwrap(),
            interface: "wlan0".into(),
            gateway: Some("192.168.1.1".parse().unwrap()),
            why: Why::Network("DHCP"),
        };
        assert_eq!(
            route.to_string(),
            "the route to 0.0.0.0/1 by 192.168.1.1 on wlan0 would lead past the tunnel and is not followed: the network \
             handed it out (DHCP); if it is wanted, add \"0.0.0.0/1\" to `exclude` in [tun]"
        );
    }
}
