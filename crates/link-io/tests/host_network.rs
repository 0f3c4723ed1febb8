//! The kernel really does what the host-network modules say: every test in a network namespace of its own.

#![cfg(target_os = "linux")]

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_link_io::netlink::{
    AddressScope, Changes, Events, Family, Kind, Lane, Netlink, NetlinkError, Root, Route, Rule,
    RuleAction, Target,
};
use ropewalk_link_io::nft::{Count, Element, Table};
use ropewalk_settings::Bitrate;

/// Another number than the product's, so that a test cannot pass by the product's constants alone.
const PROTOCOL: u8 = 233;
const TABLE: u32 = 7123;

#[test]
fn interfaces_are_listed_with_their_addresses_and_state() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.sh(
        "ip link add wan0 type veth peer name far0; ip link add dum0 type veth peer name far1
         ip addr add 192.0.2.1/24 dev wan0; ip addr add 2001:db8::1/64 dev wan0 nodad
         ip link set wan0 up",
    );
    let list = namespace.block_on(async || Netlink::open().unwrap().interfaces().await.unwrap());
    let named = |name: &str| list.iter().find(|found| found.name == name).unwrap();
    let wan = named("wan0");
    assert!(wan.up && !wan.carrier, "its peer is down: {wan:?}");
    assert_eq!(wan.kind, Kind::Virtual("veth".into()));
    assert_eq!(wan.mtu, 1500);
    let nets: Vec<String> = wan.addresses.iter().map(|address| address.net.to_string()).collect();
    assert_eq!(nets, ["192.0.2.1/24", "2001:db8::1/64"]);
    assert!(wan.addresses.iter().all(|address| address.scope == AddressScope::Global));
    assert!(named("lo").loopback);
    assert!(!named("dum0").up);
}

