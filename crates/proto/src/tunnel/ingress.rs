//! The way of a packet in: order and delivery.
//!
//! 1. [`Ingress::offer`]: an authentic packet, with its numbers and its mark, goes to the resequencer, which delivers it,
//!    holds it, or lets others go. A datagram without a packet is evidence, too ([`Ingress::offer_mark`]).
//! 2. [`Delivery`]: what comes out in order is joined if it was sent in two parts, and passes to the TUN if the peer may
//!    send it.

mod contents;
mod delivery;
mod filter;
mod sender_clock;

use std::mem;

use ropewalk_settings::Order;

pub(super) use contents::Contents;
use delivery::{Delivery, DeliverySink};
pub use filter::InnerFilter;
use sender_clock::SenderClock;

use super::link::Traffic;
use super::local_ack::LocalAcks;
use crate::config::TunnelConfig;
use crate::ecn::Ecn;
use crate::error::{DropCounters, DropReason};
use crate::link::reordering::Tolerance;
use crate::packet::checksum::Checksum;
use crate::packet::{Packet, PacketView};
use crate::path::Path;
use crate::reseq::{self, Evidence, EvidenceKind, Resequencer};
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::expand;
use crate::wire::header::NUMBER_BITS;

/// What is known of an authentic datagram, whatever it carries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Received<'a> {
    /// The link it came on.
    pub(super) link: LinkId,
    /// Where it came from.
    pub(super) path: &'a Path,
    /// Its number on that link.
    pub(super) number: u64,
    /// Its congestion mark on the outside.
    pub(super) ecn: Ecn,
    /// Bytes of UDP payload.
    pub(super) size: usize,
    /// When it was sealed, in µs of the sender's clock.
    pub(super) sent_us: i64,
}

/// How far behind another packet a packet comes, as its datagram says; 0: nobody knows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Before {
    /// Behind the one before it on its link: it is to be put in the order of all packets.
    OnLink(u8),
    /// Behind the one before it of its flow: it is to be put in the order of that.
    OfFlow(u16),
}

impl Received<'_> {
    const fn arrival(&self, global: u64, kind: EvidenceKind) -> Evidence {
        Evidence { link: self.link, local: self.number, sent_us: self.sent_us, global, kind }
    }
}

/// The packets that the peer sends: their order, and which of them pass.
#[derive(Debug)]
pub(super) struct Ingress {
    reseq: Resequencer,
    sender_clock: SenderClock,
    delivery: Delivery,
    /// The connections of TCP whose near ends are acknowledged here: what comes for those is looked at.
    pub(super) local_acks: LocalAcks,
    /// Whether what this end delivers to completes partial checksums.
    completes: bool,
    /// A packet that shared its datagram, while it is looked at.
    scratch: Vec<u8>,
}

impl Ingress {
    /// Nothing has come; the first packet has the number 0. The peer restores this order of what is sent. `filter` says what it
    /// may send.
    pub(super) fn new(config: &TunnelConfig, order: Order, filter: InnerFilter) -> Self {
        Self {
            reseq: Resequencer::new(config.reseq, 0),
            sender_clock: SenderClock::default(),
            delivery: Delivery::new(filter),
            local_acks: LocalAcks::new(config.acknowledges_locally(order)),
            completes: config.partial_checksums,
            scratch: Vec::new(),
        }
    }

    /// Packets handed to the TUN.
    pub(super) const fn delivered(&self) -> Traffic {
        self.delivery.delivered()
    }

    /// Of these, packets that came in two parts.
    pub(super) const fn joined(&self) -> u64 {
        self.delivery.joined()
    }

    /// The order, to look at.
    pub(super) const fn order(&self) -> &Resequencer {
        &self.reseq
    }

    /// The order's counters.
    pub(super) fn stats(&self) -> reseq::Stats {
        self.reseq.stats()
    }

    /// When a datagram was sealed, in µs of the sender's clock from an epoch of its own.
    pub(super) fn sent_us(&mut self, now: Instant, send_time: u32) -> i64 {
        self.sender_clock.sent_us(now, send_time)
    }

    /// The global number whose low bits these are.
    pub(super) fn expand(&self, global: u32) -> u64 {
        expand(self.reseq.next_unseen(), u64::from(global), NUMBER_BITS)
    }

    /// Something came on a link that the order does not know. Nothing sealed before the peer had heard of it can come there.
    pub(super) fn link_added(&mut self, link: LinkId) {
        self.reseq.link_added(link, self.reseq.next_unseen());
    }

    /// The newest datagram came on a link: its packets are waited for. `rerouted`: over another path than the one before.
    pub(super) fn link_heard(&mut self, now: Instant, link: LinkId, rerouted: bool) {
        self.reseq.link_up(link);
        if rerouted {
            self.reseq.link_rerouted(now, link);
        }
    }

    /// How much a link reorders by itself.
    pub(super) fn set_tolerance(&mut self, link: LinkId, tolerance: Tolerance) {
        self.reseq.set_tolerance(link, tolerance);
    }

    /// How long it takes until a packet that was lost is sent again and here.
    pub(super) fn set_repair_time(&mut self, time: Duration) {
        self.reseq.set_repair_time(time);
    }

    /// A link sends no more; `end` is one above the last number it used, if the peer said so.
    pub(super) fn link_left(
        &mut self,
        now: Instant,
        link: LinkId,
        end: Option<u64>,
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) {
        self.run(now, drops, sink, |reseq, delivery| reseq.link_left(now, link, end, delivery));
    }

