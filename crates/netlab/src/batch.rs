//! What an end sends, collected for a test that carries it itself.

use ropewalk_proto::ecn::Ecn;
use ropewalk_proto::path::Path;
use ropewalk_proto::sink::TransmitSink;

/// Datagrams with where they go, as many as there are.
#[derive(Debug, Default)]
pub struct Batch {
    /// Those that were sent, the oldest first.
    pub sent: Vec<(Path, Vec<u8>)>,
    reserved: Option<(Path, Vec<u8>)>,
}

impl TransmitSink for Batch {
    fn reserve(&mut self, path: Path, _: Ecn, len: usize) -> Option<&mut [u8]> {
        Some(&mut self.reserved.insert((path, vec![0; len])).1)
    }

    fn has_room(&mut self, _: &[Path], _: usize) -> bool {
        true
    }

    fn commit(&mut self, len: usize) {
        if let Some((path, mut datagram)) = self.reserved.take() {
            datagram.truncate(len);
            self.sent.push((path, datagram));
        }
    }
}
