//! The kill switch: a firewall table of its own, in which nothing leaves this machine outside the tunnel.
//!
//! It is the first thing that a starting client sets, and outlives it on purpose: while none runs, because it crashed, was
//! killed, is restarted, or cannot start, everything that would leave is refused. The next start takes it over in one
//! transaction; a client that is told to stop removes it.
//!
//! | what may leave | why |
//! | --- | --- |
//! | into the TUN, and to this machine itself | |
//! | our own datagrams (UDP with our mark) | the tunnel |
//! | to the proxy, TCP with our mark at its port for TLS | the tunnel, where the network lets no UDP through |
//! | to near prefixes: those of this machine's interfaces, if private | the LAN, and a network's sign-in page on its router |
//! | to `exclude` | as told |
//! | connections that `exclude` chooses by program, user or domain | as told |
//! | packets with the mark of what `routes` chooses so | into the TUN; see below |
//! | link-local multicast, neighbour discovery, DHCP | addresses, routers, printers |
//! | from our own user and systemd-resolved's to the user's name servers, port 53 and 853, while the proxy's name is looked up | reaching the proxy |
//! | to the proxy, TCP port 80 | whether a network wants a sign-in |
//!
//! Only private prefixes are near: a network that hands out a public one as its own would else have everything sent to it.
//! What is forwarded for others is held to the same list, but for what only this machine itself has to say.
//!
//! A mark leads a packet elsewhere before it is asked about here, and the kernel still tells the interface by which it was to
//! leave without it. So what `routes` chooses passes by its mark, and where the interface is the true one, behind the routes, it
//! is seen that it leaves into the TUN or to what is near.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::near::is_private;

/// What is let out.
#[derive(Clone, Debug)]
pub struct Lock<'a> {
    /// The TUN's name.
    pub tun: &'a str,
    /// The mark of our own datagrams, and the bits of it that count.
    pub mark: (u32, u32),
    /// The prefixes of this machine's interfaces.
    pub connected: &'a [IpNet],
    /// Prefixes that are reached outside the tunnel.
    pub excluded: &'a [IpNet],
    /// Name servers that are asked outside the tunnel.
    pub asked: &'a [IpAddr],
    /// The users whose programs may ask them.
    pub askers: &'a [u32],
    /// Where the proxy is.
    pub proxy: &'a [SocketAddr],
    /// The marks of connections that go around the tunnel, as `exclude` says of programs, users and domains.
    pub let_out: &'a [u32],
    /// The mark (the same bits) of packets that go through the tunnel, as `routes` says of programs, users and domains; none
    /// where it says nothing of them.
    pub inside: Option<u32>,
    /// The TCP port at which it takes links over TLS, where they may go so.
    pub tls_port: Option<u16>,
}

