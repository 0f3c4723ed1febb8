//! Addresses in the language of nft.

use std::fmt::Write as _;
use std::net::IpAddr;

use ipnet::IpNet;

/// One address family in nft's words.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    /// What a match on its addresses begins with.
    pub word: &'static str,
    /// What `meta nfproto` calls it.
    pub protocol: &'static str,
    /// The type of its addresses in a set.
    pub address: &'static str,
    v4: bool,
}

/// IPv4.
pub const V4: Words = Words { word: "ip", protocol: "ipv4", address: "ipv4_addr", v4: true };
/// IPv6.
pub const V6: Words = Words { word: "ip6", protocol: "ipv6", address: "ipv6_addr", v4: false };

impl Words {
    /// Whether an address is of this family.
    #[must_use]
    pub const fn holds(self, address: &IpAddr) -> bool {
        address.is_ipv4() == self.v4
    }

    /// The prefixes of this family as a set, `None` if there are none. Overlapping ones are merged: a set of nft must not
    /// hold an address twice.
    #[must_use]
    pub fn set(self, nets: impl Iterator<Item = IpNet>) -> Option<String> {
        let own: Vec<IpNet> = nets.filter(|net| net.addr().is_ipv4() == self.v4).collect();
        if own.is_empty() {
            return None;
        }
        let merged = IpNet::aggregate(&own);
        let words: Vec<_> = merged.iter().map(ToString::to_string).collect();
        Some(format!("{{ {} }}", words.join(", ")))
    }
}

/// Adds a rule.
pub fn line(text: &mut String, rule: &str) {
    writeln!(text, "        {rule}").expect("writing to a string");
}

/// Adds a chain with these rules. One that hooks in says so in its first line.
pub fn chain(text: &mut String, name: &str, rules: &[String]) {
    writeln!(text, "    chain {name} {{").expect("writing to a string");
    rules.iter().for_each(|rule| line(text, rule));
    text.push_str("    }\n");
}
