//! The way of a packet in.
//!
//! 1. [`Tunnel::handle_datagram`]: the clear header names the link and the key phase; the local number is
//!    expanded.
//! 2. The key ring opens it in place, after its replay window allowed it. From here on it is authentic.
//! 3. A link that is not known is taken if the datagram asks for it.
//! 4. The link notes number, time and address.
//! 5. Frames are obeyed; a packet goes to the resequencer, which delivers it, holds it, or lets others go.
//!
//! Nothing before step 3 changes any state but counters.

use std::mem;

use ropewalk_settings::Bitrate;

use super::Traffic;
use super::bundle;
use super::filter::Refusal;
use super::link::Link;
use super::partial::{self, PARTIAL, take_mark};
use super::parts::{Came, Joiner};
use super::path::Validation;
use super::{InnerFilter, Side, Tunnel};
use crate::config::{MAX_LINKS, Wishes};
use crate::ecn::Ecn;
use crate::error::{DropCounters, DropReason};
use crate::link::receiver::Arrival as LinkArrival;
use crate::packet::PacketView;
use crate::packet::checksum::Checksum;
use crate::packet::transport::Transport;
use crate::path::Path;
use crate::reseq::{Arrival, ArrivalKind, Resequencer};
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::expand;
use crate::wire::frame::{Frame, Frames};
use crate::wire::header::{CLEAR_LEN, Clear, Kind, NUMBER_BITS, SEALED_LEN, Sealed, TIME_UNIT_US};

/// Longest silence that a peer may ask an echo after.
const MAX_ECHO_DELAY: Duration = Duration::from_secs(600);

/// Maps the sender's 24-bit send times to a number line, by our own clock: a send time is the one nearest
/// to where the sender's clock must stand now.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SenderClock {
    /// The sender's clock minus ours when last seen, in units of the send time.
    offset: Option<u64>,
}

/// Keeps the number line above zero whatever the two clocks say.
const CLOCK_BASE: u64 = 1 << 40;

impl SenderClock {
    /// When the datagram was sealed, in µs of the sender's clock from an epoch of its own.
    fn sent_us(&mut self, now: Instant, send_time: u32) -> i64 {
        let ours = CLOCK_BASE + now.as_micros() / TIME_UNIT_US;
        let expected = ours.wrapping_add(self.offset.unwrap_or(0));
        let units = match self.offset {
            Some(_) => expand(expected, u64::from(send_time), NUMBER_BITS),
            None => CLOCK_BASE + u64::from(send_time),
        };
        self.offset = Some(units.wrapping_sub(ours));
        i64::try_from(units.saturating_mul(TIME_UNIT_US)).unwrap_or(i64::MAX)
    }
}

/// Joins parts, lets only packets through that the peer may send, and keeps the totals.
pub(super) struct Gate<'a, S> {
    sink: &'a mut S,
    filter: &'a InnerFilter,
    drops: &'a mut DropCounters,
    delivered: &'a mut Traffic,
    joiner: &'a mut Joiner,
    joined: &'a mut u64,
}

impl<S: PacketSink> PacketSink for Gate<'_, S> {
    fn deliver(&mut self, packet: &[u8]) {
        if packet.is_empty() {
            return;
        }
        let (checksum, packet) = partial::unframed(packet);
        let came = match checksum {
            Checksum::Whole => self.joiner.take(packet),
            // A part has no mark.
            Checksum::Partial => Came::Packet,
        };
        let packet = match came {
            Came::Packet => packet,
            Came::Joined(packet) => {
                *self.joined += 1;
                packet
            }
            Came::Kept { alone: false } => return,
            Came::Kept { alone: true } => return self.drops.count(DropReason::PartAlone),
            Came::Malformed => return self.drops.count(DropReason::PacketMalformed),
        };
        let view = PacketView::parse(packet).ok();
        if checksum == Checksum::Partial && view.as_ref().and_then(Transport::of).is_none() {
            return self.drops.count(DropReason::PartialChecksum);
        }
        let Some(view) = view else {
            return self.drops.count(DropReason::PacketMalformed);
        };
        match self.filter.check(view.source(), view.destination()) {
            Ok(()) => {
                self.delivered.count(packet.len());
                match checksum {
                    Checksum::Whole => self.sink.deliver(packet),
                    Checksum::Partial => self.sink.deliver_partial(packet),
                }
            }
            Err(Refusal::Source) => self.drops.count(DropReason::ForeignSource),
            Err(Refusal::Destination) => self.drops.count(DropReason::RefusedDestination),
        }
    }
}

