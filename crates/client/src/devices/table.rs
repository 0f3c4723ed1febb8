//! The firewall table in which devices are counted, and in which those with a limit get the number of their lane.
//!
//! It is replaced as a whole when a limit or what it means changes; what was counted goes on in the new one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use ropewalk_link_io::netlink::Lane;
use ropewalk_link_io::nft::{Element, NftError, Table};

use super::Limited;

/// Addresses of each family that are counted at a time: a household has some dozens of devices, and each several of IPv6.
/// What comes beyond passes uncounted.
pub const MAX_ADDRESSES: usize = 1024;

/// For how long an address is counted that is silent.
const KEPT: &str = "1d";

/// Addresses of a device with a limit that are known at a time, and for how long one that is silent is.
const MAX_OF_DEVICE: usize = 64;
const KEPT_OF_DEVICE: &str = "1h";

/// The sets in which it is counted: nft's word of the family, what of it senders and receivers are, and the type.
const FAMILIES: [(&str, &str, &str, &str); 2] =
    [("ip", UP_V4, DOWN_V4, "ipv4_addr"), ("ip6", UP_V6, DOWN_V6, "ipv6_addr")];

/// The sets: from which hardware address and address was sent, and to which address, and how much.
pub const UP_V4: &str = "up4";
/// The same for IPv6.
pub const UP_V6: &str = "up6";
/// To which address was sent.
pub const DOWN_V4: &str = "down4";
/// The same for IPv6.
pub const DOWN_V6: &str = "down6";

/// What the sets hold, by their names.
pub type Sets = BTreeMap<String, Vec<Element>>;

/// What a client holds of it.
#[derive(Debug)]
pub struct DeviceTable {
    table: Table,
    /// Whether it may stand.
    may_stand: bool,
    /// Its text; empty before the first.
    body: String,
}

impl DeviceTable {
    /// With a table of this name. Nothing is done yet; one may have been left behind.
    #[must_use]
    pub const fn new(table: Table) -> Self {
        Self { table, may_stand: true, body: String::new() }
    }

    /// Makes it so: the devices behind these interfaces are counted, and those with a limit get their lanes. Without interfaces
    /// there is no table. Returns whether anything was changed.
    ///
    /// # Errors
    /// When `nft` or the right is missing, or `nft` refuses. What stood before stands then.
    pub async fn apply(
        &mut self,
        shared: &[String],
        limited: &[Limited],
    ) -> Result<bool, NftError> {
        if shared.is_empty() {
            return self.remove().await;
        }
        let body = body(shared, limited);
        if self.table.stands(&body).await? {
            return Ok(false);
        }
        let counted = match self.body.is_empty() {
            // What an earlier client counted is not ours.
            true => Sets::new(),
            false => self.table.sets().await?,
        };
        self.may_stand = true;
        self.table.replace(&body, &kept(self.table.name(), &counted)).await?;
        self.body = body;
        Ok(true)
    }

    /// What was counted.
    pub async fn sets(&self) -> Sets {
        match self.body.is_empty() {
            true => Sets::new(),
            // Who asks is told what is known.
            false => self.table.sets().await.unwrap_or_default(),
        }
    }

    /// Takes it away, if there is one. Returns whether there was.
    ///
    /// # Errors
    /// When the right is missing, or `nft` refuses.
    pub async fn remove(&mut self) -> Result<bool, NftError> {
        self.body.clear();
        if !self.may_stand {
            return Ok(false);
        }
        let removed = self.table.remove().await?;
        self.may_stand = false;
        Ok(removed)
    }
}