    /// Nothing more comes.
    pub(super) fn finish(
        &mut self,
        now: Instant,
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) {
        self.run(now, drops, sink, |reseq, delivery| reseq.finish(now, delivery));
    }

    /// A link is down, or rests: its packets are not waited for.
    pub(super) fn link_down(
        &mut self,
        now: Instant,
        link: LinkId,
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) {
        self.run(now, drops, sink, |reseq, delivery| reseq.link_down(now, link, delivery));
    }

    /// When the wait for a missing packet ends.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.reseq.poll_timeout()
    }

    /// Releases what is due.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) {
        self.run(now, drops, sink, |reseq, delivery| reseq.handle_timeout(now, delivery));
    }

    /// Step 1 for one packet, so far behind another.
    pub(super) fn offer(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        (global, before): (u64, Before),
        (packet, checksum): (&mut [u8], Checksum),
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) {
        let refusal = self.check(checksum).and_then(|()| decapsulate(received.ecn, packet));
        // Its number came, whatever it is.
        let packet = match refusal {
            Ok(()) => Packet { bytes: packet, checksum },
            Err(reason) => {
                drops.count(reason);
                Packet::whole(&[])
            }
        };
        let kind = match before {
            Before::OnLink(distance) => {
                EvidenceKind::Data { prev_on_link: previous(global, distance.into()) }
            }
            Before::OfFlow(distance) => {
                self.delivery.let_flows_alternate();
                EvidenceKind::FlowData { prev_of_flow: previous(global, distance) }
            }
        };
        let arrival = received.arrival(global, kind);
        self.run(now, drops, sink, |reseq, delivery| reseq.offer(now, &arrival, packet, delivery));
    }

    /// The same for packets that share a datagram. They are small; the copy makes each ours to alter.
    pub(super) fn offer_all(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        contents: &Contents<'_>,
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) {
        let mut scratch = mem::take(&mut self.scratch);
        for (global, frame) in contents.packets(self.reseq.next_unseen()) {
            scratch.clear();
            scratch.extend_from_slice(frame.packet);
            let before = match contents.order() {
                Order::Global => Before::OnLink(frame.previous_on_link),
                Order::Flow => Before::OfFlow(frame.distance_in_flow()),
            };
            let numbers = (global, before);
            self.offer(now, received, numbers, (&mut scratch, Checksum::Whole), drops, sink);
        }
        self.scratch = scratch;
    }

    /// A datagram without packet says what was sealed before it: all below `next`.
    pub(super) fn offer_mark(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        next: u64,
        drops: &mut DropCounters,
        sink: &mut impl PacketSink,
    ) {
        let arrival = received.arrival(next, EvidenceKind::Mark);
        let none = Packet::whole(&[]);
        self.run(now, drops, sink, |reseq, delivery| reseq.offer(now, &arrival, none, delivery));
    }

    /// Bytes of memory kept for packets to come.
    pub(super) fn spare_bytes(&self) -> usize {
        self.reseq.spare_bytes() + self.local_acks.spare_bytes()
    }

    /// Whether memory is kept for packets to come.
    pub(super) fn has_spare(&self) -> bool {
        self.reseq.has_spare() || self.local_acks.has_spare()
    }

    /// Gives that memory back.
    pub(super) fn release_memory(&mut self) {
        self.reseq.release_memory();
        self.local_acks.release_memory();
        self.scratch = Vec::new();
    }

    /// Whether a packet may have this checksum.
    const fn check(&self, checksum: Checksum) -> Result<(), DropReason> {
        match checksum {
            Checksum::Partial if !self.completes => Err(DropReason::PartialChecksum),
            Checksum::Partial | Checksum::Whole => Ok(()),
        }
    }

    /// Runs the resequencer with a sink that only lets through what the peer may send.
    fn run<S: PacketSink>(
        &mut self,
        now: Instant,
        drops: &mut DropCounters,
        sink: &mut S,
        run: impl FnOnce(&mut Resequencer, &mut DeliverySink<'_, S>),
    ) {
        let Self { reseq, delivery, local_acks, .. } = self;
        run(reseq, &mut DeliverySink { now, delivery, local_acks, drops, sink });
    }
}

/// Combines outer and inner ECN.
///
/// # Errors
/// The packet must not go on (RFC 6040 §4.2).
#[inline]
fn decapsulate(outer: Ecn, packet: &mut [u8]) -> Result<(), DropReason> {
    // These leave every packet as it is.
    if matches!(outer, Ecn::NotEct | Ecn::Ect0) {
        return Ok(());
    }
    let Ok(view) = PacketView::parse(packet) else { return Ok(()) };
    let inner = view.ecn();
    let ecn = Ecn::decapsulate(inner, outer).ok_or(DropReason::CongestionMarkedNotCapable)?;
    if ecn != inner {
        crate::packet::set_ecn(packet, ecn);
    }
    Ok(())
}

/// The global number that lies `distance` before `global`; 0 means none.
fn previous(global: u64, distance: u16) -> Option<u64> {
    (distance > 0).then(|| global.checked_sub(distance.into())).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distance_of_zero_or_below_the_first_number_names_nothing() {
        assert_eq!(previous(7, 0), None);
        assert_eq!(previous(7, 7), Some(0));
        assert_eq!(previous(7, 8), None);
    }
}
