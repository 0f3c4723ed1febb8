//! The proxy's firewall table: which packets pass between the TUN and the Internet, and with which source address.
//!
//! * `from_clients` (before anything else sees the packet): what comes out of the TUN must have a source within the inner
//!   prefixes. The core has checked that each client uses its own addresses; this is the second lock on the door.
//! * `forward`: nothing goes from the TUN into the TUN unless clients may reach each other.
//! * `segments`: the MSS that a TCP connection announces is lowered to what fits the way in *both* directions: `rt mtu` is
//!   the smaller of the MTU to the destination and the MTU back, and a client's route carries the MTU of its tunnel.
//! * `postrouting`: the paper's mapping. The source becomes the host's own address when, and only when, it is an inner one
//!   *and* the packet leaves by an uplink; packets into the TUN, of the host itself, and whatever `no_nat` lists keep
//!   theirs. An entry of `no_nat` that lies within an inner prefix names sources, any other names destinations.

use std::fmt::Write;

use ipnet::IpNet;
use ropewalk_link_io::sysctl::{self, SysctlError};

use crate::host::{Desired, Ipv6};

/// The chains of the table.
#[must_use]
pub fn chains(desired: &Desired) -> String {
    let tun = &desired.tun;
    let mut text = String::new();
    from_clients(&mut text, desired);
    text.push_str(
        "    chain forward {\n        type filter hook forward priority filter; policy accept;\n",
    );
    if !desired.client_to_client {
        line(&mut text, &format!("iifname \"{tun}\" oifname \"{tun}\" counter drop"));
    }
    text.push_str("    }\n    chain segments {\n        type filter hook forward priority mangle; policy accept;\n");
    for side in ["iifname", "oifname"] {
        let clamp = "tcp flags syn tcp option maxseg size set rt mtu";
        line(&mut text, &format!("{side} \"{tun}\" {clamp}"));
    }
    text.push_str("    }\n");
    postrouting(&mut text, desired);
    text
}

/// The chains while no daemon runs: connections that have a mapping keep it. Without a chain of this kind *and* a rule that
/// asks for the state of connections, the kernel would switch the tracking off, take the server's packets for its own,
/// and answer with resets; a restart would end every download.
#[must_use]
pub fn chains_at_rest() -> String {
    "    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        ct state established accept
    }
"
    .into()
}

fn from_clients(text: &mut String, desired: &Desired) {
    let tun = &desired.tun;
    text.push_str("    chain from_clients {\n        type filter hook prerouting priority raw; policy accept;\n");
    for family in [V4, V6] {
        let inner = family.set(desired.inner.iter().copied());
        let condition = match inner {
            Some(inner) if family.word == V4.word || desired.ipv6 != Ipv6::None => {
                format!("{} saddr != {inner}", family.word)
            }
            _ => format!("meta nfproto {}", family.protocol),
        };
        line(text, &format!("iifname \"{tun}\" {condition} counter drop"));
    }
    text.push_str("    }\n");
}

fn postrouting(text: &mut String, desired: &Desired) {
    text.push_str("    chain postrouting {\n        type nat hook postrouting priority srcnat; policy accept;\n");
    let uplink = match desired.uplinks.as_slice() {
        [] => format!("oifname != {{ \"{}\", \"lo\" }}", desired.tun),
        named => {
            let names: Vec<_> = named.iter().map(|name| format!("\"{name}\"")).collect();
            format!("oifname {{ {} }}", names.join(", "))
        }
    };
    for family in [V4, V6] {
        if family.word == V6.word && desired.ipv6 != Ipv6::Nat66 {
            continue;
        }
        let Some(inner) = family.set(desired.inner.iter().copied()) else { continue };
        let (sources, destinations): (Vec<IpNet>, Vec<IpNet>) = desired
            .no_nat
            .iter()
            .partition(|kept| desired.inner.iter().any(|inner| inner.contains(*kept)));
        for (side, kept) in [("saddr", sources), ("daddr", destinations)] {
            if let Some(kept) = family.set(kept.into_iter()) {
                line(text, &format!("{} {side} {kept} return", family.word));
            }
        }
        line(text, &format!("{uplink} {} saddr {inner} counter masquerade", family.word));
    }
    text.push_str("    }\n");
}

/// One address family in nft's words.
#[derive(Clone, Copy)]
struct Words {
    word: &'static str,
    protocol: &'static str,
    v4: bool,
}

