//! Inner IP packets: what the tunnel reads of them, and the two bits that it may change.
//!
//! [`PacketView::parse`] is strict where a wrong answer would harm (version, header length, total length
//! against the bytes at hand) and otherwise looks at as little as it can: it does not judge checksums,
//! options or the transport, which are the business of the kernels at both ends. It never panics,
//! whatever the bytes.

pub mod buffer;
pub mod checksum;
pub mod icmp;
pub mod transport;

use crate::ecn::Ecn;
use checksum::{Checksum, corrected};
use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes of an IPv4 header without options.
const IPV4_HEADER: usize = 20;
/// Bytes of the fixed IPv6 header.
const IPV6_HEADER: usize = 40;

/// IPv6 extension headers looked at: more than any honest packet has. What follows is not looked
/// for, so that a long chain costs no more than a packet.
const MAX_EXTENSIONS: usize = 8;

/// Protocol numbers (IANA).
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;

    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const FRAGMENT: u8 = 44;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(super) const DESTINATION: u8 = 60;
}

/// Why bytes are not an IP packet. The consequence is always to drop and count them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PacketError {
    /// Fewer bytes than an IP header.
    #[error("shorter than an IP header")]
    Short,
    /// Neither 4 nor 6 in the version field.
    #[error("not IPv4 or IPv6")]
    Version,
    /// The header's length, or the packet's, does not fit the bytes at hand.
    #[error("length fields do not fit")]
    Length,
}

/// Whether a packet is part of a fragmented one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// It is whole.
    Whole,
    /// It is the first fragment, with the transport header.
    First,
    /// It is a later fragment.
    Later,
}

/// The bytes of an inner packet, and how its TCP or UDP checksum stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packet<'a> {
    /// The packet, from its IP header on.
    pub bytes: &'a [u8],
    /// How its checksum stands.
    pub checksum: Checksum,
}

impl<'a> Packet<'a> {
    /// A packet as its sender left it.
    #[inline]
    #[must_use]
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, checksum: Checksum::Whole }
    }

    /// A TCP or UDP packet whose checksum is partial.
    #[inline]
    #[must_use]
    pub const fn partial(bytes: &'a [u8]) -> Self {
        Self { bytes, checksum: Checksum::Partial }
    }

    /// The packet with its checksum complete, for whoever cannot leave that to a device; `None`: it is neither TCP nor UDP,
    /// so there is nothing to complete.
    #[must_use]
    pub fn completed(self) -> Option<Cow<'a, [u8]>> {
        match self.checksum {
            Checksum::Whole => Some(Cow::Borrowed(self.bytes)),
            Checksum::Partial => {
                let mut packet = self.bytes.to_vec();
                transport::complete(&mut packet).then_some(Cow::Owned(packet))
            }
        }
    }
}

/// Names a flow: equal for packets of the same addresses, protocol and ports, which only TCP and UDP have
/// here; of the same addresses only for fragments, of which just the first would show ports. A hash, so different flows may share
/// one; the two directions differ. It only ever spreads flows, so it needs no secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FlowKey(pub u64);

/// What people know a flow by, as far as [`FlowKey`] looks at it: of a fragment only the addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FiveTuple {
    /// Where it comes from.
    pub source: IpAddr,
    /// Where it goes.
    pub destination: IpAddr,
    /// Protocol number.
    pub protocol: Option<u8>,
    /// Source and destination port.
    pub ports: Option<(u16, u16)>,
}

impl FiveTuple {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        source: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        destination: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        protocol: None,
        ports: None,
    };

    /// That of the packets that go the other way.
    #[must_use]
    pub fn reversed(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            ports: self.ports.map(|(source, destination)| (destination, source)),
        }
    }

    /// The flow's key.
    #[must_use]
    pub fn key(&self) -> FlowKey {
        let mut hash = Mix::default();
        for address in [self.source, self.destination] {
            match address {
                IpAddr::V4(v4) => hash.add(u64::from(v4.to_bits())),
                IpAddr::V6(v6) => {
                    let [high, low] = [v6.to_bits() >> 64, v6.to_bits() & u128::from(u64::MAX)];
                    hash.add(u64::try_from(high).unwrap_or(0));
                    hash.add(u64::try_from(low).unwrap_or(0));
                }
            }
        }
        if let Some(protocol) = self.protocol {
            let (source, destination) = self.ports.unwrap_or_default();
            let ports = u64::from(source) << 16 | u64::from(destination);
            hash.add(u64::from(protocol) << 32 | ports);
        }
        FlowKey(hash.finish())
    }
}

