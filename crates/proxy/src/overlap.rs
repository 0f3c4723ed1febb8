//! Whether a pool, or a network behind a client, overlaps what this host has already: then packets of clients, or the host's own,
//! would go astray.
//!
//! What counts is every address of the host with its prefix, and every route, in any table. What does not: default routes
//! (shorter than /2, as VPNs write two halves for one), the proxy's own routes and TUN, and what the kernel keeps in its table
//! `local`, which follows from the addresses.

use std::fmt;

use ipnet::IpNet;
use ropewalk_link_io::netlink::{AddressScope, LOCAL_TABLE, Netlink, NetlinkError, PROXY_PROTOCOL};

use crate::config::{Config, Ipv6Mode};
use crate::core::networks;
use crate::pool::overlap;

/// The longest prefix that counts as a default route.
const DEFAULT_ROUTE: u8 = 1;

/// IPv4 pools to propose, in this order.
const PROPOSED_V4: [&str; 6] = [
    "10.77.0.0/16",
    "10.88.0.0/16",
    "10.119.0.0/16",
    "172.29.0.0/16",
    "192.168.177.0/24",
    "100.119.0.0/16",
];

/// IPv6 pools to propose where `auto` is not free: unique local (RFC 4193), with random bits of our own.
const PROPOSED_V6: [&str; 2] = ["fd5c:9e0b:77a1:1::/64", "fd83:41d6:e2c9:1::/64"];

/// A prefix that this host uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// The prefix; of an address, with the address itself.
    pub net: IpNet,
    /// Whether it is an address of the host.
    pub is_address: bool,
    /// What it is, for people: "the address 10.77.3.1/24 of eth0".
    pub what: String,
}

/// A pool, or a network behind a client, overlaps something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Overlap {
    /// The key of the config.
    key: &'static str,
    /// What that is, for people.
    meaning: &'static str,
    pool: IpNet,
    /// What it overlaps.
    used: String,
    /// A pool that is free on this host.
    free: Option<String>,
}

impl fmt::Display for Overlap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, meaning, pool, used, free } = self;
        write!(
            f,
            "{meaning}, {key} = \"{pool}\", overlaps {used} of this host: packets would go astray. "
        )?;
        match free {
            Some(free) => write!(f, "Write {key} = \"{free}\" into the config, which is free here"),
            None => write!(f, "Give another {key} in the config"),
        }
    }
}

impl Overlap {
    /// The line of the config that solves it.
    #[must_use]
    pub fn solution(&self) -> Option<String> {
        self.free.as_ref().map(|free| format!("{} = \"{free}\"", self.key))
    }
}

/// What a pool of the config overlaps on this host, from any thread that may wait.
///
/// # Errors
/// The kernel does not tell its routes.
pub fn find(config: &Config) -> anyhow::Result<Option<Overlap>> {
    ropewalk_daemon::service::runtime()?.block_on(async {
        let used = used(&Netlink::open()?, config.tun_name.as_str()).await?;
        Ok(judge(config, &used))
    })
}

/// What this host uses, but for the TUN of this name.
///
/// # Errors
/// The kernel does not tell.
pub async fn used(netlink: &Netlink, tun: &str) -> Result<Vec<Used>, NetlinkError> {
    let interfaces = netlink.interfaces().await?;
    let mut used = Vec::new();
    for interface in interfaces.iter().filter(|interface| interface.name != tun) {
        for address in &interface.addresses {
            if matches!(address.scope, AddressScope::Global) {
                let what = format!("the address {} of {}", address.net, interface.name);
                used.push(Used { net: address.net, is_address: true, what });
            }
        }
    }
    for route in netlink.destinations().await? {
        let name = |index| interfaces.iter().find(|interface| interface.index == index);
        let interface = route.interface.and_then(name).map(|interface| interface.name.as_str());
        let is_ours = route.protocol == PROXY_PROTOCOL || interface == Some(tun);
        if is_ours || route.table == LOCAL_TABLE || route.destination.prefix_len() <= DEFAULT_ROUTE
        {
            continue;
        }
        let by = interface.map(|name| format!(" by {name}")).unwrap_or_default();
        let what = format!("the route {}{by}", route.destination);
        used.push(Used { net: route.destination, is_address: false, what });
    }
    Ok(used)
}

