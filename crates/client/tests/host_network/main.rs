//! The client's changes to the host's network, on the real kernel: every test in network namespaces of its own.
//!
//! The host has two links, `wan1` (10.1.0.2, router 10.1.0.1) and `wan2` (10.2.0.2, router 10.2.0.1), a LAN, and a TUN. A
//! second namespace is both routers and the proxy (203.0.113.5), which answers every datagram.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

mod faults;
mod inbound;
mod others_routes;
mod reverse_path;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ropewalk_client::host::linux::LinuxNetwork;
use ropewalk_client::host::{
    Choice, Desired, HostNetwork, LinkDesired, Listed, NoWay, TunDesired, everything,
};
use ropewalk_client::routes::Numbers;
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_settings::{InterfaceName, NamePattern};
use serde_json::Value;

const PROXY: &str = "203.0.113.5:4600";
const PROXY_V6: &str = "[2001:db8:f::5]:4600";

struct Lab {
    host: Namespace,
    proxy: Namespace,
}

fn lab() -> Option<Lab> {
    let (host, proxy) = (Namespace::open()?, Namespace::open()?);
    for namespace in [&host, &proxy] {
        // Duplicate detection keeps IPv6 silent for two seconds.
        namespace.sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad");
    }
    let tid = proxy.tid();
    host.sh(&format!(
        "for n in 1 2; do
           ip link add wan$n type veth peer name far$n netns {tid}
           ip addr add 10.$n.0.2/24 dev wan$n
           ip addr add 2001:db8:$n::2/64 dev wan$n nodad
           ip link set wan$n up
         done
         ip link add lan0 type veth peer name lan1; ip link set lan1 up
         ip addr add 192.168.7.1/24 dev lan0; ip addr add fd07::1/64 dev lan0 nodad; ip link set lan0 up
         ip tuntap add rope0 mode tun"
    ));
    proxy.sh("ip addr add 203.0.113.5/32 dev lo; ip addr add 2001:db8:f::5/128 dev lo nodad
         for n in 1 2; do
           ip addr add 10.$n.0.1/24 dev far$n; ip addr add 2001:db8:$n::1/64 dev far$n nodad
           ip link set far$n up
         done
         echo 0 > /proc/sys/net/ipv4/conf/all/rp_filter");
    host.sh("for n in 1 2; do
           ip route add default via 10.$n.0.1 dev wan$n metric 10$n
           ip -6 route add default via 2001:db8:$n::1 dev wan$n metric 10$n
         done");
    proxy.run(|| {
        for address in [PROXY, PROXY_V6] {
            let socket = UdpSocket::bind(address).unwrap();
            std::thread::spawn(move || {
                let mut buffer = [0; 64];
                while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            });
        }
    });
    Some(Lab { host, proxy })
}

/// All that a client could change, as the system's own tools print it.
fn state(host: &Namespace) -> String {
    host.read(
        "ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset
         grep . /proc/sys/net/ipv4/conf/*/src_valid_mark /proc/sys/net/ipv4/conf/*/rp_filter",
    )
}

fn both() -> Choice {
    let listed = |name: &str| Listed {
        name: NamePattern::exact(&InterfaceName::new(name).unwrap()),
        gateways: Vec::new(),
        enabled: true,
    };
    Choice::list(vec![listed("wan1"), listed("wan2")])
}

/// What a daemon would want: every candidate that has a way out, a TUN with these inner addresses, everything routed.
async fn wanted(network: &LinuxNetwork, inner: &[&str]) -> Desired {
    let (candidates, _) = network.candidates(&both(), "rope0").await.unwrap();
    let links = candidates.into_iter().zip(0..).filter_map(|(found, slot)| {
        Some(LinkDesired { name: found.name, slot, ways: found.state.ok()? })
    });
    Desired {
        tun: Some(TunDesired {
            name: "rope0".into(),
            inner: inner.iter().map(|address| address.parse().unwrap()).collect(),
            mtu: 1380,
        }),
        links: links.collect(),
        proxy: [PROXY, PROXY_V6].map(|address| address.parse().unwrap()).into(),
        routed: everything(),
        excluded: Vec::new(),
        ..Desired::default()
    }
}

async fn open() -> LinuxNetwork {
    LinuxNetwork::open(Numbers::default()).await.unwrap()
}

/// Opens, applies, and lets go without cleaning up, as a crash does.
fn applied(host: &Namespace, inner: &'static [&'static str]) {
    host.block_on(async move || {
        let mut network = open().await;
        let desired = wanted(&network, inner).await;
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!(outcome.problems, []);
    });
}

/// The device of `ip route get`, or the error's words.
fn way(host: &Namespace, question: &str) -> String {
    let answer = host.read(&format!("ip -j route get {question} 2>&1 || true"));
    match serde_json::from_str::<Value>(&answer) {
        Ok(json) => json[0]["dev"].as_str().unwrap_or("no device").to_owned(),
        Err(_) => answer.trim().to_owned(),
    }
}

const UNREACHABLE: &str = "RTNETLINK answers: No route to host";

#[test]
fn what_is_applied_reads_back_twice_changes_nothing_and_removal_leaves_no_trace() {
    let Some(lab) = lab() else { return };
    lab.host.sh("echo 1 > /proc/sys/net/ipv4/conf/wan2/rp_filter; ip link del rope0");
    let before = state(&lab.host);
    lab.host.sh("ip tuntap add rope0 mode tun");
    lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2", "fd77::2"]).await;
        let first = network.apply(&desired).await.unwrap();
        assert!(first.changed && first.problems.is_empty(), "{first:?}");
        let second = network.apply(&desired).await.unwrap();
        assert!(!second.changed && second.problems.is_empty(), "{second:?}");
    });
    let rules: Value = serde_json::from_str(&lab.host.read("ip -j rule")).unwrap();
    let ours = rules.as_array().unwrap().iter().filter(|rule| rule["protocol"] == "114");
    // Two marks, one refusal, bound and inner, two sources twice, everything twice.
    assert_eq!(ours.count(), 2 + 1 + 2 + 4 + 2, "{rules:#}");
    let routes: Value =
        serde_json::from_str(&lab.host.read("ip -j route show table 7702")).unwrap();
    let default = routes.as_array().unwrap().iter().find(|route| route["dst"] == "default");
    assert_eq!(default.unwrap()["gateway"], "10.2.0.1");
    let ruleset: Value = serde_json::from_str(&lab.host.read("nft -j list ruleset")).unwrap();
    let tables = ruleset["nftables"].as_array().unwrap().iter().filter_map(|one| one.get("table"));
    let names: Vec<_> = tables.map(|table| table["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["ropewalk_client"]);
    assert_eq!(lab.host.read("cat /proc/sys/net/ipv4/conf/wan2/src_valid_mark"), "1\n");
    assert_eq!(lab.host.read("cat /proc/sys/net/ipv4/conf/wan1/src_valid_mark"), "0\n");

    // The next client finds all of this by number and name, and removes it at its end.
    lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        network.apply(&desired).await.unwrap();
        network.remove().await.unwrap();
    });
    // The TUN goes with its daemon.
    lab.host.sh("ip link del rope0");
    assert_eq!(state(&lab.host), before);
}

