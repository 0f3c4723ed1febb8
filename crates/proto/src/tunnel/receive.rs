//! What happens with a datagram that comes.
//!
//! 1. [`Tunnel::handle_datagram`]: the clear header names the link and the key phase; the local number is
//!    expanded.
//! 2. The key ring opens it in place, after its replay window allowed it. From here on it is authentic.
//! 3. Frames are read, once ([`Contents`]). A link that is not known is taken if they ask for it.
//! 4. The link notes number, time and address.
//! 5. Frames are obeyed ([`frames`](super::frames)); packets go to the order ([`ingress`](super::ingress)).
//!
//! Nothing before step 3 changes any state but counters.

use ropewalk_settings::Order;

use super::ingress::{Before, Contents, Received};
use super::link::{Link, Validation};
use super::partial::take_mark;
use super::{Side, Tunnel};
use crate::ecn::Ecn;
use crate::error::DropReason;
use crate::event::{DownReason, Event};
use crate::link::receiver::NumberedDatagram;
use crate::packet::PacketView;
use crate::path::Path;
use crate::sink::PacketSink;
use crate::time::Instant;
use crate::units::LinkId;
use crate::wire::expand;
use crate::wire::header::{CLEAR_LEN, Clear, Kind, NUMBER_BITS, SEALED_LEN, Sealed};

/// An authentic datagram.
struct Opened<'a> {
    kind: Kind,
    link: LinkId,
    /// Its number on that link.
    number: u64,
    /// Its congestion mark on the outside.
    ecn: Ecn,
    /// Bytes of UDP payload.
    size: usize,
    /// The place of that link, or where it would be.
    place: Result<usize, usize>,
    /// The link left a short while ago: what is under way on it is still delivered.
    is_removed: bool,
    header: Sealed,
    body: &'a mut [u8],
}

impl Opened<'_> {
    /// What is known of it, when it came from `path` and was sealed at this time of the sender's clock.
    const fn received<'a>(&self, path: &'a Path, sent_us: i64) -> Received<'a> {
        let Self { link, number, ecn, size, .. } = *self;
        Received { link, path, number, ecn, size, sent_us }
    }

    /// In which order its packets are to be delivered.
    const fn order(&self) -> Order {
        match self.kind {
            Kind::Data | Kind::Frames => Order::Global,
            Kind::FlowData | Kind::FlowFrames => Order::Flow,
        }
    }
}

