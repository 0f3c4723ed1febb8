//! One packet of a connection: IPv4 with DF, and TCP with timestamps (RFC 7323) and selective
//! acknowledgements (RFC 2018).
//!
//! Its bytes are those of a real packet, for a tunnel looks at them. The payload follows from its place in the stream, and the
//! receiver compares it.

use std::net::Ipv4Addr;
use std::sync::LazyLock;

use arrayvec::ArrayVec;
use ropewalk_proto::packet::transport::Transport;
use ropewalk_proto::packet::{PacketView, protocol};

use crate::inner::{CLIENT, SERVER, ends, length, ones_sum};
use crate::lab::Towards;

/// Bytes of the headers of IPv4 and TCP, with timestamps.
pub(crate) const HEADERS: usize = 52;
/// Ranges that fit into the options beside timestamps.
pub(crate) const SACK_RANGES: usize = 3;

/// The client's port in the first connection; the others follow.
const FIRST_PORT: u16 = 40_000;
/// The server's port.
const SERVER_PORT: u16 = 80;

const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Kinds of options (IANA).
const NO_OPERATION: u8 = 1;
const MAXIMUM_SEGMENT: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;

/// What the headers say. Numbers are those on the wire.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Segment {
    /// The options that only a SYN has.
    pub(crate) syn: Option<SynOptions>,
    /// The number of the first byte of payload.
    pub(crate) seq: u32,
    /// The next byte expected; nothing in a client's SYN.
    pub(crate) ack: Option<u32>,
    /// The window, not scaled.
    pub(crate) window: u16,
    /// The sender's clock.
    pub(crate) time: u32,
    /// The peer's clock, as last seen.
    pub(crate) echo: u32,
    /// Ranges that came out of order.
    pub(crate) sacks: ArrayVec<(u32, u32), SACK_RANGES>,
}

/// What both ends say at first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SynOptions {
    /// The longest segment without options, in bytes.
    pub(crate) mss: u16,
    /// By how many bits windows are shifted.
    pub(crate) scale: u8,
}

/// A packet that concerns a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Incoming<'a> {
    /// One of the connection itself, with its payload.
    Segment(Segment, &'a [u8]),
    /// A router's word that packets are larger than this MTU (RFC 1191).
    TooBig(u16),
}

impl Segment {
    /// The packet of connection `flow` with `len` bytes of payload, which begin at `offset` of the stream.
    pub(crate) fn packet(&self, flow: u16, towards: Towards, offset: u64, len: usize) -> Vec<u8> {
        let options = self.options();
        let header = 40 + options.len();
        let mut packet = Vec::with_capacity(header + len);
        packet.extend([0x45, 0]);
        packet.extend(length(header + len));
        packet.extend([0, 0, 0x40, 0, 64, protocol::TCP, 0, 0]);
        let (from, to) = ends(towards, CLIENT.0.octets(), SERVER.0.octets());
        packet.extend(from.into_iter().chain(to));
        let checksum = !ones_sum(&packet);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        let (from, to) = ends(towards, FIRST_PORT.wrapping_add(flow), SERVER_PORT);
        packet.extend(from.to_be_bytes().into_iter().chain(to.to_be_bytes()));
        packet.extend(self.seq.to_be_bytes());
        packet.extend(self.ack.unwrap_or(0).to_be_bytes());
        let words = u8::try_from(5 + options.len() / 4).unwrap_or(u8::MAX);
        let flags = if self.syn.is_some() { SYN } else { 0 } | self.ack.map_or(0, |_| ACK);
        packet.extend([words << 4, flags]);
        packet.extend(self.window.to_be_bytes());
        packet.extend([0; 4]);
        packet.extend(&options);
        packet.extend(payload(offset, len));
        // Partial, and then complete, as a kernel does it.
        if let Some(at) = PacketView::parse(&packet).ok().and_then(|view| Transport::of(&view)) {
            let partial = at.partial(&packet).to_be_bytes();
            packet[36..38].copy_from_slice(&partial);
            at.complete(&mut packet);
        }
        packet
    }

    /// The options, padded to whole words.
    fn options(&self) -> ArrayVec<u8, 40> {
        let mut options = ArrayVec::new();
        let mut times = [0; 8];
        times[..4].copy_from_slice(&self.time.to_be_bytes());
        times[4..].copy_from_slice(&self.echo.to_be_bytes());
        if let Some(SynOptions { mss, scale }) = self.syn {
            let [high, low] = mss.to_be_bytes();
            options.extend([MAXIMUM_SEGMENT, 4, high, low, SACK_PERMITTED, 2, TIMESTAMPS, 10]);
            options.extend(times);
            options.extend([NO_OPERATION, WINDOW_SCALE, 3, scale]);
            return options;
        }
        options.extend([NO_OPERATION, NO_OPERATION, TIMESTAMPS, 10]);
        options.extend(times);
        if !self.sacks.is_empty() {
            let bytes = u8::try_from(2 + 8 * self.sacks.len()).unwrap_or(u8::MAX);
            options.extend([NO_OPERATION, NO_OPERATION, SACK, bytes]);
            for (start, end) in &self.sacks {
                options.extend(start.to_be_bytes());
                options.extend(end.to_be_bytes());
            }
        }
        options
    }

