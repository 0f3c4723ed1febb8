//! The client's routes, rules and firewall table, computed as one plan from what is desired.
//!
//! Nothing of the user's is edited: every route stands in a table of our own, and rules lead there. A packet meets the
//! rules in this order (offsets from [`Numbers::priority`]); the first whose table has an answer decides:
//!
//! | rule | for | why |
//! | --- | --- | --- |
//! | −6, −5 mark of what goes around the tunnel → main, else unreachable | chosen [connections](crate::split) | `exclude` |
//! | −4 mark of what goes through it → near networks, only what is longer than a default route | the same | `routes`: the LAN stays reachable |
//! | −3, −2 the same → tunnel table, else unreachable | the same | never around it, also before the first session |
//! | +0 mark of link *i* → table of link *i* | our own datagrams | each leaves by its link, past the tunnel |
//! | +1 any of our marks → unreachable | our own datagrams | a link without a way out never sends by another one |
//! | +2 from an inner address, or bound to the TUN → tunnel table | packets that name the tunnel | whatever is routed |
//! | +3 from an address of a link → near networks | packets that name a link | the LAN first |
//! | +4 from an address of a link → table of that link | the same | replies leave by where the question came |
//! | (+3, +4 from the network that the proxy routes here → near networks, tunnel table) | hosts behind this one | no other way takes such a source |
//! | +10… to a routed prefix → near networks, only what is longer than the prefix | everything else | the LAN stays reachable |
//! | +11… to a routed prefix → tunnel table | everything else | the tunnel |
//! | (+10… to an excluded prefix → main | everything else | the host's own way) |
//!
//! For a family that the proxy hands out no address of, +3 and +4 stand behind all others. Linux answers a program that
//! has not chosen its address and finds its destination unreachable by asking again with the address of some interface: +4
//! would lead that past the tunnel. Only what comes to such an address from the proxy keeps its rule in front.
//!
//! *Near networks* is a table of ours with copies of those routes of the main table that [may win](crate::near) over the
//! tunnel: not all may, because the network that one is in can hand out routes. The last pair makes the tunnel behave as if
//! its prefixes stood among them and won each tie: with `10.0.0.0/8` a LAN `10.1.0.0/16` stays, a route to all of
//! `10.0.0.0/8` does not.
//!
//! The proxy itself is reached by the marks, so no route to its addresses is needed, and a proxy whose address changes
//! needs none changed. Its *name* is resolved before any of this is in place; afterwards a lookup by the system's resolver
//! could itself go through the tunnel, so the daemon keeps all addresses it was given, tries them all, and excludes the name
//! servers from the tunnel while it looks the name up again.
//!
//! Strict reverse path filtering (`rp_filter` = 1, RFC 3704) asks, for each datagram that comes in, whether the answer
//! would leave by the same interface. The rules +3 and +4 say yes, because the question is asked with our address as the
//! source. That fails in two cases: the main table holds a special route to the proxy, or two links have the same address
//! (two LTE routers of one make). So what comes from the proxy to this host by a link, from a port of its own, gets the
//! link's mark (chain `prerouting`), which with `src_valid_mark` = 1 leads the question to rule +0. The mark is given
//! after address translation and only if the host itself is the receiver: a tunnel of a machine behind this one is left
//! alone.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};

use ipnet::{IpNet, Ipv6Net};
use ropewalk_link_io::netlink::{
    CLIENT_PROTOCOL, Family, MAIN_TABLE, Route, Rule, RuleAction, Target,
};
use ropewalk_settings::Side;

use crate::host::{Desired, LinkDesired, TunDesired, Way};
use crate::split::chains::lets_come;
use crate::{share, split, unsolicited};

/// The numbers under which a client's changes are found. A second client in the same network namespace needs others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Numbers {
    /// The routing table of the tunnel; that of the link in slot *i* is this + 1 + *i*.
    pub table: u32,
    /// The mark (upper 16 bits) of our datagrams; that of the link in slot *i* is this + 1 + *i*.
    pub mark: u32,
    /// The priority of the first rule.
    pub priority: u32,
    /// The protocol number of routes and rules.
    pub protocol: u8,
    /// The name of the nftables table.
    pub firewall: String,
    /// The name of the one that outlives a crash: the kill switch.
    pub lock: String,
    /// The name of the one that chooses connections.
    pub split: String,
    /// The name of the one that counts devices behind this machine.
    pub devices: String,
}

