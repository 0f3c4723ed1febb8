//! The firewall table that marks connections by the rules, as text.
//!
//! * `output`: a packet of this machine that is none of the tunnel's own, none to this machine or among neighbours, no question to
//!   the tunnel's name servers, and no answer. One of a connection that was chosen before has its mark; the first one of a new
//!   connection meets the rules (`choose`). Whatever mark it gets, the kernel asks the routing rules again.
//! * `choose`: the rules of `exclude`, then its prefixes, which `routes` cannot take back, then the rules of `routes`.
//! * a chain for each rule: counts, and marks the connection and the packet.
//! * `answers`: an answer has the mark of its connection before reverse path filtering asks which way it should have come.
//! * `sources`: what leaves on another side than its source address was chosen for gets the address of that side.
//! * `no_way`: where packets of a family that the proxy hands out no address of come as far as the marks, those without one are
//!   refused, as the routes would have done. The hooks that follow `output` are still told the interface by which a packet was to
//!   leave before it had its mark, so there it is the mark that counts.
//! * `names`: questions to our own address for names come to the port at which they are answered.
//!
//! The address of a connection is translated by its first packet, so only new ones are chosen.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use ropewalk_settings::{Mtu, Side};

use super::Rule;
use crate::host::TunDesired;
use crate::lock::by_family;
use crate::routes::{MARK_MASK, Numbers};

/// Where this machine's programs ask for names while domains are chosen. Any address of 127.0.0.0/8 is this machine's; a resolver
/// of its own is at one of the first.
pub const NAMES: Ipv4Addr = Ipv4Addr::new(127, 82, 87, 53);

/// What is meant for this machine and its neighbours only, and goes to nobody by a rule.
const LOCAL: [&str; 7] = [
    "127.0.0.0/8",
    "169.254.0.0/16",
    "224.0.0.0/4",
    "255.255.255.255/32",
    "::1/128",
    "fe80::/10",
    "ff00::/8",
];

/// Most addresses that a set of the kernel holds: more than are learned, because new ones come before old ones go.
const SET_SIZE: usize = 65_535;

/// A rule, and what it chooses on this machine now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// The rule.
    pub rule: Rule,
    /// What of it is there.
    pub by: By,
}

/// By what packets are chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    /// By the number of the user whose program sends them.
    User(u32),
    /// By the control group of that program: levels and paths as [`Tree::named`](super::cgroups::Tree::named) has them.
    Cgroups(Vec<(usize, String)>),
    /// By where they go: the sets of the rule.
    Addresses,
    /// None are there.
    Nothing,
}

/// What the table is made of.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The numbers of marks.
    pub numbers: &'a Numbers,
    /// The TUN, once there was a session.
    pub tun: Option<&'a TunDesired>,
    /// The rules, those of `exclude` first.
    pub chosen: &'a [Chosen],
    /// The prefixes of `exclude`.
    pub excluded: &'a [IpNet],
    /// The tunnel's name servers, and those that are asked outside for a while: questions to them go where they stand.
    pub name_servers: &'a [IpAddr],
    /// Where questions for names are answered, if they are.
    pub forwarder: Option<SocketAddr>,
}

/// The whole table.
#[must_use]
pub fn body(scene: &Scene<'_>) -> String {
    let mut text = String::new();
    for chosen in scene.chosen {
        let name = chosen.rule.name();
        line(&mut text, 1, &format!("counter {name} {{ }}"));
        if chosen.by == By::Addresses {
            for (family, kind) in [("4", "ipv4_addr"), ("6", "ipv6_addr")] {
                line(
                    &mut text,
                    1,
                    &format!(
                        "set {name}_{family} {{ type {kind}; size {SET_SIZE}; flags dynamic,timeout; }}"
                    ),
                );
            }
        }
    }
    for chosen in scene.chosen {
        scene.add_rule(&mut text, &chosen.rule);
    }
    scene.add_known(&mut text);
    scene.add_choose(&mut text);
    scene.add_output(&mut text);
    scene.add_answers(&mut text);
    scene.add_sources(&mut text);
    scene.add_refusals(&mut text);
    scene.add_names(&mut text);
    text
}

/// The name of the set for an address that a rule learned.
#[must_use]
pub fn set_of(rule: &Rule, address: IpAddr) -> String {
    format!("{}_{}", rule.name(), if address.is_ipv4() { "4" } else { "6" })
}

