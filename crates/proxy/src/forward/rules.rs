//! The rules of the firewall for ports that lead to clients.
//!
//! * `forwards`, `forwards_tcp`, `forwards_udp`: the destination of a packet to such a port of this host becomes the client's. What
//!   comes out of the TUN is led too: a client reaches the port as everybody does.
//! * `forwarded`: what may go so counts against the client's share of the table of connections, as what it begins itself does, and if
//!   another client began it, against that one's, too.
//! * `forwarded_traffic`: what was carried, by port and direction.
//! * `hairpin`: towards a client that another client, or itself, reaches so, the source becomes the proxy's inner address; else
//!   the answers would not come back here.
//! * `forwards_ended`: see [`connections`](super::connections).
//!
//! The sets `forwarded_tcp` and `forwarded_udp` hold the ports, and stay in the table when the proxy stops: the next start so knows
//! which connections are those of ports that are forwarded no more.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ropewalk_settings::PortRange;

use super::{Forwarded, Ports};
use crate::allow::Transport;
use crate::firewall::words::{V4, V6, Words, chain};
use crate::firewall::{BOUNDED, BURST_SECONDS, MOST_COUNTED, hosts, matches};
use crate::host::{Desired, Ipv6};

/// The protocols in the order of the rules.
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];

/// What a counter of a forward counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// The first packets of connections.
    New,
    /// Packets to the client.
    Down,
    /// Packets from it.
    Up,
}

/// The name of the counter of these ports.
#[must_use]
pub fn counter(transport: Transport, first: u16, counted: Counted) -> String {
    let what = match counted {
        Counted::New => "new",
        Counted::Down => "down",
        Counted::Up => "up",
    };
    format!("forward_{}_{first}_{what}", transport.as_str())
}

/// The name of the set of these ports.
#[must_use]
pub fn set_name(transport: Transport) -> String {
    format!("forwarded_{}", transport.as_str())
}

/// The sets of ports.
pub fn sets(text: &mut String, ports: &Ports) {
    for transport in TRANSPORTS {
        let elements: Vec<_> = ports.of(transport).iter().map(ToString::to_string).collect();
        if !elements.is_empty() {
            text.push_str(&format!(
                "    set {} {{ type inet_service; flags interval; elements = {{ {} }} }}\n",
                set_name(transport),
                elements.join(", ")
            ));
        }
    }
}

/// What stands before the chains: the counters, and the sets that these need.
pub fn declarations(text: &mut String, desired: &Desired) {
    sets(text, &desired.forwards.ports());
    let active = &desired.forwards.active;
    for forward in active {
        for counted in [Counted::New, Counted::Down, Counted::Up] {
            let name = counter(forward.transport, forward.ports.first(), counted);
            text.push_str(&format!("    counter {name} {{\n    }}\n"));
        }
    }
    if active.is_empty() {
        return;
    }
    for Words { address, protocol, .. } in [V4, V6] {
        text.push_str(&format!(
            "    set forwarded_connections_{protocol} {{ type {address}; size {MOST_COUNTED}; flags dynamic; }}\n    \
             set forwarded_rates_{protocol} {{ type {address}; size {MOST_COUNTED}; flags dynamic,timeout; \
             timeout 1m; }}\n"
        ));
    }
}

/// Those of one protocol that lead anywhere.
fn of(desired: &Desired, transport: Transport) -> impl Iterator<Item = &Forwarded> {
    desired.forwards.active.iter().filter(move |forward| forward.transport == transport)
}

/// The protocols of which any port leads anywhere.
fn used(desired: &Desired) -> impl Iterator<Item = Transport> {
    TRANSPORTS.into_iter().filter(move |transport| of(desired, *transport).next().is_some())
}

/// The chains that lead packets to clients, and bound and count them; nothing where no port leads anywhere.
pub fn chains(text: &mut String, desired: &Desired) {
    if desired.forwards.active.is_empty() {
        return;
    }
    let families = families(desired);
    for transport in used(desired) {
        let rules: Vec<_> = of(desired, transport)
            .flat_map(|forward| families.iter().filter_map(move |family| led(forward, *family)))
            .collect();
        chain(text, &format!("forwards_{}", transport.as_str()), &rules);
    }
    leading(text, desired);
    bounding(text, desired);
    counting(text, desired);
}