/// The chains of the table.
#[must_use]
pub fn chains(lock: &Lock<'_>) -> String {
    let mut text = String::from("    chain leave {\n");
    let mut line = |rule: &str| writeln!(text, "        {rule}").expect("writing to a string");
    line(&format!("oifname {{ \"lo\", \"{}\" }} accept", lock.tun));
    let near = lock.connected.iter().filter(|net| is_private(net));
    let always = ["169.254.0.0/16", "fe80::/10"].iter().filter_map(|net| net.parse().ok());
    let near: Vec<IpNet> = near.chain(lock.excluded).map(IpNet::trunc).chain(always).collect();
    for (word, near) in by_family(&near) {
        line(&format!("{word} daddr {near} accept"));
    }
    text.push_str("    }\n    chain output {\n        type filter hook output priority filter; policy drop;\n");
    let mut line = |rule: &str| writeln!(text, "        {rule}").expect("writing to a string");
    line("jump leave");
    let (mark, mask) = lock.mark;
    line(&format!("meta l4proto udp meta mark & {mask:#x} == {mark:#x} accept"));
    if !lock.let_out.is_empty() {
        let marks: Vec<String> = lock.let_out.iter().map(|mark| format!("{mark:#x}")).collect();
        line(&format!("ct mark {{ {} }} accept", marks.join(", ")));
    }
    if let Some(inside) = lock.inside {
        line(&format!("meta mark & {mask:#x} == {inside:#x} accept"));
    }
    let asked: Vec<IpNet> = lock.asked.iter().copied().map(IpNet::from).collect();
    let askers: Vec<String> = lock.askers.iter().map(ToString::to_string).collect();
    for (word, asked) in by_family(&asked).filter(|_| !askers.is_empty()) {
        line(&format!(
            "{word} daddr {asked} meta l4proto {{ tcp, udp }} th dport {{ 53, 853 }} meta skuid {{ {} }} accept",
            askers.join(", ")
        ));
    }
    line("ip daddr { 224.0.0.0/24, 239.255.255.250, 255.255.255.255 } accept");
    line("ip6 daddr ff02::/16 accept");
    line("icmpv6 type { nd-router-solicit, nd-neighbor-solicit, nd-neighbor-advert } accept");
    line("udp sport 68 udp dport 67 accept");
    line("udp sport 546 udp dport 547 accept");
    let proxy: BTreeSet<IpAddr> = lock.proxy.iter().map(SocketAddr::ip).collect();
    let proxy: Vec<IpNet> = proxy.into_iter().map(IpNet::from).collect();
    for (word, proxy) in by_family(&proxy) {
        line(&format!("{word} daddr {proxy} tcp dport 80 accept"));
        if let Some(port) = lock.tls_port {
            line(&format!(
                "{word} daddr {proxy} tcp dport {port} meta mark & {mask:#x} == {mark:#x} accept"
            ));
        }
    }
    REFUSE.iter().for_each(|refusal| line(refusal));
    text.push_str(
        "    }\n    chain forward {\n        type filter hook forward priority filter; policy drop;\n        jump leave\n",
    );
    writeln!(text, "        {}\n        {}\n    }}", REFUSE[0], REFUSE[1])
        .expect("writing to a string");
    if let Some(inside) = lock.inside {
        // Nothing can be refused in this place.
        writeln!(
            text,
            "    chain marked {{
        type filter hook postrouting priority filter; policy accept;
        meta mark & {mask:#x} != {inside:#x} accept
        jump leave
        counter drop
    }}"
        )
        .expect("writing to a string");
    }
    text
}

/// Whether a config that cannot be used asks for the kill switch: a wrong line somewhere else in the file is no reason to let
/// everything out.
#[must_use]
pub fn is_asked_for(config: &str) -> bool {
    let mut values = config.lines().filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        (key.trim() == "kill_switch").then(|| value.split('#').next().unwrap_or_default().trim())
    });
    values.next_back().is_some_and(|value| value != "false")
}

/// At once, so that programs do not wait; the counts show what was held back. The kernel leaves an ICMP error aside while a
/// program is within `connect`, which would learn of it a second later: TCP is reset.
const REFUSE: [&str; 2] = [
    "meta l4proto tcp counter reject with tcp reset",
    "counter reject with icmpx type admin-prohibited",
];

/// The users whose programs look up names for this one: its own, and systemd-resolved's if `passwd` has it.
#[must_use]
pub fn askers(own: u32, passwd: &str) -> Vec<u32> {
    let lines = passwd.lines().filter_map(|line| line.strip_prefix("systemd-resolve:"));
    let resolved = lines.filter_map(|rest| rest.split(':').nth(1)?.parse().ok());
    let all: BTreeSet<u32> = resolved.chain([own]).collect();
    all.into_iter().collect()
}

