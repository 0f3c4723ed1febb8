//! One TUN, several workers: the kernel keeps a flow where it is written.

use crate::namespace::{ip, isolated, run};
use ropewalk_link_io::tun::{LinuxTun, Tun, TunControl, TunError, TunOptions, TunQueue};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::sink::PacketSink;
use ropewalk_settings::Switch;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

const QUEUES: u16 = 3;

fn options(name: &str) -> TunOptions {
    TunOptions { name: name.to_owned(), mtu: 1400, offload: Switch::On }
}

/// The queues of a new TUN with addresses of both families.
fn open() -> Vec<LinuxTun> {
    let queues = TunQueue::open(&options("rwdrv0"), QUEUES).expect("a TUN");
    ip("addr add 10.9.0.1/24 dev rwdrv0");
    ip("addr add fd00:9::1/64 dev rwdrv0 nodad");
    queues.into_iter().map(|queue| queue.drive().expect("a runtime")).collect()
}

/// A UDP packet. The checksum over IPv4 is left out, as may be.
fn packet(from: SocketAddr, to: SocketAddr, data: &[u8]) -> Vec<u8> {
    let mut udp = Vec::new();
    udp.extend(from.port().to_be_bytes());
    udp.extend(to.port().to_be_bytes());
    udp.extend(u16::try_from(8 + data.len()).expect("short").to_be_bytes());
    udp.extend([0, 0]);
    udp.extend(data);
    let mut packet = Vec::new();
    match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            packet.extend([0x45, 0]);
            packet.extend(u16::try_from(20 + udp.len()).expect("short").to_be_bytes());
            packet.extend([0, 0, 0, 0, 64, 17, 0, 0]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let sum = !sum(&packet);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(u16::try_from(udp.len()).expect("short").to_be_bytes());
            packet.extend([17, 64]);
            packet.extend(from.octets());
            packet.extend(to.octets());
            let mut covered = packet[8..40].to_vec();
            covered.extend([0, 17]);
            covered.extend(u16::try_from(udp.len()).expect("short").to_be_bytes());
            covered.extend(&udp);
            let sum = !sum(&covered);
            udp[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        addresses => panic!("{addresses:?}"),
    }
    packet.extend(udp);
    packet
}

/// The sum of RFC 1071.
fn sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    u16::try_from(sum).expect("folded")
}