/// What step 2 knows of an authentic datagram.
#[derive(Clone, Copy)]
struct Received<'a> {
    link: LinkId,
    path: &'a Path,
    ecn: Ecn,
    kind: Kind,
    number: u64,
    size: usize,
    sent_us: i64,
}

/// Where a packet stands in the sender's order.
#[derive(Clone, Copy)]
struct Numbers {
    /// The global number, expanded.
    global: u64,
    /// The previous one on the link.
    previous: Option<u64>,
}

impl Received<'_> {
    fn arrival(&self, global: u64, kind: ArrivalKind) -> Arrival {
        Arrival { link: self.link, local: self.number, sent_us: self.sent_us, global, kind }
    }
}

impl Tunnel {
    /// Steps 1 to 5. `datagram` is opened in place; packets in order go straight to `sink`. Returns
    /// whether it was authentic.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        path: Path,
        ecn: Ecn,
        datagram: &mut [u8],
        sink: &mut impl PacketSink,
    ) -> bool {
        let size = datagram.len();
        let Ok(clear) = Clear::parse(datagram) else {
            self.drops.count(DropReason::DatagramMalformed);
            return false;
        };
        let place = self.position(clear.link);
        let departed = self.departed.next_received(now, clear.link);
        let expected = departed.unwrap_or_else(|| self.next_received_at(place.ok()));
        let number = expand(expected, u64::from(clear.number), NUMBER_BITS);
        let Some((head, sealed)) = datagram.split_first_chunk_mut::<CLEAR_LEN>() else {
            return false;
        };
        let opened = match self.keys.open(now, clear.link, number, clear.phase, head, sealed) {
            Ok(opened) => opened,
            Err(error) => {
                self.drops.count(error.into());
                return false;
            }
        };
        let Ok((header, _)) = Sealed::parse(opened.plaintext) else {
            self.drops.count(DropReason::DatagramMalformed);
            return true;
        };
        // With the byte before it, which was read.
        let framed = opened.plaintext.get_mut(SEALED_LEN - 1..).unwrap_or_default();
        let checksum = match (clear.kind, framed.get_mut(1..)) {
            (Kind::Data, Some(packet)) => take_mark(packet),
            _ => Checksum::Whole,
        };
        let body = framed.get_mut(1..).unwrap_or_default();
        let at = match place.or_else(|_| self.try_join(now, &clear, path, body, sink)) {
            Ok(at) => Some(at),
            Err(reason) => {
                self.tell_departed(clear.link);
                if departed.is_none() {
                    self.drops.count(reason);
                    return true;
                }
                None
            }
        };
        let received = Received {
            link: clear.link,
            path: &path,
            ecn,
            kind: clear.kind,
            number,
            size,
            sent_us: self.sender_clock.sent_us(now, header.send_time),
        };
        let global = expand(self.reseq.next_unseen(), u64::from(header.global), NUMBER_BITS);
        if let Some(at) = at {
            self.note(now, at, &received, body);
        }
        match (received.kind, at) {
            (Kind::Data, _) => {
                self.note_packets(now, at);
                let numbers =
                    Numbers { global, previous: previous(global, header.previous_on_link) };
                self.offer(now, &received, numbers, framed, checksum, sink);
            }
            (Kind::Frames, Some(at)) => {
                self.obey(now, at, &received, global, body, sink);
                self.update_inner_mtu(now);
            }
            (Kind::Frames, None) => self.offer_departed(now, &received, body, sink),
        }
        true
    }

    /// All datagrams that were received together are in.
    pub fn end_of_batch(&mut self, now: Instant) {
        for link in &mut self.links {
            link.receiver.end_of_batch(now);
        }
    }

    /// Step 3.
    fn try_join(
        &mut self,
        now: Instant,
        clear: &Clear,
        path: Path,
        body: &[u8],
        sink: &mut impl PacketSink,
    ) -> Result<usize, DropReason> {
        if self.side != Side::Proxy || clear.kind != Kind::Frames {
            return Err(DropReason::UnknownLink);
        }
        let join = Frames::new(body).flatten().find_map(|frame| match frame {
            Frame::Join { name } => Some(name),
            _ => None,
        });
        let name = join.ok_or(DropReason::UnknownLink)?;
        if self.links.len() >= MAX_LINKS && !self.forget_dead_link(now, sink) {
            return Err(DropReason::TooManyLinks);
        }
        self.keys.claim_link(now, clear.link).map_err(|_| DropReason::LinkIdUsed)?;
        // The bytes of this datagram are counted when it is noted.
        let validation = Validation::learned(now, path, 0, Self::token(&mut self.rng));
        let name = String::from_utf8_lossy(name);
        let new = self.new_link(now, clear.link, &name, validation, self.config.max_mtu);
        self.departed.forget(clear.link);
        self.insert(Link::accepted(now, new));
        self.position(clear.link).map_err(|_| DropReason::UnknownLink)
    }

    /// Step 4.
    fn note(&mut self, now: Instant, at: usize, received: &Received<'_>, body: &[u8]) {
        let rng = &mut self.rng;
        let link = &mut self.links[at];
        let newest = link.receiver.largest().is_none_or(|largest| received.number > largest);
        let arrival = LinkArrival {
            number: received.number,
            size: u32::try_from(received.size).unwrap_or(u32::MAX),
            eliciting: if received.kind == Kind::Data { 1 } else { elicits(body) },
            ce: received.ecn == Ecn::Ce && !was_marked(received.kind, body),
        };
        link.receiver.on_datagram(now, arrival);
        link.received.count(received.size);
        let on_wire = received.size + usize::from(received.path.header_len());
        link.on_wire.received += on_wire as u64;
        link.last_received = now;
        link.keepalive.on_traffic(now);
        if arrival.eliciting > 0 {
            link.ask_if_down();
        }
        if self.side == Side::Proxy {
            let token = || Self::token(rng);
            link.validation.on_received(now, *received.path, received.size, newest, token);
            link.held = false;
        }
        let tolerance = link.receiver.reordering(now);
        let (id, first) = (link.id, !link.in_reseq);
        link.in_reseq = true;
        if first {
            // Nothing sealed before the peer had heard of this link can come on it.
            self.reseq.link_added(id, self.reseq.next_unseen());
        } else if newest {
            self.reseq.link_up(id);
        }
        if newest && link.received_path.as_ref() != Some(received.path) {
            link.received_path = Some(*received.path);
            if !first {
                self.reseq.link_rerouted(now, id);
            }
        }
        self.reseq.set_tolerance(id, tolerance);
    }

    /// A datagram brought packets.
    fn note_packets(&mut self, now: Instant, at: Option<usize>) {
        self.usage.on_packet(now);
        if let Some(link) = at.and_then(|at| self.links.get_mut(at)) {
            link.last_packet = Some(now);
        }
    }

    /// Step 5 for one packet, with a spare byte before it.
    fn offer(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        numbers: Numbers,
        framed: &mut [u8],
        checksum: Checksum,
        sink: &mut impl PacketSink,
    ) {
        let packet = framed.get_mut(1..).unwrap_or_default();
        // Its number came, whatever it is.
        let goes_on = self.is_fit(packet, checksum) && self.decapsulate(received.ecn, packet);
        let packet = if goes_on { partial::framed(framed, checksum) } else { &[] };
        let kind = ArrivalKind::Data { prev_on_link: numbers.previous };
        let arrival = received.arrival(numbers.global, kind);
        self.with_gate(sink, |reseq, gate| reseq.offer(now, &arrival, packet, gate));
    }

    /// Whether it may have this checksum, and is not taken for one with another.
    fn is_fit(&mut self, packet: &[u8], checksum: Checksum) -> bool {
        let reason = match checksum {
            Checksum::Partial if !self.config.partial_checksums => DropReason::PartialChecksum,
            Checksum::Whole if packet.first() == Some(&PARTIAL) => DropReason::PacketMalformed,
            _ => return true,
        };
        self.drops.count(reason);
        false
    }

    /// Combines outer and inner ECN. `false`: the packet must not go on (RFC 6040 §4.2).
    #[inline]
    fn decapsulate(&mut self, outer: Ecn, packet: &mut [u8]) -> bool {
        // These leave every packet as it is.
        if matches!(outer, Ecn::NotEct | Ecn::Ect0) {
            return true;
        }
        let Ok(view) = PacketView::parse(packet) else { return true };
        match Ecn::decapsulate(view.ecn(), outer) {
            Some(ecn) if ecn == view.ecn() => true,
            Some(ecn) => {
                crate::packet::set_ecn(packet, ecn);
                true
            }
            None => {
                self.drops.count(DropReason::CongestionMarkedNotCapable);
                false
            }
        }
    }

    /// Step 5 for frames, before which all below `next` was sealed. Packets among them have rising numbers (PROTOCOL §4).
    fn obey(
        &mut self,
        now: Instant,
        mut at: usize,
        received: &Received<'_>,
        next: u64,
        body: &mut [u8],
        sink: &mut impl PacketSink,
    ) {
        let (mut packets, mut last, mut rests) = (0, None, false);
        for frame in Frames::new(body) {
            let Ok(frame) = frame else {
                self.drops.count(DropReason::FrameMalformed);
                break;
            };
            match frame {
                Frame::Padding => {}
                Frame::Packet(frame) => {
                    if last.is_some_and(|last| bundle::step(last, frame.global).is_none()) {
                        self.drops.count(DropReason::FrameMalformed);
                        break;
                    }
                    (packets, last) = (packets + 1, Some(frame.global));
                }
                Frame::Report(report) => self.on_report(now, at, *received.path, &report),
                Frame::Ping => self.links[at].receiver.demand(now),
                Frame::Join { .. } => self.links[at].pending.join_ack |= self.side == Side::Proxy,
                Frame::JoinAck => self.on_join_ack(now, at, *received.path),
                Frame::Leave(halt) => {
                    self.on_leave(now, halt, sink);
                    // Places have changed, and the datagram may have taken its own link out.
                    let Ok(place) = self.position(received.link) else { return };
                    at = place;
                }
                Frame::Down(halt) => self.on_down(now, halt, sink),
                Frame::PathChallenge(token) => self.links[at].pending.respond(token),
                Frame::PathResponse(token) => self.on_path_response(now, at, *received.path, token),
                Frame::Close(reason) => self.on_close(now, at, reason, sink),
                Frame::RekeyFirst(message) => self.on_rekey_first(now, at, message),
                Frame::RekeyResponse(message) => self.on_rekey_response(now, message),
                Frame::RekeyRequest => self.on_rekey_request(),
                Frame::EchoAfter { token, delay_ms } => {
                    let delay = Duration::from_millis(u64::from(delay_ms)).min(MAX_ECHO_DELAY);
                    self.links[at].echo_due = Some((token, now + delay));
                }
                Frame::Echo { token } => self.links[at].keepalive.on_echo(token),
                Frame::MtuHint(mtu) => self.links[at].mtu.on_hint(now, mtu),
                Frame::Wish { backup, most_kbps } if self.side == Side::Proxy => {
                    let most = (most_kbps > 0).then(|| Bitrate::from_kbps(most_kbps));
                    self.on_wish(at, backup, most);
                }
                Frame::Wish { .. } => {}
                Frame::Resting => rests = true,
                Frame::Others(kbps) => self.links[at].sensing.on_others(Bitrate::from_kbps(kbps)),
            }
        }
        // The other frames say how packets are to be taken, so these come last.
        if self.offer_framed(now, received, packets, body, sink) == 0 {
            self.offer_mark(now, received, next, sink);
        }
        // One that was overtaken by a packet is old news.
        let newest = |link: &Link| link.receiver.largest() == Some(received.number);
        if rests && packets == 0 && self.links.get(at).is_some_and(newest) {
            self.with_gate(sink, |reseq, gate| reseq.link_down(now, received.link, gate));
        }
    }

    /// The client says what it wishes of a link of its own.
    fn on_wish(&mut self, at: usize, backup: bool, most: Option<Bitrate>) {
        let wishes = Wishes { backup, most_up: None, most_down: most };
        // It is said again with each repeated `Join`.
        if self.links[at].wishes() != wishes {
            self.links[at].wish(wishes, most);
            self.apply_terms(at);
        }
    }

    /// What came on a link that left: only packets still matter.
    fn offer_departed(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        body: &[u8],
        sink: &mut impl PacketSink,
    ) {
        let is_packet = |frame: &Frame<'_>| matches!(frame, Frame::Packet(_));
        let all = Frames::new(body).flatten().filter(is_packet).count();
        if self.offer_framed(now, received, all, body, sink) < all {
            self.drops.count(DropReason::FrameMalformed);
        }
    }

    /// The first `most` packets of a datagram with frames; returns how many there were. They are small; the copy makes
    /// each ours to alter.
    fn offer_framed(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        most: usize,
        body: &[u8],
        sink: &mut impl PacketSink,
    ) -> usize {
        let mut scratch = mem::take(&mut self.scratch);
        let mut offered = 0;
        for (global, frame) in bundle::packets(body, self.reseq.next_unseen()).take(most) {
            let numbers = Numbers { global, previous: previous(global, frame.previous_on_link) };
            scratch.clear();
            scratch.push(0);
            scratch.extend_from_slice(frame.packet);
            self.offer(now, received, numbers, &mut scratch, Checksum::Whole, sink);
            offered += 1;
        }
        self.scratch = scratch;
        if offered > 0 {
            self.note_packets(now, self.position(received.link).ok());
        }
        offered
    }

    /// A datagram without packet says what was sealed before it: all below `next`.
    fn offer_mark(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        next: u64,
        sink: &mut impl PacketSink,
    ) {
        let arrival = received.arrival(next, ArrivalKind::Mark);
        self.with_gate(sink, |reseq, gate| reseq.offer(now, &arrival, &[], gate));
    }

    /// Runs the resequencer with a sink that only lets through what the peer may send.
    pub(super) fn with_gate<S: PacketSink>(
        &mut self,
        sink: &mut S,
        run: impl FnOnce(&mut Resequencer, &mut Gate<'_, S>),
    ) {
        let Self { filter, drops, delivered, joiner, joined, reseq, .. } = self;
        run(reseq, &mut Gate { sink, filter, drops, delivered, joiner, joined });
    }
}

