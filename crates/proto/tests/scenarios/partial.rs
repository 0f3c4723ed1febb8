//! Packets whose TCP or UDP checksum is partial.

use ropewalk_netlab::lab::{PROXY, Towards};
use ropewalk_netlab::netem::Conditions;
use ropewalk_netlab::pair::{TunnelLab, conditions, forger, link_config, tunnels};
use ropewalk_proto::config::TunnelConfig;
use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::error::DropReason;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::path::{Path, SocketId};
use ropewalk_proto::sink::{PacketSink, TransmitSink};
use ropewalk_proto::units::{LinkId, SessionIndex};
use ropewalk_proto::wire::cursor::Writer;
use ropewalk_proto::wire::header::{CLEAR_LEN, Clear, Kind, SEALED_LEN, Sealed, TAG_LEN};
use ropewalk_settings::{Keepalive, Order, SchedulerKind};

use super::{SEED, s, settled};

/// What came, and whether its checksum was said to be partial.
#[derive(Default)]
struct Tun(Vec<(Vec<u8>, bool)>);

impl PacketSink for Tun {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.0.push((packet.bytes.to_vec(), packet.checksum == Checksum::Partial));
    }
}

/// Keeps datagrams.
#[derive(Default)]
struct Batch(Vec<Vec<u8>>);

impl TransmitSink for Batch {
    fn reserve(&mut self, _: Path, _: Ecn, len: usize) -> Option<&mut [u8]> {
        self.0.push(vec![0; len]);
        self.0.last_mut().map(Vec::as_mut_slice)
    }

    fn commit(&mut self, len: usize) {
        self.0.last_mut().expect("reserved before").truncate(len);
    }

    fn has_room(&mut self, _: &[Path], _: usize) -> bool {
        true
    }
}

fn config(partial_checksums: bool) -> TunnelConfig {
    TunnelConfig { partial_checksums, ..TunnelConfig::default() }
}

