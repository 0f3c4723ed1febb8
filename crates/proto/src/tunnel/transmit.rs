//! What leaves, and in which order.
//!
//! 1. What has to be said without packets ([`control`](super::control)).
//! 2. Packets ([`egress`](super::egress)).
//! 3. Probes of the path MTU.
//! 4. Test data of a speed test ([`speed`](super::speed)), where there is still room.
//! 5. The end of the tunnel, if it has come ([`close`](super::close)).

use super::Tunnel;
use super::egress::{Outlet, is_small};
use super::local_ack::FromNear;
use super::partial::PartialRead;
use crate::error::DropReason;
use crate::packet::PacketView;
use crate::packet::checksum::Checksum;
use crate::queue::Label;
use crate::sink::{PacketSink, TransmitSink};
use crate::time::Instant;

impl Tunnel {
    /// Takes a packet from the TUN. What the sender of a packet that fits nowhere has to be told
    /// goes to `sink`, back into the TUN.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl PacketSink) {
        match PacketView::parse(packet) {
            Ok(view) => self.handle_read(now, &view, sink),
            Err(_) => self.session.drops.count(DropReason::PacketMalformed),
        }
    }

    /// The same for a packet that somebody has read.
    pub(crate) fn handle_read(
        &mut self,
        now: Instant,
        packet: &PacketView<'_>,
        sink: &mut impl PacketSink,
    ) {
        self.take(now, packet.bytes(), &Label::of(packet, Checksum::Whole), sink);
    }

    /// The same for a TCP or UDP packet whose checksum is partial. It is completed here, unless the peer does that: then
    /// the packet goes marked. Small ones may share a datagram with frames, where there is no mark, and cost little.
    pub fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        match PacketView::parse(packet).ok().as_ref().and_then(PartialRead::of) {
            Some(read) => self.handle_partial_read(now, packet, read, sink),
            None => self.session.drops.count(DropReason::PacketMalformed),
        }
    }

    /// The same for a packet that somebody has read.
    pub(crate) fn handle_partial_read(
        &mut self,
        now: Instant,
        packet: &mut [u8],
        read: PartialRead,
        sink: &mut impl PacketSink,
    ) {
        let PartialRead { mut label, transport } = read;
        // What is too big is quoted to its sender, or goes in parts.
        let is_left = self.peer_completes
            && !is_small(packet.len())
            && self.links.too_big_for(now, packet.len()).is_none();
        if !is_left {
            transport.complete(packet);
            label.checksum = Checksum::Whole;
        }
        self.take(now, packet, &label, sink);
    }

    #[inline]
    fn take(&mut self, now: Instant, packet: &[u8], label: &Label, sink: &mut impl PacketSink) {
        let drops = &mut self.session.drops;
        if !self.ending.takes_packets() {
            return drops.count(DropReason::NoSession);
        }
        // One that fits no link is its sender's to make smaller.
        let has_room = self.egress.has_room(packet.len())
            && self.links.too_big_for(now, packet.len()).is_none();
        let local_acks = &mut self.ingress.local_acks;
        // What was sent goes on in the buffers that both need no more.
        let packet = match local_acks.spare(packet) {
            Some(buffer) => buffer,
            None => self.egress.copy(packet),
        };
        let mut label = *label;
        let label = match local_acks.on_near(now, &packet, &mut label, has_room) {
            FromNear::Pass => label,
            FromNear::Acknowledges(number) => Label { acknowledges: Some(number), ..label },
            FromNear::Keep => Label { is_acknowledged: true, ..label },
            FromNear::Drop => {
                self.egress.recycle(packet);
                return self.usage.on_packet(now);
            }
        };
        if self.egress.take(now, packet, &label, &self.links, drops, sink) {
            self.usage.on_packet(now);
        }
    }

    /// Fills the batch with all that may be sent now. Call again after a flush until it
    /// leaves room. While nothing can be sealed, all of it waits for fresh keys.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        self.mark_recent(now);
        self.links.call_backups(now);
        if self.session.keys.can_seal()
            && self.ending.receives()
            && self.send_control(now, out)
            && (!self.ending.sends_packets() || self.send_packets(now, out))
        {
            self.send_probes(now, out);
            if self.ending.takes_packets() {
                self.send_filler(now, out);
            }
        }
        self.end_drain(now);
        self.send_close(now, out);
        self.links.note_limits(now, self.egress.has_demand(now));
    }

    /// `false`: the batch is full.
    fn send_packets(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        let Self { egress, links, session, .. } = self;
        egress.send(now, &mut Outlet { links, session, out })
    }

    /// Keeps the totals of this moment for the rates, at most once a second.
    fn mark_recent(&mut self, now: Instant) {
        if self.recent.is_due(now) {
            let totals = [self.egress.accepted().bytes, self.ingress.delivered().bytes];
            self.recent.mark(now, totals);
            self.links.iter_mut().for_each(|link| link.counters.mark(now));
        }
    }
}
