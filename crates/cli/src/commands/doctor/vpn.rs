//! Whether another tunnel stands in the way: one that takes the default route takes what should go over the links.

use ropewalk_link_io::netlink::{Gateway, Interface, Kind, MAIN_TABLE};

use super::finding::Finding;

/// Kinds of interfaces that carry their packets over another one.
const TUNNELS: [&str; 4] = ["wireguard", "tun", "ipip", "gre"];

/// `own` is the name of our TUN.
pub(super) fn judge(interfaces: &[Interface], gateways: &[Gateway], own: &str) -> Vec<Finding> {
    let kind = |interface: &Interface| match &interface.kind {
        Kind::Virtual(kind) if TUNNELS.contains(&kind.as_str()) => Some(kind.clone()),
        _ => None,
    };
    let others: Vec<_> = interfaces
        .iter()
        .filter(|one| one.up && one.name != own)
        .filter_map(|one| Some((one, kind(one)?)))
        .collect();
    let mut findings: Vec<Finding> = others
        .iter()
        .filter_map(|(one, kind)| {
            let way = gateways.iter().find(|gateway| gateway.index == one.index)?;
            let table = match way.table {
                MAIN_TABLE => "the main table".to_owned(),
                table => format!("table {table}"),
            };
            let found = format!("the tunnel {} ({kind}) has a default route in {table}: both want all packets", one.name);
            let down = match kind.as_str() {
                "wireguard" => format!("sudo wg-quick down {}", one.name),
                _ => format!("sudo ip link set dev {} down", one.name),
            };
            Some(
                Finding::warn("vpn.default", &*one.name, found, down)
                    .or(format!("sudo ip link set dev {} down", one.name))
                    .advise("Ropewalk's rules come first, so that tunnel gets no packets but its own; end it, or give it only its own prefixes:"),
            )
        })
        .collect();
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

    #[test]
    fn a_tunnel_with_a_default_route_is_told_and_others_are_not() {
        let way = |index, table| Gateway {
            family: Family::V4,
            index,
            via: None,
            metric: 0,
            table,
            protocol: 3,
        };
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
            let findings = judge(&[interface(1, name, kind)], &ways, "ropewalk0");
            assert_eq!(findings[0].id, id, "{name}");
        }
        let findings =
            judge(&[interface(1, "tun0", Kind::Virtual("tun".into()))], &[way(1, MAIN_TABLE)], "x");
        assert_eq!(findings[0].commands, ["sudo ip link set dev tun0 down"]);
    }
}
