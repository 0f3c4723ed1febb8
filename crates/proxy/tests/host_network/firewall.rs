//! Who reaches whom through the proxy: neighbours, clients, the host and what stands around it; and how much of the
//! kernel's table of connections anyone can fill.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use ropewalk_link_io::host::testing::Namespace;
use ropewalk_link_io::nft::Table;
use ropewalk_proxy::firewall::{BOUNDED, REFUSED};
use ropewalk_proxy::host::linux::TABLE;
use ropewalk_proxy::host::{Desired, Ipv6};
use ropewalk_proxy::nat::ConnectionTable;
use socket2::{Domain, Protocol, Socket, Type};

use super::{Lab, allowed, applied, connect, desired, lab, nets, seen};

/// A host on the Internet, behind the server.
const INTERNET: &str = "198.51.100.1";
const INTERNET_V6: &str = "2001:db8:51::1";

/// What stands around the proxy, all in the server's namespace: the Internet, a private network, the cloud's address for
/// secrets, a neighbour with a public address. Each answers TCP at ports 80 and 81, and UDP at port 7, as the proxy's own
/// addresses do.
fn surroundings() -> Option<Lab> {
    let lab = lab()?;
    lab.proxy.sh("ip addr add 203.0.113.1/24 dev up0; ip addr add 192.0.2.77/32 dev lo
         ip -6 route add fd00:9::/64 via 2001:db8:9::2
         ip route add 169.254.169.254 dev up0 src 10.9.0.1");
    lab.server.sh("ip link set s0 arp on
         ip addr add 203.0.113.2/24 dev s0
         for a in 198.51.100.1 192.168.7.5 169.254.169.254; do ip addr add $a/32 dev s0; done
         for a in 2001:db8:51::1 fd00:9::5; do ip addr add $a/128 dev s0 nodad; done");
    let around = [
        "198.51.100.1",
        "192.168.7.5",
        "169.254.169.254",
        "203.0.113.2",
        "2001:db8:51::1",
        "fd00:9::5",
    ];
    around.iter().for_each(|address| serve(&lab.server, address));
    ["10.9.0.1", "203.0.113.1", "192.0.2.77", "2001:db8:9::1"]
        .iter()
        .for_each(|address| serve(&lab.proxy, address));
    Some(lab)
}

/// Accepts connections and answers datagrams at this address until the test is over.
fn serve(namespace: &Namespace, address: &str) {
    let address: IpAddr = address.parse().unwrap();
    namespace.run(move || {
        for port in [80, 81, 53] {
            let listener = TcpListener::bind((address, port)).unwrap();
            std::thread::spawn(move || listener.incoming().for_each(drop));
        }
        let socket = UdpSocket::bind((address, 7)).unwrap();
        std::thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                let _ = socket.send_to(b"hello", from);
            }
        });
    });
}

/// What became of a TCP connection, and whether that was known at once.
fn tried(from: &Namespace, source: &str, to: &str) -> Result<(), ErrorKind> {
    let (source, to): (IpAddr, String) = (source.parse().unwrap(), to.to_owned());
    from.run(move || connect(source, &to).map(drop).map_err(|error| error.kind()))
}

/// Whether a datagram is answered; a few are sent, as the first ones may fall to a fresh device.
fn answers(from: &Namespace, source: &str, to: &str) -> bool {
    let (source, to): (IpAddr, SocketAddr) = (source.parse().unwrap(), to.parse().unwrap());
    from.run(move || {
        let socket = UdpSocket::bind((source, 0)).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        (0..4).any(|_| {
            let _ = socket.send_to(b"hello", to);
            socket.recv(&mut [0; 64]).is_ok()
        })
    })
}

/// Lets clients' packets pass before the first test of it: a fresh device may drop what comes within its first second.
fn settle(lab: &Lab) {
    seen(lab, "10.77.0.2", super::SERVER).unwrap();
    seen(lab, "fd77::2", super::SERVER_V6).unwrap();
}

#[test]
fn a_neighbour_on_the_uplink_reaches_no_inner_address() {
    let Some(lab) = lab() else { return };
    ["10.77.0.2", "fd77::2"].iter().for_each(|inner| serve(&lab.clients, inner));
    applied(&lab, desired());
    settle(&lab);
    ["10.77.0.1", "fd77::1"].iter().for_each(|own| serve(&lab.proxy, own));
    let pairs = [
        ("10.9.0.2", "10.77.0.2:7"),
        ("2001:db8:9::2", "[fd77::2]:7"),
        ("10.9.0.2", "10.77.0.1:7"),
        ("2001:db8:9::2", "[fd77::1]:7"),
    ];
    for (from, to) in pairs {
        assert!(!answers(&lab.server, from, to), "{from} reaches {to}");
    }
    assert!(tried(&lab.server, "10.9.0.2", "10.77.0.2:80").is_err());
    // Only the chain stands against it.
    lab.proxy.sh("nft flush chain inet ropewalk_proxy to_clients");
    for (from, to) in pairs {
        assert!(answers(&lab.server, from, to), "{from} to {to} without the chain");
    }
}

