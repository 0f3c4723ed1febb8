//! The emulated Internet in real namespaces: it does what routers do, and leaves nothing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failed step fails the test")]

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ropewalk_netlab::address::{
    PROXY_V4, PROXY_V6, SERVER_V4, client_v4, client_v6, public_v4, public_v6,
};
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::topology::{Ipv6, Topology, TopologyConfig, WanConfig};
use rustix::net::sockopt::Ipv4PathMtuDiscovery;

/// Long enough for a busy machine; a packet over plain veths needs far less than a millisecond.
const SOON: Duration = Duration::from_secs(5);
/// Short, for answers that must not come.
const NEVER: Duration = Duration::from_millis(300);

#[test]
fn a_topology_leaves_nothing_behind() {
    lab_test("a_topology_leaves_nothing_behind", || {
        let before = machine();
        let topology = build(2, Ipv6::Routed);
        let names: Vec<String> = topology.namespaces().map(|n| n.name().to_owned()).collect();
        assert_eq!(names.len(), 6, "{names:?}");
        assert!(names.iter().all(|name| netns().contains(name)), "{names:?}");
        drop(topology);
        assert!(!names.iter().any(|name| netns().contains(name)), "{names:?}");
        assert_eq!(machine(), before);
    });
}

#[test]
fn every_wan_is_masqueraded_by_its_own_router() {
    lab_test("every_wan_is_masqueraded_by_its_own_router", || {
        let topology = build(3, Ipv6::Masqueraded);
        for wan in 0..3 {
            let v4 = Flow::open(&topology, client_v4(0, wan).into(), PROXY_V4.into());
            assert_eq!(v4.seen_as().expect("an answer").ip(), IpAddr::V4(public_v4(wan, 0)));
            let v6 = Flow::open(&topology, client_v6(0, wan).into(), PROXY_V6.into());
            assert_eq!(v6.seen_as().expect("an answer").ip(), IpAddr::V6(public_v6(wan, 0)));
        }
    });
}

#[test]
fn routed_ipv6_keeps_its_address_but_lets_in_only_answers() {
    lab_test("routed_ipv6_keeps_its_address_but_lets_in_only_answers", || {
        let topology = build(1, Ipv6::Routed);
        let flow = Flow::open(&topology, client_v6(0, 0).into(), PROXY_V6.into());
        assert_eq!(flow.seen_as().expect("an answer").ip(), IpAddr::V6(client_v6(0, 0)));

        let stranger = bind(topology.server(), SocketAddr::from(([0u16; 8], 0)));
        let there = flow.near.local_addr().unwrap();
        stranger.send_to(b"hello", there).unwrap();
        assert_eq!(flow.receive(NEVER), None);
    });
}

#[test]
fn without_ipv6_there_is_none() {
    lab_test("without_ipv6_there_is_none", || {
        let topology = build(1, Ipv6::Off);
        let flow = Flow::open(&topology, client_v4(0, 0).into(), PROXY_V4.into());
        assert!(flow.seen_as().is_some());
        let found = topology.client().tool("ip", &["-6", "address"]).unwrap();
        assert_eq!(found, "");
    });
}

#[test]
fn two_clients_share_the_routers_but_not_their_links() {
    lab_test("two_clients_share_the_routers_but_not_their_links", || {
        let mut config = TopologyConfig::new(vec![WanConfig::default(); 2]);
        config.clients = 2;
        let topology = Topology::build(&config).unwrap();
        let flows: Vec<Flow> = topology
            .clients()
            .iter()
            .zip(0..)
            .map(|(client, number)| {
                let near = bind(client, (client_v4(number, 1), 0).into());
                Flow { near, far: bind(topology.proxy(), (PROXY_V4, 0).into()) }
            })
            .collect();
        let seen: BTreeSet<SocketAddr> = flows.iter().filter_map(Flow::seen_as).collect();
        assert_eq!(seen.len(), 2, "{seen:?}");
        assert!(seen.iter().all(|a| a.ip() == IpAddr::V4(public_v4(1, 0))), "{seen:?}");
    });
}

