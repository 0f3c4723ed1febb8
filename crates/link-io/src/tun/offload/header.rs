//! The header before each packet of a TUN with `IFF_VNET_HDR`: `struct virtio_net_hdr` (Virtio 1.2 §5.1.6), as the
//! kernel lays it out by default: ten bytes, in the machine's order.

use ropewalk_proto::packet::transport::TransportKind;

/// Its bytes.
pub const LEN: usize = 10;

/// The checksum is partial (`VIRTIO_NET_HDR_F_NEEDS_CSUM`).
const NEEDS_CHECKSUM: u8 = 1;

const GSO_NONE: u8 = 0;
const GSO_TCP_V4: u8 = 1;
const GSO_TCP_V6: u8 = 4;
const GSO_UDP: u8 = 5;
/// A bit beside the type: the first segment says that a window was reduced (CWR).
const GSO_ECN: u8 = 0x80;

/// How a super packet is parted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gso {
    /// TCP segments in IPv4.
    TcpV4,
    /// TCP segments in IPv6.
    TcpV6,
    /// UDP datagrams (USO).
    Udp,
}

impl Gso {
    /// What is in the segments.
    #[must_use]
    pub const fn kind(self) -> TransportKind {
        match self {
            Self::TcpV4 | Self::TcpV6 => TransportKind::Tcp,
            Self::Udp => TransportKind::Udp,
        }
    }
}

/// Where a partial checksum is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Partial {
    /// First byte it covers: where the transport header begins.
    pub start: u16,
    /// Where its field is, from there.
    pub offset: u16,
}

/// What stands before a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    /// The checksum to be completed.
    pub partial: Option<Partial>,
    /// How the packet is parted, and bytes of payload in each segment; `None`: it is one packet.
    pub gso: Option<(Gso, u16)>,
    /// Bytes of all headers: what the kernel copies aside. A hint, and of no meaning for one packet.
    pub headers: u16,
}

/// The kernel named a way of parting that was not asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a super packet of an unknown kind ({0})")]
pub struct UnknownGso(pub u8);

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// The packet is parted in a way not known here; it cannot be used.
    pub fn read(bytes: &[u8; LEN]) -> Result<Self, UnknownGso> {
        let [flags, kind, words @ ..] = *bytes;
        let word = |at: usize| u16::from_ne_bytes([words[at], words[at + 1]]);
        let gso = match kind & !GSO_ECN {
            GSO_NONE => None,
            GSO_TCP_V4 => Some(Gso::TcpV4),
            GSO_TCP_V6 => Some(Gso::TcpV6),
            GSO_UDP => Some(Gso::Udp),
            _ => return Err(UnknownGso(kind)),
        };
        let partial = Partial { start: word(4), offset: word(6) };
        Ok(Self {
            partial: (flags & NEEDS_CHECKSUM != 0).then_some(partial),
            gso: gso.map(|gso| (gso, word(2))),
            headers: word(0),
        })
    }

    /// The header as the kernel reads it.
    #[must_use]
    pub fn bytes(&self) -> [u8; LEN] {
        let flags = if self.partial.is_some() { NEEDS_CHECKSUM } else { 0 };
        let (kind, size) = match self.gso {
            None => (GSO_NONE, 0),
            Some((Gso::TcpV4, size)) => (GSO_TCP_V4, size),
            Some((Gso::TcpV6, size)) => (GSO_TCP_V6, size),
            Some((Gso::Udp, size)) => (GSO_UDP, size),
        };
        let Partial { start, offset } = self.partial.unwrap_or(Partial { start: 0, offset: 0 });
        let mut bytes = [flags, kind, 0, 0, 0, 0, 0, 0, 0, 0];
        let (fields, _) = bytes[2..].as_chunks_mut::<2>();
        for (field, word) in fields.iter_mut().zip([self.headers, size, start, offset]) {
            *field = word.to_ne_bytes();
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_that_was_written_is_read_again() {
        let partial = Some(Partial { start: 20, offset: 16 });
        for gso in [None, Some((Gso::TcpV4, 1400)), Some((Gso::TcpV6, 1)), Some((Gso::Udp, 65_535))]
        {
            for partial in [None, partial] {
                let header = Header { partial, gso, headers: 52 };
                assert_eq!(Header::read(&header.bytes()), Ok(header));
            }
        }
        assert_eq!(Header::default().bytes(), [0; LEN]);
    }

    #[test]
    fn the_bit_for_a_reduced_window_is_no_kind_and_the_old_way_for_udp_is_refused() {
        let mut bytes = Header { gso: Some((Gso::TcpV4, 9)), ..Header::default() }.bytes();
        bytes[1] |= GSO_ECN;
        assert_eq!(Header::read(&bytes).map(|header| header.gso), Ok(Some((Gso::TcpV4, 9))));
        // VIRTIO_NET_HDR_GSO_UDP: one datagram in fragments.
        for kind in [2, 3, 6, 0x83] {
            bytes[1] = kind;
            assert_eq!(Header::read(&bytes), Err(UnknownGso(kind)));
        }
    }
}
