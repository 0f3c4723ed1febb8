//! The client's side of a speed test: one phase after the other, each of which the proxy has to grant again and again.

use arrayvec::ArrayVec;

use super::fill::Fill;
use super::trips::Trips;
use crate::config::MAX_LINKS;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::cursor::Writer;
use crate::wire::frame::{
    MAX_REQUEST_LINKS, SpeedAnswerFrame, SpeedLoad, SpeedRefusal, SpeedRequestFrame, emit_links,
};

/// For how long a grant holds. A client that dies, or whose network does, stops the proxy within a second.
pub const LIFETIME: Duration = Duration::from_millis(800);

/// How often a grant is renewed: three requests or their answers in a row may be lost.
const RENEW: Duration = Duration::from_millis(200);

/// How often the round trip is measured where no data goes up whose reports tell it. A question and its answer are 134 bytes at IPv4: on
/// a link of 100 kbit/s they are 5 % of what it carries.
const PING: Duration = Duration::from_millis(100);

const _: () = assert!(RENEW.as_millis() * 4 <= LIFETIME.as_millis());

/// A phase of a speed test, over links that are named so.
#[derive(Clone, Debug)]
pub struct SpeedPhase<L> {
    /// The links, each with the most bytes of test data on it, with IP and UDP headers.
    pub links: ArrayVec<(L, u64), MAX_LINKS>,
    /// The same of all links together.
    pub bytes: u64,
    /// Who fills them.
    pub load: SpeedLoad,
    /// When it ends by itself.
    pub until: Instant,
}

/// Why no speed test can be begun.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SpeedError {
    /// There is no session.
    #[error("there is no session with a proxy")]
    NoSession,
    /// The proxy does not know what a speed test is.
    #[error("the proxy is too old for speed tests: update it")]
    TooOld,
}

/// What the proxy last said to a phase.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpeedAnswer {
    /// It goes on.
    Granted,
    /// It does not.
    Refused {
        /// The reason.
        why: SpeedRefusal,
        /// After how long it may be asked again, if that was told.
        wait: Option<Duration>,
    },
}

/// A phase that goes on, or was the last.
#[derive(Debug)]
pub(super) struct Asking {
    phase: SpeedPhase<LinkId>,
    number: u32,
    /// The next request of the phase.
    turn: u16,
    /// Whether a request is to be sent.
    pub(super) due: bool,
    ask_at: Instant,
    ping_at: Instant,
    pub(super) answer: Option<SpeedAnswer>,
    /// When that came.
    pub(super) answered_at: Option<Instant>,
    /// What is to be sent, where that is this end's part.
    pub(super) fill: Option<Fill>,
    trips: ArrayVec<(LinkId, Trips), MAX_LINKS>,
}

impl Asking {
    /// The phase with this number begins.
    pub(super) fn new(now: Instant, number: u32, phase: SpeedPhase<LinkId>) -> Self {
        let fills = phase.load == SpeedLoad::Up;
        let fill = fills.then(|| Fill::new(phase.links.clone(), phase.bytes));
        let trips = phase.links.iter().map(|(id, _)| (*id, Trips::default())).collect();
        Self {
            phase,
            number,
            turn: 0,
            due: true,
            ask_at: now + RENEW,
            ping_at: now,
            answer: None,
            answered_at: None,
            fill,
            trips,
        }
    }

    /// Whether the phase is about this link.
    pub(super) fn has(&self, link: LinkId) -> bool {
        self.phase.links.iter().any(|(id, _)| *id == link)
    }

    /// The round trips on a link since the phase began, or since they were last forgotten.
    pub(super) fn trips(&self, link: LinkId) -> Option<&Trips> {
        self.trips.iter().find(|(id, _)| *id == link).map(|(_, trips)| trips)
    }

    /// A round trip was measured.
    pub(super) fn on_trip(&mut self, link: LinkId, trip: Duration) {
        if let Some((_, trips)) = self.trips.iter_mut().find(|(id, _)| *id == link) {
            trips.record(trip);
        }
    }

    /// Round trips count from now on.
    pub(super) fn forget_trips(&mut self) {
        self.trips.iter_mut().for_each(|(_, trips)| *trips = Trips::default());
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let next = self.ask_at.min(self.ping_at);
        (next < self.phase.until).then_some(next)
    }