#[test]
fn an_address_under_duplicate_detection_is_tentative() {
    let Some(namespace) = Namespace::open() else { return };
    namespace
        .sh("ip link add wan0 type veth peer name far0; ip link set far0 up; ip link set wan0 up
         ip addr add 2001:db8::1/64 dev wan0");
    let wan =
        namespace.block_on(async || Netlink::open().unwrap().interface("wan0").await.unwrap());
    let address =
        wan.addresses.iter().find(|address| address.scope == AddressScope::Global).unwrap();
    assert!(address.tentative, "{address:?}");
}

#[test]
fn routes_read_back_as_they_were_written_and_twice_is_once() {
    let Some(namespace) = Namespace::open() else { return };
    namespace
        .sh("ip link add dum0 type veth peer name far0; ip link set far0 up; ip link set dum0 up; ip addr add 192.0.2.1/24 dev dum0");
    namespace.block_on(async || {
        let netlink = Netlink::open().unwrap();
        let index = netlink.interface("dum0").await.unwrap().index;
        let by = |gateway: Option<&str>| Target::Interface {
            index,
            gateway: gateway.map(|address| address.parse().unwrap()),
            onlink: gateway.is_some(),
        };
        let route = |destination: &str, target, mtu| Route {
            destination: destination.parse().unwrap(),
            table: TABLE,
            metric: 10,
            target,
            protocol: PROTOCOL,
            mtu,
        };
        let mut wanted = vec![
            route("0.0.0.0/0", by(Some("192.0.2.254")), None),
            route("198.51.100.0/24", by(None), Some(1300)),
            route("203.0.113.0/24", by(Some("fe80::99")), None),
            route("10.0.0.0/8", Target::Unreachable, None),
            route("10.1.0.0/16", Target::Blackhole, None),
            route("::/0", by(Some("fe80::1")), None),
            route("2001:db8:1::/48", by(None), Some(1400)),
            route("fd00::/8", Target::Unreachable, None),
            route("fd01::/16", Target::Blackhole, None),
        ];
        wanted.sort();
        for _ in 0..2 {
            for route in &wanted {
                netlink.add_route(route).await.unwrap();
            }
        }
        assert_eq!(netlink.routes_of(PROTOCOL).await.unwrap(), wanted);
        for _ in 0..2 {
            for route in &wanted {
                netlink.remove_route(route).await.unwrap();
            }
        }
        assert_eq!(netlink.routes_of(PROTOCOL).await.unwrap(), []);
    });
}

#[test]
fn replacing_a_route_changes_its_mtu_in_place() {
    let Some(namespace) = Namespace::open() else { return };
    namespace
        .sh("ip link add dum0 type veth peer name far0; ip link set far0 up; ip link set dum0 up");
    let found = namespace.block_on(async || {
        let netlink = Netlink::open().unwrap();
        let index = netlink.interface("dum0").await.unwrap().index;
        for destination in ["10.77.0.9/32", "fd77::9/128"] {
            for mtu in [1400, 1300] {
                let route = Route {
                    destination: destination.parse().unwrap(),
                    table: 254,
                    metric: 50,
                    target: Target::Interface { index, gateway: None, onlink: false },
                    protocol: PROTOCOL,
                    mtu: Some(mtu),
                };
                netlink.replace_route(&route).await.unwrap();
            }
        }
        netlink.routes_of(PROTOCOL).await.unwrap()
    });
    assert_eq!(found.iter().map(|route| route.mtu).collect::<Vec<_>>(), [Some(1300), Some(1300)]);
}

#[test]
fn rules_read_back_as_they_were_written_and_twice_is_once() {
    let Some(namespace) = Namespace::open() else { return };
    let before = namespace.read("ip rule; ip -6 rule");
    namespace.block_on(async || {
        let netlink = Netlink::open().unwrap();
        let net = |text: &str| Some(text.parse::<IpNet>().unwrap());
        let lookup = |suppress| RuleAction::Lookup { table: TABLE, suppress };
        let plain = Rule {
            family: Family::V4,
            priority: 9000,
            mark: None,
            from: None,
            to: None,
            oif: None,
            action: lookup(None),
            protocol: PROTOCOL,
        };
        let mut wanted = vec![
            plain.clone(),
            Rule { mark: Some((0x5257_0001, u32::MAX)), ..plain.clone() },
            Rule {
                mark: Some((0x5257_0000, 0xffff_0000)),
                action: RuleAction::Unreachable,
                ..plain.clone()
            },
            Rule { from: net("192.0.2.1/32"), ..plain.clone() },
            Rule {
                to: net("10.0.0.0/8"),
                action: RuleAction::Lookup { table: 254, suppress: Some(8) },
                ..plain.clone()
            },
            Rule { oif: Some("tun9".into()), ..plain.clone() },
            Rule { family: Family::V6, priority: 9001, action: lookup(Some(0)), ..plain.clone() },
            Rule { family: Family::V6, from: net("2001:db8::1/128"), ..plain.clone() },
        ];
        wanted.sort();
        for _ in 0..2 {
            for rule in &wanted {
                netlink.add_rule(rule).await.unwrap();
            }
        }
        assert_eq!(netlink.rules_of(PROTOCOL).await.unwrap(), wanted);
        for _ in 0..2 {
            for rule in &wanted {
                netlink.remove_rule(rule).await.unwrap();
            }
        }
    });
    assert_eq!(namespace.read("ip rule; ip -6 rule"), before);
}

#[test]
fn gateways_are_found_in_every_table_the_main_one_first() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.sh(
        "for n in 1 2 3; do ip link add dum$n type veth peer name far$n; ip link set far$n up; ip link set dum$n up; ip addr add 192.0.$n.1/24 dev dum$n; done
         ip route add default via 192.0.3.254 table 77
         ip route add default via 192.0.2.254 metric 200
         ip route add default dev dum1 metric 100
         ip route add 0.0.0.0/0 metric 300 nexthop via 192.0.1.9 dev dum1 nexthop via 192.0.2.9 dev dum2
         ip route add default via 192.0.1.254 proto 233 metric 1
         ip route add unreachable default metric 1000
         ip -6 route add default via fe80::1 dev dum2 metric 100",
    );
    let found =
        namespace.block_on(async || Netlink::open().unwrap().gateways(PROTOCOL).await.unwrap());
    let v4: Vec<_> = found
        .iter()
        .filter(|gateway| gateway.family == Family::V4)
        .map(|gateway| (gateway.table, gateway.metric, gateway.via))
        .collect();
    let via = |text: &str| Some(text.parse::<IpAddr>().unwrap());
    let expected = [
        (254, 100, None),
        (254, 200, via("192.0.2.254")),
        (254, 300, via("192.0.1.9")),
        (254, 300, via("192.0.2.9")),
        (77, 0, via("192.0.3.254")),
    ];
    assert_eq!(v4, expected);
    assert!(
        found.iter().any(|gateway| gateway.family == Family::V6 && gateway.via == via("fe80::1"))
    );
}