/// Which pool overlaps what of `used`.
#[must_use]
pub fn judge(config: &Config, used: &[Used]) -> Option<Overlap> {
    let v4 = IpNet::V4(config.pools.v4());
    let v6 = config.pools.v6().map(IpNet::V6);
    // A prefix that the provider routes here lies within what it routes here in all.
    let within = config.ipv6 == Ipv6Mode::Routed;
    let of_v4 = || Some(("pool_v4", v4, overlapped(v4, false, used)?));
    let of_v6 = || v6.and_then(|v6| Some(("pool_v6", v6, overlapped(v6, within, used)?)));
    if let Some((key, pool, by)) = of_v4().or_else(of_v6) {
        return Some(of_pool(key, pool, by, used));
    }
    let mut networks = networks(config).into_iter();
    let (net, by) = networks.find_map(|net| Some((net, overlapped(net, true, used)?)))?;
    let meaning = "the network behind a client";
    Some(Overlap { key: "prefix_v6", meaning, pool: net, used: by.what.clone(), free: None })
}

/// A pool overlaps this, of what is used.
fn of_pool(key: &'static str, pool: IpNet, by: &Used, used: &[Used]) -> Overlap {
    let is_free =
        |text: &&str| text.parse().is_ok_and(|net: IpNet| overlapped(net, false, used).is_none());
    let proposed: &[&str] = if pool.addr().is_ipv4() { &PROPOSED_V4 } else { &PROPOSED_V6 };
    let free = proposed.iter().find(|text| is_free(text)).map(|text| (*text).to_owned());
    let meaning = "the pool of inner addresses";
    Overlap { key, meaning, pool, used: by.what.clone(), free }
}

