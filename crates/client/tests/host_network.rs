//! The client's changes to the host's network, on the real kernel: every test in network namespaces of its own.
//!
//! The host has two links, `wan1` (10.1.0.2, router 10.1.0.1) and `wan2` (10.2.0.2, router 10.2.0.1), a LAN, and a TUN. A
//! second namespace is both routers and the proxy (203.0.113.5), which answers every datagram.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use ropewalk_client::config::Inbound;
use ropewalk_client::host::linux::LinuxNetwork;
use ropewalk_client::host::{
    Choice, Desired, HostNetwork, LinkDesired, Listed, NoWay, TunDesired, everything,
};
use ropewalk_client::routes::Numbers;
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_link_io::nft::Table;
use ropewalk_settings::{InterfaceName, NamePattern, PortRange};
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

#[test]
fn a_link_that_vanished_since_it_was_listed_is_a_problem_of_that_link_only() {
    let Some(lab) = lab() else { return };
    let outcome = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        let done = tokio::process::Command::new("ip").args(["link", "del", "wan2"]).status().await;
        assert!(done.unwrap().success());
        network.apply(&desired).await.unwrap()
    });
    assert!(!outcome.problems.is_empty());
    assert!(
        outcome.problems.iter().all(|problem| problem.link.as_deref() == Some("wan2")),
        "{outcome:?}"
    );
    assert_eq!(lab.host.run(|| ask(0x5257_0001)).unwrap(), "10.1.0.2");
}

#[test]
fn without_nft_the_links_still_work_and_the_remedy_is_told() {
    let Some(lab) = lab() else { return };
    let outcome = lab.host.block_on(async || {
        let numbers = Numbers::default();
        let table = Table::new(&numbers.firewall).with_program("/nowhere/nft");
        let mut network = LinuxNetwork::open_with(numbers, table).await.unwrap();
        let desired = wanted(&network, &["10.77.0.2"]).await;
        network.apply(&desired).await.unwrap()
    });
    assert_eq!(outcome.problems.len(), 1);
    assert!(outcome.problems[0].what.contains("apt install nftables"), "{outcome:?}");
    assert_eq!(lab.host.run(|| ask(0x5257_0002)).unwrap(), "10.2.0.2");
}

#[test]
fn an_nft_that_refuses_is_told_and_what_it_remembers_is_not_lost() {
    let Some(lab) = lab() else { return };
    make_strict(&lab, "");
    applied(&lab.host, &["10.77.0.2"]);
    let folder = tempfile::tempdir().unwrap();
    let broken = folder.path().join("nft");
    std::fs::write(&broken, "#!/bin/sh\necho out of order >&2; exit 1\n").unwrap();
    std::fs::set_permissions(&broken, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let outcome = lab.host.block_on(async move || {
        let numbers = Numbers::default();
        let table = Table::new(&numbers.firewall).with_program(&broken);
        let mut network = LinuxNetwork::open_with(numbers, table).await.unwrap();
        let desired = wanted(&network, &["10.77.0.2"]).await;
        let outcome = network.apply(&desired).await.unwrap();
        // From now on it works.
        std::fs::write(&broken, "#!/bin/sh\nexec nft \"$@\"\n").unwrap();
        assert_eq!(network.apply(&desired).await.unwrap().problems, []);
        network.remove().await.unwrap();
        outcome
    });
    assert!(outcome.problems[0].what.contains("out of order"), "{outcome:?}");
    let marks = lab.host.read("cat /proc/sys/net/ipv4/conf/wan?/src_valid_mark | xargs");
    assert_eq!(marks.trim(), "0 0");
    assert_eq!(lab.host.read("nft list ruleset"), "");
}

#[test]
fn a_setting_that_cannot_be_written_is_told_and_the_links_still_work() {
    let Some(lab) = lab() else { return };
    make_strict(&lab, "");
    let outcomes = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        // As in most containers; for this thread and what it starts.
        #[expect(deprecated, reason = "its `unsafe` successor adds nothing for this flag")]
        rustix::thread::unshare(rustix::thread::UnshareFlags::NEWNS).unwrap();
        let script = "mount --make-rprivate /; mount --bind /proc/sys /proc/sys
             mount -o remount,ro,bind /proc/sys";
        let done = tokio::process::Command::new("sh").args(["-ec", script]).status().await;
        assert!(done.unwrap().success());
        [network.apply(&desired).await.unwrap(), network.apply(&desired).await.unwrap()]
    });
    for outcome in outcomes {
        let links: Vec<_> =
            outcome.problems.iter().map(|problem| problem.link.as_deref()).collect();
        assert_eq!(links, [Some("wan1"), Some("wan2")], "{outcome:?}");
        assert!(outcome.problems[0].what.contains("src_valid_mark"), "{outcome:?}");
        assert!(outcome.problems[0].what.contains("read-only"), "{outcome:?}");
    }
    for mark in [0x5257_0001, 0x5257_0002] {
        assert!(lab.host.run(move || ask(mark)).is_ok(), "mark {mark:#x}");
    }
}