/// Whether packets of a family without an inner address come as far as the marks: the routing table of the tunnel then has a
/// route for them, and [`body`] refuses what has no mark. On a TUN that is too small for IPv6 there can be none.
#[must_use]
pub fn lets_come(tun: &TunDesired, is_ipv4: bool, rules: &[Rule]) -> bool {
    let fits = is_ipv4 || tun.mtu >= u32::from(Mtu::MIN);
    fits && !has_inner(tun, is_ipv4) && rules.iter().any(|rule| rule.side == Side::Outside)
}

/// Refuses these packets as where there is no route. TCP is reset: the kernel leaves an ICMP error aside while the program is
/// still within `connect`, which would learn of it a second later, by the next SYN.
fn add_no_route(text: &mut String, which: &str) {
    line(text, 2, &format!("{which} meta l4proto tcp counter reject with tcp reset"));
    line(text, 2, &format!("{which} counter reject with icmpx type no-route"));
}

impl Scene<'_> {
    fn rules(&self) -> Vec<Rule> {
        self.chosen.iter().map(|chosen| chosen.rule.clone()).collect()
    }

    /// The families without an inner address: nft's words, and the addresses that are near all the same.
    fn without_inner(&self) -> Vec<(&'static str, &'static str, String)> {
        let families = [("ip", "ipv4", true), ("ip6", "ipv6", false)];
        let lacking = families
            .into_iter()
            .filter(|(_, _, is_ipv4)| self.tun.is_none_or(|tun| !has_inner(tun, *is_ipv4)));
        let near: Vec<IpNet> = crate::near::private().collect();
        lacking
            .filter_map(|(word, family, _)| {
                let (_, near) = by_family(&near).find(|(own, _)| *own == word)?;
                Some((word, family, near))
            })
            .collect()
    }

    fn add_rule(&self, text: &mut String, rule: &Rule) {
        let (name, mark) = (rule.name(), rule.mark(self.numbers));
        line(text, 1, &format!("chain {name} {{"));
        match rule.side {
            Side::Inside => {
                for (word, _, near) in self.without_inner() {
                    add_no_route(text, &format!("{word} daddr != {near}"));
                }
                line(text, 2, &format!("counter name \"{name}\" ct mark set {mark:#x}"));
                line(text, 2, &format!("meta mark set {mark:#x}"));
            }
            Side::Outside => {
                line(text, 2, &format!("counter name \"{name}\" ct mark set {mark:#x}"));
                // Without a tunnel all goes around it, and who has chosen a link's address has chosen the link.
                for (word, inner) in self.inner() {
                    line(text, 2, &format!("{word} saddr {inner} meta mark set {mark:#x}"));
                }
                if self.tun.is_some() {
                    for (_, family, _) in self.without_inner() {
                        line(text, 2, &format!("meta nfproto {family} meta mark set {mark:#x}"));
                    }
                }
            }
        }
        line(text, 1, "}");
    }

    /// Connections that were chosen before. Those of a rule that is no more would leave with an address of the wrong side.
    fn add_known(&self, text: &mut String) {
        line(text, 1, "chain known {");
        let places: Vec<String> = self
            .chosen
            .iter()
            .map(|chosen| {
                let (name, mark) = (chosen.rule.name(), chosen.rule.mark(self.numbers));
                format!("{mark:#x} : goto {name}")
            })
            .collect();
        if !places.is_empty() {
            line(text, 2, &format!("ct mark vmap {{ {} }}", places.join(", ")));
        }
        line(text, 2, "meta l4proto tcp counter reject with tcp reset");
        line(text, 2, "counter reject with icmpx type admin-prohibited");
        line(text, 1, "}");
    }

    fn add_choose(&self, text: &mut String) {
        line(text, 1, "chain choose {");
        self.add_choices(text, Side::Outside);
        for (word, excluded) in by_family(self.excluded) {
            line(text, 2, &format!("{word} daddr {excluded} return"));
        }
        self.add_choices(text, Side::Inside);
        line(text, 1, "}");
    }

    fn add_choices(&self, text: &mut String, side: Side) {
        for Chosen { rule, by } in self.chosen.iter().filter(|one| one.rule.side == side) {
            let name = rule.name();
            match by {
                By::User(id) => line(text, 2, &format!("meta skuid {id} goto {name}")),
                By::Cgroups(groups) => {
                    for (level, path) in groups {
                        line(
                            text,
                            2,
                            &format!("socket cgroupv2 level {level} \"{path}\" goto {name}"),
                        );
                    }
                }
                By::Addresses => {
                    line(text, 2, &format!("ip daddr @{name}_4 goto {name}"));
                    line(text, 2, &format!("ip6 daddr @{name}_6 goto {name}"));
                }
                By::Nothing => {}
            }
        }
    }

    fn add_output(&self, text: &mut String) {
        line(text, 1, "chain output {");
        line(text, 2, "type route hook output priority mangle; policy accept;");
        line(text, 2, "oifname \"lo\" return");
        let own = self.numbers.mark;
        line(text, 2, &format!("meta mark & {MARK_MASK:#x} == {own:#x} return"));
        let local: Vec<IpNet> = LOCAL.iter().filter_map(|net| net.parse().ok()).collect();
        for (word, local) in by_family(&local) {
            line(text, 2, &format!("{word} daddr {local} return"));
        }
        let servers: Vec<IpNet> = self.name_servers.iter().copied().map(IpNet::from).collect();
        for (word, servers) in by_family(&servers) {
            line(
                text,
                2,
                &format!(
                    "{word} daddr {servers} meta l4proto {{ tcp, udp }} th dport {{ 53, 853 }} return"
                ),
            );
        }
        line(text, 2, "ct direction reply return");
        for side in [Side::Outside, Side::Inside] {
            let mark = self.numbers.mark_of_side(side);
            line(text, 2, &format!("ct mark & {MARK_MASK:#x} == {mark:#x} goto known"));
        }
        line(text, 2, "ct state new goto choose");
        line(text, 1, "}");
    }

    fn add_answers(&self, text: &mut String) {
        line(text, 1, "chain answers {");
        line(text, 2, "type filter hook prerouting priority mangle; policy accept;");
        for side in [Side::Outside, Side::Inside] {
            let mark = self.numbers.mark_of_side(side);
            line(
                text,
                2,
                &format!(
                    "ct direction reply ct mark & {MARK_MASK:#x} == {mark:#x} meta mark set ct mark"
                ),
            );
        }
        line(text, 1, "}");
    }

    fn add_sources(&self, text: &mut String) {
        let Some(tun) = self.tun else { return };
        let name = &tun.name;
        line(text, 1, "chain sources {");
        line(text, 2, "type nat hook postrouting priority srcnat; policy accept;");
        for (side, place) in [
            (Side::Outside, format!("oifname != {{ \"lo\", \"{name}\" }}")),
            (Side::Inside, format!("oifname \"{name}\"")),
        ] {
            let mark = self.numbers.mark_of_side(side);
            line(text, 2, &format!("{place} meta mark & {MARK_MASK:#x} == {mark:#x} masquerade"));
        }
        line(text, 1, "}");
    }

    fn add_refusals(&self, text: &mut String) {
        let (Some(tun), rules) = (self.tun, self.rules()) else { return };
        let families = [("ipv4", true), ("ipv6", false)];
        let come = families.into_iter().filter(|(_, is_ipv4)| lets_come(tun, *is_ipv4, &rules));
        let come: Vec<&str> = come.map(|(family, _)| family).collect();
        if come.is_empty() {
            return;
        }
        let outside = self.numbers.mark_of_side(Side::Outside);
        // A mark has led a packet of this machine elsewhere by then, and its hook still tells the interface of before.
        let unmarked = format!(" meta mark & {MARK_MASK:#x} != {outside:#x}");
        for (hook, unmarked) in [("output", unmarked.as_str()), ("forward", "")] {
            line(text, 1, &format!("chain no_way_{hook} {{"));
            line(text, 2, &format!("type filter hook {hook} priority filter; policy accept;"));
            for family in &come {
                let which = format!("oifname \"{}\" meta nfproto {family}{unmarked}", tun.name);
                add_no_route(text, &which);
            }
            line(text, 1, "}");
        }
    }

    fn add_names(&self, text: &mut String) {
        let Some(forwarder) = self.forwarder else { return };
        line(text, 1, "chain names {");
        // Where destinations are translated: the word for it is not known in this place.
        line(text, 2, "type nat hook output priority -100; policy accept;");
        for protocol in ["udp", "tcp"] {
            line(text, 2, &format!("ip daddr {NAMES} {protocol} dport 53 dnat ip to {forwarder}"));
        }
        line(text, 1, "}");
    }

    /// nft's words of the families with an inner address, and the addresses.
    fn inner(&self) -> Vec<(&'static str, String)> {
        let inner = self.tun.map_or(&[][..], |tun| &tun.inner);
        let inner: Vec<IpNet> = inner.iter().copied().map(IpNet::from).collect();
        by_family(&inner).collect()
    }
}

