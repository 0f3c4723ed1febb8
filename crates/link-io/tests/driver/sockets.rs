//! Datagrams over a real kernel: paths, marks, trains, errors, full sockets.

use crate::namespace::{ip, isolated, run};
use ropewalk_link_io::clock::Clock;
use ropewalk_link_io::offload::UdpOffload;
use ropewalk_link_io::udp::{
    ClientSocket, LANE_BYTES, OffloadInUse, OpenError, ProxySocket, ReceivedDatagram, SendError,
    SendErrorKind, Sockets, open_group,
};
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::TransmitSink;
use ropewalk_settings::Switch;
use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;
use tokio::time::timeout;

const MARKS: [Ecn; 4] = [Ecn::NotEct, Ecn::Ect1, Ecn::Ect0, Ecn::Ce];

#[test]
fn a_datagram_travels_with_its_path_its_mark_and_its_arrival_time() {
    isolated(|| async {
        let table = [
            ("IPv4 only", Some("0.0.0.0"), "127.0.0.1"),
            ("IPv4, one address", Some("127.0.0.1"), "127.0.0.1"),
            ("IPv6, one address", Some("::1"), "::1"),
            ("both families, IPv4", None, "127.0.0.1"),
            ("both families, IPv6", None, "::1"),
        ];
        for (case, bound, address) in table {
            let (mut client, client_id) = client(address);
            let (mut proxy, proxy_id) = proxy(bound);
            let path = client_path(client_id, &proxy, proxy_id, address);
            let before = client_clock().now();
            for mark in MARKS {
                put(client.out(), path, mark, b"ping");
            }
            flush_cleanly(&mut client);
            let heard = receive(&mut proxy, MARKS.len()).await;
            for (mark, (arrival, bytes)) in MARKS.into_iter().zip(heard) {
                let source = client.local_addr(client_id).expect("open");
                assert_eq!(bytes, b"ping", "{case}");
                assert_eq!(arrival.ecn, mark, "{case}");
                assert_eq!(arrival.path.socket, proxy_id, "{case}");
                assert_eq!(arrival.path.remote, source, "{case}");
                let wildcard = bound.is_none_or(|bound| bound == "0.0.0.0");
                let local = wildcard.then(|| address.parse().expect("an address"));
                assert_eq!(arrival.path.local, local, "{case}");
                assert!(arrival.at >= before, "{case}: {:?} < {before:?}", arrival.at);
                // The answer goes back on the path it came by.
                put(proxy.out(), arrival.path, mark, b"pong");
            }
            flush_cleanly(&mut proxy);
            for (mark, (arrival, bytes)) in
                MARKS.into_iter().zip(receive(&mut client, MARKS.len()).await)
            {
                assert_eq!((bytes.as_slice(), arrival.ecn), (b"pong".as_slice(), mark), "{case}");
                assert_eq!(arrival.path, path, "{case}");
            }
        }
    });
}

#[test]
fn an_answer_leaves_from_the_address_that_was_asked() {
    isolated(|| async {
        ip("addr add fd00::2/128 dev lo nodad");
        // The kernel routes to a new IPv6 address a moment after it has it.
        while !run("ip", "-6 route show table local").contains("fd00::2") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for (source, asked) in [("127.0.0.1", "127.0.0.2"), ("::1", "fd00::2")] {
            let (mut client, client_id) = client(source);
            let (mut proxy, proxy_id) = proxy(None);
            let path = client_path(client_id, &proxy, proxy_id, asked);
            put(client.out(), path, Ecn::NotEct, b"who are you?");
            flush_cleanly(&mut client);
            let (arrival, _) = receive(&mut proxy, 1).await.remove(0);
            put(proxy.out(), arrival.path, Ecn::NotEct, b"the one you asked");
            flush_cleanly(&mut proxy);
            let (arrival, _) = receive(&mut client, 1).await.remove(0);
            assert_eq!(arrival.path.remote, path.remote);
        }
    });
}

