//! Sharing the tunnel with the hosts behind other interfaces (a hotspot): the chains of the client's firewall table for it.
//!
//! * `shared_forward`: forwarding is on for all interfaces, and whoever shares a café's network, or stands behind any
//!   other interface, is no guest of this machine's. Into the tunnel go new connections of the shared interfaces only,
//!   from a link to the shared networks go none, and from the tunnel only answers are forwarded: the proxy is no guest
//!   either. Where it was the client that switched forwarding on, nobody else is forwarded at all: the home's network is not
//!   to be reached through this machine from the café's. Excepted are what a rule of the user's leads on (DNAT), and
//!   containers and virtual machines by the names of their bridges: they may have been started since.
//! * `shared_segments`: the MSS that a TCP connection announces is lowered to what fits the way in both directions.
//! * `shared_sources`: what enters the tunnel with a source that is not this machine's gets its inner address. The proxy
//!   delivers nothing else, but for the IPv6 network that it may route here: hosts with an address of that keep it.

use crate::host::{Desired, TunDesired};

/// The chains; nothing without a tunnel, or when nothing is shared.
#[must_use]
pub fn chains(desired: &Desired) -> String {
    let Some(tun) = desired.tun.as_ref().filter(|_| !desired.shared.is_empty()) else {
        return String::new();
    };
    let TunDesired { name: tun, inner, .. } = tun;
    let shared = set(desired.shared.iter().map(String::as_str));
    let sources: String = inner
        .iter()
        .map(|inner| {
            let (word, kept) = match (inner.is_ipv4(), desired.prefix) {
                (true, _) => ("ip", inner.to_string()),
                (false, None) => ("ip6", inner.to_string()),
                (false, Some(network)) => ("ip6", format!("{{ {inner}, {} }}", network.trunc())),
            };
            format!("        oifname \"{tun}\" {word} saddr != {kept} counter masquerade\n")
        })
        .collect();
    format!(
        "    chain shared_segments {{
        type filter hook forward priority mangle; policy accept;
        iifname {shared} oifname \"{tun}\" tcp flags syn tcp option maxseg size set rt mtu
        iifname \"{tun}\" oifname {shared} tcp flags syn tcp option maxseg size set rt mtu
    }}
    chain shared_sources {{
        type nat hook postrouting priority srcnat; policy accept;
{sources}    }}
"
    )
}

/// The chain that says what is forwarded, where the tunnel is shared or forwarding was `opened` by the client (nft's words
/// of the families), and as long as it is so.
#[must_use]
pub fn forwarded<'a>(desired: &Desired, opened: impl Iterator<Item = &'a str>) -> String {
    let shares = !desired.shared.is_empty();
    let tun = desired.tun.as_ref().filter(|_| shares).map(|tun| tun.name.as_str());
    let opened: Vec<&str> = opened.collect();
    if tun.is_none() && opened.is_empty() {
        return String::new();
    }
    let shared = set(desired.shared.iter().map(String::as_str));
    let mut rules = vec!["ct state { established, related } accept".to_owned()];
    rules.push("ct status dnat accept".to_owned());
    if shares {
        rules.push(format!("iifname {shared} accept"));
    }
    if !desired.links.is_empty() {
        let links = set(desired.links.iter().map(|link| link.name.as_str()));
        if let Some(tun) = tun {
            let inside = set(desired.shared.iter().map(String::as_str).chain([tun]));
            rules.push(format!("iifname {links} oifname {inside} counter drop"));
        }
        rules.extend(
            opened
                .iter()
                .map(|family| format!("iifname {links} meta nfproto {family} counter drop")),
        );
    }
    rules.extend(GUESTS_WITHIN.iter().map(|name| format!("iifname \"{name}\" accept")));
    if let Some(tun) = tun {
        rules.push(format!("iifname \"{tun}\" counter drop"));
        rules.push(format!("oifname \"{tun}\" counter drop"));
    }
    rules.extend(opened.iter().map(|family| format!("meta nfproto {family} counter drop")));
    let rules: String = rules.iter().map(|rule| format!("        {rule}\n")).collect();
    format!(
        "    chain shared_forward {{\n        type filter hook forward priority filter; policy accept;\n{rules}    }}\n"
    )
}

