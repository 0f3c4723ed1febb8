//! Small packets that leave at one moment over one link share a datagram.
//!
//! Nothing is waited for. A *run* is the small packets at the head of a queue, as far as each of them may leave now. The
//! scheduler is asked for each, with the room that its links would have if those before it had gone one by one, and is told
//! of each: so a packet takes the link that it would take alone, and neighbours that a scheduler parts stay apart. What a
//! link was given then leaves as one datagram: one header, one seal, one share of a system call. In the window each packet
//! keeps its own place: were a datagram one place, links would have room for packets that else wait for another.
//!
//! Packets are numbered as they stand in the queue, so those of one datagram do not follow each other where links take
//! turns.
//!
//! A run ends before the first packet that is large, that may not leave, or that does not fit the datagram of its link
//! (length, mark, count); there the next one begins. Room in the batch and under the key is made sure of before the
//! scheduler hears of a packet: no run is left half sent.

use arrayvec::ArrayVec;
use ropewalk_settings::{Bitrate, ControllerKind, Order};

use super::outgoing::{Outgoing, evidence_of};
use super::repair::Attempt;
use super::single::Source;
use super::{Egress, Outlet, Views};
use crate::config::MAX_LINKS;
use crate::ecn::Ecn;
use crate::error::DropReason;
use crate::link::carried::{Carried, Packets, SizeEvidence};
use crate::link::pacer::Pacer;
use crate::link::received::Report;
use crate::packet::checksum::Checksum;
use crate::packet::{FlowKey, Packet};
use crate::path::Path;
use crate::queue::{Label, Line, Waiting};
use crate::sched::{Pick, Scheduler};
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::tunnel::link::Link;
use crate::tunnel::session::{Datagram, Made, Session};
use crate::wire::frame::{
    Frame, PACKET_FRAME_HEADER, PacketFrame, emit, emit_report, low24, report_room,
};
use crate::wire::header::{Kind, OVERHEAD};

/// Largest packet that shares its datagram, with others or with a report: beyond it two would hardly fit, and full
/// packets never become smaller for what goes along.
const SMALL_PACKET: usize = 512;

/// Most packets in a datagram: 24 bare TCP acknowledgements fill one of 1,500 bytes.
pub const MAX_PACKETS: usize = 32;

/// Packets that shared their datagram with others, and those datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Bundled {
    /// Datagrams.
    pub datagrams: u64,
    /// Packets in them.
    pub packets: u64,
}

/// Whether a packet of that many bytes may share its datagram.
pub(in crate::tunnel) const fn is_small(len: usize) -> bool {
    len <= SMALL_PACKET
}

/// Whether a packet may share its datagram. One that has its number already is not among those that get theirs in a row.
fn may_share(waiting: &Waiting) -> bool {
    is_small(waiting.packet().len()) && waiting.numbers().is_none()
}

/// Whether more than one small packet stands at the head of a queue.
pub(super) fn begins_run(line: Line<'_>) -> bool {
    let stands = |place| line.nth(place).is_some_and(may_share);
    stands(0) && stands(1)
}

/// A packet of a run.
#[derive(Clone, Copy, Debug)]
struct Item {
    /// How far behind the head of the queue.
    place: u16,
    previous_of_flow: Option<u64>,
}

/// What one link was given of a run.
#[derive(Debug)]
struct Bundle {
    /// The link's place in the tunnel's list.
    at: usize,
    path: Path,
    items: ArrayVec<Item, MAX_PACKETS>,
    /// Bytes of its packets with their frames, and the most there may be.
    framed: usize,
    most: usize,
    /// Of all its packets: a datagram has one mark.
    mark: Ecn,
    /// Room of the link, without the packets.
    room: u32,
    /// Whether a packet takes the place that it would take alone.
    own_places: bool,
    outlook: Outlook,
}

impl Bundle {
    fn on(now: Instant, at: usize, link: &Link, mark: Ecn) -> Self {
        let outlook = Outlook::of(now, link);
        Self {
            at,
            path: link.path(),
            items: ArrayVec::new_const(),
            framed: 0,
            most: usize::from(link.inner_mtu()),
            mark,
            room: outlook.room,
            own_places: link.sender.controller_kind() != ControllerKind::Model,
            outlook,
        }
    }

    fn takes(&self, len: usize, mark: Ecn) -> bool {
        !self.items.is_full()
            && self.framed + PACKET_FRAME_HEADER + len <= self.most
            && self.mark == mark
    }