    /// Does what is due. Returns whether the round trips of the links are to be measured.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        let goes_on = now < self.phase.until;
        if self.ask_at <= now {
            self.ask_at = now + RENEW;
            self.due |= goes_on;
        }
        if self.ping_at > now {
            return false;
        }
        self.ping_at = now + PING;
        goes_on
    }

    /// The request that is due, whose links are written into `buffer`.
    pub(super) fn request<'a>(
        &self,
        buffer: &'a mut [u8; MAX_REQUEST_LINKS],
    ) -> SpeedRequestFrame<'a> {
        let mut writer = Writer::new(buffer);
        // There is room for as many as a tunnel has.
        let _ = emit_links(&mut writer, self.phase.links.iter().copied());
        let len = writer.len();
        let links = buffer.get(..len).unwrap_or_default();
        let lifetime = u16::try_from(LIFETIME.as_millis()).unwrap_or(u16::MAX);
        let request = SpeedRequestFrame::new(self.number, self.turn, Some(self.phase.load), links);
        request.allowing(lifetime, self.phase.bytes)
    }

    /// It left.
    pub(super) const fn on_asked(&mut self) {
        self.due = false;
        self.turn = self.turn.saturating_add(1);
    }

    /// The proxy answered.
    pub(super) fn on_answer(&mut self, now: Instant, frame: &SpeedAnswerFrame) {
        if frame.phase != self.number {
            return;
        }
        self.answered_at = Some(now);
        self.answer = Some(match frame.refusal {
            None => SpeedAnswer::Granted,
            Some(why) => {
                let wait = Duration::from_secs(u64::from(frame.wait_s));
                SpeedAnswer::Refused { why, wait: Some(wait).filter(|wait| !wait.is_zero()) }
            }
        });
        let until = match frame.refusal {
            None => (now + LIFETIME).min(self.phase.until),
            Some(_) => now,
        };
        if let Some(fill) = &mut self.fill {
            fill.allow(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    fn begun(load: SpeedLoad) -> Asking {
        let links = [(LinkId(1), 1_000_000), (LinkId(2), 2_000_000)].into_iter().collect();
        Asking::new(at(0), 7, SpeedPhase { links, bytes: 2_500_000, load, until: at(1000) })
    }

    fn answer(phase: u32, refusal: Option<SpeedRefusal>) -> SpeedAnswerFrame {
        SpeedAnswerFrame { phase, turn: 0, refusal, wait_s: 60 }
    }

    #[test]
    fn a_request_says_what_the_phase_is_and_is_repeated_until_it_ends() {
        let mut asking = begun(SpeedLoad::Down);
        let (mut asked, mut pinged) = (0, 0);
        for ms in (0..2000).step_by(10) {
            pinged += u32::from(asking.handle_timeout(at(ms)));
            if asking.due {
                let mut buffer = [0; MAX_REQUEST_LINKS];
                let request = asking.request(&mut buffer);
                assert_eq!((request.phase, request.turn), (7, asked));
                assert_eq!((request.load, request.bytes), (Some(SpeedLoad::Down), 2_500_000));
                assert_eq!(request.links().count(), 2);
                asking.on_asked();
                asked += 1;
            }
        }
        assert_eq!((asked, pinged), (5, 10));
        assert_eq!(asking.poll_timeout(), None, "it is over");
    }

    #[test]
    fn this_end_fills_links_only_while_the_proxy_grants_it() {
        let mut asking = begun(SpeedLoad::Up);
        let allowed = |asking: &Asking, ms| asking.fill.as_ref().unwrap().is_allowed(at(ms));
        assert!(!allowed(&asking, 0));
        asking.on_answer(at(10), &answer(6, None));
        assert!(!allowed(&asking, 10), "that was about another phase");
        assert_eq!(asking.answered_at, None);
        asking.on_answer(at(20), &answer(7, None));
        assert_eq!(asking.answered_at, Some(at(20)));
        assert!(allowed(&asking, 819) && !allowed(&asking, 820));
        asking.on_answer(at(500), &answer(7, None));
        assert!(allowed(&asking, 999) && !allowed(&asking, 1000), "never beyond the phase");
        asking.on_answer(at(600), &answer(7, Some(SpeedRefusal::UsedUp)));
        assert!(!allowed(&asking, 600));
        let wait = Some(Duration::from_secs(60));
        let refused = SpeedAnswer::Refused { why: SpeedRefusal::UsedUp, wait };
        assert_eq!(asking.answer, Some(refused));
        assert!(begun(SpeedLoad::Down).fill.is_none(), "the proxy's part");
    }

    #[test]
    fn round_trips_are_kept_for_the_links_of_the_phase() {
        let mut asking = begun(SpeedLoad::Idle);
        asking.on_trip(LinkId(1), Duration::from_millis(20));
        asking.on_trip(LinkId(9), Duration::from_millis(90));
        let median = |asking: &Asking, id| asking.trips(LinkId(id))?.percentile(50);
        assert_eq!(median(&asking, 1), Some(Duration::from_millis(20)));
        assert_eq!((median(&asking, 2), median(&asking, 9)), (None, None));
        asking.forget_trips();
        assert_eq!(median(&asking, 1), None);
    }
}
