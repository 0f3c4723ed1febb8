use super::checksum::{fold, sum};
use super::*;
use proptest::prelude::*;

/// The header of a UDP packet from 192.168.0.1:5000 to 192.168.0.199:53; 0xb861 is its checksum at a
/// length of 0x73 (a well-known example).
pub(crate) const UDP_V4: &[u8] = &[
    0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01,
    0xc0, 0xa8, 0x00, 0xc7, 0x13, 0x88, 0x00, 0x35, 0x00, 0x5f, 0x00, 0x00,
];

/// The header of a UDP packet from [2001:db8::1]:5000 to [2001:db8::2]:53, traffic class 0xb9 (EF,
/// ECT(1)).
pub(crate) const UDP_V6: &[u8] = &[
    0x6b, 0x90, 0x00, 0x00, 0x00, 0x08, 0x11, 0x40, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,
    0, 0, 0, 1, 0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0x13, 0x88, 0x00, 0x35,
    0x00, 0x08, 0x00, 0x00,
];

/// `header` with a payload up to `total` bytes.
pub(crate) fn v4(header: &[u8], total: u16) -> Vec<u8> {
    let mut packet = header.to_vec();
    packet.resize(usize::from(total), 0xa5);
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    packet
}

/// `header` with a payload up to `total` bytes.
pub(crate) fn v6(header: &[u8], total: u16) -> Vec<u8> {
    let mut packet = header.to_vec();
    packet.resize(usize::from(total), 0xa5);
    packet[4..6].copy_from_slice(&(total - 40).to_be_bytes());
    packet
}

/// Whether the parts together, of even length but the last, carry a right checksum. Independent of the
/// code under test: the one's complement sum is the number modulo 0xffff, taken byte by byte.
pub(crate) fn checksum_is_right(parts: &[&[u8]]) -> bool {
    let mut bytes = parts.concat();
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    let remainder = bytes.iter().fold(0, |rest, byte| (rest * 256 + u32::from(*byte)) % 0xffff);
    remainder == 0 && bytes.iter().any(|byte| *byte != 0)
}

#[test]
fn a_udp_packet_is_read() {
    let bytes = v4(UDP_V4, 0x73);
    assert!(checksum_is_right(&[&bytes[..20]]));
    let view = PacketView::parse(&bytes).expect("a packet");
    assert_eq!(view.source().to_string(), "192.168.0.1");
    assert_eq!(view.destination().to_string(), "192.168.0.199");
    assert_eq!((view.protocol(), view.ports()), (protocol::UDP, Some((5000, 53))));
    assert!(view.dont_fragment());
    assert_eq!(
        (view.fragment(), view.traffic_class(), view.ecn()),
        (Fragment::Whole, 0, Ecn::NotEct)
    );

    let view = PacketView::parse(UDP_V6).expect("a packet");
    assert_eq!(view.source().to_string(), "2001:db8::1");
    assert_eq!(view.destination().to_string(), "2001:db8::2");
    assert_eq!((view.protocol(), view.ports()), (protocol::UDP, Some((5000, 53))));
    assert!(view.dont_fragment());
    assert_eq!((view.traffic_class() >> 2, view.ecn()), (46, Ecn::Ect1));
}

#[test]
fn lengths_must_fit_the_bytes() {
    type Change = fn(&mut Vec<u8>);
    use PacketError::{Length, Short, Version};
    let table: [(&str, &[u8], Change, PacketError); 9] = [
        ("nothing", UDP_V4, Vec::clear, Short),
        ("half a header", UDP_V4, |p| p.truncate(19), Short),
        ("version 5", UDP_V4, |p| p[0] = 0x55, Version),
        ("header of 16 bytes", UDP_V4, |p| p[0] = 0x44, Length),
        ("header longer than the packet", UDP_V4, |p| p[0] = 0x4f, Length),
        ("total length too long", UDP_V4, |p| p[3] += 1, Length),
        ("bytes behind the end", UDP_V4, |p| p.push(0), Length),
        ("half an IPv6 header", UDP_V6, |p| p.truncate(39), Short),
        ("IPv6 payload too short", UDP_V6, |p| p[5] -= 1, Length),
    ];
    for (name, header, change, error) in table {
        let mut packet = if header[0] >> 4 == 4 { v4(header, 28) } else { header.to_vec() };
        assert!(PacketView::parse(&packet).is_ok());
        change(&mut packet);
        assert_eq!(PacketView::parse(&packet).err(), Some(error), "{name}");
    }
}

#[test]
fn fragments_show_no_ports() {
    for (flags, fragment) in
        [([0x20, 0], Fragment::First), ([0x20, 9], Fragment::Later), ([0, 9], Fragment::Later)]
    {
        let mut packet = v4(UDP_V4, 100);
        packet[6..8].copy_from_slice(&flags);
        let view = PacketView::parse(&packet).expect("a packet");
        assert_eq!((view.fragment(), view.ports()), (fragment, None));
    }
}

