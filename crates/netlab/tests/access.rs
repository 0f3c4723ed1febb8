//! Emulated access links inside the topology: the conditions asked for are those a program meets,
//! and they change under it.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{PROXY_V4, PROXY_V6, SERVER_V4};
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::emulator::Direction;
use ropewalk_netlab::error::LabError;
use ropewalk_netlab::http::{HttpServer, body_sha256};
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::queue::Rate;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;

#[test]
fn each_link_has_its_own_rate_and_delay() {
    lab_test("each_link_has_its_own_rate_and_delay", || {
        let topology = unequal();
        let listener = topology.server().run(|| TcpListener::bind((SERVER_V4, 80)));
        let server = HttpServer::serve(listener.unwrap().unwrap(), "cubic").unwrap();
        for (interface, mbit, rtt_ms) in [("wan0", 8.0, 10.0), ("wan1", 2.0, 100.0)] {
            for target in [PROXY_V4.into(), PROXY_V6.into()] {
                let mut ping = Ping::new(target, 10);
                ping.interface = Some(interface.into());
                let rtt = ping.run(topology.client()).unwrap().rtt;
                assert_eq!(rtt.count, 10, "{interface}");
                // Wide, since other tests run beside this one; the emulator has tests of its own.
                assert!((rtt_ms..rtt_ms + 20.0).contains(&rtt.p50_ms), "{interface}: {rtt:?}");
            }
            let limit = Some(Duration::from_secs(5));
            let curl = Curl { interface: Some(interface.into()), limit };
            let url = server.url(u64::MAX, 1);
            let download = curl.download(topology.client(), &url, |_| {}).unwrap();
            let goodput =
                download.mbit_between(Duration::from_millis(1_500), Duration::from_secs(5));
            // 52 of 1500 bytes are headers: at most 96.5 % is goodput.
            assert!((0.8 * mbit..0.97 * mbit).contains(&goodput), "{interface}: {goodput}");
        }
    });
}

#[test]
fn a_cut_is_silent_and_a_download_survives_it() {
    lab_test("a_cut_is_silent_and_a_download_survives_it", || {
        let topology = unequal();
        let listener = topology.server().run(|| TcpListener::bind((SERVER_V4, 80)));
        let server = HttpServer::serve(listener.unwrap().unwrap(), "cubic").unwrap();
        let curl = Curl { interface: Some("wan0".into()), ..Curl::default() };
        let download = thread::scope(|scope| {
            let url = server.url(2_500_000, 3);
            let client = topology.client();
            let download = scope.spawn(move || curl.download(client, &url, |_| {}));
            thread::sleep(Duration::from_secs(1));
            topology.cut(0, 0).unwrap();
            let mut ping = Ping::new(PROXY_V4.into(), 5);
            ping.patience = Duration::from_millis(300);
            assert_eq!(ping.run(topology.client()).unwrap().lost, 5);
            // The other link is none the worse for it.
            ping.interface = Some("wan1".into());
            assert_eq!(ping.run(topology.client()).unwrap().lost, 0);
            topology.restore(0, 0).unwrap();
            download.join().unwrap().unwrap()
        });
        assert!(download.complete && download.longest_stall_ms > 500.0, "{download:?}");
        assert_eq!(download.sha256, body_sha256(2_500_000, 3));
    });
}

#[test]
fn one_direction_can_be_slowed_down_alone() {
    lab_test("one_direction_can_be_slowed_down_alone", || {
        let topology = unequal();
        let ping = Ping::new(PROXY_V4.into(), 5);
        let delay = Duration::from_millis(150);
        topology.change(0, 0, Direction::Upstream, move |c| c.delay = delay).unwrap();
        let rtt = ping.run(topology.client()).unwrap().rtt;
        assert!((155.0..200.0).contains(&rtt.p50_ms), "{rtt:?}");
        topology
            .change_both(0, 0, |c| (c.delay, c.rate) = (Duration::ZERO, Rate::Unlimited))
            .unwrap();
        let rtt = ping.run(topology.client()).unwrap().rtt;
        assert!(rtt.p50_ms < 10.0, "{rtt:?}");
    });
}

#[test]
fn a_plain_link_cannot_be_changed() {
    lab_test("a_plain_link_cannot_be_changed", || {
        let topology = Topology::build(&TopologyConfig::new(vec![WanConfig::default()])).unwrap();
        for (client, wan) in [(0, 0), (0, 1), (1, 0)] {
            assert!(matches!(topology.cut(client, wan), Err(LabError::Unsupported(_))));
        }
    });
}

/// The links of the demo: 8 Mbit/s with 10 ms, 2 Mbit/s with 100 ms.
fn unequal() -> Topology {
    let link = |mbps, ms| {
        let queue = Duration::from_millis(100);
        Access::symmetric(Bitrate::from_mbps(mbps), Duration::from_millis(ms), queue).into()
    };
    Topology::build(&TopologyConfig::new(vec![link(8, 10), link(2, 100)])).unwrap()
}
