//! What is read of a TCP segment (RFC 9293 §3.1), what is changed in one, and an acknowledgement as it stands on the wire.

use std::array;
use std::net::IpAddr;

use arrayvec::ArrayVec;

use crate::packet::checksum::{Checksum, fold, sum};
use crate::packet::transport::{Transport, TransportKind};
use crate::packet::{FiveTuple, PacketView, protocol};

/// The bits of the flags' byte.
pub(super) mod flag {
    pub(in super::super) const FIN: u8 = 0x01;
    pub(in super::super) const SYN: u8 = 0x02;
    pub(in super::super) const RST: u8 = 0x04;
    pub(in super::super) const ACK: u8 = 0x10;
    pub(in super::super) const URG: u8 = 0x20;
    /// RFC 3168: congestion was seen.
    pub(in super::super) const ECE: u8 = 0x40;
    /// RFC 3168: the window was reduced.
    pub(in super::super) const CWR: u8 = 0x80;
}

/// Kinds of options (IANA).
mod option {
    pub(super) const END: u8 = 0;
    pub(super) const NO_OPERATION: u8 = 1;
    pub(super) const MAXIMUM_SEGMENT: u8 = 2;
    pub(super) const WINDOW_SCALE: u8 = 3;
    pub(super) const SACK_PERMITTED: u8 = 4;
    pub(super) const SACK: u8 = 5;
    pub(super) const TIMESTAMPS: u8 = 8;
}

/// The largest shift of a window (RFC 7323 §2.3).
const MOST_SCALE: u8 = 14;

/// Ranges of selective acknowledgements that fit beside timestamps.
pub(super) const MOST_RANGES: usize = 3;

/// Most ranges that an acknowledgement can tell: more do not fit into its options (RFC 2018 §3).
const MOST_TOLD: usize = 4;

/// A range of numbers, from the first to the one behind the last.
pub(super) type Range = (u32, u32);

/// Both clocks of the timestamps option (RFC 7323).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Times {
    /// The sender's.
    pub(super) value: u32,
    /// The receiver's, as the sender saw it last.
    pub(super) echo: u32,
}

/// What only a SYN says.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct SynOptions {
    /// By how many bits windows are shifted.
    pub(super) scale: Option<u8>,
    /// Selective acknowledgements are understood.
    pub(super) sack: bool,
    /// It has an option that changes what an acknowledgement means, or that nobody knows here.
    pub(super) is_foreign: bool,
}

/// A segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) flags: u8,
    /// As it stands there, not shifted.
    pub(super) window: u16,
    /// Bytes of payload.
    pub(super) len: u32,
    pub(super) times: Option<Times>,
    pub(super) syn: SynOptions,
    /// The ranges that it acknowledges selectively, in their order: the first ones, and nothing behind them.
    pub(super) sacks: [Option<Range>; MOST_TOLD],
    /// Where its header and its payload are.
    pub(super) at: Transport,
}

impl Segment {
    /// The segment of a packet, if it is TCP by the strict reading.
    pub(super) fn read(packet: &PacketView<'_>) -> Option<Self> {
        let at = Transport::of(packet).filter(|at| at.kind == TransportKind::Tcp)?;
        let bytes = packet.bytes();
        let header: &[u8; 20] = bytes.get(at.start..)?.first_chunk()?;
        let word = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
        let mut segment = Self {
            seq: u32::from_be_bytes(word(4)),
            ack: u32::from_be_bytes(word(8)),
            flags: header[13],
            window: u16::from_be_bytes([header[14], header[15]]),
            len: u32::try_from(bytes.len().checked_sub(at.payload)?).ok()?,
            times: None,
            syn: SynOptions::default(),
            sacks: [None; MOST_TOLD],
            at,
        };
        // The reserved bits, one of which asks for more exact marks than RFC 3168 has.
        segment.syn.is_foreign = header[12] & 0x0f != 0;
        let options = bytes.get(at.start + 20..at.payload)?;
        for_each_option(options, |_, kind, value| segment.note(kind, value));
        Some(segment)
    }

