//! The writing side of the kernel's TUN.
//!
//! Without offload each packet is written at once, from where it lies. With it, packets of one flow are joined until the
//! flush. A kernel that takes no joined packet after all (some of Linux 6.1 and 6.10 do not) is found out by the first one:
//! it is parted again, written packet by packet, and nothing is joined from then on. One that refuses to complete a
//! checksum is not asked for that twice either.

use super::is_gone;
use crate::tun::offload::coalesce::{Coalescer, Write};
use crate::tun::offload::header::{self, Header, Partial};
use crate::tun::offload::split::Split;
use crate::tun::{MAX_PACKET, TunOffload};
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::packet::{Packet, transport};
use ropewalk_proto::sink::PacketSink;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::{Arc, Once};
use tun_rs::{AsyncDevice, DeviceImpl};

/// What takes packets: the kernel, or a test in its place.
pub(super) trait Kernel {
    /// Writes one packet that lies in two pieces. Never waits.
    fn write(&self, pieces: [&[u8]; 2]) -> Result<(), Errno>;
}

impl Kernel for DeviceImpl {
    fn write(&self, pieces: [&[u8]; 2]) -> Result<(), Errno> {
        // Straight to the kernel: a TUN is always writable, and the runtime's idea of its readiness
        // would only be in the way (it starts as "not yet").
        let fd = self.as_fd();
        let pieces = pieces.map(IoSlice::new);
        let pieces = if pieces[0].is_empty() { &pieces[1..] } else { &pieces };
        rustix::io::retry_on_intr(|| rustix::io::writev(fd, pieces)).map(|_| ())
    }
}

impl Kernel for Arc<AsyncDevice> {
    fn write(&self, pieces: [&[u8]; 2]) -> Result<(), Errno> {
        Kernel::write(&***self, pieces)
    }
}

/// The writing side.
pub struct LinuxSink {
    inner: Sink<Arc<AsyncDevice>>,
}

impl LinuxSink {
    pub(super) const fn new(device: Arc<AsyncDevice>, framing: Framing) -> Self {
        Self { inner: Sink::new(device, framing) }
    }

    /// Goes on with the device in place of one that is gone. What was held for that is dropped.
    pub(super) fn reopen(&mut self, device: Arc<AsyncDevice>, framing: Framing) {
        let counts = self.counts();
        self.inner = Sink::new(device, framing);
        self.inner.writer.counts = counts;
    }

    /// Whether the queue is attached: if not, what is written is dropped.
    pub(super) const fn set_attached(&mut self, attached: bool) {
        self.inner.writer.is_attached = attached;
    }

    /// Writes what is held. Returns whether the interface is still there.
    pub(super) fn flush(&mut self) -> bool {
        self.inner.flush();
        !self.inner.writer.gone
    }

    pub(super) const fn counts(&self) -> Written {
        self.inner.writer.counts
    }

    /// Whether packets are joined.
    pub(super) const fn is_joining(&self) -> bool {
        self.inner.joining.is_some()
    }
}

impl PacketSink for LinuxSink {
    fn deliver(&mut self, packet: Packet<'_>) {
        self.inner.deliver(packet);
    }
}

/// How packets are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tun) enum Framing {
    /// Each by itself.
    Plain,
    /// Each by itself, behind a header.
    Headers,
    /// Joined, behind a header; UDP only where `udp`.
    Joined { udp: bool },
}

impl Framing {
    /// What it means to others.
    pub(in crate::tun) const fn offload(self) -> TunOffload {
        TunOffload {
            reads: !matches!(self, Self::Plain),
            writes: matches!(self, Self::Joined { .. }),
        }
    }
}

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Written {
    /// Packets that the kernel took.
    pub(super) packets: u64,
    /// Packets that it did not.
    pub(super) dropped: u64,
    /// Calls.
    pub(super) calls: u64,
}

/// The writing side, over any kernel.
struct Sink<K> {
    /// `None`: nothing is joined.
    joining: Option<Coalescer>,
    writer: Writer<K>,
}

impl<K: Kernel> Sink<K> {
    const fn new(kernel: K, framing: Framing) -> Self {
        let joining = match framing {
            Framing::Joined { udp } => Some(Coalescer::new(udp)),
            Framing::Plain | Framing::Headers => None,
        };
        let head: &[u8] = match framing {
            Framing::Plain => &[],
            Framing::Headers | Framing::Joined { .. } => &[0; header::LEN],
        };
        let writer = Writer {
            kernel,
            head,
            counts: Written { packets: 0, dropped: 0, calls: 0 },
            is_attached: true,
            gone: false,
            refused: false,
            completes: true,
            scratch: Vec::new(),
        };
        Self { joining, writer }
    }

    fn deliver(&mut self, Packet { bytes: packet, checksum }: Packet<'_>) {
        let Self { joining, writer } = self;
        match (joining, checksum) {
            (Some(coalescer), _) => {
                coalescer.add(packet, checksum, writer);
                self.stop_if_refused();
            }
            (None, Checksum::Whole) => writer.write_single(packet, None),
            (None, Checksum::Partial) => drop(writer.write_completed(packet)),
        }
    }

