//! What the peer's frames do: reports, joins, proofs, farewells.

use ropewalk_settings::Bitrate;

use super::ingress::{Contents, Received};
use super::link::{Link, LinkState, settle};
use super::outages::{Gone, OutageCause};
use super::{Side, Tunnel};
use crate::error::DropReason;
use crate::event::{DownReason, Event};
use crate::link::sender::{Outcome, Via};
use crate::link::sent::Settled;
use crate::path::Path;
use crate::sink::PacketSink;
use crate::time::{Duration, Instant};
use crate::wire::expand;
use crate::wire::frame::{Frame, Halt, ReportFrame};

/// Longest silence that a peer may ask an echo after.
const MAX_ECHO_DELAY: Duration = Duration::from_secs(600);

impl Tunnel {
    /// Obeys the frames of a datagram that came on link `at`, before which all below `next` was sealed.
    pub(super) fn obey(
        &mut self,
        now: Instant,
        mut at: usize,
        received: &Received<'_>,
        next: u64,
        contents: &Contents<'_>,
        sink: &mut impl PacketSink,
    ) {
        for frame in contents.frames() {
            self.obey_one(now, at, received, frame, sink);
            if let Frame::Leave(_) = frame {
                // Places have changed, and the datagram may have taken its own link out.
                let Ok(place) = self.links.position(received.link) else { return };
                at = place;
            }
        }
        if contents.is_spoiled() {
            self.session.drops.count(DropReason::FrameMalformed);
        }
        // The other frames say how packets are to be taken, so these come last.
        let drops = &mut self.session.drops;
        if contents.has_packets() {
            self.ingress.offer_all(now, received, contents, drops, sink);
            return self.note_packets(now, Some(at));
        }
        self.ingress.offer_mark(now, received, next, drops, sink);
        // One that was overtaken by a packet is old news.
        if contents.rests() && self.links[at].receiver.largest() == Some(received.number) {
            self.ingress.link_down(now, received.link, &mut self.session.drops, sink);
        }
    }

    fn obey_one(
        &mut self,
        now: Instant,
        at: usize,
        received: &Received<'_>,
        frame: &Frame<'_>,
        sink: &mut impl PacketSink,
    ) {
        let link = &mut self.links[at];
        match *frame {
            Frame::Padding | Frame::Packet(_) | Frame::Resting => {}
            Frame::Report(report) => self.on_report(now, at, received, &report),
            Frame::Ping => link.receiver.demand(now),
            Frame::Join { .. } => link.control.pending.join_ack |= self.side == Side::Proxy,
            Frame::JoinAck => self.on_join_ack(now, at, *received.path),
            Frame::Leave(halt) => self.on_leave(now, halt, sink),
            Frame::Down(halt) => self.on_down(now, halt, sink),
            Frame::PathChallenge(token) => link.control.pending.respond(token),
            Frame::PathResponse(token) => self.on_path_response(now, at, *received.path, token),
            Frame::Close(reason) => self.on_close(now, at, reason, sink),
            Frame::RekeyFirst(message) => self.on_rekey_first(now, at, message),
            Frame::RekeyResponse(message) => self.on_rekey_response(now, message),
            Frame::RekeyRequest => self.on_rekey_request(),
            Frame::EchoAfter { token, delay_ms } => {
                let delay = Duration::from_millis(u64::from(delay_ms)).min(MAX_ECHO_DELAY);
                link.control.echo_due = Some((token, now + delay));
            }
            Frame::Echo { token } => link.keepalive.on_echo(token),
            Frame::MtuHint(mtu) => link.mtu.search.on_hint(now, mtu),
            Frame::Policy(frame) if self.side == Side::Proxy => {
                self.on_policy(at, received.number, frame.policy());
            }
            Frame::Policy(_) => {}
            // Only who gives sessions says who else does.
            Frame::Fleet(frame) if self.side == Side::Client => self.on_fleet(&frame),
            Frame::Fleet(_) => {}
            Frame::Moving if self.side == Side::Proxy => self.on_moving(now),
            Frame::Moving => {}
            Frame::SpeedRequest(frame) if self.side == Side::Proxy => {
                self.on_speed_request(now, at, &frame);
            }
            Frame::SpeedRequest(_) => {}
            Frame::SpeedAnswer(frame) => self.on_speed_answer(now, &frame),
            Frame::Filler(_) => self.on_filler(at, received),
            Frame::Others(kbps) => link.sensing.on_others(Bitrate::from_kbps(kbps)),
        }
    }

    /// What came on a link that left: only packets still matter.
    pub(super) fn offer_removed(
        &mut self,
        now: Instant,
        received: &Received<'_>,
        contents: &Contents<'_>,
        sink: &mut impl PacketSink,
    ) {
        let drops = &mut self.session.drops;
        if contents.is_spoiled() {
            drops.count(DropReason::FrameMalformed);
        }
        if contents.has_packets() {
            self.ingress.offer_all(now, received, contents, drops, sink);
            self.note_packets(now, None);
        }
    }