/// The families in which clients have addresses.
fn families(desired: &Desired) -> Vec<Words> {
    let v6 = (desired.ipv6 != Ipv6::None).then_some(V6);
    std::iter::once(V4).chain(v6).collect()
}

/// The rule that leads packets of one family to the client; `None` where it has no address of it, or nobody may come.
fn led(forward: &Forwarded, family: Words) -> Option<String> {
    let Words { word, protocol, .. } = family;
    let to = forward.to.iter().find(|address| family.holds(address))?;
    let from = match forward.from.as_slice() {
        [] => format!("meta nfproto {protocol}"),
        nets => format!("{word} saddr {}", family.set(nets.iter().copied())?),
    };
    let place = match (forward.ports.is_one(), to) {
        (false, to) => to.to_string(),
        (true, IpAddr::V4(to)) => format!("{to}:{}", forward.to_port),
        (true, IpAddr::V6(to)) => format!("[{to}]:{}", forward.to_port),
    };
    let (transport, ports) = (forward.transport, forward.ports);
    let counter = counter(transport, ports.first(), Counted::New);
    Some(format!(
        "{from} {} dport {ports} counter name \"{counter}\" dnat {word} to {place}",
        transport.as_str()
    ))
}

/// Which packets are asked about: those to an address of this host but its inner ones, which are this host's for clients.
fn leading(text: &mut String, desired: &Desired) {
    let mut rules = vec!["type nat hook prerouting priority dstnat; policy accept;".to_owned()];
    rules.push(match desired.uplinks.as_slice() {
        [] => "iifname \"lo\" accept".to_owned(),
        named => {
            let names = named.iter().chain([&desired.tun]).map(|name| format!("\"{name}\""));
            format!("iifname != {{ {} }} accept", names.collect::<Vec<_>>().join(", "))
        }
    });
    let own = matches("daddr", &hosts(&desired.own));
    rules.extend(own.iter().map(|own| format!("{own} accept")));
    rules.extend(used(desired).map(|transport| {
        let (word, set) = (transport.as_str(), set_name(transport));
        format!("{word} dport @{set} fib daddr type local goto forwards_{word}")
    }));
    chain(text, "forwards", &rules);
}

fn bounding(text: &mut String, desired: &Desired) {
    let (most, rate) = (desired.client_connections, desired.client_connection_rate);
    let burst = rate.saturating_mul(BURST_SECONDS);
    // As of what clients begin, only the first packet is counted.
    let mut rules =
        vec!["ct state != new accept".to_owned(), "ct status confirmed accept".to_owned()];
    for Words { word, protocol, .. } in families(desired) {
        rules.push(format!(
            "update @forwarded_rates_{protocol} {{ {word} daddr limit rate over {rate}/second burst {burst} packets }} \
             counter name \"{BOUNDED}\" drop"
        ));
        rules.push(format!(
            "add @forwarded_connections_{protocol} {{ {word} daddr ct count over {most} }} counter name \"{BOUNDED}\" drop"
        ));
    }
    rules.push(format!("iifname \"{}\" goto opened", desired.tun));
    rules.push("accept".to_owned());
    chain(text, "forwarded", &rules);
}

/// Whatever was led here, and only that: a translation of the user's has other ports.
fn is_led(transport: Transport) -> String {
    let (word, set) = (transport.as_str(), set_name(transport));
    format!("ct status dnat meta l4proto {word} ct original proto-dst @{set}")
}

/// Where the chain of what is forwarded by this host hands it on.
#[must_use]
pub fn passes(desired: &Desired) -> Vec<String> {
    let tun = &desired.tun;
    used(desired)
        .map(|transport| format!("oifname \"{tun}\" {} goto forwarded", is_led(transport)))
        .collect()
}

