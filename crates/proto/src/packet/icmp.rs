//! The answer to a packet that is too big for the tunnel: ICMPv4 "fragmentation needed" (RFC 1191) or
//! ICMPv6 "packet too big" (RFC 4443 §3.2), with the inner MTU, so that the sender finds it.
//!
//! An answer is only made where the rules allow one (RFC 1812 §4.3.2.7, RFC 4443 §2.4): not about an
//! ICMP error, not about a fragment other than the first, not about a packet to or from an address that
//! stands for more than one host. IPv4 without DF asks for no answer: its router is to fragment it;
//! a tunnel whose TUN has the inner MTU never sees it, because the kernel did so before, and drops and
//! counts the rare one that arrives while the MTU is being lowered.
//!
//! The caller limits how often it answers (RFC 1812 §4.3.2.8).

use super::checksum::{fold, sum};
use super::{Fragment, IPV4_HEADER, IPV6_HEADER, PacketView, protocol};
use arrayvec::ArrayVec;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An ICMPv6 error may fill the smallest IPv6 MTU, and is the largest answer.
pub const ANSWER_MAX: usize = 1280;

/// An ICMPv4 error holds at most 576 bytes in all (RFC 1812 §4.3.2.3).
const ANSWER_MAX_V4: usize = 576;

/// Bytes of an ICMP header of either kind: type, code, checksum, and 4 that hold the MTU.
const ICMP_HEADER: usize = 8;

/// No IPv6 link has a smaller MTU, and no sender takes one for its path (RFC 8201 §4).
const IPV6_MIN_MTU: usize = 1280;

/// The initial time to live, as common kernels have it.
const HOPS: u8 = 64;

/// A complete IP packet for the sender of `packet`, which is longer than the inner `mtu`. `from` is our
/// address of the same family. `None`: there is nothing to answer.
#[must_use]
pub fn too_big(
    packet: &PacketView<'_>,
    mtu: u16,
    from: IpAddr,
) -> Option<ArrayVec<u8, ANSWER_MAX>> {
    if packet.bytes().len() <= usize::from(mtu) || !may_be_answered(packet) {
        return None;
    }
    match (packet.source(), from) {
        (IpAddr::V4(to), IpAddr::V4(from)) => {
            packet.dont_fragment().then(|| v4(packet, mtu, from, to))
        }
        (IpAddr::V6(to), IpAddr::V6(from)) => {
            // A tunnel with a smaller MTU has to fragment outside; telling the sender is of no use.
            let mtu = mtu.max(u16::try_from(IPV6_MIN_MTU).unwrap_or(u16::MAX));
            (packet.bytes().len() > usize::from(mtu)).then(|| v6(packet, mtu, from, to))
        }
        _ => None,
    }
}

fn may_be_answered(packet: &PacketView<'_>) -> bool {
    packet.fragment() != Fragment::Later
        && !is_icmp_error(packet)
        && names_one_host(packet.source())
        // RFC 4443 would allow "too big" for multicast; the tunnel carries none.
        && names_one_host(packet.destination())
}

/// Whether it is an ICMP error, or an ICMP message whose type cannot be seen.
fn is_icmp_error(packet: &PacketView<'_>) -> bool {
    let kind = packet.transport().first().copied();
    match packet.protocol() {
        // Unreachable, quench, redirect, time exceeded, parameter problem.
        protocol::ICMP if packet.source().is_ipv4() => {
            kind.is_none_or(|kind| matches!(kind, 3 | 4 | 5 | 11 | 12))
        }
        // Errors are below 128; 137 is a redirect.
        protocol::ICMPV6 if packet.source().is_ipv6() => {
            kind.is_none_or(|kind| kind < 128 || kind == 137)
        }
        _ => false,
    }
}

fn names_one_host(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            // 240/4 is reserved and ends with the broadcast address.
            !(v4.is_unspecified() || v4.is_loopback() || v4.is_multicast() || v4.octets()[0] >= 240)
        }
        IpAddr::V6(v6) => !(v6.is_unspecified() || v6.is_loopback() || v6.is_multicast()),
    }
}