    /// A report came on link `at` from `path`, about that link or another.
    fn on_report(
        &mut self,
        now: Instant,
        at: usize,
        received: &Received<'_>,
        frame: &ReportFrame<'_>,
    ) {
        let via = if self.links[at].id == frame.link { Via::Own } else { Via::Other };
        let Ok(about) = self.links.position(frame.link) else { return };
        let (egress, fleet) = (&mut self.egress, &mut self.fleet);
        let told = |settled: &Settled| {
            egress.on_settled(now, frame.link, settled);
            fleet.on_fate(frame.link, settled);
        };
        match self.links[about].on_report(now, frame, via, received.sent_us, told) {
            Ok(Outcome { confirmed: 1.., rtt, .. }) => {
                self.speed.on_trip(frame.link, rtt);
                self.ingress.set_repair_time(self.links.repair_time());
                self.note_resumed(now);
                self.on_confirmed(now, about, (via == Via::Own).then_some(*received.path));
            }
            Ok(_) => {}
            Err(reason) => self.session.drops.count(reason),
        }
    }

    /// Something sent on the link arrived, as was said on it at `path`: the link lives.
    fn on_confirmed(&mut self, now: Instant, at: usize, path: Option<Path>) {
        let link = &mut self.links[at];
        link.life.on_confirmed();
        if link.life.is_down() && link.paths.validation.is_proven() {
            if let Some(path) = path {
                link.settle_path(now, path);
            }
            link.enter(now, LinkState::Up);
            link.sender.on_return(now);
            self.outbox.tell(Event::LinkUp(link.id));
        }
        self.note_answer(now, at);
    }

    /// The proxy took the client's link.
    fn on_join_ack(&mut self, now: Instant, at: usize, path: Path) {
        let link = &mut self.links[at];
        if self.side == Side::Client && link.life.state() == LinkState::Joining {
            link.settle_path(now, path);
            link.enter(now, LinkState::Up);
            self.outbox.tell(Event::LinkUp(link.id));
            self.links.recall(now, at);
            self.note_joined(now, at);
        }
    }

    /// The client proved that it receives at `path`.
    fn on_path_response(&mut self, now: Instant, at: usize, path: Path, token: [u8; 8]) {
        let link = &mut self.links[at];
        let before = link.path();
        let Some(moved) = link.paths.validation.on_response(now, path, token) else { return };
        if moved {
            let (id, egress, fleet) = (link.id, &mut self.egress, &mut self.fleet);
            link.moved(now, before, |settled| {
                egress.on_settled(now, id, settled);
                fleet.on_fate(id, settled);
            });
            self.outbox.tell(Event::PathMoved(link.id, link.path()));
        }
        if link.life.state() == LinkState::Joining {
            link.enter(now, LinkState::Up);
            self.outbox.tell(Event::LinkUp(link.id));
            self.links.recall(now, at);
            self.note_joined(now, at);
        }
    }

    /// The peer took a link out.
    fn on_leave(&mut self, now: Instant, halt: Halt, sink: &mut impl PacketSink) {
        let Ok(at) = self.links.position(halt.link) else { return };
        let next_received = self.links.next_received(Some(at));
        let end = expand(next_received, u64::from(halt.next), 32);
        if end < next_received {
            return;
        }
        let gone = Gone::of(now, &self.links[at]);
        self.links.remove_left(now, at);
        self.egress.let_wait(now);
        let moved = self.egress.reinject(now, halt.link, true);
        self.note_outage(now, &gone, OutageCause::Peer, moved);
        self.ingress.link_left(now, halt.link, Some(end), &mut self.session.drops, sink);
        self.outbox.tell(Event::LinkDown(halt.link, DownReason::Left));
    }

    /// The peer gave up what was in flight on a link; unless something newer came on it since. The other
    /// direction may be just as dead: asking finds out, and until then nothing goes there.
    fn on_down(&mut self, now: Instant, halt: Halt, sink: &mut impl PacketSink) {
        let Ok(at) = self.links.position(halt.link) else { return };
        let next = self.links.next_received(Some(at));
        if expand(next, u64::from(halt.next), 32) >= next {
            self.links[at].control.pending.ping = true;
            self.ingress.link_down(now, halt.link, &mut self.session.drops, sink);
            self.doubt(now, at, OutageCause::Peer);
        }
    }
}

impl Link {
    /// A report about the link came, which was sealed at this time of the peer's clock. Returns what it changed. The fates of
    /// datagrams that it decides are `told`.
    ///
    /// # Errors
    /// No honest peer says so.
    fn on_report(
        &mut self,
        now: Instant,
        frame: &ReportFrame<'_>,
        via: Via,
        sealed_us: i64,
        mut told: impl FnMut(&Settled),
    ) -> Result<Outcome, DropReason> {
        let report = frame.expand(self.sender.next_number()).ok_or(DropReason::ReportInvalid)?;
        let path_from = self.sender.path_from();
        let (mtu, receiver) = (&mut self.mtu.search, &mut self.receiver);
        let policy = &mut self.control.policy;
        let settle = |settled: Settled| {
            let mtu = (settled.number >= path_from).then_some(&mut *mtu);
            settle(now, &settled, mtu, receiver, policy);
            told(&settled);
        };
        let outcome = self.sender.on_report(now, &report, via, sealed_us, settle);
        let outcome = outcome.map_err(|_| DropReason::ReportInvalid)?;
        if outcome.confirmed > 0 {
            let (fates, shortest) = (self.sender.fates(), self.sender.rtt().min());
            self.sensing.on_report(now, &outcome, fates, shortest);
        }
        Ok(outcome)
    }
}
