//! The strict reading of TCP and UDP: what may be joined with others, or carry a partial checksum.
//!
//! Strict, because a wrong answer would let a kernel write into a packet at a place that a stranger chose: the packet
//! is whole, its transport header stands directly behind the IP header (behind IPv4 options, but behind no IPv6
//! extension header), and every length agrees with the bytes at hand.

use super::checksum::{self, Checksum, fold, sum};
use super::{Fragment, IPV6_HEADER, PacketView, protocol};

/// Bytes of a TCP header without options.
const TCP_HEADER: usize = 20;
/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;

/// Completes the partial checksum of a packet. `false`: it is no TCP or UDP by the strict reading, and nothing was changed.
pub fn complete(packet: &mut [u8]) -> bool {
    let transport = PacketView::parse(packet).ok().and_then(|view| Transport::of(&view));
    transport.is_some_and(|transport| {
        transport.complete(packet);
        true
    })
}

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportKind {
    /// RFC 9293.
    Tcp,
    /// RFC 768.
    Udp,
}

impl TransportKind {
    /// Where the checksum stands in the header.
    #[must_use]
    pub const fn checksum_offset(self) -> usize {
        match self {
            Self::Tcp => 16,
            Self::Udp => 6,
        }
    }

    /// Its number in an IP header.
    #[must_use]
    pub const fn protocol(self) -> u8 {
        match self {
            Self::Tcp => protocol::TCP,
            Self::Udp => protocol::UDP,
        }
    }
}

/// A TCP segment or UDP datagram in an unfragmented packet: places in the packet's bytes, all of which are there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transport {
    /// Which of the two.
    pub kind: TransportKind,
    /// Where its header begins.
    pub start: usize,
    /// Where its payload begins; the end of the packet if it has none.
    pub payload: usize,
}

impl Transport {
    /// The transport of a packet, if it is TCP or UDP by the strict reading.
    #[must_use]
    pub fn of(packet: &PacketView<'_>) -> Option<Self> {
        let start = packet.transport;
        let direct = packet.source.is_ipv4() || start == IPV6_HEADER;
        if packet.fragment != Fragment::Whole || !direct {
            return None;
        }
        let bytes = packet.transport();
        let (kind, header) = match packet.protocol {
            protocol::TCP => (TransportKind::Tcp, usize::from(bytes.get(12)? >> 4) * 4),
            protocol::UDP => {
                let length: [u8; 2] = bytes.get(4..6)?.try_into().ok()?;
                let fits = usize::from(u16::from_be_bytes(length)) == bytes.len();
                (TransportKind::Udp, fits.then_some(UDP_HEADER)?)
            }
            _ => return None,
        };
        let least = if kind == TransportKind::Tcp { TCP_HEADER } else { UDP_HEADER };
        (least..=bytes.len()).contains(&header).then_some(Self {
            kind,
            start,
            payload: start + header,
        })
    }

    /// The checksum as it stands in a packet that this was read from.
    #[must_use]
    pub fn checksum(&self, packet: &[u8]) -> u16 {
        let at = self.start + self.kind.checksum_offset();
        let field = packet.get(at..at + 2).and_then(<[u8]>::first_chunk);
        field.map_or(0, |field| u16::from_be_bytes(*field))
    }

    /// Whether the checksum in a packet that this was read from is right. A UDP datagram without one is not.
    #[must_use]
    pub fn is_right(&self, packet: &[u8]) -> bool {
        let covered = packet.get(self.start..).unwrap_or_default();
        let whole = fold(sum(self.pseudo_sum(packet), covered)) == 0xffff;
        whole && (self.kind == TransportKind::Tcp || self.checksum(packet) != 0)
    }

    /// The same, where the checksum may be partial.
    #[must_use]
    pub fn is_sound(&self, packet: &[u8], checksum: Checksum) -> bool {
        match checksum {
            Checksum::Whole => self.is_right(packet),
            Checksum::Partial => self.checksum(packet) == self.partial(packet),
        }
    }

    /// What a partial checksum is in a packet that this was read from: the pseudo-header's sum (RFC 9293 §3.1, RFC 8200
    /// §8.1).
    #[must_use]
    pub fn partial(&self, packet: &[u8]) -> u16 {
        fold(self.pseudo_sum(packet))
    }

    /// Completes the partial checksum in a packet that this was read from.
    pub fn complete(&self, packet: &mut [u8]) {
        let complete = checksum::complete(packet, self.start, self.kind.checksum_offset());
        debug_assert!(complete, "the header was there when it was read");
    }