fn counting(text: &mut String, desired: &Desired) {
    // Behind the chain that may drop them.
    let mut rules =
        vec!["type filter hook forward priority filter + 10; policy accept;".to_owned()];
    for transport in used(desired) {
        for (interface, direction, counted) in
            [("oifname", "original", Counted::Down), ("iifname", "reply", Counted::Up)]
        {
            let counters: Vec<_> = of(desired, transport)
                .map(|forward| {
                    let name = counter(transport, forward.ports.first(), counted);
                    format!("{} : \"{name}\"", forward.ports)
                })
                .collect();
            rules.push(format!(
                "{interface} \"{}\" ct status dnat ct direction {direction} meta l4proto {} counter name ct original \
                 proto-dst map {{ {} }}",
                desired.tun,
                transport.as_str(),
                counters.join(", ")
            ));
        }
    }
    chain(text, "forwarded_traffic", &rules);
}

/// The rules of the chain that translates sources, for clients that reach a client so.
#[must_use]
pub fn hairpin(desired: &Desired) -> Vec<String> {
    let mut rules = Vec::new();
    for own in &desired.own {
        let family = if V4.holds(own) { V4 } else { V6 };
        let Some(inner) = family.set(desired.inner.iter().copied()) else { continue };
        let word = family.word;
        rules.extend(used(desired).map(|transport| {
            let (tun, led) = (&desired.tun, is_led(transport));
            format!("oifname \"{tun}\" {word} saddr {inner} {led} counter snat {word} to {own}")
        }));
    }
    rules
}

/// The chain that ends connections which their client's end would keep alive: nothing where there are none.
pub fn ended(text: &mut String, tun: &str, ended: &BTreeSet<(IpAddr, u16)>) {
    if ended.is_empty() {
        return;
    }
    let mut rules = vec![
        "type filter hook forward priority filter - 1; policy accept;".to_owned(),
        format!("iifname != \"{tun}\" accept"),
        "ct state != new accept".to_owned(),
    ];
    for family in [V4, V6] {
        let places: Vec<_> = ended
            .iter()
            .filter(|(address, _)| family.holds(address))
            .map(|(address, port)| format!("{address} . {port}"))
            .collect();
        if !places.is_empty() {
            rules.push(format!(
                "{} saddr . tcp sport {{ {} }} tcp flags ! syn,rst counter reject with tcp reset",
                family.word,
                places.join(", ")
            ));
        }
    }
    chain(text, "forwards_ended", &rules);
}