    fn note(&mut self, kind: u8, value: &[u8]) {
        match (kind, value.len()) {
            (option::TIMESTAMPS, 8) => {
                self.times = pair(value).map(|(value, echo)| Times { value, echo });
            }
            (option::SACK, 8..) => {
                let ranges = value.as_chunks::<8>().0;
                self.sacks = array::from_fn(|at| ranges.get(at).and_then(|range| pair(range)));
            }
            (option::WINDOW_SCALE, 1) => self.syn.scale = Some(value[0].min(MOST_SCALE)),
            (option::SACK_PERMITTED, 0) => self.syn.sack = true,
            (option::MAXIMUM_SEGMENT, 2) => {}
            _ => self.syn.is_foreign = true,
        }
    }

    /// Whether it has this flag.
    pub(super) const fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The number behind its last byte.
    pub(super) const fn end(&self) -> u32 {
        self.seq.wrapping_add(self.len)
    }

    /// Whether it acknowledges ranges.
    pub(super) const fn has_ranges(&self) -> bool {
        self.sacks[0].is_some()
    }

    /// Whether it only acknowledges.
    pub(super) const fn is_pure_ack(&self) -> bool {
        self.len == 0 && self.flags & (flag::ACK | flag::SYN | flag::FIN | flag::RST) == flag::ACK
    }
}

/// By how much number `a` is beyond `b` (RFC 9293 §3.4): numbers wrap around.
pub(super) const fn beyond(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b).cast_signed()
}

fn pair(value: &[u8]) -> Option<(u32, u32)> {
    let [a, b, ..] = value.as_chunks::<4>().0 else { return None };
    Some((u32::from_be_bytes(*a), u32::from_be_bytes(*b)))
}

/// Calls `each` with the place, kind and value of every option. One that is cut off ends the list.
fn for_each_option(options: &[u8], mut each: impl FnMut(usize, u8, &[u8])) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        match kind {
            option::END => return,
            option::NO_OPERATION => at += 1,
            _ => {
                let length = options.get(at + 1).map_or(0, |length| usize::from(*length));
                let value = options.get(at + 2..at + length);
                let Some(value) = value.filter(|_| length >= 2) else { return };
                each(at, kind, value);
                at += length;
            }
        }
    }
}

/// Writes another acknowledgement and window into a packet that `segment` was read from, and takes out what it says of
/// ranges: they lie below the number. Its checksum stays as right, or wrong, as it was (RFC 1624).
pub(super) fn rewrite(
    packet: &mut [u8],
    segment: &Segment,
    checksum: Checksum,
    ack: u32,
    window: u16,
) {
    let Transport { start, payload, kind } = segment.at;
    let Some(header) = packet.get_mut(start..payload) else { return };
    let before = sum(0, header);
    let Some(fixed) = header.first_chunk_mut::<20>() else { return };
    fixed[8..12].copy_from_slice(&ack.to_be_bytes());
    fixed[14..16].copy_from_slice(&window.to_be_bytes());
    let mut sacks = ArrayVec::<(usize, usize), 2>::new();
    for_each_option(&header[20..], |at, kind, value| {
        if kind == option::SACK {
            let _ = sacks.try_push((20 + at, 20 + at + 2 + value.len()));
        }
    });
    for (from, to) in sacks {
        header[from..to].fill(option::NO_OPERATION);
    }
    // A partial checksum is that of the pseudo-header.
    if checksum == Checksum::Whole {
        let after = sum(0, header);
        let at = kind.checksum_offset();
        let old = u16::from_be_bytes([header[at], header[at + 1]]);
        // As `corrected` does for one word.
        let new = !fold(u64::from(!old) + u64::from(!fold(before)) + after);
        header[at..at + 2].copy_from_slice(&new.to_be_bytes());
    }
}

