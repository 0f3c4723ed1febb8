//! The proxy's firewall table: which packets pass between clients, the host and the Internet.
//!
//! In the order in which a packet meets them:
//!
//! * `arrivals`: what comes out of the TUN must have a source within the inner prefixes (`from_clients`; the core has checked
//!   that each client uses its own addresses: this is the second lock on the door), and what comes in elsewhere must not. The
//!   tunnel's own datagrams are not tracked, here and in `departures`: strangers cannot fill the table of connections.
//! * `to_clients`: nobody but the host and other clients begins anything towards an inner address.
//! * `forward` and `input`: what clients begin goes to the Internet, the proxy's inner address, the name servers that it hands
//!   out and what `allow` lists (`clients_out`, `clients_in`); all else is refused at once (`refused`). What may go counts against
//!   the client's share of the table of connections (`opened`). Packets of known connections pass by the first rule.
//! * `segments`: the MSS that a TCP connection announces is lowered to what fits the way in *both* directions: `rt mtu` is
//!   the smaller of the MTU to the destination and the MTU back, and a client's route carries the MTU of its tunnel.
//! * `postrouting`: address translation ([`nat`]).
//! * `forwards`, `forwarded` and their like: ports of this host that lead to clients ([`rules`]).

pub mod words;

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;

use crate::allow::Port;
use crate::closed::{closed, opened_by_no_nat};
use crate::forward::rules;
use crate::host::Desired;
use crate::nat;

use words::{V4, V6, Words, chain};

/// Clients that are counted at a time: more than a proxy serves (`max_peers`).
pub(crate) const MOST_COUNTED: u32 = 65_535;

/// How many seconds' worth of new connections a client may begin at once: a browser opens its tabs, a torrent starts.
pub(crate) const BURST_SECONDS: u32 = 4;

/// Refusals that are answered each second, of all clients, and at once: enough for every person who mistyped an address, and
/// a scan costs no more.
const ANSWERS: &str = "limit rate 500/second burst 500 packets";

/// The counter of packets that clients sent to what is closed to them.
pub const REFUSED: &str = "refused_packets";

/// The counter of new connections that were dropped because their client has, or begins, too many.
pub const BOUNDED: &str = "bounded_connections";

/// The chains of the table, on a host that is connected to these networks ([`connected`](crate::closed::connected)).
#[must_use]
pub fn chains(desired: &Desired, connected: &[IpNet]) -> String {
    let mut text = String::new();
    counters(&mut text);
    counting_sets(&mut text);
    rules::declarations(&mut text, desired);
    arrivals(&mut text, desired);
    to_clients(&mut text, desired);
    refused(&mut text);
    opened(&mut text, desired);
    open(&mut text, desired);
    clients_out(&mut text, connected);
    clients_in(&mut text, desired);
    rules::chains(&mut text, desired);
    forward_and_input(&mut text, desired);
    segments(&mut text, desired);
    nat::postrouting(&mut text, desired);
    text
}

/// One match for each family that has any of these prefixes.
pub(crate) fn matches(side: &str, nets: &[IpNet]) -> Vec<String> {
    let of = |family: Words| {
        Some(format!("{} {side} {}", family.word, family.set(nets.iter().copied())?))
    };
    [V4, V6].into_iter().filter_map(of).collect()
}

/// Each as a prefix of its whole length.
pub(crate) fn hosts(addresses: &[IpAddr]) -> Vec<IpNet> {
    addresses.iter().map(|address| IpNet::from(*address)).collect()
}

fn arrivals(text: &mut String, desired: &Desired) {
    let mut from_clients = Vec::new();
    for family in [V4, V6] {
        let condition = match family.set(desired.inner.iter().copied()) {
            Some(inner) => format!("{} saddr != {inner}", family.word),
            None => format!("meta nfproto {}", family.protocol),
        };
        from_clients.push(format!("{condition} counter drop"));
    }
    chain(text, "from_clients", &from_clients);

    let mut arrivals = vec![
        "type filter hook prerouting priority raw; policy accept;".to_owned(),
        format!("iifname vmap {{ \"lo\" : accept, \"{}\" : goto from_clients }}", desired.tun),
    ];
    arrivals
        .extend(matches("saddr", &desired.inner).iter().map(|from| format!("{from} counter drop")));
    let mut departures = vec!["type filter hook output priority raw; policy accept;".to_owned()];
    if !desired.ports.is_empty() {
        let ports: Vec<_> = desired.ports.iter().map(ToString::to_string).collect();
        let ports = ports.join(", ");
        // Datagrams to such a port elsewhere are somebody else's, which may need a translation.
        arrivals.push(format!("udp dport {{ {ports} }} fib daddr type local notrack"));
        departures.push(format!("udp sport {{ {ports} }} notrack"));
    }
    chain(text, "arrivals", &arrivals);
    chain(text, "departures", &departures);
}

