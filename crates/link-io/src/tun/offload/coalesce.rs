//! Packets that follow each other in a flow, joined into one super packet.
//!
//! Only what the kernel will part again into the same packets is joined: the same addresses, ports, IP fields, options,
//! acknowledgement and window; TCP with ACK or ACK and PSH and nothing else, in sequence; payloads of one size, of which
//! the last may be shorter; nothing after a PSH. Checksums are looked at first, for the joined packet gets a new one: a
//! packet that was broken before it came here must stay broken. Whatever does not qualify is written by itself, after
//! what was held of its flow, so the order within a flow never changes.

use super::header::{self, Gso, Header, Partial};
use crate::tun::MAX_PACKET;
use ropewalk_proto::packet::PacketView;
use ropewalk_proto::packet::checksum::{Checksum, fold, sum};
use ropewalk_proto::packet::transport::{Transport, TransportKind};

/// Flows held at a time, each in 64 KiB; a further one takes the place of the oldest.
pub const FLOWS: usize = 8;

/// Packets in one super packet: as many datagrams as every kernel takes.
const MAX_SEGMENTS: usize = 64;

/// Least payload that is joined. Less gains nothing, and kernels differ in how little they take.
const MIN_PAYLOAD: usize = 32;

/// UDP ports of tunnels inside the tunnel: VXLAN (IANA's and Linux's), Geneve. Before Linux 6.8.5 their receivers broke
/// what came joined.
const TUNNEL_PORTS: [u16; 3] = [4789, 8472, 6081];

const ACK: u8 = 0x10;
const PSH: u8 = 0x08;

/// Where packets go that are joined, or not.
pub trait Write {
    /// One packet, as it came. `partial`: its checksum is to be completed.
    fn write_single(&mut self, packet: &[u8], partial: Option<Partial>);

    /// `packets` joined into one: `frame` is the header ([`header`]) and the packet, and may be changed.
    fn write_joined(&mut self, frame: &mut [u8], packets: usize);
}

/// The flows of which packets are held.
#[derive(Debug)]
pub struct Coalescer {
    /// Whether UDP is joined too.
    udp: bool,
    /// The first `held` hold packets, the oldest first; the buffers of the others are kept.
    slots: Vec<Slot>,
    held: usize,
}

impl Coalescer {
    /// Holds nothing yet. Memory is taken when there is something to hold, and kept: [`FLOWS`] times 64 KiB at most.
    #[must_use]
    pub const fn new(udp: bool) -> Self {
        Self { udp, slots: Vec::new(), held: 0 }
    }

    /// Takes a packet: copies it to others of its flow, or hands it to `out`, with what must go before it.
    pub fn add(&mut self, packet: &[u8], checksum: Checksum, out: &mut impl Write) {
        let Ok(view) = PacketView::parse(packet) else {
            self.flush(out);
            return out.write_single(packet, None);
        };
        let Some(transport) = Transport::of(&view) else {
            // It may belong to any flow of these addresses: a fragment, say.
            self.flush_where(out, |slot| slot.has_addresses_of(packet));
            return out.write_single(packet, None);
        };
        let candidate = Candidate::new(packet, transport, checksum, self.udp);
        let held =
            self.slots[..self.held].iter().position(|slot| slot.is_flow_of(packet, transport));
        if let Some(at) = held {
            let slot = &mut self.slots[at];
            if let Some(candidate) = &candidate
                && slot.accepts(candidate)
            {
                slot.append(candidate);
                if candidate.is_last || slot.is_full(candidate) {
                    self.release(at, out);
                }
                return;
            }
            self.release(at, out);
        }
        match candidate.filter(|candidate| !candidate.is_last) {
            Some(candidate) => self.begin(&candidate, out),
            None => out.write_single(packet, partial(transport, checksum)),
        }
    }

    /// Hands everything that is held to `out`, the oldest flow first.
    pub fn flush(&mut self, out: &mut impl Write) {
        for slot in &mut self.slots[..self.held] {
            slot.write(out);
        }
        self.held = 0;
    }

    fn flush_where(&mut self, out: &mut impl Write, is_due: impl Fn(&Slot) -> bool) {
        while let Some(at) = self.slots[..self.held].iter().position(&is_due) {
            self.release(at, out);
        }
    }

    /// Hands out what one slot holds, and puts the slot first among the empty ones: its memory is warm.
    fn release(&mut self, at: usize, out: &mut impl Write) {
        self.slots[at].write(out);
        self.slots[at..self.held].rotate_left(1);
        self.held -= 1;
    }

