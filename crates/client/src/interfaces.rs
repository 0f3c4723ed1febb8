//! Which interfaces are links now, and the way out of each.
//!
//! A pure decision over what the kernel lists: for each address family a link needs a usable address and a way out, which is
//! the best default route that somebody (DHCP, the user) made for that interface in any table, a router that the user
//! named, or, on a point-to-point interface, the interface itself.

use std::net::IpAddr;

use ropewalk_link_io::netlink::{Address, AddressScope, Family, Gateway, Interface, Kind};
use ropewalk_link_io::nft::is_plain_name;
use ropewalk_settings::NamePattern;

use crate::host::{Candidate, Choice, LeftOut, Listed, NoWay, Way, Ways};

/// Kinds of interfaces that `auto` never takes, even with a default route: they carry their packets over another
/// interface, which is the link.
const TUNNELS: [&str; 16] = [
    "tun",
    "wireguard",
    "gre",
    "gretap",
    "ip6gre",
    "ip6gretap",
    "ipip",
    "ip6tnl",
    "sit",
    "vti",
    "vti6",
    "xfrm",
    "vxlan",
    "geneve",
    "erspan",
    "vrf",
];

/// How the interfaces of VPN programs are called that make a TUN or TAP.
const VPN_NAMES: [&str; 14] = [
    "cloudflarewarp",
    "cscotun",
    "gpd",
    "mullvad",
    "nordlynx",
    "nordtun",
    "openvpn",
    "outline",
    "proton",
    "tailscale",
    "utun",
    "vpn",
    "wg",
    "zt",
];

/// Bounds the rules that one interface can cause; IPv6 privacy addresses pile up to about ten.
const MAX_ADDRESSES: usize = 16;

/// The candidates for links, in the order of the list or, for `auto`, of the interfaces' numbers.
#[must_use]
pub fn candidates(
    choice: &Choice,
    tun: &str,
    interfaces: &[Interface],
    gateways: &[Gateway],
) -> Vec<Candidate> {
    let usable = |found: &&Interface| found.name != tun && !found.loopback;
    let is_excluded =
        |exclude: &[NamePattern], name: &str| exclude.iter().any(|one| one.matches(name));
    match choice {
        Choice::Auto { include, exclude, .. } => interfaces
            .iter()
            .filter(usable)
            .filter(|found| !is_excluded(exclude, &found.name))
            .filter(|found| match include.as_slice() {
                [] => !is_tunnel(&found.kind) || is_listed(choice, &found.name),
                include => include.iter().any(|one| one.matches(&found.name)),
            })
            .filter_map(|found| {
                let listed = choice.named(&found.name);
                let routers = listed.map_or(&[][..], |listed| &listed.gateways);
                let wanted = listed.is_none_or(|listed| listed.enabled);
                (wanted && (leads_out(found, gateways) || !routers.is_empty())).then(|| Candidate {
                    name: found.name.clone(),
                    state: ways(found, routers, gateways),
                })
            })
            .collect(),
        Choice::List { exclude, named } => {
            let of = |listed: &Listed| -> Vec<Candidate> {
                if listed.name.is_exact() {
                    let (name, state) =
                        (listed.name.to_string(), ways_of_listed(listed, interfaces, gateways));
                    return vec![Candidate { name, state }];
                }
                let meant = interfaces
                    .iter()
                    .filter(usable)
                    .filter(|found| !is_excluded(exclude, &found.name))
                    .filter(|found| choice.named(&found.name) == Some(listed));
                let candidate = |found: &Interface| Candidate {
                    name: found.name.clone(),
                    state: ways(found, &listed.gateways, gateways),
                };
                meant.map(candidate).collect()
            };
            named.iter().filter(|listed| listed.enabled).flat_map(of).collect()
        }
    }
}

/// Whether the user has a section for exactly this interface.
fn is_listed(choice: &Choice, interface: &str) -> bool {
    choice.named(interface).is_some_and(|listed| listed.name.is_exact())
}