#[test]
fn an_uplink_that_sends_from_an_inner_address_is_not_heard() {
    let Some(lab) = lab() else { return };
    // A reverse path filter would hide what the rule does.
    lab.proxy.sh("for f in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $f; done");
    lab.server.sh("ip addr add 10.77.0.9/32 dev s0; ip addr add fd77::9/128 dev s0 nodad");
    applied(&lab, desired());
    settle(&lab);
    for (from, to) in [("10.77.0.9", "10.9.0.1:9"), ("fd77::9", "[2001:db8:9::1]:9")] {
        let came = |count: usize| {
            let own: SocketAddr = to.parse().unwrap();
            let socket = lab.proxy.run(move || UdpSocket::bind(own).unwrap());
            socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
            let source: IpAddr = from.parse().unwrap();
            lab.server.run(move || {
                let spoofed = UdpSocket::bind((source, 0)).unwrap();
                (0..count).for_each(|_| drop(spoofed.send_to(b"spoofed", own)));
            });
            socket.recv(&mut [0; 16]).is_ok()
        };
        assert!(!came(5), "{from}");
        lab.proxy.sh("nft flush chain inet ropewalk_proxy arrivals");
        assert!(came(5), "{from} without the chain");
        lab.proxy.sh("nft delete table inet ropewalk_proxy");
        applied(&lab, desired());
    }
}

#[test]
fn a_network_in_inbound_begins_connections_to_clients_and_not_to_the_proxys_inner_address() {
    let Some(lab) = lab() else { return };
    ["10.77.0.2", "fd77::2"].iter().for_each(|inner| serve(&lab.clients, inner));
    let inbound = nets(&["10.9.0.2/32", "::/0"]);
    applied(&lab, Desired { inbound, ipv6: Ipv6::Routed, ..desired() });
    settle(&lab);
    ["10.77.0.1", "fd77::1"].iter().for_each(|own| serve(&lab.proxy, own));
    for (from, to, expected) in [
        ("10.9.0.2", "10.77.0.2:7", true),
        ("10.9.0.3", "10.77.0.2:7", false),
        ("2001:db8:9::2", "[fd77::2]:7", true),
        ("10.9.0.2", "10.77.0.1:7", false),
        ("2001:db8:9::2", "[fd77::1]:7", false),
    ] {
        assert_eq!(answers(&lab.server, from, to), expected, "{from} to {to}");
    }
}

#[test]
fn clients_reach_the_internet_and_the_proxys_inner_address_and_are_refused_all_else_at_once() {
    let Some(lab) = surroundings() else { return };
    applied(&lab, desired());
    settle(&lab);
    ["10.77.0.1", "fd77::1"].iter().for_each(|own| serve(&lab.proxy, own));
    for (from, to) in [
        ("10.77.0.2", INTERNET),
        ("fd77::2", INTERNET_V6),
        ("10.77.0.2", "10.77.0.1"),
        ("fd77::2", "fd77::1"),
    ] {
        let at = SocketAddr::new(to.parse().unwrap(), 80).to_string();
        assert_eq!(tried(&lab.clients, from, &at), Ok(()), "{to}");
    }
    let closed = [
        ("10.77.0.2", "192.168.7.5"),
        ("10.77.0.2", "169.254.169.254"),
        // A neighbour of the proxy, the proxy's own addresses, and one of its loopback.
        ("10.77.0.2", "203.0.113.2"),
        ("10.77.0.2", "203.0.113.1"),
        ("10.77.0.2", "192.0.2.77"),
        ("fd77::2", "fd00:9::5"),
    ];
    for (from, to) in closed {
        let at = SocketAddr::new(to.parse().unwrap(), 80).to_string();
        let started = Instant::now();
        assert_eq!(tried(&lab.clients, from, &at), Err(ErrorKind::ConnectionRefused), "{to}");
        // A connection without an answer would have waited for two seconds.
        assert!(started.elapsed() < Duration::from_millis(1500), "{to}: {:?}", started.elapsed());
        let at = SocketAddr::new(to.parse().unwrap(), 7).to_string();
        assert!(!answers(&lab.clients, from, &at), "{to}");
    }
    assert!(counted(&lab, REFUSED) >= 2 * closed.len() as u64, "each refusal is counted");
    assert_eq!(counted(&lab, BOUNDED), 0, "and nothing was beyond a client's bounds");
    // The host reaches them as before.
    assert_eq!(tried(&lab.proxy, "10.9.0.1", "169.254.169.254:80"), Ok(()));
    assert_eq!(tried(&lab.proxy, "203.0.113.1", "203.0.113.2:80"), Ok(()));
    // Without the rules clients would, too.
    lab.proxy.sh(
        "nft flush chain inet ropewalk_proxy forward; nft flush chain inet ropewalk_proxy input",
    );
    for (from, to) in closed.into_iter().filter(|(_, to)| *to != "192.168.7.5") {
        let at = SocketAddr::new(to.parse().unwrap(), 80).to_string();
        assert_eq!(tried(&lab.clients, from, &at), Ok(()), "{to} without the rules");
    }
}

