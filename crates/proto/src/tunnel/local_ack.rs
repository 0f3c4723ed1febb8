//! TCP segments are acknowledged where they enter the tunnel (local acknowledgements and retransmissions, RFC 3135 §3.1.2
//! and §3.1.3).
//!
//! A TCP sender judges a path by its round trips and losses. Over several links these say little: a second link that takes
//! longer looks like a queue, jitter like congestion, a repaired packet like a slow path. So cubic ends its slow start at a
//! few packets, and BBR sends what the shortest link carries. Here the end of the tunnel nearest to the sender (the *near* end of
//! the connection) acknowledges what it has taken over, and keeps it until the receiver (the *far* end) has acknowledged it. The
//! sender sees the path to the tunnel alone; what it may send ahead is bounded by the window that it is told, so nothing of it has
//! to be dropped.
//!
//! ```text
//!  near end ──data──> [queue, kept] ══ tunnel ══> far end
//!           <──ack───                <══ ack ══   (goes no further while the near end knows more)
//! ```
//!
//! - Both ends of the tunnel do this for their own senders, and neither needs to know whether the other does: nothing changes
//!   on the wire.
//! - The connection stays one from end to end: its opening, its numbers and options, its end and its keepalive. An end (FIN) is
//!   never acknowledged here, so a sender whose end was acknowledged knows that all has arrived.
//! - Only a connection whose opening passed here is acknowledged, as only that says how windows are scaled; not one with options
//!   that are unknown here (Multipath TCP, TCP-AO, Fast Open).
//! - Nothing is acknowledged that was not found whole: a checksum is looked at before.
//! - What is lost behind the tunnel goes again, as a sender's own repair would do it: by the ranges that the far end tells (RFC 6675),
//!   by a probe of the last segment (RFC 8985), and after a wait.
//! - What this end says in the far one's name goes into this end's TUN alone.

mod connection;
mod far_trip;
mod far_window;
mod filled_window;
mod kept;
mod near_trip;
mod room;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

pub(super) use connection::FromNear;
use connection::{Connection, FIRST_ROOM, From, FromFar};
use far_window::Explained;
pub(crate) use room::KeptByAll;
use room::Room;
use segment::{Segment, flag};

use crate::ecn::Ecn;
use crate::packet::buffer::{PacketBuffer, SpareBuffers};
use crate::packet::checksum::Checksum;
use crate::packet::{FlowKey, Packet, PacketView, is_tcp};
use crate::queue::Label;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant, earliest};

/// Connections followed in one tunnel. When one more opens, another gives way: of a few, the one that was silent longest.
const MOST_CONNECTIONS: usize = 1024;

/// So many are looked at for the one that gives way: a flood of openings must not cost a walk through all of them for each.
/// (Of sixteen by chance, the oldest is among the oldest tenth of all in four cases of five.)
const CANDIDATES: usize = 16;

/// Bytes kept: 100 ms at 1.3 Gbit/s.
const MOST_BYTES: usize = 16 << 20;

/// A segment of usual length, bytes: so much does room for one more let a near end send.
const SEGMENT: usize = 1460;

/// Buffers kept for reuse.
const MOST_SPARE: usize = 1024;

/// How often it is looked whether the far ends confirm what is kept.
const CHECK: Duration = Duration::from_millis(100);

/// The near ends are told of a quarter of what may wait at a time, between a packet and this much, bytes.
const ROOM_STEP: (usize, usize) = (1500, 16 * 1024);

/// What may be sent ahead at least, whatever the links carry: the first window of a sender (RFC 6928).
const LEAST_ROOM: u64 = 10 * 1460;

/// What is to wait beside what comes within a round trip of the near end: a pause of that, or of this process.
const SLACK: Duration = Duration::from_millis(50);

/// And no more bytes of all flows than this for such a pause, and for what the far ends take longer than usual: where that is less, a
/// pause is shorter, and what waits should stay in the processor's caches. At 2.4 Gbit/s 15 MB waited, and a packet cost
/// the sending end a fifth more; four flows at 4 Gbit/s had 8 MB, and cost half more than one.
const MOST_SLACK: u64 = 512 * 1024;

