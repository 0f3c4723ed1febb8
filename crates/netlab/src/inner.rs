//! Inner packets of known content: UDP over IPv4 or IPv6, whose bytes follow from a few numbers, so
//! that whoever receives one can tell whether a bit of it changed.

use std::net::{Ipv4Addr, Ipv6Addr};

use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::packet::{PacketView, protocol};

use crate::lab::Towards;

/// The client's inner addresses.
pub const CLIENT: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 77, 0, 2), Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2));
/// A server behind the proxy.
pub const SERVER: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(192, 0, 2, 80), Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x50));

/// The shortest packet: an IPv6 and a UDP header and the number.
pub const SHORTEST: usize = 56;

/// The client's port in every flow.
const CLIENT_PORT: u16 = 12_345;

/// What a packet is made from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Inner {
    /// Which way it goes.
    pub towards: Towards,
    /// Tells packets of one direction apart.
    pub number: u64,
    /// Its flow: the server's port.
    pub flow: u16,
    /// Bytes of the whole packet; at least [`SHORTEST`] are made.
    pub len: usize,
    /// Its mark.
    pub ecn: Ecn,
    /// IPv6, else IPv4.
    pub v6: bool,
}

impl Inner {
    /// A packet of one flow over IPv4.
    #[must_use]
    pub const fn plain(towards: Towards, number: u64, len: usize) -> Self {
        Self { towards, number, flow: 80, len, ecn: Ecn::NotEct, v6: false }
    }

    /// Its bytes.
    #[must_use]
    pub fn packet(&self) -> Vec<u8> {
        let len = self.len.max(SHORTEST);
        let mut packet = Vec::with_capacity(len);
        let header = if self.v6 { 40 } else { 20 };
        if self.v6 {
            packet.extend([0x60, self.ecn.bits() << 4, 0, 0]);
            packet.extend(length(len - header));
            packet.extend([protocol::UDP, 64]);
            let (from, to) = ends(self.towards, CLIENT.1.octets(), SERVER.1.octets());
            packet.extend(from.into_iter().chain(to));
        } else {
            packet.extend([0x45, self.ecn.bits()]);
            packet.extend(length(len));
            packet.extend([0, 0, 0, 0, 64, protocol::UDP, 0, 0]);
            let (from, to) = ends(self.towards, CLIENT.0.octets(), SERVER.0.octets());
            packet.extend(from.into_iter().chain(to));
            let checksum = !ones_sum(&packet);
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        let (from, to) = ends(self.towards, CLIENT_PORT, self.flow);
        packet.extend(from.to_be_bytes().into_iter().chain(to.to_be_bytes()));
        packet.extend(length(len - header).into_iter().chain([0, 0]));
        packet.extend(self.number.to_be_bytes());
        let mut state = self.number ^ u64::from(self.flow) << 48;
        while packet.len() < len {
            state = state.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(1);
            let bytes = state.to_be_bytes();
            packet.extend(bytes.into_iter().take(len - packet.len()));
        }
        packet
    }
}

/// The number of a packet made by [`Inner::packet`]; `None`: it is no such packet.
#[must_use]
pub fn number_of(packet: &[u8]) -> Option<u64> {
    flow_and_number(packet).map(|(_, number)| number)
}

/// The flow and the number of a packet made by [`Inner::packet`].
#[must_use]
pub fn flow_and_number(packet: &[u8]) -> Option<(u16, u64)> {
    let view = PacketView::parse(packet).ok()?;
    if view.protocol() != protocol::UDP {
        return None;
    }
    let transport = view.transport();
    let port = |at: usize| Some(u16::from_be_bytes(*transport.get(at..)?.first_chunk()?));
    let number = u64::from_be_bytes(*transport.get(8..)?.first_chunk()?);
    // The client's port is the same in all flows.
    let flow = if port(0)? == CLIENT_PORT { port(2)? } else { port(0)? };
    Some((flow, number))
}

/// Source and destination for this direction.
pub(crate) fn ends<T>(towards: Towards, client: T, server: T) -> (T, T) {
    match towards {
        Towards::Client => (server, client),
        Towards::Proxy => (client, server),
    }
}

/// A length field.
pub(crate) fn length(len: usize) -> [u8; 2] {
    u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes()
}

/// The Internet checksum's sum (RFC 1071).
pub(crate) fn ones_sum(bytes: &[u8]) -> u16 {
    let words = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| (*b).into()));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // At most 16 bits are left.
    u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_valid_and_tell_their_number() {
        for v6 in [false, true] {
            for len in [0, 60, 61, 1440] {
                let inner = Inner { v6, ecn: Ecn::Ect0, ..Inner::plain(Towards::Proxy, 7, len) };
                let packet = inner.packet();
                assert_eq!(packet.len(), len.max(SHORTEST));
                let view = PacketView::parse(&packet).unwrap();
                assert_eq!((view.ecn(), view.protocol()), (Ecn::Ect0, protocol::UDP));
                assert_eq!(flow_and_number(&packet), Some((80, 7)));
                if !v6 {
                    assert_eq!(ones_sum(&packet[..20]), 0xffff);
                }
            }
        }
    }
}