#[test]
fn allow_no_nat_and_the_name_servers_open_what_they_name_and_no_more() {
    let Some(lab) = surroundings() else { return };
    lab.proxy.sh("ip route add 192.168.7.5 via 10.9.0.2");
    let reached = |changed: Desired, to: &str| {
        applied(&lab, changed);
        settle(&lab);
        tried(&lab.clients, if to.starts_with('[') { "fd77::2" } else { "10.77.0.2" }, to)
    };
    let refused = Err(ErrorKind::ConnectionRefused);
    let allow = |entry: &str| {
        let mut changed = desired();
        changed.allow.push(allowed(entry));
        changed
    };
    let no_nat = |net: &str| Desired { no_nat: nets(&[net]), ..desired() };
    let servers =
        |server: &str| Desired { name_servers: vec![server.parse().unwrap()], ..desired() };
    for (changed, to, expected) in [
        (allow("192.168.0.0/16"), "192.168.7.5:80", Ok(())),
        (allow("192.168.7.5 80/tcp"), "192.168.7.5:80", Ok(())),
        (allow("192.168.7.5 80/tcp"), "192.168.7.5:81", refused),
        (allow("192.168.7.5 80/udp"), "192.168.7.5:80", refused),
        (allow("192.168.7.6"), "192.168.7.5:80", refused),
        (allow("fd00:9::/64"), "[fd00:9::5]:80", Ok(())),
        // An address of the host itself.
        (allow("203.0.113.1 80/tcp"), "203.0.113.1:80", Ok(())),
        (allow("203.0.113.1 80/tcp"), "203.0.113.1:81", refused),
        (no_nat("192.168.0.0/16"), "192.168.7.5:80", Ok(())),
        (no_nat("0.0.0.0/0"), "192.168.7.5:80", refused),
        (no_nat("169.254.0.0/16"), "169.254.169.254:80", refused),
        (servers("192.168.7.5"), "192.168.7.5:53", Ok(())),
        (servers("192.168.7.5"), "192.168.7.5:80", refused),
        (servers("203.0.113.1"), "203.0.113.1:53", Ok(())),
    ] {
        let what = format!("{to} with {:?} {:?}", changed.allow, changed.no_nat);
        // `no_nat` keeps the client's address, to which the server knows the way.
        assert_eq!(reached(changed, to), expected, "{what}");
    }
}

#[test]
fn what_a_client_says_as_a_router_is_not_heard() {
    let Some(lab) = lab() else { return };
    applied(&lab, desired());
    settle(&lab);
    let says = |domain, protocol, to: &str, message: &'static [u8]| {
        let to: IpAddr = to.parse().unwrap();
        lab.clients.run(move || {
            let socket = Socket::new(domain, Type::RAW, Some(protocol)).unwrap();
            socket.send_to(message, &SocketAddr::new(to, 0).into()).unwrap();
        });
    };
    // A redirect to 10.77.0.2 that quotes the begin of a datagram of the host.
    says(
        Domain::IPV4,
        Protocol::ICMPV4,
        "10.77.0.1",
        b"\x05\x01\x4a\x64\x0a\x4d\x00\x02\x45\x00\x00\x1c\x00\x00\x00\x00\x40\x11\x00\x00\
          \x0a\x09\x00\x01\x0a\x09\x00\x02\x00\x07\x00\x07\x00\x08\x00\x00",
    );
    // A router advertisement with a lifetime; the kernel fills in the checksum.
    says(
        Domain::IPV6,
        Protocol::ICMPV6,
        "fd77::1",
        b"\x86\x00\x00\x00\x40\x00\x07\x08\x00\x00\x00\x00\x00\x00\x00\x00",
    );
    let counted = lab.proxy.read("nft list chain inet ropewalk_proxy clients_in");
    for rule in [
        "icmp type redirect counter packets 1 ",
        "icmpv6 type { nd-router-advert, nd-redirect } counter packets 1 ",
    ] {
        assert!(counted.contains(rule), "{rule}: {counted}");
    }
}

