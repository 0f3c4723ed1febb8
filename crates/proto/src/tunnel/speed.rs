//! Speed tests (PROTOCOL §4.3): what the links carry, found with test data of the session itself.
//!
//! Test data is datagrams like those with packets: sealed, in the link's window, at its pace, reported. So what a test finds is what
//! packets get. They leave after all packets that may leave ([`transmit`](super::transmit)), and less far ahead of the pace than those.
//!
//! | end | does | in |
//! | --- | --- | --- |
//! | client | asks for a phase, and again every 200 ms; sends test data in a phase up, while the proxy grants it; measures round trips | [`asking`] |
//! | proxy | has its owner decide on each request; sends test data in a phase down, until the grant ends | [`serving`] |
//! | both | what may be sent: on which links, how much, until when | [`fill`] |
//!
//! The receiver counts test data and throws it away.

mod asking;
mod fill;
mod place;
mod serving;
mod trips;

pub use asking::{LIFETIME as SPEED_LIFETIME, SpeedAnswer, SpeedError, SpeedPhase};
pub use place::{SpeedPlace, SpeedPlaces};
pub use serving::{SpeedDecision, SpeedUse};
pub use trips::Trips;

use asking::Asking;
use fill::Fill;
use serving::Serving;

use super::control::frames;
use super::egress::evidence_of;
use super::ingress::Received;
use super::link::Link;
use super::session::{Datagram, Made, Session};
use super::{Side, Tunnel};
use crate::event::Event;
use crate::link::carried::Carried;
use crate::sink::TransmitSink;
use crate::time::{Duration, Instant, earliest};
use crate::units::LinkId;
use crate::wire::frame::{
    FILLER_HEAD, Frame, MAX_REQUEST_LINKS, SpeedAnswerFrame, SpeedRequestFrame, emit,
};
use crate::wire::header::{OVERHEAD, SEALED_LEN};

/// Speed tests of a tunnel, of which few ever have one.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// The client's.
    asking: Option<Box<Asking>>,
    /// The number of its last phase.
    phase: u32,
    /// It has yet to say that the test is over.
    farewell: bool,
    /// The proxy's.
    serving: Option<Box<Serving>>,
}

impl Speed {
    /// What this end may send while it is allowed.
    fn fill(&mut self) -> Option<&mut Fill> {
        let own = self.asking.as_mut().and_then(|asking| asking.fill.as_mut());
        let granted = self.serving.as_mut().and_then(|serving| serving.fill.as_mut());
        own.or(granted.map(|(_, fill)| fill))
    }

    /// When a link opens for test data, if some may be sent then.
    fn opens_at(&self) -> Option<Instant> {
        let own = self.asking.as_ref().and_then(|asking| asking.fill.as_ref());
        let granted = self.serving.as_ref().and_then(|serving| serving.fill.as_ref());
        let fill = own.or(granted.map(|(_, fill)| fill))?;
        fill.opens_at.filter(|at| fill.is_allowed(*at))
    }

    /// A report on a link measured its round trip.
    #[inline]
    pub(super) fn on_trip(&mut self, link: LinkId, trip: Option<Duration>) {
        if let (Some(asking), Some(trip)) = (&mut self.asking, trip) {
            asking.on_trip(link, trip);
        }
    }
}

impl Tunnel {
    /// Begins a phase of a speed test, in place of the one before (client only). It is asked for until it ends by itself, or the
    /// next one begins; [`speed_answer`](Self::speed_answer) says whether the proxy plays its part.
    ///
    /// # Errors
    /// [`SpeedError::TooOld`].
    pub fn begin_speed_phase(
        &mut self,
        now: Instant,
        phase: SpeedPhase<LinkId>,
    ) -> Result<(), SpeedError> {
        debug_assert_eq!(self.side, Side::Client, "a proxy does not ask");
        if !self.peer_tests_speed {
            return Err(SpeedError::TooOld);
        }
        self.speed.phase = self.speed.phase.wrapping_add(1);
        self.speed.farewell = false;
        self.speed.asking = Some(Box::new(Asking::new(now, self.speed.phase, phase)));
        Ok(())
    }

    /// Ends a speed test (client only): the proxy is told, once.
    pub fn end_speed_test(&mut self) {
        if self.speed.asking.take().is_some() {
            self.speed.phase = self.speed.phase.wrapping_add(1);
            self.speed.farewell = true;
        }
    }

    /// What the proxy said to the present phase; `None`: nothing yet (client only).
    #[must_use]
    pub fn speed_answer(&self) -> Option<SpeedAnswer> {
        self.speed.asking.as_ref()?.answer
    }

    /// When the proxy last said something to the present phase; `None`: nothing yet (client only). What it granted then ends
    /// after [`SPEED_LIFETIME`].
    #[must_use]
    pub fn speed_answered_at(&self) -> Option<Instant> {
        self.speed.asking.as_ref()?.answered_at
    }

    /// The round trips on a link in the present phase (client only).
    #[must_use]
    pub fn speed_trips(&self, link: LinkId) -> Option<&Trips> {
        self.speed.asking.as_ref()?.trips(link)
    }

