//! The chains of the client's firewall table that keep the tunnel and the networks around this machine apart.
//!
//! * Linux answers for each of its addresses on every interface. So a neighbour in a link's network can send packets to an inner
//!   address, and learn from what follows that it is in use, and by which connections (CVE-2019-14899); `rp_filter` = 1 prevents
//!   that, which few systems have. What goes to an inner address comes out of the tunnel, or from this machine itself.
//! * Out of the tunnel comes what goes to an inner address, and nothing else: the answers to guests and containers go
//!   there too until their translation is undone, behind this chain. So nothing is forwarded from the tunnel into the local
//!   networks but answers and what a DNAT rule of the user's leads on, whoever switched forwarding on.
//! * The far end of the tunnel is no router of a local network: what routers and neighbours say of themselves, and redirects, do
//!   not come from there.
//!
//! For each packet that comes in by a link that is one comparison of the interface and one of the address; both chains stand
//! before connection tracking, so what is dropped costs no entry there.

use std::fmt::Write as _;

use crate::host::{Desired, TunDesired};

/// The chains; nothing without a tunnel.
#[must_use]
pub fn chains(desired: &Desired) -> String {
    let Some(TunDesired { name: tun, inner, .. }) = &desired.tun else { return String::new() };
    let (mut from_tunnel, mut to_inner) = (String::new(), String::new());
    for (word, family, is_v4) in [("ip", "ipv4", true), ("ip6", "ipv6", false)] {
        let own: Vec<String> = inner
            .iter()
            .filter(|address| address.is_ipv4() == is_v4)
            .map(ToString::to_string)
            .collect();
        if own.is_empty() {
            rule(&mut from_tunnel, &format!("meta nfproto {family} counter drop"));
            continue;
        }
        let own = format!("{{ {} }}", own.join(", "));
        rule(&mut from_tunnel, &format!("{word} daddr != {own} counter drop"));
        rule(&mut to_inner, &format!("iifname != \"lo\" {word} daddr {own} counter drop"));
    }
    rule(&mut from_tunnel, "icmp type redirect counter drop");
    rule(&mut from_tunnel, &format!("icmpv6 type {{ {NEIGHBOURS} }} counter drop"));
    format!(
        "    chain from_tunnel {{
{from_tunnel}    }}
    chain to_inner {{
        type filter hook prerouting priority raw; policy accept;
        iifname \"{tun}\" goto from_tunnel
{to_inner}    }}
"
    )
}

/// What is said among neighbours (RFC 4861).
const NEIGHBOURS: &str =
    "nd-router-solicit, nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert, nd-redirect";

fn rule(chain: &mut String, rule: &str) {
    writeln!(chain, "        {rule}").expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_family_has_its_own_address_or_nothing_passes_in_it() {
        let desired = |inner: &[&str]| Desired {
            tun: Some(TunDesired {
                name: "rope0".into(),
                inner: inner.iter().map(|address| address.parse().unwrap()).collect(),
                mtu: 1400,
            }),
            ..Desired::default()
        };
        let both = chains(&desired(&["10.77.0.2", "fd77::2"]));
        for rule in [
            "iifname \"rope0\" goto from_tunnel",
            "ip daddr != { 10.77.0.2 } counter drop",
            "ip6 daddr != { fd77::2 } counter drop",
            "iifname != \"lo\" ip daddr { 10.77.0.2 } counter drop",
            "iifname != \"lo\" ip6 daddr { fd77::2 } counter drop",
        ] {
            assert!(both.contains(rule), "{rule} in\n{both}");
        }
        let v4 = chains(&desired(&["10.77.0.2"]));
        assert!(v4.contains("meta nfproto ipv6 counter drop") && !v4.contains("ip6"), "{v4}");
        assert_eq!(chains(&Desired::default()), "");
    }
}
