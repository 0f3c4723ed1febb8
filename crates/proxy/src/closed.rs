//! Networks that clients do not reach unless `allow` or `no_nat` opens them: what is not the Internet.

use std::net::{Ipv4Addr, Ipv6Addr};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};

const fn v4(a: u8, b: u8, c: u8, d: u8, length: u8) -> IpNet {
    IpNet::V4(Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), length))
}

const fn v6(first: u16, second: u16, third: u16, length: u8) -> IpNet {
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::new(first, second, third, 0, 0, 0, 0, 0), length))
}

/// Private networks: RFC 1918, RFC 6598 (a provider's own), RFC 4193 (unique local).
pub const PRIVATE: [IpNet; 5] = [
    v4(10, 0, 0, 0, 8),
    v4(172, 16, 0, 0, 12),
    v4(192, 168, 0, 0, 16),
    v4(100, 64, 0, 0, 10),
    v6(0xfc00, 0, 0, 7),
];

/// What else no packet on the Internet is sent to (RFC 6890), with 168.63.129.16, at which Azure tells a machine its secrets
/// as other clouds do at 169.254.169.254.
const SPECIAL: [IpNet; 12] = [
    v4(0, 0, 0, 0, 8),
    v4(127, 0, 0, 0, 8),
    v4(168, 63, 129, 16, 32),
    v4(169, 254, 0, 0, 16),
    v4(192, 0, 0, 0, 24),
    v4(224, 0, 0, 0, 4),
    v4(240, 0, 0, 0, 4),
    // The unspecified address, loopback, and IPv4 addresses mapped into IPv6.
    v6(0, 0, 0, 80),
    // NAT64 for local use (RFC 8215).
    v6(0x64, 0xff9b, 1, 48),
    v6(0xfe80, 0, 0, 10),
    // Site-local (RFC 3879).
    v6(0xfec0, 0, 0, 10),
    v6(0xff00, 0, 0, 8),
];

/// The well-known prefix of NAT64 (RFC 6052): a translator behind the proxy would turn it into IPv4.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// All that is closed on a host that is connected to these networks.
pub fn closed(connected: &[IpNet]) -> impl Iterator<Item = IpNet> {
    let nets = || PRIVATE.iter().chain(&SPECIAL).chain(connected).copied();
    let translated = nets().filter_map(|net| match net {
        IpNet::V4(net) => Some(translated(net)),
        IpNet::V6(_) => None,
    });
    nets().chain(translated)
}

/// An IPv4 network as NAT64 writes it.
fn translated(net: Ipv4Net) -> IpNet {
    let bits = NAT64.to_bits() | u128::from(net.network().to_bits());
    IpNet::V6(Ipv6Net::new_assert(Ipv6Addr::from_bits(bits), 96 + net.prefix_len()))
}

/// The networks to which these addresses, with the lengths of their prefixes, belong. An address that claims the whole
/// Internet as its network says nothing.
#[must_use]
pub fn connected(addresses: impl Iterator<Item = IpNet>) -> Vec<IpNet> {
    let known = |net: &IpNet| PRIVATE.iter().any(|private| private.contains(net));
    let mut nets: Vec<IpNet> = addresses
        .map(|net| net.trunc())
        .filter(|net| net.prefix_len() > 0 && !known(net))
        .collect();
    nets.sort_unstable();
    nets.dedup();
    nets
}

/// Whether a destination of `no_nat` opens itself: nobody keeps the clients' addresses towards a private network that they
/// shall not reach. Only private networks: lists of "everything that is not the Internet" have 169.254.0.0/16, too.
#[must_use]
pub fn opened_by_no_nat(destination: &IpNet) -> bool {
    PRIVATE.iter().any(|private| private.contains(destination))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn is_closed(address: &str, connected: &[IpNet]) -> bool {
        let address: IpAddr = address.parse().unwrap();
        closed(connected).any(|net| net.contains(&address))
    }

    #[test]
    fn the_internet_is_open_and_what_is_not_the_internet_is_closed() {
        for address in ["1.1.1.1", "9.9.9.9", "198.51.100.7", "100.128.0.1", "2606:4700::1111"] {
            assert!(!is_closed(address, &[]), "{address}");
        }
        for address in [
            "10.1.2.3",
            "172.31.0.1",
            "192.168.1.1",
            "100.100.100.200",
            "127.0.0.1",
            "169.254.169.254",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.251",
            "255.255.255.255",
            "::1",
            "::ffff:10.0.0.1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
        ] {
            assert!(is_closed(address, &[]), "{address}");
        }
        assert!(!is_closed("64:ff9b::101:101", &[]), "1.1.1.1 through NAT64");
    }

    #[test]
    fn a_public_network_is_closed_where_the_host_is_connected_to_it() {
        let nets =
            ["203.0.113.7/24", "203.0.113.8/24", "192.168.1.5/24", "1.2.3.4/0", "2001:db8::5/64"];
        let connected = connected(nets.iter().map(|net| net.parse().unwrap()));
        let shown: Vec<_> = connected.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["203.0.113.0/24", "2001:db8::/64"]);
        for address in ["203.0.113.200", "2001:db8::99", "64:ff9b::cb00:7109"] {
            assert!(is_closed(address, &connected), "{address}");
        }
    }

    #[test]
    fn no_nat_opens_private_networks_and_nothing_else() {
        let opens = |net: &str| opened_by_no_nat(&net.parse().unwrap());
        assert!(opens("192.168.0.0/16") && opens("10.1.0.0/24") && opens("fd12::/16"));
        for net in ["169.254.0.0/16", "0.0.0.0/0", "203.0.113.0/24", "::/0"] {
            assert!(!opens(net), "{net}");
        }
    }
}