#[test]
fn after_a_crash_nothing_stays_even_if_an_interface_vanished_in_between() {
    let Some(lab) = lab() else { return };
    lab.host.sh("for n in 1 2; do echo 1 > /proc/sys/net/ipv4/conf/wan$n/rp_filter; done");
    applied(&lab.host, &["10.77.0.2"]);
    lab.host.sh("ip link del wan2; ip link del rope0");
    assert!(state(&lab.host).contains("proto 114"), "the crash left something");
    lab.host.block_on(async || drop(open().await));
    let after = state(&lab.host);
    for trace in ["114", "ropewalk", "7700", "7701", "src_valid_mark:1"] {
        assert!(!after.contains(trace), "{trace} in\n{after}");
    }
}

#[test]
fn everything_goes_through_the_tunnel_but_the_lan_and_what_names_a_link() {
    let Some(lab) = lab() else { return };
    applied(&lab.host, &["10.77.0.2", "fd77::2"]);
    for (question, expected) in [
        ("198.51.100.1", "rope0"),
        ("203.0.113.5", "rope0"),
        ("192.168.7.9", "lan0"),
        ("10.2.0.9", "wan2"),
        ("2001:db8:99::1", "rope0"),
        ("fd07::9", "lan0"),
        // Packets of a link's address leave by that link, but reach the LAN.
        ("198.51.100.1 from 10.1.0.2", "wan1"),
        ("198.51.100.1 from 10.2.0.2", "wan2"),
        ("192.168.7.9 from 10.2.0.2", "lan0"),
        // Our own datagrams.
        ("203.0.113.5 mark 0x52570001", "wan1"),
        ("203.0.113.5 mark 0x52570002", "wan2"),
        ("2001:db8:99::1 mark 0x52570002", "wan2"),
    ] {
        assert_eq!(way(&lab.host, question), expected, "{question}");
    }
}

