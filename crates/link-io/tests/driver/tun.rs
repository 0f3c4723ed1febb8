//! The kernel's TUN.

use crate::namespace::{ip, isolated, run};
use ropewalk_link_io::tun::{Drained, LinuxTun, Tun, TunControl, TunError, TunOptions};
use ropewalk_proto::sink::PacketSink;
use std::fs::File;
use std::future::poll_fn;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::time::timeout;
use tun_rs::DeviceBuilder;

#[test]
fn packets_pass_through_the_kernel_both_ways() {
    isolated(|| async {
        let mut tun = open("rwdrv0").expect("a TUN");
        assert_eq!(tun.name(), "rwdrv0");
        assert_eq!(run("cat", "/proc/net/dev").matches("rwdrv0").count(), 1);
        ip("addr add 10.9.0.1/24 dev rwdrv0");
        let socket = UdpSocket::bind("10.9.0.1:5000").expect("our address");
        socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        for index in 0..5_u8 {
            socket.send_to(&[index; 100], "10.9.0.2:6000").expect("a route");
        }
        // The packet read is turned round and written back: the socket hears itself.
        let mut packets = 0;
        while packets < 5 {
            let woken = poll_fn(|cx| tun.poll_readable(cx));
            timeout(Duration::from_secs(10), woken).await.expect("a packet");
            let drained = tun.read_batch(3, |packet, sink| {
                // Not the kernel's own IPv6 announcements.
                if packet[0] == 0x45 && packet[9] == 17 {
                    turn_round(packet);
                    sink.deliver(packet);
                    packets += 1;
                }
            });
            drained.map(|_: Drained| ()).expect("the TUN is there");
        }
        tun.flush().expect("the TUN is there");
        for index in 0..5_u8 {
            let mut buffer = [0; 200];
            let (len, from) = socket.recv_from(&mut buffer).expect("an answer");
            assert_eq!(
                (&buffer[..len], from.to_string()),
                (&[index; 100][..], "10.9.0.2:6000".into())
            );
        }
        assert_eq!(tun.counters().packets_out, 5);
        tun.sink().deliver(b"this is no IP packet");
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
fn an_inherited_descriptor_is_used_as_it_is() {
    isolated(|| async {
        let builder = DeviceBuilder::new().name("rwdrv7").mtu(1300).packet_information(false);
        let parent = builder.build_sync().expect("a TUN");
        let fd = parent.as_fd().try_clone_to_owned().expect("a descriptor is free");
        drop(parent);
        let mut tun = LinuxTun::from_fd(fd).expect("a TUN");
        assert_eq!(tun.name(), "rwdrv7");
        assert_eq!(read_all(&mut tun).expect("it is there"), Drained::Yes);
        let file = File::open("/dev/null").expect("it is there");
        let error = LinuxTun::from_fd(file.into()).err().expect("no TUN");
        assert!(matches!(error, TunError::Io { .. }), "{error}");
    });
}

#[test]
fn a_deleted_tun_wakes_the_reader_and_says_so() {
    isolated(|| async {
        let mut tun = open("rwdrv0").expect("a TUN");
        let drained = read_all(&mut tun);
        assert_eq!(drained.expect("it is there"), Drained::Yes);
        ip("link set rwdrv0 down");
        tun.sink().deliver(&[0x45; 20]);
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
        tun.sink().deliver(&[0x45; 20]);
        assert!(matches!(tun.flush(), Err(TunError::Gone { .. })));
    });
}

fn open(name: &str) -> Result<LinuxTun, TunError> {
    LinuxTun::open(&TunOptions { name: name.to_owned(), mtu: 1400 })
}

fn read_all(tun: &mut LinuxTun) -> Result<Drained, TunError> {
    tun.read_batch(1000, |_, _| {})
}

/// Exchanges addresses and ports of a UDP packet; the checksums stay right.
fn turn_round(packet: &mut [u8]) {
    for offset in 0..4 {
        packet.swap(12 + offset, 16 + offset);
    }
    packet.swap(20, 22);
    packet.swap(21, 23);
}