    fn begin(&mut self, candidate: &Candidate<'_>, out: &mut impl Write) {
        if self.held == FLOWS {
            self.release(0, out);
        }
        if self.held == self.slots.len() {
            self.slots.push(Slot::new(candidate.transport));
        }
        self.slots[self.held].begin(candidate);
        self.held += 1;
    }
}

/// A packet that may be joined with others.
#[derive(Debug)]
struct Candidate<'a> {
    packet: &'a [u8],
    transport: Transport,
    checksum: Checksum,
    /// Nothing may follow it.
    is_last: bool,
}

impl<'a> Candidate<'a> {
    fn new(packet: &'a [u8], transport: Transport, checksum: Checksum, udp: bool) -> Option<Self> {
        let is_v4 = is_v4(packet);
        // The joined packet gets a new header checksum.
        let header = &packet[..transport.start];
        let is_ip_right = !is_v4 || packet[6] & 0x80 == 0 && fold(sum(0, header)) == 0xffff;
        let segment = &packet[transport.start..];
        let port = |at: usize| u16::from_be_bytes([segment[at], segment[at + 1]]);
        let (is_fit, is_last) = match transport.kind {
            TransportKind::Tcp => {
                let (reserved, flags) = (segment[12] & 0x0f, segment[13]);
                (reserved == 0 && flags & !PSH == ACK, flags & PSH != 0)
            }
            TransportKind::Udp => {
                let is_tunnel = [0, 2].iter().any(|at| TUNNEL_PORTS.contains(&port(*at)));
                let is_summed = checksum == Checksum::Partial || transport.checksum(packet) != 0;
                (udp && !is_tunnel && is_summed, false)
            }
        };
        let is_long = packet.len() - transport.payload >= MIN_PAYLOAD;
        (is_ip_right && is_fit && is_long).then_some(Self { packet, transport, checksum, is_last })
    }

    fn payload(&self) -> &'a [u8] {
        &self.packet[self.transport.payload..]
    }

    fn sequence(&self) -> u32 {
        let at = self.transport.start;
        let [a, b, c, d] = [4, 5, 6, 7].map(|offset| self.packet[at + offset]);
        u32::from_be_bytes([a, b, c, d])
    }

    fn identification(&self) -> u16 {
        u16::from_be_bytes([self.packet[4], self.packet[5]])
    }
}

/// Packets of one flow.
#[derive(Debug)]
struct Slot {
    /// [`header`], the headers of the first packet, and all payloads.
    frame: Box<[u8]>,
    /// Bytes of `frame` in use.
    len: usize,
    packets: usize,
    transport: Transport,
    /// Of the first packet.
    checksum: Checksum,
    /// Bytes of payload in each packet but the last.
    size: usize,
    /// Of the packet that fits next.
    sequence: u32,
    /// Of the packet that fits next, if it is IPv4.
    identification: u16,
    /// Whether the first packet's checksum is right, once somebody has looked.
    is_right: Option<bool>,
}

impl Slot {
    fn new(transport: Transport) -> Self {
        Self {
            frame: vec![0; header::LEN + MAX_PACKET].into_boxed_slice(),
            len: 0,
            packets: 0,
            transport,
            checksum: Checksum::Whole,
            size: 0,
            sequence: 0,
            identification: 0,
            is_right: None,
        }
    }

    fn begin(&mut self, first: &Candidate<'_>) {
        self.len = header::LEN + first.packet.len();
        self.frame[header::LEN..self.len].copy_from_slice(first.packet);
        self.packets = 1;
        self.transport = first.transport;
        self.checksum = first.checksum;
        self.size = first.payload().len();
        self.is_right = None;
        self.expect_after(first);
    }

    /// Numbers of the packet that fits behind this one.
    fn expect_after(&mut self, packet: &Candidate<'_>) {
        self.identification = packet.identification().wrapping_add(1);
        if self.transport.kind == TransportKind::Tcp {
            let len = u32::try_from(packet.payload().len()).unwrap_or(0);
            self.sequence = packet.sequence().wrapping_add(len);
        }
    }

    fn packet(&self) -> &[u8] {
        &self.frame[header::LEN..self.len]
    }

    fn has_addresses_of(&self, packet: &[u8]) -> bool {
        let own = self.packet();
        let range = if is_v4(own) { 12..20 } else { 8..40 };
        is_v4(own) == is_v4(packet) && own[range.clone()] == packet[range]
    }

    fn is_flow_of(&self, packet: &[u8], transport: Transport) -> bool {
        let ports = |packet: &[u8], start: usize| {
            [packet[start], packet[start + 1], packet[start + 2], packet[start + 3]]
        };
        self.transport.kind == transport.kind
            && ports(self.packet(), self.transport.start) == ports(packet, transport.start)
            && self.has_addresses_of(packet)
    }