/// What stands between the table's braces.
///
/// Whoever sends from a hardware address with a limit is known by the address it sends from at once, so that what comes to it
/// then finds the lane too. Of several limits that mean a device the last one counts.
fn body(shared: &[String], limited: &[Limited]) -> String {
    let mut text = String::new();
    for (_, up, down, kind) in FAMILIES {
        let set = format!("size {MAX_ADDRESSES}; flags dynamic,timeout; timeout {KEPT};");
        line(&mut text, 1, &format!("set {up} {{ type ether_addr . {kind}; {set} }}"));
        line(&mut text, 1, &format!("set {down} {{ type {kind}; {set} }}"));
    }
    for limit in limited.iter().filter(|limit| !limit.macs.is_empty()) {
        for (word, _, _, kind) in FAMILIES {
            let set = learned(limit, word);
            let size = format!("size {MAX_OF_DEVICE}; flags dynamic,timeout;");
            let set = format!("set {set} {{ type {kind}; {size} timeout {KEPT_OF_DEVICE}; }}");
            line(&mut text, 1, &set);
        }
    }
    let names: Vec<String> = shared.iter().map(|name| format!("\"{name}\"")).collect();
    let names = format!("{{ {} }}", names.join(", "));
    // Behind the chains that say what may pass, so that nothing is counted that does not.
    line(&mut text, 1, "chain limits {");
    line(&mut text, 2, "type filter hook forward priority 9; policy accept;");
    for limit in limited {
        for rule in rules(limit, &names) {
            line(&mut text, 2, &rule);
        }
    }
    line(&mut text, 1, "}");
    line(&mut text, 1, "chain count {");
    line(&mut text, 2, "type filter hook forward priority 10; policy accept;");
    // Only what is somebody's: not a device that has no address yet, and not all or many at once.
    for (word, up, down, _) in FAMILIES {
        let sent = format!("iifname {names} fib saddr type unicast");
        let rule = format!("{sent} update @{up} {{ ether saddr . {word} saddr counter }}");
        line(&mut text, 2, &rule);
        let came = format!("oifname {names} fib daddr type unicast");
        let rule = format!("{came} update @{down} {{ {word} daddr counter }}");
        line(&mut text, 2, &rule);
    }
    line(&mut text, 1, "}");
    text
}

/// The rules of one limit.
fn rules(limit: &Limited, shared: &str) -> Vec<String> {
    let take = format!("meta priority set {}", Lane::priority(limit.number));
    let mut rules = Vec::new();
    if !limit.macs.is_empty() {
        let macs = list(limit.macs.iter());
        let from = format!("iifname {shared} ether saddr {macs}");
        for (word, _, _, _) in FAMILIES {
            let set = learned(limit, word);
            rules.push(format!("{from} update @{set} {{ {word} saddr }}"));
            rules.push(format!("oifname {shared} {word} daddr @{set} {take}"));
        }
        rules.push(format!("{from} {take}"));
    }
    for (word, is_v4) in [("ip", true), ("ip6", false)] {
        let of_family = limit.addresses.iter().filter(|address| address.is_ipv4() == is_v4);
        let addresses: Vec<&IpAddr> = of_family.collect();
        if !addresses.is_empty() {
            let addresses = list(addresses.into_iter());
            rules.push(format!("iifname {shared} {word} saddr {addresses} {take}"));
            rules.push(format!("oifname {shared} {word} daddr {addresses} {take}"));
        }
    }
    rules
}

/// The set of the addresses from which a device with a limit was seen to send.
fn learned(limit: &Limited, word: &str) -> String {
    format!("of{}_{word}", limit.number)
}

fn list(of: impl Iterator<Item = impl ToString>) -> String {
    let of: Vec<String> = of.map(|one| one.to_string()).collect();
    format!("{{ {} }}", of.join(", "))
}

/// The commands that put what was counted into the sets of a new table.
fn kept(table: &str, counted: &Sets) -> String {
    let mut text = String::new();
    for set in [UP_V4, UP_V6, DOWN_V4, DOWN_V6] {
        let elements = counted.get(set).into_iter().flatten().filter_map(|element| {
            let count = element.count?;
            let value = element.parts.join(" . ");
            Some(format!("{value} counter packets {} bytes {}", count.packets, count.bytes))
        });
        let elements: Vec<String> = elements.collect();
        if !elements.is_empty() {
            let elements = elements.join(", ");
            writeln!(text, "add element inet {table} {set} {{ {elements} }}")
                .expect("writing to a string");
        }
    }
    text
}