#[test]
fn without_the_capability_the_error_names_it() {
    let Some(lab) = lab() else { return };
    let error = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2"]).await;
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets).unwrap();
        network.apply(&desired).await.unwrap_err()
    });
    assert!(format!("{error:#}").contains("CAP_NET_ADMIN"), "{error:#}");
}

/// Cases of strict reverse path filtering, each with what makes it hard.
const STRICT: [(&str, &str); 3] = [
    ("two links, the better default route by wan1", ""),
    ("a special route to the proxy by wan1", "ip route add 203.0.113.5 via 10.1.0.1 proto static"),
    (
        "two links with the same address",
        "ip addr del 10.2.0.2/24 dev wan2; ip addr add 10.1.0.2/24 dev wan2
         ip route add default via 10.1.0.1 dev wan2 metric 102",
    ),
];

#[test]
fn answers_arrive_on_every_link_under_strict_reverse_path_filtering() {
    for (case, script) in STRICT {
        let Some(lab) = lab() else { return };
        make_strict(&lab, script);
        applied(&lab.host, &["10.77.0.2"]);
        for mark in [0x5257_0001, 0x5257_0002] {
            let asked = lab.host.run(move || ask(mark));
            assert!(asked.is_ok(), "{case}, mark {mark:#x}: {asked:?}");
        }
    }
}

/// Shows that the test above can fail: the two hard cases really need the mark.
#[test]
fn without_the_mark_the_hard_cases_lose_the_answers() {
    for (case, script) in &STRICT[1..] {
        let Some(lab) = lab() else { return };
        make_strict(&lab, script);
        applied(&lab.host, &["10.77.0.2"]);
        lab.host.sh("nft flush ruleset");
        let asked = lab.host.run(|| ask(0x5257_0002));
        assert!(asked.is_err(), "{case}: {asked:?}");
    }
}

#[test]
fn answers_arrive_under_a_reverse_path_filter_for_ipv6() {
    let Some(lab) = lab() else { return };
    lab.host.sh(
        "nft 'table inet others { chain c { type filter hook prerouting priority mangle + 10
                meta nfproto ipv6 meta l4proto udp fib saddr . mark . iif oif missing drop
             }
             }'",
    );
    let asked = |mark| lab.host.run(move || ask_at(PROXY_V6, mark));
    applied(&lab.host, &["10.77.0.2"]);
    assert_eq!(asked(0x5257_0001).unwrap(), "2001:db8:1::2");
    assert_eq!(asked(0x5257_0002).unwrap(), "2001:db8:2::2");
    // Without the rule for what comes from the proxy the answer is dropped: the test can fail.
    lab.host.sh("ip -6 rule del from 2001:db8:2::2 priority 5303");
    assert!(asked(0x5257_0002).is_err());
}

#[test]
fn inner_packets_arrive_under_strict_reverse_path_filtering() {
    let Some(lab) = lab() else { return };
    make_strict(&lab, "");
    lab.host.sh("echo 1 > /proc/sys/net/ipv4/conf/rope0/rp_filter");
    lab.host.block_on(async || {
        let mut network = open().await;
        let mut desired = wanted(&network, &["10.77.0.2"]).await;
        // Nothing is routed: only the rule for the inner address says that the TUN is the right way.
        desired.routed = Vec::new();
        network.apply(&desired).await.unwrap();
    });
    // `iif` makes the kernel ask the question of reverse path filtering.
    let answer = lab.host.read("ip route get 10.77.0.2 from 198.51.100.1 iif rope0");
    assert!(answer.contains("local"), "{answer}");

    // Without that rule the question has another answer: the test can fail.
    lab.host.sh("ip rule del from 10.77.0.2");
    let refused = lab.host.read(
        "ip route get 10.77.0.2 from 198.51.100.1 iif rope0 && echo accepted || echo refused",
    );
    assert_eq!(refused.trim(), "refused");
}

