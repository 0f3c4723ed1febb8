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
//! * What begins a connection to this machine comes as far as the proxy lets it, or as `inbound` says: the chain of that name is
//!   there where it says less.
//!
//! For each packet that comes in by a link that is one comparison of the interface and one of the address; the first two chains
//! stand before connection tracking, so what is dropped costs no entry there.

use std::fmt::Write as _;

use ropewalk_settings::PortRange;

use crate::config::Inbound;
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
{}",
        inbound(tun, &desired.inbound)
    )
}

/// What begins a connection out of the tunnel passes only to these ports. Of TCP that is told by its flags, so that a
/// connection that this machine's table does not know any more goes on.
fn inbound(tun: &str, inbound: &Inbound) -> String {
    let (tcp, udp): (&[PortRange], &[PortRange]) = match inbound {
        Inbound::Proxy => return String::new(),
        Inbound::Nothing => (&[], &[]),
        Inbound::Ports { tcp, udp } => (tcp, udp),
    };
    let mut rules = String::new();
    rule(&mut rules, &format!("iifname != \"{tun}\" accept"));
    rule(&mut rules, "meta l4proto tcp tcp flags & (syn | ack) != syn accept");
    rule(&mut rules, "meta l4proto != tcp ct state != new accept");
    for (word, ports) in [("tcp", tcp), ("udp", udp)] {
        let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
        if !ports.is_empty() {
            rule(&mut rules, &format!("{word} dport {{ {} }} accept", ports.join(", ")));
        }
    }
    rule(&mut rules, "counter drop");
    format!(
        "    chain inbound {{
        type filter hook prerouting priority mangle; policy accept;
{rules}    }}
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
    use ropewalk_settings::Text as _;

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
        assert!(!v4.contains("chain inbound"), "{v4}");
        assert_eq!(chains(&Desired::default()), "");
    }

    #[test]
    fn what_begins_a_connection_passes_to_the_ports_that_are_named_and_no_others() {
        let port = |text| PortRange::from_text(text).unwrap();
        let ports = Inbound::Ports { tcp: vec![port("443"), port("8000-8010")], udp: vec![] };
        let text = inbound("rope0", &ports);
        assert!(text.contains("tcp dport { 443, 8000-8010 } accept"), "{text}");
        assert!(!text.contains("udp dport"), "{text}");
        let nothing = inbound("rope0", &Inbound::Nothing);
        assert!(nothing.contains("counter drop") && !nothing.contains("dport"), "{nothing}");
        assert_eq!(inbound("rope0", &Inbound::Proxy), "");
    }
}