    /// Whether a packet of the flow may stand behind those that are held.
    fn accepts(&mut self, next: &Candidate<'_>) -> bool {
        self.fits(next)
            && self.is_first_right()
            && next.transport.is_sound(next.packet, next.checksum)
    }

    fn is_first_right(&mut self) -> bool {
        let is_right =
            self.is_right.unwrap_or_else(|| self.transport.is_sound(self.packet(), self.checksum));
        self.is_right = Some(is_right);
        is_right
    }

    fn fits(&self, next: &Candidate<'_>) -> bool {
        if next.transport != self.transport {
            return false;
        }
        let (own, packet) = (self.packet(), next.packet);
        let equal = |range: std::ops::Range<usize>| own[range.clone()] == packet[range];
        let Transport { start, payload, .. } = self.transport;
        let numbered = self.identification == next.identification();
        let is_ip_equal = if is_v4(own) {
            // Version, length of the header, traffic class; flags, time to live, protocol; options. The identification
            // of what may not be fragmented means nothing (RFC 6864 §4.1).
            let counts = numbered || own[6] & 0x40 != 0;
            equal(0..2) && equal(6..10) && equal(20..start) && counts
        } else {
            equal(0..4) && equal(6..8)
        };
        let is_transport_equal = match self.transport.kind {
            TransportKind::Udp => true,
            TransportKind::Tcp => {
                let numbers = equal(start + 8..start + 13) && self.sequence == next.sequence();
                numbers && equal(start + 14..start + 16) && equal(start + 18..payload)
            }
        };
        is_ip_equal
            && is_transport_equal
            && next.payload().len() <= self.size
            && self.len + next.payload().len() <= self.frame.len()
    }

    fn append(&mut self, next: &Candidate<'_>) {
        let payload = next.payload();
        let end = self.len + payload.len();
        self.frame[self.len..end].copy_from_slice(payload);
        self.len = end;
        self.packets += 1;
        self.expect_after(next);
        if self.transport.kind == TransportKind::Tcp {
            let flags = self.transport.start + 13;
            self.frame[header::LEN + flags] |= next.packet[flags] & PSH;
        }
    }

    /// Whether nothing can follow this last packet.
    fn is_full(&self, last: &Candidate<'_>) -> bool {
        last.payload().len() < self.size
            || self.packets == MAX_SEGMENTS
            || self.len + self.size > self.frame.len()
    }

    /// Hands out what is held.
    fn write(&mut self, out: &mut impl Write) {
        if self.packets == 1 {
            return out.write_single(self.packet(), partial(self.transport, self.checksum));
        }
        self.finish();
        out.write_joined(&mut self.frame[..self.len], self.packets);
    }

    /// Makes the headers those of the whole.
    fn finish(&mut self) {
        let Transport { kind, start, payload } = self.transport;
        let (head, packet) = self.frame[..self.len].split_at_mut(header::LEN);
        let gso = match (kind, is_v4(packet)) {
            (TransportKind::Udp, _) => Gso::Udp,
            (TransportKind::Tcp, true) => Gso::TcpV4,
            (TransportKind::Tcp, false) => Gso::TcpV6,
        };
        let offset = kind.checksum_offset();
        let header = Header {
            partial: partial(self.transport, Checksum::Partial),
            gso: Some((gso, word(self.size))),
            headers: word(payload),
        };
        head.copy_from_slice(&header.bytes());
        if is_v4(packet) {
            let total = word(packet.len()).to_be_bytes();
            packet[2..4].copy_from_slice(&total);
            packet[10..12].fill(0);
            let checksum = (!fold(sum(0, &packet[..start]))).to_be_bytes();
            packet[10..12].copy_from_slice(&checksum);
        } else {
            let length = word(packet.len() - start).to_be_bytes();
            packet[4..6].copy_from_slice(&length);
        }
        if kind == TransportKind::Udp {
            let length = word(packet.len() - start).to_be_bytes();
            packet[start + 4..start + 6].copy_from_slice(&length);
        }
        let partial = self.transport.partial(packet).to_be_bytes();
        packet[start + offset..start + offset + 2].copy_from_slice(&partial);
    }
}

/// Where the checksum of a packet with this transport is to be completed, if it is.
fn partial(transport: Transport, checksum: Checksum) -> Option<Partial> {
    let Transport { kind, start, .. } = transport;
    let partial = Partial { start: word(start), offset: word(kind.checksum_offset()) };
    (checksum == Checksum::Partial).then_some(partial)
}

/// As a length or place in a packet; none is longer.
fn word(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn is_v4(packet: &[u8]) -> bool {
    packet.first().is_some_and(|byte| byte >> 4 == 4)
}
