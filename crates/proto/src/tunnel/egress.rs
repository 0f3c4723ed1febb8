//! The way of a packet out.
//!
//! 1. [`Tunnel::handle_packet`]: from the TUN, into the queue (bounded in time and bytes), where flows of which nothing
//!    waits go first.
//! 2. [`Tunnel::poll_transmit`]: first what has to be said without packets ([`control`](super::control)).
//! 3. Then, for the packet at the head: views of the links that can carry it, or a part of it
//!    ([`parts`]).
//! 4. The scheduler picks a link, or none has room: a backup takes it ([`backup`](super::backup)), it waits, or is
//!    dropped. Where only one link will do
//!    and it has no room, the packet waits for that one ([`waiting`](super::waiting)) and the next has its
//!    turn. One that has become too big for every link since it came is dropped at once, lest it hold up
//!    the others.
//! 5. The packet gets its global number, the datagram its local one; both are sealed into the batch. Small packets that
//!    leave at one moment for one link share a datagram ([`bundle`]).

use std::net::IpAddr;

use arrayvec::ArrayVec;

use ropewalk_settings::WhenClosed;

use super::Tunnel;
use super::bundle::{self, Load, is_small, mark_of, ride_on};
use super::link::Link;
use super::partial::{self, PartialRead};
use super::parts::{self, Half, Part};
use super::seal::{Cargo, Datagram, Made, Press};
use crate::config::MAX_LINKS;
use crate::ecn::Ecn;
use crate::error::DropReason;
use crate::link::mtu;
use crate::packet::checksum::Checksum;
use crate::packet::{PacketView, icmp};
use crate::path::Path;
use crate::queue::Label;
use crate::sched::{LinkView, Pick, Scheduler};
use crate::sink::{PacketSink, TransmitSink};
use crate::time::Instant;
use crate::wire::frame::PACKET_FRAME_HEADER;
use crate::wire::header::{Kind, OVERHEAD, distance};