impl Default for Numbers {
    /// Tables from 7700 and marks 0x5257xxxx ("RW"), used by no program known to us. The rules begin at 5300: after
    /// Tailscale's (5210 to 5270), so that its network stays reachable, and before `wg-quick`'s (near 32764) and the
    /// main table (32766).
    fn default() -> Self {
        Self {
            table: 7700,
            mark: 0x5257_0000,
            priority: 5300,
            protocol: CLIENT_PROTOCOL,
            firewall: "ropewalk_client".into(),
            lock: "ropewalk_lock".into(),
            split: "ropewalk_split".into(),
            devices: "ropewalk_devices".into(),
        }
    }
}

/// The bits of a mark that say that a datagram is ours.
pub(crate) const MARK_MASK: u32 = 0xffff_0000;

/// No host has this many ways out; bounds tables and rules.
pub const MAX_LINKS: u16 = 64;

/// Rules are asked one after the other for each packet that is routed, so their number is bounded.
pub const MAX_ROUTED: usize = 260;

impl Numbers {
    /// The mark for the sockets of the link in this slot.
    #[must_use]
    pub fn mark_of(&self, slot: u16) -> u32 {
        self.mark + 1 + u32::from(slot)
    }

    /// The first mark (upper 16 bits) of connections that go on this side of the tunnel.
    #[must_use]
    pub fn mark_of_side(&self, side: Side) -> u32 {
        self.mark
            + match side {
                Side::Outside => 0x1_0000,
                Side::Inside => 0x2_0000,
            }
    }

    /// The routing table of the link in this slot.
    #[must_use]
    pub fn table_of(&self, slot: u16) -> u32 {
        self.table + 1 + u32::from(slot)
    }

    /// The routing table with what is reached beside the tunnel, behind those of all links.
    #[must_use]
    pub fn near(&self) -> u32 {
        self.table_of(MAX_LINKS)
    }
}

/// All that is to be in the kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Routes, each in a table of our own.
    pub routes: BTreeSet<Route>,
    /// Rules that lead to them.
    pub rules: BTreeSet<Rule>,
    /// The chains of the firewall table.
    pub firewall: String,
}

/// Why no plan can be made.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Too many links.
    #[error("link {0} is more than the {MAX_LINKS} that can be used at once")]
    TooManyLinks(String),
    /// Too many prefixes.
    #[error("{0} prefixes are routed through the tunnel or excluded; at most {MAX_ROUTED} can be")]
    TooManyRouted(usize),
}

/// Computes the plan. `tun` is the interface number of the TUN, `None` while there is none.
///
/// # Errors
/// When a bound is exceeded.
pub fn plan(numbers: &Numbers, desired: &Desired, tun: Option<u32>) -> Result<Plan, PlanError> {
    if let Some(link) = desired.links.iter().find(|link| link.slot >= MAX_LINKS) {
        return Err(PlanError::TooManyLinks(link.name.clone()));
    }
    let asked = desired.asked.iter().copied().map(IpNet::from);
    let excluded: Vec<IpNet> = desired.excluded.iter().copied().chain(asked).collect();
    let prefixes = desired.routed.len() + excluded.len();
    if prefixes > MAX_ROUTED {
        return Err(PlanError::TooManyRouted(prefixes));
    }
    let mut plan = Plan::default();
    plan.refuse_marks_without_way(numbers);
    for link in &desired.links {
        for way in [&link.ways.v4, &link.ways.v6].into_iter().flatten() {
            plan.add_link(numbers, link, way);
            let tun = desired.tun.as_ref().filter(|_| tun.is_some());
            if tun.is_none_or(|tun| hands_out(tun, Family::of(way.source))) {
                plan.add_by_source(numbers, link, way, BY_SOURCE);
            } else {
                plan.add_by_source(numbers, link, way, BY_SOURCE_LAST);
                plan.add_from_proxy(numbers, link, way, &desired.proxy);
            }
        }
    }
    if let (Some(wanted), Some(index)) = (&desired.tun, tun) {
        plan.add_tunnel(numbers, wanted, index, &desired.rules);
        plan.add_routed(numbers, &desired.routed, &excluded);
        if let Some(network) = desired.prefix {
            plan.add_network(numbers, network);
        }
    }
    let sides = desired.rules.iter().map(|rule| rule.side).collect();
    plan.add_sides(numbers, &sides, desired.tun.as_ref().and(tun).is_some());
    plan.firewall =
        firewall(numbers, desired) + &unsolicited::chains(desired) + &share::chains(desired);
    Ok(plan)
}

