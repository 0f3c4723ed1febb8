//! Inner packets that no kernel made.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::inner::{length, ones_sum};

const IP: usize = 20;
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Bits of a segment (RFC 9293 section 3.1).
pub(super) const SYN: u8 = 2;
pub(super) const ACK: u8 = 16;
/// The largest window without scaling.
const WINDOW: u16 = 65_535;

/// A UDP packet without a checksum, as IPv4 allows.
pub(super) fn udp(from: SocketAddrV4, to: SocketAddrV4, data: &[u8]) -> Vec<u8> {
    let mut packet = header(UDP, *from.ip(), *to.ip(), 8 + data.len());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend(length(8 + data.len()));
    packet.extend([0, 0]);
    packet.extend(data);
    packet
}

/// A TCP segment that allows as much as it can without scaling.
pub(super) fn tcp(
    (from, to): (SocketAddrV4, SocketAddrV4),
    (number, acknowledged): (u32, u32),
    flags: u8,
    data: &[u8],
) -> Vec<u8> {
    let mut segment = Vec::new();
    segment.extend(from.port().to_be_bytes());
    segment.extend(to.port().to_be_bytes());
    segment.extend(number.to_be_bytes());
    segment.extend(acknowledged.to_be_bytes());
    segment.extend([5 << 4, flags]);
    segment.extend(WINDOW.to_be_bytes());
    segment.extend([0; 4]);
    segment.extend(data);
    let mut sum = [from.ip().octets(), to.ip().octets()].concat();
    sum.extend([0, TCP]);
    sum.extend(length(segment.len()));
    sum.extend(&segment);
    let sum = !ones_sum(&sum);
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut packet = header(TCP, *from.ip(), *to.ip(), segment.len());
    packet.extend(segment);
    packet
}

fn header(protocol: u8, from: Ipv4Addr, to: Ipv4Addr, content: usize) -> Vec<u8> {
    let mut packet = vec![0x45, 0];
    packet.extend(length(IP + content));
    packet.extend([0, 0, 0x40, 0, 64, protocol, 0, 0]);
    packet.extend(from.octets());
    packet.extend(to.octets());
    let sum = !ones_sum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The port that a segment is for, and its number, if it accepts a connection.
pub(super) fn accepted(packet: &[u8]) -> Option<(u16, u32)> {
    if *packet.first()? != 0x45 || *packet.get(9)? != TCP {
        return None;
    }
    let segment = packet.get(IP..)?;
    let port = u16::from_be_bytes([*segment.get(2)?, *segment.get(3)?]);
    let number = u32::from_be_bytes(segment.get(4..8)?.try_into().ok()?);
    (*segment.get(13)? & (SYN | ACK) == SYN | ACK).then_some((port, number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_that_accepts_is_told_from_others_and_all_sums_are_right() {
        let ends = ("10.77.0.2:7".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let accepts = tcp(ends, (9, 8), SYN | ACK, b"");
        assert_eq!(accepted(&accepts), Some((80, 9)));
        assert_eq!(ones_sum(&accepts[..IP]), 0xffff);
        let mut pseudo = accepts[12..20].to_vec();
        pseudo.extend([0, TCP, 0, 20]);
        pseudo.extend(&accepts[IP..]);
        assert_eq!(ones_sum(&pseudo), 0xffff);
        assert_eq!(accepted(&tcp(ends, (9, 8), ACK, b"x")), None);
        let other = udp(ends.0, ends.1, b"data");
        assert_eq!((accepted(&other), other.len()), (None, 32));
        (0..accepts.len()).for_each(|len| assert_eq!(accepted(&accepts[..len.min(33)]), None));
    }
}