impl Tunnel {
    /// Step 1: takes a packet from the TUN. What the sender of a packet that fits nowhere has to be told
    /// goes to `sink`, back into the TUN.
    pub fn handle_packet(&mut self, now: Instant, packet: &[u8], sink: &mut impl PacketSink) {
        match PacketView::parse(packet) {
            Ok(view) => self.handle_read(now, &view, sink),
            Err(_) => self.drops.count(DropReason::PacketMalformed),
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

    fn take(&mut self, now: Instant, packet: &[u8], label: &Label, sink: &mut impl PacketSink) {
        if !self.ending.takes_packets() {
            return self.drops.count(DropReason::NoSession);
        }
        // One whose checksum is partial by now was found to fit.
        if label.checksum == Checksum::Whole
            && let Some(limit) = self.too_big_for(now, packet.len())
            && let Ok(view) = PacketView::parse(packet)
            && !parts::may_split(&view)
        {
            self.answer_too_big(now, &view, limit, sink);
            return self.drops.count(DropReason::PacketTooBig);
        }
        self.accepted.count(packet.len());
        self.usage.on_packet(now);
        let bytes = self.queue.bytes() + self.waiting.held().1 + packet.len();
        if bytes > self.config.queue.bytes || !self.queue.push(now, label, packet) {
            self.drops.count(DropReason::QueueFull);
        }
    }

    /// The same for a TCP or UDP packet whose checksum is partial. It is completed here, unless the peer does that: then
    /// the packet goes marked. Small ones may share a datagram with frames, where there is no mark, and cost little.
    pub fn handle_partial(&mut self, now: Instant, packet: &mut [u8], sink: &mut impl PacketSink) {
        match PacketView::parse(packet).ok().as_ref().and_then(PartialRead::of) {
            Some(read) => self.handle_partial_read(now, packet, read, sink),
            None => self.drops.count(DropReason::PacketMalformed),
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
            && self.too_big_for(now, packet.len()).is_none();
        if !is_left {
            transport.complete(packet);
            label.checksum = Checksum::Whole;
        }
        self.take(now, packet, &label, sink);
    }

    /// The largest inner packet any link carries, if that is less than `len`.
    fn too_big_for(&self, now: Instant, len: usize) -> Option<u16> {
        let mut largest = None;
        for link in self.links.iter().filter(|link| link.carries(now)) {
            let mtu = link.inner_mtu();
            // Of most packets the first link looked at decides.
            if len <= usize::from(mtu) {
                return None;
            }
            largest = largest.max(Some(mtu));
        }
        largest
    }

    /// Tells the sender how much fits, if the rules and the rate allow it.
    fn answer_too_big(
        &mut self,
        now: Instant,
        view: &PacketView<'_>,
        limit: u16,
        sink: &mut impl PacketSink,
    ) {
        let same_family = |from: &&IpAddr| from.is_ipv4() == view.source().is_ipv4();
        let answer = self.gateways.iter().find(same_family);
        let answer = answer.and_then(|from| icmp::too_big(view, limit, *from));
        if let Some(answer) = answer.filter(|_| self.answers.take(now)) {
            sink.deliver(&answer);
        }
    }

    /// Steps 2 to 5: fills the batch with all that may be sent now. Call again after a flush until it
    /// leaves room. While nothing can be sealed, all of it waits for fresh keys.
    pub fn poll_transmit(&mut self, now: Instant, out: &mut impl TransmitSink) {
        self.mark_recent(now);
        self.call_backups(now);
        if self.keys.can_seal()
            && self.ending.receives()
            && self.send_control(now, out)
            && (!self.ending.sends_packets() || self.send_packets(now, out))
        {
            self.send_probes(now, out);
        }
        self.end_drain(now);
        self.send_close(now, out);
        self.links.iter_mut().for_each(|link| link.note_room(now));
        self.note_limits(now);
    }

    /// Steps 3 and 4. `false`: the batch is full.
    fn send_packets(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        self.weigh(now);
        if !self.send_waiting(now, out) {
            return false;
        }
        let mut views = Views::default();
        while let Some(head) = self.queue.head() {
            let mut meta = head.label().meta;
            if is_small(meta.len) && self.has_run() && self.may_bundle() {
                match self.send_run(now, &mut views, out) {
                    Made::Sent => continue,
                    Made::Full => return false,
                    Made::Refused => {}
                }
            }
            let mut part = None;
            if !views.are_of(meta.len) {
                views.look(&self.links, now, meta.len);
            }
            if views.links.is_empty() && self.too_big_for(now, meta.len).is_some() {
                part = self.next_part();
                let Some(part) = part else {
                    self.queue.pop();
                    self.drops.count(DropReason::PacketTooBig);
                    continue;
                };
                meta.len = part.len(meta.len);
                views.look(&self.links, now, meta.len);
            }
            let is_full = !views.links.is_empty() && views.links.iter().all(|link| link.room == 0);
            if is_full
                && part.is_none()
                && let Some(at) = self.helper(now, meta.len)
            {
                match self.send_head(now, at, From::Tunnel, None, out) {
                    Made::Sent => self.note_helped(true),
                    Made::Full => return false,
                    Made::Refused => return true,
                }
                continue;
            }
            match self.scheduler.pick(now, &meta, &views.links) {
                Pick::Send(index) => {
                    let Some(&at) = views.places.get(index) else { return true };
                    match self.send_head(now, at, From::Tunnel, part, out) {
                        Made::Sent => {
                            views.links[index].room = self.links[at].room(now);
                            self.scheduler.on_sent(now, &meta, self.links[at].id);
                            self.note_helped(false);
                        }
                        Made::Full => return false,
                        Made::Refused => return true,
                    }
                }
                Pick::Wait(_) | Pick::Blocked if self.config.when_closed == WhenClosed::Drop => {
                    self.queue.pop();
                    self.refused_at = Some(now);
                    self.drops.count(DropReason::NoRoom);
                }
                Pick::Wait(index) if part.is_none() => {
                    let Some(link) = views.links.get(index) else { return true };
                    if !self.waiting.take_head(link.id, &mut self.queue) {
                        return true;
                    }
                    self.scheduler.on_sent(now, &meta, link.id);
                }
                Pick::Wait(_) | Pick::Blocked => return true,
            }
        }
        true
    }

    /// What waits for one link goes there, or back to the queue if it cannot. `false`: the batch is full.
    fn send_waiting(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        for link in self.waiting.links() {
            let at = self.position(link).ok().filter(|at| self.links[*at].carries(now));
            while let Some(queue) = self.waiting.of(link)
                && let Some(head) = queue.head()
            {
                let len = head.packet().len();
                let fits = |at: &usize| len <= usize::from(self.links[*at].inner_mtu());
                let Some(at) = at.filter(fits) else {
                    self.queue.put_back(queue);
                    break;
                };
                if self.links[at].room(now) == 0 {
                    break;
                }
                let shares = bundle::begins_run(queue) && self.may_bundle();
                let made = match shares {
                    true => self.send_waiting_run(now, at, out),
                    false => self.send_head(now, at, From::Waiting, None, out),
                };
                match made {
                    Made::Sent => {}
                    Made::Full => return false,
                    Made::Refused => return true,
                }
            }
        }
        true
    }

    /// The next part of the head of the queue, if it may go in parts.
    fn next_part(&self) -> Option<Part> {
        let packet = PacketView::parse(self.queue.head()?.packet()).ok()?;
        parts::may_split(&packet).then(|| match self.queue.is_head_begun() {
            false => Part { half: Half::First, id: self.split.wrapping_add(1) },
            true => Part { half: Half::Second, id: self.split },
        })
    }

    /// Step 5 for the head of a queue, or a part of it, on link `at`.
    fn send_head(
        &mut self,
        now: Instant,
        at: usize,
        from: From,
        part: Option<Part>,
        out: &mut impl TransmitSink,
    ) -> Made {
        let Some(link) = self.links.get_mut(at) else { return Made::Refused };
        if part.is_some() {
            self.queue.complete_head();
        }
        let head = match from {
            From::Tunnel => self.queue.head(),
            From::Waiting => self.waiting.of(link.id).and_then(|own| own.head()),
        };
        let Some(head) = head else { return Made::Refused };
        let label = head.label();
        let (flow, global) = (label.meta.flow, self.next_global);
        let outgoing = Outgoing {
            packet: head.packet(),
            global,
            previous_of_flow: distance(global, self.flows.previous(flow)),
            // The mark of one half could not be given to the whole.
            mark: mark_of(label, self.config.ecn && part.is_none()),
            checksum: label.checksum,
        };
        let mut press = Press { keys: &mut self.keys, peer: self.peer, drops: &mut self.drops };
        let made = press.packet(now, link, &outgoing, part, out);
        if made == Made::Sent {
            self.flows.note(flow, global);
            self.next_global += 1;
            match part {
                Some(Part { half: Half::First, id }) => {
                    self.split = id;
                    self.queue.begin_head();
                }
                _ => match from {
                    From::Tunnel => self.queue.pop(),
                    From::Waiting => self.waiting.pop_of(link.id),
                },
            }
        }
        made
    }
}

/// A packet that leaves.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing<'a> {
    pub(super) packet: &'a [u8],
    pub(super) global: u64,
    pub(super) previous_of_flow: u8,
    /// That of its datagram.
    pub(super) mark: Ecn,
    /// A small packet's is whole.
    pub(super) checksum: Checksum,
}

impl Press<'_> {
    /// One packet, or a part of it. On a small one a report may ride along.
    pub(super) fn packet(
        &mut self,
        now: Instant,
        link: &mut Link,
        outgoing: &Outgoing<'_>,
        part: Option<Part>,
        out: &mut impl TransmitSink,
    ) -> Made {
        let Outgoing { packet, global, previous_of_flow, mark, checksum } = *outgoing;
        if is_small(packet.len()) && part.is_none() {
            let framed = PACKET_FRAME_HEADER + packet.len();
            if let Some(report) = ride_on(now, link, framed) {
                let packets = std::iter::once(*outgoing);
                let load = Load { framed, places: 1, ride: Some(&report) };
                return self.framed(now, link, &load, packets, out);
            }
        }
        let len = part.map_or(packet.len(), |part| part.len(packet.len()));
        let datagram = Datagram {
            path: link.path(),
            kind: Kind::Data,
            ecn: mark,
            global,
            previous_on_link: distance(global, link.previous_global),
            previous_of_flow,
            room: len,
            places: 1,
            eliciting: true,
        };
        let cargo = cargo_of(&datagram.path, len);
        let made = self.send(now, link, &datagram, out, |writer, _| {
            match part {
                Some(part) => part.emit(writer, packet),
                None => partial::emit(writer, packet, checksum),
            }?;
            Ok(cargo)
        });
        if made == Made::Sent {
            link.previous_global = Some(global);
        }
        made
    }
}

/// Where the next packet is taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum From {
    /// The tunnel's queue.
    Tunnel,
    /// The queue of packets that wait for the link.
    Waiting,
}

