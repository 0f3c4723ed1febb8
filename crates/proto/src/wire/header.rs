//! The transport header (PROTOCOL §2, §3): eight clear bytes and eight sealed ones.
//!
//! ```text
//!  0        1        2                 5                 8                                16
//! +--------+--------+-----------------+-----------------+-----------+-----------+----+----+----
//! |type|key| link   | receiver index  | local number    | send time | global    |prev|flow| ...
//! +--------+--------+-----------------+-----------------+-----------+-----------+----+----+----
//!  clear, authenticated                                  sealed                             | tag
//! ```
//!
//! In the order of flows (PROTOCOL §8) `prev` and `flow` are one number of 16 bits: the distance to the packet before it
//! of the same flow.

use super::cursor::{Truncated, Writer};
use crate::units::{LinkId, SessionIndex};

/// Bytes in the clear: authenticated, not encrypted.
pub const CLEAR_LEN: usize = 8;
/// Sealed header bytes in front of a packet or of frames.
pub const SEALED_LEN: usize = 8;
/// The AEAD's tag.
pub const TAG_LEN: usize = 16;
/// What a datagram with one packet costs beyond IP and UDP.
pub const OVERHEAD: usize = CLEAR_LEN + SEALED_LEN + TAG_LEN;
const _: () = assert!(OVERHEAD <= 32, "the budget of PROTOCOL §2");

/// Bits of a local or global number on the wire.
pub const NUMBER_BITS: u32 = 24;
/// They are the low ones.
const NUMBER_MASK: u32 = (1 << NUMBER_BITS) - 1;
/// One unit of the send time, in microseconds: 24 bits of it wrap after 67 s, more than any path
/// holds a datagram, and 4 µs is finer than any link's jitter.
pub const TIME_UNIT_US: u64 = 4;

/// What follows the sealed header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Kind {
    /// One inner packet, to the end.
    Data = 0x1,
    /// Frames, to the end.
    Frames = 0x2,
    /// One inner packet, to the end, in the order of its flow.
    FlowData = 0x3,
    /// Frames, to the end, with packets among them that are in the order of their flows.
    FlowFrames = 0x4,
}

impl Kind {
    /// Whether it is one packet, whose global number the header has.
    #[must_use]
    pub const fn is_packet(self) -> bool {
        matches!(self, Self::Data | Self::FlowData)
    }
}

/// What a transport datagram holds, by the first byte's high nibble; `None`: another type.
#[must_use]
pub const fn kind_of(first: u8) -> Option<Kind> {
    match first >> 4 {
        0x1 => Some(Kind::Data),
        0x2 => Some(Kind::Frames),
        0x3 => Some(Kind::FlowData),
        0x4 => Some(Kind::FlowFrames),
        _ => None,
    }
}

/// The steering field, at the same place in every datagram of every version (PROTOCOL §2): the
/// receiver's index, or the sender's in a first message.
#[must_use]
pub fn steering_index(datagram: &[u8]) -> Option<SessionIndex> {
    let bytes = datagram.get(2..5)?;
    Some(SessionIndex::new(u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]])))
}

/// The clear part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Clear {
    /// What follows.
    pub kind: Kind,
    /// Low four bits of the key epoch.
    pub phase: u8,
    /// The sender's link.
    pub link: LinkId,
    /// The receiver's session.
    pub receiver: SessionIndex,
    /// Low 24 bits of the local number.
    pub number: u32,
}

impl Clear {
    /// Reads the clear part of a transport datagram.
    ///
    /// # Errors
    /// Too short, or not of a transport type.
    pub fn parse(datagram: &[u8]) -> Result<Self, Truncated> {
        let &[first, link, r0, r1, r2, n0, n1, n2] = datagram.first_chunk().ok_or(Truncated)?;
        Ok(Self {
            kind: kind_of(first).ok_or(Truncated)?,
            phase: first & 0xf,
            link: LinkId(link),
            receiver: SessionIndex::new(u32::from_be_bytes([0, r0, r1, r2])),
            number: u32::from_be_bytes([0, n0, n1, n2]),
        })
    }

    /// The bytes on the wire, which are also the AEAD's associated data.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; CLEAR_LEN] {
        // One word, which costs half of writing byte by byte.
        let first = (self.kind as u8) << 4 | self.phase & 0xf;
        let ids = u64::from(first) << 56 | u64::from(self.link.0) << 48;
        let receiver = u64::from(self.receiver.get()) << NUMBER_BITS;
        (ids | receiver | u64::from(self.number & NUMBER_MASK)).to_be_bytes()
    }
}

