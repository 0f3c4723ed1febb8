//! Inner packets: the strict reading of TCP and UDP, super packets parted as they are read, and packets joined as they are
//! written.

use ropewalk_link_io::tun::offload::coalesce::{Coalescer, Write};
use ropewalk_link_io::tun::offload::header::{self, Header, Partial};
use ropewalk_link_io::tun::offload::split::Split;
use ropewalk_proto::packet::checksum::{self, Checksum};
use ropewalk_proto::packet::transport::{self, Transport};
use ropewalk_proto::packet::{PacketView, protocol};

use crate::input::Input;

/// Segments of one super packet that are looked at: a window of one byte makes many.
const MOST_SEGMENTS: usize = 2_000;

/// Runs the target on one input.
pub fn run(data: &[u8]) {
    let mut input = Input(data);
    let (mut coalescer, mut kernel) = (Coalescer::new(input.byte() & 1 == 0), Kernel::default());
    let mut sent = Vec::new();
    while !input.is_empty() {
        let choice = input.byte();
        let mut head = [0; header::LEN];
        if choice & 1 == 0 {
            let bytes = input.bytes(header::LEN);
            head[..bytes.len()].copy_from_slice(bytes);
        }
        let mut packet = input.piece().to_vec();
        if choice & 2 == 0 {
            fix(&mut packet, choice);
        }
        part(&head, &packet);
        let is_partial = choice & 4 == 0 && leave(&mut packet);
        let checksum = if is_partial { Checksum::Partial } else { Checksum::Whole };
        coalescer.add(&packet, checksum, &mut kernel);
        // What comes out of a partial checksum is what its sender meant.
        if is_partial {
            assert!(transport::complete(&mut packet), "it was read before");
        }
        sent.push(packet);
        if choice & 8 != 0 {
            coalescer.flush(&mut kernel);
        }
    }
    coalescer.flush(&mut kernel);
    let mut came = kernel.0;
    assert_eq!(came.len(), sent.len(), "every packet comes out once");
    // Only the identification of what may not be fragmented is made again.
    for packet in came.iter_mut().chain(&mut sent) {
        without_identification(packet);
    }
    came.sort();
    sent.sort();
    assert!(came == sent, "every packet comes out as it went in");
}

/// Makes lengths and checksums right, so that most inputs are packets.
fn fix(packet: &mut [u8], choice: u8) {
    let Ok(len) = u16::try_from(packet.len()) else { return };
    let is_tcp = choice & 16 == 0;
    let number = if is_tcp { protocol::TCP } else { protocol::UDP };
    let start = if choice & 32 == 0 { 20 } else { 40 };
    if packet.len() < start + 20 {
        return;
    }
    if start == 20 {
        packet[0] = 0x45;
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet[6] &= 0x40;
        packet[7] = 0;
        packet[9] = number;
        packet[10..12].fill(0);
        let checksum = (!checksum::fold(checksum::sum(0, &packet[..20]))).to_be_bytes();
        packet[10..12].copy_from_slice(&checksum);
    } else {
        packet[0] = 0x60;
        packet[4..6].copy_from_slice(&(len - 40).to_be_bytes());
        packet[6] = number;
    }
    if is_tcp {
        packet[start + 12] = 0x50;
        packet[start + 13] = if choice & 64 == 0 { 0x10 } else { 0x18 };
    } else {
        let covered = len - if start == 20 { 20 } else { 40 };
        packet[start + 4..start + 6].copy_from_slice(&covered.to_be_bytes());
    }
    if leave(packet) {
        transport::complete(packet);
    }
}

/// Makes the transport's checksum partial. `false`: there is none by the strict reading.
fn leave(packet: &mut [u8]) -> bool {
    let transport = PacketView::parse(packet).ok().and_then(|view| Transport::of(&view));
    let Some(transport) = transport else { return false };
    let at = transport.start + transport.kind.checksum_offset();
    assert!(at + 2 <= transport.payload && transport.payload <= packet.len());
    let partial = transport.partial(packet).to_be_bytes();
    packet[at..at + 2].copy_from_slice(&partial);
    assert!(transport.is_sound(packet, Checksum::Partial));
    true
}

/// What the kernel would hand over with this header: parted with whole and with partial checksums alike.
fn part(head: &[u8; header::LEN], packet: &[u8]) {
    let Ok(header) = Header::read(head) else { return };
    let parted = [Checksum::Whole, Checksum::Partial].map(|wanted| {
        let mut packet = packet.to_vec();
        let mut split = Split::new(&header, &mut packet, wanted).ok()?;
        let mut parted = Vec::new();
        while let Some((range, checksum)) = split.next(&mut packet) {
            let mut segment = packet[range].to_vec();
            if checksum == Checksum::Partial {
                assert!(wanted == Checksum::Partial && transport::complete(&mut segment));
            }
            parted.push(segment);
            if parted.len() == MOST_SEGMENTS {
                break;
            }
        }
        Some(parted)
    });
    let [whole, left] = parted;
    assert!(whole == left, "whole and partial checksums mean the same");
}

fn without_identification(packet: &mut [u8]) {
    if let Some(first) = packet.first()
        && *first >> 4 == 4
        && packet.len() >= 20
        && packet[6] & 0x40 != 0
    {
        packet[4..6].fill(0);
        packet[10..12].fill(0);
    }
}

/// Parts what is joined, as the kernel would.
#[derive(Default)]
struct Kernel(Vec<Vec<u8>>);

impl Write for Kernel {
    fn write_single(&mut self, packet: &[u8], partial: Option<Partial>) {
        let mut packet = packet.to_vec();
        if let Some(Partial { start, offset }) = partial {
            assert!(checksum::complete(&mut packet, start.into(), offset.into()));
        }
        self.0.push(packet);
    }

    fn write_joined(&mut self, frame: &mut [u8], packets: usize) {
        let (head, packet) = frame.split_first_chunk_mut().expect("a header");
        let header = Header::read(head).expect("a known kind");
        assert!(packets > 1 && header.partial.is_some() && header.gso.is_some());
        let view = PacketView::parse(packet).expect("a packet");
        let transport = Transport::of(&view).expect("TCP or UDP");
        assert_eq!(usize::from(header.headers), transport.payload);
        let before = self.0.len();
        let mut split = Split::new(&header, packet, Checksum::Whole).expect("a super packet");
        while let Some((range, _)) = split.next(packet) {
            self.0.push(packet[range].to_vec());
        }
        assert_eq!(self.0.len() - before, packets);
    }
}