/// The offset of the rules by source address (two).
const BY_SOURCE: u32 = 3;
/// The same behind all others: [`MAX_ROUTED`] prefixes with two rules each stand from +10 on.
const BY_SOURCE_LAST: u32 = 10 + 2 * MAX_ROUTED as u32;

/// Two metrics, so that a way and a refusal are two routes and not one that changes its kind.
const METRIC_WAY: u32 = 10;
const METRIC_REFUSAL: u32 = 20;

impl Plan {
    fn refuse_marks_without_way(&mut self, numbers: &Numbers) {
        for family in Family::BOTH {
            let mut rule = rule(numbers, family, 1, RuleAction::Unreachable);
            rule.mark = Some((numbers.mark, MARK_MASK));
            self.rules.insert(rule);
        }
    }

    fn add_link(&mut self, numbers: &Numbers, link: &LinkDesired, way: &Way) {
        let family = Family::of(way.source);
        let table = numbers.table_of(link.slot);
        let lookup = RuleAction::Lookup { table, suppress: None };

        // The prefixes that are neighbours of the link, then everything else by its router.
        for net in way.addresses.iter().map(IpNet::trunc) {
            if net.prefix_len() < net.max_prefix_len() {
                self.routes.insert(route(numbers, table, net, link.ways.index, None));
            }
        }
        let default = route(numbers, table, family.everything(), link.ways.index, way.gateway);
        self.routes.insert(default);

        let mut by_mark = rule(numbers, family, 0, lookup);
        by_mark.mark = Some((numbers.mark_of(link.slot), u32::MAX));
        self.rules.insert(by_mark);
    }

    fn add_by_source(&mut self, numbers: &Numbers, link: &LinkDesired, way: &Way, first: u32) {
        let table = numbers.table_of(link.slot);
        for address in &way.addresses {
            let neighbours = RuleAction::Lookup { table: numbers.near(), suppress: None };
            let lookup = RuleAction::Lookup { table, suppress: None };
            for (offset, action) in [(first, neighbours), (first + 1, lookup)] {
                let mut by_source = rule(numbers, Family::of(way.source), offset, action);
                by_source.from = Some(host(address.addr()));
                self.rules.insert(by_source);
            }
        }
    }

    /// The answer to what the proxy sends to an address of a link leaves by that link: what filters by the reverse path
    /// ask.
    fn add_from_proxy(
        &mut self,
        numbers: &Numbers,
        link: &LinkDesired,
        way: &Way,
        proxies: &[SocketAddr],
    ) {
        let family = Family::of(way.source);
        let lookup = RuleAction::Lookup { table: numbers.table_of(link.slot), suppress: None };
        for proxy in proxies.iter().filter(|proxy| Family::of(proxy.ip()) == family) {
            for address in &way.addresses {
                let mut to_proxy = rule(numbers, family, BY_SOURCE, lookup);
                to_proxy.from = Some(host(address.addr()));
                to_proxy.to = Some(host(proxy.ip()));
                self.rules.insert(to_proxy);
            }
        }
    }