#[test]
fn an_interface_gets_its_address_mtu_and_is_switched_on() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.sh("ip link add dum0 type veth peer name far0; ip link set far0 up");
    namespace.block_on(async || {
        let netlink = Netlink::open().unwrap();
        let index = netlink.interface("dum0").await.unwrap().index;
        netlink.set_mtu(index, 1380).await.unwrap();
        netlink.set_up(index).await.unwrap();
        for net in ["10.77.0.2/16", "fd77::2/64"] {
            let net: IpNet = net.parse().unwrap();
            netlink.add_address(index, net).await.unwrap();
            netlink.add_address(index, net).await.unwrap();
        }
        let found = netlink.interface("dum0").await.unwrap();
        assert!(found.up);
        assert_eq!(found.mtu, 1380);
        let own = found.addresses.iter().filter(|address| address.scope == AddressScope::Global);
        let own: Vec<_> = own.map(|address| (address.net.to_string(), address.tentative)).collect();
        assert_eq!(own, [("10.77.0.2/16".into(), false), ("fd77::2/64".into(), false)]);
        for _ in 0..2 {
            netlink.remove_address(index, "10.77.0.2/16".parse().unwrap()).await.unwrap();
        }
    });
    let routes = namespace.read("ip route; ip -6 route show dev dum0");
    assert!(!routes.contains("10.77") && !routes.contains("fd77::/64"), "{routes}");
}

#[test]
fn a_change_of_each_kind_is_heard() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.block_on(async || {
        let shell = async |script: &'static str| {
            let done = tokio::process::Command::new("sh").args(["-ec", script]).status().await;
            assert!(done.unwrap().success(), "{script}");
        };
        // On a busy machine one command's news may come in two parts, so each step waits for what it is about.
        let settle = Duration::from_millis(50);
        let until = async |events: &mut Events, has_come: fn(&Changes) -> bool| {
            let heard = async { while !has_come(&events.changed(settle).await) {} };
            tokio::time::timeout(Duration::from_secs(30), heard).await.expect("the change is told");
        };
        // Duplicate detection of IPv6 would tell of routes by itself later.
        shell("sysctl -qw net.ipv6.conf.default.disable_ipv6=1").await;
        let mut events = Events::open(Some(PROTOCOL)).unwrap();
        shell("ip link add dum0 type veth peer name far0").await;
        until(&mut events, |changes| changes.links).await;
        shell("ip link set far0 up; ip link set dum0 up; ip addr add 192.0.2.1/24 dev dum0").await;
        until(&mut events, |changes| changes.addresses).await;
        let quiet = 10 * settle;
        while tokio::time::timeout(quiet, events.changed(settle)).await.is_ok() {}
        shell("ip route add 198.51.100.0/24 dev dum0").await;
        until(&mut events, |changes| changes.routes).await;
        shell("ip route add 198.51.101.0/24 dev dum0 proto 233").await;
        shell("nft add table inet somebody").await;
        until(&mut events, |changes| {
            assert!(!changes.routes, "our own route: {changes:?}");
            changes.firewall
        })
        .await;
        shell("sysctl -q net.ipv4.ip_forward=1; ip route del 198.51.101.0/24").await;
        let (mut settings, mut own_routes) = (false, false);
        while !(settings && own_routes) {
            let changes = events.changed(settle).await;
            (settings, own_routes) =
                (settings || changes.settings, own_routes || changes.own_routes);
        }
        assert!(
            events.patience() >= Duration::from_secs(60),
            "the kernel tells of all that matters"
        );
        shell("ip rule add priority 77 table 99").await;
        until(&mut events, |changes| changes.rules).await;
    });
}