fn to_clients(text: &mut String, desired: &Desired) {
    let mut rules = vec![
        "type filter hook prerouting priority mangle; policy accept;".to_owned(),
        "ct state established,related accept".to_owned(),
        format!("iifname {{ \"lo\", \"{}\" }} accept", desired.tun),
    ];
    if !desired.inbound.is_empty() {
        // Whom `inbound` lets in is let in to clients.
        let own = hosts(&desired.own);
        rules.extend(matches("daddr", &own).iter().map(|own| format!("{own} counter drop")));
    }
    for family in [V4, V6] {
        let Some(inner) = family.set(desired.inner.iter().copied()) else { continue };
        let word = family.word;
        if let Some(inbound) = family.set(desired.inbound.iter().copied()) {
            rules.push(format!("{word} saddr {inbound} {word} daddr {inner} counter accept"));
        }
        rules.push(format!("{word} daddr {inner} counter drop"));
    }
    chain(text, "to_clients", &rules);
}

/// The answers say that it is forbidden, so that programs fail at once in place of waiting.
fn refused(text: &mut String) {
    let rules = [
        format!("counter name \"{REFUSED}\""),
        format!("meta l4proto tcp {ANSWERS} reject with tcp reset"),
        format!("meta l4proto != tcp {ANSWERS} reject with icmpx type admin-prohibited"),
        "drop".to_owned(),
    ];
    chain(text, "refused", &rules);
}

/// The counters that the status shows.
fn counters(text: &mut String) {
    for name in [REFUSED, BOUNDED] {
        text.push_str(&format!("    counter {name} {{\n    }}\n"));
    }
}

/// The sets in which the kernel counts each client's connections.
fn counting_sets(text: &mut String) {
    for Words { address, protocol, .. } in [V4, V6] {
        text.push_str(&format!(
            "    set connections_{protocol} {{ type {address}; size {MOST_COUNTED}; flags dynamic; }}\n    \
             set connection_rates_{protocol} {{ type {address}; size {MOST_COUNTED}; flags dynamic,timeout; \
             timeout 1m; }}\n"
        ));
    }
}

fn opened(text: &mut String, desired: &Desired) {
    let (most, rate) = (desired.client_connections, desired.client_connection_rate);
    let burst = rate.saturating_mul(BURST_SECONDS);
    // A connection is new until it is answered, and some never are: only its first packet, which the table does not hold yet, is counted.
    let mut rules =
        vec!["ct state != new accept".to_owned(), "ct status confirmed accept".to_owned()];
    let mut count = |from: &str, Words { protocol, .. }: Words, whose: &str| {
        rules.push(format!(
            "{from}update @connection_rates_{protocol} {{ {whose} limit rate over {rate}/second burst {burst} \
             packets }} counter name \"{BOUNDED}\" drop"
        ));
        rules.push(format!(
            "{from}add @connections_{protocol} {{ {whose} ct count over {most} }} counter name \"{BOUNDED}\" drop"
        ));
    };
    // All hosts behind a client have what one client has: it could take any number of addresses there.
    let mut by_mask: BTreeMap<IpAddr, Vec<IpNet>> = BTreeMap::new();
    for net in &desired.behind {
        by_mask.entry(net.netmask()).or_default().push(*net);
    }
    for (mask, nets) in by_mask {
        if let Some(nets) = V6.set(nets.into_iter()) {
            count(&format!("ip6 saddr {nets} "), V6, &format!("ip6 saddr & {mask}"));
        }
    }
    let behind = V6.set(desired.behind.iter().copied());
    count("", V4, "ip saddr");
    let others = behind.map(|nets| format!("ip6 saddr != {nets} ")).unwrap_or_default();
    count(&others, V6, "ip6 saddr");
    rules.push("accept".to_owned());
    chain(text, "opened", &rules);
}