/// Strict on both links; the proxy's side answers by the link that the question came by.
fn make_strict(lab: &Lab, script: &str) {
    lab.host.sh("for n in 1 2; do echo 1 > /proc/sys/net/ipv4/conf/wan$n/rp_filter; done");
    lab.host.sh(script);
    if script.contains("addr del") {
        // Two routers of one make: the far side tells them apart by mark, as two real routers would by being two.
        lab.proxy.sh(
            "ip addr del 10.2.0.1/24 dev far2; ip addr add 10.1.0.1/24 dev far2
             ip route add 10.1.0.0/24 dev far2 table 2; ip rule add fwmark 2 table 2
             nft 'table inet t { chain c { type filter hook prerouting priority -150; iifname far2 ct mark set 2
                 }
                  chain o { type route hook output priority -150; ct mark 2 meta mark set 2
                 }
             }'",
        );
    }
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

/// A network hands out routes past the tunnel, as the usual programs install them.
const HANDED_OUT: &str =
    "for net in 0.0.0.0/1 128.0.0.0/2 192.0.0.0/8 198.51.100.0/24 203.0.113.9/32; do
       ip route add $net via 10.1.0.1 dev wan1 proto dhcp metric 50
     done
     ip route add 198.51.101.9/32 via 10.1.0.1 dev wan1
     ip route add 198.51.102.9/32 dev wan1 proto dhcp scope link
     ip -6 route add 2000::/4 via 2001:db8:1::1 dev wan1 proto ra
     ip -6 route add 2001:db8:99::1/128 via 2001:db8:1::1 dev wan1 proto ra
     ip -6 route add 2001:db8:98::/64 dev wan1 proto kernel";

#[test]
fn routes_that_a_network_hands_out_do_not_lead_past_the_tunnel_unless_they_are_excluded() {
    let Some(lab) = lab() else { return };
    // A mask as wide as half the Internet.
    lab.host.sh("ip link add wide type veth peer name far3
         ip link set far3 up; ip link set wide up; ip addr add 200.0.0.9/1 dev wide");
    lab.host.sh(HANDED_OUT);
    let leading_past = [
        "198.51.100.1",
        "198.51.101.9",
        "198.51.102.9",
        "203.0.113.9",
        "20.1.2.3",
        "210.1.2.3",
        "150.1.1.1",
        "2001:db8:99::1",
        "2001:db8:98::1",
        "2001:db8:97::1",
    ];
    for question in leading_past {
        assert_ne!(way(&lab.host, question), "rope0", "{question}: the network's routes hold");
    }
    let warnings = lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2", "fd77::2"]).await;
        let outcome = network.apply(&desired).await.unwrap();
        assert_eq!(outcome.problems, []);
        assert!(!network.apply(&desired).await.unwrap().changed);
        outcome.warnings
    });
    for question in leading_past {
        assert_eq!(way(&lab.host, question), "rope0", "{question}");
    }
    // What is near stays near.
    for (question, expected) in [
        ("10.1.0.1", "wan1"),
        ("10.1.0.77", "wan1"),
        ("192.168.7.9", "lan0"),
        ("2001:db8:1::1", "wan1"),
        ("fe80::1 oif wan1", "wan1"),
        ("fd07::9", "lan0"),
        // Who names a link leaves by it.
        ("198.51.100.1 from 10.2.0.2", "wan2"),
    ] {
        assert_eq!(way(&lab.host, question), expected, "{question}");
    }
    assert_eq!(warnings.len(), 11, "{warnings:#?}");
    for (part, exclude) in [
        ("0.0.0.0/1 by 10.1.0.1 on wan1", "DHCP"),
        ("2000::/4", "a router advertisement"),
        ("128.0.0.0/1 on wide", "no network is as wide"),
        ("198.51.101.9/32 by", "public addresses"),
    ] {
        let told = warnings.iter().any(|one| one.contains(part) && one.contains(exclude));
        assert!(told, "{part} in {warnings:#?}");
    }

    let warnings = lab.host.block_on(async || {
        let mut network = open().await;
        let mut desired = wanted(&network, &["10.77.0.2", "fd77::2"]).await;
        desired.excluded = vec!["198.51.100.0/24".parse().unwrap()];
        network.apply(&desired).await.unwrap().warnings
    });
    assert_eq!(way(&lab.host, "198.51.100.1"), "wan1");
    assert_eq!(way(&lab.host, "150.1.1.1"), "rope0");
    assert_eq!(warnings.len(), 10, "{warnings:#?}");
}

