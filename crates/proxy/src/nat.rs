//! Address translation, and the kernel's table of connections.
//!
//! The paper's mapping: the source becomes the host's own address when, and only when, it is an inner one *and* the packet
//! leaves by an uplink; packets into the TUN, of the host itself, and whatever `no_nat` lists keep theirs. An entry of
//! `no_nat` that lies within an inner prefix names sources, any other names destinations.

use std::net::IpAddr;

use ipnet::IpNet;
use ropewalk_link_io::conntrack::Connection;
use ropewalk_link_io::sysctl::{self, SysctlError};

use crate::firewall::words::{V4, V6, chain};
use crate::forward::{self, Ports};
use crate::host::{Desired, Ipv6};

/// What stands while no daemon runs: these ports, for the next start to know them, and a chain, so that connections that have
/// a mapping keep it. Without a chain of this kind *and* a rule that asks for the state of connections, the kernel would
/// switch the tracking off, take the server's packets for its own, and answer with resets; a restart would end every
/// download.
#[must_use]
pub fn at_rest(forwarded: &Ports) -> String {
    let mut text = String::new();
    forward::rules::sets(&mut text, forwarded);
    text.push_str(
        "    chain postrouting {
        type nat hook postrouting priority srcnat; policy accept;
        ct state established accept
    }
",
    );
    text
}

/// The chain that translates.
pub fn postrouting(text: &mut String, desired: &Desired) {
    let mut rules = vec!["type nat hook postrouting priority srcnat; policy accept;".to_owned()];
    // Before `no_nat`, which is about what leaves by an uplink.
    rules.extend(forward::rules::hairpin(desired));
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
        let (sources, destinations): (Vec<IpNet>, Vec<IpNet>) =
            desired.no_nat.iter().partition(|kept| desired.is_inner(kept));
        for (side, kept) in [("saddr", sources), ("daddr", destinations)] {
            if let Some(kept) = family.set(kept.into_iter()) {
                rules.push(format!("{} {side} {kept} return", family.word));
            }
        }
        rules.push(format!("{uplink} {} saddr {inner} counter masquerade", family.word));
    }
    chain(text, "postrouting", &rules);
}

/// Whether a connection of a client, on a host with these addresses, should be translated and is not: it began while our chain was
/// missing, and would keep its inner source, to which no answer finds back, for as long as packets are sent.
#[must_use]
pub fn lacks_translation(desired: &Desired, host: &[IpAddr], connection: &Connection) -> bool {
    let (source, destination) = (connection.source.ip(), connection.destination.ip());
    let is_inner = |address: &IpAddr| desired.inner.iter().any(|net| net.contains(address));
    let translates = source.is_ipv4() || desired.ipv6 == Ipv6::Nat66;
    let leaves = !is_inner(&destination) && !host.contains(&destination);
    let is_kept = desired.no_nat.iter().any(|kept| {
        let side = if desired.is_inner(kept) { source } else { destination };
        kept.contains(&side)
    });
    let is_translated = connection.is_source_translated;
    !is_translated && is_inner(&source) && translates && leaves && !is_kept
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

    /// How many connections one client may have that is to have `wanted`: nobody fills more than half of the table.
    #[must_use]
    pub fn share(&self, wanted: u32) -> u32 {
        let half = u32::try_from(self.limit / 2).unwrap_or(u32::MAX);
        // A limit of 0 means "no limit".
        if self.limit == 0 { wanted } else { wanted.min(half.max(1)) }
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
    use std::net::SocketAddr;

    use super::*;
    use crate::forward::Forwards;

    #[test]
    fn one_client_has_what_it_is_to_have_and_at_most_half_of_the_table() {
        for (limit, share) in [(262_144, 4096), (8192, 4096), (4096, 2048), (1, 1), (0, 4096)] {
            assert_eq!(ConnectionTable { count: 0, limit }.share(4096), share, "{limit}");
        }
    }

    #[test]
    fn a_connection_that_began_without_our_chain_is_told_from_those_that_keep_their_source() {
        let nets = |list: &[&str]| list.iter().map(|net| net.parse().unwrap()).collect();
        let desired = |ipv6| Desired {
            tun: "rope0".into(),
            mtu: 1440,
            own: Vec::new(),
            inner: nets(&["10.77.0.0/16", "fd77::/64"]),
            ipv6,
            no_nat: nets(&["192.168.0.0/16", "10.77.5.0/24"]),
            ports: Vec::new(),
            allow: Vec::new(),
            inbound: Vec::new(),
            name_servers: Vec::new(),
            client_connections: 4096,
            client_connection_rate: 500,
            uplinks: Vec::new(),
            client_to_client: false,
            forwards: Forwards::default(),
        };
        let host = ["203.0.113.2".parse().unwrap()];
        for (ipv6, source, destination, is_source_translated, expected) in [
            (Ipv6::Nat66, "10.77.0.2", "192.0.2.2", false, true),
            (Ipv6::Nat66, "10.77.0.2", "192.0.2.2", true, false),
            (Ipv6::Nat66, "fd77::2", "2001:db8::2", false, true),
            (Ipv6::Routed, "fd77::2", "2001:db8::2", false, false),
            // The host's own, a neighbour's, and what comes in.
            (Ipv6::Nat66, "203.0.113.2", "192.0.2.2", false, false),
            (Ipv6::Nat66, "192.0.2.2", "10.77.0.2", false, false),
            // To the proxy itself, and to another client.
            (Ipv6::Nat66, "10.77.0.2", "203.0.113.2", false, false),
            (Ipv6::Nat66, "10.77.0.2", "10.77.0.3", false, false),
            // What `no_nat` lists.
            (Ipv6::Nat66, "10.77.5.2", "192.0.2.2", false, false),
            (Ipv6::Nat66, "10.77.0.2", "192.168.7.5", false, false),
        ] {
            let [source, destination] =
                [source, destination].map(|text| SocketAddr::new(text.parse().unwrap(), 4000));
            let protocol = 17;
            let connection =
                Connection { protocol, source, destination, is_source_translated, led_to: None };
            let lacks = lacks_translation(&desired(ipv6), &host, &connection);
            assert_eq!(lacks, expected, "{connection:?}");
        }
    }

    #[test]
    fn the_warning_begins_at_80_percent() {
        let table = |count, limit| ConnectionTable { count, limit };
        assert_eq!(table(799, 1000).warning(), None);
        assert!(table(800, 1000).warning().unwrap().contains("nf_conntrack_max=2000"));
        assert_eq!(table(5, 0).warning(), None);
    }
}