/// Notes the datagrams that only fit because the path MTU is above its base.
pub(super) fn cargo_of(path: &Path, packet_len: usize) -> Cargo {
    let size = packet_len + OVERHEAD + usize::from(path.header_len());
    let size = u16::try_from(size).unwrap_or(u16::MAX);
    if size > mtu::BASE { Cargo::Large(size) } else { Cargo::Plain }
}

/// Views of the links that can carry a packet, with their places in the tunnel's list. They are those for
/// any packet longer than what the widest link left out carries, and no longer than the narrowest's.
#[derive(Default)]
pub(super) struct Views {
    pub(super) links: ArrayVec<LinkView, MAX_LINKS>,
    pub(super) places: ArrayVec<usize, MAX_LINKS>,
    /// The largest packet that each of them can carry.
    narrowest: usize,
    /// The largest packet that a link which was left out can carry; `None`: none was.
    left_out: Option<usize>,
}

impl Views {
    /// Looks which links can carry a packet of `len` bytes now.
    pub(super) fn look(&mut self, links: &[Link], now: Instant, len: usize) {
        self.links.clear();
        self.places.clear();
        (self.narrowest, self.left_out) = (usize::MAX, None);
        for (at, link) in links.iter().enumerate() {
            let inner_mtu = usize::from(link.inner_mtu());
            if !link.carries(now) {
                continue;
            }
            if inner_mtu < len {
                self.left_out = self.left_out.max(Some(inner_mtu));
                continue;
            }
            self.links.push(link.share.view(link.id, link.room(now)));
            self.places.push(at);
            self.narrowest = self.narrowest.min(inner_mtu);
        }
    }

    /// Whether they are those of the links that can carry a packet of `len` bytes.
    pub(super) fn are_of(&self, len: usize) -> bool {
        len <= self.narrowest && self.left_out.is_none_or(|mtu| len > mtu)
    }
}