#[test]
fn routes_that_the_user_made_stay_as_they_are_and_are_copied_whole() {
    let Some(lab) = lab() else { return };
    lab.host.sh("ip addr add 192.168.8.1/24 dev lan0
         ip tuntap add vpn0 mode tun; ip link set vpn0 up; ip addr add 10.9.0.2/24 dev vpn0
         ip route add 0.0.0.0/1 dev vpn0 metric 5; ip route add 198.51.100.0/24 via 192.168.7.9 proto static mtu 1300
         ip route add 10.50.0.0/16 via 192.168.7.9
         ip route add 172.20.0.0/16 nexthop via 192.168.7.9 nexthop via 192.168.8.9
         ip route add unreachable 198.18.0.0/15; ip route add prohibit 198.20.0.0/16
         ip nexthop add id 7 via 192.168.7.9 dev lan0 && ip route add 172.22.0.0/16 nhid 7
         ip -6 route add fd50::/48 nexthop via fd07::9 nexthop via fd07::8
         ip -6 route add 2001:db8:50::/48 via fd07::9 proto static");
    let main = "ip route show table main; ip -6 route show table main";
    let before = lab.host.read(main);
    applied(&lab.host, &["10.77.0.2", "fd77::2"]);
    assert_eq!(lab.host.read(&format!("{main} | grep -v rope0")), before);
    for (question, expected) in [
        ("20.1.1.1", "vpn0"),
        ("150.1.1.1", "rope0"),
        ("198.51.100.1", "lan0"),
        ("10.50.0.1", "lan0"),
        ("172.20.0.1", "lan0"),
        ("172.22.0.1", "lan0"),
        ("fd50::1", "lan0"),
        ("2001:db8:50::1", "lan0"),
        ("198.18.0.1", UNREACHABLE),
        ("198.20.0.1", "RTNETLINK answers: Permission denied"),
    ] {
        assert_eq!(way(&lab.host, question), expected, "{question}");
    }
    for part in ["from 192.168.8.1", "dev lan0"] {
        let answer = lab.host.read("ip route get 192.168.8.9").replace("src", "from");
        assert!(answer.contains(part), "{answer}");
    }
    let copies = lab.host.read("ip route show table 7765");
    for part in ["mtu 1300", "nexthop via 192.168.8.9 dev lan0", "nhid 7"] {
        assert!(copies.contains(part), "{part} in {copies}");
    }
    // A route that goes takes its copy with it; a crash, and the next start, all.
    lab.host.block_on(async || {
        let mut network = open().await;
        let desired = wanted(&network, &["10.77.0.2", "fd77::2"]).await;
        network.apply(&desired).await.unwrap();
        let script = "ip route del 10.50.0.0/16";
        tokio::process::Command::new("sh").args(["-ec", script]).status().await.unwrap();
        assert!(network.apply(&desired).await.unwrap().changed);
        assert!(!network.apply(&desired).await.unwrap().changed);
    });
    assert_eq!(way(&lab.host, "10.50.0.1"), "vpn0");
    lab.host.block_on(async || drop(open().await));
    assert_eq!(
        lab.host.read("ip route show table all proto 114; ip -6 route show table all proto 114"),
        ""
    );
}

/// In the place of the TUN a line whose other end, `far0`, is in the proxy's hands; beside the LAN and the links, all with
/// the way to the inner addresses known.
fn lab_with_open_tunnel() -> Option<Lab> {
    let lab = lab()?;
    let tid = lab.proxy.tid();
    lab.host.sh(&format!(
        "ip link del rope0; ip link add rope0 type veth peer name far0 netns {tid}; ip link set rope0 up
         ip link del lan0; ip link add lan0 type veth peer name far3 netns {tid}
         ip addr add 192.168.7.1/24 dev lan0; ip addr add fd07::1/64 dev lan0 nodad; ip link set lan0 up
         ip addr add 10.77.0.2/32 dev rope0; ip addr add fd77::2/128 dev rope0 nodad"
    ));
    lab.proxy.sh("ip link set far0 up; ip link set far3 up; ip addr add 192.168.7.9/24 dev far3
         ip addr add fd07::9/64 dev far3 nodad; ip addr add 10.99.0.1/24 dev far0; ip addr add fd99::1/64 dev far0 nodad");
    let mac = lab.host.read("ip -o link show rope0 | sed 's/.*ether //; s/ .*//'");
    // The other end asks for no hardware address, as none is asked for in a tunnel.
    lab.proxy.sh(&format!(
        "for to in 10.77.0.2 10.77.0.3 192.168.7.77 10.2.0.77; do ip neigh add $to lladdr {mac} dev far0; done
         for to in fd77::2 fd77::3 fd07::77; do ip -6 neigh add $to lladdr {mac} dev far0; done",
        mac = mac.trim()
    ));
    // Before everything that filters nothing, and behind all that does: what comes to this machine, and what it leads on.
    lab.host.sh("nft 'table inet watch {
           chain input {
             type filter hook input priority 300
             iifname \"lo\" return
             ip daddr 10.77.0.2 counter
             ip6 daddr fd77::2 counter
           }
           chain forward {
             type filter hook forward priority 300
             iifname \"rope0\" counter
           }
         }'");
    Some(lab)
}

/// Sends two datagrams to both inner addresses by this interface, and opens TCP connections there.
fn knock(lab: &Lab, by: &str, v4: &str, v6: &str) {
    lab.proxy.sh(&format!(
        "ip route replace 10.77.0.2 dev {by} {v4}; ip -6 route replace fd77::2 dev {by} {v6}"
    ));
    lab.proxy.run(|| {
        for to in ["10.77.0.2:9", "[fd77::2]:9"] {
            send_to(to, 2);
            let to: SocketAddr = to.parse().unwrap();
            let _ = TcpStream::connect_timeout(&to, Duration::from_millis(300));
        }
    });
}

/// Sends so many datagrams, each by a socket of its own: an answer from a closed port would end the next.
fn send_to(to: &str, datagrams: usize) {
    let to: SocketAddr = to.parse().unwrap();
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    for _ in 0..datagrams {
        let socket = UdpSocket::bind(any).unwrap();
        socket.send_to(b"knock", to).unwrap();
    }
}

/// Packets that came as far as the watch: to the inner addresses, and from the tunnel to others.
fn seen(lab: &Lab) -> [u64; 2] {
    let list = lab.host.read("nft -j list table inet watch");
    let json: Value = serde_json::from_str(&list).unwrap();
    let count = |chain: &str| -> u64 {
        let rules = json["nftables"].as_array().unwrap().iter().map(|one| &one["rule"]);
        let rules = rules.filter(|rule| rule["chain"] == chain);
        let words = rules.flat_map(|rule| rule["expr"].as_array().unwrap().clone());
        words.filter_map(|word| word["counter"]["packets"].as_u64()).sum()
    };
    [count("input"), count("forward")]
}

#[test]
fn nothing_reaches_an_inner_address_but_out_of_the_tunnel() {
    let Some(lab) = lab_with_open_tunnel() else { return };
    let neighbours = [
        ("far1", "via 10.1.0.2 onlink", "via 2001:db8:1::2 onlink"),
        ("far2", "via 10.2.0.2 onlink", "via 2001:db8:2::2 onlink"),
        ("far3", "via 192.168.7.1 onlink", "via fd07::1 onlink"),
    ];
    let filter = |value: u8| {
        lab.host.sh(&format!(
            "for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo {value} > $f; done"
        ));
    };
    filter(0);
    for (by, v4, v6) in neighbours {
        let before = seen(&lab)[0];
        knock(&lab, by, v4, v6);
        assert!(seen(&lab)[0] >= before + 6, "{by}: the watch sees nothing");
    }
    applied(&lab.host, &["10.77.0.2", "fd77::2"]);
    for value in [0, 2] {
        filter(value);
        for (by, v4, v6) in neighbours {
            let before = seen(&lab)[0];
            knock(&lab, by, v4, v6);
            assert_eq!(seen(&lab)[0], before, "{by} with rp_filter {value}");
        }
    }
    // Out of the tunnel, and from this machine itself, all is as ever.
    let before = seen(&lab)[0];
    knock(&lab, "far0", "", "");
    assert!(seen(&lab)[0] >= before + 6, "out of the tunnel");
    lab.host.run(|| {
        for to in ["10.77.0.2:9", "[fd77::2]:9"] {
            let error = TcpStream::connect(to).unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused, "{to}");
        }
    });
}

#[test]
fn out_of_the_tunnel_comes_only_what_is_for_this_machine_whoever_switched_forwarding_on() {
    let Some(lab) = lab_with_open_tunnel() else { return };
    lab.host.sh("echo 1 > /proc/sys/net/ipv4/ip_forward
         ip neigh add 192.168.7.77 lladdr 02:00:00:00:00:77 dev lan0; ip neigh add 10.2.0.77 lladdr 02:00:00:00:00:77 dev wan2");
    let inject = |lab: &Lab| {
        lab.proxy.sh("for to in 192.168.7.77 10.2.0.77; do ip route replace $to dev far0; done");
        lab.proxy.run(|| {
            send_to("192.168.7.77:9", 3);
            send_to("10.2.0.77:9", 3);
        });
    };
    inject(&lab);
    let before = seen(&lab)[1];
    assert_eq!(before, 6, "the watch sees nothing");
    applied(&lab.host, &["10.77.0.2", "fd77::2"]);
    inject(&lab);
    assert_eq!(seen(&lab)[1], before, "forwarded from the tunnel");
}

/// Whether a datagram is answered; a few are sent, as the first ones may fall to a fresh device.
fn is_answered(from: &Namespace, to: &'static str) -> bool {
    from.run(move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        (0..4).any(|_| {
            let _ = socket.send_to(b"knock", to);
            socket.recv(&mut [0; 64]).is_ok()
        })
    })
}

/// Answers datagrams at this address until the test is over.
fn echo(at: &str) {
    let socket = UdpSocket::bind(at).unwrap();
    std::thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
            let _ = socket.send_to(b"who is there", from);
        }
    });
}