/// Writes another acknowledgement, window and clock into a packet of TCP, and completes its checksum. Ranges that it acknowledges
/// are taken out: they are old.
pub(super) fn refresh(packet: &mut [u8], ack: u32, window: u16, times: Option<Times>) {
    let Ok(view) = PacketView::parse(packet) else { return };
    let Some(segment) = Segment::read(&view) else { return };
    rewrite(packet, &segment, Checksum::Partial, ack, window);
    let Transport { start, payload, kind } = segment.at;
    if let Some(times) = times
        && let Some(header) = packet.get_mut(start..payload)
    {
        let mut place = None;
        for_each_option(&header[20..], |at, kind, value| {
            if kind == option::TIMESTAMPS && value.len() == 8 {
                place = Some(20 + at + 2);
            }
        });
        if let Some(at) = place {
            header[at..at + 4].copy_from_slice(&times.value.to_be_bytes());
            header[at + 4..at + 8].copy_from_slice(&times.echo.to_be_bytes());
        }
    }
    let partial = segment.at.partial(packet).to_be_bytes();
    let at = start + kind.checksum_offset();
    packet[at..at + 2].copy_from_slice(&partial);
    segment.at.complete(packet);
}

/// An acknowledgement that was never sent by the end it comes from.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// From whom, and to whom.
    pub(super) ends: FiveTuple,
    pub(super) seq: u32,
    pub(super) ack: u32,
    pub(super) window: u16,
    /// [`flag::ECE`] and [`flag::RST`], beside [`flag::ACK`].
    pub(super) flags: u8,
    pub(super) times: Option<Times>,
    pub(super) sacks: ArrayVec<Range, MOST_RANGES>,
}

impl Answer {
    /// Writes it as a packet. Nothing is written if its addresses are not of one family, or it has no ports.
    pub(super) fn write(&self, packet: &mut Vec<u8>) {
        packet.clear();
        let Some((from, to)) = self.ends.ports else { return };
        let mut options = ArrayVec::<u8, 40>::new();
        if let Some(Times { value, echo }) = self.times {
            options.extend([option::NO_OPERATION, option::NO_OPERATION, option::TIMESTAMPS, 10]);
            options.extend(value.to_be_bytes());
            options.extend(echo.to_be_bytes());
        }
        if !self.sacks.is_empty() {
            let len = u8::try_from(2 + 8 * self.sacks.len()).unwrap_or(2);
            options.extend([option::NO_OPERATION, option::NO_OPERATION, option::SACK, len]);
            for (start, end) in &self.sacks {
                options.extend(start.to_be_bytes());
                options.extend(end.to_be_bytes());
            }
        }
        let header = 20 + options.len();
        if !write_ip(packet, &self.ends, header) {
            return;
        }
        let start = packet.len();
        packet.extend(from.to_be_bytes().into_iter().chain(to.to_be_bytes()));
        packet.extend(self.seq.to_be_bytes().into_iter().chain(self.ack.to_be_bytes()));
        let words = u8::try_from(header / 4).unwrap_or(5);
        packet.extend([words << 4, flag::ACK | self.flags]);
        packet.extend(self.window.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(&options);
        let at = Transport { kind: TransportKind::Tcp, start, payload: packet.len() };
        let partial = at.partial(packet).to_be_bytes();
        packet[start + 16..start + 18].copy_from_slice(&partial);
        at.complete(packet);
    }
}

/// Hops that an answer may take: the recommended default (RFC 1700).
const TTL: u8 = 64;

/// Writes the IP header of a TCP segment of so many bytes. `false`: the addresses are not of one family.
fn write_ip(packet: &mut Vec<u8>, ends: &FiveTuple, len: usize) -> bool {
    match (ends.source, ends.destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let total = u16::try_from(20 + len).unwrap_or(u16::MAX);
            packet.extend([0x45, 0]);
            packet.extend(total.to_be_bytes());
            packet.extend([0, 0, 0x40, 0, TTL, protocol::TCP, 0, 0]);
            packet.extend(from.octets().into_iter().chain(to.octets()));
            let checksum = !fold(sum(0, packet));
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
            true
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            packet.extend([0x60, 0, 0, 0]);
            packet.extend(u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes());
            packet.extend([protocol::TCP, TTL]);
            packet.extend(from.octets().into_iter().chain(to.octets()));
            true
        }
        _ => false,
    }
}