/// What the queue in front of the links says.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    /// What a flow can have of the links, bytes a second; `None`: nobody knows yet.
    pub(super) share: Option<u64>,
    /// Bytes of it that have to wait, so that later links have their part.
    pub(super) needed: u64,
    /// Whether a link of which nobody knows what it carries has nothing to do.
    pub(super) unused: bool,
    /// Bytes that wait of all flows together, and that may in addition.
    pub(super) waiting: usize,
    pub(super) room: usize,
    /// Bytes on their way over the links, at most.
    pub(super) in_flight: u64,
    /// Flows that share the links.
    pub(super) flows: u64,
    /// How long the far ends take to answer, and at least.
    pub(super) round_trip: Duration,
    pub(super) least_round_trip: Duration,
}

impl Backlog {
    /// What of a far end's delay is the tunnel's.
    const fn explained(&self) -> Explained {
        let within = self.in_flight.saturating_add(self.waiting as u64);
        Explained { round_trip: self.round_trip, needed: self.needed, within }
    }

    /// Most bytes that may wait of a connection whose near end answers in this time.
    fn most(&self, near_rtt: Option<Duration>) -> u32 {
        let within_bounds = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX).min(1 << 30);
        let Some(share) = self.share else {
            // With less than what later links need, one that has nothing to do would stay so, and would never be known. Where all have
            // something to do, more would only make the queue longer that they may have in common.
            let needed = if self.unused { self.needed } else { 0 };
            return within_bounds(u64::from(FIRST_ROOM).saturating_add(needed));
        };
        // A sender that fills its window once in a round trip needs two windows. And a link shows that it carries more only if more
        // waits than it carries.
        let within = |time: Duration| {
            let bytes = u128::from(share) * time.as_nanos() / 1_000_000_000;
            u64::try_from(bytes).unwrap_or(u64::MAX)
        };
        let on_the_way = within(near_rtt.unwrap_or_default() * 2 + self.least_round_trip);
        let most_slack = MOST_SLACK / self.flows.max(1);
        let longer = self.round_trip.saturating_sub(self.least_round_trip);
        let slack = within(SLACK).min(most_slack) + within(longer).min(most_slack);
        let bytes = on_the_way.saturating_add(slack);
        within_bounds(bytes.saturating_add(self.needed).max(LEAST_ROOM))
    }
}

/// What a connection waits for of which nothing waits here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeldBy {
    /// The far end takes no more at present.
    Receiver,
    /// The near end sends no more at present.
    Sender,
}

/// How much was acknowledged here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LocallyAcknowledged {
    /// Connections that are followed.
    pub connections: usize,
    /// Segments acknowledged since the tunnel began, before the far end had them.
    pub segments: u64,
    /// Segments sent again because the far end missed them, or as a probe whether it does.
    pub sent_again: u64,
    /// Connections that were reset because the far end never confirmed what was acknowledged.
    pub lost: u64,
    /// Bytes kept until the far ends confirm them.
    pub kept_bytes: usize,
    /// The segments that hold them.
    pub kept_segments: usize,
}

/// The connections of one tunnel.
#[derive(Debug)]
pub(crate) struct LocalAcks {
    is_on: bool,
    /// By the flow of the near end.
    connections: BTreeMap<FlowKey, Box<Connection>>,
    /// The last one that was looked at for one that gives way.
    looked_at: FlowKey,
    /// Those to which an acknowledgement is due.
    due: Vec<FlowKey>,
    /// Those whose near end may wait until less waits here.
    limited: Vec<FlowKey>,
    /// Bytes that waited for the links when those were last told, and by how much less is worth telling.
    waiting: usize,
    step: usize,
    /// When it is looked next whether what is kept was confirmed; while anything is.
    check_at: Option<Instant>,
    /// Buffers that the tunnel's queue needs no more, either.
    spare: SpareBuffers,
    /// A packet while it is written.
    scratch: Vec<u8>,
    /// The latest moment known.
    now: Instant,
    counters: LocallyAcknowledged,
    /// For segments.
    room: Room,
}

impl LocalAcks {
    pub(super) fn new(is_on: bool) -> Self {
        Self {
            is_on,
            connections: BTreeMap::new(),
            looked_at: FlowKey(0),
            due: Vec::new(),
            limited: Vec::new(),
            waiting: 0,
            step: ROOM_STEP.1,
            check_at: None,
            spare: SpareBuffers::new(),
            scratch: Vec::new(),
            now: Instant::ZERO,
            counters: LocallyAcknowledged::default(),
            room: Room::default(),
        }
    }

    /// Before anything is kept: it counts among what is kept by `all`.
    pub(super) fn count_among(&mut self, all: KeptByAll) {
        self.room = Room::of(all);
    }

    /// Acknowledges from now on, or nothing more: what was acknowledged is still kept.
    pub(super) fn set_on(&mut self, is_on: bool) {
        self.is_on = is_on;
    }

