//! Open connections when ports are forwarded otherwise than before.
//!
//! The kernel decides by the first packet of a connection where all of it goes. So a connection of a port that leads elsewhere, or
//! nowhere, is forgotten: what still comes from outside finds no way to the client, and is answered by this host with a reset. The
//! client's own end, however, may be the one that sends: its next packet would look like the middle of a connection that the
//! client began, get this host's address and, with the port being free, the old connection would live on. So what a client sends of
//! TCP from such a place, without having begun there with a SYN, is answered with a reset ([`rules::ended`](super::rules::ended)) for
//! as long as the proxy runs. UDP has no beginning: what a client goes on sending is its own.

use std::collections::BTreeSet;
use std::net::IpAddr;

use ropewalk_link_io::conntrack::Connection;

use super::{Forwarded, Forwards, Ports};
use crate::allow::Transport;
use crate::host::Desired;

/// Most places from which clients answered in connections that were ended. Beyond it a connection may live on, if the client sends
/// first.
const MAX_ENDED: usize = 1024;

/// Whether a forward of `before` led this connection, and none does now.
#[must_use]
pub fn is_over(desired: &Desired, before: &Ports, connection: &Connection) -> bool {
    let (Some(to), Some(transport)) = (connection.led_to, transport(connection)) else {
        return false;
    };
    let port = connection.destination.port();
    let is_inner = desired.inner.iter().any(|net| net.contains(&to.ip()));
    let source = connection.source.ip();
    let leads = |one: &Forwarded| one.transport == transport && one.leads(source, port, to);
    let Forwards { active, awaited } = &desired.forwards;
    let stays = awaited.have(transport, port) || active.iter().any(leads);
    before.have(transport, port) && is_inner && !stays
}

/// Whether datagrams that come to a host with these addresses should be led to a client, and are not: they came before that was
/// so. A connection of TCP is left to whom it reached: it may be the owner's own, to this host.
#[must_use]
pub fn lacks_forward(desired: &Desired, host: &[IpAddr], connection: &Connection) -> bool {
    let (source, to) = (connection.source.ip(), connection.destination);
    let is_udp = |one: &&Forwarded| one.transport == Transport::Udp;
    transport(connection) == Some(Transport::Udp)
        && connection.led_to.is_none()
        && host.contains(&to.ip())
        && !host.contains(&source)
        && !desired.own.contains(&to.ip())
        && desired.forwards.active.iter().filter(is_udp).any(|one| one.takes(source, to.port()))
}

fn transport(connection: &Connection) -> Option<Transport> {
    let of_number = |transport: &Transport| transport.number() == connection.protocol;
    [Transport::Tcp, Transport::Udp].into_iter().find(of_number)
}

/// Where clients answered in connections of TCP that were ended: inner addresses with their ports.
#[derive(Debug, Default)]
pub struct Ended(BTreeSet<(IpAddr, u16)>);

impl Ended {
    /// The places.
    #[must_use]
    pub fn places(&self) -> &BTreeSet<(IpAddr, u16)> {
        &self.0
    }

    /// Adds those of these connections, which are over. Returns whether any is new.
    pub fn add(&mut self, over: &[Connection]) -> bool {
        let before = self.0.len();
        let of_tcp = over.iter().filter(|one| transport(one) == Some(Transport::Tcp));
        for place in of_tcp.filter_map(|one| one.led_to) {
            if self.0.len() >= MAX_ENDED {
                break;
            }
            self.0.insert((place.ip(), place.port()));
        }
        self.0.len() != before
    }

