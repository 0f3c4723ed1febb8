//! Sharing the tunnel with the hosts behind other interfaces (a hotspot): the chains of the client's firewall table for it.
//!
//! * `shared_forward`: hosts on a link's network may use neither the tunnel nor the shared networks: forwarding is on for
//!   all interfaces, and whoever shares a café's network is no guest of this machine's. From the tunnel only answers are
//!   forwarded (and what a rule of the user's leads on): the proxy is no guest either.
//! * `shared_segments`: the MSS that a TCP connection announces is lowered to what fits the way in both directions.
//! * `shared_sources`: what enters the tunnel with a source that is not this machine's gets its inner address. The proxy
//!   delivers nothing else, and IPv6 has no other way: the client has one address of each family.

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
            let word = if inner.is_ipv4() { "ip" } else { "ip6" };
            format!("        oifname \"{tun}\" {word} saddr != {inner} counter masquerade\n")
        })
        .collect();
    let mut text = String::from(
        "    chain shared_forward {\n        type filter hook forward priority filter; policy accept;\n",
    );
    if !desired.links.is_empty() {
        let links = set(desired.links.iter().map(|link| link.name.as_str()));
        let inside = set(desired.shared.iter().map(String::as_str).chain([tun.as_str()]));
        text.push_str(&format!(
            "        iifname {links} oifname {inside} ct state != {{ established, related }} counter drop\n"
        ));
    }
    text.push_str(&format!(
        "        iifname \"{tun}\" ct status dnat accept
        iifname \"{tun}\" ct state != {{ established, related }} counter drop
    }}
"
    ));
    text.push_str(&format!(
        "    chain shared_segments {{
        type filter hook forward priority mangle; policy accept;
        iifname {shared} oifname \"{tun}\" tcp flags syn tcp option maxseg size set rt mtu
        iifname \"{tun}\" oifname {shared} tcp flags syn tcp option maxseg size set rt mtu
    }}
    chain shared_sources {{
        type nat hook postrouting priority srcnat; policy accept;
{sources}    }}
"
    ));
    text
}

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
            "iifname \"rope0\" ct state != { established, related } counter drop",
        ] {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
        assert!(!chains(&desired(&["10.77.0.2"])).contains("ip6"));
    }

    #[test]
    fn without_a_tunnel_or_guests_there_is_nothing() {
        let alone = Desired { shared: Vec::new(), ..desired(&["10.77.0.2"]) };
        assert_eq!(chains(&alone), "");
        assert_eq!(chains(&Desired { tun: None, ..desired(&[]) }), "");
    }
}
