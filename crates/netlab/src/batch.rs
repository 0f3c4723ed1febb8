//! What an end sends, and what comes out at it, collected for a test that carries it itself.

use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::packet::Packet;
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::{PacketSink, TransmitSink};

/// Datagrams with where they go: as many as there are, or as a batch takes.
#[derive(Debug)]
pub struct Batch {
    /// Those that were sent, the oldest first.
    pub sent: Vec<(Path, Vec<u8>)>,
    most: usize,
    reserved: Option<(Path, Vec<u8>)>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::of(usize::MAX)
    }
}

impl Batch {
    /// A batch that is full with so many datagrams.
    #[must_use]
    pub const fn of(most: usize) -> Self {
        Self { sent: Vec::new(), most, reserved: None }
    }

    /// Whether it takes no more.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.sent.len() >= self.most
    }
}

impl TransmitSink for Batch {
    fn reserve(&mut self, path: Path, _: Ecn, len: usize) -> Option<&mut [u8]> {
        if self.is_full() {
            return None;
        }
        // No zeros: a byte that nobody writes is to be seen.
        Some(&mut self.reserved.insert((path, vec![0xaa; len])).1)
    }

    fn has_room(&mut self, paths: &[Path], _: usize) -> bool {
        self.sent.len() + paths.len() <= self.most
    }

    fn commit(&mut self, len: usize) {
        if let Some((path, mut datagram)) = self.reserved.take() {
            datagram.truncate(len);
            self.sent.push((path, datagram));
        }
    }
}

/// Packets that came out of a tunnel, the oldest first, with their checksums as they came.
#[derive(Debug, Default)]
pub struct Tun(pub Vec<Vec<u8>>);

impl PacketSink for Tun {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.0.push(packet.bytes.to_vec());
    }
}