/// What `auto` leaves out although it may be a link: no VPN's, as far as its name tells, and nothing that the user has
/// decided.
#[must_use]
pub fn left_out(
    choice: &Choice,
    tun: &str,
    interfaces: &[Interface],
    gateways: &[Gateway],
) -> Vec<LeftOut> {
    let Choice::Auto { include, exclude, .. } = choice else { return Vec::new() };
    if !include.is_empty() {
        return Vec::new();
    }
    let links = candidates(choice, tun, interfaces, gateways);
    let usable = links.into_iter().filter(|link| link.state.is_ok()).map(|link| link.name);
    let found: Vec<&str> = interfaces
        .iter()
        .filter(|found| found.kind == Kind::Virtual("tun".into()) && found.name != tun)
        .filter(|found| !is_listed(choice, &found.name) && !is_of_vpn(&found.name))
        .filter(|found| !exclude.iter().any(|one| one.matches(&found.name)))
        .filter(|found| ways(found, &[], gateways).is_ok() && leads_out(found, gateways))
        .map(|found| found.name.as_str())
        .collect();
    let include: Vec<String> = found.iter().map(|name| (*name).to_owned()).chain(usable).collect();
    let left_out =
        |name: &&str| LeftOut { interface: (*name).to_owned(), include: include.clone() };
    found.iter().map(left_out).collect()
}

/// Whether an interface is called as those of a VPN's program are.
#[must_use]
pub fn is_of_vpn(interface: &str) -> bool {
    let name = interface.to_ascii_lowercase();
    VPN_NAMES.iter().any(|vpn| name.starts_with(vpn))
}

fn leads_out(interface: &Interface, gateways: &[Gateway]) -> bool {
    gateways.iter().any(|gateway| gateway.index == interface.index)
}

pub(crate) fn is_tunnel(kind: &Kind) -> bool {
    match kind {
        Kind::Physical => false,
        Kind::Virtual(kind) => TUNNELS.contains(&kind.as_str()),
    }
}

fn ways_of_listed(
    listed: &Listed,
    interfaces: &[Interface],
    gateways: &[Gateway],
) -> Result<Ways, NoWay> {
    let found =
        interfaces.iter().find(|found| listed.name.as_str() == found.name).ok_or(NoWay::Missing)?;
    ways(found, &listed.gateways, gateways)
}

fn ways(interface: &Interface, named: &[IpAddr], gateways: &[Gateway]) -> Result<Ways, NoWay> {
    if !is_plain_name(&interface.name) {
        return Err(NoWay::Name);
    }
    if !interface.up {
        return Err(NoWay::Down);
    }
    if !interface.carrier {
        return Err(NoWay::NoCarrier);
    }
    if !interface.addresses.iter().any(is_usable) {
        return Err(NoWay::NoAddress);
    }
    let v4 = way(Family::V4, interface, named, gateways);
    let v6 = way(Family::V6, interface, named, gateways);
    if v4.is_none() && v6.is_none() {
        return Err(NoWay::NoGateway);
    }
    Ok(Ways { index: interface.index, mtu: interface.mtu, v4, v6 })
}

fn way(
    family: Family,
    interface: &Interface,
    named: &[IpAddr],
    gateways: &[Gateway],
) -> Option<Way> {
    let mut usable: Vec<&Address> = interface
        .addresses
        .iter()
        .filter(|address| is_usable(address) && Family::of(address.net.addr()) == family)
        .collect();
    // A socket lives long: an address that stays is better than one that is about to go. The sort is stable, so among
    // equals the kernel's order decides (the primary address first).
    usable.sort_by_key(|address| (address.deprecated, address.temporary));
    let source = usable.first()?.net.addr();
    let by_name = named.iter().copied().find(|gateway| Family::of(*gateway) == family);
    let by_route = gateways
        .iter()
        .find(|gateway| gateway.index == interface.index && gateway.family == family);
    let gateway = match (by_name, by_route) {
        (Some(named), _) => Some(named),
        (None, Some(found)) => found.via,
        (None, None) if interface.point_to_point => None,
        (None, None) => return None,
    };
    usable.truncate(MAX_ADDRESSES);
    let addresses = usable.iter().map(|address| address.net).collect();
    Some(Way { source, addresses, gateway })
}