#[test]
fn an_idle_flow_is_forgotten_after_the_timeout_and_not_before() {
    lab_test("an_idle_flow_is_forgotten_after_the_timeout_and_not_before", || {
        let wan = WanConfig { udp_timeout: Some(Duration::from_secs(2)), ..WanConfig::default() };
        let topology = Topology::build(&TopologyConfig::new(vec![wan])).unwrap();
        let flow = Flow::open(&topology, client_v4(0, 0).into(), PROXY_V4.into());
        let outside = flow.seen_as().expect("an answer");

        std::thread::sleep(Duration::from_millis(800));
        flow.far.send_to(b"early", outside).unwrap();
        assert_eq!(flow.receive(SOON).as_deref(), Some(&b"early"[..]));

        // The early packet renewed the entry; the collector may take its time for the rest.
        std::thread::sleep(Duration::from_millis(3_500));
        flow.far.send_to(b"late", outside).unwrap();
        assert_eq!(flow.receive(NEVER), None);
    });
}

#[test]
fn a_rebinding_changes_the_port_and_closes_the_old_one() {
    lab_test("a_rebinding_changes_the_port_and_closes_the_old_one", || {
        let mut topology = build(1, Ipv6::Off);
        let flow = Flow::open(&topology, client_v4(0, 0).into(), PROXY_V4.into());
        let mut seen = vec![flow.seen_as().expect("an answer")];
        for _ in 0..5 {
            topology.router_mut(0).rebind().unwrap();
            let old = *seen.last().unwrap();
            flow.far.send_to(b"to the old port", old).unwrap();
            assert_eq!(flow.receive(NEVER), None);

            let new = flow.seen_as().expect("an answer");
            assert_eq!(new.ip(), old.ip());
            assert_ne!(new.port(), old.port());
            seen.push(new);
        }
    });
}

#[test]
fn a_router_can_change_its_public_address() {
    lab_test("a_router_can_change_its_public_address", || {
        let mut topology = build(2, Ipv6::Masqueraded);
        let v4 = Flow::open(&topology, client_v4(0, 1).into(), PROXY_V4.into());
        let v6 = Flow::open(&topology, client_v6(0, 1).into(), PROXY_V6.into());
        for generation in 0..3 {
            let (seen4, seen6) = (v4.seen_as().unwrap(), v6.seen_as().unwrap());
            assert_eq!(seen4.ip(), IpAddr::V4(public_v4(1, generation)));
            assert_eq!(seen6.ip(), IpAddr::V6(public_v6(1, generation)));
            assert_eq!(seen4.ip(), IpAddr::V4(topology.routers()[1].public_v4()));
            topology.router_mut(1).change_public_address().unwrap();
        }
    });
}

#[test]
fn a_small_mtu_is_told_by_icmp_or_is_a_black_hole() {
    lab_test("a_small_mtu_is_told_by_icmp_or_is_a_black_hole", || {
        let mut topology = build(1, Ipv6::Off);
        let flow = Flow::open(&topology, client_v4(0, 0).into(), PROXY_V4.into());
        let outside = flow.seen_as().expect("an answer");
        // 28 bytes of IP and UDP headers.
        let (fits, too_big) = (vec![1; 1_400 - 28], vec![2; 1_401 - 28]);
        for (socket, to) in [(&flow.near, flow.far.local_addr().unwrap()), (&flow.far, outside)] {
            let there = if std::ptr::eq(socket, &flow.near) { &flow.far } else { &flow.near };
            topology.router_mut(0).set_mtu(1_500).unwrap();
            dont_fragment(socket);
            socket.send_to(&too_big, to).unwrap();
            assert_eq!(receive(there, SOON).map(|p| p.len()), Some(too_big.len()));

            topology.router_mut(0).set_mtu(1_400).unwrap();
            topology.router_mut(0).set_icmp_errors(false).unwrap();
            socket.send_to(&too_big, to).unwrap();
            assert_eq!(receive(there, NEVER), None);
            // The sender learned nothing: it still sends.
            socket.send_to(&too_big, to).unwrap();
            socket.send_to(&fits, to).unwrap();
            assert_eq!(receive(there, SOON).map(|p| p.len()), Some(fits.len()));

            topology.router_mut(0).set_icmp_errors(true).unwrap();
            socket.send_to(&too_big, to).unwrap();
            assert_eq!(receive(there, NEVER), None);
            let error = socket.send_to(&too_big, to).expect_err("the kernel knows the path MTU");
            assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::MSGSIZE.raw_os_error()));
        }
    });
}