/// An inner IP packet whose lengths were checked.
#[derive(Clone, Copy, Debug)]
pub struct PacketView<'a> {
    bytes: &'a [u8],
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    /// Where the header of `protocol` begins; the end if it is not in this packet.
    transport: usize,
    fragment: Fragment,
}

impl<'a> PacketView<'a> {
    /// Reads the headers of `bytes`, which must hold exactly one packet.
    ///
    /// # Errors
    ///
    /// The first thing that is wrong; the packet must be dropped.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PacketError> {
        match bytes.first().map(|byte| byte >> 4) {
            Some(4) => Self::parse_v4(bytes),
            Some(6) => Self::parse_v6(bytes),
            Some(_) => Err(PacketError::Version),
            None => Err(PacketError::Short),
        }
    }

    fn parse_v4(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let header: &[u8; IPV4_HEADER] = bytes.first_chunk().ok_or(PacketError::Short)?;
        let header_len = usize::from(header[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        if header_len < IPV4_HEADER || header_len > total || total != bytes.len() {
            return Err(PacketError::Length);
        }
        let flags_and_offset = u16::from_be_bytes([header[6], header[7]]);
        let (offset, more) = (flags_and_offset & 0x1fff, flags_and_offset & 0x2000 != 0);
        Ok(Self {
            bytes,
            source: IpAddr::V4(Ipv4Addr::new(header[12], header[13], header[14], header[15])),
            destination: IpAddr::V4(Ipv4Addr::new(header[16], header[17], header[18], header[19])),
            protocol: header[9],
            transport: if offset == 0 { header_len } else { total },
            fragment: match (offset, more) {
                (0, false) => Fragment::Whole,
                (0, true) => Fragment::First,
                _ => Fragment::Later,
            },
        })
    }

    fn parse_v6(bytes: &'a [u8]) -> Result<Self, PacketError> {
        let header: &[u8; IPV6_HEADER] = bytes.first_chunk().ok_or(PacketError::Short)?;
        let payload = usize::from(u16::from_be_bytes([header[4], header[5]]));
        if IPV6_HEADER + payload != bytes.len() {
            return Err(PacketError::Length);
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            IpAddr::V6(Ipv6Addr::from(octets))
        };
        let mut view = Self {
            bytes,
            source: address(8),
            destination: address(24),
            protocol: header[6],
            transport: IPV6_HEADER,
            fragment: Fragment::Whole,
        };
        view.skip_extensions();
        Ok(view)
    }

    /// Goes to the transport header (RFC 8200 §4). A chain that is cut off or too long ends the walk:
    /// the packet then has a protocol without a header in it.
    fn skip_extensions(&mut self) {
        for _ in 0..MAX_EXTENSIONS {
            let Some(&[next, length, offset_high, offset_low]) =
                self.bytes.get(self.transport..).and_then(<[u8]>::first_chunk)
            else {
                self.transport = self.bytes.len();
                return;
            };
            let length = match self.protocol {
                protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION => {
                    8 * (usize::from(length) + 1)
                }
                protocol::AUTHENTICATION => 4 * (usize::from(length) + 2),
                protocol::FRAGMENT => {
                    let offset_and_more = u16::from_be_bytes([offset_high, offset_low]);
                    self.fragment = match (offset_and_more & 0xfff8, offset_and_more & 1) {
                        // Whole in one "atomic" fragment (RFC 6946).
                        (0, 0) => Fragment::Whole,
                        (0, _) => Fragment::First,
                        _ => Fragment::Later,
                    };
                    8
                }
                _ => return,
            };
            self.protocol = next;
            self.transport = (self.transport + length).min(self.bytes.len());
            if self.fragment == Fragment::Later {
                self.transport = self.bytes.len();
                return;
            }
        }
        self.transport = self.bytes.len();
    }

    /// The packet.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Where it comes from.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        self.source
    }

    /// Where it goes.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        self.destination
    }

    /// Protocol number of what it carries, behind IPv6 extension headers.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// What it carries, from the transport header on; empty in a later fragment.
    #[must_use]
    pub fn transport(&self) -> &'a [u8] {
        self.bytes.get(self.transport..).unwrap_or_default()
    }

    /// Whether it is a fragment.
    #[must_use]
    pub fn fragment(&self) -> Fragment {
        self.fragment
    }

    /// Source and destination port of a TCP segment or UDP datagram that is not fragmented.
    #[must_use]
    pub fn ports(&self) -> Option<(u16, u16)> {
        if self.fragment != Fragment::Whole
            || !matches!(self.protocol, protocol::TCP | protocol::UDP)
        {
            return None;
        }
        let [a, b, c, d] = *self.transport().first_chunk()?;
        Some((u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])))
    }

    /// Whether routers may not fragment it: DF in IPv4, always in IPv6.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.source.is_ipv6() || self.bytes[6] & 0x40 != 0
    }

    /// The differentiated services codepoint (RFC 2474 §3), from 0 to 63.
    #[must_use]
    pub fn dscp(&self) -> u8 {
        self.traffic_class() >> 2
    }

    /// Congestion notification bits.
    #[must_use]
    pub fn ecn(&self) -> Ecn {
        Ecn::from_tos(self.traffic_class())
    }

    /// What people know its flow by.
    #[must_use]
    pub fn five_tuple(&self) -> FiveTuple {
        FiveTuple {
            source: self.source,
            destination: self.destination,
            protocol: (self.fragment == Fragment::Whole).then_some(self.protocol),
            ports: self.ports(),
        }
    }

    /// Its flow.
    #[must_use]
    pub fn flow_key(&self) -> FlowKey {
        self.five_tuple().key()
    }

    fn traffic_class(&self) -> u8 {
        if self.source.is_ipv4() { self.bytes[1] } else { self.bytes[0] << 4 | self.bytes[1] >> 4 }
    }
}

