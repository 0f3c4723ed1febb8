//! The traffic tools over real namespaces and a NAT: they carry what they say and count it right.

#![expect(clippy::unwrap_used, reason = "a failed step fails the test")]

use std::net::{TcpListener, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use ropewalk_netlab::address::{PROXY_V4, PROXY_V6, SERVER_V4, client_v4};
use ropewalk_netlab::download::Curl;
use ropewalk_netlab::http::{HttpServer, body_sha256};
use ropewalk_netlab::namespace::Namespace;
use ropewalk_netlab::ping::Ping;
use ropewalk_netlab::privilege::lab_test;
use ropewalk_netlab::process::Process;
use ropewalk_netlab::tool;
use ropewalk_netlab::topology::{Topology, TopologyConfig, WanConfig};
use ropewalk_netlab::traffic::{UdpReceiver, UdpSender};

#[test]
fn curl_downloads_the_right_bytes_over_cubic() {
    lab_test("curl_downloads_the_right_bytes_over_cubic", || {
        let topology = build();
        let server = serve(topology.server());
        let curl = Curl { interface: Some("wan1".into()), limit: Some(Duration::from_secs(60)) };
        let mut told = 0;
        let done =
            curl.download(topology.client(), &server.url(3_000_000, 9), |b| told = b).unwrap();
        assert!(done.complete, "{done:?}");
        assert_eq!(done.bytes, 3_000_000);
        assert_eq!(done.sha256, body_sha256(3_000_000, 9));
        assert!(done.mbit > 1.0 && told <= done.bytes, "{done:?}");

        assert_eq!(done.congestion_control.as_deref(), Some("cubic"));
        let first_second = done.per_second.mbit(1)[0];
        assert!(first_second > 1.0 && done.message.is_empty(), "{done:?}");
        let other = format!("{}/reno", server.url(1_000, 9));
        let done = curl.download(topology.client(), &other, |_| {}).unwrap();
        assert_eq!(done.congestion_control.as_deref(), Some("reno"));
    });
}

#[test]
fn a_download_without_an_end_is_cut_by_its_limit() {
    lab_test("a_download_without_an_end_is_cut_by_its_limit", || {
        let topology = build();
        let server = serve(topology.server());
        let curl = Curl { interface: None, limit: Some(Duration::from_secs(1)) };
        let cut = curl.download(topology.client(), &server.url(u64::MAX, 1), |_| {}).unwrap();
        assert!(!cut.complete && cut.bytes > 0, "{cut:?}");
        assert!((0.9..5.0).contains(&cut.seconds), "{cut:?}");
        let later = cut.mbit_between(Duration::from_millis(300), Duration::from_millis(900));
        assert!(later > 0.0, "{cut:?}");
        // The server ends at once although a body is never complete.
        let started = Instant::now();
        drop(server);
        assert!(started.elapsed() < Duration::from_secs(5));
    });
}

#[test]
fn curl_uploads_the_right_bytes() {
    lab_test("curl_uploads_the_right_bytes", || {
        let topology = build();
        let server = serve(topology.server());
        let url = format!("http://{}/", server.address());
        let seen = Curl::default().upload(topology.client(), &url, 2_000_000, 4).unwrap();
        assert_eq!((seen.bytes, seen.sha256), (2_000_000, body_sha256(2_000_000, 4)));
    });
}

#[test]
fn a_udp_stream_reaches_a_receiver_behind_nat() {
    lab_test("a_udp_stream_reaches_a_receiver_behind_nat", || {
        let topology = build();
        let near = udp(topology.client(), client_v4(0, 0).into());
        let far = udp(topology.server(), SERVER_V4.into());
        let receiver = UdpReceiver {
            hello_to: Some(far.local_addr().unwrap()),
            quiet: Duration::from_secs(5),
            limit: Duration::from_secs(30),
        };
        let sender = UdpSender {
            to: None,
            bits_per_second: 2_000_000,
            size: 1_000,
            duration: Duration::from_secs(2),
        };
        let (received, sent) = thread::scope(|scope| {
            let sending = scope.spawn(|| sender.run(&far).unwrap());
            (receiver.run(&near).unwrap(), sending.join().unwrap())
        });
        assert_eq!((sent.packets, received.sent), (500, 500));
        assert_eq!((received.lost, received.duplicates, received.reordered), (0, 0, 0));
        assert_eq!(received.in_order_percent, 100.0);
        assert!((1.8..2.2).contains(&received.mbit), "{received:?}");
    });
}

#[test]
fn a_ping_counts_answers_and_silence() {
    lab_test("a_ping_counts_answers_and_silence", || {
        let topology = build();
        for target in [PROXY_V4.into(), PROXY_V6.into()] {
            let mut ping = Ping::new(target, 5);
            ping.interface = Some("wan1".into());
            let pinged = ping.run(topology.client()).unwrap();
            assert_eq!((pinged.sent, pinged.lost, pinged.rtt.count), (5, 0, 5), "{target}");
            assert!(pinged.rtt.p50_ms < 100.0, "{pinged:?}");
        }
        let mut silent = Ping::new("203.0.113.77".parse().unwrap(), 3);
        silent.patience = Duration::from_millis(200);
        let pinged = silent.run(topology.client()).unwrap();
        assert_eq!((pinged.sent, pinged.lost, pinged.rtt.count), (3, 3, 0));
    });
}

#[test]
fn a_process_is_waited_for_stopped_and_never_left() {
    lab_test("a_process_is_waited_for_stopped_and_never_left", || {
        let topology = build();
        let folder = tempfile::tempdir().unwrap();
        let start = |name: &str, script: &str| {
            Process::start(topology.client(), folder.path(), name, "sh", &["-c", script]).unwrap()
        };
        let soon = Duration::from_secs(10);

        // It runs inside: it sees the client's interfaces.
        let mut polite = start(
            "polite",
            "trap 'echo bye; exit 3' TERM; ip -br link; echo ready; while :; do sleep 0.05; done",
        );
        polite.wait_for_log("ready", soon).unwrap();
        assert!(polite.log().contains("wan1"), "{}", polite.log());
        assert_eq!(polite.stop(soon).unwrap().code(), Some(3));
        assert!(polite.log().contains("bye"));

        let early = start("early", "echo why; exit 1").wait_for_log("ready", soon).unwrap_err();
        assert!(early.to_string().contains("why"), "{early}");

        let dropped = start("dropped", "exec sleep 100");
        let id = dropped.id().to_string();
        assert!(tool::run("kill", &["-0", &id]).is_ok());
        drop(dropped);
        assert!(tool::run("kill", &["-0", &id]).is_err());
    });
}

fn build() -> Topology {
    Topology::build(&TopologyConfig::new(vec![WanConfig::default(); 2])).unwrap()
}

fn serve(namespace: &Namespace) -> HttpServer {
    let listener = namespace.run(|| TcpListener::bind((SERVER_V4, 80))).unwrap().unwrap();
    HttpServer::serve(listener, "cubic").unwrap()
}

fn udp(namespace: &Namespace, address: std::net::IpAddr) -> UdpSocket {
    namespace.run(|| UdpSocket::bind((address, 0))).unwrap().unwrap()
}
