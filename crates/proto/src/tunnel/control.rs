//! What is said without packets: reports, joins, probes, marks, proofs of address, goodbyes.
//!
//! Frames that wait for a link leave together in one datagram; a report rides along. None of it waits for
//! the congestion window: it is little, and without it the window would never open.

use arrayvec::{ArrayString, ArrayVec};

use ropewalk_settings::Bitrate;

use super::close::FAREWELLS;
use super::link::{Link, LinkState, Pending};
use super::seal::{Cargo, Datagram, Made, Press};
use super::{Side, Tunnel};
use crate::config::{MAX_LINKS, Wishes};
use crate::ecn::Ecn;
use crate::link::received::Report;
use crate::path::Path;
use crate::sink::TransmitSink;
use crate::time::Instant;
use crate::wire::cursor::{Truncated, Writer};
use crate::wire::frame::{Frame, MAX_NAME, emit, emit_report};
use crate::wire::header::{Kind, OVERHEAD, SEALED_LEN};

/// Room for the frames of one datagram: a report, a rekey message and everything small fit.
const CONTROL_ROOM: usize = 900;

/// A `Close` alone.
const CLOSE_LEN: usize = OVERHEAD + 2;

impl Tunnel {
    /// Sends what waits on every link. `false`: the batch is full.
    pub(super) fn send_control(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        (0..self.links.len())
            .all(|at| self.send_challenge(now, at, out) && self.send_frames(now, at, out))
            && self.send_report_copies(now, out)
    }

    fn press(&mut self) -> (Press<'_>, &mut [Link], u64) {
        let press = Press { keys: &mut self.keys, peer: self.peer, drops: &mut self.drops };
        (press, &mut self.links, self.next_global)
    }

    fn send_challenge(&mut self, now: Instant, at: usize, out: &mut impl TransmitSink) -> bool {
        let (mut press, links, global) = self.press();
        let link = &mut links[at];
        while link.validation.is_asking() {
            let before = link.validation;
            let Some((path, token)) = link.validation.poll_challenge(now) else { return true };
            let made = press.send(now, link, &frames(path, global), out, |writer, _| {
                emit(writer, &Frame::PathChallenge(token)).map(|()| Cargo::Plain)
            });
            if made == Made::Full {
                link.validation = before;
                return false;
            }
        }
        true
    }

    /// Everything that waits on link `at`, in one datagram; unless that is more than an unproven address may
    /// get.
    fn send_frames(&mut self, now: Instant, at: usize, out: &mut impl TransmitSink) -> bool {
        let rekey = match self.side {
            Side::Client => self.rekey.message().map_or(Frame::Padding, Frame::RekeyFirst),
            Side::Proxy => Frame::RekeyRequest,
        };
        let answer = Frame::RekeyResponse(&self.rekey.answer);
        let mut press = Press { keys: &mut self.keys, peer: self.peer, drops: &mut self.drops };
        let link = &mut self.links[at];
        let report = link.receiver.poll_report(now);
        let mark = link.mark_at(self.next_global).is_some_and(|at| at <= now);
        let others = link.pending.others.is_some() && self.usage.is_on(now);
        if !link.pending.any() && report.is_none() && !mark && !others {
            return true;
        }
        let in_use = self.usage.is_on(now);
        if report.is_some() && link.wants_confirmation(now, in_use) {
            link.receiver.on_elicit(now);
            link.pending.ping = true;
        }
        let pending = link.pending.clone();
        let ride = report.or_else(|| link.receiver.poll_ride(now));
        if let Some(report) = ride.as_ref().filter(|_| link.state == LinkState::Down) {
            self.report_copies.retain(|copy| copy.link != report.link);
            self.report_copies.push(report.clone());
        }
        let mut datagram = frames(link.path(), self.next_global);
        datagram.eliciting = pending.any() || pending.others.is_some();
        let words = Words {
            pending: &pending,
            name: link.name,
            wishes: link.wishes(),
            ride: ride.as_ref(),
            rekey,
            answer,
        };
        if !link.validation.is_proven() && !link.validation.allows(OVERHEAD + words.len()) {
            link.held = true;
            return true;
        }
        let made = press.send(now, link, &datagram, out, |writer, receiver| {
            words.emit(writer)?;
            let sent = ride.as_ref().map(|report| receiver.report_sent(now, report));
            Ok(sent.map_or(Cargo::Plain, Cargo::Report))
        });
        if made != Made::Full {
            link.pending = Pending::default();
        }
        made != Made::Full
    }

    /// A copy of the report of a link that does not answer goes over the best of the others, so that the
    /// peer learns what came on it.
    fn send_report_copies(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        while let Some(report) = self.report_copies.pop() {
            let best = self.best_link(Some(report.link));
            let (mut press, links, global) = self.press();
            let Some(link) = best.and_then(|at| links.get_mut(at)) else { continue };
            let mut datagram = frames(link.path(), global);
            datagram.eliciting = false;
            let made = press.send(now, link, &datagram, out, |writer, _| {
                emit_report(writer, &report).map(|()| Cargo::Plain)
            });
            if made == Made::Full {
                self.report_copies.push(report);
                return false;
            }
        }
        true
    }