#[test]
fn trains_arrive_as_the_datagrams_that_were_sent() {
    isolated(|| async {
        for address in ["127.0.0.1", "::1"] {
            for bound in [Some(address), None] {
                let (mut client, client_id) = client(address);
                let (mut proxy, proxy_id) = proxy(bound);
                let path = client_path(client_id, &proxy, proxy_id, address);
                let mut sent = Vec::new();
                for (run, mark) in MARKS.into_iter().cycle().take(8).enumerate() {
                    for (index, len) in
                        [1200, 1200, 1200, 700, 1300, 1300, 40].into_iter().enumerate()
                    {
                        let bytes = vec![u8::try_from(run * 7 + index).expect("small"); len];
                        put(client.out(), path, mark, &bytes);
                        sent.push((mark, bytes));
                    }
                }
                flush_cleanly(&mut client);
                let heard = receive(&mut proxy, sent.len()).await;
                for ((mark, bytes), (arrival, heard)) in sent.iter().zip(&heard) {
                    assert_eq!(heard, bytes, "{address} to {bound:?}");
                    assert_eq!(arrival.ecn, *mark, "{address} to {bound:?}, {} bytes", bytes.len());
                }
                let counters = client.counters(client_id).expect("open");
                assert_eq!(counters.datagrams_out, 56);
                assert_eq!(counters.calls_out, 16, "two trains each run");
            }
        }
    });
}

#[test]
fn what_exceeds_the_mtu_is_reported_and_the_rest_of_the_batch_goes_on() {
    isolated(|| async {
        ip("link set lo mtu 1500");
        let (mut client, client_id) = client("127.0.0.1");
        let (mut proxy, proxy_id) = proxy(None);
        let path = client_path(client_id, &proxy, proxy_id, "127.0.0.1");
        // 1472 + 28 = 1500.
        for len in [1472, 1473, 1600, 1600, 100, 1200, 1200] {
            put(client.out(), path, Ecn::NotEct, &vec![7; len]);
        }
        let mut errors = Vec::new();
        client.flush(|at, error| {
            assert_eq!(at, path);
            errors.push(error);
        });
        let too_big = |longest| SendError { kind: SendErrorKind::TooBig, datagrams: 1, longest };
        assert_eq!(errors, [too_big(1473), too_big(1600), too_big(1600)]);
        let heard: Vec<usize> =
            receive(&mut proxy, 4).await.iter().map(|(_, bytes)| bytes.len()).collect();
        assert_eq!(heard, [1472, 100, 1200, 1200]);
        let counters = client.counters(client_id).expect("open");
        assert_eq!((counters.datagrams_out, counters.errors_out), (4, 3));
        assert_eq!(counters.trains_split, 1);
        // Offload is still in use: one call for a train.
        for _ in 0..10 {
            put(client.out(), path, Ecn::NotEct, &[7; 1200]);
        }
        flush_cleanly(&mut client);
        assert_eq!(client.counters(client_id).expect("open").calls_out, counters.calls_out + 1);
    });
}