/// The queue by which a UDP packet to this port comes.
async fn queue_of(queues: &mut [LinuxTun], port: u16) -> usize {
    for _ in 0..2_000 {
        for (number, queue) in queues.iter_mut().enumerate() {
            let mut found = false;
            let read = queue.read_batch(64, |packet, _, _| {
                let transport = if packet[0] >> 4 == 4 { 20 } else { 40 };
                let to = packet.get(transport + 2..transport + 4);
                found |= to == Some(&port.to_be_bytes()[..]);
            });
            assert!(read.is_ok(), "the TUN is there");
            if found {
                return number;
            }
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("no packet to port {port}");
}

#[test]
fn what_answers_a_packet_comes_by_the_queue_to_which_that_was_written() {
    isolated(|| async {
        let mut queues = open();
        for (ours, theirs) in [("10.9.0.1", "10.9.0.7"), ("fd00:9::1", "fd00:9::7")] {
            let socket = UdpSocket::bind((ours, 0)).expect("our address");
            socket.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
            let at = socket.local_addr().expect("bound");
            for flow in 0..12_u16 {
                let from = SocketAddr::new(theirs.parse().expect("an address"), 6000 + flow);
                // Also when the flow moves to another queue.
                for turn in 0..2 {
                    let number = usize::from((flow + turn) % QUEUES);
                    queues[number].sink().deliver(Packet::whole(&packet(from, at, b"ping")));
                    queues[number].flush().expect("the TUN is there");
                    let mut buffer = [0; 9];
                    let (len, heard) = socket.recv_from(&mut buffer).expect("it came");
                    assert_eq!((&buffer[..len], heard), (&b"ping"[..], from));
                    socket.send_to(b"pong", from).expect("a route");
                    assert_eq!(queue_of(&mut queues, from.port()).await, number, "{from}");
                }
            }
        }
    });
}

#[test]
fn packets_come_by_the_queues_that_are_attached_and_one_always_is() {
    isolated(|| async {
        let mut queues = open();
        let server = UdpSocket::bind("10.9.0.1:0").expect("our address");
        server.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
        let mut port = 7000;
        for attached in [vec![0, 1, 2], vec![1], vec![0, 2], vec![2], vec![0, 1, 2], vec![2]] {
            for (number, queue) in queues.iter_mut().enumerate() {
                if attached.contains(&number) {
                    queue.set_attached(true);
                }
            }
            for (number, queue) in queues.iter_mut().enumerate() {
                queue.set_attached(attached.contains(&number));
                queue.set_attached(attached.contains(&number));
            }
            // Flows that begin on our side.
            let mut found = BTreeSet::new();
            for _ in 0..32 {
                port += 1;
                server.send_to(b"first", ("10.9.0.7", port)).expect("a route");
                found.insert(queue_of(&mut queues, port).await);
            }
            assert_eq!(Vec::from_iter(found), attached, "by the 32nd flow");
            // What is written to the others is dropped, and nobody takes the interface for gone.
            for (number, queue) in queues.iter_mut().enumerate() {
                let before = queue.counters();
                let from = SocketAddr::new("10.9.0.7".parse().expect("an address"), port);
                let to = server.local_addr().expect("bound");
                queue.sink().deliver(Packet::whole(&packet(from, to, b"ping")));
                queue.flush().expect("the TUN is there");
                let now = queue.counters();
                let taken = u64::from(attached.contains(&number));
                let written = now.packets_out - before.packets_out;
                let dropped = now.dropped_out - before.dropped_out;
                assert_eq!((written, dropped), (taken, 1 - taken), "{number} of {attached:?}");
                if taken == 1 {
                    assert_eq!(server.recv(&mut [0; 8]).expect("it came"), 4);
                }
            }
        }
        // All ask; the last stays.
        queues.iter_mut().for_each(|queue| queue.set_attached(false));
        server.send_to(b"first", ("10.9.0.7", 9999)).expect("a route");
        assert_eq!(queue_of(&mut queues, 9999).await, 2);
    });
}

#[test]
fn the_interface_stays_until_its_last_queue_is_gone() {
    isolated(|| async {
        let mut queues = open();
        let link = run("ip", "link show rwdrv0");
        assert!(link.contains("mtu 1400") && link.contains(",UP"), "{link}");
        assert!(queues.iter().all(|queue| queue.name() == "rwdrv0"));
        assert!(queues.iter().all(|queue| queue.index() == queues[0].index()));
        while queues.len() > 1 {
            queues.pop();
            assert!(run("ip", "link show").contains("rwdrv0"), "{} queues are left", queues.len());
        }
        drop(queues);
        assert!(!run("ip", "link show").contains("rwdrv0"));
    });
}

#[test]
fn a_deleted_interface_is_told_to_every_queue() {
    isolated(|| async {
        let mut queues = open();
        queues[0].set_attached(false);
        ip("link del rwdrv0");
        queues[0].flush().expect("it has nothing to do with it");
        queues[0].set_attached(true);
        assert!(matches!(queues[0].flush(), Err(TunError::Gone { .. })), "it cannot be attached");
        for queue in &mut queues[1..] {
            queue.sink().deliver(Packet::whole(&[0x45; 20]));
            assert!(matches!(queue.flush(), Err(TunError::Gone { .. })));
        }
    });
}

#[test]
fn a_deleted_interface_that_is_made_again_has_all_its_queues() {
    isolated(|| async {
        let mut queues = open();
        let before = queues[0].index();
        // One that has no use for packets notices only when it wants some.
        queues[2].set_attached(false);
        ip("link del rwdrv0");
        for queue in &mut queues[..2] {
            queue.reopen().expect("the interface, or a queue of it");
        }
        queues[2].set_attached(true);
        assert!(matches!(queues[2].flush(), Err(TunError::Gone { .. })));
        queues[2].reopen().expect("a queue");
        assert!(queues.iter().all(|queue| queue.index() == queues[0].index()));
        assert_ne!(queues[0].index(), before);
        ip("addr add 10.9.0.1/24 dev rwdrv0");
        let server = UdpSocket::bind("10.9.0.1:0").expect("our address");
        let mut found = BTreeSet::new();
        for port in 7000..7064 {
            server.send_to(b"first", ("10.9.0.7", port)).expect("a route");
            found.insert(queue_of(&mut queues, port).await);
        }
        assert_eq!(Vec::from_iter(found), [0, 1, 2], "by the 64th flow");
        // The last that is attached stays so.
        queues.iter_mut().for_each(|queue| queue.set_attached(false));
        server.send_to(b"first", ("10.9.0.7", 9999)).expect("a route");
        assert_eq!(queue_of(&mut queues, 9999).await, 2);
    });
}

#[test]
fn an_interface_made_with_one_queue_is_told_from_one_that_is_no_tun() {
    isolated(|| async {
        ip("tuntap add dev rwdrv0 mode tun");
        let error = TunQueue::open(&options("rwdrv0"), 2).err().expect("one queue");
        assert!(matches!(&error, TunError::OneQueue { name } if name == "rwdrv0"), "{error}");
        assert_eq!(TunQueue::open(&options("rwdrv0"), 1).expect("a TUN").len(), 1);
        ip("tuntap add dev rwdrv1 mode tun multi_queue");
        assert_eq!(TunQueue::open(&options("rwdrv1"), 2).expect("a TUN").len(), 2);
        ip("link add rwdrv2 type veth peer name rwdrv3");
        let error = TunQueue::open(&options("rwdrv2"), 2).err().expect("no TUN");
        assert!(matches!(&error, TunError::Name { .. }), "{error}");
    });
}