/// The sealed part.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sealed {
    /// When the datagram was sealed, by the sender's clock, low 24 bits of 4 µs units.
    pub send_time: u32,
    /// Low 24 bits of: the packet's global number, or, with frames, the sender's next one.
    pub global: u32,
    /// Distance to the previous global number sent on this link; 0: none, or 256 and more.
    pub previous_on_link: u8,
    /// Distance to the previous packet of the same flow; 0: none, or 256 and more.
    pub previous_of_flow: u8,
}

impl Sealed {
    /// Reads the sealed header from opened bytes and returns what follows it.
    ///
    /// # Errors
    /// Too short.
    pub fn parse(plaintext: &[u8]) -> Result<(Self, &[u8]), Truncated> {
        let (header, rest) = plaintext.split_first_chunk::<SEALED_LEN>().ok_or(Truncated)?;
        let [t0, t1, t2, g0, g1, g2, previous_on_link, previous_of_flow] = *header;
        let sealed = Self {
            send_time: u32::from_be_bytes([0, t0, t1, t2]),
            global: u32::from_be_bytes([0, g0, g1, g2]),
            previous_on_link,
            previous_of_flow,
        };
        Ok((sealed, rest))
    }

    /// With the kinds in the order of flows: what both distances are together. 0: none, or too far.
    #[must_use]
    pub const fn distance_in_flow(&self) -> u16 {
        u16::from_be_bytes([self.previous_on_link, self.previous_of_flow])
    }

    /// Writes the sealed header.
    ///
    /// # Errors
    /// No room.
    pub fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let time = u64::from(self.send_time & NUMBER_MASK) << (16 + NUMBER_BITS);
        let global = u64::from(self.global & NUMBER_MASK) << 16;
        let distances = u64::from(self.previous_on_link) << 8 | u64::from(self.previous_of_flow);
        writer.u64(time | global | distances)
    }
}

/// The distance field for `number` after `previous`.
#[must_use]
pub fn distance(number: u64, previous: Option<u64>) -> u8 {
    previous.and_then(|previous| u8::try_from(number.checked_sub(previous)?).ok()).unwrap_or(0)
}

/// The distance field in the order of flows, for `number` after `previous` of the same flow; 0: none, or too far.
#[must_use]
pub fn distance_in_flow(number: u64, previous: Option<u64>) -> u16 {
    previous.and_then(|previous| u16::try_from(number.checked_sub(previous)?).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_packet_costs_no_more_than_in_wireguard() {
        assert_eq!(OVERHEAD, 32);
    }

    #[test]
    fn a_distance_that_does_not_fit_is_none() {
        let cases = [(7, None, 0), (7, Some(6), 1), (300, Some(45), 255), (300, Some(44), 0)];
        for (number, previous, expected) in cases {
            assert_eq!(distance(number, previous), expected);
        }
    }

    #[test]
    fn in_the_order_of_flows_a_distance_has_sixteen_bits() {
        let cases = [(7, None, 0), (7, Some(6), 1), (70_000, Some(4_465), 65_535)];
        for (number, previous, expected) in cases {
            assert_eq!(distance_in_flow(number, previous), expected);
        }
        assert_eq!(distance_in_flow(70_000, Some(4_464)), 0, "too far");
        assert_eq!(distance_in_flow(7, Some(8)), 0, "behind it");
        let [high, low] = 0x1234_u16.to_be_bytes();
        let sealed =
            Sealed { send_time: 0, global: 0, previous_on_link: high, previous_of_flow: low };
        assert_eq!(sealed.distance_in_flow(), 0x1234);
    }

    proptest! {
        #[test]
        fn the_clear_part_survives_the_wire(
            phase in 0..16_u8,
            link: u8,
            receiver in 0..1_u32 << 24,
            number in 0..1_u32 << 24,
            kind in 1..5_u8,
        ) {
            let kind = kind_of(kind << 4).expect("a transport type");
            let receiver = SessionIndex::new(receiver);
            let clear = Clear { kind, phase, link: LinkId(link), receiver, number };
            prop_assert_eq!(Clear::parse(&clear.to_bytes()), Ok(clear));
            prop_assert_eq!(steering_index(&clear.to_bytes()), Some(receiver));
        }

        #[test]
        fn the_sealed_part_survives_the_wire(
            send_time in 0..1_u32 << 24,
            global in 0..1_u32 << 24,
            previous_on_link: u8,
            previous_of_flow: u8,
        ) {
            let sealed = Sealed { send_time, global, previous_on_link, previous_of_flow };
            let mut buffer = [0; SEALED_LEN + 1];
            sealed.emit(&mut Writer::new(&mut buffer)).unwrap();
            prop_assert_eq!(Sealed::parse(&buffer), Ok((sealed, &[0_u8][..])));
        }

        #[test]
        fn no_input_panics(bytes: Vec<u8>) {
            let _ = (Clear::parse(&bytes), Sealed::parse(&bytes), steering_index(&bytes));
        }
    }
}
