//! Routes that a network hands out, and those that the user made.

use ropewalk_client::host::HostNetwork;

use crate::{UNREACHABLE, applied, lab, open, wanted, way};

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
