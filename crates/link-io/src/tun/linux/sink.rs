//! The writing side of the kernel's TUN.
//!
//! Without offload each packet is written at once, from where it lies. With it, packets of one flow are joined until the
//! flush. A kernel that takes no joined packet after all (some of Linux 6.1 and 6.10 do not) is found out by the first one:
//! it is parted again, written packet by packet, and nothing is joined from then on.

use super::is_gone;
use crate::tun::MAX_PACKET;
use crate::tun::offload::coalesce::{Coalescer, Write};
use crate::tun::offload::header::{self, Header};
use crate::tun::offload::split::Split;
use ropewalk_proto::sink::PacketSink;
use rustix::io::Errno;
use std::io::IoSlice;
use std::os::fd::AsFd;
use std::sync::Arc;
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
    fn deliver(&mut self, packet: &[u8]) {
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
        let counts = Written { packets: 0, dropped: 0, calls: 0 };
        Self { joining, writer: Writer { kernel, head, counts, gone: false, refused: false } }
    }

    fn deliver(&mut self, packet: &[u8]) {
        let Self { joining, writer } = self;
        match joining {
            Some(coalescer) => {
                coalescer.add(packet, writer);
                self.stop_if_refused();
            }
            None => writer.write_single(packet),
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
            tracing::warn!(
                "the kernel refuses joined packets (EINVAL): the TUN is written packet by packet from now on, which is slower; a newer kernel helps"
            );
        }
    }
}

/// Writes, and counts.
struct Writer<K> {
    kernel: K,
    /// What goes before a packet that is not joined.
    head: &'static [u8],
    counts: Written,
    gone: bool,
    /// A joined packet was refused whose packets were taken.
    refused: bool,
}

impl<K: Kernel> Writer<K> {
    fn write(&mut self, pieces: [&[u8]; 2]) -> Result<(), Errno> {
        self.counts.calls += 1;
        self.kernel.write(pieces).inspect_err(|errno| self.gone |= is_gone(Some(*errno)))
    }

    /// Parts a joined packet again. Returns whether the kernel took any of it.
    fn write_parted(&mut self, frame: &mut [u8]) -> bool {
        let Some((head, packet)) = frame.split_first_chunk_mut() else { return false };
        let Ok(header) = Header::read(head) else { return false };
        let Ok(mut split) = Split::new(&header, packet) else { return false };
        let before = self.counts.packets;
        while let Some(range) = split.next(packet) {
            self.write_single(&packet[range]);
        }
        self.counts.packets > before
    }
}

impl<K: Kernel> Write for Writer<K> {
    fn write_single(&mut self, packet: &[u8]) {
        // A packet longer than any is none; the kernel would take it for a super packet.
        debug_assert!(packet.len() <= MAX_PACKET, "packets come out of datagrams");
        match self.write([self.head, packet]) {
            Ok(()) => self.counts.packets += 1,
            Err(_) => self.counts.dropped += 1,
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
    use std::cell::RefCell;

    /// Takes what it is told to, and keeps it.
    struct Fake {
        joined: Result<(), Errno>,
        single: Result<(), Errno>,
        taken: RefCell<Vec<Vec<u8>>>,
    }

    impl Kernel for Fake {
        fn write(&self, pieces: [&[u8]; 2]) -> Result<(), Errno> {
            let frame = pieces.concat();
            let head = frame.first_chunk().expect("a header");
            let is_joined = Header::read(head).expect("a known kind").gso.is_some();
            if is_joined { self.joined } else { self.single }?;
            self.taken.borrow_mut().push(frame[header::LEN..].to_vec());
            Ok(())
        }
    }

    fn sink(joined: Result<(), Errno>, single: Result<(), Errno>) -> Sink<Fake> {
        let fake = Fake { joined, single, taken: RefCell::default() };
        Sink::new(fake, Framing::Joined { udp: true })
    }

    /// Ten segments, handed over and flushed.
    fn deliver(sink: &mut Sink<Fake>) -> Vec<Vec<u8>> {
        let mut flow = Flow::new(Shape::TcpV4);
        let packets: Vec<_> = (0..10).map(|_| flow.packet(500, false)).collect();
        packets.iter().for_each(|packet| sink.deliver(packet));
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

    #[test]
    fn a_joined_packet_is_one_call_and_counts_as_many() {
        let mut sink = sink(Ok(()), Ok(()));
        deliver(&mut sink);
        assert_eq!(sink.writer.counts, Written { packets: 10, dropped: 0, calls: 1 });
    }
}