    fn flush(&mut self) {
        if let Some(coalescer) = &mut self.joining {
            coalescer.flush(&mut self.writer);
            self.stop_if_refused();
        }
    }

    fn stop_if_refused(&mut self) {
        if self.writer.refused
            && let Some(mut coalescer) = self.joining.take()
        {
            coalescer.flush(&mut self.writer);
            // Each queue of a TUN finds out by itself.
            static SAID: Once = Once::new();
            SAID.call_once(|| tracing::warn!(
                "the kernel refuses joined packets (EINVAL): the TUN is written packet by packet from now on, which is slower; a newer kernel helps"
            ));
        }
    }
}

/// Writes, and counts.
struct Writer<K> {
    kernel: K,
    /// What goes before a packet that is not joined.
    head: &'static [u8],
    counts: Written,
    /// The kernel takes what is written to this queue.
    is_attached: bool,
    gone: bool,
    /// A joined packet was refused whose packets were taken.
    refused: bool,
    /// The kernel completes checksums, as far as is known.
    completes: bool,
    /// A packet whose checksum is completed here.
    scratch: Vec<u8>,
}

impl<K: Kernel> Writer<K> {
    fn write(&mut self, pieces: [&[u8]; 2]) -> Result<(), Errno> {
        if !self.is_attached {
            // What the kernel would say is what it says of an interface that is gone.
            return Err(Errno::NOTCONN);
        }
        self.counts.calls += 1;
        self.kernel.write(pieces).inspect_err(|errno| self.gone |= is_gone(Some(*errno)))
    }

    /// Parts a joined packet again. Returns whether the kernel took any of it.
    fn write_parted(&mut self, frame: &mut [u8]) -> bool {
        let Some((head, packet)) = frame.split_first_chunk_mut() else { return false };
        let Ok(header) = Header::read(head) else { return false };
        let Ok(mut split) = Split::new(&header, packet, Checksum::Whole) else { return false };
        let before = self.counts.packets;
        while let Some((range, _)) = split.next(packet) {
            self.write_single(&packet[range], None);
        }
        self.counts.packets > before
    }

    /// Completes the checksum first, for a kernel that was asked for nothing or refuses to. Returns whether it took that.
    fn write_completed(&mut self, packet: &[u8]) -> bool {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.extend_from_slice(packet);
        let is_taken =
            transport::complete(&mut scratch) && self.write([self.head, &scratch]).is_ok();
        self.scratch = scratch;
        self.count(is_taken);
        is_taken
    }

    /// Counts a packet that was written by itself.
    const fn count(&mut self, is_taken: bool) {
        if is_taken {
            self.counts.packets += 1;
        } else {
            self.counts.dropped += 1;
        }
    }
}

impl<K: Kernel> Write for Writer<K> {
    fn write_single(&mut self, packet: &[u8], partial: Option<Partial>) {
        // A packet longer than any is none; the kernel would take it for a super packet.
        debug_assert!(packet.len() <= MAX_PACKET, "packets come out of datagrams");
        if partial.is_none() {
            let is_taken = self.write([self.head, packet]).is_ok();
            return self.count(is_taken);
        }
        if self.completes {
            let head = Header { partial, ..Header::default() }.bytes();
            match self.write([&head, packet]) {
                Err(Errno::INVAL) => {}
                result => return self.count(result.is_ok()),
            }
        }
        if self.write_completed(packet) && std::mem::take(&mut self.completes) {
            static SAID: Once = Once::new();
            SAID.call_once(|| tracing::warn!(
                "the kernel refuses packets whose checksum it is to complete (EINVAL): that is done here from now on, which is slower; a newer kernel helps"
            ));
        }
    }