fn overlapped(pool: IpNet, may_lie_within: bool, used: &[Used]) -> Option<&Used> {
    used.iter().find(|used| {
        let around = may_lie_within
            && used.net.prefix_len() < pool.prefix_len()
            && !(used.is_address && pool.contains(&used.net.addr()));
        !around && overlap(pool, used.net)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use ropewalk_control::config::{ConfigFile as _, KeyFiles, Source};

    use super::*;

    fn config(text: &str) -> Result<Config, String> {
        let text =
            format!("private_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n{text}");
        let source = Source::from_text(Path::new("proxy.toml"), &text, KeyFiles::Disk);
        Config::parse(&source).map_err(|error| error.to_string())
    }

    fn of_host(texts: &[&str]) -> Vec<Used> {
        let of = |text: &&str| {
            let (kind, net) = text.split_once(' ').unwrap();
            Used {
                net: net.parse().unwrap(),
                is_address: kind == "address",
                what: format!("the {text}"),
            }
        };
        texts.iter().map(of).collect()
    }

    /// Of the config, what the host uses, and what is said.
    type Case<'a> = (&'a str, &'a [&'a str], Option<[&'a str; 2]>);

    #[test]
    fn a_pool_that_overlaps_an_address_or_a_route_is_named_with_one_that_is_free() {
        let v6 = "pool_v6 = \"fd00:7::/64\"\n";
        let routed = "pool_v6 = \"2001:db8:7:1::/64\"\nipv6 = \"routed\"\n";
        let behind = "[[peer]]\nname = \"lisa\"\nprefix_v6 = \"2001:db8:7:100::/56\"\n\
                      public_key = \"zo060cy2M+x7cMF4FKXHbs0CloUFDTRHRboFhw5YfVk=\"\n";
        let cases: [Case<'_>; 13] = [
            ("", &["address 192.168.1.5/24", "route 10.0.0.0/12"], None),
            ("", &["address 10.77.3.1/24"], Some(["address 10.77.3.1/24", "10.88.0.0/16"])),
            ("", &["route 10.0.0.0/8"], Some(["route 10.0.0.0/8", "172.29.0.0/16"])),
            ("", &["route 10.77.9.9/32"], Some(["route 10.77.9.9/32", "10.88.0.0/16"])),
            ("", &["address 10.77.0.0/15"], Some(["10.77.0.0/15", "10.88.0.0/16"])),
            (v6, &["route fd00:7::/48"], Some(["route fd00:7::/48", "fd5c:9e0b:77a1:1::/64"])),
            (v6, &["address fd00:7::5/128"], Some(["fd00:7::5/128", "fd5c:9e0b:77a1:1::/64"])),
            // What the provider routes here holds the pool; the pool holds no address of the host.
            (routed, &["route 2001:db8:7::/48", "address 2001:db8:7::1/48"], None),
            (routed, &["route 2001:db8:7:1::/64"], Some(["2001:db8:7:1::/64", "fd5c:"])),
            (routed, &["address 2001:db8:7:1::1/48"], Some(["2001:db8:7:1::1/48", "fd5c:"])),
            ("pool_v6 = \"off\"\n", &["route fd00::/8"], None),
            (behind, &["route 2001:db8:7::/48", "address 2001:db8:7::1/48"], None),
            (
                behind,
                &["address 2001:db8:7:100::1/64"],
                Some(["behind a client", "prefix_v6 in the"]),
            ),
        ];
        for (text, used, expected) in cases {
            let found = judge(&config(text).unwrap(), &of_host(used));
            let said = found.as_ref().map(ToString::to_string).unwrap_or_default();
            match expected {
                None => assert_eq!(said, "", "{text} {used:?}"),
                Some(parts) => {
                    for part in parts {
                        assert!(said.contains(part), "{text} {used:?}: {said}");
                    }
                }
            }
        }
    }

    #[test]
    fn where_nothing_that_can_be_proposed_is_free_another_pool_is_asked_for() {
        let used = of_host(&[
            "route 10.0.0.0/8",
            "route 172.16.0.0/12",
            "route 192.168.0.0/16",
            "route 100.64.0.0/10",
        ]);
        let found = judge(&config("").unwrap(), &used).unwrap();
        assert_eq!(found.solution(), None);
        assert!(found.to_string().ends_with("Give another pool_v4 in the config"), "{found}");
    }

    #[test]
    fn addresses_with_a_meaning_of_their_own_are_no_pool() {
        for (pool, why) in [
            ("pool_v4 = \"0.0.0.0/8\"", "this network"),
            ("pool_v4 = \"127.0.0.0/8\"", "loopback"),
            ("pool_v4 = \"127.5.0.0/16\"", "loopback"),
            ("pool_v4 = \"169.254.7.0/24\"", "link-local"),
            ("pool_v4 = \"224.0.0.0/8\"", "multicast"),
            ("pool_v4 = \"239.1.0.0/16\"", "multicast"),
            ("pool_v4 = \"240.0.0.0/8\"", "reserved"),
            ("pool_v4 = \"255.255.255.0/24\"", "reserved"),
            ("pool_v6 = \"::/64\"", "reserved"),
            ("pool_v6 = \"::ffff:0:0/96\"", "reserved"),
            ("pool_v6 = \"fe80::/64\"", "link-local"),
            ("pool_v6 = \"ff05::/64\"", "multicast"),
        ] {
            let said = config(pool).unwrap_err();
            assert!(said.contains(why) && said.contains("proxy.toml:2"), "{pool}: {said}");
        }
        for pool in ["100.64.0.0/10", "172.16.0.0/12", "192.0.2.0/24", "198.18.0.0/15"] {
            config(&format!("pool_v4 = \"{pool}\"")).unwrap();
        }
    }
}
