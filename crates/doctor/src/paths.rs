//! Each link's path: how large packets may be, and what a NAT on it does.

use std::net::{IpAddr, SocketAddr};

use ropewalk_client::probe::{LEAST_MTU, PathMtu};
use ropewalk_control::api::{LinkState, LinkStatus};

use super::finding::Finding;

/// A link's path MTU.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    pub(super) link: String,
    pub(super) interface: String,
    /// The interface's MTU, bytes.
    pub(super) mtu: u32,
    /// What was found out; `None`: nobody answers.
    pub(super) path: Option<PathMtu>,
    /// Datagrams that had passed and pass no more, as the daemon counts.
    pub(super) black_holes: u64,
}

pub(super) fn judge_mtu(sizes: &[Sizes]) -> Vec<Finding> {
    sizes.iter().filter_map(mtu).collect()
}

fn mtu(sizes: &Sizes) -> Option<Finding> {
    let Sizes { link, interface, mtu, path, black_holes } = sizes;
    let path = (*path)?;
    let link = link.as_str();
    let Some(passes) = path.passes else {
        let found = format!("not even packets of {LEAST_MTU} bytes pass: the tunnel needs them");
        let command = format!("ping -c 3 -M do -s {} -I {interface} 9.9.9.9", LEAST_MTU - 28);
        return Some(
            Finding::fail("mtu.small", link, found, command).advise(
                "ask the network's owner, or take the link out; to see it without Ropewalk:",
            ),
        );
    };
    if u32::from(passes) >= (*mtu).min(1500) {
        return Some(Finding::ok("mtu", link, format!("packets of {passes} bytes pass")));
    }
    if path.told && *black_holes == 0 {
        let found = format!(
            "packets of {passes} bytes pass; for larger ones a router says that they are too large"
        );
        return Some(Finding::note("mtu.told", link, found));
    }
    let found = format!(
        "packets of more than {passes} bytes vanish without a word, and its MTU is {mtu}: the tunnel adapts, other programs hang"
    );
    Some(
        Finding::warn(
            "mtu.black-hole",
            link,
            found,
            format!("sudo ip link set dev {interface} mtu {passes}"),
        )
        .advise("so that everybody on this machine knows (for good: in its network's settings):")
        .automatic(),
    )
}

/// What the running client knows of NATs, one finding for each link that is up.
pub(super) fn judge_nat(links: &[LinkStatus]) -> Vec<Finding> {
    links.iter().filter(|link| link.state == LinkState::Up).filter_map(nat).collect()
}

fn nat(link: &LinkStatus) -> Option<Finding> {
    let (local, remote) = (link.local?, link.remote?);
    let kept = match (link.keepalive_s, link.keepalive_searching) {
        (None, _) => "no keepalives are sent".to_owned(),
        (Some(seconds), true) => {
            format!("a word every {seconds:.0} s keeps it open, and a longer pause is sought")
        }
        (Some(seconds), false) => format!("a word every {seconds:.0} s keeps it open"),
    };
    let found = if is_private(local.ip()) && !is_private(remote.ip()) {
        format!("{} is private, so a NAT is on the way: {kept}", local.ip())
    } else {
        format!("{} to {}: {kept}", local.ip(), remote.ip())
    };
    let silent = link.keepalive_s.is_none() && is_private(local.ip()) && !is_private(remote.ip());
    Some(if silent {
        Finding::warn(
            "nat.closes",
            &*link.name,
            found,
            "sudo ropewalk check-config /etc/ropewalk/client/client.toml",
        )
        .advise("keepalive = \"auto\" keeps the NAT open; see what the config says:")
    } else {
        Finding::ok("nat", &*link.name, found)
    })
}

/// What a proxy sees of a client's link.
pub(super) fn judge_seen(peer: &str, links: &[LinkStatus]) -> Vec<Finding> {
    let up = links.iter().filter(|link| link.state == LinkState::Up);
    up.filter_map(|link| {
        let remote: SocketAddr = link.remote?;
        let kind = match is_private(remote.ip()) {
            true => "seen at a private address",
            false => "seen at",
        };
        let mtu =
            link.path_mtu.map_or_else(String::new, |mtu| format!(", packets of {mtu} bytes pass"));
        let subject = format!("{peer} {}", link.name);
        Some(Finding::ok("nat.seen", subject, format!("{kind} {remote}{mtu}")))
    })
    .collect()
}

/// Addresses that the Internet does not route: RFC 1918, RFC 6598, RFC 4193, link-local.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_private() || v4.is_link_local() || (a == 100 && (64..128).contains(&b))
        }
        IpAddr::V6(v6) => v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Level;

    #[test]
    fn a_path_that_carries_less_than_its_interface_says_is_told() {
        // interface, what passes, somebody said so, black holes
        let table = [
            (1500, Some(Some(1500)), false, 0, Some("mtu")),
            (9000, Some(Some(1500)), false, 0, Some("mtu")),
            (1400, Some(Some(1400)), false, 0, Some("mtu")),
            (1500, Some(Some(1400)), true, 0, Some("mtu.told")),
            (1500, Some(Some(1400)), false, 0, Some("mtu.black-hole")),
            (1500, Some(Some(1400)), true, 2, Some("mtu.black-hole")),
            (1500, Some(None), false, 0, Some("mtu.small")),
            (1500, None, false, 0, None),
        ];
        for (mtu, path, told, black_holes, id) in table {
            let path = path.map(|passes| PathMtu { passes, told });
            let (link, interface) = ("lte".to_owned(), "wwan0".to_owned());
            let findings = judge_mtu(&[Sizes { link, interface, mtu, path, black_holes }]);
            assert_eq!(findings.first().map(|one| one.id), id, "{mtu} {path:?}");
            if id == Some("mtu.black-hole") {
                assert_eq!(findings[0].commands, ["sudo ip link set dev wwan0 mtu 1400"]);
            }
        }
    }

    fn link(local: &str, remote: &str, keepalive: Option<f64>) -> LinkStatus {
        let mut json = serde_json::json!({
            "name": "wan0", "state": "up", "state_age_s": 1.0, "in_flight": 0,
            "local": local, "remote": remote,
            "up": {"rate_bps": 0.0, "datagrams": 0, "bytes": 0},
            "down": {"rate_bps": 0.0, "datagrams": 0, "bytes": 0},
        });
        if let Some(keepalive) = keepalive {
            json["keepalive_s"] = keepalive.into();
        }
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn a_nat_is_told_with_what_keeps_it_open() {
        let table = [
            ("192.168.1.2:4000", "203.0.113.2:51900", Some(15.0), Level::Ok, "a NAT is on the way"),
            ("100.64.0.2:4000", "203.0.113.2:51900", Some(15.0), Level::Ok, "a NAT is on the way"),
            ("192.168.1.2:4000", "203.0.113.2:51900", None, Level::Warn, "no keepalives"),
            ("198.51.100.2:4000", "203.0.113.2:51900", None, Level::Ok, "198.51.100.2 to"),
            ("[2001:db8::2]:4000", "[2001:db8::9]:51900", Some(30.0), Level::Ok, "every 30 s"),
        ];
        for (local, remote, keepalive, level, part) in table {
            let finding = &judge_nat(&[link(local, remote, keepalive)])[0];
            assert_eq!(finding.level, level, "{local}");
            assert!(finding.found.contains(part), "{}", finding.found);
        }
        let seen = &judge_seen("van", &[link("203.0.113.2:51900", "198.51.100.2:4000", None)])[0];
        assert_eq!(
            (seen.subject.as_str(), seen.found.as_str()),
            ("van wan0", "seen at 198.51.100.2:4000")
        );
    }
}