    fn write_joined(&mut self, frame: &mut [u8], packets: usize) {
        // After a refusal, what is still held goes the same way.
        if !self.refused {
            match self.write([&[], frame]) {
                Ok(()) => return self.counts.packets += packets as u64,
                Err(Errno::INVAL) => {}
                Err(_) => return self.counts.dropped += packets as u64,
            }
        }
        self.refused |= self.write_parted(frame);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tun::offload::testing::{Flow, Shape};
    use ropewalk_proto::packet::checksum;
    use ropewalk_proto::packet::{PacketView, transport::Transport};
    use std::cell::RefCell;

    /// Takes what it is told to, and keeps it.
    struct Fake {
        joined: Result<(), Errno>,
        single: Result<(), Errno>,
        /// A single packet whose checksum it is to complete.
        partial: Result<(), Errno>,
        taken: RefCell<Vec<Vec<u8>>>,
    }

    impl Kernel for Fake {
        fn write(&self, pieces: [&[u8]; 2]) -> Result<(), Errno> {
            let frame = pieces.concat();
            let head = frame.first_chunk().expect("a header");
            let header = Header::read(head).expect("a known kind");
            match (header.gso, header.partial) {
                (Some(_), _) => self.joined?,
                (None, Some(_)) => self.partial?,
                (None, None) => self.single?,
            }
            let mut packet = frame[header::LEN..].to_vec();
            if let (None, Some(Partial { start, offset })) = (header.gso, header.partial) {
                assert!(checksum::complete(&mut packet, start.into(), offset.into()));
            }
            self.taken.borrow_mut().push(packet);
            Ok(())
        }
    }

    fn sink(joined: Result<(), Errno>, single: Result<(), Errno>) -> Sink<Fake> {
        let fake = Fake { joined, single, partial: Ok(()), taken: RefCell::default() };
        Sink::new(fake, Framing::Joined { udp: true })
    }

    /// Ten segments, handed over and flushed.
    fn deliver(sink: &mut Sink<Fake>) -> Vec<Vec<u8>> {
        let mut flow = Flow::new(Shape::TcpV4);
        let packets: Vec<_> = (0..10).map(|_| flow.packet(500, false)).collect();
        packets.iter().for_each(|packet| sink.deliver(Packet::whole(packet)));
        sink.flush();
        packets
    }

    #[test]
    fn a_kernel_that_refuses_joined_packets_gets_them_one_by_one_and_is_not_asked_again() {
        let mut sink = sink(Err(Errno::INVAL), Ok(()));
        let packets = deliver(&mut sink);
        assert_eq!(*sink.writer.kernel.taken.borrow(), packets, "the same bytes");
        assert!(sink.joining.is_none());
        assert_eq!(sink.writer.counts, Written { packets: 10, dropped: 0, calls: 11 });
        let again = deliver(&mut sink);
        assert_eq!(sink.writer.kernel.taken.borrow()[10..], again);
        assert_eq!(sink.writer.counts, Written { packets: 20, dropped: 0, calls: 21 });
    }

    #[test]
    fn an_interface_that_is_down_or_takes_nothing_says_nothing_about_joining() {
        for (joined, single) in [(Errno::IO, Errno::IO), (Errno::INVAL, Errno::INVAL)] {
            let mut sink = sink(Err(joined), Err(single));
            deliver(&mut sink);
            assert!(sink.joining.is_some());
            assert_eq!((sink.writer.counts.packets, sink.writer.counts.dropped), (0, 10));
        }
    }

    /// A packet by itself, with its checksum whole and partial.
    fn single() -> [Vec<u8>; 2] {
        let whole = Flow::new(Shape::TcpV4).packet(500, true);
        let mut left = whole.clone();
        let view = PacketView::parse(&left).expect("a packet");
        let transport = Transport::of(&view).expect("TCP");
        let partial = transport.partial(&left).to_be_bytes();
        left[36..38].copy_from_slice(&partial);
        [whole, left]
    }

    #[test]
    fn a_kernel_that_refuses_to_complete_a_checksum_gets_it_completed_and_is_not_asked_again() {
        let [whole, left] = single();
        let mut sink = sink(Ok(()), Ok(()));
        sink.writer.kernel.partial = Err(Errno::INVAL);
        for (calls, packets) in [(2, 1), (3, 2)] {
            sink.deliver(Packet::partial(&left));
            sink.flush();
            assert_eq!(sink.writer.counts, Written { packets, dropped: 0, calls });
        }
        assert_eq!(*sink.writer.kernel.taken.borrow(), [whole.clone(), whole]);
        deliver(&mut sink);
        assert_eq!(sink.writer.counts.calls, 4, "packets are still joined");
    }

    #[test]
    fn an_interface_that_is_down_says_nothing_about_checksums() {
        let [whole, left] = single();
        let mut sink = sink(Ok(()), Err(Errno::IO));
        sink.writer.kernel.partial = Err(Errno::IO);
        sink.deliver(Packet::partial(&left));
        assert_eq!(sink.writer.counts, Written { packets: 0, dropped: 1, calls: 1 });
        sink.writer.kernel.partial = Ok(());
        sink.deliver(Packet::partial(&left));
        assert_eq!(sink.writer.counts, Written { packets: 1, dropped: 1, calls: 2 });
        assert_eq!(*sink.writer.kernel.taken.borrow(), [whole]);
    }

    #[test]
    fn where_nothing_is_joined_checksums_are_completed_here() {
        let [whole, left] = single();
        for framing in [Framing::Headers, Framing::Joined { udp: true }] {
            let mut sink = sink(Err(Errno::INVAL), Ok(()));
            sink.writer.kernel.partial = Err(Errno::INVAL);
            if framing == Framing::Headers {
                sink.joining = None;
            } else {
                // Refused while it ran.
                deliver(&mut sink);
                sink.writer.kernel.taken.borrow_mut().clear();
            }
            sink.deliver(Packet::partial(&left));
            assert_eq!(*sink.writer.kernel.taken.borrow(), std::slice::from_ref(&whole));
        }
    }

    #[test]
    fn a_joined_packet_is_one_call_and_counts_as_many() {
        let mut sink = sink(Ok(()), Ok(()));
        deliver(&mut sink);
        assert_eq!(sink.writer.counts, Written { packets: 10, dropped: 0, calls: 1 });
    }
}