#[test]
fn an_interface_that_goes_away_is_reported_and_stops_no_other_socket() {
    isolated(|| async {
        ip("link add rwdrv0 type veth peer name rwdrv1");
        ip("addr add 192.0.2.1/24 dev rwdrv0");
        ip("link set rwdrv0 up");
        ip("link set rwdrv1 up");
        let mut sockets = Sockets::new(client_clock());
        let options = ClientSocket {
            interface: "rwdrv0".into(),
            source: address_of("192.0.2.1"),
            mark: Some(7),
        };
        let link = sockets.open_client(&options).expect("the interface is there");
        let other = sockets.open_client(&lo("127.0.0.1")).expect("loopback");
        let (mut proxy, proxy_id) = proxy(None);
        let good = client_path(other, &proxy, proxy_id, "127.0.0.1");
        let remote = "192.0.2.9:9".parse().expect("an address");
        let lost = Path { socket: link, local: None, remote };
        let mut kinds = Vec::new();
        let mut sends = 0;
        let steps = ["addr add 192.0.2.2/24 dev rwdrv0", "link set rwdrv0 down", "link del rwdrv0"];
        for step in steps {
            ip(step);
            put(sockets.out(), lost, Ecn::NotEct, b"lost");
            put(sockets.out(), good, Ecn::NotEct, b"good");
            sockets.flush(|path, error| {
                assert_eq!(path, lost);
                kinds.push(error.kind);
            });
            sends += 1;
        }
        assert_eq!(receive(&mut proxy, sends).await.len(), sends);
        println!("down, deleted: {kinds:?}");
        assert_eq!(kinds.len(), 2, "none while it was up");
        for kind in &kinds {
            assert!(matches!(
                kind,
                SendErrorKind::Unreachable
                    | SendErrorKind::InterfaceDown
                    | SendErrorKind::InterfaceGone
            ));
        }
        assert!(sockets.close(link) && !sockets.close(link));
        put(sockets.out(), lost, Ecn::NotEct, b"closed");
        let mut kinds = Vec::new();
        assert_eq!(sockets.flush(|_, error| kinds.push(error.kind)), 1);
        assert_eq!(kinds, [SendErrorKind::Closed]);
    });
}

#[test]
fn a_destination_of_the_other_family_is_refused_without_harm() {
    isolated(|| async {
        let (mut client, client_id) = client("127.0.0.1");
        let remote = "[::1]:9".parse().expect("an address");
        put(client.out(), Path { socket: client_id, local: None, remote }, Ecn::NotEct, b"?");
        let mut errors = 0;
        assert_eq!(client.flush(|_, _| errors += 1), 1);
        assert_eq!(errors, 1);
    });
}

#[test]
fn an_offload_failure_is_forgotten_after_a_while_and_loses_nothing() {
    isolated(|| async {
        let (mut client, client_id) = client("::1");
        let (mut proxy, proxy_id) = proxy(None);
        let mut path = client_path(client_id, &proxy, proxy_id, "::1");
        // The source is none of ours: EINVAL, after which quinn-udp gives offload up for good.
        path.local = Some(address_of("fd00::99"));
        put(client.out(), path, Ecn::Ce, b"refused");
        let mut errors = 0;
        client.flush(|_, _| errors += 1);
        assert_eq!(errors, 1);
        path.local = None;
        let mut calls = Vec::new();
        for wait in [Duration::ZERO, Duration::from_millis(1100)] {
            tokio::time::sleep(wait).await;
            let before = client.counters(client_id).expect("open").calls_out;
            for _ in 0..4 {
                put(client.out(), path, Ecn::Ce, &[1; 100]);
            }
            flush_cleanly(&mut client);
            calls.push(client.counters(client_id).expect("open").calls_out - before);
        }
        assert_eq!(calls, [4, 1], "one by one, and later as a train");
        let heard = receive(&mut proxy, 8).await;
        assert!(heard[4..].iter().all(|(arrival, _)| arrival.ecn == Ecn::Ce));
    });
}