    /// How much was acknowledged.
    pub(super) fn counters(&self) -> LocallyAcknowledged {
        LocallyAcknowledged { connections: self.connections.len(), ..self.counters }
    }

    /// What this flow waits for, if nothing of it waits here; `None`: it is not acknowledged here, or at rest.
    pub(super) fn held_by(&self, flow: FlowKey) -> Option<HeldBy> {
        let connection =
            self.connections.get(&flow).filter(|connection| !connection.is_settled())?;
        Some(if connection.fills_window() { HeldBy::Receiver } else { HeldBy::Sender })
    }

    /// A copy of a packet in a buffer that was kept, if there is one.
    #[inline]
    pub(super) fn spare(&mut self, packet: &[u8]) -> Option<PacketBuffer> {
        (!self.spare.is_empty()).then(|| self.spare.copy(packet))
    }

    /// A packet of a near end. `has_room`: the queue takes it. The label of one that is kept says how much of its connection may be under
    /// way.
    #[inline]
    pub(super) fn on_near(
        &mut self,
        now: Instant,
        packet: &PacketBuffer,
        label: &mut Label,
        has_room: bool,
    ) -> FromNear {
        self.now = now;
        if !is_tcp(packet) || (self.connections.is_empty() && !self.is_on) {
            return FromNear::Pass;
        }
        self.on_near_tcp(now, packet, label, has_room)
    }

    fn on_near_tcp(
        &mut self,
        now: Instant,
        packet: &PacketBuffer,
        label: &mut Label,
        has_room: bool,
    ) -> FromNear {
        let Ok(view) = PacketView::parse(packet) else { return FromNear::Pass };
        let Some(segment) = Segment::read(&view) else { return FromNear::Pass };
        let key = label.meta.flow;
        if segment.has(flag::SYN) {
            self.open(now, key, &view, From::Near, &segment);
            return FromNear::Pass;
        }
        let Some(connection) = self.connections.get_mut(&key) else { return FromNear::Pass };
        if connection.ends != view.five_tuple() {
            return FromNear::Pass;
        }
        if segment.has(flag::RST) {
            if connection.is_ended_by(From::Near, &segment) {
                self.forget(key);
            }
            return FromNear::Pass;
        }
        let may_keep = has_room
            && self.is_on
            && self.counters.kept_bytes < MOST_BYTES
            && self.counters.kept_segments < self.room.most();
        let is_whole = || match label.checksum {
            Checksum::Partial => true,
            Checksum::Whole => segment.at.is_right(packet),
        };
        let became = connection.on_near(now, &segment, || may_keep && is_whole());
        if became == FromNear::Keep {
            if label.ecn == Ecn::Ce {
                connection.note_congestion();
            }
            connection.keep(now, &segment, packet.clone());
            label.meta.most_under_way = connection.most_under_way();
            self.counters.kept_bytes += packet.len();
            self.counters.kept_segments += 1;
            self.counters.segments += 1;
            self.room.set(self.counters.kept_segments);
            self.check_at.get_or_insert(now + CHECK);
        }
        if connection.is_due && self.due.last() != Some(&key) {
            self.due.push(key);
        }
        if connection.is_over() {
            self.forget(key);
        }
        became
    }

    /// A packet of a far end that is about to go to the near one; what goes in its place, if anything.
    #[inline]
    pub(super) fn on_far<'a>(&'a mut self, now: Instant, packet: Packet<'a>) -> Option<Packet<'a>> {
        self.now = now;
        if !is_tcp(packet.bytes) || (self.connections.is_empty() && !self.is_on) {
            return Some(packet);
        }
        self.on_far_tcp(now, packet)
    }