/// The global number that lies `distance` before `global`; 0 means none.
fn previous(global: u64, distance: u8) -> Option<u64> {
    (distance > 0).then(|| global.checked_sub(u64::from(distance))).flatten()
}

/// Whether the packet in a datagram, or all of several, had its congestion mark before the tunnel: the datagram was sealed with it,
/// and says nothing of the link (RFC 6040 §4.1 copies it).
fn was_marked(kind: Kind, body: &[u8]) -> bool {
    let packet = match kind {
        Kind::Data => Some(body),
        Kind::Frames => bundle::packets(body, 0).next().map(|(_, frame)| frame.packet),
    };
    let view = packet.and_then(|packet| PacketView::parse(packet).ok());
    view.is_some_and(|view| view.ecn() == Ecn::Ce)
}

/// What of these frames is to be reported (PROTOCOL §4): the packets, or the others as one.
fn elicits(body: &[u8]) -> u32 {
    let (mut packets, mut others) = (0_u32, false);
    for frame in Frames::new(body).flatten() {
        match frame {
            Frame::Packet(_) => packets += 1,
            Frame::Report(_) | Frame::Close(_) | Frame::Resting => {}
            _ => others = true,
        }
    }
    packets.max(others.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::low24;

    #[test]
    fn send_times_form_one_line_over_wraps_and_long_silences() {
        let mut clock = SenderClock::default();
        let sender_ahead = Duration::from_secs(12_345);
        let mut now = Instant::from_millis(500);
        let mut line = None;
        for pause in [0, 1, 60, 67, 68, 1000, 7, 86_400].map(Duration::from_secs) {
            now += pause;
            let send_time = low24((now + sender_ahead).as_micros() / TIME_UNIT_US);
            let sent_us = clock.sent_us(now, send_time);
            let ours = i64::try_from(now.as_micros()).unwrap();
            let offset = *line.get_or_insert(sent_us - ours);
            assert!((sent_us - ours - offset).abs() <= 4, "after {pause:?}");
        }
    }

    #[test]
    fn a_distance_of_zero_or_below_the_first_number_names_nothing() {
        assert_eq!(previous(7, 0), None);
        assert_eq!(previous(7, 7), Some(0));
        assert_eq!(previous(7, 8), None);
    }
}
