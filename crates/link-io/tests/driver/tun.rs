//! The kernel's TUN.

use crate::namespace::{ip, isolated, run};
use nix::sys::socket::{setsockopt, sockopt::UdpGsoSegment};
use ropewalk_link_io::tun::{Drained, LinuxTun, Tun, TunControl, TunError, TunOffload, TunOptions};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::sink::PacketSink;
use ropewalk_settings::Switch;
use std::future::poll_fn;
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[test]
fn packets_pass_through_the_kernel_both_ways() {
    for offload in [Switch::On, Switch::Off] {
        packets_pass(offload);
    }
}

fn packets_pass(offload: Switch) {
    isolated(move || async move {
        let mut tun = open_with("rwdrv0", offload).expect("a TUN");
        assert_eq!(tun.name(), "rwdrv0");
        assert_eq!(run("cat", "/proc/net/dev").matches("rwdrv0").count(), 1);
        ip("addr add 10.9.0.1/24 dev rwdrv0");
        let socket = UdpSocket::bind("10.9.0.1:5000").expect("our address");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        for index in 0..5_u8 {
            socket.send_to(&[index; 100], "10.9.0.2:6000").expect("a route");
        }
        // The packet read is turned round and written back: the socket hears itself.
        turn_packets_round(&mut tun, 5, 3).await;
        for index in 0..5_u8 {
            let mut buffer = [0; 200];
            let (len, from) = socket.recv_from(&mut buffer).expect("an answer");
            assert_eq!(
                (&buffer[..len], from.to_string()),
                (&[index; 100][..], "10.9.0.2:6000".into())
            );
        }
        assert_eq!(tun.counters().packets_out, 5);
        tun.sink().deliver(Packet::whole(b"this is no IP packet"));
        assert_eq!(tun.counters().dropped_out, 1);
        tun.flush().expect("one bad packet is no error");
    });
}

#[test]
fn the_mtu_is_set_at_run_time_and_the_queue_is_long() {
    isolated(|| async {
        let mut tun = open("rwdrv0").expect("a TUN");
        let link = run("ip", "link show rwdrv0");
        assert!(link.contains("mtu 1400") && link.contains(",UP"), "{link}");
        // Only the machine's own root may ask for a longer queue; elsewhere the TUN does without.
        let own = std::fs::read_to_string("/proc/self/uid_map").expect("a map");
        let own = own.split_whitespace().last() == Some("4294967295");
        assert!(link.contains("qlen 1000") || !own, "{link}");
        assert!(link.starts_with(&format!("{}:", tun.index())), "{link}");
        tun.set_mtu(1280).expect("an MTU");
        assert!(run("ip", "link show rwdrv0").contains("mtu 1280"));
        assert!(matches!(tun.set_mtu(10), Err(TunError::Io { .. })));
        drop(tun);
        assert!(!run("ip", "link show").contains("rwdrv0"), "it goes with its owner");
    });
}

#[test]
fn a_tun_that_cannot_be_opened_says_why() {
    isolated(|| async {
        let first = open("rwdrv0").expect("a TUN");
        let error = open("rwdrv0").err().expect("taken");
        assert!(matches!(&error, TunError::Taken { name } if name == "rwdrv0"), "{error}");
        assert!(error.to_string().contains("configure another name"));
        drop(first);
        ip("link add rwdrv1 type veth peer name rwdrv2");
        for name in ["rwdrv1", "", "a-name-of-more-than-15", "a/b", "%d"] {
            let error = open(name).err().expect("no such TUN");
            assert!(matches!(&error, TunError::Name { .. }), "{name}: {error}");
        }
    });
}

#[test]
fn a_deleted_tun_wakes_the_reader_and_says_so() {
    isolated(|| async {
        let mut tun = open("rwdrv0").expect("a TUN");
        let drained = read_all(&mut tun);
        assert_eq!(drained.expect("it is there"), Drained::Yes);
        ip("link set rwdrv0 down");
        tun.sink().deliver(Packet::whole(&[0x45; 20]));
        tun.flush().expect("down is not gone");
        ip("link del rwdrv0");
        let error = loop {
            let woken = poll_fn(|cx| tun.poll_readable(cx));
            timeout(Duration::from_secs(10), woken).await.expect("news");
            if let Err(error) = read_all(&mut tun) {
                break error;
            }
            tokio::task::yield_now().await;
        };
        assert!(matches!(&error, TunError::Gone { name } if name == "rwdrv0"), "{error}");
        tun.sink().deliver(Packet::whole(&[0x45; 20]));
        assert!(matches!(tun.flush(), Err(TunError::Gone { .. })));
    });
}