    /// Forgets the places to which a port leads again.
    pub fn follow(&mut self, forwards: &Forwards) {
        let leads_to = |address: &IpAddr, port: u16| {
            forwards.active.iter().any(|one| {
                one.transport == Transport::Tcp
                    && one.to.contains(address)
                    && one.to_ports().contains(port)
            })
        };
        self.0.retain(|(address, port)| !leads_to(address, *port));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::forward::testing;

    fn desired(active: &[&str], awaited: Ports) -> Desired {
        Desired { own: vec!["10.77.0.1".parse().unwrap()], ..testing::desired(active, awaited) }
    }

    fn ports(tcp: &[u16], udp: &[u16]) -> Ports {
        let ranges = |list: &[u16]| -> Vec<(u16, u16)> { list.iter().map(|p| (*p, *p)).collect() };
        crate::forward::rules::remembered(&ranges(tcp), &ranges(udp))
    }

    /// A connection of TCP, or UDP, from the Internet to `to`, and where it is led.
    fn connection(protocol: u8, to: &str, led_to: Option<&str>) -> Connection {
        Connection {
            protocol,
            source: "198.51.100.7:40000".parse().unwrap(),
            destination: to.parse().unwrap(),
            is_source_translated: false,
            led_to: led_to.map(|place| place.parse().unwrap()),
        }
    }

    /// What is forwarded now, what is awaited, and whether the connection is over.
    type Case<'a> = (&'a [&'a str], &'a Ports, bool);

    #[test]
    fn connections_of_a_port_end_when_it_leads_elsewhere_or_nowhere_and_no_others() {
        let open = connection(6, "203.0.113.2:8443", Some("10.77.0.5:443"));
        let (before, none) = (ports(&[8443], &[]), Ports::default());
        let cases: [Case<'_>; 6] = [
            (&["tcp 8443 10.77.0.5 443"], &none, false),
            (&["tcp 8443 10.77.0.6 443"], &none, true),
            (&["tcp 8443 10.77.0.5 444"], &none, true),
            (&["udp 8443 10.77.0.5 443"], &none, true),
            (&[], &none, true),
            // Its client may only not be known yet.
            (&[], &before, false),
        ];
        for (active, awaited, expected) in cases {
            let found = is_over(&desired(active, awaited.clone()), &before, &open);
            assert_eq!(found, expected, "{active:?} {awaited:?}");
        }
        let nothing = desired(&[], Ports::default());
        for (other, why) in [
            (connection(6, "203.0.113.2:80", Some("10.77.0.5:80")), "by a rule of the user's"),
            (connection(6, "203.0.113.2:8443", Some("172.17.0.2:443")), "to a container"),
            (connection(6, "203.0.113.2:8443", None), "to this host"),
            (connection(1, "203.0.113.2:0", Some("10.77.0.5:0")), "ICMP"),
        ] {
            assert!(!is_over(&nothing, &before, &other), "{why}");
        }
    }

    #[test]
    fn datagrams_that_came_to_this_host_are_led_and_its_connections_are_left_alone() {
        let host = ["203.0.113.2", "10.77.0.1"].map(|address| address.parse().unwrap());
        let desired =
            desired(&["udp 5000-5010 10.77.0.5 5000", "tcp 22 10.77.0.5 22"], Ports::default());
        for (one, expected) in [
            (connection(17, "203.0.113.2:5003", None), true),
            (connection(17, "203.0.113.2:5003", Some("10.77.0.5:5003")), false),
            (connection(17, "203.0.113.2:4999", None), false),
            (connection(17, "192.0.2.2:5003", None), false),
            (connection(17, "10.77.0.1:5003", None), false),
            (connection(6, "203.0.113.2:22", None), false),
        ] {
            assert_eq!(lacks_forward(&desired, &host, &one), expected, "{one:?}");
        }
    }

    #[test]
    fn where_a_client_answered_is_known_until_a_port_leads_there_again() {
        let mut ended = Ended::default();
        let over = [
            connection(6, "203.0.113.2:8443", Some("10.77.0.5:443")),
            connection(17, "203.0.113.2:53", Some("10.77.0.5:53")),
        ];
        assert!(ended.add(&over) && !ended.add(&over));
        assert_eq!(ended.places().len(), 1);
        ended.follow(&desired(&["tcp 9000 10.77.0.6 443"], Ports::default()).forwards);
        assert_eq!(ended.places().len(), 1);
        ended.follow(&desired(&["tcp 9000 10.77.0.5 443"], Ports::default()).forwards);
        assert!(ended.places().is_empty());
        let place = |port: u16| format!("10.77.0.5:{port}");
        let many: Vec<_> = (1..=2000)
            .map(|port| connection(6, "203.0.113.2:8443", Some(place(port).as_str())))
            .collect();
        ended.add(&many);
        assert_eq!(ended.places().len(), MAX_ENDED);
    }
}
