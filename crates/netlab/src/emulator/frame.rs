//! What the emulator must know of an Ethernet frame: the size of its content, and the ECN bits of
//! IPv4 (RFC 3168) and IPv6 (RFC 8200 §3), to read and to mark.

use ropewalk_proto::ecn::Ecn;

/// Destination, source, type; a TAP delivers neither VLAN tag nor checksum.
pub(crate) const ETHERNET_HEADER: usize = 14;
/// The largest frame: a full IPv4 packet behind an Ethernet header.
pub(crate) const MAX_FRAME: usize = ETHERNET_HEADER + 65_535;

const TYPE: usize = 12;
const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];
/// Offsets in the frame.
const TOS: usize = ETHERNET_HEADER + 1;
const IPV4_CHECKSUM: usize = ETHERNET_HEADER + 10;
const IPV4_MIN_FRAME: usize = ETHERNET_HEADER + 20;
const IPV6_MIN_FRAME: usize = ETHERNET_HEADER + 40;

enum Content {
    Ipv4,
    Ipv6,
    Other,
}

fn content(frame: &[u8]) -> Content {
    let version = frame.get(ETHERNET_HEADER).map(|byte| byte >> 4);
    match frame.get(TYPE..ETHERNET_HEADER) {
        Some(kind) if kind == IPV4 && version == Some(4) && frame.len() >= IPV4_MIN_FRAME => {
            Content::Ipv4
        }
        Some(kind) if kind == IPV6 && version == Some(6) && frame.len() >= IPV6_MIN_FRAME => {
            Content::Ipv6
        }
        _ => Content::Other,
    }
}

/// Bytes behind the Ethernet header.
pub(crate) fn ip_size(frame: &[u8]) -> usize {
    frame.len().saturating_sub(ETHERNET_HEADER)
}

/// The ECN bits; what is not IP is not ECN-capable.
pub(crate) fn ecn(frame: &[u8]) -> Ecn {
    match content(frame) {
        Content::Ipv4 => Ecn::from_tos(frame[TOS]),
        // The traffic class lies across two bytes; its low two bits are bits 5 and 4 of the second.
        Content::Ipv6 => Ecn::from_tos(frame[ETHERNET_HEADER + 1] >> 4),
        Content::Other => Ecn::NotEct,
    }
}

/// Sets CE and, in IPv4, corrects the header checksum (RFC 1624, equation 3).
pub(crate) fn mark_ce(frame: &mut [u8]) {
    match content(frame) {
        Content::Ipv4 => {
            let word = |frame: &[u8], at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
            let before = word(frame, ETHERNET_HEADER);
            frame[TOS] |= Ecn::Ce.bits();
            let after = word(frame, ETHERNET_HEADER);
            let sum =
                u32::from(!word(frame, IPV4_CHECKSUM)) + u32::from(!before) + u32::from(after);
            let folded = (sum & 0xffff) + (sum >> 16);
            let folded = (folded & 0xffff) + (folded >> 16);
            let checksum = !u16::try_from(folded).expect("two folds leave 16 bits");
            frame[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        Content::Ipv6 => frame[ETHERNET_HEADER + 1] |= Ecn::Ce.bits() << 4,
        Content::Other => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ipv4(tos: u8, identification: u16) -> Vec<u8> {
        let mut frame = vec![0; ETHERNET_HEADER + 28];
        frame[TYPE..ETHERNET_HEADER].copy_from_slice(&IPV4);
        frame[ETHERNET_HEADER] = 0x45;
        frame[TOS] = tos;
        frame[18..20].copy_from_slice(&identification.to_be_bytes());
        let checksum = !ones_sum(&frame[ETHERNET_HEADER..IPV4_MIN_FRAME]);
        frame[IPV4_CHECKSUM..IPV4_CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
        frame
    }

    fn ipv6(class: u8) -> Vec<u8> {
        let mut frame = vec![0; IPV6_MIN_FRAME];
        frame[TYPE..ETHERNET_HEADER].copy_from_slice(&IPV6);
        frame[ETHERNET_HEADER] = 0x60 | class >> 4;
        frame[ETHERNET_HEADER + 1] = class << 4 | 0x0a;
        frame
    }

    /// RFC 1071, written from its definition.
    fn ones_sum(bytes: &[u8]) -> u16 {
        let mut sum: u32 =
            bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(sum).unwrap()
    }

    #[test]
    fn a_mark_keeps_the_ipv4_checksum_right() {
        for identification in 0..=u16::MAX {
            for tos in [0x01, 0x02, 0xfe] {
                let mut frame = ipv4(tos, identification);
                mark_ce(&mut frame);
                assert_eq!(frame[TOS], tos | 3);
                let sum = ones_sum(&frame[ETHERNET_HEADER..IPV4_MIN_FRAME]);
                assert_eq!(sum, 0xffff, "tos {tos:#x}, identification {identification:#x}");
            }
        }
    }

    #[test]
    fn a_mark_changes_two_bits_of_the_ipv6_traffic_class() {
        let mut frame = ipv6(0b1011_0110);
        assert_eq!(ecn(&frame), Ecn::Ect0);
        mark_ce(&mut frame);
        assert_eq!(frame, ipv6(0b1011_0111));
        assert_eq!(ecn(&frame), Ecn::Ce);
    }

    #[test]
    fn what_is_not_ip_is_left_alone() {
        let mut arp = vec![0xff; 42];
        arp[TYPE..ETHERNET_HEADER].copy_from_slice(&[0x08, 0x06]);
        let mut wrong_version = ipv4(2, 0);
        wrong_version[ETHERNET_HEADER] = 0x65;
        let whole = ipv4(2, 0);
        for cut in 0..IPV4_MIN_FRAME {
            let mut frame = whole[..cut].to_vec();
            mark_ce(&mut frame);
            assert_eq!((ecn(&frame), &frame[..]), (Ecn::NotEct, &whole[..cut]));
        }
        for mut frame in [arp, wrong_version] {
            let before = frame.clone();
            assert_eq!(ecn(&frame), Ecn::NotEct);
            mark_ce(&mut frame);
            assert_eq!(frame, before);
        }
        assert_eq!(ip_size(&[0; 3]), 0);
        assert_eq!(ip_size(&[0; 1514]), 1500);
    }
}
