//! The mark of a packet whose checksum is partial: how it stands on the wire, and how it passes the resequencer.
//!
//! On the wire it is the highest bit of the packet's first byte, which is zero in IPv4 (`0x4_`) and IPv6 (`0x6_`): it is
//! sealed and costs nothing. It goes only with a packet that is alone and whole in its datagram. At the receiver the bit is
//! cleared before anybody reads the packet, and a byte is put before it, in the place of the header's last, which was read
//! already; so it is held and released with the packet. No packet begins with that byte, and none that came with it passes.

use crate::packet::PacketView;
use crate::packet::checksum::Checksum;
use crate::packet::transport::Transport;
use crate::queue::Label;
use crate::wire::cursor::{Truncated, Writer};

/// The bit.
const MARK: u8 = 0x80;

/// Stands before a packet whose checksum is partial, between arrival and delivery.
pub(super) const PARTIAL: u8 = 0x30;

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
pub(super) fn emit(
    writer: &mut Writer<'_>,
    packet: &[u8],
    checksum: Checksum,
) -> Result<(), Truncated> {
    match (checksum, packet) {
        (Checksum::Partial, [first, rest @ ..]) => {
            writer.u8(first | MARK)?;
            writer.bytes(rest)
        }
        _ => writer.bytes(packet),
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

/// What passes the resequencer in the place of a packet. `framed` is the packet with a spare byte before it.
pub(super) fn framed(framed: &mut [u8], checksum: Checksum) -> &[u8] {
    let Some(spare) = framed.first_mut() else { return &[] };
    *spare = PARTIAL;
    match checksum {
        Checksum::Partial => framed,
        Checksum::Whole => &framed[1..],
    }
}

/// The reverse.
pub(super) const fn unframed(framed: &[u8]) -> (Checksum, &[u8]) {
    match framed {
        [PARTIAL, packet @ ..] => (Checksum::Partial, packet),
        packet => (Checksum::Whole, packet),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_is_taken_off_once_and_passes_beside_the_packet() {
        for (first, checksum) in [
            (0x45, Checksum::Whole),
            (0x60, Checksum::Whole),
            (0xc5, Checksum::Partial),
            (0xe0, Checksum::Partial),
        ] {
            let mut bytes = [9, first, 7];
            assert_eq!(take_mark(&mut bytes[1..]), checksum);
            assert_eq!(take_mark(&mut bytes[1..]), Checksum::Whole);
            let packet = [first & 0x7f, 7];
            let mut wire = [0; 2];
            emit(&mut Writer::new(&mut wire), &packet, checksum).expect("it fits");
            assert_eq!(wire, [first, 7]);
            assert_eq!(unframed(framed(&mut bytes, checksum)), (checksum, &packet[..]));
        }
        assert_eq!(take_mark(&mut []), Checksum::Whole);
        assert!(framed(&mut [], Checksum::Partial).is_empty());
        assert_eq!(unframed(&[]), (Checksum::Whole, &[][..]));
    }
}