/// What clients may reach although it is not the Internet.
fn open(text: &mut String, desired: &Desired) {
    let mut rules = Vec::new();
    for to in matches("daddr", &hosts(&desired.name_servers)) {
        // 853: the same over TLS (RFC 7858).
        rules.push(format!("{to} meta l4proto {{ tcp, udp }} th dport {{ 53, 853 }} goto opened"));
    }
    let mut by_port: BTreeMap<Option<Port>, Vec<IpNet>> = BTreeMap::new();
    let kept = desired.no_nat.iter().filter(|net| !desired.is_inner(net) && opened_by_no_nat(net));
    by_port.entry(None).or_default().extend(kept);
    for allowed in &desired.allow {
        by_port.entry(allowed.port).or_default().push(allowed.net);
    }
    for (port, nets) in by_port {
        let port = port.map(|port| format!("{} dport {} ", port.transport.as_str(), port.number));
        let port = port.unwrap_or_default();
        let to = matches("daddr", &nets);
        rules.extend(to.iter().map(|to| format!("{to} {port}goto opened")));
    }
    chain(text, "open", &rules);
}

fn clients_out(text: &mut String, connected: &[IpNet]) {
    let closed: Vec<IpNet> = closed(connected).collect();
    let mut rules = vec!["ct state related accept".to_owned(), "jump open".to_owned()];
    let to = matches("daddr", &closed);
    rules.extend(to.iter().map(|to| format!("{to} goto refused")));
    rules.push("goto opened".to_owned());
    chain(text, "clients_out", &rules);
}

fn clients_in(text: &mut String, desired: &Desired) {
    // No client is a router: what it says about the host's ways is not heard. (Advertisements and redirects of IPv6 have
    // link-local sources, which `from_clients` drops: RFC 4861 sections 6.1.2 and 8.1.)
    let mut rules: Vec<String> = [
        "icmp type redirect counter drop",
        "icmpv6 type { nd-router-advert, nd-redirect } counter drop",
        "ct state related accept",
    ]
    .map(str::to_owned)
    .into();
    let own = hosts(&desired.own);
    rules.extend(matches("daddr", &own).iter().map(|own| format!("{own} goto opened")));
    rules.extend(["jump open", "goto refused"].map(str::to_owned));
    chain(text, "clients_in", &rules);
}

fn forward_and_input(text: &mut String, desired: &Desired) {
    let tun = &desired.tun;
    let among = if desired.client_to_client { "goto opened" } else { "counter drop" };
    let mut forward = vec![
        "type filter hook forward priority filter; policy accept;".to_owned(),
        "ct state established accept".to_owned(),
    ];
    forward.extend(rules::passes(desired));
    forward.extend([
        format!("iifname \"{tun}\" oifname \"{tun}\" {among}"),
        format!("iifname \"{tun}\" goto clients_out"),
    ]);
    chain(text, "forward", &forward);
    let input = [
        "type filter hook input priority filter; policy accept;".to_owned(),
        "ct state established accept".to_owned(),
        format!("iifname \"{tun}\" goto clients_in"),
    ];
    chain(text, "input", &input);
}