    /// The round trips so far do not count (client only).
    pub fn forget_speed_trips(&mut self) {
        if let Some(asking) = &mut self.speed.asking {
            asking.forget_trips();
        }
    }

    /// Whether the client's request waits for [`decide_speed_test`](Self::decide_speed_test), as
    /// [`Event::SpeedWish`] said; if so, whether its test has a place (proxy only).
    #[must_use]
    pub fn speed_wish(&self) -> Option<bool> {
        let serving = self.speed.serving.as_ref().filter(|serving| serving.has_wish());
        serving.map(|serving| serving.has_place())
    }

    /// What the client used since the last call (proxy only).
    pub fn take_speed_use(&mut self, now: Instant) -> SpeedUse {
        let serving = self.speed.serving.as_mut();
        serving.map(|serving| serving.take_use(now)).unwrap_or_default()
    }

    /// The owner decides on the client's request (proxy only).
    pub fn decide_speed_test(&mut self, now: Instant, decision: SpeedDecision) {
        if let Some(serving) = &mut self.speed.serving {
            serving.decide(now, decision);
        }
    }

    /// The client's test is over, whatever it says (proxy only).
    pub(crate) fn stop_speed_test(&mut self, now: Instant) {
        if let Some(serving) = &mut self.speed.serving {
            serving.end(now);
        }
    }

    /// The client asked for a phase, for more of it, or for an end.
    pub(super) fn on_speed_request(
        &mut self,
        now: Instant,
        at: usize,
        frame: &SpeedRequestFrame<'_>,
    ) {
        let id = self.links[at].id;
        let serving = self.speed.serving.get_or_insert_default();
        if !serving.on_request(id, frame) {
            return;
        }
        if frame.load.is_none() {
            serving.end(now);
        }
        self.outbox.tell(Event::SpeedWish);
    }

    /// The proxy answered.
    pub(super) fn on_speed_answer(&mut self, now: Instant, frame: &SpeedAnswerFrame) {
        if let Some(asking) = &mut self.speed.asking {
            asking.on_answer(now, frame);
        }
    }

    /// A datagram of test data came on link `at`.
    pub(super) fn on_filler(&mut self, at: usize, received: &Received<'_>) {
        self.links[at].counters.filler.received.count(received.size);
        if let Some(serving) = &mut self.speed.serving {
            serving.on_received(received.size as u64 + u64::from(received.path.header_len()));
        }
    }

    /// When [`speed_timeout`](Self::speed_timeout) is due.
    pub(super) fn speed_at(&self) -> Option<Instant> {
        let asking = self.speed.asking.as_ref().and_then(|asking| asking.poll_timeout());
        let serving = self.speed.serving.as_ref().and_then(|serving| serving.poll_timeout());
        earliest(asking, serving)
    }

    /// Asks again, measures round trips, ends what is not renewed.
    pub(super) fn speed_timeout(&mut self, now: Instant) {
        if let Some(asking) = &mut self.speed.asking
            && asking.handle_timeout(now)
        {
            let tested = |link: &&mut Link| link.life.is_up() && asking.has(link.id);
            self.links.iter_mut().filter(tested).for_each(|link| link.control.pending.ping = true);
        }
        if let Some(serving) = &mut self.speed.serving
            && serving.poll_timeout().is_some_and(|until| until <= now)
        {
            serving.end(now);
            self.outbox.tell(Event::SpeedWish);
        }
    }

    /// When a link opens for test data.
    pub(super) fn fills_at(&self) -> Option<Instant> {
        let may = self.session.keys.can_seal() && self.ending.takes_packets();
        self.speed.opens_at().filter(|_| may)
    }

    /// Sends what is to be said of speed tests. `false`: the batch is full.
    pub(super) fn send_speed(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        self.send_speed_request(now, out) && self.send_speed_answer(now, out)
    }

    /// A request goes over the best link of the phase: others may cost. If none of those answers it goes over another, so that a link
    /// that is silent for a moment does not end the test.
    fn send_speed_request(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        let asking = self.speed.asking.as_deref().filter(|asking| asking.due);
        if asking.is_none() && !self.speed.farewell {
            return true;
        }
        let of_phase = |link: &Link| asking.is_none_or(|asking| asking.has(link.id));
        // One whose round trip is not known is the last resort.
        let reluctance = |link: &Link| {
            let srtt = link.sender.rtt().srtt().unwrap_or(Duration::MAX);
            (link.sender.is_suspect(now), !of_phase(link), srtt)
        };
        let up = self.links.iter().enumerate().filter(|(_, link)| link.life.is_up());
        let best = up.min_by_key(|(_, link)| reluctance(link));
        let Some((best, _)) = best else { return true };
        let mut buffer = [0; MAX_REQUEST_LINKS];
        let request = match asking {
            Some(asking) => asking.request(&mut buffer),
            None => SpeedRequestFrame::new(self.speed.phase, 0, None, &[]),
        };
        let link = &mut self.links[best];
        let datagram = frames(link.path(), self.egress.next_global());
        let made = self.session.send(now, link, &datagram, out, |writer, _| {
            emit(writer, &Frame::SpeedRequest(request)).map(|()| Carried::default())
        });
        if made == Made::Sent {
            self.speed.farewell = false;
            if let Some(asking) = &mut self.speed.asking {
                asking.on_asked();
            }
        }
        made != Made::Full
    }

