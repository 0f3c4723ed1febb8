//! Where the core puts what it produces: slices of the driver's batches, never buffers of its own.

use crate::{ecn::Ecn, packet::Packet, path::Path};

/// The driver's outgoing batch. `reserve`, fill, `commit`; a reservation that is not committed is
/// as if it had not been made.
pub trait TransmitSink {
    /// Borrows `len` bytes (zeroed or not) for a datagram on `path`. `None`: the batch is full; the
    /// driver flushes and calls `poll_transmit` again.
    fn reserve(&mut self, path: Path, ecn: Ecn, len: usize) -> Option<&mut [u8]>;

    /// Whether the batch takes a datagram of up to `len` bytes on each of these paths, no two of which are the same, one
    /// behind the other. `false`: it is as full as when `reserve` refuses.
    fn has_room(&mut self, paths: &[Path], len: usize) -> bool;

    /// Queues the reserved datagram, shortened to its first `len` bytes.
    fn commit(&mut self, len: usize);
}

/// The TUN's outgoing batch.
pub trait PacketSink {
    /// Takes one inner IP packet. Borrowed: the bytes are valid until the call returns; copy what is
    /// kept. A sink that cannot leave a partial checksum to somebody else completes it ([`Packet::completed`]).
    fn deliver(&mut self, packet: Packet<'_>);
}
