//! A TUN without a kernel, for tests: two bounded queues of packets.

use super::{Drained, Tun, TunControl, TunCounters, TunError, TunOffload};
use ropewalk_proto::packet::Packet;
use ropewalk_proto::packet::checksum::Checksum;
use ropewalk_proto::sink::PacketSink;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll};
use tokio::sync::mpsc;

/// The driver's end.
#[derive(Debug)]
pub struct ChannelTun {
    name: String,
    mtu: Arc<AtomicU16>,
    incoming: mpsc::Receiver<Vec<u8>>,
    /// Taken from `incoming` while waiting.
    next: Option<Vec<u8>>,
    /// The other end was dropped: the interface is gone.
    gone: bool,
    packets_in: u64,
    sink: ChannelSink,
}

/// The test's end: the kernel, as it were. Dropping it deletes the interface.
#[derive(Debug)]
pub struct ChannelEnd {
    /// Packets for the driver to read.
    pub packets: mpsc::Sender<Vec<u8>>,
    /// Packets that the driver wrote.
    pub delivered: mpsc::Receiver<Vec<u8>>,
    mtu: Arc<AtomicU16>,
}

impl ChannelEnd {
    /// The MTU that the driver set last.
    #[must_use]
    pub fn mtu(&self) -> u16 {
        self.mtu.load(Ordering::Relaxed)
    }
}

impl ChannelTun {
    /// Both ends of a TUN whose queues hold `capacity` packets in each direction; what is written to
    /// a full one is dropped and counted.
    #[must_use]
    pub fn new(name: &str, mtu: u16, capacity: usize) -> (Self, ChannelEnd) {
        let (packets, incoming) = mpsc::channel(capacity);
        let (outgoing, delivered) = mpsc::channel(capacity);
        let mtu = Arc::new(AtomicU16::new(mtu));
        let end = ChannelEnd { packets, delivered, mtu: Arc::clone(&mtu) };
        let sink = ChannelSink { outgoing, packets_out: 0, dropped_out: 0 };
        let name = name.to_owned();
        (Self { name, mtu, incoming, next: None, gone: false, packets_in: 0, sink }, end)
    }
}

impl TunControl for ChannelTun {
    fn name(&self) -> &str {
        &self.name
    }

    fn index(&self) -> u32 {
        0
    }

    fn set_mtu(&mut self, mtu: u16) -> Result<(), TunError> {
        self.mtu.store(mtu, Ordering::Relaxed);
        Ok(())
    }

    fn counters(&self) -> TunCounters {
        TunCounters {
            packets_in: self.packets_in,
            dropped_in: 0,
            calls_in: self.packets_in,
            packets_out: self.sink.packets_out,
            dropped_out: self.sink.dropped_out,
            calls_out: self.sink.packets_out,
        }
    }

    fn offload(&self) -> TunOffload {
        TunOffload::default()
    }

    fn deliver(&mut self, packet: &[u8]) {
        self.sink.deliver(Packet::whole(packet));
    }
}

impl Tun for ChannelTun {
    type Sink = ChannelSink;

    fn read_batch(
        &mut self,
        limit: usize,
        mut handle: impl FnMut(&mut [u8], Checksum, &mut Self::Sink),
    ) -> Result<Drained, TunError> {
        for _ in 0..limit {
            let packet = match self.next.take() {
                Some(packet) => Ok(packet),
                None => self.incoming.try_recv(),
            };
            match packet {
                Ok(mut packet) => {
                    self.packets_in += 1;
                    handle(&mut packet, Checksum::Whole, &mut self.sink);
                }
                Err(mpsc::error::TryRecvError::Empty) if !self.gone => return Ok(Drained::Yes),
                Err(_) => return Err(TunError::Gone { name: self.name.clone() }),
            }
        }
        Ok(Drained::No)
    }

    fn sink(&mut self) -> &mut Self::Sink {
        &mut self.sink
    }

    fn flush(&mut self) -> Result<(), TunError> {
        Ok(())
    }

    fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.next.is_some() || self.gone {
            return Poll::Ready(());
        }
        self.incoming.poll_recv(cx).map(|packet| {
            self.gone = packet.is_none();
            self.next = packet;
        })
    }
}

/// The writing side.
#[derive(Debug)]
pub struct ChannelSink {
    outgoing: mpsc::Sender<Vec<u8>>,
    packets_out: u64,
    dropped_out: u64,
}

impl PacketSink for ChannelSink {
    fn deliver(&mut self, packet: Packet<'_>) {
        let Some(packet) = packet.completed() else { return self.dropped_out += 1 };
        match self.outgoing.try_send(packet.into_owned()) {
            Ok(()) => self.packets_out += 1,
            Err(_) => self.dropped_out += 1,
        }
    }
}