    /// An answer goes where the question came from.
    fn send_speed_answer(&mut self, now: Instant, out: &mut impl TransmitSink) -> bool {
        let Some(serving) = &mut self.speed.serving else { return true };
        let Some((on, answer)) = serving.answer() else { return true };
        let Ok(at) = self.links.position(on) else {
            serving.on_answered();
            return true;
        };
        let link = &mut self.links[at];
        if !link.paths.validation.is_proven() {
            return true;
        }
        let datagram = frames(link.path(), self.egress.next_global());
        let made = self.session.send(now, link, &datagram, out, |writer, _| {
            emit(writer, &Frame::SpeedAnswer(answer)).map(|()| Carried::default())
        });
        if made == Made::Sent {
            serving.on_answered();
        }
        made != Made::Full
    }

    /// Sends test data where windows and paces have room that no packet wants now.
    pub(super) fn send_filler(&mut self, now: Instant, out: &mut impl TransmitSink) {
        let Self { speed, links, session, egress, .. } = self;
        let Some(fill) = speed.fill() else { return };
        // Also when it is over: who waited for a time that is past would be called again at once, without end.
        fill.opens_at = None;
        if !fill.is_allowed(now) {
            return;
        }
        let global = egress.next_global();
        let mut place = 0;
        while let Some(id) = fill.link(place) {
            if let Ok(at) = links.position(id) {
                let link = &mut links[at];
                let bytes = link.filler_size();
                while fill.allows(place, bytes) && link.takes_filler(now) {
                    match session.filler(now, link, global, out) {
                        Made::Sent => fill.spend(place, bytes),
                        // The next call goes on where this one ended.
                        Made::Full | Made::Refused => return,
                    }
                }
                if fill.allows(place, bytes) {
                    fill.opens_at = earliest(fill.opens_at, link.opens_for_filler_at(now));
                }
            }
            place += 1;
        }
    }
}

impl Session {
    /// One datagram of test data, as long as the longest packet makes one.
    fn filler(
        &mut self,
        now: Instant,
        link: &mut Link,
        global: u64,
        out: &mut impl TransmitSink,
    ) -> Made {
        let len = usize::from(link.inner_mtu());
        let datagram = Datagram { room: len, places: 1, ..frames(link.path(), global) };
        let size = evidence_of(&datagram.path, len);
        let made = self.send(now, link, &datagram, out, |writer, _| {
            let filled = (SEALED_LEN + len).saturating_sub(writer.len() + FILLER_HEAD);
            emit(writer, &Frame::Filler(u16::try_from(filled).unwrap_or(u16::MAX)))?;
            Ok(Carried { size, ..Carried::default() })
        });
        if made == Made::Sent {
            link.counters.filler.sent.count(len + OVERHEAD);
        }
        made
    }
}

impl Link {
    /// Bytes of a datagram of test data, with IP and UDP headers.
    fn filler_size(&self) -> u64 {
        u64::from(self.inner_mtu()) + OVERHEAD as u64 + u64::from(self.path().header_len())
    }

    /// Whether test data may leave on it now. It may on a link that is kept back: what it carries is to be known, too.
    fn takes_filler(&self, now: Instant) -> bool {
        let paced =
            self.pace().is_none_or(|rate| self.opening.pacer().is_open_for_filler(now, rate));
        paced && self.sender.room() > 0 && self.carries_filler(now)
    }

    fn carries_filler(&self, now: Instant) -> bool {
        self.may_carry(now) && !self.sender.is_suspect(now)
    }

    /// When it opens for test data by itself: when its pace lets it. A full window opens with a report.
    fn opens_for_filler_at(&self, now: Instant) -> Option<Instant> {
        let rate = self.pace().filter(|_| self.sender.room() > 0 && self.carries_filler(now))?;
        self.opening.pacer().opens_for_filler_at(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::SpeedLoad;

    #[test]
    fn nothing_waits_for_a_link_that_opens_after_the_grant_is_over() {
        let at = Instant::from_millis;
        let links = [(LinkId(1), u64::MAX)].into_iter().collect();
        let phase = SpeedPhase { links, bytes: u64::MAX, load: SpeedLoad::Up, until: at(5000) };
        let mut asking = Asking::new(at(0), 1, phase);
        let granted = SpeedAnswerFrame { phase: 1, turn: 0, refusal: None, wait_s: 0 };
        asking.on_answer(at(0), &granted);
        let mut speed = Speed { asking: Some(Box::new(asking)), ..Speed::default() };
        for (ms, expected) in [(799, Some(at(799))), (800, None)] {
            speed.fill().expect("this end fills").opens_at = Some(at(ms));
            assert_eq!(speed.opens_at(), expected);
        }
    }
}
