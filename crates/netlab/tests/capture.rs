//! Capture and injection against a real kernel: what is sent with a false source is seen with it, on
//! the interface that it passes and on no other.

use std::net::SocketAddrV4;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, UPLINK};
use ropewalk_netlab::capture::Capture;
use ropewalk_netlab::inject::Injector;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::topology::{Topology, TopologyConfig};

#[test]
fn a_false_source_is_seen_where_the_datagram_passes() {
    lab_test("a_false_source_is_seen_where_the_datagram_passes", || {
        let topology = Topology::build(&TopologyConfig::new(Vec::new())).unwrap();
        let watch = |namespace, interface| {
            Capture::start(namespace, interface, Vec::new(), |seen, frame| {
                if let Some(udp) = frame.udp() {
                    seen.push((udp.from, udp.to, frame.outgoing, udp.payload.to_vec()));
                }
            })
        };
        let at_proxy = watch(topology.proxy(), UPLINK).unwrap();
        let leaving = watch(topology.internet(), "proxy").unwrap();
        let beside = watch(topology.internet(), "server").unwrap();
        assert!(watch(topology.internet(), "nowhere").is_err());

        let from: SocketAddrV4 = "198.51.100.7:53".parse().unwrap();
        let to = SocketAddrV4::new(PROXY_V4, 51_900);
        let injector = Injector::open(topology.internet()).unwrap();
        for payload in [&b"one"[..], &[7; 1400]] {
            injector.send(from, to, payload).unwrap();
        }
        let started = Instant::now();
        let both = || at_proxy.look(|seen| seen.len()).min(leaving.look(|seen| seen.len())) == 2;
        while !both() && started.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(5));
        }
        let expected = |outgoing| {
            [&b"one"[..], &[7; 1400]]
                .map(|payload| (from.into(), to.into(), outgoing, payload.to_vec()))
        };
        at_proxy.look(|seen| assert_eq!(seen[..], expected(false)));
        leaving.look(|seen| assert_eq!(seen[..], expected(true)));
        beside.look(|seen| assert!(seen.is_empty(), "{seen:?}"));
    });
}
