//! What comes out of the tunnel, and what comes in beside it to an inner address.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use ropewalk_client::config::Inbound;
use ropewalk_client::host::{Desired, HostNetwork};
use ropewalk_link_io::host::testing::Namespace;
use ropewalk_settings::PortRange;
use serde_json::Value;

use crate::{Lab, applied, lab, open, wanted};

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