#[test]
fn an_excluded_prefix_takes_the_hosts_own_way() {
    let Some(lab) = lab() else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        let mut desired = wanted(&network, &["10.77.0.2", "fd77::2"]).await;
        desired.excluded =
            vec!["198.51.100.0/24".parse().unwrap(), "2001:db8:99::/48".parse().unwrap()];
        network.apply(&desired).await.unwrap();
    });
    for (question, expected) in [
        ("198.51.100.1", "wan1"),
        ("198.51.101.1", "rope0"),
        ("2001:db8:99::1", "wan1"),
        ("2001:db8:98::1", "rope0"),
    ] {
        assert_eq!(way(&lab.host, question), expected, "{question}");
    }
}

#[test]
fn a_chosen_prefix_goes_through_the_tunnel_unless_the_host_knows_a_longer_one() {
    let Some(lab) = lab() else { return };
    lab.host.sh(
        "ip route add 172.16.0.0/12 via 192.168.7.9; ip route add 172.20.0.0/16 via 192.168.7.9
         ip route add 172.16.0.0/14 via 192.168.7.9",
    );
    lab.host.block_on(async || {
        let mut network = open().await;
        let mut desired = wanted(&network, &["10.77.0.2", "fd77::2"]).await;
        desired.routed = vec!["172.16.0.0/12".parse().unwrap(), "fd99::/16".parse().unwrap()];
        network.apply(&desired).await.unwrap();
    });
    for (question, expected) in [
        ("172.30.0.1", "rope0"),
        ("172.20.0.1", "lan0"),
        ("172.17.0.1", "lan0"),
        ("198.51.100.1", "wan1"),
        ("fd99::1", "rope0"),
        ("2001:db8:99::1", "wan1"),
        // Whatever is routed: who names the tunnel gets it.
        ("198.51.100.1 from 10.77.0.2", "rope0"),
        ("198.51.100.1 oif rope0", "rope0"),
        ("2001:db8:99::1 from fd77::2", "rope0"),
        ("2001:db8:99::1 oif rope0", "rope0"),
    ] {
        assert_eq!(way(&lab.host, question), expected, "{question}");
    }
}

#[test]
fn where_no_ipv6_is_handed_out_none_leaks_past_the_tunnel() {
    let Some(lab) = lab() else { return };
    assert_eq!(way(&lab.host, "2001:db8:99::1"), "wan1");
    applied(&lab.host, &["10.77.0.2"]);
    assert_eq!(way(&lab.host, "2001:db8:99::1"), UNREACHABLE);
    assert_eq!(way(&lab.host, "fd07::9"), "lan0");
    assert_eq!(way(&lab.host, "198.51.100.1"), "rope0");
}

#[test]
fn when_the_tun_is_gone_packets_take_the_hosts_way() {
    let Some(lab) = lab() else { return };
    applied(&lab.host, &["10.77.0.2"]);
    assert_eq!(way(&lab.host, "198.51.100.1"), "rope0");
    lab.host.sh("ip link del rope0");
    assert_eq!(way(&lab.host, "198.51.100.1"), "wan1");
}

#[test]
fn a_link_without_a_gateway_is_told_and_never_sends() {
    let Some(lab) = lab() else { return };
    lab.host.sh("ip route del default dev wan2; ip -6 route del default dev wan2");
    lab.host.block_on(async || {
        let network = open().await;
        let (found, _) = network.candidates(&both(), "rope0").await.unwrap();
        assert!(found[0].state.is_ok());
        assert_eq!(found[1].state, Err(NoWay::NoGateway));
        assert_eq!(NoWay::NoGateway.to_string(), "no gateway");
        let auto = Choice::Auto { include: Vec::new(), exclude: Vec::new(), named: Vec::new() };
        let (found, _) = network.candidates(&auto, "rope0").await.unwrap();
        assert_eq!(found.len(), 1, "{found:?}");
    });
    applied(&lab.host, &["10.77.0.2"]);
    let answer = way(&lab.host, "203.0.113.5 mark 0x52570002");
    assert_eq!(answer, "RTNETLINK answers: Network is unreachable");
    let sent = lab.host.run(|| ask(0x5257_0002));
    assert!(sent.is_err(), "{sent:?}");
}