fn segments(text: &mut String, desired: &Desired) {
    let tun = &desired.tun;
    let clamp = "tcp flags syn tcp option maxseg size set rt mtu";
    let rules = [
        "type filter hook forward priority mangle; policy accept;".to_owned(),
        format!("iifname \"{tun}\" {clamp}"),
        format!("oifname \"{tun}\" {clamp}"),
    ];
    chain(text, "segments", &rules);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::Forwards;
    use crate::host::Ipv6;

    fn nets(list: &[&str]) -> Vec<IpNet> {
        list.iter().map(|net| net.parse().unwrap()).collect()
    }

    fn desired() -> Desired {
        Desired {
            tun: "rope0".into(),
            mtu: 1440,
            own: Vec::new(),
            inner: nets(&["10.77.0.0/16", "fd77::/64"]),
            behind: Vec::new(),
            ipv6: Ipv6::Nat66,
            ports: vec![51900, 443],
            allow: Vec::new(),
            inbound: Vec::new(),
            name_servers: Vec::new(),
            client_connections: 8192,
            client_connection_rate: 500,
            no_nat: nets(&["192.168.0.0/16", "192.168.7.0/24", "10.77.5.0/24", "2001:db8::/32"]),
            uplinks: Vec::new(),
            client_to_client: false,
            forwards: Forwards::default(),
        }
    }

    #[test]
    fn no_nat_names_sources_within_the_inner_prefixes_and_destinations_elsewhere() {
        let text = chains(&desired(), &[]);
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
    fn hosts_behind_a_client_keep_their_addresses_and_count_as_one_client() {
        let behind = nets(&["2001:db8:7::/64", "2001:db8:8::/64", "2001:db8:9:100::/56"]);
        let inner = [desired().inner, behind.clone()].concat();
        let text = chains(&Desired { inner, behind, ..desired() }, &[]);
        for rule in [
            "ip6 saddr != { 2001:db8:7::/64, 2001:db8:8::/64, 2001:db8:9:100::/56, fd77::/64 } counter drop",
            "ip6 saddr { 2001:db8:7::/64, 2001:db8:8::/64 } add @connections_ipv6 { ip6 saddr & ffff:ffff:ffff:ffff:: \
             ct count over 8192 }",
            "ip6 saddr { 2001:db8:9:100::/56 } update @connection_rates_ipv6 { ip6 saddr & ffff:ffff:ffff:ff00:: \
             limit rate over 500/second",
            "ip6 saddr != { 2001:db8:7::/64, 2001:db8:8::/64, 2001:db8:9:100::/56 } add @connections_ipv6 { ip6 saddr ct",
            "        add @connections_ipv4 { ip saddr ct count over 8192 }",
            "ip6 daddr { 2001:db8:7::/64, 2001:db8:8::/64, 2001:db8:9:100::/56, fd77::/64 } counter drop",
        ] {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
        let (_, translation) = text.split_once("chain postrouting").unwrap();
        let kept = "ip6 saddr { 2001:db8:7::/64, 2001:db8:8::/64, 2001:db8:9:100::/56 } return";
        let place = |rule: &str| translation.find(rule).unwrap();
        assert!(place(kept) < place("fd77::/64 } counter masquerade"), "{translation}");
    }

    #[test]
    fn a_packet_of_a_known_connection_passes_by_the_first_rule_of_each_chain_that_has_many() {
        let text = chains(&desired(), &[]);
        for (name, first) in [
            ("to_clients", "ct state established,related accept"),
            ("forward", "ct state established accept"),
            ("input", "ct state established accept"),
        ] {
            let chain = text.split(&format!("chain {name} {{\n")).nth(1).unwrap();
            let rule = chain.lines().nth(1).unwrap().trim();
            assert_eq!(rule, first, "{name}");
        }
    }

    #[test]
    fn only_the_ports_of_the_tunnel_are_not_tracked_and_only_at_this_host() {
        let text = chains(&desired(), &[]);
        assert!(text.contains("udp dport { 51900, 443 } fib daddr type local notrack"), "{text}");
        assert!(text.contains("udp sport { 51900, 443 } notrack"), "{text}");
    }

    #[test]
    fn ports_of_the_same_number_share_a_rule() {
        use crate::allow::Allowed;
        use ropewalk_settings::Text as _;
        let allow = ["10.0.0.5 443/tcp", "10.0.0.9 443/tcp", "10.0.0.9 53/udp", "fd01::/64"]
            .map(|text| Allowed::from_text(text).unwrap());
        let text = chains(&Desired { allow: allow.into(), ..desired() }, &[]);
        for rule in [
            "ip daddr { 10.0.0.5/32, 10.0.0.9/32 } tcp dport 443 goto opened",
            "ip daddr { 10.0.0.9/32 } udp dport 53 goto opened",
            "ip6 daddr { fd01::/64 } goto opened",
        ] {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
    }

    #[test]
    fn named_uplinks_are_the_only_ones() {
        let text =
            chains(&Desired { uplinks: vec!["eth0".into(), "eth1".into()], ..desired() }, &[]);
        assert!(text.contains("oifname { \"eth0\", \"eth1\" } ip saddr"), "{text}");
    }

    #[test]
    fn a_routed_prefix_keeps_its_addresses_and_without_ipv6_all_of_it_is_dropped() {
        let text = chains(&Desired { ipv6: Ipv6::Routed, ..desired() }, &[]);
        assert!(!text.contains("ip6 saddr { fd77::/64 } counter masquerade"), "{text}");
        assert!(text.contains("ip6 saddr != { fd77::/64 } counter drop"), "{text}");
        let text =
            chains(&Desired { ipv6: Ipv6::None, inner: nets(&["10.77.0.0/16"]), ..desired() }, &[]);
        assert!(text.contains("meta nfproto ipv6 counter drop"), "{text}");
    }
}