/// A TCP or UDP packet of `len` bytes, with its checksum whole and partial.
fn packet(is_v4: bool, protocol: u8, len: usize) -> [Vec<u8>; 2] {
    let mut packet: Vec<u8> = (0..len).map(|n| u8::try_from(n * 7 % 251).expect("small")).collect();
    let total = u16::try_from(len).expect("a packet");
    let start = if is_v4 { 20 } else { 40 };
    let covered_len = total - if is_v4 { 20 } else { 40 };
    if is_v4 {
        packet[..12].copy_from_slice(&[0x45, 2, 0, 0, 0, 9, 0x40, 0, 64, protocol, 0, 0]);
        packet[2..4].copy_from_slice(&total.to_be_bytes());
        packet[12..20].copy_from_slice(&[192, 0, 2, 9, 10, 77, 0, 2]);
        let checksum = 0xffff - remainder(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    } else {
        packet[..4].copy_from_slice(&[0x60, 0x20, 0, 0]);
        packet[4..6].copy_from_slice(&covered_len.to_be_bytes());
        (packet[6], packet[7]) = (protocol, 64);
    }
    let at = start + if protocol == 6 { 16 } else { 6 };
    if protocol == 6 {
        packet[start + 12] = 0x50;
    } else {
        packet[start + 4..start + 6].copy_from_slice(&covered_len.to_be_bytes());
    }
    packet[at..at + 2].fill(0);
    let addresses = if is_v4 { &packet[12..20] } else { &packet[8..40] };
    let pseudo = [addresses, &covered_len.to_be_bytes(), &[0, protocol]].concat();
    let partial = remainder(&pseudo);
    let checksum = 0xffff - remainder(&[&pseudo, &packet[start..]].concat());
    [checksum, partial].map(|checksum| {
        let mut packet = packet.clone();
        packet[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        packet
    })
}

/// The bytes as one long number, modulo 0xffff: what a one's complement sum is.
fn remainder(bytes: &[u8]) -> u16 {
    let odd = [0][..bytes.len() % 2].iter();
    let rest = bytes.iter().chain(odd).fold(0_u32, |rest, b| (rest * 256 + u32::from(*b)) % 0xffff);
    u16::try_from(rest).expect("below 0xffff")
}

const ALL: [(bool, u8); 4] = [(true, 6), (true, 17), (false, 6), (false, 17)];

/// The datagrams in which the proxy sends these packets, whose checksums are partial.
fn sealed(lab: &mut TunnelLab, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    // What the lab has under way is not to be among them.
    let mut batch = Batch::default();
    lab.proxy.poll_transmit(lab.now, &mut batch);
    batch.0.clear();
    for packet in packets {
        lab.proxy.handle_partial(lab.now, &mut packet.clone(), &mut Tun::default());
    }
    lab.proxy.poll_transmit(lab.now, &mut batch);
    batch.0
}

/// Hands datagrams to the client.
fn open(lab: &mut TunnelLab, datagrams: Vec<Vec<u8>>, outer: Ecn) -> Tun {
    let mut tun = Tun::default();
    for mut datagram in datagrams {
        let path = Path { socket: SocketId(datagram[1].into()), local: None, remote: PROXY };
        lab.client.handle_datagram(lab.now, path, outer, &mut datagram, &mut tun);
    }
    tun
}

fn refused(lab: &TunnelLab) -> u64 {
    lab.client.stats().drops.get(DropReason::PartialChecksum)
}

#[test]
fn a_checksum_is_left_only_to_a_peer_that_completes_it_and_only_in_large_packets() {
    for (is_v4, protocol) in ALL {
        for (completes, len, is_left) in
            [(true, 1400, true), (true, 300, false), (false, 1400, false)]
        {
            let mut lab = settled(&config(completes), Keepalive::Off, &[(10.0, 20)]);
            let [whole, partial] = packet(is_v4, protocol, len);
            let datagrams = sealed(&mut lab, std::slice::from_ref(&partial));
            assert_eq!(datagrams.len(), 1);
            let came = open(&mut lab, datagrams, Ecn::Ect0).0;
            let expected = if is_left { partial } else { whole };
            assert_eq!(came, [(expected, is_left)], "{is_v4} {protocol} {len}");
        }
    }
}

#[test]
fn packets_that_wait_for_their_order_keep_what_was_said_of_their_checksums() {
    // In turn over the links, and each waits for all before it.
    let config = TunnelConfig {
        scheduling: SchedulerKind::RoundRobin.into(),
        order: Order::Global,
        ..config(true)
    };
    let mut lab = settled(&config, Keepalive::Off, &[(10.0, 20), (10.0, 20)]);
    let packets: Vec<_> = (0..6).map(|n| packet(n % 2 == 0, 6, 1000 + n)[1].clone()).collect();
    let mut datagrams = sealed(&mut lab, &packets);
    // All of one link before any of the one that had the first packet: so they wait.
    let first = datagrams[0][1];
    datagrams.sort_by_key(|datagram| datagram[1] == first);
    assert!(datagrams.len() == 6 && datagrams[0][1] != first);
    let others = datagrams.iter().filter(|datagram| datagram[1] != first).count();
    let mut early = open(&mut lab, datagrams.drain(..others).collect(), Ecn::Ect0).0;
    assert_eq!(early.len(), 0, "nothing is in its order yet");
    early.extend(open(&mut lab, datagrams, Ecn::Ect0).0);
    assert!(early.iter().all(|(_, is_partial)| *is_partial));
    let came: Vec<_> = early.into_iter().map(|(packet, _)| packet).collect();
    assert!(came == packets, "in their order, as they were sent");
}

#[test]
fn a_congestion_mark_is_combined_beside_a_partial_checksum() {
    for (is_v4, protocol) in ALL {
        let mut lab = settled(&config(true), Keepalive::Off, &[(10.0, 20)]);
        let [_, partial] = packet(is_v4, protocol, 1400);
        let datagrams = sealed(&mut lab, std::slice::from_ref(&partial));
        let came = open(&mut lab, datagrams, Ecn::Ce).0;
        let mut expected = partial;
        if is_v4 {
            expected[1] |= 3;
            expected[10..12].fill(0);
            let checksum = 0xffff - remainder(&expected[..20]);
            expected[10..12].copy_from_slice(&checksum.to_be_bytes());
        } else {
            expected[1] |= 0x30;
        }
        assert_eq!(came, [(expected, true)]);
    }
}

#[test]
fn a_packet_in_two_parts_is_whole() {
    let config = config(true);
    let mut lab = tunnels(&config, &config, SEED);
    let narrow = Conditions { mtu: 1300, ..conditions(10.0, 10, 100) };
    let path = lab.add_link(narrow.clone(), narrow, SEED);
    let link = link_config("wan0", path, Keepalive::Off);
    lab.client.add_link(lab.now, &link).expect("few links");
    lab.run_until(lab.now + s(5));
    let [whole, partial] = packet(false, 6, 1280);
    let datagrams = sealed(&mut lab, &[partial]);
    assert_eq!(datagrams.len(), 2);
    assert_eq!(open(&mut lab, datagrams, Ecn::NotEct).0, [(whole, false)]);
}

#[test]
fn a_packet_that_is_too_big_is_quoted_with_its_whole_checksum() {
    let mut lab = settled(&config(true), Keepalive::Off, &[(10.0, 20)]);
    let [whole, partial] = packet(true, 6, 1500);
    let mut tun = Tun::default();
    lab.proxy.handle_partial(lab.now, &mut partial.clone(), &mut tun);
    let (answer, is_partial) = tun.0.pop().expect("an answer");
    assert!(!is_partial && answer[28..] == whole[..answer.len() - 28]);
}

#[test]
fn a_mark_on_anything_else_or_towards_an_end_that_completes_nothing_drops_the_packet() {
    type Change = fn(&mut Vec<u8>);
    let beyond_the_end: Change = |p| {
        p.truncate(70);
        (p[2], p[3], p[32]) = (0, 70, 0xf0);
    };
    let table: [(&str, bool, bool, u8, Change); 11] = [
        ("nobody asked for it", false, true, 6, |_| {}),
        ("ICMP", true, true, 6, |p| p[9] = 1),
        ("a first fragment", true, true, 6, |p| p[6] = 0x20),
        ("a later fragment", true, true, 17, |p| p[7] = 9),
        ("an extension header", true, false, 6, |p| p[6] = 60),
        ("a fragment header", true, false, 17, |p| p[6] = 44),
        ("a TCP header beyond the end", true, true, 6, beyond_the_end),
        ("a wrong UDP length", true, true, 17, |p| p[25] ^= 1),
        ("no packet", true, true, 6, |p| p[0] = 0x50),
        ("half a packet", true, true, 6, |p| p.splice(.., [0x10, 0, 1, 2, 3]).for_each(drop)),
        ("nothing else", true, true, 6, |p| p.truncate(1)),
    ];
    for (name, completes, is_v4, protocol, change) in table {
        let mut lab = settled(&config(completes), Keepalive::Off, &[(10.0, 20)]);
        let [_, mut packet] = packet(is_v4, protocol, 1000);
        change(&mut packet);
        packet[0] |= 0x80;
        let came = open(&mut lab, vec![forged(&packet)], Ecn::Ect0).0;
        assert_eq!(came, [], "{name}");
        assert_eq!(refused(&lab), 1, "{name}");
    }
    // The byte by which a packet is told from others behind the order counts for nothing on the wire.
    let mut lab = settled(&config(true), Keepalive::Off, &[(10.0, 20)]);
    let disguised = [&[0x30], &packet(true, 6, 1000)[1][..]].concat();
    assert_eq!(open(&mut lab, vec![forged(&disguised)], Ecn::Ect0).0, []);
    assert_eq!(lab.client.stats().drops.get(DropReason::PacketMalformed), 1);
    assert_eq!(refused(&lab), 0);
}

/// A datagram as the proxy would seal it, far ahead of those that it sent.
fn forged(body: &[u8]) -> Vec<u8> {
    let (link, number) = (LinkId(0), 5000);
    let receiver = SessionIndex::new(9);
    let clear = Clear { kind: Kind::Data, phase: 0, link, receiver, number }.to_bytes();
    let mut datagram = clear.to_vec();
    datagram.resize(CLEAR_LEN + SEALED_LEN, 0);
    let sealed = Sealed { send_time: 0, global: 0, previous_on_link: 0, previous_of_flow: 0 };
    sealed.emit(&mut Writer::new(&mut datagram[CLEAR_LEN..])).expect("room");
    datagram.extend_from_slice(body);
    datagram.resize(datagram.len() + TAG_LEN, 0);
    forger(Towards::Client)
        .seal(link, number.into(), &clear, &mut datagram[CLEAR_LEN..])
        .expect("a number used once");
    datagram
}