    /// Where chosen connections of these sides go, in front of all else: their source address may name the other side.
    pub(crate) fn add_sides(&mut self, numbers: &Numbers, sides: &BTreeSet<Side>, has_tun: bool) {
        let lookup = |table, suppress| RuleAction::Lookup { table, suppress };
        let outside = [(6_u32, Some(lookup(MAIN_TABLE, None))), (5, Some(RuleAction::Unreachable))];
        let inside = [
            (4_u32, Some(lookup(numbers.near(), Some(0)))),
            (3, has_tun.then(|| lookup(numbers.table, None))),
            (2, Some(RuleAction::Unreachable)),
        ];
        for (side, actions) in [(Side::Outside, &outside[..]), (Side::Inside, &inside[..])] {
            if !sides.contains(&side) {
                continue;
            }
            for (before, action) in actions {
                let Some(action) = action else { continue };
                for family in Family::BOTH {
                    let mut by_side = rule(numbers, family, 0, *action);
                    by_side.priority = numbers.priority - before;
                    by_side.mark = Some((numbers.mark_of_side(side), MARK_MASK));
                    self.rules.insert(by_side);
                }
            }
        }
    }

    fn add_tunnel(
        &mut self,
        numbers: &Numbers,
        tun: &TunDesired,
        index: u32,
        rules: &[split::Rule],
    ) {
        let lookup = RuleAction::Lookup { table: numbers.table, suppress: None };
        for family in Family::BOTH {
            let way = route(numbers, numbers.table, family.everything(), index, None);
            let comes = lets_come(tun, family == Family::V4, rules);
            self.routes.insert(if hands_out(tun, family) || comes {
                way
            } else {
                Route { metric: METRIC_REFUSAL, target: Target::Unreachable, ..way }
            });
            let mut bound = rule(numbers, family, 2, lookup);
            bound.oif = Some(tun.name.clone());
            self.rules.insert(bound);
        }
        for inner in &tun.inner {
            let mut by_source = rule(numbers, Family::of(*inner), 2, lookup);
            by_source.from = Some(host(*inner));
            self.rules.insert(by_source);
        }
    }

    /// What hosts behind this machine send with addresses of their own leaves by the tunnel, if not for the LAN.
    fn add_network(&mut self, numbers: &Numbers, network: Ipv6Net) {
        for (offset, table) in [(BY_SOURCE, numbers.near()), (BY_SOURCE + 1, numbers.table)] {
            let lookup = RuleAction::Lookup { table, suppress: None };
            let mut by_source = rule(numbers, Family::V6, offset, lookup);
            by_source.from = Some(network.trunc().into());
            self.rules.insert(by_source);
        }
    }

    fn add_routed(&mut self, numbers: &Numbers, routed: &[IpNet], excluded: &[IpNet]) {
        // Longer prefixes first, so that a shorter one that holds them does not answer for them; of two alike the
        // exclusion first.
        let routed = routed.iter().map(|net| (net.trunc(), true));
        let excluded = excluded.iter().map(|net| (net.trunc(), false));
        let mut ordered: Vec<(IpNet, bool)> = routed.chain(excluded).collect();
        ordered.sort_by_key(|(net, routed)| (Reverse(net.prefix_len()), *net, *routed));
        ordered.dedup();
        for ((net, routed), offset) in ordered.into_iter().zip((10_u32..).step_by(2)) {
            let lookup = |table, suppress| RuleAction::Lookup { table, suppress };
            let actions = match routed {
                true => vec![
                    lookup(numbers.near(), Some(net.prefix_len())),
                    lookup(numbers.table, None),
                ],
                false => vec![lookup(MAIN_TABLE, None)],
            };
            for (action, offset) in actions.into_iter().zip(offset..) {
                let mut to = rule(numbers, Family::of(net.addr()), offset, action);
                // The kernel knows a prefix of length 0 as no prefix.
                to.to = Some(net).filter(|net| net.prefix_len() > 0);
                self.rules.insert(to);
            }
        }
    }
}