#[test]
fn what_begins_out_of_the_tunnel_comes_to_the_ports_of_inbound_and_answers_come_in_any_case() {
    let Some(lab) = lab_with_open_tunnel() else { return };
    lab.proxy.sh("ip route replace 10.77.0.2 dev far0");
    lab.proxy.run(|| echo("10.99.0.1:7"));
    lab.host.run(|| {
        echo("10.77.0.2:53");
        for port in [80, 443] {
            let listener = TcpListener::bind(("10.77.0.2", port)).unwrap();
            std::thread::spawn(move || listener.incoming().for_each(drop));
        }
    });
    let connects = |port: u16| {
        lab.proxy.run(move || {
            let to = SocketAddr::from(([10, 77, 0, 2], port));
            TcpStream::connect_timeout(&to, Duration::from_millis(500)).is_ok()
        })
    };
    let ports = |first, last| vec![PortRange::new(first, last).unwrap()];
    for (inbound, expected) in [
        (Inbound::Proxy, [true, true, true]),
        (Inbound::Nothing, [false, false, false]),
        (Inbound::Ports { tcp: ports(443, 443), udp: vec![] }, [false, true, false]),
        (Inbound::Ports { tcp: vec![], udp: ports(50, 60) }, [false, false, true]),
    ] {
        let what = inbound.to_string();
        lab.host.block_on(async move || {
            let mut network = open().await;
            let inner = ["10.77.0.2", "fd77::2"];
            let desired = Desired { inbound, ..wanted(&network, &inner).await };
            assert_eq!(network.apply(&desired).await.unwrap().problems, []);
        });
        let reached = [connects(80), connects(443), is_answered(&lab.proxy, "10.77.0.2:53")];
        assert_eq!(reached, expected, "{what}");
        assert!(is_answered(&lab.host, "10.99.0.1:7"), "{what}: an answer");
    }
}