/// What a counter of the proxy's firewall has counted.
fn counted(lab: &Lab, name: &str) -> u64 {
    let counters = lab.proxy.block_on(|| async { Table::new(TABLE).counters().await.unwrap() });
    counters[name].packets
}

/// Connections in the proxy's table.
fn tracked(lab: &Lab) -> u64 {
    lab.proxy.run(|| ConnectionTable::read().unwrap().unwrap().count)
}

#[test]
fn datagrams_of_the_tunnel_and_their_answers_fill_no_table() {
    let Some(lab) = lab() else { return };
    applied(&lab, desired());
    settle(&lab);
    let flood = |port: u16| {
        let answering = lab.proxy.run(move || UdpSocket::bind(("10.9.0.1", port)).unwrap());
        let to = SocketAddr::from(([10, 9, 0, 1], port));
        lab.server.run(move || {
            for _ in 0..300 {
                UdpSocket::bind("10.9.0.2:0").unwrap().send_to(b"first message", to).unwrap();
            }
        });
        answering.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let mut answered = 0;
        while let Ok((_, from)) = answering.recv_from(&mut [0; 64]) {
            answering.send_to(b"answer", from).unwrap();
            answered += 1;
        }
        answered
    };
    let before = tracked(&lab);
    // The receive buffer may not hold all of them.
    assert!(flood(51900) >= 100);
    let after = tracked(&lab);
    assert!(after <= before + 10, "{before} connections before, {after} after");
    assert!(flood(51901) >= 100);
    let other = tracked(&lab);
    assert!(other >= before + 100, "another port is tracked: {before} before, {other} after");
}

#[test]
fn one_client_fills_its_own_share_of_the_table_and_the_others_go_on() {
    let Some(lab) = surroundings() else { return };
    let flood = || {
        lab.clients.run(|| {
            let socket = UdpSocket::bind("10.77.0.2:0").unwrap();
            for port in 1000..3000 {
                let _ = socket.send_to(b"new", (INTERNET, port));
            }
        });
        std::thread::sleep(Duration::from_millis(300));
    };
    for (connections, rate, most) in [(200, 100_000, 200), (100_000, 20, 20 * 4 + 20 * 10)] {
        lab.proxy.sh("nft delete table inet ropewalk_proxy 2> /dev/null || true");
        applied(
            &lab,
            Desired { client_connections: connections, client_connection_rate: rate, ..desired() },
        );
        settle(&lab);
        let before = tracked(&lab);
        flood();
        let grown = tracked(&lab) - before;
        assert!(grown >= 60, "{grown} connections");
        assert!(grown <= most, "{grown} connections, at most {most}");
        assert!(answers(&lab.clients, "10.77.5.2", &format!("{INTERNET}:7")), "another client");
        assert!(counted(&lab, BOUNDED) >= 1000, "what was beyond the bounds is counted");
        assert_eq!(counted(&lab, REFUSED), 0, "and nothing was refused for where it went");
        // A full share stands in the way of new connections only.
    }
}

#[test]
fn a_stream_that_nobody_answers_is_one_connection_and_passes_whole() {
    const DATAGRAMS: usize = 2000;
    let Some(lab) = surroundings() else { return };
    applied(&lab, Desired { client_connection_rate: 20, ..desired() });
    settle(&lab);
    for (hearing, source, to) in [
        (&lab.server, "10.77.0.2", INTERNET),
        (&lab.server, "fd77::2", INTERNET_V6),
        (&lab.proxy, "10.77.0.2", "10.77.0.1"),
    ] {
        let (source, to): (IpAddr, IpAddr) = (source.parse().unwrap(), to.parse().unwrap());
        let heard = hearing.run(move || UdpSocket::bind((to, 9000)).unwrap());
        heard.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
        let counting = std::thread::spawn(move || {
            std::iter::from_fn(|| heard.recv(&mut [0; 64]).ok()).count()
        });
        lab.clients.run(move || {
            let socket = UdpSocket::bind((source, 0)).unwrap();
            for sent in 0..DATAGRAMS {
                let _ = socket.send_to(b"frame", (to, 9000));
                if sent % 20 == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        let came = counting.join().unwrap();
        assert_eq!((came, counted(&lab, BOUNDED)), (DATAGRAMS, 0), "to {to}");
    }
}
