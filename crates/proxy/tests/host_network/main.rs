//! The proxy's changes to the host's network, on the real kernel: every test in network namespaces of its own.
//!
//! Three namespaces in a row: the clients (a pair of virtual Ethernet devices stands for the TUN: the kernel forwards,
//! filters and translates it alike), the proxy, and a server that answers each datagram with the address it saw.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a helper of a test fails the test")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use ipnet::IpNet;
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_link_io::nft::Table;
use ropewalk_proxy::allow::Allowed;
use ropewalk_proxy::forward::Forwards;
use ropewalk_proxy::host::linux::{LinuxNetwork, TABLE};
use ropewalk_proxy::host::switched::SwitchedFile;
use ropewalk_proxy::host::{Desired, HostNetwork, Ipv6};
use ropewalk_proxy::nat::ConnectionTable;
use ropewalk_settings::Text as _;

mod firewall;
mod forward;

struct Lab {
    clients: Namespace,
    proxy: Namespace,
    server: Namespace,
}

fn lab() -> Option<Lab> {
    let lab =
        Lab { clients: Namespace::open()?, proxy: Namespace::open()?, server: Namespace::open()? };
    for namespace in [&lab.clients, &lab.proxy, &lab.server] {
        // Duplicate detection keeps IPv6 silent for two seconds.
        namespace.sh("echo 0 > /proc/sys/net/ipv6/conf/default/accept_dad");
    }
    lab.proxy.sh(&format!(
        "ip link add rope0 type veth peer name c0 netns {}
         ip link add up0 type veth peer name s0 netns {}
         ip addr add 10.9.0.1/24 dev up0; ip addr add 2001:db8:9::1/64 dev up0 nodad; ip link set up0 up
         ip route add default via 10.9.0.2; ip -6 route add default via 2001:db8:9::2",
        lab.clients.tid(),
        lab.server.tid()
    ));
    // Like a TUN: no neighbours to ask for, so both ends have one hardware address, and no addresses of its own.
    let like_a_tun = "address 02:00:00:00:00:77 arp off addrgenmode none";
    lab.proxy.sh(&format!("ip link set rope0 {like_a_tun}"));
    lab.clients.sh(&format!("ip link set c0 {like_a_tun}"));
    // Two clients' addresses and one that is nobody's.
    lab.clients.sh("ip link set c0 up
         for a in 10.77.0.2 10.77.5.2 10.66.0.1; do ip addr add $a/32 dev c0; done
         for a in fd77::2 fd66::1; do ip addr add $a/128 dev c0 nodad; done
         ip route add default via 10.77.0.1 dev c0 onlink; ip -6 route add fd77::1 dev c0
         ip -6 route add default via fd77::1 dev c0");
    // The server knows the way back to inner addresses: what keeps its address is answered too.
    lab.server.sh("ip addr add 10.9.0.2/24 dev s0; ip addr add 10.9.0.3/24 dev s0
         ip addr add 2001:db8:9::2/64 dev s0 nodad; ip link set s0 up
         ip route add 10.64.0.0/10 via 10.9.0.1; ip -6 route add fd00::/8 via 2001:db8:9::1");
    lab.server.run(|| {
        for address in ["10.9.0.2:7", "10.9.0.3:7", "[2001:db8:9::2]:7"] {
            let socket = UdpSocket::bind(address).unwrap();
            std::thread::spawn(move || {
                while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                    let _ = socket.send_to(from.ip().to_string().as_bytes(), from);
                }
            });
        }
    });
    Some(lab)
}

fn nets(list: &[&str]) -> Vec<IpNet> {
    list.iter().map(|net| net.parse().unwrap()).collect()
}

fn desired() -> Desired {
    Desired {
        tun: "rope0".into(),
        mtu: 1440,
        own: vec!["10.77.0.1".parse().unwrap(), "fd77::1".parse().unwrap()],
        inner: nets(&["10.77.0.0/16", "fd77::/64"]),
        behind: Vec::new(),
        ipv6: Ipv6::Nat66,
        no_nat: Vec::new(),
        ports: vec![51900],
        // What stands for the Internet here is connected to the proxy, and private.
        allow: ["10.9.0.0/24", "2001:db8:9::/64"].map(allowed).into(),
        inbound: Vec::new(),
        name_servers: Vec::new(),
        client_connections: 4096,
        client_connection_rate: 500,
        uplinks: Vec::new(),
        client_to_client: false,
        forwards: Forwards::default(),
    }
}

fn allowed(text: &str) -> Allowed {
    Allowed::from_text(text).unwrap()
}

async fn open() -> LinuxNetwork {
    LinuxNetwork::open().await.unwrap()
}

/// Opens, applies, routes the clients, and lets go without an end, as a crash does.
fn applied(lab: &Lab, desired: Desired) {
    lab.proxy.block_on(async move || {
        let mut network = open().await;
        network.apply(&desired).await.unwrap();
        for inner in ["10.77.0.2/32", "10.77.5.2/32", "fd77::2/128"] {
            network.set_client(inner.parse().unwrap(), 1400).await.unwrap();
        }
    });
}

/// The address that the server saw, or the error.
fn seen(lab: &Lab, from: &str, server: &str) -> std::io::Result<String> {
    let (from, server) = (from.to_owned(), server.to_owned());
    lab.clients.run(move || {
        let from: std::net::IpAddr = from.parse().unwrap();
        let server: SocketAddr = server.parse().unwrap();
        let socket = UdpSocket::bind((from, 0))?;
        socket.set_read_timeout(Some(Duration::from_millis(300)))?;
        let mut buffer = [0; 64];
        // A fresh device may drop what is sent before the kernel has seen its carrier: up to a second.
        let mut answer = Err(std::io::ErrorKind::TimedOut.into());
        for _ in 0..5 {
            socket.send_to(b"who am I", server)?;
            answer = socket.recv(&mut buffer);
            if answer.is_ok() {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&buffer[..answer?]).into_owned())
    })
}

/// All that a proxy could change, as the system's own tools print it, after the TUN went with its daemon.
fn state(proxy: &Namespace) -> String {
    proxy.read(
        "ip link del rope0
         ip rule; ip -6 rule; ip route show table all; ip -6 route show table all; nft list ruleset
         grep . /proc/sys/net/ipv4/conf/*/forwarding /proc/sys/net/ipv6/conf/*/forwarding /proc/sys/net/ipv6/conf/*/accept_ra",
    )
}

const SERVER: &str = "10.9.0.2:7";
const SERVER_V6: &str = "[2001:db8:9::2]:7";

#[test]
fn inner_sources_are_rewritten_on_an_uplink_and_what_no_nat_lists_is_not() {
    let Some(lab) = lab() else { return };
    applied(&lab, Desired { no_nat: nets(&["10.9.0.3/32", "10.77.5.0/24"]), ..desired() });
    for (from, server, expected) in [
        ("10.77.0.2", SERVER, "10.9.0.1"),
        ("10.77.0.2", "10.9.0.3:7", "10.77.0.2"),
        ("10.77.5.2", SERVER, "10.77.5.2"),
        ("fd77::2", SERVER_V6, "2001:db8:9::1"),
    ] {
        assert_eq!(seen(&lab, from, server).unwrap(), expected, "{from} to {server}");
    }
}

#[test]
fn a_routed_ipv6_prefix_keeps_its_addresses_and_only_named_uplinks_translate() {
    let Some(lab) = lab() else { return };
    applied(&lab, Desired { ipv6: Ipv6::Routed, uplinks: vec!["eth9".into()], ..desired() });
    assert_eq!(seen(&lab, "fd77::2", SERVER_V6).unwrap(), "fd77::2");
    assert_eq!(seen(&lab, "10.77.0.2", SERVER).unwrap(), "10.77.0.2");
}

#[test]
fn hosts_behind_a_client_keep_their_addresses_while_it_is_there_and_nobody_else_uses_them() {
    let Some(lab) = lab() else { return };
    lab.clients.sh("for a in 2001:db8:a:1::20 2001:db8:b:1::20; do
             ip addr add $a/128 dev c0 nodad
         done");
    // The provider routes here more than is behind the client.
    lab.server.sh("ip -6 route add 2001:db8:a::/47 via 2001:db8:9::1");
    let behind = nets(&["2001:db8:a:1::/64"]);
    let wanted = Desired { inner: [desired().inner, behind.clone()].concat(), behind, ..desired() };
    lab.proxy.block_on(async move || {
        let mut network = open().await;
        network.apply(&wanted).await.unwrap();
        for inner in ["fd77::2/128", "2001:db8:a:1::/64"] {
            network.set_client(inner.parse().unwrap(), 1400).await.unwrap();
        }
    });
    assert_eq!(seen(&lab, "2001:db8:a:1::20", SERVER_V6).unwrap(), "2001:db8:a:1::20");
    assert_eq!(seen(&lab, "fd77::2", SERVER_V6).unwrap(), "2001:db8:9::1");
    assert!(seen(&lab, "2001:db8:b:1::20", SERVER_V6).is_err());
    let route = lab.proxy.read("ip -6 route show 2001:db8:a:1::/64");
    assert!(route.contains("dev rope0") && route.contains("mtu 1400"), "{route}");
    lab.proxy.block_on(async || open().await.stop().await.unwrap());
    let way = lab.proxy.read("ip route get 2001:db8:a:1::20 2>&1 || true");
    assert!(way.contains("No route to host"), "{way}");
}

#[test]
fn a_source_outside_of_the_inner_prefixes_is_dropped() {
    let Some(lab) = lab() else { return };
    // The way back exists: only the rule stands against it.
    lab.proxy.sh(
        "ip link set rope0 up; ip route add 10.66.0.1 dev rope0; ip -6 route add fd66::1 dev rope0",
    );
    applied(&lab, desired());
    assert!(seen(&lab, "10.66.0.1", SERVER).is_err());
    assert!(seen(&lab, "fd66::1", SERVER_V6).is_err());
    let counted = lab.proxy.read("nft list chain inet ropewalk_proxy from_clients");
    assert!(!counted.contains("ip saddr != 10.77.0.0/16 counter packets 0"), "{counted}");
    // Without the rule they would come through.
    lab.proxy.sh("nft flush chain inet ropewalk_proxy from_clients");
    assert!(seen(&lab, "10.66.0.1", SERVER).is_ok());
}

#[test]
fn packets_from_client_to_client_pass_only_if_allowed() {
    for allowed in [false, true] {
        let Some(lab) = lab() else { return };
        applied(&lab, Desired { client_to_client: allowed, ..desired() });
        lab.clients.sh(
            "ip addr del 10.77.5.2/32 dev c0
             nft 'table inet t { chain c { type filter hook prerouting priority raw; ip daddr 10.77.5.2 counter
             }
             }'",
        );
        assert!(seen(&lab, "10.77.0.2", "10.77.5.2:7").is_err(), "nobody answers there");
        let counted = lab.clients.read("nft list table inet t");
        assert_eq!(!counted.contains("packets 0 "), allowed, "{counted}");
    }
}

#[test]
fn a_new_connection_announces_segments_that_fit_the_tunnel_in_both_directions() {
    let Some(lab) = lab() else { return };
    applied(&lab, desired());
    let count = |chain: &str, size: u16| {
        format!(
            "nft 'table inet t {{ chain c {{ type filter hook {chain} priority raw
                tcp flags syn tcp option maxseg size {size} counter
             }}
             }}'"
        )
    };
    // 1400 (the client's route) less 40 bytes of IPv4 and TCP, less 60 of IPv6 and TCP.
    for (listen, to, size) in
        [("10.9.0.2:80", "10.9.0.2:80", 1360), ("[2001:db8:9::2]:80", "[2001:db8:9::2]:80", 1340)]
    {
        lab.server.sh(&count("prerouting", size));
        lab.clients.sh(&count("prerouting", size));
        let listener = lab.server.run(move || TcpListener::bind(listen).unwrap());
        let from: std::net::IpAddr =
            if size == 1360 { "10.77.0.2" } else { "fd77::2" }.parse().unwrap();
        lab.clients.run(move || connect(from, to).unwrap());
        drop(listener);
        for side in [&lab.server, &lab.clients] {
            let counted = side.read("nft list table inet t; nft delete table inet t");
            assert!(counted.contains("packets 1 "), "{to}: {counted}");
        }
    }
}

#[test]
fn a_flow_that_began_while_our_table_was_gone_is_translated_once_the_table_is_back() {
    for (from, server, outer) in
        [("10.77.0.2", SERVER, "10.9.0.1"), ("fd77::2", SERVER_V6, "2001:db8:9::1")]
    {
        let Some(lab) = lab() else { return };
        applied(&lab, desired());
        assert_eq!(seen(&lab, from, server).unwrap(), outer);
        // Another firewall goes on asking for the state of connections, and translates for others.
        lab.proxy.sh("nft 'table inet other {
             chain f { type filter hook forward priority 0; ct state established accept
             }
             chain p { type nat hook postrouting priority srcnat; ip saddr 192.168.0.0/16 masquerade
             }
             }'
             nft delete table inet ropewalk_proxy");
        let (source, to): (std::net::IpAddr, SocketAddr) =
            (from.parse().unwrap(), server.parse().unwrap());
        let socket = lab.clients.run(move || UdpSocket::bind((source, 4000)).unwrap());
        socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let ask = || {
            let mut buffer = [0; 64];
            (0..5).find_map(|_| {
                socket.send_to(b"who am I", to).unwrap();
                let length = socket.recv(&mut buffer).ok()?;
                Some(String::from_utf8_lossy(&buffer[..length]).into_owned())
            })
        };
        assert_eq!(ask().as_deref(), Some(from), "without the table nothing is translated");
        applied(&lab, desired());
        assert_eq!(ask().as_deref(), Some(outer));
    }
}

fn connect(from: std::net::IpAddr, to: &str) -> std::io::Result<TcpStream> {
    let to: SocketAddr = to.parse().unwrap();
    let domain = socket2::Domain::for_address(to);
    let socket = socket2::Socket::new(domain, socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(from, 0).into())?;
    socket.connect_timeout(&to.into(), Duration::from_secs(2))?;
    Ok(socket.into())
}

#[test]
fn a_connection_survives_a_stop_and_a_start() {
    let Some(lab) = lab() else { return };
    applied(&lab, desired());
    let listener = lab.server.run(|| TcpListener::bind("10.9.0.2:80").unwrap());
    let mut client =
        lab.clients.run(|| connect("10.77.0.2".parse().unwrap(), "10.9.0.2:80").unwrap());
    let (mut server, from) = listener.accept().unwrap();
    assert_eq!(from.ip().to_string(), "10.9.0.1");
    lab.proxy.block_on(async || open().await.stop().await.unwrap());
    // The TUN goes with its daemon; here the device only loses its state.
    lab.proxy.sh("ip link set rope0 down");
    server.write_all(b"in between").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    applied(&lab, desired());
    server.write_all(b", after").unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut got = [0; 17];
    client.read_exact(&mut got).unwrap();
    assert_eq!(&got, b"in between, after");
}

#[test]
fn forwarding_is_switched_and_goes_back_only_if_it_was_off() {
    for (before, accept_ra) in [("0", "1"), ("1", "2")] {
        let Some(lab) = lab() else { return };
        lab.proxy.sh(&format!(
            "echo {accept_ra} > /proc/sys/net/ipv6/conf/up0/accept_ra
             echo {before} > /proc/sys/net/ipv4/ip_forward; echo {before} > /proc/sys/net/ipv6/conf/all/forwarding
             ip -6 route replace default via fe80::9 dev up0 proto ra"
        ));
        let settings = "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding \
                        /proc/sys/net/ipv6/conf/up0/accept_ra | xargs";
        applied(&lab, desired());
        assert_eq!(lab.proxy.read(settings).trim(), "1 1 2");
        // The first crashed; the next one takes over and ends well.
        lab.proxy.block_on(async || {
            let mut network = open().await;
            network.apply(&desired()).await.unwrap();
            network.stop().await.unwrap();
        });
        assert_eq!(lab.proxy.read(settings).trim(), format!("{before} {before} {accept_ra}"));
    }
}

#[test]
fn forwarding_goes_back_also_where_the_firewall_was_flushed_between_a_crash_and_the_next_start() {
    for purged in [false, true] {
        let Some(lab) = lab() else { return };
        lab.proxy.sh("echo 0 > /proc/sys/net/ipv4/ip_forward; echo 0 > /proc/sys/net/ipv6/conf/all/forwarding");
        let settings =
            "cat /proc/sys/net/ipv4/ip_forward /proc/sys/net/ipv6/conf/all/forwarding | xargs";
        let folder = tempfile::tempdir().unwrap();
        let (path, file) = (folder.path().to_owned(), folder.path().join("switched.json"));
        lab.proxy.block_on(async move || {
            let kept = SwitchedFile::of(&path);
            let mut network = open().await.remembering(kept).await.unwrap();
            network.apply(&desired()).await.unwrap();
        });
        assert!(file.exists());
        lab.proxy.sh("nft flush ruleset");
        let path = folder.path().to_owned();
        lab.proxy.block_on(async move || {
            let kept = SwitchedFile::of(&path);
            let mut network = open().await.remembering(kept).await.unwrap();
            if purged {
                return network.purge().await.unwrap();
            }
            network.apply(&desired()).await.unwrap();
            network.stop().await.unwrap();
        });
        assert_eq!(lab.proxy.read(settings).trim(), "0 0", "purged: {purged}");
        assert!(!file.exists());
    }
}

#[test]
fn a_table_that_stands_is_believed_rather_than_a_file_that_could_not_be_written() {
    let Some(lab) = lab() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (path, file) = (folder.path().to_owned(), folder.path().join("switched.json"));
    let stale = lab.proxy.block_on(async move || {
        let kept = SwitchedFile::of(&path);
        let mut network = open().await.remembering(kept).await.unwrap();
        network.apply(&desired()).await.unwrap();
        let stale = std::fs::read(path.join("switched.json")).unwrap();
        network.stop().await.unwrap();
        stale
    });
    std::fs::write(&file, stale).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    // Since then it is somebody else's wish.
    lab.proxy.sh("echo 1 > /proc/sys/net/ipv4/ip_forward");
    let path = folder.path().to_owned();
    lab.proxy.block_on(async move || {
        let kept = SwitchedFile::of(&path);
        let mut network = open().await.remembering(kept).await.unwrap();
        network.apply(&desired()).await.unwrap();
        network.stop().await.unwrap();
    });
    assert_eq!(lab.proxy.read("cat /proc/sys/net/ipv4/ip_forward").trim(), "1");
}

#[test]
fn an_uplink_that_lost_its_advertised_route_or_returns_still_learns_routes() {
    let Some(lab) = lab() else { return };
    let advertised = "ip -6 route replace default via fe80::9 dev up0 proto ra";
    lab.proxy.sh(&format!("echo 1 > /proc/sys/net/ipv6/conf/up0/accept_ra; {advertised}"));
    let accept_ra = "/proc/sys/net/ipv6/conf/up0/accept_ra";
    let value = || lab.proxy.read(&format!("cat {accept_ra}")).trim().to_owned();
    applied(&lab, desired());
    assert_eq!(value(), "2");
    lab.proxy.sh("ip -6 route flush proto ra");
    applied(&lab, desired());
    assert_eq!(value(), "2", "after the loss of the route");
    // An interface that is made again under its name begins with 1.
    lab.proxy.sh("ip link del up0");
    applied(&lab, desired());
    lab.proxy.sh("ip link add up0 type veth peer name s0; ip link set up0 up");
    assert_eq!(value(), "1");
    applied(&lab, desired());
    assert_eq!(value(), "2", "after its return");
    lab.proxy.block_on(async || open().await.stop().await.unwrap());
    assert_eq!(value(), "1", "after a stop");
}

#[test]
fn applied_twice_nothing_changes_and_a_purge_leaves_no_trace() {
    let Some(lab) = lab() else { return };
    let before = state(&lab.proxy);
    lab.proxy.sh("ip tuntap add rope0 mode tun");
    lab.proxy.block_on(async || {
        let mut network = open().await;
        let desired = Desired { no_nat: nets(&["192.168.0.0/16"]), ..desired() };
        assert!(network.apply(&desired).await.unwrap().changed);
        network.set_client("10.77.0.2/32".parse().unwrap(), 1400).await.unwrap();
        let second = network.apply(&desired).await.unwrap();
        assert!(!second.changed && second.warnings.is_empty(), "{second:?}");
    });
    // A crash, then a purge by another process.
    lab.proxy.block_on(async || open().await.purge().await.unwrap());
    assert_eq!(state(&lab.proxy), before);
}

#[test]
fn the_guard_stays_after_a_stop_and_after_a_crash_and_client_routes_do_not() {
    for crash in [false, true] {
        let Some(lab) = lab() else { return };
        let way = |address: &str| lab.proxy.read(&format!("ip route get {address} 2>&1 || true"));
        assert!(way("10.77.0.2").contains("via 10.9.0.2"), "before, the default route leads there");
        applied(&lab, desired());
        assert!(way("10.77.0.2").contains("dev rope0"));
        assert!(way("10.77.0.99").contains("No route to host"));
        if !crash {
            lab.proxy.block_on(async || open().await.stop().await.unwrap());
        }
        lab.proxy.sh("ip link del rope0");
        for address in ["10.77.0.2", "10.77.0.99", "fd77::2"] {
            let answer = way(address);
            assert!(answer.contains("No route to host"), "crash {crash}, {address}: {answer}");
        }
        assert!(way("198.51.100.1").contains("via 10.9.0.2"));
    }
}

#[test]
fn a_prefix_that_is_no_longer_configured_loses_its_guard() {
    let Some(lab) = lab() else { return };
    applied(&lab, desired());
    lab.proxy.block_on(async || {
        let mut network = open().await;
        let moved = Desired {
            inner: nets(&["10.78.0.0/16"]),
            ipv6: Ipv6::None,
            own: Vec::new(),
            ..desired()
        };
        network.apply(&moved).await.unwrap();
    });
    let routes = lab.proxy.read("ip route show proto 115; ip -6 route show proto 115");
    assert_eq!(routes.trim(), "unreachable 10.78.0.0/16 metric 4000000000");
}

#[test]
fn a_clients_route_carries_its_mtu_and_follows_it() {
    let Some(lab) = lab() else { return };
    let routes = lab.proxy.block_on(async || {
        let mut network = open().await;
        network.apply(&desired()).await.unwrap();
        let inner = "10.77.0.2/32".parse().unwrap();
        let mut seen = Vec::new();
        for mtu in [1400, 1300] {
            network.set_client(inner, mtu).await.unwrap();
            let output =
                tokio::process::Command::new("ip").args(["route", "show", "10.77.0.2"]).output();
            seen.push(String::from_utf8(output.await.unwrap().stdout).unwrap().trim().to_owned());
        }
        network.remove_client(inner).await.unwrap();
        network.remove_client(inner).await.unwrap();
        seen
    });
    assert_eq!(
        routes,
        [
            "10.77.0.2 dev rope0 proto 115 scope link metric 10 mtu 1400",
            "10.77.0.2 dev rope0 proto 115 scope link metric 10 mtu 1300"
        ]
    );
    assert_eq!(lab.proxy.read("ip route show 10.77.0.2"), "");
}

#[test]
fn an_ipv6_uplink_is_a_default_route_by_another_interface_than_the_tun() {
    let Some(lab) = lab() else { return };
    let asked =
        || lab.proxy.block_on(async || open().await.has_ipv6_uplink("rope0").await.unwrap());
    assert!(asked());
    lab.proxy.sh("ip -6 route del default; ip -6 route add unreachable default metric 5");
    assert!(!asked());
    lab.proxy.sh("ip link set rope0 up; ip -6 route add default dev rope0");
    assert!(!asked());
}

#[test]
fn a_firewall_that_drops_forwarded_packets_is_told() {
    let Some(lab) = lab() else { return };
    lab.proxy.sh("nft 'add table ip filter; add chain ip filter FORWARD { type filter hook forward priority 0; policy drop; }'");
    let outcome = lab.proxy.block_on(async || open().await.apply(&desired()).await.unwrap());
    assert_eq!(outcome.warnings.len(), 1);
    assert!(outcome.warnings[0].contains("ip filter FORWARD"), "{outcome:?}");
}

#[test]
fn the_connections_that_the_kernel_tracks_are_counted() {
    let Some(lab) = lab() else { return };
    applied(&lab, desired());
    seen(&lab, "10.77.0.2", SERVER).unwrap();
    let table = lab.proxy.run(|| ConnectionTable::read().unwrap().unwrap());
    assert!(table.count >= 1 && table.limit > table.count, "{table:?}");
}

#[test]
fn a_missing_nft_and_a_missing_capability_are_told() {
    let Some(lab) = lab() else { return };
    let (no_nft, no_right) = lab.proxy.block_on(async || {
        let table = Table::new(TABLE).with_program("/nowhere/nft");
        let no_nft = LinuxNetwork::open_with(table).await.unwrap_err();
        let mut network = open().await;
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective -= CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets).unwrap();
        (no_nft, network.apply(&desired()).await.unwrap_err())
    });
    assert!(format!("{no_nft:#}").contains("apt install nftables"), "{no_nft:#}");
    assert!(format!("{no_right:#}").contains("CAP_NET_ADMIN"), "{no_right:#}");
}