fn is_usable(address: &Address) -> bool {
    address.scope == AddressScope::Global && !address.tentative
}

#[cfg(test)]
pub(crate) mod testing {
    use super::*;

    /// A network card with these addresses.
    pub(crate) fn interface(index: u32, name: &str, addresses: &[&str]) -> Interface {
        Interface {
            index,
            name: name.into(),
            up: true,
            carrier: true,
            kind: Kind::Physical,
            loopback: false,
            point_to_point: false,
            mtu: 1500,
            addresses: addresses
                .iter()
                .map(|net| Address {
                    net: net.parse().unwrap(),
                    scope: AddressScope::Global,
                    tentative: false,
                    deprecated: false,
                    temporary: false,
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::testing::interface;
    use super::*;
    use crate::host::quoted;
    use ropewalk_settings::Text as _;

    fn gateway(index: u32, family: Family, via: Option<&str>) -> Gateway {
        let via = via.map(|address| address.parse().unwrap());
        Gateway { family, index, via, metric: 100, table: 254, protocol: 16 }
    }

    fn listed(names: &[&str]) -> Choice {
        Choice::list(names.iter().map(|name| said(name, &[], true)).collect())
    }

    /// What the user says of the interfaces of this name.
    fn said(name: &str, gateways: &[&str], enabled: bool) -> Listed {
        let gateways = gateways.iter().map(|gateway| gateway.parse().unwrap()).collect();
        Listed { name: pattern(name), gateways, enabled }
    }

    fn pattern(text: &str) -> NamePattern {
        NamePattern::from_text(text).unwrap()
    }

    fn state(interface: &Interface, gateways: &[Gateway]) -> Result<Ways, NoWay> {
        let choice = listed(&[&interface.name]);
        let mut found = candidates(&choice, "rope0", std::slice::from_ref(interface), gateways);
        found.remove(0).state
    }

    #[test]
    fn each_obstacle_is_told_as_itself() {
        let good = interface(2, "wan1", &["192.0.2.7/24"]);
        let way_out = [gateway(2, Family::V4, Some("192.0.2.1"))];
        assert!(state(&good, &way_out).is_ok());
        let cases = [
            (Interface { up: false, ..good.clone() }, NoWay::Down),
            (Interface { carrier: false, ..good.clone() }, NoWay::NoCarrier),
            (Interface { addresses: Vec::new(), ..good.clone() }, NoWay::NoAddress),
            (Interface { name: "wan*".into(), ..good.clone() }, NoWay::Name),
            (Interface { index: 9, ..good.clone() }, NoWay::NoGateway),
        ];
        for (interface, expected) in cases {
            assert_eq!(state(&interface, &way_out), Err(expected));
        }
        let absent = candidates(&listed(&["usb7"]), "rope0", &[good], &way_out);
        assert_eq!(absent[0].state, Err(NoWay::Missing));
    }

    #[test]
    fn an_address_under_duplicate_detection_or_of_link_scope_is_no_address() {
        let mut wan = interface(2, "wan1", &["2001:db8::7/64"]);
        wan.addresses[0].tentative = true;
        assert_eq!(state(&wan, &[]), Err(NoWay::NoAddress));
        wan.addresses[0].tentative = false;
        wan.addresses[0].scope = AddressScope::Link;
        assert_eq!(state(&wan, &[]), Err(NoWay::NoAddress));
    }

    #[test]
    fn a_point_to_point_interface_needs_no_gateway() {
        let mut ppp = interface(2, "ppp0", &["192.0.2.7/32"]);
        assert_eq!(state(&ppp, &[]), Err(NoWay::NoGateway));
        ppp.point_to_point = true;
        assert_eq!(state(&ppp, &[]).unwrap().v4.unwrap().gateway, None);
        // A modem that is no point-to-point interface but has a default route without a gateway.
        let wwan = interface(3, "wwan0", &["192.0.2.9/30"]);
        assert_eq!(
            state(&wwan, &[gateway(3, Family::V4, None)]).unwrap().v4.unwrap().gateway,
            None
        );
    }

    #[test]
    fn the_address_that_stays_longest_is_the_source() {
        let mut wan = interface(2, "wan1", &["2001:db8::a/64", "2001:db8::b/64", "2001:db8::c/64"]);
        wan.addresses[0].temporary = true;
        wan.addresses[1].deprecated = true;
        let ways = state(&wan, &[gateway(2, Family::V6, Some("fe80::1"))]).unwrap();
        let way = ways.v6.unwrap();
        assert_eq!(way.source, "2001:db8::c".parse::<IpAddr>().unwrap());
        assert_eq!(way.addresses.len(), 3);
        assert_eq!(ways.v4, None);
    }

    #[test]
    fn a_gateway_that_the_user_names_wins() {
        let wan = interface(2, "wan1", &["192.0.2.7/24"]);
        let choice = Choice::list(vec![said("wan1", &["192.0.2.99"], true)]);
        let found =
            candidates(&choice, "rope0", &[wan], &[gateway(2, Family::V4, Some("192.0.2.1"))]);
        let way = found[0].state.clone().unwrap().v4.unwrap();
        assert_eq!(way.gateway, Some("192.0.2.99".parse().unwrap()));
    }

    #[test]
    fn auto_takes_interfaces_with_a_default_route_but_no_tunnels() {
        let mut interfaces = [
            interface(1, "lo", &["127.0.0.1/8"]),
            interface(2, "wan1", &["192.0.2.7/24"]),
            interface(3, "lan0", &["10.0.0.1/24"]),
            interface(4, "wg0", &["10.9.0.1/24"]),
            interface(5, "rope0", &["10.77.0.2/32"]),
            interface(6, "wan2", &["198.51.100.7/24"]),
        ];
        interfaces[0].loopback = true;
        interfaces[3].kind = Kind::Virtual("wireguard".into());
        let gateways: Vec<_> =
            [1, 2, 4, 5, 6].map(|index| gateway(index, Family::V4, Some("192.0.2.1"))).into();
        let names = |include: &[&str], exclude: &[&str], named: &[Listed]| -> Vec<String> {
            let [include, exclude] =
                [include, exclude].map(|list| list.iter().map(|text| pattern(text)).collect());
            let choice = Choice::Auto { include, exclude, named: named.to_vec() };
            let found = candidates(&choice, "rope0", &interfaces, &gateways);
            found.into_iter().map(|candidate| candidate.name).collect()
        };
        assert_eq!(names(&[], &[], &[]), ["wan1", "wan2"]);
        assert_eq!(names(&[], &["wan1"], &[]), ["wan2"]);
        assert_eq!(names(&[], &["wan*"], &[]), [""; 0]);
        assert_eq!(names(&["w*"], &["*2"], &[]), ["wan1", "wg0"], "a tunnel if it is asked for");
        assert_eq!(names(&["*"], &[], &[]), ["wan1", "wg0", "wan2"], "never the TUN or lo");
        // Its own name counts more than a pattern before it.
        let off = [said("wan?", &[], false), said("wan2", &[], true)];
        assert_eq!(names(&[], &[], &off), ["wan2"]);

        // So does a tunnel's.
        assert_eq!(names(&[], &[], &[said("wg0", &[], true)]), ["wan1", "wg0", "wan2"]);
        assert_eq!(names(&[], &[], &[said("wg*", &[], true)]), ["wan1", "wan2"]);

        // A named router makes the interface a link, and counts more than the one found.
        let router: IpAddr = "10.0.0.9".parse().unwrap();
        let named = ["lan0", "wan2"].map(|name| said(name, &["10.0.0.9"], true)).into();
        let choice = Choice::Auto { include: Vec::new(), exclude: Vec::new(), named };
        let found = candidates(&choice, "rope0", &interfaces, &gateways);
        let routers: Vec<_> = found
            .into_iter()
            .map(|found| (found.name, found.state.unwrap().v4.unwrap().gateway.unwrap()))
            .collect();
        let found = "192.0.2.1".parse().unwrap();
        assert_eq!(
            routers,
            [("wan1".into(), found), ("lan0".into(), router), ("wan2".into(), router)]
        );
    }

    #[test]
    fn a_tun_or_tap_that_may_lead_to_the_internet_is_offered_by_name() {
        let tun = |index, name: &str| Interface {
            kind: Kind::Virtual("tun".into()),
            ..interface(index, name, &["192.0.2.7/24"])
        };
        let interfaces = [
            interface(1, "eth0", &["198.51.100.7/24"]),
            tun(2, "wan0"),
            tun(3, "rope0"),
            tun(4, "tailscale0"),
            tun(5, "inner0"),
            Interface { kind: Kind::Virtual("wireguard".into()), ..tun(6, "home") },
            Interface { up: false, ..tun(7, "wan7") },
        ];
        let gateways: Vec<_> =
            [1, 2, 3, 4, 6, 7].map(|index| gateway(index, Family::V4, Some("192.0.2.1"))).into();
        let offered = |choice: &Choice| -> Vec<(String, String)> {
            let found = left_out(choice, "rope0", &interfaces, &gateways).into_iter();
            found.map(|one| (one.interface, quoted(&one.include))).collect()
        };
        let auto = |include: &[&str], exclude: &[&str], named: &[Listed]| {
            let [include, exclude] =
                [include, exclude].map(|list| list.iter().map(|text| pattern(text)).collect());
            Choice::Auto { include, exclude, named: named.to_vec() }
        };
        let plain = auto(&[], &[], &[]);
        assert_eq!(offered(&plain), [("wan0".to_owned(), "\"wan0\", \"eth0\"".to_owned())]);
        let text = left_out(&plain, "rope0", &interfaces, &gateways)[0].to_string();
        assert!(text.contains("write include_interfaces = [\"wan0\", \"eth0\"]"), "{text}");
        // What the user has decided is no news.
        let decided = [
            auto(&["eth*"], &[], &[]),
            auto(&[], &["wan*"], &[]),
            auto(&[], &[], &[said("wan0", &[], true)]),
            auto(&[], &[], &[said("wan0", &[], false)]),
            listed(&["eth0"]),
        ];
        for choice in decided {
            assert_eq!(offered(&choice), [], "{choice:?}");
        }
    }

    #[test]
    fn a_listed_pattern_takes_the_interfaces_that_are_there_and_names_none_that_is_not() {
        let mut interfaces = [
            interface(1, "lo", &["127.0.0.1/8"]),
            interface(2, "wan1", &["192.0.2.7/24"]),
            interface(3, "wan2", &[]),
            interface(4, "rope0", &["10.77.0.2/32"]),
            interface(5, "usb0", &["198.51.100.7/24"]),
        ];
        interfaces[0].loopback = true;
        let gateways = [gateway(2, Family::V4, Some("192.0.2.1"))];
        let states = |named: &[Listed], exclude: &[&str]| -> Vec<(String, Option<NoWay>)> {
            let exclude = exclude.iter().map(|text| pattern(text)).collect();
            let choice = Choice::List { exclude, named: named.to_vec() };
            candidates(&choice, "rope0", &interfaces, &gateways)
                .into_iter()
                .map(|candidate| (candidate.name, candidate.state.err()))
                .collect()
        };
        let (wan1, wan2) = (("wan1".to_owned(), None), ("wan2".to_owned(), Some(NoWay::NoAddress)));
        let usb0 = ("usb0".to_owned(), Some(NoWay::NoGateway));
        assert_eq!(states(&[said("wan*", &[], true)], &[]), [wan1.clone(), wan2.clone()]);
        assert_eq!(states(&[said("ppp*", &[], true)], &[]), []);
        let every = [said("*", &[], true)];
        assert_eq!(states(&every, &[]), [wan1.clone(), wan2, usb0.clone()]);
        assert_eq!(states(&every, &["wan2"]), [wan1.clone(), usb0.clone()]);
        let (some, other) = (said("wan1", &[], true), said("*", &[], true));
        let off = said("wan*", &[], false);
        assert_eq!(
            states(&[off, other, some], &[]),
            [usb0, wan1],
            "each once, as it is said of it"
        );
    }
}