    /// Places that it takes in the window: one for each packet, as far as there was room. What waits for this link and no
    /// other goes with the first that has room. A model's window bounds datagrams on the path, and this is one.
    fn places(&self) -> u8 {
        if !self.own_places {
            return 1;
        }
        let places = u32::try_from(self.items.len()).unwrap_or(u32::MAX).min(self.room);
        u8::try_from(places).unwrap_or(u8::MAX)
    }

    /// Its packets, where the run begins with the number `first`.
    fn packets(&self, first: u64) -> Packets {
        let place = |item: Option<&Item>| item.map_or(0, |item| u64::from(item.place));
        let (lowest, highest) = (place(self.items.first()), place(self.items.last()));
        Packets::several(first + lowest, first + highest, self.items.len())
    }

    fn add(&mut self, place: usize, previous_of_flow: Option<u64>, len: usize) {
        let place = u16::try_from(place).unwrap_or(u16::MAX);
        self.items.push(Item { place, previous_of_flow });
        self.framed += PACKET_FRAME_HEADER + len;
    }
}

/// What room a link would have if the packets that it was given had gone one by one.
#[derive(Clone, Copy, Debug)]
struct Outlook {
    room: u32,
    pace: Option<Bitrate>,
    pacer: Pacer,
}

impl Outlook {
    fn of(now: Instant, link: &Link) -> Self {
        Self { room: link.room(now), pace: link.pace(), pacer: link.opening.pacer() }
    }

    /// Another went, in a datagram of so many bytes at IP level.
    fn on_sent(&mut self, now: Instant, on_wire: usize, places: u32) {
        self.room = self.room.saturating_sub(places);
        if let Some(rate) = self.pace {
            self.pacer.on_sent(now, on_wire, rate);
            if !self.pacer.is_open(now, rate) {
                self.room = 0;
            }
        }
    }
}

/// Packets at the head of a queue, and the datagrams in which they leave.
#[derive(Debug, Default)]
struct Run {
    packets: usize,
    bundles: ArrayVec<Bundle, MAX_LINKS>,
}

/// Where a packet finds its place.
enum Place<'a> {
    In(&'a mut Bundle),
    /// It does not fit: the run ends before it.
    Ends,
    /// The batch has no room for another datagram.
    Full,
}

impl Run {
    /// The datagram of the link `at`, if it takes a packet of this length and mark.
    fn place(
        &mut self,
        now: Instant,
        at: usize,
        link: &Link,
        (len, mark): (usize, Ecn),
        out: &mut impl TransmitSink,
    ) -> Place<'_> {
        if let Some(known) = self.bundles.iter().position(|bundle| bundle.at == at) {
            let bundle = &mut self.bundles[known];
            return if bundle.takes(len, mark) { Place::In(bundle) } else { Place::Ends };
        }
        let bundle = Bundle::on(now, at, link, mark);
        let mut paths: ArrayVec<Path, MAX_LINKS> =
            self.bundles.iter().map(|bundle| bundle.path).collect();
        // Two links may share a path behind one NAT; a batch is asked about different ones.
        if paths.is_full() || paths.contains(&bundle.path) {
            return Place::Ends;
        }
        paths.push(bundle.path);
        let longest = self.bundles.iter().fold(bundle.most, |most, other| most.max(other.most));
        if !out.has_room(&paths, longest + OVERHEAD) {
            return Place::Full;
        }
        self.bundles.push(bundle);
        self.bundles.last_mut().map_or(Place::Ends, Place::In)
    }
}

impl Egress {
    /// Whether more than one small packet is next in the tunnel's queue.
    pub(super) fn has_run(&self) -> bool {
        let (line, most) = self.queue.line(SMALL_PACKET);
        begins_run(line) && most > 1
    }

    /// Whether packets may share datagrams now. The key must be good for the datagrams of any run.
    pub(super) fn may_bundle(&self, session: &Session) -> bool {
        self.policy.bundle && session.keys.seals_left() >= MAX_LINKS as u64
    }

