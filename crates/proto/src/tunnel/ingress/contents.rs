//! What a datagram with frames contains, read once.

use arrayvec::ArrayVec;
use ropewalk_settings::Order;

use crate::wire::expand;
use crate::wire::frame::{Frame, Frames, PacketFrame};
use crate::wire::header::NUMBER_BITS;

/// Most frames of a datagram that are looked at, padding aside: 32 packets, or all that can be said without packets, are
/// fewer. A datagram with more is spoiled behind them.
const MAX_FRAMES: usize = 64;

/// The frames of a datagram, up to what cannot be read.
#[derive(Debug)]
pub(in crate::tunnel) struct Contents<'a> {
    frames: ArrayVec<Frame<'a>, MAX_FRAMES>,
    /// Something behind them could not be read, or is not allowed.
    spoiled: bool,
    packets: u32,
    /// Whether there is anything else that is to be reported.
    elicits: bool,
    rests: bool,
    order: Order,
}

impl<'a> Contents<'a> {
    /// Reads what follows the sealed header. The packets are to be delivered in this order.
    pub(in crate::tunnel) fn parse(body: &'a [u8], order: Order) -> Self {
        let mut contents = Self {
            frames: ArrayVec::new_const(),
            spoiled: false,
            packets: 0,
            elicits: false,
            rests: false,
            order,
        };
        let mut last = None;
        for frame in Frames::new(body) {
            let Ok(frame) = frame else {
                contents.spoiled = true;
                break;
            };
            if let Frame::Packet(PacketFrame { global, .. }) = frame {
                // Packets that share a datagram have rising numbers (PROTOCOL §4).
                if last.replace(global).is_some_and(|last| step(last, global).is_none()) {
                    contents.spoiled = true;
                    break;
                }
            }
            contents.note(&frame);
            if frame != Frame::Padding && contents.frames.try_push(frame).is_err() {
                contents.spoiled = true;
                break;
            }
        }
        contents
    }

    fn note(&mut self, frame: &Frame<'_>) {
        match frame {
            Frame::Packet(_) => self.packets += 1,
            Frame::Resting => self.rests = true,
            Frame::Report(_) | Frame::Close(_) => {}
            _ => self.elicits = true,
        }
    }

    /// All frames but padding, in order.
    pub(in crate::tunnel) fn frames(&self) -> impl Iterator<Item = &Frame<'a>> {
        self.frames.iter()
    }

    /// Whether something could not be read.
    pub(in crate::tunnel) const fn is_spoiled(&self) -> bool {
        self.spoiled
    }

    /// Whether there are packets.
    pub(in crate::tunnel) const fn has_packets(&self) -> bool {
        self.packets > 0
    }

    /// What of it is to be reported (PROTOCOL §4): the packets, or the other frames as one.
    pub(in crate::tunnel) fn eliciting(&self) -> u32 {
        self.packets.max(self.elicits.into())
    }

    /// In which order the packets are to be delivered.
    pub(in crate::tunnel) const fn order(&self) -> Order {
        self.order
    }

    /// Whether the sender keeps the link back.
    pub(in crate::tunnel) const fn rests(&self) -> bool {
        self.rests
    }

    /// The name of the link that the sender opens.
    pub(in crate::tunnel) fn join(&self) -> Option<&'a [u8]> {
        self.frames.iter().find_map(|frame| match frame {
            Frame::Join { name } => Some(*name),
            _ => None,
        })
    }

    /// The first packet.
    pub(in crate::tunnel) fn first_packet(&self) -> Option<&'a [u8]> {
        self.packet_frames().next().map(|frame| frame.packet)
    }

    /// The packets with their global numbers. `next` is the first number that nobody has heard of.
    pub(in crate::tunnel) fn packets(
        &self,
        next: u64,
    ) -> impl Iterator<Item = (u64, &PacketFrame<'a>)> {
        self.packet_frames().scan(None, move |last, frame| {
            let global = match *last {
                None => expand(next, u64::from(frame.global), NUMBER_BITS),
                Some((before, number)) => number + step(before, frame.global)?,
            };
            *last = Some((frame.global, global));
            Some((global, frame))
        })
    }

    fn packet_frames(&self) -> impl Iterator<Item = &PacketFrame<'a>> {
        self.frames.iter().filter_map(|frame| match frame {
            Frame::Packet(frame) => Some(frame),
            _ => None,
        })
    }
}