/// How the bridges of containers and virtual machines are named by those who make them: Docker, Podman, libvirt, LXC, LXD,
/// Incus, and systemd-nspawn. What runs there is this machine's own.
const GUESTS_WITHIN: [&str; 9] =
    ["docker0", "br-*", "podman*", "cni-podman*", "virbr*", "lxcbr*", "lxdbr*", "incusbr*", "ve-*"];

fn set<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<_> = names.map(|name| format!("\"{name}\"")).collect();
    format!("{{ {} }}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::everything;

    fn desired(inner: &[&str]) -> Desired {
        Desired {
            tun: Some(TunDesired {
                name: "rope0".into(),
                inner: inner.iter().map(|address| address.parse().unwrap()).collect(),
                mtu: 1400,
            }),
            routed: everything(),
            shared: vec!["ap0".into(), "ap1".into()],
            ..Desired::default()
        }
    }

    #[test]
    fn guests_get_the_inner_address_of_their_family_and_the_tunnel_gets_only_answers_through() {
        let text = chains(&desired(&["10.77.0.2", "fd77::2"]));
        for rule in [
            "oifname \"rope0\" ip saddr != 10.77.0.2 counter masquerade",
            "oifname \"rope0\" ip6 saddr != fd77::2 counter masquerade",
            "iifname { \"ap0\", \"ap1\" } oifname \"rope0\" tcp flags syn",
        ] {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
        assert!(!chains(&desired(&["10.77.0.2"])).contains("ip6"));
        let mut routed = desired(&["10.77.0.2", "fd77::2"]);
        routed.prefix = Some("2001:db8:7:1::/64".parse().unwrap());
        let text = chains(&routed);
        let rule = "ip6 saddr != { fd77::2, 2001:db8:7:1::/64 } counter masquerade";
        assert!(text.contains(rule), "{text}");
    }

    #[test]
    fn guests_are_forwarded_and_strangers_only_where_the_user_had_forwarding_on() {
        let text = |desired: &Desired, opened: &[&str]| forwarded(desired, opened.iter().copied());
        let shares = desired(&["10.77.0.2"]);
        let own = text(&shares, &[]);
        for rule in [
            "ct state { established, related } accept",
            "ct status dnat accept",
            "iifname { \"ap0\", \"ap1\" } accept",
            "iifname \"docker0\" accept",
            "iifname \"rope0\" counter drop",
            "oifname \"rope0\" counter drop",
        ] {
            assert!(own.contains(rule), "{rule} in\n{own}");
        }
        assert!(!own.contains("nfproto"), "{own}");
        assert!(text(&shares, &["ipv4"]).contains("meta nfproto ipv4 counter drop"));
        // For as long as forwarding is on: the tunnel, or the wish to share it, may go first.
        let gone = Desired { tun: None, ..shares.clone() };
        let alone = Desired { shared: Vec::new(), ..shares };
        for desired in [gone, alone] {
            let closed = text(&desired, &["ipv4", "ipv6"]);
            assert!(closed.contains("meta nfproto ipv6 counter drop"), "{closed}");
            assert!(!closed.contains("rope0") && !closed.contains("{  }"), "{closed}");
            assert_eq!(text(&desired, &[]), "");
        }
    }

    #[test]
    fn without_a_tunnel_or_guests_there_is_nothing() {
        let alone = Desired { shared: Vec::new(), ..desired(&["10.77.0.2"]) };
        assert_eq!(chains(&alone), "");
        assert_eq!(chains(&Desired { tun: None, ..desired(&[]) }), "");
    }
}