fn has_inner(tun: &TunDesired, is_ipv4: bool) -> bool {
    tun.inner.iter().any(|inner| inner.is_ipv4() == is_ipv4)
}

/// One line, so many levels deep.
fn line(text: &mut String, depth: usize, words: &str) {
    writeln!(text, "{}{words}", "    ".repeat(depth)).expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::split::rules;
    use ropewalk_settings::{Selector, Text as _};

    fn tun(inner: &[&str]) -> TunDesired {
        TunDesired {
            name: "rope0".into(),
            inner: inner.iter().map(|address| address.parse().unwrap()).collect(),
            mtu: 1400,
        }
    }

    fn chosen(routes: &[&str], exclude: &[&str]) -> Vec<Chosen> {
        let list = |entries: &[&str]| -> Vec<Selector> {
            entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
        };
        let by = |selector: &Selector| match selector {
            Selector::User(_) => By::User(1000),
            Selector::Domain(_) => By::Addresses,
            Selector::Unit(_) => By::Cgroups(vec![
                (2, "system.slice/a.service".into()),
                (3, "user.slice/b.slice/a.service".into()),
            ]),
            Selector::App(_) | Selector::Cgroup(_) | Selector::Prefix(_) => By::Nothing,
        };
        let rules = rules(&list(routes), &list(exclude)).into_iter();
        rules.map(|rule| Chosen { by: by(&rule.selector), rule }).collect()
    }

    fn text(chosen: &[Chosen], inner: Option<&[&str]>) -> String {
        let tun = inner.map(tun);
        body(&Scene {
            numbers: &Numbers::default(),
            tun: tun.as_ref(),
            chosen,
            excluded: &["198.51.100.0/24".parse().unwrap()],
            name_servers: &["10.77.0.1".parse().unwrap()],
            forwarder: Some("127.82.87.53:40001".parse().unwrap()),
        })
    }

    /// The rules of one chain.
    fn chain(text: &str, name: &str) -> Vec<String> {
        let (_, rest) = text.split_once(&format!("    chain {name} {{\n")).expect(name);
        let (rules, _) = rest.split_once("\n    }\n").expect("an end");
        rules.lines().map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn the_rules_of_exclude_are_asked_first_and_its_prefixes_before_those_of_routes() {
        let chosen = chosen(&["user:alice", "domain:example.org"], &["unit:a.service", "app:x"]);
        let names: Vec<String> = chosen.iter().map(|one| one.rule.name()).collect();
        let text = text(&chosen, Some(&["10.77.0.2", "fd77::2"]));
        assert_eq!(
            chain(&text, "choose"),
            [
                format!("socket cgroupv2 level 2 \"system.slice/a.service\" goto {}", names[0]),
                format!(
                    "socket cgroupv2 level 3 \"user.slice/b.slice/a.service\" goto {}",
                    names[0]
                ),
                "ip daddr { 198.51.100.0/24 } return".to_owned(),
                format!("meta skuid 1000 goto {}", names[2]),
                format!("ip daddr @{}_4 goto {}", names[3], names[3]),
                format!("ip6 daddr @{}_6 goto {}", names[3], names[3]),
            ]
        );
        for name in &names {
            assert!(text.contains(&format!("    counter {name} {{ }}\n")), "{text}");
        }
        let set =
            format!("set {}_6 {{ type ipv6_addr; size 65535; flags dynamic,timeout; }}", names[3]);
        assert!(text.contains(&set) && text.matches("    set ").count() == 2, "{text}");
    }

    #[test]
    fn a_connection_has_the_mark_of_its_rule_and_one_of_a_rule_that_is_gone_is_refused() {
        let chosen = chosen(&["user:alice"], &["user:bob"]);
        let text = text(&chosen, Some(&["10.77.0.2", "fd77::2"]));
        let [outside, inside] = [&chosen[0], &chosen[1]]
            .map(|one| (one.rule.name(), one.rule.mark(&Numbers::default())));
        assert_eq!(
            chain(&text, "known"),
            [
                format!(
                    "ct mark vmap {{ {:#x} : goto {}, {:#x} : goto {} }}",
                    outside.1, outside.0, inside.1, inside.0
                ),
                "meta l4proto tcp counter reject with tcp reset".to_owned(),
                "counter reject with icmpx type admin-prohibited".to_owned(),
            ]
        );
        assert_eq!(
            chain(&text, &outside.0),
            [
                format!("counter name \"{}\" ct mark set {:#x}", outside.0, outside.1),
                format!("ip saddr {{ 10.77.0.2/32 }} meta mark set {:#x}", outside.1),
                format!("ip6 saddr {{ fd77::2/128 }} meta mark set {:#x}", outside.1),
            ]
        );
        assert_eq!(
            chain(&text, &inside.0),
            [
                format!("counter name \"{}\" ct mark set {:#x}", inside.0, inside.1),
                format!("meta mark set {:#x}", inside.1),
            ]
        );
        let output = chain(&text, "output");
        assert_eq!(output[2], "meta mark & 0xffff0000 == 0x52570000 return");
        let questions =
            "ip daddr { 10.77.0.1/32 } meta l4proto { tcp, udp } th dport { 53, 853 } return";
        assert!(output.iter().any(|rule| rule == questions), "{output:?}");
        assert_eq!(output.last().unwrap(), "ct state new goto choose");
    }

    #[test]
    fn a_family_without_an_inner_address_is_refused_inside_and_comes_as_far_as_the_marks_for_outside()
     {
        let inside = chosen(&["user:alice"], &[]);
        let refused = text(&inside, Some(&["10.77.0.2"]));
        let no_route = |which: &str| {
            [
                "meta l4proto tcp counter reject with tcp reset",
                "counter reject with icmpx type no-route",
            ]
            .map(|refusal| format!("{which} {refusal}"))
        };
        let rules = no_route("ip6 daddr != { fc00::/7, fe80::/10 }");
        assert_eq!(chain(&refused, &inside[0].rule.name())[..2], rules);
        assert!(!refused.contains("no_way"), "{refused}");
        // Before the first session there is no way in either family.
        let before = text(&inside, None);
        let found = chain(&before, &inside[0].rule.name());
        assert!(found[0].starts_with("ip daddr != { 10.0.0.0/8,"), "{found:?}");
        assert_eq!(found[2..4], rules);
        assert!(!before.contains("masquerade"), "{before}");

        let outside = chosen(&[], &["user:bob"]);
        let text = text(&outside, Some(&["10.77.0.2"]));
        let mark = outside[0].rule.mark(&Numbers::default());
        let rules = chain(&text, &outside[0].rule.name());
        assert_eq!(rules.last().unwrap(), &format!("meta nfproto ipv6 meta mark set {mark:#x}"));
        // In the hook of what this machine sends, what a mark has led elsewhere is still told with the TUN.
        for (hook, unmarked) in
            [("output", " meta mark & 0xffff0000 != 0x52580000"), ("forward", "")]
        {
            let refusals = no_route(&format!("oifname \"rope0\" meta nfproto ipv6{unmarked}"));
            assert_eq!(chain(&text, &format!("no_way_{hook}"))[1..], refusals, "{hook}");
        }
        let rules = [outside[0].rule.clone()];
        assert!(lets_come(&tun(&["10.77.0.2"]), false, &rules));
        assert!(!lets_come(&tun(&["10.77.0.2", "fd77::2"]), false, &rules));
        assert!(!lets_come(&TunDesired { mtu: 1140, ..tun(&["10.77.0.2"]) }, false, &rules));
        assert!(!lets_come(&tun(&["10.77.0.2"]), false, &[inside[0].rule.clone()]));
    }

    #[test]
    fn questions_for_names_come_to_the_port_at_which_they_are_answered() {
        let text = text(&chosen(&[], &["domain:example.org"]), Some(&["10.77.0.2"]));
        assert_eq!(
            chain(&text, "names")[1..],
            ["udp", "tcp"].map(|protocol| format!(
                "ip daddr 127.82.87.53 {protocol} dport 53 dnat ip to 127.82.87.53:40001"
            ))
        );
    }
}
