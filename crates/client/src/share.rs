//! Sharing the tunnel with the hosts behind other interfaces (a hotspot): the chains of the client's firewall table for it.
//!
//! * `shared_forward`: hosts on a link's network may use neither the tunnel nor the shared networks: forwarding is on for
//!   all interfaces, and whoever shares a café's network is no guest of this machine's.
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
    let mut text = String::new();
    if !desired.links.is_empty() {
        let links = set(desired.links.iter().map(|link| link.name.as_str()));
        let inside = set(desired.shared.iter().map(String::as_str).chain([tun.as_str()]));
        text.push_str(&format!(
            "    chain shared_forward {{
        type filter hook forward priority filter; policy accept;
        iifname {links} oifname {inside} ct state != {{ established, related }} counter drop
    }}
"
        ));
    }
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
