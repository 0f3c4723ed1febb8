//! Whether the kernel takes joined packets, asked once at the start.
//!
//! What is written is of no consequence: its time to live is zero and the checksum of its IP header is wrong, so it is
//! dropped before it is routed, filtered or answered. The kernel judges the header before the packet before that.

use super::sink::Kernel;
use crate::tun::offload::coalesce::{Coalescer, Write};
use crate::tun::offload::header::{self, Partial};
use ropewalk_proto::packet::checksum::{self, Checksum, fold, sum};
use ropewalk_proto::packet::transport::TransportKind;
use rustix::io::Errno;

/// Bytes of payload in each of the packets.
const PAYLOAD: usize = 100;

/// Bytes of an IPv4 header.
const IPV4_HEADER: usize = 20;

/// Documentation addresses (RFC 5737).
const ADDRESSES: [u8; 8] = [192, 0, 2, 1, 192, 0, 2, 2];

/// Writes two joined packets.
///
/// # Errors
/// What the kernel said: `EINVAL` where it takes none.
pub(super) fn joined(kernel: &impl Kernel, kind: TransportKind) -> Result<(), Errno> {
    let mut probe = Probe { kernel, result: Ok(()) };
    let mut coalescer = Coalescer::new(true);
    for before in [0, PAYLOAD] {
        coalescer.add(&packet(kind, before), Checksum::Whole, &mut probe);
    }
    coalescer.flush(&mut probe);
    probe.result
}

/// A packet of a flow, behind so many bytes of it.
fn packet(kind: TransportKind, before: usize) -> Vec<u8> {
    let header = if kind == TransportKind::Tcp { 20 } else { 8 };
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(0).to_be_bytes();
    let mut packet = vec![0; IPV4_HEADER + header + PAYLOAD];
    let total = length(packet.len());
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&total);
    // May not be fragmented.
    packet[6] = 0x40;
    packet[9] = kind.protocol();
    packet[12..20].copy_from_slice(&ADDRESSES);
    let checksum = (!fold(sum(0, &packet[..IPV4_HEADER]))).to_be_bytes();
    packet[10..12].copy_from_slice(&checksum);
    // From and to the port "discard".
    packet[20..24].copy_from_slice(&[0, 9, 0, 9]);
    let covered = length(header + PAYLOAD);
    match kind {
        TransportKind::Tcp => {
            packet[26..28].copy_from_slice(&length(before));
            // Five words of header, ACK.
            packet[32..34].copy_from_slice(&[0x50, 0x10]);
        }
        TransportKind::Udp => packet[24..26].copy_from_slice(&covered),
    }
    let pseudo = sum(u64::from(kind.protocol()) + (header + PAYLOAD) as u64, &ADDRESSES);
    let field = IPV4_HEADER + kind.checksum_offset();
    let checksum = checksum::finished(sum(pseudo, &packet[IPV4_HEADER..])).to_be_bytes();
    packet[field..field + 2].copy_from_slice(&checksum);
    packet
}

/// Breaks the IP header of the joined packet, and writes it.
struct Probe<'a, K> {
    kernel: &'a K,
    result: Result<(), Errno>,
}

impl<K: Kernel> Write for Probe<'_, K> {
    fn write_single(&mut self, _packet: &[u8], _partial: Option<Partial>) {
        // Nothing was joined, so nothing can be said for it.
        self.result = Err(Errno::INVAL);
    }

    fn write_joined(&mut self, frame: &mut [u8], _packets: usize) {
        frame[header::LEN + 10] ^= 0xff;
        self.result = self.kernel.write([&[], frame]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tun::offload::header::Header;
    use std::cell::RefCell;

    #[derive(Default)]
    struct Seen(RefCell<Vec<Vec<u8>>>);

    impl Kernel for Seen {
        fn write(&self, pieces: [&[u8]; 2]) -> Result<(), Errno> {
            self.0.borrow_mut().push(pieces.concat());
            Err(Errno::INVAL)
        }
    }

    #[test]
    fn one_joined_packet_that_nobody_can_route_is_asked_about() {
        for kind in [TransportKind::Tcp, TransportKind::Udp] {
            let seen = Seen::default();
            assert_eq!(joined(&seen, kind), Err(Errno::INVAL));
            let frames = seen.0.into_inner();
            let (head, packet) = frames[0].split_first_chunk().expect("a header");
            let (gso, size) = Header::read(head).expect("a known kind").gso.expect("joined");
            assert_eq!((frames.len(), gso.kind(), size), (1, kind, 100));
            assert_eq!(packet[8], 0, "time to live");
            assert_ne!(fold(sum(0, &packet[..20])), 0xffff, "header checksum");
        }
    }
}
