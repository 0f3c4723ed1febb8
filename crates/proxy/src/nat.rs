//! Address translation, and the kernel's table of connections.
//!
//! The paper's mapping: the source becomes the host's own address when, and only when, it is an inner one *and* the packet
//! leaves by an uplink; packets into the TUN, of the host itself, and whatever `no_nat` lists keep theirs. An entry of
//! `no_nat` that lies within an inner prefix names sources, any other names destinations.

use ipnet::IpNet;
use ropewalk_link_io::sysctl::{self, SysctlError};

use crate::firewall::words::{V4, V6, chain};
use crate::host::{Desired, Ipv6};

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

/// The chain that translates.
pub fn postrouting(text: &mut String, desired: &Desired) {
    let mut rules = vec!["type nat hook postrouting priority srcnat; policy accept;".to_owned()];
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
    use super::*;

    #[test]
    fn one_client_has_what_it_is_to_have_and_at_most_half_of_the_table() {
        for (limit, share) in [(262_144, 4096), (8192, 4096), (4096, 2048), (1, 1), (0, 4096)] {
            assert_eq!(ConnectionTable { count: 0, limit }.share(4096), share, "{limit}");
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