    /// Sends the run at the head of the tunnel's queue. [`Made::Refused`]: there is none, the head has to go another
    /// way; nothing happened then, nor with [`Made::Full`].
    pub(super) fn send_run<T: TransmitSink>(
        &mut self,
        now: Instant,
        views: &mut Views,
        to: &mut Outlet<'_, T>,
    ) -> Made {
        let (mut run, mut made) = (Run::default(), Made::Refused);
        loop {
            let place = run.packets;
            let (line, most) = self.queue.line(SMALL_PACKET);
            let next = line.nth(place).filter(|next| may_share(next) && place < most);
            let Some(label) = next.map(Waiting::label) else { break };
            let (meta, mark) = (self.queue.question(label), mark_of(label, self.policy.ecn));
            if !views.are_of(meta.len) {
                if place > 0 {
                    break;
                }
                views.look(to.links, now, meta.len);
            }
            let Pick::Send(index) = self.scheduler.pick(now, &meta, &views.links) else { break };
            let Some(&at) = views.places.get(index) else { break };
            let link = &to.links[at];
            let bundle = match run.place(now, at, link, (meta.len, mark), to.out) {
                Place::In(bundle) => bundle,
                Place::Ends => break,
                Place::Full => {
                    made = Made::Full;
                    break;
                }
            };
            let on_wire = meta.len + OVERHEAD + usize::from(bundle.path.header_len());
            let places = u32::from(bundle.own_places || bundle.items.is_empty());
            bundle.outlook.on_sent(now, on_wire, places);
            views.links[index].room = bundle.outlook.room;
            self.scheduler.on_sent(now, &meta, link.id);
            bundle.add(place, self.numbering.number(place, label), meta.len);
            run.packets += 1;
            to.links.note_helped(false);
        }
        if run.packets == 0 {
            return made;
        }
        self.send_bundles(now, Source::Queue, &run, to);
        views.refresh_room(to.links, now);
        Made::Sent
    }

    /// Sends as much of what waits for link `at`, which has room, as fits into one datagram; otherwise as
    /// [`send_run`](Self::send_run).
    pub(super) fn send_waiting_run<T: TransmitSink>(
        &mut self,
        now: Instant,
        at: usize,
        to: &mut Outlet<'_, T>,
    ) -> Made {
        let mut run = Run::default();
        loop {
            let link = &to.links[at];
            let Some(queue) = self.waiting.of(link.id) else { break };
            let place = run.packets;
            let next = queue.line().nth(place).filter(|next| may_share(next));
            let Some(label) = next.map(Waiting::label) else { break };
            let mark = mark_of(label, self.policy.ecn);
            let len = label.meta.len;
            match run.place(now, at, link, (len, mark), to.out) {
                Place::In(bundle) => {
                    bundle.add(place, self.numbering.number(place, label), len);
                    run.packets += 1;
                }
                Place::Ends => break,
                Place::Full => return Made::Full,
            }
        }
        if run.packets == 0 {
            return Made::Refused;
        }
        self.send_bundles(now, Source::LinkQueue, &run, to);
        Made::Sent
    }

    /// One datagram for each link of a run.
    fn send_bundles<T: TransmitSink>(
        &mut self,
        now: Instant,
        source: Source,
        run: &Run,
        to: &mut Outlet<'_, T>,
    ) {
        let first = self.numbering.next();
        let mut attempts = ArrayVec::<Option<Attempt>, MAX_LINKS>::new();
        for bundle in &run.bundles {
            let link = &mut to.links[bundle.at];
            let line = match source {
                Source::Queue => Some(self.queue.line(SMALL_PACKET).0),
                Source::LinkQueue => self.waiting.of(link.id).map(|own| own.line()),
            };
            let Some(line) = line else { continue };
            let packets = bundle.items.len() as u64;
            let attempt = Attempt {
                checksum: Checksum::Whole,
                mark: bundle.mark,
                flow: FlowKey(0),
                previous_of_flow: None,
                is_sparse: source == Source::Queue && self.queue.is_next_sparse(),
                is_acknowledged: false,
                is_redundant: false,
                came: None,
                link: link.id,
                number: link.sender.next_number(),
                moved_from: None,
            };
            let sent = to.session.bundle(now, link, line, first, bundle, to.out) == Made::Sent;
            attempts.push(sent.then_some(attempt));
            if !sent {
                // Room and key were there.
                to.session.drops.add(DropReason::NotSealed, packets);
            } else if packets > 1 {
                self.bundled.datagrams += 1;
                self.bundled.packets += packets;
            }
        }
        self.numbering.advance(run.packets);
        let mut items: ArrayVec<_, MAX_LINKS> =
            run.bundles.iter().map(|bundle| bundle.items.iter().peekable()).collect();
        for place in 0..run.packets {
            let waiting = match (source, run.bundles.first()) {
                (Source::LinkQueue, Some(bundle)) => {
                    self.waiting.take_head_of(to.links[bundle.at].id)
                }
                _ => self.queue.pop_packet(),
            };
            let Some(waiting) = waiting else { continue };
            let (flow, is_redundant) = (waiting.label().meta.flow, waiting.label().is_redundant);
            let came = waiting.real_time_since();
            let packet = waiting.into_packet();
            let is_it = |item: &&Item| usize::from(item.place) == place;
            let mut own = items.iter_mut().zip(&attempts);
            let own = own.find_map(|(items, attempt)| Some((items.next_if(is_it)?, *attempt)));
            match own {
                Some((item, Some(attempt))) => {
                    let previous_of_flow = item.previous_of_flow;
                    let sent = Attempt { flow, previous_of_flow, is_redundant, came, ..attempt };
                    self.keep(now, packet, first + place as u64, sent);
                }
                _ => self.recycle(packet),
            }
        }
    }
}

