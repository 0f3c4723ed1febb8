//! Packets that fit no link and whose sender cannot be told, or would ignore it: they go in two parts.
//!
//! IPv6 rests on links that carry 1,280 bytes; what carries less has to fragment and join beneath it (RFC 8200
//! §5), and its senders do not believe in less (RFC 8201 §4). Where every link's path MTU is below 1,340 (over
//! IPv6 1,360), this is such a link. IPv4 without DF is treated alike: a TUN that carries IPv6 has an MTU of 1,280 at
//! least, so the kernel does not fragment it.
//!
//! A segment whose sender was told that it has arrived ([`local_ack`](super::local_ack)) is the tunnel's to bring over: if the path
//! MTU has fallen since, it goes in parts too, whatever its length.
//!
//! A part stands where a packet does and has a global number like one, so that order, loss and windows know nothing of
//! it. Three bytes go before it: `0x10` for the first half or `0x20` for the second, which begins no IP
//! packet, and which packet it is of (2). The receiver keeps one half until the other comes, in either order; a
//! half whose other does not come next is dropped. In the order of flows it keeps several.

use std::ops::Range;

use crate::packet::PacketView;
use crate::wire::cursor::{Truncated, Writer};

/// The longest packet that goes in parts; senders of longer ones are told (RFC 8200 §5), if they still have them.
const LONGEST: usize = 1280;

/// Bytes before a part.
const HEADER: usize = 3;

/// The longest half: two are no longer than an IP packet may be.
const LONGEST_HALF: usize = u16::MAX as usize / 2;

/// Which half of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Half {
    First,
    Second,
}

impl Half {
    const fn code(self) -> u8 {
        match self {
            Self::First => 0x10,
            Self::Second => 0x20,
        }
    }

    const fn from_code(code: u8) -> Option<Self> {
        match code {
            0x10 => Some(Self::First),
            0x20 => Some(Self::Second),
            _ => None,
        }
    }

    /// Its place in a packet of `len` bytes.
    const fn range(self, len: usize) -> Range<usize> {
        let middle = len.div_ceil(2);
        match self {
            Self::First => 0..middle,
            Self::Second => middle..len,
        }
    }
}

/// Whether a packet may go in two parts. `is_acknowledged`: its sender has it no more.
pub(super) fn may_split(packet: &PacketView<'_>, is_acknowledged: bool) -> bool {
    let refusable = packet.source().is_ipv4() && packet.dont_fragment();
    is_acknowledged || (packet.bytes().len() <= LONGEST && !refusable)
}

/// A part that is about to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) half: Half,
    /// Tells packets in parts from each other.
    pub(super) id: u16,
}

impl Part {
    /// Writes it, of this packet.
    pub(super) fn emit(self, writer: &mut Writer<'_>, packet: &[u8]) -> Result<(), Truncated> {
        writer.u8(self.half.code())?;
        writer.u16(self.id)?;
        writer.bytes(packet.get(self.half.range(packet.len())).unwrap_or_default())
    }

    /// It, of this packet.
    pub(super) fn body(self, packet: &[u8]) -> Vec<u8> {
        let mut body = vec![0; self.len(packet.len())];
        let written = self.emit(&mut Writer::new(&mut body), packet);
        debug_assert!(written.is_ok(), "there is room for it");
        body
    }

    /// Its length in all, of a packet of `len` bytes.
    pub(super) const fn len(self, len: usize) -> usize {
        let range = self.half.range(len);
        range.end - range.start + HEADER
    }
}

/// Packets in parts of which halves are kept at once in the order of flows, where those of different flows may alternate.
const ALTERNATING: usize = 16;

/// The receiver's halves of packets, while they wait for the others.
#[derive(Debug, Default)]
pub(super) struct Joiner {
    alternate: bool,
    /// By what tells the packets from each other.
    places: Vec<Place>,
}

/// A place for one half.
#[derive(Debug, Default)]
struct Place {
    kept: Option<(Half, u16)>,
    bytes: Vec<u8>,
}

/// What came out of the order.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Came<'a> {
    /// Not a part.
    Packet,
    /// The second of two parts: here is the packet.
    Joined(&'a [u8]),
    /// A part without its other; it is kept. `alone`: another made room for it.
    Kept { alone: bool },
    /// A part longer than any that was ever sent.
    Malformed,
}

impl Joiner {
    /// From now on halves of different packets may alternate.
    pub(super) fn let_alternate(&mut self) {
        self.alternate = true;
    }