    fn on_far_tcp<'a>(&'a mut self, now: Instant, packet: Packet<'a>) -> Option<Packet<'a>> {
        let Ok(view) = PacketView::parse(packet.bytes) else { return Some(packet) };
        let Some(segment) = Segment::read(&view) else { return Some(packet) };
        let ends = view.five_tuple().reversed();
        let key = ends.key();
        if segment.has(flag::SYN) {
            self.open(now, key, &view, From::Far, &segment);
            return Some(packet);
        }
        let Some(connection) = self.connections.get_mut(&key) else { return Some(packet) };
        if connection.ends != ends {
            return Some(packet);
        }
        if segment.has(flag::RST) {
            if connection.is_ended_by(From::Far, &segment) {
                self.forget(key);
            }
            return Some(packet);
        }
        let (spare, kept) = (&mut self.spare, &mut self.counters);
        let was_limited = connection.is_limited;
        let became = connection.on_far(now, &segment, |buffer| recycle(spare, kept, buffer));
        self.room.set(self.counters.kept_segments);
        if connection.is_limited && !was_limited {
            self.limited.push(key);
        }
        let is_due = connection.far_edge_moved() || connection.is_due;
        if is_due && self.due.last() != Some(&key) {
            self.due.push(key);
        }
        if connection.is_over() {
            self.forget(key);
        }
        match became {
            FromFar::Pass => Some(packet),
            FromFar::Absorb => None,
            FromFar::Rewrite { ack, window } => {
                self.scratch.clear();
                self.scratch.extend_from_slice(packet.bytes);
                segment::rewrite(&mut self.scratch, &segment, packet.checksum, ack, window);
                Some(Packet { bytes: &self.scratch, checksum: packet.checksum })
            }
        }
    }

    /// A SYN passes.
    fn open(
        &mut self,
        now: Instant,
        key: FlowKey,
        view: &PacketView<'_>,
        from: From,
        segment: &Segment,
    ) {
        let ends = match from {
            From::Near => view.five_tuple(),
            From::Far => view.five_tuple().reversed(),
        };
        let before = self.connections.get_mut(&key);
        // Two flows may share a key: the second one is left to its ends.
        if before.as_ref().is_some_and(|before| before.ends != ends) || segment.has(flag::RST) {
            return;
        }
        if segment.has(flag::ACK) {
            let Some(before) = before else { return };
            if let Some(successor) = before.succeeded_by(now, from, segment) {
                self.forget(key);
                self.connections.insert(key, successor);
            } else if !before.answer(now, from, segment) {
                self.forget(key);
            }
            return;
        }
        match before {
            Some(before) if before.is_asked_by(from, segment) => return before.ask_again(now),
            Some(before) if !before.is_settled() => {
                return before.set_successor(Connection::begin(now, ends, from, segment));
            }
            _ => self.forget(key),
        }
        if !self.is_on || (self.connections.len() >= MOST_CONNECTIONS && !self.make_room()) {
            return;
        }
        if let Some(connection) = Connection::begin(now, ends, from, segment) {
            self.connections.insert(key, Box::new(connection));
        }
    }

    /// Forgets, of the next connections by their keys, which are hashes, the one that was silent longest of those that need
    /// nothing. `false`: there is none among them.
    fn make_room(&mut self) -> bool {
        let next = self.connections.range((Excluded(self.looked_at), Unbounded));
        let from_first = self.connections.range(..=self.looked_at);
        let (mut oldest, mut last) = (None, self.looked_at);
        for (key, connection) in next.chain(from_first).take(CANDIDATES) {
            last = *key;
            let used_at = connection.used_at;
            if connection.is_settled() && oldest.is_none_or(|(before, _)| used_at < before) {
                oldest = Some((used_at, *key));
            }
        }
        self.looked_at = last;
        let Some((_, key)) = oldest else { return false };
        self.forget(key);
        true
    }