/// The chains of the client's firewall table.
fn firewall(numbers: &Numbers, desired: &Desired) -> String {
    let mut text = String::from(
        "    chain prerouting {\n        type filter hook prerouting priority -90; policy accept;\n",
    );
    // Sorted, so that the same state gives the same text whatever order the resolver answered in.
    let udp = desired.proxy.iter().map(|proxy| ("udp", proxy.ip(), proxy.port()));
    let tcp = desired
        .tls_port
        .into_iter()
        .flat_map(|port| desired.proxy.iter().map(move |proxy| ("tcp", proxy.ip(), port)));
    let sources: BTreeSet<_> = udp.chain(tcp).collect();
    for link in &desired.links {
        for (protocol, ip, port) in &sources {
            if link.ways.to(*ip).is_none() {
                continue;
            }
            let (name, mark) = (&link.name, numbers.mark_of(link.slot));
            let word = if ip.is_ipv4() { "ip" } else { "ip6" };
            writeln!(
                text,
                "        iifname \"{name}\" {word} saddr {ip} {protocol} sport {port} fib daddr type local meta mark set {mark:#x}"
            )
            .expect("writing to a string");
        }
    }
    text.push_str("    }\n");
    text
}

fn rule(numbers: &Numbers, family: Family, offset: u32, action: RuleAction) -> Rule {
    Rule {
        family,
        priority: numbers.priority + offset,
        mark: None,
        from: None,
        to: None,
        oif: None,
        action,
        protocol: numbers.protocol,
    }
}

fn route(
    numbers: &Numbers,
    table: u32,
    destination: IpNet,
    index: u32,
    gateway: Option<IpAddr>,
) -> Route {
    Route {
        destination,
        table,
        metric: METRIC_WAY,
        // Hosts in clouds and behind modems often have a router outside of their own prefix.
        target: Target::Interface { index, gateway, onlink: gateway.is_some() },
        protocol: numbers.protocol,
        mtu: None,
    }
}

/// Whether the client has an inner address of this family.
fn hands_out(tun: &TunDesired, family: Family) -> bool {
    tun.inner.iter().any(|inner| Family::of(*inner) == family)
}