    #[inline]
    pub(super) fn take(&mut self, packet: &[u8]) -> Came<'_> {
        let Some((&[code, high, low], part)) = packet.split_first_chunk::<HEADER>() else {
            return Came::Packet;
        };
        let Some(half) = Half::from_code(code) else { return Came::Packet };
        let id = u16::from_be_bytes([high, low]);
        let place = if self.alternate { usize::from(id) % ALTERNATING } else { 0 };
        if self.places.len() <= place {
            self.places.resize_with(place + 1, Place::default);
        }
        self.places.get_mut(place).map_or(Came::Malformed, |place| place.join(half, id, part))
    }
}

impl Place {
    fn join(&mut self, half: Half, id: u16, part: &[u8]) -> Came<'_> {
        if part.len() > LONGEST_HALF {
            return Came::Malformed;
        }
        let kept = self.kept.replace((half, id));
        match (kept, half) {
            (Some((Half::First, other)), Half::Second) if other == id => {
                self.bytes.extend_from_slice(part);
            }
            (Some((Half::Second, other)), Half::First) if other == id => {
                self.bytes.splice(..0, part.iter().copied());
            }
            _ => {
                self.bytes.clear();
                self.bytes.extend_from_slice(part);
                return Came::Kept { alone: kept.is_some() };
            }
        }
        self.kept = None;
        Came::Joined(&self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_the_order_of_flows_halves_of_different_packets_may_alternate() {
        let packets = [[1; 100], [2; 100]];
        let mut joiner = Joiner::default();
        joiner.let_alternate();
        for (id, packet) in (7..).zip(&packets) {
            assert_eq!(joiner.take(&part(Half::First, id, packet)), KEPT);
        }
        for (id, packet) in (7..).zip(&packets) {
            assert_eq!(joiner.take(&part(Half::Second, id, packet)), Came::Joined(packet));
        }
        assert_eq!(joiner.take(&part(Half::First, 7, &packets[0])), KEPT);
        let next = 7 + ALTERNATING as u16;
        assert_eq!(joiner.take(&part(Half::First, next, &packets[0])), ALONE);
    }

    const KEPT: Came<'static> = Came::Kept { alone: false };
    const ALONE: Came<'static> = Came::Kept { alone: true };

    fn part(half: Half, id: u16, packet: &[u8]) -> Vec<u8> {
        let part = Part { half, id };
        let mut bytes = vec![0; part.len(packet.len())];
        let mut writer = Writer::new(&mut bytes);
        part.emit(&mut writer, packet).expect("it fits");
        assert_eq!(writer.room(), 0);
        bytes
    }

    #[test]
    fn two_halves_in_either_order_are_the_packet() {
        for len in [1, 2, 3, 1239, 1280, 1500, 65_534] {
            let packet: Vec<u8> = (0..len).map(|n| u8::try_from(n % 251).unwrap()).collect();
            let mut joiner = Joiner::default();
            for (id, [one, other]) in
                (7..).zip([[Half::First, Half::Second], [Half::Second, Half::First]])
            {
                assert_eq!(joiner.take(&part(one, id, &packet)), KEPT);
                assert_eq!(joiner.take(&part(other, id, &packet)), Came::Joined(&packet));
            }
        }
    }

    #[test]
    fn halves_of_different_packets_are_never_joined() {
        let mut joiner = Joiner::default();
        assert_eq!(joiner.take(&part(Half::First, 1, b"first")), KEPT);
        assert_eq!(joiner.take(&part(Half::Second, 2, b"second")), ALONE);
        assert_eq!(joiner.take(&part(Half::Second, 2, b"second")), ALONE, "twice the same");
        assert_eq!(joiner.take(&part(Half::First, 2, b"second")), Came::Joined(b"second"));
        assert_eq!(joiner.take(&part(Half::First, 2, b"second")), KEPT, "what was joined is gone");
    }

    #[test]
    fn what_begins_like_a_packet_is_one_and_a_part_is_bounded() {
        let mut joiner = Joiner::default();
        for first in [0x45, 0x60, 0x00, 0x11, 0x30] {
            assert_eq!(joiner.take(&[first; 40]), Came::Packet);
        }
        for short in [&[][..], &[0x10], &[0x20, 0]] {
            assert_eq!(joiner.take(short), Came::Packet);
        }
        assert_eq!(joiner.take(&[0x10; 3 + 32_768]), Came::Malformed);
        assert_eq!(joiner.take(&[0x10; 3 + 32_767]), KEPT);
    }
}