    fn read(header: &[u8; 20], options: &[u8]) -> Self {
        let mut segment = Self {
            seq: u32_at(header, 4).unwrap_or_default(),
            ack: (header[13] & ACK != 0).then(|| u32_at(header, 8).unwrap_or_default()),
            window: u16_at(header, 14).unwrap_or_default(),
            ..Self::default()
        };
        let (mut mss, mut scale) = (0, 0);
        let mut rest = options;
        while let [kind, after @ ..] = rest {
            if *kind == NO_OPERATION {
                rest = after;
                continue;
            }
            let Some(length) = after.first().map(|length| usize::from(*length)) else { break };
            let Some(value) = rest.get(2..length) else { break };
            match *kind {
                MAXIMUM_SEGMENT => mss = u16_at(value, 0).unwrap_or_default(),
                WINDOW_SCALE => scale = value.first().copied().unwrap_or_default(),
                TIMESTAMPS => {
                    segment.time = u32_at(value, 0).unwrap_or_default();
                    segment.echo = u32_at(value, 4).unwrap_or_default();
                }
                SACK => {
                    let ranges = value.as_chunks::<8>().0.iter();
                    let ranges = ranges.filter_map(|at| Some((u32_at(at, 0)?, u32_at(at, 4)?)));
                    segment.sacks = ranges.take(SACK_RANGES).collect();
                }
                _ => {}
            }
            rest = &rest[length..];
        }
        segment.syn = (header[13] & SYN != 0).then_some(SynOptions { mss, scale });
        segment
    }
}

/// The connection that a packet concerns, and what it says; `None` for all else.
pub(crate) fn read(packet: &[u8]) -> Option<(u16, Incoming<'_>)> {
    let view = PacketView::parse(packet).ok()?;
    let transport = view.transport();
    match view.protocol() {
        protocol::TCP => {
            let header: &[u8; 20] = transport.first_chunk()?;
            let from_client = view.source() == CLIENT.0;
            let port = u16_at(header, if from_client { 0 } else { 2 })?;
            let data = usize::from(header[12] >> 4) * 4;
            let options = transport.get(20..data)?;
            let segment = Segment::read(header, options);
            Some((port.wrapping_sub(FIRST_PORT), Incoming::Segment(segment, &transport[data..])))
        }
        protocol::ICMP if transport.first_chunk() == Some(&[3, 4]) => {
            let mtu = u16_at(transport, 6)?;
            // The packet it is about, without its end.
            let about = transport.get(8..)?;
            let from = Ipv4Addr::from(*about.get(12..)?.first_chunk::<4>()?);
            let port = u16_at(about, if from == CLIENT.0 { 20 } else { 22 })?;
            let is_tcp = about.get(9) == Some(&protocol::TCP);
            is_tcp.then_some((port.wrapping_sub(FIRST_PORT), Incoming::TooBig(mtu)))
        }
        _ => None,
    }
}

/// Bytes after which the stream repeats itself: no divisor or multiple of any segment's length, so that
/// a segment at the wrong place is seen.
const PERIOD: usize = 251;

static STREAM: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..=250).cycle().take(PERIOD + usize::from(u16::MAX)).collect());

/// The bytes of the stream at `offset`.
fn payload(offset: u64, len: usize) -> &'static [u8] {
    let start = usize::try_from(offset % PERIOD as u64).unwrap_or(0);
    &STREAM[start..start + len]
}

/// Whether `bytes` are those of the stream at `offset`.
pub(crate) fn is_as_sent(offset: u64, bytes: &[u8]) -> bool {
    payload(offset, bytes.len()) == bytes
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use ropewalk_proto::packet::icmp::too_big;

    use super::*;

    fn full() -> Segment {
        Segment {
            seq: 7,
            ack: Some(9),
            window: 300,
            time: 11,
            echo: 13,
            sacks: [(20, 30), (40, 50), (60, 70)].into_iter().collect(),
            ..Segment::default()
        }
    }

    #[test]
    fn a_packet_says_what_was_written_and_has_the_length_of_a_real_one() {
        let syn = Segment { syn: Some(SynOptions { mss: 1400, scale: 10 }), ..Segment::default() };
        let plain = Segment { sacks: ArrayVec::new(), ..full() };
        for (segment, headers) in [(full(), HEADERS + 28), (plain, HEADERS), (syn, 60)] {
            for towards in [Towards::Client, Towards::Proxy] {
                let packet = segment.packet(3, towards, 1_000_000, 500);
                assert_eq!(packet.len(), headers + 500);
                assert_eq!(ones_sum(&packet[..20]), 0xffff);
                let Some((3, Incoming::Segment(read, payload))) = read(&packet) else {
                    panic!("not read: {segment:?}")
                };
                assert_eq!(read, segment);
                assert!(is_as_sent(1_000_000, payload) && !is_as_sent(1_000_001, payload));
            }
        }
    }

    #[test]
    fn a_routers_word_about_a_packet_finds_its_connection() {
        for towards in [Towards::Client, Towards::Proxy] {
            let packet = full().packet(3, towards, 0, 1300);
            let view = PacketView::parse(&packet).unwrap();
            let answer = too_big(&view, 1300, [10, 77, 0, 1].into()).unwrap();
            assert_eq!(read(&answer), Some((3, Incoming::TooBig(1300))));
        }
    }

    #[test]
    fn what_is_no_packet_of_a_connection_is_let_pass() {
        let packet = full().packet(3, Towards::Client, 0, 10);
        assert!((0..packet.len()).all(|cut| read(&packet[..cut]).is_none()));
        assert_eq!(read(&crate::inner::Inner::plain(Towards::Client, 1, 100).packet()), None);
    }
}