    /// Path MTU probes: a ping padded to the size on trial. One that finds the batch full is not lost.
    pub(super) fn send_probes(&mut self, now: Instant, out: &mut impl TransmitSink) {
        for at in 0..self.links.len() {
            let (mut press, links, global) = self.press();
            let link = &mut links[at];
            while link.may_probe()
                && let Some(size) = link.mtu.poll_probe(now)
            {
                let mut datagram = frames(link.path(), global);
                let overhead = OVERHEAD + usize::from(datagram.path.header_len());
                datagram.room = usize::from(size).saturating_sub(overhead);
                let padded = SEALED_LEN + datagram.room;
                let made = press.send(now, link, &datagram, out, |writer, _| {
                    emit(writer, &Frame::Ping)?;
                    pad(writer, padded)?;
                    Ok(Cargo::Probe(size))
                });
                if made != Made::Sent {
                    return link.mtu.on_unsent();
                }
            }
        }
    }

    /// The last words, on each link.
    pub(super) fn send_close(&mut self, now: Instant, out: &mut impl TransmitSink) {
        while let Some((reason, said)) = self.ending.words() {
            let order = self.by_preference();
            if said >= FAREWELLS * order.len() {
                return self.on_close_said(now);
            }
            let (mut press, links, global) = self.press();
            let link = &mut links[order[said % order.len()]];
            let mut datagram = frames(link.path(), global);
            datagram.eliciting = false;
            if link.validation.allows(CLOSE_LEN) {
                let made = press.send(now, link, &datagram, out, |writer, _| {
                    emit(writer, &Frame::Close(reason)).map(|()| Cargo::Plain)
                });
                if made == Made::Full {
                    return;
                }
            }
            self.ending.on_said();
        }
    }

    /// The places of the links, those first that a person prefers.
    fn by_preference(&self) -> ArrayVec<usize, MAX_LINKS> {
        let mut places: ArrayVec<usize, MAX_LINKS> =
            (0..self.links.len()).take(MAX_LINKS).collect();
        let reluctance = |place: &usize| {
            let link = &self.links[*place];
            self.config.reluctance(&link.name, &link.wishes())
        };
        places.sort_by(|one, other| reluctance(one).total_cmp(&reluctance(other)));
        places
    }
}

/// The frames of one datagram.
struct Words<'a> {
    pending: &'a Pending,
    name: ArrayString<MAX_NAME>,
    wishes: Wishes,
    ride: Option<&'a Report>,
    rekey: Frame<'a>,
    answer: Frame<'a>,
}

impl Words<'_> {
    /// Bytes of them all.
    fn len(&self) -> usize {
        let mut room = [0; CONTROL_ROOM];
        let mut writer = Writer::new(&mut room);
        // What does not fit is not sent either.
        self.emit(&mut writer).map_or(CONTROL_ROOM, |()| writer.len())
    }

    fn emit(&self, writer: &mut Writer<'_>) -> Result<(), Truncated> {
        let pending = self.pending;
        if let Some(report) = self.ride {
            emit_report(writer, report)?;
        }
        let mut put = |wanted: bool, frame: &Frame<'_>| match wanted {
            true => emit(writer, frame),
            false => Ok(()),
        };
        put(pending.join, &Frame::Join { name: self.name.as_bytes() })?;
        if pending.join && self.wishes != Wishes::default() {
            let most = self.wishes.most_down.map_or(0, Bitrate::as_kbps);
            put(true, &Frame::Wish { backup: self.wishes.backup, most_kbps: most })?;
        }
        put(pending.join_ack, &Frame::JoinAck)?;
        put(pending.ping, &Frame::Ping)?;
        pending.responses.iter().try_for_each(|token| put(true, &Frame::PathResponse(*token)))?;
        if let Some((token, delay_ms)) = pending.echo_after {
            put(true, &Frame::EchoAfter { token, delay_ms })?;
        }
        if let Some(token) = pending.echo {
            put(true, &Frame::Echo { token })?;
        }
        if let Some(mtu) = pending.mtu_hint {
            put(true, &Frame::MtuHint(mtu))?;
        }
        if let Some(kbps) = pending.others {
            put(true, &Frame::Others(kbps))?;
        }
        pending.leaves.iter().try_for_each(|halt| put(true, &Frame::Leave(*halt)))?;
        pending.downs.iter().try_for_each(|halt| put(true, &Frame::Down(*halt)))?;
        put(pending.rekey, &self.rekey)?;
        put(pending.rekey_answer, &self.answer)
    }
}

/// A datagram with frames on `path`.
fn frames(path: Path, global: u64) -> Datagram {
    Datagram {
        path,
        kind: Kind::Frames,
        ecn: Ecn::NotEct,
        global,
        previous_on_link: 0,
        previous_of_flow: 0,
        room: CONTROL_ROOM,
        places: 0,
        eliciting: true,
    }
}

/// Fills up to `len` bytes with padding frames.
fn pad(writer: &mut Writer<'_>, len: usize) -> Result<(), Truncated> {
    while writer.room() > 0 && writer.len() < len {
        writer.u8(0)?;
    }
    Ok(())
}