#[test]
fn a_router_outside_of_the_links_prefix_and_a_point_to_point_link_are_used() {
    let Some(lab) = lab() else { return };
    lab.host.sh("ip addr del 10.1.0.2/24 dev wan1; ip addr add 10.1.0.2/32 dev wan1
         ip route add default via 10.1.0.1 dev wan1 onlink
         ip route del default dev wan2; ip route add default dev wan2 scope link metric 500");
    applied(&lab.host, &["10.77.0.2"]);
    let routes = lab.host.read("ip route show table 7701; ip route show table 7702");
    assert!(
        routes.contains("default via 10.1.0.1 dev wan1 proto 114 metric 10 onlink"),
        "{routes}"
    );
    assert!(routes.contains("default dev wan2 proto 114 scope link metric 10"), "{routes}");
    lab.proxy.sh("ip route add 10.1.0.2/32 dev far1");
    assert_eq!(lab.host.run(|| ask(0x5257_0001)).unwrap(), "10.1.0.2");
}

#[test]
fn links_that_go_and_come_back_change_only_their_own_routes() {
    let Some(lab) = lab() else { return };
    lab.host.block_on(async || {
        let mut network = open().await;
        let all = wanted(&network, &["10.77.0.2"]).await;
        network.apply(&all).await.unwrap();
        let mut fewer = all.clone();
        fewer.links.pop();
        assert!(network.apply(&fewer).await.unwrap().changed);
        assert!(!network.apply(&fewer).await.unwrap().changed);
        assert!(network.apply(&all).await.unwrap().changed);

        // Another router on the same link.
        let mut moved = all.clone();
        moved.links[0].ways.v4.as_mut().unwrap().gateway = Some("10.1.0.77".parse().unwrap());
        assert!(network.apply(&moved).await.unwrap().changed);
        assert!(!network.apply(&moved).await.unwrap().changed);
    });
    let routes = lab.host.read("ip route show table 7701");
    assert!(routes.contains("10.1.0.77") && !routes.contains("10.1.0.1 "), "{routes}");
}

#[test]
fn what_another_program_removed_is_put_back() {
    let Some(lab) = lab() else { return };
    let (removed, restored) = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        network.apply(&desired).await.unwrap();
        let script = "ip rule del priority 5311; ip route flush table 7701; nft flush ruleset";
        let done = tokio::process::Command::new("sh").args(["-ec", script]).status().await;
        (done.unwrap().success(), network.apply(&desired).await.unwrap().changed)
    });
    assert!(removed && restored);
    assert_eq!(way(&lab.host, "198.51.100.1"), "rope0");
    assert_eq!(way(&lab.host, "203.0.113.5 mark 0x52570001"), "wan1");
    assert!(lab.host.read("nft list ruleset").contains("ropewalk_client"));
}

/// Sends one datagram to the proxy from a socket with this mark, and returns the local address it used once the answer is
/// there.
fn ask(mark: u32) -> std::io::Result<String> {
    ask_at(PROXY, mark)
}

fn ask_at(proxy: &str, mark: u32) -> std::io::Result<String> {
    let proxy: SocketAddr = proxy.parse().unwrap();
    let socket = UdpSocket::bind(if proxy.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
    socket2::SockRef::from(&socket).set_mark(mark)?;
    socket.connect(proxy)?;
    let used = socket.local_addr()?.ip().to_string();
    // A connected socket would be found before reverse path filtering is asked; a link's socket is not connected.
    let socket = UdpSocket::bind((used.parse::<IpAddr>().unwrap(), 0))?;
    socket2::SockRef::from(&socket).set_mark(mark)?;
    socket.set_read_timeout(Some(Duration::from_millis(300)))?;
    // A fresh device may drop what is sent before the kernel has seen its carrier: up to a second.
    let mut answer = Err(std::io::ErrorKind::TimedOut.into());
    for _ in 0..5 {
        socket.send_to(b"question", proxy)?;
        answer = socket.recv_from(&mut [0; 64]);
        if answer.is_ok() {
            break;
        }
    }
    let (length, from) = answer?;
    assert_eq!((length, from), (8, proxy));
    Ok(used)
}