#[test]
fn whoever_does_other_things_between_hears_of_a_change_as_soon() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.block_on(async || {
        let mut events = Events::open(None).unwrap();
        let done = tokio::process::Command::new("sh")
            .args(["-ec", "ip link add dum0 type veth peer name far0"])
            .status()
            .await;
        assert!(done.unwrap().success());
        let settle = Duration::from_millis(300);
        let heard = async {
            loop {
                let other = Duration::from_millis(50);
                if let Ok(changes) = tokio::time::timeout(other, events.changed(settle)).await {
                    return changes;
                }
            }
        };
        let changes = tokio::time::timeout(Duration::from_secs(10), heard).await;
        assert!(changes.expect("the change is told").links);
    });
}

#[test]
fn without_the_capability_the_error_names_it() {
    let Some(namespace) = Namespace::open() else { return };
    let error = namespace.block_on(async || {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets).unwrap();
        let netlink = Netlink::open().unwrap();
        let route = Route {
            destination: "10.0.0.0/8".parse().unwrap(),
            table: TABLE,
            metric: 1,
            target: Target::Unreachable,
            protocol: PROTOCOL,
            mtu: None,
        };
        netlink.add_route(&route).await.unwrap_err()
    });
    assert!(matches!(error, NetlinkError::Permission { .. }), "{error:?}");
    assert!(error.to_string().contains("CAP_NET_ADMIN"), "{error}");
}

const BODY: &str = r#"
    set remembered { type ifname; elements = { "wan1", "wan.2" } }
    set empty { type ifname; }
    chain output {
        type filter hook output priority filter; policy accept;
        oifname "nowhere" counter drop
    }"#;

#[test]
fn the_table_is_replaced_as_a_whole_and_left_alone_when_it_stands() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.sh("nft add table inet others; nft add chain inet others forward");
    let others = namespace.read("nft list ruleset");
    namespace.block_on(async || {
        let mut table = Table::new("ropewalk_test");
        assert_eq!(table.listing().await.unwrap(), None);
        assert!(table.apply(BODY).await.unwrap());
        assert!(!table.apply(BODY).await.unwrap(), "the second time nothing is done");
        let mut elements = table.set_elements("remembered").await.unwrap();
        elements.sort();
        assert_eq!(elements, ["wan.2", "wan1"]);
        assert!(table.set_elements("empty").await.unwrap().is_empty());
        assert!(table.set_elements("no_such_set").await.unwrap().is_empty());

        assert!(table.apply("chain only { }").await.unwrap());
        let listing = table.listing().await.unwrap().unwrap();
        assert!(listing.contains("only") && !listing.contains("output"), "{listing}");

        let error = table.apply("chain broken { gibberish }").await.unwrap_err().to_string();
        assert!(error.contains("nft says") && error.contains("gibberish"), "{error}");
        assert_eq!(table.listing().await.unwrap().unwrap(), listing, "the old table stands");

        assert!(table.remove().await.unwrap());
        assert!(!table.remove().await.unwrap());
    });
    assert_eq!(namespace.read("nft list ruleset"), others);
}

#[test]
fn a_table_in_which_packets_are_counted_is_left_alone() {
    let Some(namespace) = Namespace::open() else { return };
    let counting = "set seen { type ipv4_addr; size 10; flags dynamic; }
        chain output { type filter hook output priority filter; policy accept;
            add @seen { ip daddr ct count over 5 } counter drop
        }";
    namespace.block_on(async || {
        let mut table = Table::new("ropewalk_test");
        assert!(table.apply(counting).await.unwrap());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        for host in 1..4 {
            socket.send_to(b"hello", format!("127.0.0.{host}:9")).unwrap();
        }
        let seen = tokio::process::Command::new("nft").args(["list", "ruleset"]).output().await;
        let seen = String::from_utf8(seen.unwrap().stdout).unwrap();
        assert!(seen.contains("127.0.0.3"), "{seen}");
        assert!(!table.apply(counting).await.unwrap(), "the second time nothing is done");
    });
}

