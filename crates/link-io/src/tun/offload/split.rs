//! One super packet, parted where it lies.
//!
//! The headers of a segment are written directly before its payload, over the payload of the segment before, which was
//! handed out already; so no payload is ever moved, and one read buffer is enough. Each segment gets what the kernel
//! would have given it: lengths, the IPv4 identification counted up, the sequence number, PSH and FIN on the last
//! alone, CWR on the first alone, and checksums. Those of TCP and UDP can be left partial, so that no payload is looked at.

use super::header::{Gso, Header, Partial};
use ropewalk_proto::packet::PacketView;
use ropewalk_proto::packet::checksum::{self, Checksum, fold, sum};
use ropewalk_proto::packet::transport::{Transport, TransportKind};
use std::ops::Range;

/// Bytes of all headers of a super packet, IPv6 extension headers among them, that are understood.
const MAX_HEADERS: usize = 256;

/// Bytes of an IPv4 header without options, and of the IPv6 header.
const IPV4_HEADER: usize = 20;
const IPV6_HEADER: usize = 40;

const FIN: u8 = 0x01;
const PSH: u8 = 0x08;
const CWR: u8 = 0x80;

/// Why a packet cannot be parted, or its checksum not be completed. The kernel would have to be broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SplitError {
    /// Fewer bytes than its headers, or headers longer than any that are sent.
    #[error("the headers of a super packet do not fit")]
    Headers,
    /// The IP header tells of other bytes: the packet was longer than what it was read into.
    #[error("a super packet was cut short")]
    Length,
    /// Segments without payload.
    #[error("a super packet of segments without a size")]
    Size,
    /// A super packet always leaves its checksum to be completed.
    #[error("a super packet does not say where its checksum is")]
    Checksum,
}

/// The state of a packet that is being handed out segment by segment.
#[derive(Debug)]
pub struct Split {
    /// `None`: it is one packet.
    super_packet: Option<SuperPacket>,
    /// First byte not handed out yet, in the packet.
    next: usize,
    end: usize,
    /// Of what is handed out.
    checksum: Checksum,
}

#[derive(Debug)]
struct SuperPacket {
    /// As they were in the super packet.
    headers: [u8; MAX_HEADERS],
    headers_len: usize,
    /// Where the transport header begins.
    transport: usize,
    kind: TransportKind,
    /// Bytes of payload in each segment but the last.
    size: usize,
    /// How many were handed out.
    done: usize,
    /// Sum of the pseudo-header without its length.
    pseudo: u64,
}

impl Split {
    /// Nothing to hand out.
    pub const EMPTY: Self = Self { super_packet: None, next: 0, end: 0, checksum: Checksum::Whole };

    /// Begins with a packet that was read with this header. With [`Checksum::Partial`], partial checksums are left so,
    /// where the packet itself says by the strict reading that they are where the header says.
    ///
    /// # Errors
    /// [`SplitError`]; the packet is to be dropped.
    pub fn new(header: &Header, packet: &mut [u8], wanted: Checksum) -> Result<Self, SplitError> {
        let end = packet.len();
        let checksum = match header.partial {
            Some(partial) if wanted == Checksum::Partial && is_at(partial, packet) => wanted,
            _ => Checksum::Whole,
        };
        let Some((gso, size)) = header.gso else {
            if let Some(Partial { start, offset }) = header.partial
                && checksum == Checksum::Whole
                && !checksum::complete(packet, start.into(), offset.into())
            {
                return Err(SplitError::Checksum);
            }
            return Ok(Self { super_packet: None, next: 0, end, checksum });
        };
        let partial = header.partial.ok_or(SplitError::Checksum)?;
        let super_packet = SuperPacket::new(gso, size.into(), partial, packet)?;
        let next = super_packet.headers_len;
        Ok(Self { super_packet: Some(super_packet), next, end, checksum })
    }

    /// Whether all was handed out.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.next >= self.end
    }

    /// Makes the next packet, in the bytes that [`Split::new`] was given, and says where it is and what its checksum is.
    /// What was handed out before may have been changed, and is overwritten.
    pub fn next(&mut self, packet: &mut [u8]) -> Option<(Range<usize>, Checksum)> {
        if self.is_done() {
            return None;
        }
        let Some(super_packet) = &mut self.super_packet else {
            self.next = self.end;
            return Some((0..self.end, self.checksum));
        };
        let start = self.next - super_packet.headers_len;
        let end = self.end.min(self.next + super_packet.size);
        let segment = packet.get_mut(start..end)?;
        super_packet.finish(segment, end == self.end, self.checksum);
        self.next = end;
        Some((start..end, self.checksum))
    }
}

