//! Whether another tunnel stands in the way: one that takes the default route takes what should go over the links.

use std::path::Path;

use ropewalk_client::host::LeftOut;
use ropewalk_link_io::netlink::{Gateway, Interface, Kind, MAIN_TABLE};

use super::finding::Finding;
use super::fix::Change;

/// Kinds of interfaces that carry their packets over another one.
const TUNNELS: [&str; 4] = ["wireguard", "tun", "ipip", "gre"];

/// What is looked at.
pub(super) struct Facts<'a> {
    pub(super) interfaces: &'a [Interface],
    pub(super) gateways: &'a [Gateway],
    /// What may be a link and is left out.
    pub(super) left_out: &'a [LeftOut],
    /// The interfaces of the links that have a way out.
    pub(super) links: &'a [&'a str],
    /// The name of our TUN.
    pub(super) own: &'a str,
    /// The config.
    pub(super) file: &'a Path,
}

impl Facts<'_> {
    /// A TUN that may lead to the Internet.
    fn offer(&self, left_out: &LeftOut) -> Finding {
        let values = left_out.include.clone();
        Finding::warning("links.tunnel", &*left_out.interface, left_out.to_string())
            .advise("if it is an uplink, make it a link; if it is a VPN, that gets no packets but its own:")
            .edit(self.file, Change::Add { list: "include_interfaces", values })
    }

    /// A tunnel beside ours.
    fn rival(&self, one: &Interface, kind: &str) -> Option<Finding> {
        let way = self.gateways.iter().find(|gateway| gateway.index == one.index)?;
        let table = match way.table {
            MAIN_TABLE => "the main table".to_owned(),
            table => format!("table {table}"),
        };
        let name = &*one.name;
        let found = format!(
            "the tunnel {name} ({kind}) has a default route in {table}: both want all packets"
        );
        // Whoever takes the last way out down cannot even ask for help.
        if self.links.is_empty() {
            let advice = "it is the only way out of this machine, so leave it up, and find what it runs over:";
            return Some(
                Finding::warn("vpn.default", name, found, "ip -brief address").advise(advice),
            );
        }
        let by_hand = format!("sudo ip link set dev {name} down");
        let down = match kind {
            "wireguard" => format!("sudo wg-quick down {name}"),
            _ => by_hand.clone(),
        };
        Some(
            Finding::warn("vpn.default", name, found, down)
                .or(by_hand)
                .advise("Ropewalk's rules come first, so that tunnel gets no packets but its own; end it, or give it only its own prefixes:"),
        )
    }
}

pub(super) fn judge(facts: &Facts<'_>) -> Vec<Finding> {
    let kind = |interface: &Interface| match &interface.kind {
        Kind::Virtual(kind) if TUNNELS.contains(&kind.as_str()) => Some(kind.clone()),
        _ => None,
    };
    let is_known = |name: &str| {
        name == facts.own
            || facts.links.contains(&name)
            || facts.left_out.iter().any(|one| one.interface == name)
    };
    let others: Vec<_> = facts
        .interfaces
        .iter()
        .filter(|one| one.up && !is_known(&one.name))
        .filter_map(|one| Some((one, kind(one)?)))
        .collect();
    let mut findings: Vec<Finding> = facts.left_out.iter().map(|one| facts.offer(one)).collect();
    findings.extend(others.iter().filter_map(|(one, kind)| facts.rival(one, kind)));
    for finding in &mut findings {
        finding.commands.dedup();
    }
    if findings.is_empty() {
        let found = match others.as_slice() {
            [] => "no other tunnel is up".to_owned(),
            some => {
                let names: Vec<_> = some.iter().map(|(one, _)| one.name.as_str()).collect();
                format!(
                    "{} up, without a default route: its own prefixes stay reachable",
                    names.join(", ")
                )
            }
        };
        findings.push(Finding::ok("vpn", "other tunnels", found));
    }
    findings
}

#[cfg(test)]
mod tests {
    use ropewalk_link_io::netlink::Family;

    use super::*;

    fn interface(index: u32, name: &str, kind: Kind) -> Interface {
        Interface {
            index,
            name: name.into(),
            up: true,
            carrier: true,
            kind,
            loopback: false,
            point_to_point: false,
            mtu: 1420,
            addresses: Vec::new(),
        }
    }

    fn way(index: u32, table: u32) -> Gateway {
        Gateway { family: Family::V4, index, via: None, metric: 0, table, protocol: 3 }
    }

    fn findings(
        interfaces: &[Interface],
        gateways: &[Gateway],
        left_out: &[LeftOut],
        links: &[&str],
    ) -> Vec<Finding> {
        let (own, file) = ("ropewalk0", Path::new("/etc/ropewalk/client/client.toml"));
        judge(&Facts { interfaces, gateways, left_out, links, own, file })
    }

    #[test]
    fn a_tunnel_with_a_default_route_is_told_and_others_are_not() {
        let wireguard = || Kind::Virtual("wireguard".into());
        let table = [
            (wireguard(), "wg0", vec![way(1, 51820)], "vpn.default"),
            (Kind::Virtual("tun".into()), "tun0", vec![way(1, MAIN_TABLE)], "vpn.default"),
            (wireguard(), "wg0", vec![way(2, MAIN_TABLE)], "vpn"),
            (Kind::Virtual("tun".into()), "ropewalk0", vec![way(1, MAIN_TABLE)], "vpn"),
            (Kind::Virtual("veth".into()), "veth0", vec![way(1, MAIN_TABLE)], "vpn"),
            (Kind::Physical, "eth0", vec![way(1, MAIN_TABLE)], "vpn"),
        ];
        for (kind, name, ways, id) in table {
            let found = findings(&[interface(1, name, kind)], &ways, &[], &["eth0"]);
            assert_eq!(found[0].id, id, "{name}");
        }
        let tun = [interface(1, "tun0", Kind::Virtual("tun".into()))];
        let found = findings(&tun, &[way(1, MAIN_TABLE)], &[], &["eth0"]);
        assert_eq!(found[0].commands, ["sudo ip link set dev tun0 down"]);
        assert_eq!(findings(&tun, &[way(1, MAIN_TABLE)], &[], &["eth0", "tun0"])[0].id, "vpn");
    }

    #[test]
    fn nobody_is_told_to_take_the_last_way_out_down() {
        for kind in ["tun", "wireguard"] {
            let only = [interface(1, "tun0", Kind::Virtual(kind.into()))];
            let found = findings(&only, &[way(1, MAIN_TABLE)], &[], &[]);
            assert_eq!(found[0].id, "vpn.default");
            assert!(found[0].commands.iter().all(|one| !one.contains("down")), "{found:?}");
        }
    }

    #[test]
    fn a_tun_that_may_be_an_uplink_is_offered_as_a_link() {
        let tun = [interface(1, "wan0", Kind::Virtual("tun".into()))];
        let left_out = LeftOut { interface: "wan0".into(), include: vec!["wan0".into()] };
        let found = findings(&tun, &[way(1, MAIN_TABLE)], &[left_out], &[]);
        let [offer] = &found[..] else { panic!("{found:?}") };
        assert_eq!((offer.id, &*offer.subject), ("links.tunnel", "wan0"));
        assert!(offer.found.contains("include_interfaces = [\"wan0\"]"), "{offer:?}");
        let fix = offer.fix.as_ref().map(ToString::to_string);
        assert_eq!(
            fix.as_deref(),
            Some("in /etc/ropewalk/client/client.toml: put wan0 into `include_interfaces`")
        );
    }
}
