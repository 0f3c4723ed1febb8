//! Whether two links are one: behind the same router, what one carries the other cannot.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use super::finding::Finding;
use super::fix::Change;

/// A link's router.
#[derive(Clone, Debug)]
pub(super) struct Router {
    /// The link's interface.
    pub(super) interface: String,
    /// The router's address.
    pub(super) address: IpAddr,
    /// Its hardware address, if the kernel knows it: two LTE routers of one make have the same address and another one of
    /// these.
    pub(super) hardware: Option<String>,
}

/// The hardware addresses of IPv4 neighbours, by interface (`/proc/net/arp`).
pub(super) fn hardware(table: &str, interface: &str, address: Ipv4Addr) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [ip, _, flags, hardware, _, device] = words.as_slice() else { return None };
        let known = u32::from_str_radix(flags.trim_start_matches("0x"), 16).ok()? & 2 != 0;
        (known && *device == interface && ip.parse() == Ok(address)).then(|| (*hardware).to_owned())
    })
}

pub(super) fn judge(routers: &[Router], file: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, router) in routers.iter().enumerate() {
        let same = routers[..at].iter().find(|other| {
            other.interface != router.interface
                && other.address == router.address
                && match (&other.hardware, &router.hardware) {
                    (Some(one), Some(other)) => one == other,
                    _ => false,
                }
        });
        let Some(same) = same else { continue };
        let found = format!(
            "{} goes by the same router as {}, {}: together they carry no more than one of them",
            router.interface, same.interface, router.address
        );
        findings.push(
            Finding::warning("gateways.same", &*router.interface, found)
                .advise("if that router has one way to the Internet, leave one of them out:")
                .edit(file, Change::LeaveOut { interface: router.interface.clone() }),
        );
    }
    if findings.is_empty() && routers.len() > 1 {
        findings.push(Finding::ok("gateways", "routers", "each link has a router of its own"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(interface: &str, address: &str, hardware: Option<&str>) -> Router {
        Router {
            interface: interface.into(),
            address: address.parse().unwrap(),
            hardware: hardware.map(str::to_owned),
        }
    }

    #[test]
    fn one_router_behind_two_links_is_told_and_two_of_one_make_are_not() {
        let table = [
            (("192.168.1.1", Some("aa")), ("192.168.1.1", Some("aa")), true),
            (("192.168.1.1", Some("aa")), ("192.168.1.1", Some("bb")), false),
            (("192.168.1.1", Some("aa")), ("192.168.1.1", None), false),
            (("192.168.1.1", Some("aa")), ("192.168.2.1", Some("aa")), false),
        ];
        for ((a, a_hardware), (b, b_hardware), told) in table {
            let routers = [router("wan0", a, a_hardware), router("wan1", b, b_hardware)];
            let findings = judge(&routers, Path::new("/c.toml"));
            assert_eq!(findings[0].id == "gateways.same", told, "{a} {b}");
        }
        let one =
            [router("wan0", "192.168.1.1", Some("aa")), router("wan0", "192.168.1.1", Some("aa"))];
        assert_eq!(judge(&one, Path::new("/c.toml"))[0].id, "gateways");
    }

    #[test]
    fn the_kernels_table_of_neighbours_is_read() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
                     192.168.1.1      0x1         0x2         02:00:00:00:00:01     *        wan0\n\
                     192.168.1.1      0x1         0x0         00:00:00:00:00:00     *        wan1\n\
                     damaged\n";
        let router = Ipv4Addr::new(192, 168, 1, 1);
        assert_eq!(hardware(table, "wan0", router).as_deref(), Some("02:00:00:00:00:01"));
        assert_eq!(hardware(table, "wan1", router), None);
        assert_eq!(hardware(table, "wan2", router), None);
        assert_eq!(hardware("", "wan0", router), None);
    }
}