fn v4(packet: &PacketView<'_>, mtu: u16, from: Ipv4Addr, to: Ipv4Addr) -> ArrayVec<u8, ANSWER_MAX> {
    let quoted = quote(packet, ANSWER_MAX_V4 - IPV4_HEADER - ICMP_HEADER);
    let total = IPV4_HEADER + ICMP_HEADER + quoted.len();
    let mut answer = ArrayVec::new();
    // Precedence 6 for messages of the network itself (RFC 1812 §4.3.2.5); DF, so no identification.
    append(&mut answer, &[0x45, 0xc0]);
    append(&mut answer, &length_field(total));
    append(&mut answer, &[0, 0, 0x40, 0, HOPS, protocol::ICMP, 0, 0]);
    append(&mut answer, &from.octets());
    append(&mut answer, &to.octets());
    let header_sum = sum(0, &answer);
    let [high, low] = mtu.to_be_bytes();
    append(&mut answer, &[3, 4, 0, 0, 0, 0, high, low]);
    append(&mut answer, quoted);
    put_checksum(&mut answer, 10, header_sum);
    let icmp_sum = sum(0, &answer[IPV4_HEADER..]);
    put_checksum(&mut answer, IPV4_HEADER + 2, icmp_sum);
    answer
}

fn v6(packet: &PacketView<'_>, mtu: u16, from: Ipv6Addr, to: Ipv6Addr) -> ArrayVec<u8, ANSWER_MAX> {
    let quoted = quote(packet, ANSWER_MAX - IPV6_HEADER - ICMP_HEADER);
    let length = length_field(ICMP_HEADER + quoted.len());
    let mut answer = ArrayVec::new();
    append(&mut answer, &[0x60, 0, 0, 0]);
    append(&mut answer, &length);
    append(&mut answer, &[protocol::ICMPV6, HOPS]);
    append(&mut answer, &from.octets());
    append(&mut answer, &to.octets());
    append(&mut answer, &[2, 0, 0, 0]);
    append(&mut answer, &u32::from(mtu).to_be_bytes());
    append(&mut answer, quoted);
    // Pseudo-header (RFC 8200 §8.1): addresses, length, protocol.
    let pseudo = sum(u64::from(protocol::ICMPV6), &answer[8..IPV6_HEADER]);
    let all = sum(sum(pseudo, &length), &answer[IPV6_HEADER..]);
    put_checksum(&mut answer, IPV6_HEADER + 2, all);
    answer
}

/// As much of the packet as the answer may hold.
fn quote<'a>(packet: &PacketView<'a>, most: usize) -> &'a [u8] {
    let bytes = packet.bytes();
    &bytes[..bytes.len().min(most)]
}

fn append(answer: &mut ArrayVec<u8, ANSWER_MAX>, bytes: &[u8]) {
    let fits = bytes.len().min(answer.remaining_capacity());
    answer.extend(bytes[..fits].iter().copied());
}

fn length_field(length: usize) -> [u8; 2] {
    u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes()
}