/// Why a datagram was dropped before anything changed.
enum Rejected {
    /// It is not authentic.
    NotAuthentic(DropReason),
    /// It is, and makes no sense.
    Malformed,
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
        let opened = match self.open(now, ecn, datagram) {
            Ok(opened) => opened,
            Err(Rejected::NotAuthentic(reason)) => {
                self.session.drops.count(reason);
                return false;
            }
            Err(Rejected::Malformed) => {
                self.session.drops.count(DropReason::DatagramMalformed);
                return true;
            }
        };
        match opened.kind {
            Kind::Data | Kind::FlowData => self.receive_packet(now, opened, &path, sink),
            Kind::Frames | Kind::FlowFrames => self.receive_frames(now, &opened, path, sink),
        }
        true
    }

    /// All datagrams that were received together are in.
    pub fn end_of_batch(&mut self, now: Instant) {
        for link in self.links.iter_mut() {
            link.receiver.end_of_batch(now);
        }
    }

    /// Steps 1 and 2.
    fn open<'a>(
        &mut self,
        now: Instant,
        ecn: Ecn,
        datagram: &'a mut [u8],
    ) -> Result<Opened<'a>, Rejected> {
        let size = datagram.len();
        let malformed = Rejected::NotAuthentic(DropReason::DatagramMalformed);
        let Ok(clear) = Clear::parse(datagram) else { return Err(malformed) };
        let place = self.links.position(clear.link);
        let removed = self.links.next_received_on_removed(now, clear.link);
        let expected = removed.unwrap_or_else(|| self.links.next_received(place.ok()));
        let number = expand(expected, u64::from(clear.number), NUMBER_BITS);
        let Some((head, sealed)) = datagram.split_first_chunk_mut::<CLEAR_LEN>() else {
            return Err(malformed);
        };
        let opened = self.session.keys.open(now, clear.link, number, clear.phase, head, sealed);
        let plaintext = opened.map_err(|error| Rejected::NotAuthentic(error.into()))?.plaintext;
        let Ok((header, _)) = Sealed::parse(plaintext) else { return Err(Rejected::Malformed) };
        Ok(Opened {
            kind: clear.kind,
            link: clear.link,
            number,
            ecn,
            size,
            place,
            is_removed: removed.is_some(),
            header,
            body: plaintext.get_mut(SEALED_LEN..).unwrap_or_default(),
        })
    }

    /// Steps 3 to 5 for a packet that is alone in its datagram.
    #[inline]
    fn receive_packet(
        &mut self,
        now: Instant,
        opened: Opened<'_>,
        path: &Path,
        sink: &mut impl PacketSink,
    ) {
        let checksum = take_mark(opened.body);
        let Ok(at) = self.place_of(&opened, Err(DropReason::UnknownLink)) else { return };
        let sent_us = self.ingress.sent_us(now, opened.header.send_time);
        let received = opened.received(path, sent_us);
        let global = self.ingress.expand(opened.header.global);
        if let Some(at) = at {
            let packet: &[u8] = opened.body;
            self.note(now, at, &received, 1, Some(packet));
        }
        self.note_packets(now, at);
        let header = &opened.header;
        let before = match opened.order() {
            Order::Global => Before::OnLink(header.previous_on_link),
            Order::Flow => Before::OfFlow(header.distance_in_flow()),
        };
        let numbers = (global, before);
        let packet = (opened.body, checksum);
        self.ingress.offer(now, &received, numbers, packet, &mut self.session.drops, sink);
    }

    /// Steps 3 to 5 for a datagram with frames.
    fn receive_frames(
        &mut self,
        now: Instant,
        opened: &Opened<'_>,
        path: Path,
        sink: &mut impl PacketSink,
    ) {
        let contents = Contents::parse(opened.body, opened.order());
        let joined = match opened.place {
            Ok(at) => Ok(at),
            Err(_) => self.try_join(now, opened.link, path, &contents, sink),
        };
        let Ok(at) = self.place_of(opened, joined) else { return };
        let sent_us = self.ingress.sent_us(now, opened.header.send_time);
        let received = opened.received(&path, sent_us);
        let next = self.ingress.expand(opened.header.global);
        match at {
            Some(at) => {
                let (eliciting, packet) = (contents.eliciting(), contents.first_packet());
                self.note(now, at, &received, eliciting, packet);
                self.obey(now, at, &received, next, &contents, sink);
                self.update_inner_mtu(now);
            }
            None => self.offer_removed(now, &received, &contents, sink),
        }
    }

    /// The place of the link that a datagram came on; `Ok(None)`: it left a short while ago. The peer hears that, and a
    /// datagram on a link that there is not is dropped.
    fn place_of(
        &mut self,
        opened: &Opened<'_>,
        joined: Result<usize, DropReason>,
    ) -> Result<Option<usize>, ()> {
        match opened.place.or(joined) {
            Ok(at) => Ok(Some(at)),
            Err(reason) => {
                self.links.tell_removed(opened.link);
                if opened.is_removed {
                    return Ok(None);
                }
                self.session.drops.count(reason);
                Err(())
            }
        }
    }

    /// Step 3.
    fn try_join(
        &mut self,
        now: Instant,
        id: LinkId,
        path: Path,
        contents: &Contents<'_>,
        sink: &mut impl PacketSink,
    ) -> Result<usize, DropReason> {
        let name = contents.join().filter(|_| self.side == Side::Proxy);
        let name = name.ok_or(DropReason::UnknownLink)?;
        if self.links.is_full() && !self.forget_dead_link(now, sink) {
            return Err(DropReason::TooManyLinks);
        }
        self.session.keys.claim_link(now, id).map_err(|_| DropReason::LinkIdUsed)?;
        // The bytes of this datagram are counted when it is noted.
        let validation = Validation::learned(now, path, 0, Self::token(&mut self.rng));
        let name = String::from_utf8_lossy(name);
        let new = self.new_link(id, &name, validation, self.config.max_mtu);
        Ok(self.insert(Link::accepted(now, new)))
    }

    /// Makes room for a link: the one that has not been up for the longest time is forgotten. If its client
    /// still has it, it learns so by the next datagram on it.
    fn forget_dead_link(&mut self, now: Instant, sink: &mut impl PacketSink) -> bool {
        let Some(id) = self.links.longest_dead() else { return false };
        self.links.remove(now, id);
        self.egress.reinject(now, id, true);
        self.ingress.link_left(now, id, None, &mut self.session.drops, sink);
        self.outbox.tell(Event::LinkDown(id, DownReason::Left));
        true
    }

    /// Step 4. So much of the datagram is to be reported; `packet` is the first in it.
    fn note(
        &mut self,
        now: Instant,
        at: usize,
        received: &Received<'_>,
        eliciting: u32,
        packet: Option<&[u8]>,
    ) {
        let link = &mut self.links[at];
        let newest = link.receiver.largest().is_none_or(|largest| received.number > largest);
        let arrival = NumberedDatagram {
            number: received.number,
            size: u32::try_from(received.size).unwrap_or(u32::MAX),
            eliciting,
            ce: received.ecn == Ecn::Ce && !packet.is_some_and(was_marked),
        };
        link.receiver.on_datagram(now, arrival);
        let Received { path, size, .. } = *received;
        let on_wire = size + usize::from(path.header_len());
        link.counters.on_received(size, on_wire);
        link.activity.on_received(now);
        link.keepalive.on_traffic(now);
        if eliciting > 0 {
            link.ask_if_down();
        }
        if self.side == Side::Proxy {
            let rng = &mut self.rng;
            let token = || Self::token(rng);
            link.paths.validation.on_received(now, *path, size, newest, token);
            link.control.held = false;
        }
        let rerouted = newest && link.activity.on_path(path);
        let tolerance = link.receiver.reordering(now);
        if !std::mem::replace(&mut link.numbering.in_reseq, true) {
            self.ingress.link_added(link.id);
        } else if newest {
            self.ingress.link_heard(now, link.id, rerouted);
        }
        self.ingress.set_tolerance(link.id, tolerance);
    }

    /// A datagram brought packets.
    pub(super) fn note_packets(&mut self, now: Instant, at: Option<usize>) {
        self.usage.on_packet(now);
        if let Some(link) = at.and_then(|at| self.links.get_mut(at)) {
            link.activity.on_packet(now);
        }
    }
}

/// Whether the packet in a datagram, or the first of several, had its congestion mark before the tunnel: the datagram was
/// sealed with it, and says nothing of the link (RFC 6040 §4.1 copies it).
fn was_marked(packet: &[u8]) -> bool {
    PacketView::parse(packet).is_ok_and(|view| view.ecn() == Ecn::Ce)
}
