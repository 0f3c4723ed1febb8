//! The mark of a packet whose checksum is partial, on the wire.
//!
//! It is the highest bit of the packet's first byte, which is zero in IPv4 (`0x4_`) and IPv6 (`0x6_`): it is
//! sealed and costs nothing. It goes only with a packet that is alone and whole in its datagram. At the receiver the bit is
//! cleared before anybody reads the packet; from then on packet and checksum travel as a pair ([`Packet`]).

use crate::packet::checksum::Checksum;
use crate::packet::transport::Transport;
use crate::packet::{Packet, PacketView};
use crate::queue::Label;
use crate::wire::cursor::{Truncated, Writer};

/// The bit.
const MARK: u8 = 0x80;

/// What is read of a packet from the TUN whose checksum is partial, before the packet may be changed.
#[derive(Clone, Copy)]
pub(crate) struct PartialRead {
    pub(super) label: Label,
    pub(super) transport: Transport,
}

impl PartialRead {
    /// `None`: it is neither TCP nor UDP.
    pub(crate) fn of(packet: &PacketView<'_>) -> Option<Self> {
        let transport = Transport::of(packet)?;
        Some(Self { label: Label::of(packet, Checksum::Partial), transport })
    }
}

/// Writes a packet as it stands on the wire.
pub(super) fn emit(writer: &mut Writer<'_>, packet: Packet<'_>) -> Result<(), Truncated> {
    match (packet.checksum, packet.bytes) {
        (Checksum::Partial, [first, rest @ ..]) => {
            writer.u8(first | MARK)?;
            writer.bytes(rest)
        }
        (_, bytes) => writer.bytes(bytes),
    }
}

/// Takes the mark off a packet that came.
pub(super) fn take_mark(packet: &mut [u8]) -> Checksum {
    match packet.first_mut() {
        Some(first) if *first & MARK != 0 => {
            *first &= !MARK;
            Checksum::Partial
        }
        _ => Checksum::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_written_and_taken_off_once() {
        for (first, checksum) in [
            (0x45, Checksum::Whole),
            (0x60, Checksum::Whole),
            (0xc5, Checksum::Partial),
            (0xe0, Checksum::Partial),
        ] {
            let mut bytes = [first, 7];
            assert_eq!(take_mark(&mut bytes), checksum);
            assert_eq!((take_mark(&mut bytes), bytes), (Checksum::Whole, [first & 0x7f, 7]));
            let mut wire = [0; 2];
            let packet = Packet { bytes: &bytes, checksum };
            emit(&mut Writer::new(&mut wire), packet).expect("it fits");
            assert_eq!(wire, [first, 7]);
        }
        assert_eq!(take_mark(&mut []), Checksum::Whole);
    }
}