    fn forget(&mut self, key: FlowKey) {
        if let Some(mut connection) = self.connections.remove(&key) {
            let (spare, kept) = (&mut self.spare, &mut self.counters);
            connection.release(|buffer| recycle(spare, kept, buffer));
            self.room.set(self.counters.kept_segments);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, while so many bytes wait for the links.
    #[inline]
    pub(super) fn poll_timeout(&self, waiting: usize) -> Option<Instant> {
        let has_room = !self.limited.is_empty() && waiting + self.step <= self.waiting;
        let at_once = !self.due.is_empty() || has_room;
        earliest(at_once.then_some(self.now), self.check_at)
    }

    /// Acknowledges what is due to near ends, by `sink`, and sends again what far ends miss, by `send`. `waits`: how many bytes of
    /// a flow wait for the links.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        backlog: Backlog,
        waits: impl Fn(FlowKey) -> usize,
        sink: &mut impl PacketSink,
        mut send: impl FnMut(PacketBuffer, Label),
    ) {
        self.now = self.now.max(now);
        self.tell(backlog, &waits, sink);
        if self.check_at.is_some_and(|at| at <= now) {
            self.check(now, backlog.round_trip, &waits, sink, &mut send);
        }
    }

    fn tell(
        &mut self,
        backlog: Backlog,
        waits: &impl Fn(FlowKey) -> usize,
        sink: &mut impl PacketSink,
    ) {
        self.waiting = backlog.waiting;
        let Self { connections, due, limited, scratch, counters, room, now, .. } = self;
        let now = *now;
        let segments = room.most().saturating_sub(counters.kept_segments);
        let held = MOST_BYTES.saturating_sub(counters.kept_bytes).min(segments * SEGMENT);
        let held = held.min(backlog.room);
        let mut still = Vec::new();
        let mut step = ROOM_STEP.1;
        for key in due.drain(..).chain(limited.drain(..)) {
            let Some(connection) = connections.get_mut(&key) else { continue };
            let waiting = u32::try_from(waits(key)).unwrap_or(u32::MAX);
            let most = backlog.most(connection.near_trip.least());
            let (most, room) = connection.room(backlog.explained(), most, waiting);
            if connection.has_news(most, waiting, room) {
                let held = u32::try_from(held).unwrap_or(u32::MAX);
                let answer = connection.acknowledge(now, room.min(held));
                answer.write(scratch);
                sink.deliver(Packet::whole(scratch));
            }
            if connection.is_limited {
                still.push(key);
                step = step.min(usize::try_from(most / 4).unwrap_or(usize::MAX));
            }
        }
        self.step = step.max(ROOM_STEP.0);
        still.sort_unstable();
        still.dedup();
        *limited = still;
    }

    /// Whether the far ends confirm what is kept.
    fn check(
        &mut self,
        now: Instant,
        round_trip: Duration,
        waits: &impl Fn(FlowKey) -> usize,
        sink: &mut impl PacketSink,
        send: &mut impl FnMut(PacketBuffer, Label),
    ) {
        // The tunnel repairs by itself within a second; then it is the turn of this.
        let patience = Duration::from_secs(1) + round_trip * 3;
        let mut lost = Vec::new();
        let mut keeps = false;
        for (key, connection) in &mut self.connections {
            let again: Vec<_> = connection
                .again(now, patience, round_trip, waits(*key) > 0)
                .map(|kept| kept.packet.to_vec())
                .collect();
            for mut packet in again {
                self.counters.sent_again += 1;
                connection.refresh(&mut packet);
                let Ok(view) = PacketView::parse(&packet) else { continue };
                let label = Label::of(&view, Checksum::Whole);
                send(packet.into(), label);
            }
            keeps |= connection.keeps();
            if connection.is_lost() {
                lost.push(*key);
            }
        }
        for key in lost {
            self.reset(key, sink);
        }
        self.check_at = keeps.then(|| now + CHECK);
    }

    /// What was sent by a tunnel that is over may be lost: all that is kept goes again.
    pub(super) fn ask_for_all(&mut self) {
        self.connections.values_mut().for_each(|connection| connection.ask_for_all());
        self.check_at = self.check_at.map(|_| self.now);
    }

    /// Whether no connection is followed.
    pub(crate) fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// Bytes on which near ends rely.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.counters.kept_bytes
    }

    /// Nobody will send what is kept: the near ends that rely on it are told that their connections are over.
    pub(crate) fn abandon(&mut self, sink: &mut impl PacketSink) {
        let unsettled = self.connections.iter().filter(|(_, connection)| connection.keeps());
        let keys: Vec<_> = unsettled.map(|(key, _)| *key).collect();
        for key in keys {
            self.reset(key, sink);
        }
    }

    fn reset(&mut self, key: FlowKey, sink: &mut impl PacketSink) {
        self.counters.lost += 1;
        if let Some(connection) = self.connections.get(&key) {
            connection.reset().write(&mut self.scratch);
            sink.deliver(Packet::whole(&self.scratch));
        }
        self.forget(key);
    }

    /// Bytes of memory kept for packets to come.
    pub(super) fn spare_bytes(&self) -> usize {
        self.spare.bytes()
    }

    /// Whether memory is kept for packets to come.
    pub(super) fn has_spare(&self) -> bool {
        !self.spare.is_empty()
    }

    /// Gives that memory back.
    pub(super) fn release_memory(&mut self) {
        self.spare.release();
        self.scratch = Vec::new();
        self.due.shrink_to_fit();
        self.limited.shrink_to_fit();
    }
}

/// A buffer that was kept serves another.
fn recycle(spare: &mut SpareBuffers, kept: &mut LocallyAcknowledged, buffer: PacketBuffer) {
    kept.kept_bytes = kept.kept_bytes.saturating_sub(buffer.len());
    kept.kept_segments = kept.kept_segments.saturating_sub(1);
    spare.put(buffer, MOST_SPARE);
}