#[test]
fn the_far_end_of_the_tunnel_is_no_router() {
    let Some(lab) = lab_with_open_tunnel() else { return };
    let learned = |lab: &Lab| lab.host.read("ip -6 route show dev rope0 proto ra").lines().count();
    lab.proxy.run(advertise);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(learned(&lab), 1, "the advertisement is none");
    lab.host.sh("ip -6 route flush dev rope0 proto ra");
    applied(&lab.host, &["10.77.0.2", "fd77::2"]);
    lab.proxy.run(advertise);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(learned(&lab), 0);
}

/// Sends a router advertisement (RFC 4861 §4.2) by `far0` to all of its nodes, with a lifetime of an hour.
fn advertise() {
    let raw = socket2::Socket::new(
        socket2::Domain::IPV6,
        socket2::Type::RAW,
        Some(socket2::Protocol::ICMPV6),
    )
    .unwrap();
    raw.bind_device(Some(b"far0")).unwrap();
    raw.set_multicast_hops_v6(255).unwrap();
    let mut message = [0; 16];
    message[0] = 134;
    message[6..8].copy_from_slice(&3600_u16.to_be_bytes());
    let to: SocketAddr = "[ff02::1]:0".parse().unwrap();
    raw.send_to(&message, &to.into()).unwrap();
}