    fn pseudo_sum(&self, packet: &[u8]) -> u64 {
        let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
        let addresses = if is_v4 { 12..20 } else { 8..IPV6_HEADER };
        let addresses = packet.get(addresses).unwrap_or_default();
        let length = packet.len().saturating_sub(self.start) as u64;
        sum(length + u64::from(self.kind.protocol()), addresses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::tests::{UDP_V4, UDP_V6, checksum_is_right, v4, v6};

    fn of(packet: &[u8]) -> Option<Transport> {
        Transport::of(&PacketView::parse(packet).expect("a packet"))
    }

    /// A UDP packet of `total` bytes with a right length field.
    fn udp(header: &[u8], total: u16) -> Vec<u8> {
        let is_v4 = header[0] >> 4 == 4;
        let (mut packet, start) =
            if is_v4 { (v4(header, total), 20) } else { (v6(header, total), 40) };
        let length = total - if is_v4 { 20 } else { 40 };
        packet[start + 4..start + 6].copy_from_slice(&length.to_be_bytes());
        packet
    }

    /// A TCP packet of `total` bytes with a header of `words` 32-bit words.
    fn tcp(header: &[u8], total: u16, words: u8) -> Vec<u8> {
        let is_v4 = header[0] >> 4 == 4;
        let (mut packet, start, protocol) =
            if is_v4 { (v4(header, total), 20, 9) } else { (v6(header, total), 40, 6) };
        packet[protocol] = 6;
        packet[start + 12] = words << 4;
        packet
    }

    #[test]
    fn tcp_and_udp_are_found_behind_both_ip_headers() {
        use TransportKind::{Tcp, Udp};
        let table = [
            (udp(UDP_V4, 100), Udp, 20, 28),
            (udp(UDP_V6, 100), Udp, 40, 48),
            (tcp(UDP_V4, 100, 5), Tcp, 20, 40),
            (tcp(UDP_V4, 100, 15), Tcp, 20, 80),
            (tcp(UDP_V6, 100, 8), Tcp, 40, 72),
            (tcp(UDP_V6, 60, 5), Tcp, 40, 60),
        ];
        for (packet, kind, start, payload) in table {
            assert_eq!(of(&packet), Some(Transport { kind, start, payload }));
        }
    }

    #[test]
    fn what_is_fragmented_cut_off_or_does_not_add_up_is_neither() {
        type Change = fn(&mut Vec<u8>);
        let table: [(&str, Vec<u8>, Change); 11] = [
            ("first fragment", udp(UDP_V4, 100), |p| p[6] = 0x20),
            ("later fragment", udp(UDP_V4, 100), |p| p[7] = 1),
            ("ICMP", udp(UDP_V4, 100), |p| p[9] = 1),
            ("UDP length too long", udp(UDP_V4, 100), |p| p[25] += 1),
            ("UDP length too short", udp(UDP_V6, 100), |p| p[45] -= 1),
            ("half a UDP header", udp(UDP_V4, 28), |p| {
                p.truncate(24);
                p[3] = 24;
            }),
            ("half a TCP header", tcp(UDP_V4, 40, 5), |p| {
                p.truncate(39);
                p[3] = 39;
            }),
            ("TCP header below the least", tcp(UDP_V4, 100, 5), |p| p[32] = 0x40),
            ("TCP header beyond the end", tcp(UDP_V4, 79, 5), |p| p[32] = 0xf0),
            ("extension header", udp(UDP_V6, 100), |p| (p[6], p[40], p[41]) = (60, 17, 0)),
            ("atomic fragment", udp(UDP_V6, 100), |p| {
                p[6] = 44;
                p[40..48].copy_from_slice(&[17, 0, 0, 0, 0, 0, 0, 1]);
            }),
        ];
        for (name, mut packet, change) in table {
            assert!(of(&packet).is_some(), "{name}");
            change(&mut packet);
            assert_eq!(of(&packet), None, "{name}");
        }
    }

    #[test]
    fn a_partial_checksum_is_completed_and_then_right() {
        for packet in [udp(UDP_V4, 101), udp(UDP_V6, 100), tcp(UDP_V4, 79, 5), tcp(UDP_V6, 90, 9)] {
            let mut packet = packet;
            let transport = of(&packet).expect("TCP or UDP");
            let (start, at) = (transport.start, transport.start + transport.kind.checksum_offset());
            let partial = transport.partial(&packet);
            packet[at..at + 2].copy_from_slice(&partial.to_be_bytes());
            assert!(!transport.is_right(&packet));
            transport.complete(&mut packet);
            assert!(transport.is_right(&packet));
            let addresses = if start == 20 { &packet[12..20] } else { &packet[8..40] };
            let length = u32::try_from(packet.len() - start).expect("short").to_be_bytes();
            let protocol = [0, transport.kind.protocol()];
            assert!(checksum_is_right(&[addresses, &length, &protocol, &packet[start..]]));
            packet[start + 3] ^= 1;
            assert!(!transport.is_right(&packet), "a changed bit shows");
        }
    }

    #[test]
    fn udp_without_a_checksum_is_not_right() {
        let mut packet = udp(UDP_V4, 28);
        packet[26..28].fill(0);
        packet[12..24].fill(0);
        // Protocol and twice the length are the rest of the sum: only the missing checksum tells.
        packet[20..22].copy_from_slice(&(0xffff_u16 - 17 - 8 - 8).to_be_bytes());
        assert!(!of(&packet).expect("UDP").is_right(&packet));
    }
}
