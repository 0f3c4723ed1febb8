//! A client that is told to stop while it carries traffic.

#![cfg(target_os = "linux")]
#![expect(clippy::print_stdout, reason = "the figures are what a reader wants to see")]

use std::collections::BTreeSet;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::SERVER_V4;
use ropewalk_netlab::deployment::Deployment;
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::status::Status;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_settings::Bitrate;

/// Packets of a burst: a quarter of a second of the links.
const PACKETS: u32 = 200;
const SIZE: usize = 1200;
/// A second for the goodbye at most, and what a busy machine takes to undo routes and rules.
const SOON: Duration = Duration::from_secs(3);
/// The burst is over when nothing has come for this long.
const QUIET: Duration = Duration::from_secs(1);

#[test]
fn a_client_that_stops_during_a_transfer_sends_what_waits_and_is_gone_soon() {
    lab_test("a_client_that_stops_during_a_transfer_sends_what_waits_and_is_gone_soon", || {
        let (rate, time) = (Bitrate::from_mbps(4), Duration::from_millis);
        let wan = |rtt| WanConfig::from(Access::symmetric(rate, time(rtt), time(500)));
        let config = TopologyConfig::new(vec![wan(20), wan(60)]);
        let mut stage = Stage::build(Path::new(env!("CARGO_BIN_EXE_ropewalk")), &config).unwrap();
        stage.start([0, 1]).unwrap();

        // What comes down does not hold it up.
        let url = stage.url(20_000_000, 1);
        let (deployment, topology) = stage.split();
        let came = thread::scope(|scope| {
            let curl = Curl { interface: None, limit: Some(Duration::from_secs(5)) };
            let download =
                scope.spawn(move || curl.download(topology.client(), &url, |_| {}).unwrap());
            thread::sleep(Duration::from_millis(1500));
            stop(deployment);
            download.join().unwrap()
        });
        assert!(came.bytes > 100_000, "{came:?}");

        // What goes up arrives. On a busy machine packets may grow too old before the client hears the signal.
        assert!((0..3).any(|_| burst(&mut stage) == PACKETS as usize));
    });
}

/// Sends a burst upstream and stops the client while most of it waits. Returns how many packets arrived.
fn burst(stage: &mut Stage) -> usize {
    stage.connect([0, 1]).expect("the client starts again");
    stage.settled_mtu().expect("the client answers");
    let near = bound(stage.topology().client(), ([0; 4], 0).into());
    let far = bound(stage.topology().server(), (SERVER_V4, 0).into());
    let to = far.local_addr().expect("it is bound");
    thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&far));
        for number in 0..PACKETS {
            let mut packet = [0; SIZE];
            packet[..4].copy_from_slice(&number.to_be_bytes());
            near.send_to(&packet, to).expect("the TUN takes it");
        }
        // The client reads them from the TUN.
        thread::sleep(Duration::from_millis(20));
        let told = Instant::now();
        stop(stage.deployment());
        let (numbers, last) = receiver.join().expect("the receiver ends");
        println!(
            "{} of {PACKETS} came, the last {:?} after the signal",
            numbers.len(),
            last - told
        );
        numbers.len()
    })
}

/// Stops the client and looks at both ends.
fn stop(deployment: &mut Deployment) {
    let told = Instant::now();
    let client = deployment.client(0).expect("the client runs");
    let ended = client.stop(SOON).expect("the client ends in time");
    println!("the client ended {:?} after the signal", told.elapsed());
    assert!(ended.success(), "{ended}");
    let status = Status(deployment.proxy_status().expect("the proxy answers"));
    assert_eq!(
        (&status.tunnel()["state"], status.tunnel()["session"].is_null()),
        (&"closed".into(), true)
    );
}

/// The numbers of the packets that come, and when the last did.
fn receive(socket: &UdpSocket) -> (BTreeSet<u32>, Instant) {
    let (mut numbers, mut last) = (BTreeSet::new(), Instant::now());
    let mut packet = [0; SIZE];
    socket.set_read_timeout(Some(QUIET)).expect("a time that can be set");
    while let Ok(len) = socket.recv(&mut packet) {
        assert_eq!(len, SIZE);
        numbers.insert(u32::from_be_bytes([packet[0], packet[1], packet[2], packet[3]]));
        last = Instant::now();
    }
    (numbers, last)
}

fn bound(namespace: &Namespace, address: SocketAddr) -> UdpSocket {
    let socket = namespace.run(|| UdpSocket::bind(address)).expect("the namespace is there");
    socket.expect("the address is there")
}