#[test]
fn a_train_that_the_kernel_refuses_goes_datagram_by_datagram_until_it_takes_trains_again() {
    isolated(|| async {
        let options = ProxySocket { address: Some(address_of("127.0.0.1")), port: 0 };
        let bound = open_group(&options, 1).expect("a port is free").remove(0);
        let handle = bound.as_fd().try_clone_to_owned().expect("a descriptor is free");
        let mut sockets = Sockets::new(client_clock());
        let id = sockets.adopt(bound).expect("room");
        let (mut proxy, proxy_id) = proxy(None);
        let path = client_path(id, &proxy, proxy_id, "127.0.0.1");
        // After each wait: whether trains are refused, the calls that takes, and all trains that were refused.
        let table = [
            ("at first", 0, false, 1, 0),
            ("refused", 0, true, 10, 1),
            ("not tried again at once", 0, false, 10, 1),
            ("tried again after a second, and refused", 1100, true, 10, 2),
            ("not tried again after one second more", 1100, false, 10, 2),
            ("tried again after two", 1100, false, 1, 2),
            ("and still in use", 0, true, 10, 3),
        ];
        for (case, wait, is_refused, calls, split) in table {
            tokio::time::sleep(Duration::from_millis(wait)).await;
            refuse_trains(&handle, is_refused);
            let before = sockets.counters(id).expect("open").calls_out;
            let sent: Vec<_> = (0..10).map(|n| vec![n; if n == 9 { 40 } else { 1200 }]).collect();
            sent.iter().for_each(|bytes| put(sockets.out(), path, Ecn::NotEct, bytes));
            flush_cleanly(&mut sockets);
            let counters = sockets.counters(id).expect("open");
            assert_eq!(
                (counters.calls_out - before, counters.trains_split),
                (calls, split),
                "{case}"
            );
            let heard: Vec<_> =
                receive(&mut proxy, 10).await.into_iter().map(|(_, bytes)| bytes).collect();
            assert!(heard == sent, "{case}: nothing is lost or changed");
        }
    });
}