fn put_checksum(answer: &mut ArrayVec<u8, ANSWER_MAX>, at: usize, sum: u64) {
    answer[at..at + 2].copy_from_slice(&(!fold(sum)).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::super::tests::{UDP_V4, UDP_V6, checksum_is_right, v4, v6};
    use super::*;

    const V4_FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 77, 0, 1));
    const V6_FROM: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1));

    fn answer(packet: &[u8], mtu: u16) -> Option<ArrayVec<u8, ANSWER_MAX>> {
        let from = if packet[0] >> 4 == 4 { V4_FROM } else { V6_FROM };
        too_big(&PacketView::parse(packet).expect("a packet"), mtu, from)
    }

    #[test]
    fn a_v4_answer_names_the_mtu_and_quotes_the_packet() {
        let mut packet = v4(UDP_V4, 1500);
        packet[6] = 0x40;
        let answer = answer(&packet, 1440).expect("too big and DF");
        assert_eq!(answer.len(), 576);
        let view = PacketView::parse(&answer).expect("the answer is a packet");
        assert_eq!((view.source(), view.protocol()), (V4_FROM, 1));
        assert_eq!(view.destination(), PacketView::parse(&packet).expect("is one").source());
        assert_eq!(view.transport()[..2], [3, 4]);
        assert_eq!(view.transport()[6..8], 1440_u16.to_be_bytes());
        assert_eq!(view.transport()[8..], packet[..576 - 28]);
        assert!(checksum_is_right(&[&answer[..20]]) && checksum_is_right(&[&answer[20..]]));
    }

    #[test]
    fn a_v6_answer_names_the_mtu_and_quotes_the_packet() {
        let packet = v6(UDP_V6, 1500);
        let answer = answer(&packet, 1400).expect("too big");
        assert_eq!(answer.len(), 1280);
        let view = PacketView::parse(&answer).expect("the answer is a packet");
        assert_eq!((view.source(), view.protocol()), (V6_FROM, 58));
        assert_eq!(view.destination(), PacketView::parse(&packet).expect("is one").source());
        assert_eq!(view.transport()[..2], [2, 0]);
        assert_eq!(view.transport()[4..8], 1400_u32.to_be_bytes());
        assert_eq!(view.transport()[8..], packet[..1280 - 48]);
        let length = (answer.len() - 40) as u32;
        let pseudo = [&answer[8..40], &length.to_be_bytes(), &58_u32.to_be_bytes()].concat();
        assert!(checksum_is_right(&[&pseudo, &answer[40..]]));
    }

    #[test]
    fn short_packets_are_quoted_whole() {
        let mut packet = v4(UDP_V4, 200);
        packet[6] = 0x40;
        assert_eq!(answer(&packet, 100).expect("too big").len(), 228);
        assert_eq!(answer(&packet, 200), None, "it fits");
    }

    #[test]
    fn what_must_not_be_answered_is_not() {
        type Change = fn(&mut Vec<u8>);
        let table: [(&str, Change); 12] = [
            ("no DF", |p| p[6] = 0),
            ("later fragment", |p| p[7] = 100),
            ("ICMP unreachable", |p| (p[9], p[20]) = (1, 3)),
            ("ICMP time exceeded", |p| (p[9], p[20]) = (1, 11)),
            ("from nowhere", |p| p[12..16].fill(0)),
            ("from loopback", |p| p[12] = 127),
            ("from multicast", |p| p[12] = 224),
            ("from broadcast", |p| p[12..16].fill(255)),
            ("from a reserved address", |p| p[12] = 241),
            ("to multicast", |p| p[16] = 239),
            ("to broadcast", |p| p[16..20].fill(255)),
            ("to a reserved address", |p| p[16] = 250),
        ];
        for (name, change) in table {
            let mut packet = v4(UDP_V4, 1500);
            packet[6] = 0x40;
            assert!(answer(&packet, 1400).is_some());
            change(&mut packet);
            assert_eq!(answer(&packet, 1400), None, "{name}");
        }
        let table: [(&str, Change); 6] = [
            ("ICMPv6 too big", |p| (p[6], p[40]) = (58, 2)),
            ("ICMPv6 redirect", |p| (p[6], p[40]) = (58, 137)),
            ("later fragment", |p| (p[6], p[40], p[42]) = (44, 17, 1)),
            ("from nowhere", |p| p[8..24].fill(0)),
            ("from multicast", |p| p[8] = 0xff),
            ("to multicast", |p| p[24] = 0xff),
        ];
        for (name, change) in table {
            let mut packet = v6(UDP_V6, 1500);
            assert!(answer(&packet, 1400).is_some());
            change(&mut packet);
            assert_eq!(answer(&packet, 1400), None, "{name}");
        }
    }

    #[test]
    fn echo_requests_and_first_fragments_are_answered() {
        let mut packet = v4(UDP_V4, 1500);
        (packet[6], packet[9], packet[20]) = (0x40, 1, 8);
        assert!(answer(&packet, 1400).is_some());
        packet[6] = 0x60;
        assert!(answer(&packet, 1400).is_some());
        let mut packet = v6(UDP_V6, 1500);
        (packet[6], packet[40]) = (58, 128);
        assert!(answer(&packet, 1400).is_some());
    }

    #[test]
    fn an_ipv6_sender_is_never_told_less_than_1280() {
        assert_eq!(answer(&v6(UDP_V6, 1280), 1200), None);
        let answer = answer(&v6(UDP_V6, 1300), 1200).expect("above the least MTU");
        assert_eq!(answer[44..48], 1280_u32.to_be_bytes());
    }

    #[test]
    fn no_answer_crosses_families() {
        let packet = v6(UDP_V6, 1500);
        assert_eq!(too_big(&PacketView::parse(&packet).expect("is one"), 1400, V4_FROM), None);
    }
}