/// Whether the packet is TCP or UDP by the strict reading, with its checksum there.
fn is_at(partial: Partial, packet: &[u8]) -> bool {
    let transport = PacketView::parse(packet).ok().and_then(|view| Transport::of(&view));
    transport.is_some_and(|Transport { kind, start, .. }| {
        (start, kind.checksum_offset()) == (partial.start.into(), partial.offset.into())
    })
}

impl SuperPacket {
    fn new(gso: Gso, size: usize, partial: Partial, packet: &[u8]) -> Result<Self, SplitError> {
        let (transport, kind) = (usize::from(partial.start), gso.kind());
        let is_v4 = packet.first().is_some_and(|byte| byte >> 4 == 4);
        let least = if is_v4 { IPV4_HEADER } else { IPV6_HEADER };
        let transport_len = match kind {
            TransportKind::Udp => 8,
            TransportKind::Tcp => {
                usize::from(packet.get(transport + 12).ok_or(SplitError::Headers)? >> 4) * 4
            }
        };
        let least_transport = if kind == TransportKind::Tcp { 20 } else { 8 };
        let headers_len = transport + transport_len;
        if transport < least
            || transport_len < least_transport
            || headers_len > packet.len().min(MAX_HEADERS)
        {
            return Err(SplitError::Headers);
        }
        // A read cuts what is too long for its buffer and does not say so; the last segment would come out shorter, and signed.
        let (field, before) = if is_v4 { (2, 0) } else { (4, IPV6_HEADER) };
        let length = u16::from_be_bytes([packet[field], packet[field + 1]]);
        if usize::from(length) + before != packet.len() {
            return Err(SplitError::Length);
        }
        if usize::from(partial.offset) != kind.checksum_offset() {
            return Err(SplitError::Checksum);
        }
        if size == 0 || headers_len == packet.len() {
            return Err(SplitError::Size);
        }
        let mut headers = [0; MAX_HEADERS];
        headers[..headers_len].copy_from_slice(&packet[..headers_len]);
        // The kernel's sum, not one of our own: with a source route the pseudo-header names another address than the
        // IP header.
        let field = transport + kind.checksum_offset();
        let partial = u16::from_be_bytes([headers[field], headers[field + 1]]);
        let length = u16::try_from(packet.len() - transport).unwrap_or(u16::MAX);
        let pseudo = u64::from(partial) + u64::from(!length);
        headers[field..field + 2].fill(0);
        Ok(Self { headers, headers_len, transport, kind, size, done: 0, pseudo })
    }

    /// Writes the headers of the next segment, whose payload is in place.
    fn finish(&mut self, segment: &mut [u8], is_last: bool, checksum: Checksum) {
        let Self { headers, headers_len, transport, .. } = self;
        let transport = *transport;
        segment[..*headers_len].copy_from_slice(&headers[..*headers_len]);
        let done = u16::try_from(self.done % 0x1_0000).unwrap_or(0);
        let before = u32::try_from(self.done * self.size).unwrap_or(0);
        let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
        if segment[0] >> 4 == 4 {
            let total = length(segment.len());
            segment[2..4].copy_from_slice(&total);
            let id = u16::from_be_bytes([segment[4], segment[5]]).wrapping_add(done);
            segment[4..6].copy_from_slice(&id.to_be_bytes());
            segment[10..12].fill(0);
            let header = usize::from(segment[0] & 0x0f) * 4;
            let covered = segment.get(..header).unwrap_or_default();
            let checksum = (!fold(sum(0, covered))).to_be_bytes();
            segment[10..12].copy_from_slice(&checksum);
        } else {
            let payload = length(segment.len() - IPV6_HEADER);
            segment[4..6].copy_from_slice(&payload);
        }
        let covered_len = length(segment.len() - transport);
        let covered = &mut segment[transport..];
        match self.kind {
            TransportKind::Udp => covered[4..6].copy_from_slice(&covered_len),
            TransportKind::Tcp => {
                let sequence = [covered[4], covered[5], covered[6], covered[7]];
                let sequence = u32::from_be_bytes(sequence).wrapping_add(before);
                covered[4..8].copy_from_slice(&sequence.to_be_bytes());
                if !is_last {
                    covered[13] &= !(FIN | PSH);
                }
                if self.done > 0 {
                    covered[13] &= !CWR;
                }
            }
        }
        let pseudo = self.pseudo + u64::from(u16::from_be_bytes(covered_len));
        let checksum = match checksum {
            Checksum::Whole => checksum::finished(sum(pseudo, covered)),
            Checksum::Partial => fold(pseudo),
        };
        let checksum = checksum.to_be_bytes();
        let field = self.kind.checksum_offset();
        covered[field..field + 2].copy_from_slice(&checksum);
        self.done += 1;
    }
}