/// One line, so many levels deep.
fn line(text: &mut String, depth: usize, words: &str) {
    writeln!(text, "{}{words}", "    ".repeat(depth)).expect("writing to a string");
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_link_io::nft::Count;
    use ropewalk_settings::{Bitrate, MacAddress};

    fn limited(number: u16, macs: &[u8], addresses: &[&str]) -> Limited {
        Limited {
            number,
            macs: macs.iter().map(|last| MacAddress([0x52, 0x54, 0, 0, 0, *last])).collect(),
            addresses: addresses.iter().map(|address| address.parse().unwrap()).collect(),
            down: Some(Bitrate::from_mbps(5)),
            up: None,
        }
    }

    #[test]
    fn both_families_are_counted_behind_the_shared_interfaces_alone() {
        let text = body(&["lan0".into(), "lan1".into()], &[]);
        for rule in [
            "set up4 { type ether_addr . ipv4_addr; size 1024; flags dynamic,timeout; timeout 1d; }",
            "set down6 { type ipv6_addr; size 1024; flags dynamic,timeout; timeout 1d; }",
            "iifname { \"lan0\", \"lan1\" } fib saddr type unicast update @up6 { ether saddr . ip6 saddr counter }",
            "oifname { \"lan0\", \"lan1\" } fib daddr type unicast update @down4 { ip daddr counter }",
        ] {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
        assert!(!text.contains("priority set"), "{text}");
    }

    #[test]
    fn a_device_with_a_limit_gets_its_lane_both_ways_by_whatever_address() {
        let limits = [limited(1, &[1, 2], &[]), limited(18, &[], &["192.168.77.7", "2001:db8::7"])];
        let text = body(&["lan0".into()], &limits);
        let macs = "ether saddr { 52:54:00:00:00:01, 52:54:00:00:00:02 }";
        for rule in [
            format!("iifname {{ \"lan0\" }} {macs} update @of1_ip6 {{ ip6 saddr }}"),
            format!("iifname {{ \"lan0\" }} {macs} meta priority set 7257:1"),
            "oifname { \"lan0\" } ip daddr @of1_ip meta priority set 7257:1".to_owned(),
            "iifname { \"lan0\" } ip saddr { 192.168.77.7 } meta priority set 7257:12".to_owned(),
            "oifname { \"lan0\" } ip6 daddr { 2001:db8::7 } meta priority set 7257:12".to_owned(),
        ] {
            assert!(text.contains(&rule), "{rule} in\n{text}");
        }
        assert!(text.contains("set of1_ip { ") && !text.contains("of18"), "{text}");
    }

    #[test]
    fn what_was_counted_goes_into_the_new_sets() {
        let element = |parts: &[&str], packets: Option<u64>| Element {
            parts: parts.iter().map(|part| (*part).to_owned()).collect(),
            count: packets.map(|packets| Count { packets, bytes: packets * 100 }),
        };
        let counted = Sets::from([
            (
                UP_V4.to_owned(),
                vec![
                    element(&["52:54:00:00:00:01", "192.168.77.20"], Some(3)),
                    element(&["52:54:00:00:00:02", "192.168.77.21"], None),
                ],
            ),
            (DOWN_V6.to_owned(), vec![element(&["2001:db8::20"], Some(7))]),
            ("of1_ip".to_owned(), vec![element(&["192.168.77.20"], None)]),
        ]);
        assert_eq!(
            kept("ropewalk_devices", &counted),
            "add element inet ropewalk_devices up4 { 52:54:00:00:00:01 . 192.168.77.20 counter packets 3 bytes 300 }\n\
             add element inet ropewalk_devices down6 { 2001:db8::20 counter packets 7 bytes 700 }\n"
        );
        assert_eq!(kept("ropewalk_devices", &Sets::new()), "");
    }
}