/// Makes the kernel answer trains with `EINVAL`, and nothing else: segments of a socket that computes no checksums would
/// have none.
fn refuse_trains(socket: &impl AsFd, refuse: bool) {
    use nix::libc::{SO_NO_CHECK, SOL_SOCKET, c_int, setsockopt};
    let (value, size) = (c_int::from(refuse), size_of::<c_int>());
    #[expect(unsafe_code, reason = "no library knows this option")]
    // SAFETY: the descriptor is a socket, and the kernel reads `size` bytes of `value`.
    let result = unsafe {
        setsockopt(
            socket.as_fd().as_raw_fd(),
            SOL_SOCKET,
            SO_NO_CHECK,
            std::ptr::from_ref(&value).cast(),
            u32::try_from(size).expect("small"),
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn the_longest_datagram_and_the_longest_trains_come_whole() {
    isolated(|| async {
        let (mut client, client_id) = client("127.0.0.1");
        let (mut proxy, proxy_id) = proxy(None);
        let path = client_path(client_id, &proxy, proxy_id, "127.0.0.1");
        // As many bytes as a lane has, in one datagram, in as many as a train may have, and in few.
        for len in [LANE_BYTES, LANE_BYTES / 64, 1472, 32_000] {
            let sent: Vec<_> = (0..LANE_BYTES / len)
                .map(|n| vec![u8::try_from(n).expect("at most 64"); len])
                .collect();
            sent.iter().for_each(|bytes| put(client.out(), path, Ecn::NotEct, bytes));
            let before = client.counters(client_id).expect("open").calls_out;
            flush_cleanly(&mut client);
            assert_eq!(client.counters(client_id).expect("open").calls_out - before, 1, "{len}");
            let heard: Vec<_> =
                receive(&mut proxy, sent.len()).await.into_iter().map(|(_, bytes)| bytes).collect();
            assert!(heard == sent, "{len}");
        }
    });
}

#[test]
fn trains_that_are_switched_off_are_neither_sent_nor_received() {
    isolated(|| async {
        let (on, off) = (Switch::On, Switch::Off);
        for (gso, gro) in [(on, on), (on, off), (off, on), (off, off)] {
            let offload = UdpOffload { gso, gro };
            let mut client = Sockets::with_offload(client_clock(), offload).expect("a new kernel");
            let client_id = client.open_client(&lo("::1")).expect("loopback");
            let mut proxy = Sockets::with_offload(client_clock(), offload).expect("a new kernel");
            let options = ProxySocket { address: None, port: 0 };
            let proxy_id = proxy.open_proxy(&options).expect("a port");
            let in_use = OffloadInUse { gso: gso == on, gro: gro == on };
            assert_eq!((client.offload(), proxy.offload()), (in_use, in_use));
            let path = client_path(client_id, &proxy, proxy_id, "::1");
            for _ in 0..20 {
                put(client.out(), path, Ecn::NotEct, &[7; 500]);
            }
            flush_cleanly(&mut client);
            let counters = client.counters(client_id).expect("open");
            assert_eq!((counters.datagrams_out, counters.trains_split), (20, 0));
            assert_eq!(counters.calls_out, if gso == on { 1 } else { 20 }, "{offload:?}");
            let heard = receive(&mut proxy, 20).await;
            assert!(heard.iter().all(|(_, bytes)| bytes == &[7; 500]), "{offload:?}");
        }
    });
}

#[test]
fn trains_go_on_after_the_mtu_fell_and_rose_again_and_lose_only_what_is_too_long() {
    isolated(|| async {
        let (mut client, client_id) = client("127.0.0.1");
        let (mut proxy, proxy_id) = proxy(None);
        let path = client_path(client_id, &proxy, proxy_id, "127.0.0.1");
        let mut calls = Vec::new();
        for (mtu, refused) in [(65_536, 0), (1400, 3), (65_536, 0)] {
            ip(&format!("link set lo mtu {mtu}"));
            let before = client.counters(client_id).expect("open").calls_out;
            for _ in 0..3 {
                put(client.out(), path, Ecn::NotEct, &[1; 1450]);
            }
            put(client.out(), path, Ecn::NotEct, &[2; 1000]);
            let mut errors = Vec::new();
            client.flush(|_, error| errors.push((error.kind, error.datagrams, error.longest)));
            assert_eq!(errors, vec![(SendErrorKind::TooBig, 1, 1450); refused], "MTU {mtu}");
            calls.push(client.counters(client_id).expect("open").calls_out - before);
            let heard = receive(&mut proxy, 4 - refused).await;
            assert_eq!(heard.last().expect("one at least").1, [2; 1000]);
        }
        assert_eq!(calls, [1, 1, 1], "the train, the only datagram that fits, the train");
    });
}

#[test]
fn a_full_socket_waits_and_holds_up_nobody() {
    isolated(|| async {
        ip("link add rwdrv0 type veth peer name rwdrv1");
        ip("addr add 192.0.2.1/24 dev rwdrv0");
        ip("link set rwdrv0 up");
        ip("link set rwdrv1 up");
        ip("neigh add 192.0.2.9 lladdr 02:00:00:00:00:09 dev rwdrv0");
        run("tc", "qdisc add dev rwdrv0 root tbf rate 80mbit burst 20000 limit 20000000");
        let mut sockets = Sockets::new(client_clock());
        let slow = ClientSocket {
            interface: "rwdrv0".into(),
            source: address_of("192.0.2.1"),
            mark: None,
        };
        let slow = sockets.open_client(&slow).expect("the interface is there");
        let other = sockets.open_client(&lo("127.0.0.1")).expect("loopback");
        let (mut proxy, proxy_id) = proxy(None);
        let good = client_path(other, &proxy, proxy_id, "127.0.0.1");
        let remote = "192.0.2.9:9".parse().expect("an address");
        let hung = Path { socket: slow, local: None, remote };
        let (mut wanted, mut fine) = (0, 0);
        // 8 MB into a buffer of 2 MB: it fills, whatever this machine's speed.
        while wanted < 6000 {
            for _ in 0..40 {
                put(sockets.out(), hung, Ecn::NotEct, &[3; 1400]);
                wanted += 1;
            }
            put(sockets.out(), good, Ecn::NotEct, b"good");
            fine += 1;
            assert!(!sockets.out().take_refused());
            flush_cleanly(&mut sockets);
            assert_eq!(receive(&mut proxy, 1).await.len(), 1);
        }
        let dropped = sockets.out().dropped();
        let before = sockets.counters(slow).expect("open").datagrams_out;
        let waiting = sockets.out().len() as u64;
        println!("{wanted} wanted, {before} taken, {waiting} wait, {dropped} dropped");
        assert!(dropped > 0 && waiting > 0);
        assert_eq!(before + waiting + dropped, wanted);
        while !sockets.out().is_empty() {
            let woken = poll_fn(|cx| sockets.poll_ready(cx));
            timeout(Duration::from_secs(20), woken).await.expect("writable again");
            flush_cleanly(&mut sockets);
            tokio::task::yield_now().await;
        }
        assert_eq!(sockets.counters(slow).expect("open").datagrams_out, before + waiting);
        assert_eq!(sockets.counters(other).expect("open").datagrams_out, fine);
    });
}

#[test]
fn a_socket_that_cannot_be_opened_says_why() {
    isolated(|| async {
        let mut sockets = Sockets::new(client_clock());
        let options = ClientSocket { interface: "rwnone".into(), ..lo("127.0.0.1") };
        let error = sockets.open_client(&options).expect_err("no such interface");
        assert!(matches!(&error, OpenError::NoInterface { interface } if interface == "rwnone"));
        let error = sockets.open_client(&lo("192.0.2.77")).expect_err("not ours");
        assert!(
            matches!(error, OpenError::NotOurs { address } if address == address_of("192.0.2.77"))
        );
        let first = sockets.open_proxy(&ProxySocket { address: None, port: 4433 }).expect("free");
        let error =
            sockets.open_proxy(&ProxySocket { address: None, port: 4433 }).expect_err("in use");
        assert!(matches!(error, OpenError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("in use"));
        sockets.close(first);
        // A process that another test is just starting may hold the descriptor for a moment.
        let again = loop {
            match sockets.open_proxy(&ProxySocket { address: None, port: 4433 }) {
                Ok(again) => break again,
                Err(OpenError::InUse { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
        };
        assert_ne!(first, again, "an old path must not name a new socket");
        while sockets.open_client(&lo("127.0.0.1")).is_ok() {}
        let error = sockets.open_client(&lo("127.0.0.1")).expect_err("too many");
        assert!(matches!(error, OpenError::TooMany { limit: 64 }));
    });
}

fn client_clock() -> Clock {
    static CLOCK: std::sync::OnceLock<Clock> = std::sync::OnceLock::new();
    *CLOCK.get_or_init(Clock::start)
}

fn address_of(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

fn lo(source: &str) -> ClientSocket {
    ClientSocket { interface: "lo".into(), source: address_of(source), mark: None }
}

fn client(source: &str) -> (Sockets, SocketId) {
    let mut sockets = Sockets::new(client_clock());
    let id = sockets.open_client(&lo(source)).expect("loopback is there");
    (sockets, id)
}

fn proxy(address: Option<&str>) -> (Sockets, SocketId) {
    let mut sockets = Sockets::new(client_clock());
    let address = address.map(address_of);
    let id = sockets.open_proxy(&ProxySocket { address, port: 0 }).expect("a port is free");
    (sockets, id)
}

fn client_path(socket: SocketId, proxy: &Sockets, proxy_id: SocketId, address: &str) -> Path {
    let port = proxy.local_addr(proxy_id).expect("open").port();
    Path { socket, local: None, remote: SocketAddr::new(address_of(address), port) }
}

fn put(out: &mut impl TransmitSink, path: Path, mark: Ecn, bytes: &[u8]) {
    out.reserve(path, mark, bytes.len()).expect("room").copy_from_slice(bytes);
    out.commit(bytes.len());
}

fn flush_cleanly(sockets: &mut Sockets) {
    sockets.flush(|path, error| panic!("{path:?}: {error:?}"));
}

/// Receives `count` datagrams, and fails if they do not come or if more come.
async fn receive(sockets: &mut Sockets, count: usize) -> Vec<(ReceivedDatagram, Vec<u8>)> {
    let mut heard = Vec::new();
    while heard.len() < count {
        let woken = poll_fn(|cx| sockets.poll_ready(cx));
        timeout(Duration::from_secs(10), woken).await.expect("a datagram");
        sockets.recv_batch(|now, arrival, bytes| {
            assert!(arrival.at <= now);
            heard.push((arrival, bytes.to_vec()));
        });
        tokio::task::yield_now().await;
    }
    assert_eq!(heard.len(), count);
    heard
}