/// Whether a packet seems to be TCP: what is behind IPv6 extension headers is not followed.
#[inline]
pub(crate) fn is_tcp(packet: &[u8]) -> bool {
    let at = if packet.first().is_some_and(|byte| byte >> 4 == 4) { 9 } else { 6 };
    packet.get(at) == Some(&protocol::TCP)
}

/// Sets the ECN bits of a packet that [`PacketView::parse`] accepted and corrects the IPv4 header
/// checksum by the difference (RFC 1624), so that a wrong one stays wrong. Bytes that are no packet stay
/// as they are.
pub fn set_ecn(packet: &mut [u8], ecn: Ecn) {
    match packet.first().map(|byte| byte >> 4) {
        Some(4) => {
            let Some(header) = packet.first_chunk_mut::<IPV4_HEADER>() else { return };
            let old = u16::from_be_bytes([header[0], header[1]]);
            header[1] = header[1] & !0b11 | ecn.bits();
            let new = u16::from_be_bytes([header[0], header[1]]);
            let checksum = u16::from_be_bytes([header[10], header[11]]);
            let checksum = corrected(checksum, old, new).to_be_bytes();
            [header[10], header[11]] = checksum;
        }
        Some(6) => {
            if let Some(byte) = packet.get_mut(1) {
                *byte = *byte & !0b0011_0000 | ecn.bits() << 4;
            }
        }
        _ => {}
    }
}

/// A small mixing hash over 64-bit words.
#[derive(Default)]
struct Mix(u64);

impl Mix {
    /// The golden ratio, odd: every input bit reaches the high half of the product.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn add(&mut self, word: u64) {
        let product = u128::from(self.0 ^ word ^ Self::FACTOR) * u128::from(Self::FACTOR);
        self.0 = u64::try_from(product >> 64 ^ product & u128::from(u64::MAX)).unwrap_or(0);
        self.0 = self.0.rotate_left(29).wrapping_add(word);
    }

    fn finish(mut self) -> u64 {
        self.add(0);
        self.add(0);
        self.0
    }
}

#[cfg(test)]
pub(crate) mod tests;