/// How far the number of a packet is behind that of the one before it in its datagram; `None`: it is not, which no
/// sender does.
fn step(before: u32, number: u32) -> Option<u64> {
    let step = number.wrapping_sub(before) & ((1 << NUMBER_BITS) - 1);
    (1..1 << (NUMBER_BITS - 1)).contains(&step).then_some(u64::from(step))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::wire::cursor::Writer;
    use crate::wire::frame::{CloseReason, emit};

    /// These frames, as they stand in a datagram.
    fn framed(frames: &[Frame<'_>]) -> Vec<u8> {
        let mut bytes = [0; 4000];
        let mut writer = Writer::new(&mut bytes);
        for frame in frames {
            emit(&mut writer, frame).expect("there is room");
        }
        let len = writer.len();
        bytes[..len].to_vec()
    }

    fn packet(global: u32) -> Frame<'static> {
        let packet = &[7; 20];
        Frame::Packet(PacketFrame { global, previous_on_link: 0, previous_of_flow: 0, packet })
    }

    fn packets(globals: &[u32]) -> Vec<u8> {
        framed(&globals.iter().map(|global| packet(*global)).collect::<Vec<_>>())
    }

    fn numbers(globals: &[u32], next: u64) -> Vec<u64> {
        let body = packets(globals);
        Contents::parse(&body, Order::Global).packets(next).map(|(global, _)| global).collect()
    }

    #[test]
    fn the_numbers_of_a_datagram_rise_over_the_wrap_of_their_low_bits_and_end_where_they_do_not() {
        const WRAP: u64 = 1 << 24;
        let table: [(&[u32], u64, &[u64]); 7] = [
            (&[5], 5, &[5]),
            (&[5, 6, 9], 5, &[5, 6, 9]),
            (&[0xff_fffe, 0xff_ffff, 1], WRAP - 4, &[WRAP - 2, WRAP - 1, WRAP + 1]),
            (&[5, 5, 6], 5, &[5]),
            (&[5, 7, 6, 8], 5, &[5, 7]),
            // Half of the number space ahead is behind.
            (&[5, 5 + (1 << 23), 6], 5, &[5]),
            (&[], 5, &[]),
        ];
        for (globals, next, expected) in table {
            assert_eq!(numbers(globals, next), expected, "{globals:?}");
        }
    }

    #[test]
    fn behind_what_cannot_be_read_there_is_nothing() {
        let mut bytes = packets(&[1, 2]);
        bytes.extend([0x3f, 0, 0]);
        bytes.extend(packets(&[3]));
        let contents = Contents::parse(&bytes, Order::Global);
        assert_eq!((contents.packets(0).count(), contents.is_spoiled()), (2, true));
    }

    #[test]
    fn no_more_frames_are_looked_at_than_a_sender_writes_and_padding_is_none() {
        for (pings, spoiled) in [(MAX_FRAMES, false), (MAX_FRAMES + 1, true)] {
            let mut frames = vec![Frame::Ping; pings];
            frames.insert(1, Frame::Padding);
            let body = framed(&frames);
            let contents = Contents::parse(&body, Order::Global);
            assert_eq!((contents.frames().count(), contents.is_spoiled()), (MAX_FRAMES, spoiled));
        }
    }

    #[test]
    fn packets_are_reported_one_by_one_other_frames_as_one_and_farewells_not_at_all() {
        let close = Frame::Close(CloseReason::Shutdown);
        let table: [(&[Frame<'_>], u32); 6] = [
            (&[], 0),
            (&[close, Frame::Resting], 0),
            (&[Frame::Padding], 1),
            (&[Frame::Ping, Frame::JoinAck], 1),
            (&[packet(1), packet(2)], 2),
            (&[Frame::Ping, packet(1), packet(2)], 2),
        ];
        for (frames, expected) in table {
            assert_eq!(
                Contents::parse(&framed(frames), Order::Global).eliciting(),
                expected,
                "{frames:?}"
            );
        }
    }

    proptest! {
        #[test]
        fn whatever_a_datagram_says_its_numbers_rise(
            globals in proptest::collection::vec(0..1_u32 << 24, 0..60), next in 0..1_u64 << 62,
        ) {
            let numbers = numbers(&globals, next);
            prop_assert!(numbers.is_sorted_by(|one, other| one < other), "{:?}", numbers);
            let rises = |(wide, low): (&u64, &u32)| wide % (1 << 24) == u64::from(*low);
            prop_assert!(numbers.iter().zip(&globals).all(rises));
        }
    }
}