#[test]
fn ipv6_extension_headers_are_walked() {
    // Hop-by-hop (8 bytes), destination options (16), fragment (offset and "more" given), then UDP.
    let packet = |offset_and_more: u16| {
        let [high, low] = offset_and_more.to_be_bytes();
        let mut bytes = UDP_V6[..40].to_vec();
        bytes[6] = 0;
        bytes.extend([60, 0, 1, 4, 0, 0, 0, 0]);
        bytes.extend([44, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend([17, 0, high, low, 0, 0, 0, 1]);
        bytes.extend(&UDP_V6[40..]);
        let total = u16::try_from(bytes.len()).expect("short");
        v6(&bytes, total)
    };
    let table = [
        (0, Fragment::Whole, Some((5000, 53))),
        (1, Fragment::First, None),
        (8 | 1, Fragment::Later, None),
        (8, Fragment::Later, None),
    ];
    for (field, fragment, ports) in table {
        let bytes = packet(field);
        let view = PacketView::parse(&bytes).expect("a packet");
        assert_eq!(
            (view.protocol(), view.fragment(), view.ports()),
            (17, fragment, ports),
            "{field}"
        );
        assert_eq!(view.transport().is_empty(), fragment == Fragment::Later);
    }
    let endless = v6(&[&[0x60, 0, 0, 0, 0, 0, 0, 64][..], &[0; 32]].concat(), 1500);
    let view = PacketView::parse(&endless).expect("a packet");
    assert_eq!(view.ports(), None);
}

#[test]
fn flows_are_told_apart_by_addresses_protocol_and_ports() {
    let key = |packet: &[u8]| PacketView::parse(packet).expect("a packet").flow_key();
    let base = v4(UDP_V4, 100);
    let mut seen = vec![key(&base)];
    for (at, value) in [(9, 6), (15, 2), (19, 9), (21, 1), (23, 54)] {
        let mut other = base.clone();
        other[at] = value;
        assert!(!seen.contains(&key(&other)), "byte {at}");
        seen.push(key(&other));
    }
    let mut same = v4(UDP_V4, 1000);
    (same[1], same[5], same[8], same[40]) = (3, 7, 9, 11);
    assert_eq!(key(&same), seen[0], "length, marks, identification and contents do not matter");
    let (mut first, mut later) = (base.clone(), base);
    first[6..8].copy_from_slice(&[0x20, 0]);
    later[6..8].copy_from_slice(&[0, 50]);
    (first[21], later[21]) = (1, 2);
    assert_eq!(key(&first), key(&later), "fragments by their addresses alone");
}

#[test]
fn flow_keys_spread_evenly() {
    let mut buckets = [0_u32; 16];
    for port in 0..16_000_u16 {
        let mut packet = v4(UDP_V4, 60);
        packet[20..22].copy_from_slice(&port.to_be_bytes());
        let key = PacketView::parse(&packet).expect("a packet").flow_key().0;
        buckets[usize::try_from(key % 16).expect("small")] += 1;
    }
    assert!(buckets.iter().all(|count| (850..1150).contains(count)), "{buckets:?}");
}

#[test]
fn marks_are_set_and_the_checksum_stays_right() {
    for tos in 0..=255 {
        for ecn in [Ecn::NotEct, Ecn::Ect0, Ecn::Ect1, Ecn::Ce] {
            let mut packet = v4(UDP_V4, 0x73);
            packet[1] = tos;
            packet[10..12].fill(0);
            let checksum = !fold(sum(0, &packet[..20]));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            assert!(checksum_is_right(&[&packet[..20]]));
            set_ecn(&mut packet, ecn);
            assert!(checksum_is_right(&[&packet[..20]]), "{tos} {ecn:?}");
            let view = PacketView::parse(&packet).expect("a packet");
            assert_eq!((view.traffic_class() >> 2, view.ecn()), (tos >> 2, ecn));
        }
    }
    let mut packet = UDP_V6.to_vec();
    set_ecn(&mut packet, Ecn::Ce);
    assert_eq!(packet[..2], [0x6b, 0xb0]);
    assert_eq!(PacketView::parse(&packet).expect("a packet").traffic_class() >> 2, 46);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), mtu: u16) {
        for first in [None, Some(0x45), Some(0x60)] {
            if let (Some(first), Some(byte)) = (first, bytes.first_mut()) {
                *byte = first;
            }
            if let Ok(len) = u16::try_from(bytes.len())
                && bytes.len() >= 40
            {
                let (at, length) = if first == Some(0x60) { (4, len - 40) } else { (2, len) };
                bytes[at..at + 2].copy_from_slice(&length.to_be_bytes());
            }
            if let Ok(view) = PacketView::parse(&bytes) {
                let _ = (view.ports(), view.flow_key(), view.ecn(), view.dont_fragment());
                let from = if view.source().is_ipv4() {
                    IpAddr::V4(Ipv4Addr::LOCALHOST)
                } else {
                    IpAddr::V6(Ipv6Addr::LOCALHOST)
                };
                if let Some(answer) = icmp::too_big(&view, mtu, from) {
                    prop_assert!(PacketView::parse(&answer).is_ok());
                }
            }
            set_ecn(&mut bytes, Ecn::Ce);
        }
    }
}
