//! Sockets that somebody else binds to a network.

use crate::namespace::{ip, isolated};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::udp::{Bound, OpenError, Sockets, source_towards};
use rustix::io::Errno;
use socket2::SockRef;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Two networks, each with a default route.
fn networks() {
    for number in [1, 2] {
        let (near, far) = (format!("rwnet{number}"), format!("rwfar{number}"));
        ip(&format!("link add {near} type veth peer name {far}"));
        ip(&format!("link set {near} up"));
        ip(&format!("link set {far} up"));
        ip(&format!("addr add 192.168.{number}.2/24 dev {near}"));
        let router = format!("192.168.{number}.1");
        ip(&format!("route add default via {router} dev {near} metric {number}"));
    }
}

/// Binds to network `number`, as the system of a phone does.
fn bind(number: u8) -> impl FnMut(BorrowedFd<'_>) -> io::Result<()> {
    let interface = format!("rwnet{number}");
    move |fd: BorrowedFd<'_>| SockRef::from(&fd).bind_device(Some(interface.as_bytes()))
}

#[test]
fn each_socket_has_the_address_and_the_interface_of_its_network() {
    isolated(|| async {
        networks();
        let proxy = "203.0.113.2:51900".parse().expect("an address");
        let mut sockets = Sockets::new(Clock::start());
        for number in [1, 2] {
            let source = source_towards(proxy, &mut bind(number)).expect("a way");
            assert_eq!(source, IpAddr::from([192, 168, number, 2]));
            let mut device = None;
            let bound = Bound::prepared(source, &mut |fd| {
                bind(number)(fd)?;
                device = SockRef::from(&fd).device()?;
                Ok(())
            });
            let id = sockets.adopt(bound.expect("our address")).expect("a socket");
            assert_eq!(sockets.local_addr(id).map(|local| local.ip()), Some(source));
            assert_eq!(device, Some(format!("rwnet{number}").into_bytes()));
        }
    });
}

#[test]
fn a_network_that_refuses_or_leads_nowhere_is_told_apart() {
    isolated(|| async {
        networks();
        let mut refuse = |_: BorrowedFd<'_>| -> io::Result<()> { Err(Errno::NONET.into()) };
        let proxy = "203.0.113.2:51900".parse().expect("an address");
        for error in [
            source_towards(proxy, &mut refuse).expect_err("it refuses"),
            Bound::prepared([192, 168, 1, 2].into(), &mut refuse).expect_err("it refuses"),
        ] {
            assert!(matches!(error, OpenError::Network { .. }), "{error}");
            assert!(error.to_string().contains("not bound to its network"), "{error}");
        }
        let proxy = "[2001:db8::2]:51900".parse().expect("an address");
        let error = source_towards(proxy, &mut bind(1)).expect_err("no IPv6 there");
        assert!(matches!(error, OpenError::NoWay { .. }), "{error}");
        let elsewhere = Bound::prepared([192, 168, 7, 7].into(), &mut bind(1));
        let error = elsewhere.expect_err("no address of ours");
        assert!(matches!(error, OpenError::NotOurs { .. }), "{error}");
    });
}