#[test]
fn kernel_tcp_passes_in_super_packets_and_without() {
    for (family, offload) in [
        ("10.9.0.1", Switch::On),
        ("fd09::1", Switch::On),
        ("10.9.0.1", Switch::Off),
        ("fd09::1", Switch::Off),
    ] {
        isolated(move || async move {
            let mut tun = open_with("rwdrv0", offload).expect("a TUN");
            let (sent, received) = echo_tcp(&mut tun, family.parse().expect("an address")).await;
            assert_eq!(sent, received, "{family} {offload:?}");
            let counters = tun.counters();
            println!("{family} {offload:?}: {counters:?}");
            let is_on = offload == Switch::On;
            assert_eq!(tun.offload(), TunOffload { reads: is_on, writes: is_on });
            assert_eq!((counters.dropped_in, counters.dropped_out), (0, 0));
            assert_eq!(counters.calls_in * 4 < counters.packets_in, is_on, "{counters:?}");
            assert_eq!(counters.calls_out * 4 < counters.packets_out, is_on, "{counters:?}");
        });
    }
}

#[test]
fn udp_in_super_packets_is_parted_and_joined() {
    isolated(|| async {
        let mut tun = open_with("rwdrv0", Switch::On).expect("a TUN");
        ip("addr add 10.9.0.1/24 dev rwdrv0");
        let socket = UdpSocket::bind("10.9.0.1:5000").expect("our address");
        setsockopt(&socket, UdpGsoSegment, &1000).expect("Linux 4.18");
        let payload: Vec<u8> = (0..30_500_u32).map(|n| (n % 251) as u8).collect();
        socket.send_to(&payload, "10.9.0.2:6000").expect("a route");
        // Turned round, so that they come from port 6000 to 5000.
        // Fewer at a time than there are, so that a super packet is handed out in several turns.
        turn_packets_round(&mut tun, 31, 7).await;
        let counters = tun.counters();
        assert!(counters.calls_in < 10 && counters.calls_out < 10, "{counters:?}");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        for expected in payload.chunks(1000) {
            let mut buffer = [0; 2000];
            let (len, _) = socket.recv_from(&mut buffer).expect("a datagram");
            assert_eq!(&buffer[..len], expected);
        }
    });
}

#[test]
fn no_super_packet_is_longer_than_the_buffer_whatever_is_sent() {
    isolated(|| async {
        let mut tun = open_with("rwdrv0", Switch::On).expect("a TUN");
        ip("addr add 10.9.0.1/24 dev rwdrv0");
        ip("addr add fd09::1/64 dev rwdrv0 nodad");
        // The most that UDP takes: over IPv4 the longest packet there is, over IPv6 longer than that.
        for (own, to, size, headers, most) in [
            ("10.9.0.1:5000", "10.9.0.2:6000", 1300, 28, 65_507),
            ("[fd09::1]:5000", "[fd09::2]:6000", 1213, 48, 54 * 1213),
        ] {
            let socket = UdpSocket::bind(own).expect("our address");
            setsockopt(&socket, UdpGsoSegment, &size).expect("Linux 4.18");
            let sent: Vec<u8> = (0..most).map(|n: u32| (n % 251) as u8).collect();
            socket.send_to(&sent, to).expect("a route");
            let mut came = Vec::new();
            while came.len() < sent.len() {
                let woken = poll_fn(|cx| tun.poll_readable(cx));
                timeout(Duration::from_secs(10), woken).await.expect("a packet");
                let drained = tun.read_batch(64, |packet, _, _| {
                    let port = packet.get(headers - 6..headers - 4);
                    if port == Some(&6000_u16.to_be_bytes()[..]) {
                        came.extend_from_slice(&packet[headers..]);
                    }
                });
                drained.map(|_: Drained| ()).expect("the TUN is there");
            }
            assert!(came == sent, "{own}");
            println!("{own}: {:?}", tun.counters());
        }
        assert_eq!(tun.counters().dropped_in, 0);
    });
}