/// The ports that a table of an earlier run has in its sets; what is no range of ports is left out.
#[must_use]
pub fn remembered(tcp: &[(u16, u16)], udp: &[(u16, u16)]) -> Ports {
    let ranges = |found: &[(u16, u16)]| {
        found.iter().filter_map(|(first, last)| PortRange::new(*first, *last)).collect()
    };
    Ports { tcp: ranges(tcp), udp: ranges(udp) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firewall;
    use crate::forward::testing;

    fn desired(active: &[&str]) -> Desired {
        testing::desired(active, Ports::default())
    }

    fn has(text: &str, rules: &[&str]) {
        for rule in rules {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
    }

    #[test]
    fn each_port_leads_to_the_client_in_both_families_and_is_counted() {
        let text = firewall::chains(
            &desired(&["tcp 8443 10.77.0.5,fd77::5 443", "udp 5000-5010 10.77.0.5 5000"]),
            &[],
        );
        has(
            &text,
            &[
                "set forwarded_tcp { type inet_service; flags interval; elements = { 8443 } }",
                "set forwarded_udp { type inet_service; flags interval; elements = { 5000-5010 } }",
                "meta nfproto ipv4 tcp dport 8443 counter name \"forward_tcp_8443_new\" dnat ip to 10.77.0.5:443",
                "meta nfproto ipv6 tcp dport 8443 counter name \"forward_tcp_8443_new\" dnat ip6 to [fd77::5]:443",
                // Several keep their numbers.
                "udp dport 5000-5010 counter name \"forward_udp_5000_new\" dnat ip to 10.77.0.5\n",
                "tcp dport @forwarded_tcp fib daddr type local goto forwards_tcp",
                "iifname \"lo\" accept",
                "ip daddr { 10.77.0.1/32 } accept",
                "proto-dst map { 5000-5010 : \"forward_udp_5000_down\" }",
                "ct direction reply meta l4proto tcp counter name ct original proto-dst map { 8443 : \"forward_tcp_8443_up\" }",
            ],
        );
        assert!(!text.contains("dnat ip6 to fd77::5\n"), "no IPv6 for the second\n{text}");
    }

    #[test]
    fn what_comes_in_is_bounded_and_passes_before_clients_are_kept_apart() {
        let text = firewall::chains(&desired(&["tcp 22 10.77.0.5,fd77::5 22"]), &[]);
        has(
            &text,
            &[
                "update @forwarded_rates_ipv4 { ip daddr limit rate over 500/second burst 2000 packets }",
                "add @forwarded_connections_ipv6 { ip6 daddr ct count over 4096 }",
                "iifname \"rope0\" goto opened",
            ],
        );
        let pass = "oifname \"rope0\" ct status dnat meta l4proto tcp ct original proto-dst @forwarded_tcp goto forwarded";
        let [pass, apart] = [pass, "iifname \"rope0\" oifname \"rope0\" counter drop"]
            .map(|rule| text.find(rule).unwrap_or_else(|| panic!("{rule} in\n{text}")));
        assert!(pass < apart, "{text}");
    }

    #[test]
    fn a_client_that_reaches_another_one_so_comes_from_the_proxys_inner_address() {
        let text = firewall::chains(&desired(&["udp 53 10.77.0.5 53"]), &[]);
        has(
            &text,
            &[
                "oifname \"rope0\" ip saddr { 10.77.0.0/16 } ct status dnat meta l4proto udp ct original proto-dst \
                 @forwarded_udp counter snat ip to 10.77.0.1",
                "counter snat ip6 to fd77::1",
            ],
        );
    }

    #[test]
    fn sources_are_asked_for_in_their_own_family_and_the_other_one_has_no_way_in() {
        let from = vec!["198.51.100.0/24".parse().unwrap()];
        let mut desired = desired(&["tcp 22 10.77.0.5,fd77::5 22"]);
        desired.forwards.active[0].from = from;
        let text = firewall::chains(&desired, &[]);
        has(&text, &["ip saddr { 198.51.100.0/24 } tcp dport 22 counter name"]);
        assert!(!text.contains("dnat ip6"), "{text}");
    }

    #[test]
    fn only_named_uplinks_and_clients_are_led_where_uplinks_are_named() {
        let desired = Desired { uplinks: vec!["eth0".into()], ..desired(&["tcp 22 10.77.0.5 22"]) };
        has(&firewall::chains(&desired, &[]), &["iifname != { \"eth0\", \"rope0\" } accept"]);
    }

    #[test]
    fn without_a_port_that_leads_anywhere_there_is_nothing_but_what_is_awaited() {
        let text = firewall::chains(&desired(&[]), &[]);
        assert!(!text.contains("forward_") && !text.contains("dnat"), "{text}");
        let mut desired = desired(&[]);
        desired.forwards.awaited = remembered(&[(8443, 8443), (9, 5)], &[(5000, 5010)]);
        let text = firewall::chains(&desired, &[]);
        has(&text, &["elements = { 8443 }", "elements = { 5000-5010 }"]);
        assert!(!text.contains("dnat"), "{text}");
    }

    #[test]
    fn what_a_client_sends_from_where_a_connection_was_ended_is_answered_with_a_reset() {
        let places: BTreeSet<(IpAddr, u16)> =
            [("10.77.0.5", 443), ("10.77.0.5", 22), ("fd77::5", 443)]
                .map(|(address, port)| (address.parse().unwrap(), port))
                .into();
        let mut text = String::new();
        ended(&mut text, "rope0", &places);
        has(
            &text,
            &[
                "ip saddr . tcp sport { 10.77.0.5 . 22, 10.77.0.5 . 443 } tcp flags ! syn,rst counter reject with tcp reset",
                "ip6 saddr . tcp sport { fd77::5 . 443 }",
                "ct state != new accept",
            ],
        );
        text.clear();
        ended(&mut text, "rope0", &BTreeSet::new());
        assert_eq!(text, "");
    }
}