fn host(address: IpAddr) -> IpNet {
    IpNet::from(address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::{Ways, everything};
    use ropewalk_settings::{Selector, Text as _};

    fn link(name: &str, slot: u16, source: &str, gateway: Option<&str>) -> LinkDesired {
        let net: IpNet = source.parse().unwrap();
        let way = Way {
            source: net.addr(),
            addresses: vec![net],
            gateway: gateway.map(|address| address.parse().unwrap()),
        };
        let (v4, v6) = if net.addr().is_ipv4() { (Some(way), None) } else { (None, Some(way)) };
        let ways = Ways { index: 2 + u32::from(slot), mtu: 1500, v4, v6 };
        LinkDesired { name: name.into(), slot, ways }
    }

    fn desired() -> Desired {
        Desired {
            tun: Some(TunDesired {
                name: "rope0".into(),
                inner: vec!["10.77.0.2".parse().unwrap()],
                mtu: 1400,
            }),
            links: vec![link("wan1", 0, "192.0.2.7/24", Some("192.0.2.1"))],
            proxy: vec!["203.0.113.5:4600".parse().unwrap()],
            routed: everything(),
            excluded: Vec::new(),
            ..Desired::default()
        }
    }

    fn rules(plan: &Plan, family: Family) -> Vec<String> {
        let of_family = plan.rules.iter().filter(|rule| rule.family == family);
        of_family.map(ToString::to_string).collect()
    }

    #[test]
    fn the_rules_stand_in_the_order_of_the_table() {
        let plan = plan(&Numbers::default(), &desired(), Some(9)).unwrap();
        assert_eq!(
            rules(&plan, Family::V4),
            [
                "5300: mark 0x52570001/0xffffffff lookup 7701",
                "5301: mark 0x52570000/0xffff0000 unreachable",
                "5302: bound to rope0 lookup 7700",
                "5302: from 10.77.0.2/32 lookup 7700",
                "5303: from 192.0.2.7/32 lookup 7765",
                "5304: from 192.0.2.7/32 lookup 7701",
                "5310: lookup 7765 longer than /0",
                "5311: lookup 7700",
            ]
        );
    }

    #[test]
    fn hosts_with_addresses_of_their_own_send_by_the_tunnel_whatever_is_excluded() {
        let mut desired = desired();
        desired.tun.as_mut().unwrap().inner.push("fd77::2".parse().unwrap());
        desired.excluded = vec!["2001:db8:99::/48".parse().unwrap()];
        desired.prefix = Some("2001:db8:7:1::/64".parse().unwrap());
        let plan = plan(&Numbers::default(), &desired, Some(9)).unwrap();
        let rules = rules(&plan, Family::V6);
        let place = |text: &str| rules.iter().position(|rule| rule == text);
        let near = place("5303: from 2001:db8:7:1::/64 lookup 7765").unwrap();
        assert_eq!(place("5304: from 2001:db8:7:1::/64 lookup 7700"), Some(near + 1));
        assert!(place("5310: to 2001:db8:99::/48 lookup 254").unwrap() > near, "{rules:?}");
    }

    fn chosen(routes: &[&str], exclude: &[&str]) -> Vec<split::Rule> {
        let list = |entries: &[&str]| -> Vec<Selector> {
            entries.iter().map(|text| Selector::from_text(text).unwrap()).collect()
        };
        split::rules(&list(routes), &list(exclude))
    }

    #[test]
    fn chosen_connections_go_on_their_side_or_nowhere_in_front_of_all_else() {
        let both = chosen(&["user:1"], &["user:2"]);
        let desired = Desired { rules: both, ..desired() };
        let all = [
            "5294: mark 0x52580000/0xffff0000 lookup 254",
            "5295: mark 0x52580000/0xffff0000 unreachable",
            "5296: mark 0x52590000/0xffff0000 lookup 7765 longer than /0",
            "5297: mark 0x52590000/0xffff0000 lookup 7700",
            "5298: mark 0x52590000/0xffff0000 unreachable",
        ];
        for family in Family::BOTH {
            let plan = plan(&Numbers::default(), &desired, Some(9)).unwrap();
            assert_eq!(rules(&plan, family)[..5], all);
        }
        // Before the first session nothing goes through, and so nothing of that goes at all.
        let before = Desired { tun: None, rules: chosen(&["user:1"], &[]), ..desired };
        let plan = plan(&Numbers::default(), &before, None).unwrap();
        assert_eq!(rules(&plan, Family::V6)[..2], [all[2], all[4]]);
    }

    #[test]
    fn where_something_goes_around_the_tunnel_a_family_that_is_not_handed_out_comes_as_far_as_the_marks()
     {
        let target = |rules: Vec<split::Rule>| {
            let desired = Desired { rules, ..desired() };
            let plan = plan(&Numbers::default(), &desired, Some(9)).unwrap();
            let mut routes = plan.routes.iter();
            let v6 = routes.find(|route| route.table == 7700 && route.destination.addr().is_ipv6());
            v6.unwrap().target
        };
        assert_eq!(target(chosen(&["user:1"], &[])), Target::Unreachable);
        let way = Target::Interface { index: 9, gateway: None, onlink: false };
        assert_eq!(target(chosen(&[], &["user:1"])), way);
    }

    #[test]
    fn a_family_that_is_not_handed_out_is_unreachable_through_the_tunnel() {
        let plan = plan(&Numbers::default(), &desired(), Some(9)).unwrap();
        let v6: Vec<_> =
            plan.routes.iter().filter(|route| route.destination.addr().is_ipv6()).collect();
        assert_eq!(v6.len(), 1);
        assert_eq!((v6[0].target, v6[0].table), (Target::Unreachable, 7700));
        assert!(rules(&plan, Family::V6).contains(&"5313: lookup 7700".into()));
    }

    #[test]
    fn a_family_that_is_not_handed_out_has_no_way_by_a_link_in_front_of_the_tunnel() {
        let mut desired = desired();
        desired.links.push(link("wan2", 1, "2001:db8::7/64", Some("fe80::1")));
        desired.proxy.push("[2001:db8:5::5]:4600".parse().unwrap());
        let plan = plan(&Numbers::default(), &desired, Some(9)).unwrap();
        assert_eq!(
            rules(&plan, Family::V6),
            [
                "5300: mark 0x52570002/0xffffffff lookup 7702",
                "5301: mark 0x52570000/0xffff0000 unreachable",
                "5302: bound to rope0 lookup 7700",
                "5303: from 2001:db8::7/128 to 2001:db8:5::5/128 lookup 7702",
                "5312: lookup 7765 longer than /0",
                "5313: lookup 7700",
                "5830: from 2001:db8::7/128 lookup 7765",
                "5831: from 2001:db8::7/128 lookup 7702",
            ]
        );
        assert!(rules(&plan, Family::V4).iter().any(|rule| rule.starts_with("5304: from")));
    }

    #[test]
    fn without_a_tun_only_the_links_have_routes() {
        let plan = plan(&Numbers::default(), &desired(), None).unwrap();
        assert!(plan.routes.iter().all(|route| route.table == 7701), "{:?}", plan.routes);
        assert!(plan.rules.iter().all(|rule| rule.priority < 5305));
    }

    #[test]
    fn longer_prefixes_are_asked_first_and_doubles_once() {
        let mut desired = desired();
        desired.routed =
            ["10.0.0.0/8", "10.1.0.0/16", "10.0.0.1/8"].map(|net| net.parse().unwrap()).into();
        let plan = plan(&Numbers::default(), &desired, Some(9)).unwrap();
        let routed: Vec<_> = rules(&plan, Family::V4).split_off(6);
        assert_eq!(
            routed,
            [
                "5310: to 10.1.0.0/16 lookup 7765 longer than /16",
                "5311: to 10.1.0.0/16 lookup 7700",
                "5312: to 10.0.0.0/8 lookup 7765 longer than /8",
                "5313: to 10.0.0.0/8 lookup 7700",
            ]
        );
        assert!(!rules(&plan, Family::V6).iter().any(|rule| rule.starts_with("531")));
    }

    #[test]
    fn an_excluded_prefix_is_asked_for_in_the_main_table_before_what_holds_it() {
        let mut desired = desired();
        desired.routed = vec!["10.0.0.0/8".parse().unwrap(), "10.1.2.0/24".parse().unwrap()];
        desired.excluded = vec!["10.1.0.0/16".parse().unwrap()];
        let plan = plan(&Numbers::default(), &desired, Some(9)).unwrap();
        let routed: Vec<_> = rules(&plan, Family::V4).split_off(6);
        assert_eq!(
            routed,
            [
                "5310: to 10.1.2.0/24 lookup 7765 longer than /24",
                "5311: to 10.1.2.0/24 lookup 7700",
                "5312: to 10.1.0.0/16 lookup 254",
                "5314: to 10.0.0.0/8 lookup 7765 longer than /8",
                "5315: to 10.0.0.0/8 lookup 7700",
            ]
        );
    }

    #[test]
    fn the_firewall_marks_only_families_that_the_link_has() {
        let mut desired = desired();
        desired.proxy.push("[2001:db8::5]:4600".parse().unwrap());
        let text = firewall(&Numbers::default(), &desired);
        assert!(text.contains("iifname \"wan1\" ip saddr 203.0.113.5 udp sport 4600"), "{text}");
        assert!(!text.contains("ip6") && !text.contains("tcp"), "{text}");
    }

    #[test]
    fn the_firewall_marks_what_comes_over_tls_once_for_each_address() {
        let mut desired = desired();
        desired.proxy.push("203.0.113.5:443".parse().unwrap());
        desired.tls_port = Some(443);
        let text = firewall(&Numbers::default(), &desired);
        let rule = "iifname \"wan1\" ip saddr 203.0.113.5 tcp sport 443 fib daddr type local";
        assert_eq!(text.matches(rule).count(), 1, "{text}");
        assert_eq!(text.matches("udp sport").count(), 2, "{text}");
    }

    #[test]
    fn what_exceeds_a_bound_is_refused() {
        let mut many = desired();
        many.links[0].slot = MAX_LINKS;
        let error = plan(&Numbers::default(), &many, None).unwrap_err();
        assert_eq!(error, PlanError::TooManyLinks("wan1".into()));
        let mut many = desired();
        many.routed = vec!["10.0.0.0/8".parse().unwrap(); MAX_ROUTED + 1];
        assert!(plan(&Numbers::default(), &many, None).is_err());
    }
}