#[test]
fn a_persistent_tun_that_had_offload_is_used_without_and_the_other_way_round() {
    isolated(|| async {
        ip("tuntap add rwdrv0 mode tun");
        for offload in [Switch::On, Switch::Off, Switch::On] {
            let mut tun = open_with("rwdrv0", offload).expect("a TUN");
            let (sent, received) = echo_tcp(&mut tun, "10.9.0.1".parse().expect("one")).await;
            assert_eq!(sent, received, "{offload:?}");
            let counters = tun.counters();
            assert_eq!(counters.calls_in < counters.packets_in, offload == Switch::On);
            drop(tun);
            ip("addr flush dev rwdrv0");
        }
    });
}

/// Sends a megabyte by TCP from the TUN's address to its neighbour, for whom the TUN answers as a mirror: what goes
/// there comes back from there. Returns what was sent and what came.
pub(crate) async fn echo_tcp(tun: &mut impl Tun, address: IpAddr) -> (Vec<u8>, Vec<u8>) {
    let (prefix, neighbour) = match address {
        IpAddr::V4(_) => ("24", "10.9.0.2"),
        IpAddr::V6(_) => ("64 nodad", "fd09::2"),
    };
    ip(&format!("addr add {address}/{prefix} dev rwdrv{}", &tun.name()[5..]));
    let listener = TcpListener::bind((address, 7000)).await.expect("our address");
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|n| (n % 253) as u8).collect();
    let sent = bytes.clone();
    let client = async {
        let to = (neighbour.parse::<IpAddr>().expect("an address"), 7000);
        let mut stream = TcpStream::connect(to).await.expect("a mirror");
        stream.write_all(&sent).await.expect("a stream");
        stream.shutdown().await.expect("a stream");
    };
    let server = async {
        let (mut stream, _) = listener.accept().await.expect("a client");
        let mut received = Vec::new();
        stream.read_to_end(&mut received).await.expect("a stream");
        received
    };
    let mirror = async {
        loop {
            poll_fn(|cx| tun.poll_readable(cx)).await;
            let drained = tun.read_batch(64, |packet, checksum, sink| {
                assert!(packet.len() <= 1400, "{}", packet.len());
                let (from, len) = if packet[0] >> 4 == 4 { (12, 4) } else { (8, 16) };
                for at in from..from + len {
                    packet.swap(at, at + len);
                }
                pass(sink, packet, checksum);
            });
            drained.map(|_: Drained| ()).expect("the TUN is there");
            tun.flush().expect("the TUN is there");
            tokio::task::yield_now().await;
        }
    };
    let transfer = async { tokio::join!(client, server).1 };
    tokio::select! {
        received = timeout(Duration::from_secs(60), transfer) => (bytes, received.expect("in time")),
        () = mirror => unreachable!("the mirror never ends"),
    }
}

/// Reads UDP packets, at most `limit` at a time, and writes them back turned round, until so many came.
async fn turn_packets_round(tun: &mut LinuxTun, count: usize, limit: usize) {
    let mut packets = 0;
    while packets < count {
        let woken = poll_fn(|cx| tun.poll_readable(cx));
        timeout(Duration::from_secs(10), woken).await.expect("a packet");
        let drained = tun.read_batch(limit, |packet, checksum, sink| {
            // Not the kernel's own IPv6 announcements.
            if packet[0] == 0x45 && packet[9] == 17 {
                turn_round(packet);
                pass(sink, packet, checksum);
                packets += 1;
            }
        });
        drained.map(|_: Drained| ()).expect("the TUN is there");
    }
    tun.flush().expect("the TUN is there");
}

/// Writes a packet that was read.
fn pass(sink: &mut impl PacketSink, bytes: &[u8], checksum: Checksum) {
    sink.deliver(Packet { bytes, checksum });
}

fn open(name: &str) -> Result<LinuxTun, TunError> {
    open_with(name, Switch::Auto)
}

fn open_with(name: &str, offload: Switch) -> Result<LinuxTun, TunError> {
    LinuxTun::open(&TunOptions { name: name.to_owned(), mtu: 1400, offload })
}

fn read_all(tun: &mut LinuxTun) -> Result<Drained, TunError> {
    tun.read_batch(1000, |_, _, _| {})
}

/// Exchanges addresses and ports of a UDP packet; the checksums stay right.
fn turn_round(packet: &mut [u8]) {
    for offset in 0..4 {
        packet.swap(12 + offset, 16 + offset);
    }
    packet.swap(20, 22);
    packet.swap(21, 23);
}