const V4: Words = Words { word: "ip", protocol: "ipv4", v4: true };
const V6: Words = Words { word: "ip6", protocol: "ipv6", v4: false };

impl Words {
    /// The prefixes of this family as a set, `None` if there are none. Overlapping ones are merged: a set of nft must not
    /// hold an address twice.
    fn set(self, nets: impl Iterator<Item = IpNet>) -> Option<String> {
        let own: Vec<IpNet> = nets.filter(|net| net.addr().is_ipv4() == self.v4).collect();
        if own.is_empty() {
            return None;
        }
        let merged = IpNet::aggregate(&own);
        let words: Vec<_> = merged.iter().map(ToString::to_string).collect();
        Some(format!("{{ {} }}", words.join(", ")))
    }
}

fn line(text: &mut String, rule: &str) {
    writeln!(text, "        {rule}").expect("writing to a string");
}

/// How full the kernel's table of connections is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionTable {
    /// Connections in it.
    pub count: u64,
    /// Connections it can hold; further ones are dropped.
    pub limit: u64,
}

/// At this share of the limit the operator is warned: early enough to act, late enough not to cry wolf.
const WARN_PERCENT: u64 = 80;

impl ConnectionTable {
    /// Reads it; `None` where the kernel tracks no connections.
    ///
    /// # Errors
    /// When the kernel's counters cannot be read.
    pub fn read() -> Result<Option<Self>, SysctlError> {
        let count = sysctl::read_number("net/netfilter/nf_conntrack_count")?;
        let limit = sysctl::read_number("net/netfilter/nf_conntrack_max")?;
        Ok(count.zip(limit).map(|(count, limit)| Self { count, limit }))
    }

    /// The warning for the operator, at 80 % of the limit and above.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let full = self.count.saturating_mul(100) >= self.limit.saturating_mul(WARN_PERCENT);
        // A limit of 0 means "no limit".
        (full && self.limit > 0).then(|| {
            format!(
                "the kernel tracks {} connections of at most {}: beyond that, new ones fail; raise it with \
                 sysctl -w net.netfilter.nf_conntrack_max={}",
                self.count,
                self.limit,
                self.limit.saturating_mul(2)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(list: &[&str]) -> Vec<IpNet> {
        list.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn desired() -> Desired {
        Desired {
            tun: "rope0".into(),
            mtu: 1440,
            own: Vec::new(),
            inner: nets(&["10.77.0.0/16", "fd77::/64"]),
            ipv6: Ipv6::Nat66,
            no_nat: nets(&["192.168.0.0/16", "192.168.7.0/24", "10.77.5.0/24", "2001:db8::/32"]),
            uplinks: Vec::new(),
            client_to_client: false,
        }
    }

    #[test]
    fn no_nat_names_sources_within_the_inner_prefixes_and_destinations_elsewhere() {
        let text = chains(&desired());
        for rule in [
            "ip saddr { 10.77.5.0/24 } return",
            "ip daddr { 192.168.0.0/16 } return",
            "ip6 daddr { 2001:db8::/32 } return",
            "oifname != { \"rope0\", \"lo\" } ip saddr { 10.77.0.0/16 } counter masquerade",
            "oifname != { \"rope0\", \"lo\" } ip6 saddr { fd77::/64 } counter masquerade",
        ] {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
    }

    #[test]
    fn named_uplinks_are_the_only_ones() {
        let text = chains(&Desired { uplinks: vec!["eth0".into(), "eth1".into()], ..desired() });
        assert!(text.contains("oifname { \"eth0\", \"eth1\" } ip saddr"), "{text}");
    }

    #[test]
    fn a_routed_prefix_keeps_its_addresses_and_without_ipv6_all_of_it_is_dropped() {
        let text = chains(&Desired { ipv6: Ipv6::Routed, ..desired() });
        assert!(!text.contains("ip6 saddr { fd77::/64 } counter masquerade"), "{text}");
        assert!(text.contains("ip6 saddr != { fd77::/64 } counter drop"), "{text}");
        let text = chains(&Desired { ipv6: Ipv6::None, ..desired() });
        assert!(text.contains("iifname \"rope0\" meta nfproto ipv6 counter drop"), "{text}");
    }

    #[test]
    fn the_warning_begins_at_80_percent() {
        let table = |count, limit| ConnectionTable { count, limit };
        assert_eq!(table(799, 1000).warning(), None);
        assert!(table(800, 1000).warning().unwrap().contains("nf_conntrack_max=2000"));
        assert_eq!(table(5, 0).warning(), None);
    }
}