#[test]
fn a_table_that_somebody_flushed_is_put_back() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.block_on(async || {
        let mut table = Table::new("ropewalk_test");
        table.apply(BODY).await.unwrap();
        let flushed = tokio::process::Command::new("nft").args(["flush", "ruleset"]).status().await;
        assert!(flushed.unwrap().success());
        assert!(table.apply(BODY).await.unwrap());
        assert!(table.listing().await.unwrap().is_some());
    });
}

#[test]
fn another_table_that_drops_forwarded_packets_is_found() {
    let Some(namespace) = Namespace::open() else { return };
    namespace.sh(
        "nft add table ip filter
         nft 'add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'
         nft add table inet mild
         nft 'add chain inet mild forward { type filter hook forward priority 0; policy accept; }'",
    );
    let found = namespace
        .block_on(async || Table::new("ropewalk_test").foreign_forward_drops().await.unwrap());
    assert_eq!(found, ["ip filter FORWARD"]);
}

#[test]
fn what_elements_counted_is_read_and_goes_on_in_a_table_that_takes_the_place() {
    let Some(namespace) = Namespace::open() else { return };
    let counting = "set seen { type ipv4_addr; size 10; flags dynamic,timeout; timeout 1d; }
        chain output { type filter hook output priority filter; policy accept;
            ip daddr 127.0.0.2 update @seen { ip daddr counter }
        }";
    namespace.block_on(async move || {
        let mut table = Table::new("ropewalk_test");
        assert!(table.sets().await.unwrap().is_empty());
        table.replace(counting, "").await.unwrap();
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let send = || socket.send_to(b"hello", "127.0.0.2:9").unwrap();
        send();
        let element = |packets: u64| Element {
            parts: vec!["127.0.0.2".to_owned()],
            // The header of IP, that of UDP, and what is said.
            count: Some(Count { packets, bytes: packets * (20 + 8 + 5) }),
        };
        assert_eq!(table.sets().await.unwrap()["seen"], [element(1)]);
        let kept = "add element inet ropewalk_test seen { 127.0.0.2 counter packets 1 bytes 33 }\n";
        table.replace(counting, kept).await.unwrap();
        send();
        assert_eq!(table.sets().await.unwrap()["seen"], [element(2)]);
    });
}

#[test]
fn lanes_come_where_nobody_else_has_a_queue_and_go_without_a_trace() {
    let Some(namespace) = Namespace::open() else { return };
    namespace
        .sh("ip link add lan0 type veth peer name far0; ip link set far0 up; ip link set lan0 up
         ip link add lan1 type veth peer name far1; tc qdisc add dev lan1 root handle 1: htb");
    let before = namespace.read("tc qdisc show");
    let index = |name: &'static str| async move {
        Netlink::open().unwrap().interface(name).await.unwrap().index
    };
    namespace.block_on(move || async move {
        let netlink = Netlink::open().unwrap();
        let (lan0, lan1) = (index("lan0").await, index("lan1").await);
        assert_eq!(netlink.roots().await.unwrap()[&lan1], Root::Foreign("htb".to_owned()));
        let lane = |number, mbit| Lane { number, rate: Bitrate::from_mbps(mbit) };
        // Twice: others take the place.
        for lanes in [&[lane(1, 5)][..], &[lane(1, 8), lane(2, 1000)]] {
            netlink.set_lanes(lan0, lanes).await.unwrap();
            assert_eq!(netlink.roots().await.unwrap()[&lan0], Root::Lanes);
        }
        // What is somebody else's stays.
        netlink.remove_lanes(lan1).await.unwrap();
    });
    let classes = namespace.read("tc class show dev lan0");
    assert!(classes.contains("htb 7257:1 root") && classes.contains("rate 8Mbit"), "{classes}");
    assert!(classes.contains("htb 7257:2 root") && classes.contains("rate 1Gbit"), "{classes}");
    let queues = namespace.read("tc qdisc show dev lan0");
    assert!(queues.contains("bfifo") && queues.contains("limit 2000000b"), "{queues}");
    namespace.block_on(move || async move {
        let netlink = Netlink::open().unwrap();
        for _ in 0..2 {
            netlink.remove_lanes(index("lan0").await).await.unwrap();
        }
    });
    assert_eq!(namespace.read("tc qdisc show"), before);
}