/// What a datagram with frames is beside its packets.
pub(super) struct Load<'a> {
    /// Bytes of the packets with their frames.
    pub(super) framed: usize,
    /// Places in the window.
    pub(super) places: u8,
    /// The report that rides along.
    pub(super) ride: Option<&'a Report>,
    /// What the link remembers of the packets.
    pub(super) packets: Packets,
}

impl Session {
    /// The packets of a bundle, whose run begins with the number `first`. One alone goes as it would without a run.
    fn bundle(
        &mut self,
        now: Instant,
        link: &mut Link,
        line: Line<'_>,
        first: u64,
        bundle: &Bundle,
        out: &mut impl TransmitSink,
    ) -> Made {
        let mut packets = bundle.items.iter().filter_map(|item| {
            Some(Outgoing {
                // A small packet's checksum is whole.
                packet: Packet::whole(line.nth(item.place.into())?.packet()),
                global: first + u64::from(item.place),
                previous_of_flow: item.previous_of_flow,
                mark: bundle.mark,
            })
        });
        if bundle.items.len() > 1 {
            let ride = ride_on(now, link, bundle.framed);
            let load = Load {
                framed: bundle.framed,
                places: bundle.places(),
                ride: ride.as_ref(),
                packets: bundle.packets(first),
            };
            return self.framed(now, link, &load, packets, out);
        }
        match packets.next() {
            Some(packet) => self.packet(now, link, &packet, None, out),
            None => Made::Refused,
        }
    }

    /// Packets of one mark in frames, behind a report if one rides along.
    pub(super) fn framed<'a>(
        &mut self,
        now: Instant,
        link: &mut Link,
        load: &Load<'_>,
        packets: impl Iterator<Item = Outgoing<'a>> + Clone,
        out: &mut impl TransmitSink,
    ) -> Made {
        let Some(first) = packets.clone().next() else { return Made::Refused };
        let last = load.packets.last();
        let mut before = link.numbering.previous;
        let order = self.order;
        let (kind, [previous_on_link, previous_of_flow]) = match order {
            Order::Global => (Kind::Frames, first.distances(order, before)),
            Order::Flow => (Kind::FlowFrames, [0, 0]),
        };
        let datagram = Datagram {
            path: link.path(),
            kind,
            ecn: first.mark,
            global: last + 1,
            previous_on_link,
            previous_of_flow,
            room: load.framed + load.ride.map_or(0, report_room),
            places: load.places,
            eliciting: true,
        };
        let size = evidence_of(&datagram.path, load.framed);
        let made = self.send(now, link, &datagram, out, |writer, receiver| {
            if let Some(report) = load.ride {
                emit_report(writer, report)?;
            }
            for outgoing in packets {
                let [previous_on_link, previous_of_flow] =
                    outgoing.distances(order, before.replace(outgoing.global));
                let (global, packet) = (low24(outgoing.global), outgoing.packet.bytes);
                let frame = PacketFrame { global, previous_on_link, previous_of_flow, packet };
                emit(writer, &Frame::Packet(frame))?;
            }
            let report = load.ride.map(|report| receiver.report_sent(now, report));
            // The length with a report is not that of what the path has to carry.
            let size = if report.is_some() { SizeEvidence::None } else { size };
            Ok(Carried { packets: load.packets, report, size })
        });
        if made == Made::Sent {
            link.numbering.previous = Some(last);
        }
        made
    }
}

/// The report that rides on a datagram with frames of so many bytes, if there is something to tell and room for it.
pub(super) fn ride_on(now: Instant, link: &Link, framed: usize) -> Option<Report> {
    let report = link.receiver.poll_ride(now)?;
    (framed + report_room(&report) <= usize::from(link.inner_mtu())).then_some(report)
}

/// The mark of a datagram with this packet, which is that of the packet where marks are carried over.
pub(super) fn mark_of(packet: &Label, carried_over: bool) -> Ecn {
    if carried_over { packet.ecn } else { Ecn::NotEct }
}

#[cfg(test)]
mod tests;