/// nft's word for each family that has prefixes here, and they as a set. Overlapping ones are merged: a set of nft must
/// not hold an address twice.
pub(crate) fn by_family(nets: &[IpNet]) -> impl Iterator<Item = (&'static str, String)> {
    let of = |word, v4: bool| {
        let own: Vec<IpNet> =
            nets.iter().copied().filter(|net| net.addr().is_ipv4() == v4).collect();
        let words: Vec<_> = IpNet::aggregate(&own).iter().map(ToString::to_string).collect();
        (!words.is_empty()).then(|| (word, format!("{{ {} }}", words.join(", "))))
    };
    [of("ip", true), of("ip6", false)].into_iter().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nets(list: &[&str]) -> Vec<IpNet> {
        list.iter().map(|net| net.parse().unwrap()).collect()
    }

    #[test]
    fn a_config_that_cannot_be_used_is_still_asked_for_its_kill_switch() {
        for (config, expected) in [
            ("kill_switch = true\n[proxy\naddress = 7", true),
            ("  kill_switch=true # always\nwhat is this", true),
            ("kill_switch = tru", true),
            ("kill_switch = false # for now", false),
            ("# kill_switch = true", false),
            ("[proxy]\naddress = 7", false),
            ("", false),
        ] {
            assert_eq!(is_asked_for(config), expected, "{config}");
        }
    }

    #[test]
    fn our_own_user_asks_and_systemd_resolved_where_it_is_known() {
        let passwd = "root:x:0:0::/root:/bin/sh\nsystemd-resolve:x:992:992::/:/usr/sbin/nologin\n";
        for (own, passwd, expected) in [
            (997, passwd, &[992, 997][..]),
            (992, passwd, &[992]),
            (0, "root:x:0:0::/root:/bin/sh\n", &[0]),
            (5, "systemd-resolve:x\nsystemd-resolve:x:?:\nxsystemd-resolve:x:7:\n", &[5]),
        ] {
            assert_eq!(askers(own, passwd), expected, "{own} {passwd}");
        }
    }

    #[test]
    fn only_private_networks_are_near_and_what_is_excluded_is_let_out() {
        let connected = nets(&[
            "192.168.7.1/24",
            "192.168.7.9/25",
            "1.2.3.4/1",
            "203.0.113.4/24",
            "fd07::1/64",
            "2001:db8::7/64",
        ]);
        let text = chains(&Lock {
            tun: "rope0",
            mark: (0x5257_0000, 0xffff_0000),
            connected: &connected,
            excluded: &nets(&["198.51.100.9/24", "2001:db8:99::/48"]),
            asked: &["9.9.9.9".parse().unwrap()],
            askers: &[997, 0],
            proxy: &["203.0.113.5:51900", "203.0.113.5:443", "[2001:db8:f::5]:443"]
                .map(|address| address.parse().unwrap()),
            let_out: &[0x5258_0007, 0x5258_0009],
            inside: None,
            tls_port: Some(443),
        });
        for rule in [
            "oifname { \"lo\", \"rope0\" } accept",
            "ip daddr { 169.254.0.0/16, 192.168.7.0/24, 198.51.100.0/24 } accept",
            "ip6 daddr { 2001:db8:99::/48, fd07::/64, fe80::/10 } accept",
            "ip daddr { 9.9.9.9/32 } meta l4proto { tcp, udp } th dport { 53, 853 } meta skuid { 997, 0 } accept",
            "meta l4proto udp meta mark & 0xffff0000 == 0x52570000 accept",
            "ip daddr { 203.0.113.5/32 } tcp dport 80 accept",
            "ip daddr { 203.0.113.5/32 } tcp dport 443 meta mark & 0xffff0000 == 0x52570000 accept",
            "ip6 daddr { 2001:db8:f::5/128 } tcp dport 80 accept",
            "ct mark { 0x52580007, 0x52580009 } accept",
            "ip6 daddr { 2001:db8:f::5/128 } tcp dport 443 meta mark & 0xffff0000 == 0x52570000 accept",
        ] {
            assert!(text.contains(rule), "{rule} in\n{text}");
        }
        assert_eq!(text.matches("policy drop").count(), 2, "{text}");
        // Neither other users nor guests ask outside.
        let (_, output) = text.split_once("chain output").unwrap();
        assert_eq!(text.matches("9.9.9.9").count(), 1, "{text}");
        assert_eq!(text.matches("ct mark").count(), 1, "{text}");
        assert!(output.split("chain forward").next().unwrap().contains("9.9.9.9"), "{text}");
        assert_eq!(text.matches(REFUSE[1]).count(), 2, "{text}");
    }

    #[test]
    fn what_routes_choose_passes_by_its_mark_and_behind_the_routes_into_the_tunnel_and_to_what_is_near_only()
     {
        let with = |inside| {
            chains(&Lock {
                tun: "rope0",
                mark: (0x5257_0000, 0xffff_0000),
                connected: &[],
                excluded: &[],
                asked: &[],
                askers: &[],
                proxy: &[],
                let_out: &[],
                inside,
                tls_port: None,
            })
        };
        let text = with(Some(0x5259_0000));
        let (output, rest) = text.split_once("    chain forward {").unwrap();
        let passes = "        meta mark & 0xffff0000 == 0x52590000 accept\n";
        assert!(output.contains(passes), "{text}");
        let (forward, marked) = rest.split_once("    chain marked {\n").unwrap();
        assert!(!forward.contains("mark"), "{text}");
        let expected = "        type filter hook postrouting priority filter; policy accept;
        meta mark & 0xffff0000 != 0x52590000 accept
        jump leave
        counter drop
    }
";
        assert_eq!(marked, expected);
        let none = with(None);
        assert!(!none.contains("postrouting") && !none.contains("0x5259"), "{none}");
    }
}
