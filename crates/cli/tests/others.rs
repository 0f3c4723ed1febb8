//! Another program on the client's machine shares an interface with the tunnel: NATALIE's auto-weights leave it its part.

#![cfg(target_os = "linux")]

use std::net::UdpSocket;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use ropewalk_netlab::access::Access;
use ropewalk_netlab::address::{client_v4, gateway_v4};
use ropewalk_netlab::machine;
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::stage::Stage;
use ropewalk_netlab::topology::{TopologyConfig, WanConfig};
use ropewalk_netlab::traffic::UdpSender;
use ropewalk_settings::Bitrate;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ropewalk");

/// What the other program sends or receives, of the 10 Mbit/s of the first link, bit/s of UDP payload.
const OTHERS: u64 = 6_000_000;

#[test]
fn what_another_program_moves_on_an_interface_is_left_to_it_within_a_second() {
    lab_test("what_another_program_moves_on_an_interface_is_left_to_it_within_a_second", || {
        let wan = |rtt_ms| {
            let (rtt, queue) = (Duration::from_millis(rtt_ms), Duration::from_millis(100));
            WanConfig::from(Access::symmetric(Bitrate::from_mbps(10), rtt, queue))
        };
        let config = TopologyConfig::new(vec![wan(20), wan(20)]);
        let mut stage = Stage::build(Path::new(PROGRAM), &config).unwrap();
        stage.start(0..2).unwrap();
        let mtu = stage.settled_mtu().unwrap();
        let folder = stage.deployment().folder().to_owned();
        for socket in ["client0.sock", "proxy.sock"] {
            ropewalk(&folder.join(socket), &["set", "scheduler", "natalie"]);
        }
        for link in ["wan0", "wan1"] {
            let rates = ["rate_up=10 Mbit/s", "rate_down=10 Mbit/s"];
            ropewalk(&folder.join("client0.sock"), &["links", "set", link, rates[0], rates[1]]);
        }
        let (client, router) =
            (stage.topology().client(), stage.topology().routers()[0].namespace());
        let (here, there) = (bound(client, client_v4(0, 0)), bound(router, gateway_v4(0, 0)));
        for direction in ["up", "down"] {
            let (from, to) = if direction == "up" { (&here, &there) } else { (&there, &here) };
            let beside = UdpSender {
                to: Some(to.local_addr().unwrap()),
                bits_per_second: OTHERS,
                size: 1400,
                duration: Duration::from_secs(4),
            };
            let length = Duration::from_secs(8);
            let measure = || {
                thread::scope(|scope| {
                    let stream = scope.spawn(|| match direction {
                        "up" => stage.stream_up(5_000_000, mtu, length),
                        _ => stage.stream_down(5_000_000, mtu, length),
                    });
                    thread::sleep(Duration::from_millis(1500));
                    let alone = share_of_first(&stage, direction, Duration::from_millis(1500));
                    let beside = scope.spawn(|| beside.run(from));
                    thread::sleep(Duration::from_secs(1));
                    let shared = share_of_first(&stage, direction, Duration::from_secs(2));
                    beside.join().unwrap().unwrap();
                    (stream.join().unwrap().unwrap(), alone, shared)
                })
            };
            let (came, alone, shared) = machine::in_time(measure);
            assert_eq!(came.lost, 0, "{direction}: {came:?}");
            println!(
                "{direction}: the first link's share is {alone:.1} % alone, {shared:.1} % shared"
            );
            assert!((alone - 50.0).abs() < 8.0, "{direction}: {alone} %");
            // 10 - 6.2 of 20 - 6.2 Mbit/s.
            assert!((shared - 27.6).abs() < 8.0, "{direction}: {shared} %");
        }
    });
}

/// A socket of the other program.
fn bound(namespace: &Namespace, address: std::net::Ipv4Addr) -> UdpSocket {
    let socket = namespace.run(|| UdpSocket::bind((address, 0))).expect("the namespace is there");
    socket.expect("the address is there")
}

/// The first link's share of what the tunnel moves in the next `time`, in percent.
fn share_of_first(stage: &Stage, direction: &str, time: Duration) -> f64 {
    let bytes = || {
        let status = stage.client_status().expect("the client answers");
        ["wan0", "wan1"].map(|link| status.bytes(link, direction))
    };
    let before = bytes();
    thread::sleep(time);
    let after = bytes();
    #[expect(clippy::cast_precision_loss, reason = "a few megabytes")]
    let [first, second] = [0, 1].map(|link| (after[link] - before[link]) as f64);
    100.0 * first / (first + second)
}

fn ropewalk(socket: &Path, args: &[&str]) {
    let mut ropewalk = Command::new(PROGRAM);
    let done = ropewalk.args(args).arg("--socket").arg(socket).output();
    let done = done.expect("the program runs");
    assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
}