#[test]
fn nothing_but_the_proxy_reaches_behind_the_proxy() {
    lab_test("nothing_but_the_proxy_reaches_behind_the_proxy", || {
        let topology = build(1, Ipv6::Routed);
        // The server is on the Internet, and the client reaches it without the tunnel too.
        let direct = Flow {
            near: bind(topology.client(), (client_v4(0, 0), 0).into()),
            far: bind(topology.server(), (SERVER_V4, 0).into()),
        };
        assert_eq!(direct.seen_as().expect("an answer").ip(), IpAddr::V4(public_v4(0, 0)));
        // No other network has a route back.
        let routes = topology.internet().tool("ip", &["-4", "route"]).unwrap();
        assert!(!routes.contains("192.168.") && !routes.contains("default"), "{routes}");
    });
}

/// A UDP flow from a client to a socket of the proxy that answers nothing by itself.
struct Flow {
    near: UdpSocket,
    far: UdpSocket,
}

impl Flow {
    fn open(topology: &Topology, near: IpAddr, far: IpAddr) -> Self {
        Self {
            near: bind(topology.client(), (near, 0).into()),
            far: bind(topology.proxy(), (far, 0).into()),
        }
    }

    /// Sends a packet there and one back; where did the first seem to come from?
    fn seen_as(&self) -> Option<SocketAddr> {
        self.near.send_to(b"who am I", self.far.local_addr().unwrap()).unwrap();
        self.far.set_read_timeout(Some(SOON)).unwrap();
        let (_, from) = self.far.recv_from(&mut [0; 2_000]).ok()?;
        self.far.send_to(b"you", from).unwrap();
        assert_eq!(self.receive(SOON).as_deref(), Some(&b"you"[..]));
        Some(from)
    }

    fn receive(&self, within: Duration) -> Option<Vec<u8>> {
        receive(&self.near, within)
    }
}

fn receive(socket: &UdpSocket, within: Duration) -> Option<Vec<u8>> {
    socket.set_read_timeout(Some(within)).unwrap();
    let mut buffer = vec![0; 2_000];
    let (length, _) = socket.recv_from(&mut buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

fn bind(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    // As the client daemon does: by its own interface, whatever the first default route says.
    let third = match address.ip() {
        IpAddr::V4(v4) if v4.octets()[..2] == [192, 168] => Some(u16::from(v4.octets()[2])),
        IpAddr::V6(v6) if v6.segments()[2] == 0xa00 => Some(v6.segments()[3]),
        _ => None,
    };
    let socket = namespace.run(|| {
        let socket = UdpSocket::bind(address)?;
        if let Some(third) = third {
            let interface = format!("wan{}", third % 10);
            socket2::SockRef::from(&socket).bind_device(Some(interface.as_bytes()))?;
        }
        Ok::<_, std::io::Error>(socket)
    });
    socket.unwrap().unwrap_or_else(|error| panic!("binding {address}: {error}"))
}

fn dont_fragment(socket: &UdpSocket) {
    rustix::net::sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO).unwrap();
}

fn build(wans: usize, ipv6: Ipv6) -> Topology {
    let mut config = TopologyConfig::new(vec![WanConfig::default(); wans]);
    config.ipv6 = ipv6;
    Topology::build(&config).unwrap()
}

fn netns() -> BTreeSet<String> {
    let folder = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
    folder.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// What must be the same before and after: the interfaces and rules of the initial namespace.
fn machine() -> Vec<String> {
    ["link", "address", "route", "rule"]
        .map(|object| ropewalk_netlab::tool::run("ip", &["-br", object]).unwrap())
        .into()
}
