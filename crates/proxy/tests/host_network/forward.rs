//! Ports that lead to clients: how many connections they may bring, and what the next proxy makes of those that are open.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use ropewalk_link_io::conntrack;
use ropewalk_link_io::nft::Table;
use ropewalk_proxy::allow::Transport;
use ropewalk_proxy::firewall::BOUNDED;
use ropewalk_proxy::forward::{Forwarded, Forwards, Ports};
use ropewalk_proxy::host::Desired;
use ropewalk_proxy::host::linux::TABLE;
use ropewalk_settings::PortRange;

use super::{Lab, SERVER, applied, desired, lab, seen};

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 77, 0, 2));

fn port(number: u16) -> PortRange {
    PortRange::new(number, number).unwrap()
}

/// One port that leads to the client.
fn forwards(transport: Transport, number: u16, to_port: u16) -> Forwards {
    let forwarded =
        Forwarded { transport, ports: port(number), from: Vec::new(), to: vec![CLIENT], to_port };
    Forwards { active: vec![forwarded], ..Forwards::default() }
}

/// Connections that are led to clients.
fn led(lab: &Lab) -> usize {
    lab.proxy.block_on(async || conntrack::find(|one| one.led_to.is_some()).await.unwrap().len())
}

#[test]
fn what_is_forwarded_to_a_client_is_bounded_like_what_it_begins() {
    let Some(lab) = lab() else { return };
    let forwards = forwards(Transport::Udp, 5000, 5000);
    applied(&lab, Desired { client_connections: 50, forwards, ..desired() });
    seen(&lab, "10.77.0.2", SERVER).unwrap();
    lab.server.run(|| {
        for _ in 0..300 {
            let socket = UdpSocket::bind("10.9.0.2:0").unwrap();
            socket.send_to(b"new", "10.9.0.1:5000").unwrap();
        }
    });
    std::thread::sleep(Duration::from_millis(300));
    let led = led(&lab);
    assert!((1..=50).contains(&led), "{led} connections");
    let counters = lab.proxy.block_on(|| async { Table::new(TABLE).counters().await.unwrap() });
    assert!(counters[BOUNDED].packets >= 200, "{counters:?}");
    assert!(counters["forward_udp_5000_new"].packets >= 200, "{counters:?}");
}

#[test]
fn open_connections_of_a_port_end_with_the_proxy_that_forwards_it_no_more_and_not_before() {
    let Some(lab) = lab() else { return };
    lab.clients.run(|| {
        let listener = TcpListener::bind((CLIENT, 443)).unwrap();
        std::thread::spawn(move || listener.incoming().flatten().collect::<Vec<_>>());
    });
    let https = || forwards(Transport::Tcp, 8443, 443);
    applied(&lab, Desired { forwards: https(), ..desired() });
    seen(&lab, "10.77.0.2", SERVER).unwrap();
    let _open = lab.server.run(|| {
        let to = SocketAddr::from(([10, 9, 0, 1], 8443));
        TcpStream::connect_timeout(&to, Duration::from_secs(5)).unwrap()
    });
    assert_eq!(led(&lab), 1);
    // The next one does not know the client until its registry answers.
    let mut awaited = Ports::default();
    awaited.add(Transport::Tcp, port(8443));
    let waiting = Forwards { awaited, ..Forwards::default() };
    for (forwards, expected) in [(waiting, 1), (https(), 1), (Forwards::default(), 0)] {
        let what = format!("{forwards:?}");
        applied(&lab, Desired { forwards, ..desired() });
        assert_eq!(led(&lab), expected, "{what}");
    }
}
