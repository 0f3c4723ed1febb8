//! The proxy's side of a speed test: what its client asks for, what the owner grants of it, and what was used.
//!
//! The client asks for a phase, and renews that. Each request is the owner's to decide on, who knows how many others test and how
//! much this client has had. What is granted ends by itself: with no word of the client, nothing is sent.

use arrayvec::ArrayVec;

use super::fill::Fill;
use super::place::SpeedPlace;
use crate::config::MAX_LINKS;
use crate::time::{Duration, Instant};
use crate::units::LinkId;
use crate::wire::frame::{SpeedAnswerFrame, SpeedLoad, SpeedRefusal, SpeedRequestFrame};

/// The longest that a grant may hold, whatever the client asks for.
const MOST_LIFETIME: Duration = Duration::from_secs(1);

/// The shortest: as long as a client waits before it renews one. Shorter ones would only begin and end.
const LEAST_LIFETIME: Duration = Duration::from_millis(200);

/// What a place costs, however soon it is given back: a client that takes one after the other, and uses none, has had its hour
/// after so many seconds of them.
const LEAST_TIME: Duration = Duration::from_secs(1);

/// What a client used of its owner's allowance.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpeedUse {
    /// How long it tested.
    pub time: Duration,
    /// Test data both ways, with IP and UDP headers.
    pub bytes: u64,
}

/// What the owner of a proxy's tunnel decides on a request.
#[derive(Debug)]
pub enum SpeedDecision {
    /// The test goes on.
    Granted {
        /// For so long at most.
        time: Duration,
        /// With so many bytes at most, with IP and UDP headers.
        bytes: u64,
        /// The place of the test, where it has none yet.
        place: Option<SpeedPlace>,
    },
    /// It does not.
    Refused {
        /// The reason.
        why: SpeedRefusal,
        /// After how long it may be asked again; zero: nothing is said of that.
        wait: Duration,
    },
}

/// The test of the client of this tunnel.
#[derive(Debug, Default)]
pub(super) struct Serving {
    /// Phase and turn of the newest request; older ones count no more.
    newest: Option<(u32, u16)>,
    /// What the owner has not decided on yet.
    wish: Option<Wish>,
    /// Until when the test is granted.
    until: Option<Instant>,
    /// The phase in which this end fills links, and what it may send.
    pub(super) fill: Option<(u32, Fill)>,
    /// Up to when its time was counted; after the present: that is paid for.
    counted: Instant,
    /// What was counted and not taken yet.
    used: SpeedUse,
    place: Option<SpeedPlace>,
    /// What is to be said, and on which link.
    answer: Option<(LinkId, SpeedAnswerFrame)>,
}

/// A request.
#[derive(Debug)]
struct Wish {
    phase: u32,
    turn: u16,
    load: SpeedLoad,
    lifetime: Duration,
    bytes: u64,
    links: ArrayVec<(LinkId, u64), MAX_LINKS>,
    /// The link that it came on.
    on: LinkId,
}

impl Serving {
    /// A request came on this link. Returns whether it is news: then the owner has something to decide, or to take into account.
    pub(super) fn on_request(&mut self, on: LinkId, frame: &SpeedRequestFrame<'_>) -> bool {
        let which = (frame.phase, frame.turn);
        if self.newest.is_some_and(|newest| which <= newest) {
            return false;
        }
        self.newest = Some(which);
        self.wish = frame.load.map(|load| Wish {
            phase: frame.phase,
            turn: frame.turn,
            load,
            lifetime: Duration::from_millis(u64::from(frame.lifetime_ms))
                .clamp(LEAST_LIFETIME, MOST_LIFETIME),
            bytes: frame.bytes,
            links: frame.links().take(MAX_LINKS).collect(),
            on,
        });
        true
    }

    /// Whether a request waits for the owner's decision.
    pub(super) const fn has_wish(&self) -> bool {
        self.wish.is_some()
    }

    /// Whether the test has a place among those that go on at a time.
    pub(super) const fn has_place(&self) -> bool {
        self.place.is_some()
    }

    /// Test data came: so many bytes with IP and UDP headers.
    pub(super) const fn on_received(&mut self, bytes: u64) {
        self.used.bytes = self.used.bytes.saturating_add(bytes);
    }

    /// What was used since the last call.
    pub(super) fn take_use(&mut self, now: Instant) -> SpeedUse {
        self.count(now);
        std::mem::take(&mut self.used)
    }

    fn count(&mut self, now: Instant) {
        if let Some(until) = self.until {
            let until = until.min(now);
            self.used.time += until.since(self.counted);
            self.counted = self.counted.max(until);
        }
        if let Some((_, fill)) = &mut self.fill {
            self.used.bytes = self.used.bytes.saturating_add(fill.take_sent());
        }
    }

    /// The owner decided on the request that waits.
    pub(super) fn decide(&mut self, now: Instant, decision: SpeedDecision) {
        let Some(wish) = self.wish.take() else { return };
        let (phase, turn) = (wish.phase, wish.turn);
        let answer = |refusal, wait: Duration| {
            let wait_s = u32::try_from(wait.as_secs()).unwrap_or(u32::MAX);
            Some((wish.on, SpeedAnswerFrame { phase, turn, refusal, wait_s }))
        };
        match decision {
            SpeedDecision::Granted { time, bytes, place } => {
                self.answer = answer(None, Duration::ZERO);
                self.count(now);
                // Between two tests no time is used.
                self.counted = self.counted.max(now);
                if place.is_some() {
                    self.used.time += LEAST_TIME;
                    self.counted = now + LEAST_TIME;
                }
                self.place = place.or(self.place.take());
                let until = now + wish.lifetime.min(time);
                self.until = Some(until);
                self.grant(wish, bytes, until);
            }
            SpeedDecision::Refused { why, wait } => {
                // A part of a second is to be waited for, too.
                let wait = if wait.is_zero() { wait } else { wait + Duration::from_secs(1) };
                self.answer = answer(Some(why), wait);
                self.end(now);
            }
        }
    }

    /// This end fills links from now on, if the phase says so; the same phase goes on with what is left of it.
    fn grant(&mut self, wish: Wish, bytes: u64, until: Instant) {
        let goes_on = matches!(&self.fill, Some((phase, _)) if *phase == wish.phase);
        if !goes_on {
            let fills = wish.load == SpeedLoad::Down;
            self.fill = fills.then(|| (wish.phase, Fill::new(wish.links, wish.bytes)));
        }
        if let Some((_, fill)) = &mut self.fill {
            fill.bound(bytes);
            fill.allow(until);
        }
    }

    /// Nothing is sent any more, and others may test.
    pub(super) fn end(&mut self, now: Instant) {
        self.count(now);
        (self.fill, self.until, self.place) = (None, None, None);
    }

    /// When what is granted ends.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.until
    }

    /// The answer that is due, and the link it goes on.
    pub(super) const fn answer(&self) -> Option<(LinkId, SpeedAnswerFrame)> {
        self.answer
    }

    /// It left, or its link did.
    pub(super) const fn on_answered(&mut self) {
        self.answer = None;
    }
}

#[cfg(test)]
mod tests {
    use super::super::place::SpeedPlaces;
    use super::*;
    use crate::wire::cursor::Writer;
    use crate::wire::frame::{MAX_REQUEST_LINKS, emit_links};

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// A request about link 1, for 800 ms and a megabyte.
    fn ask(serving: &mut Serving, phase: u32, turn: u16, load: Option<SpeedLoad>) -> bool {
        let mut buffer = [0; MAX_REQUEST_LINKS];
        let mut writer = Writer::new(&mut buffer);
        emit_links(&mut writer, [(LinkId(1), 1_000_000)]).unwrap();
        let len = writer.len();
        let request = SpeedRequestFrame::new(phase, turn, load, &buffer[..len]);
        serving.on_request(LinkId(1), &request.allowing(800, 1_000_000))
    }

    fn granted(place: Option<SpeedPlace>) -> SpeedDecision {
        SpeedDecision::Granted { time: Duration::from_secs(60), bytes: u64::MAX, place }
    }

    fn is_sending(serving: &Serving, now: Instant) -> bool {
        serving.fill.as_ref().is_some_and(|(_, fill)| fill.is_allowed(now))
    }

    #[test]
    fn it_sends_until_it_is_not_renewed_and_every_request_is_answered() {
        let mut serving = Serving::default();
        assert!(ask(&mut serving, 5, 0, Some(SpeedLoad::Down)) && serving.has_wish());
        assert!(!is_sending(&serving, at(0)), "the owner has not decided");
        serving.decide(at(0), granted(None));
        let (on, answer) = serving.answer().unwrap();
        assert_eq!((on, answer.phase, answer.turn, answer.refusal), (LinkId(1), 5, 0, None));
        assert!(is_sending(&serving, at(799)) && !is_sending(&serving, at(800)));
        assert!(ask(&mut serving, 5, 1, Some(SpeedLoad::Down)));
        serving.decide(at(400), granted(None));
        assert!(is_sending(&serving, at(1199)) && !is_sending(&serving, at(1200)));
        assert_eq!(serving.poll_timeout(), Some(at(1200)));
    }

    #[test]
    fn a_renewal_does_not_give_back_what_was_sent_and_a_new_phase_does() {
        let mut serving = Serving::default();
        for turn in 0..5 {
            ask(&mut serving, 1, turn, Some(SpeedLoad::Down));
            serving.decide(at(0), granted(None));
            let (_, fill) = serving.fill.as_mut().unwrap();
            assert_eq!(fill.allows(0, 250_000), turn < 4, "{turn}");
            fill.spend(0, 250_000);
        }
        ask(&mut serving, 2, 0, Some(SpeedLoad::Down));
        serving.decide(at(0), granted(None));
        assert!(serving.fill.as_ref().unwrap().1.allows(0, 1_000_000));
        assert_eq!(serving.take_use(at(0)).bytes, 1_250_000);
    }

    #[test]
    fn what_was_overtaken_or_repeated_counts_no_more() {
        let mut serving = Serving::default();
        assert!(ask(&mut serving, 5, 3, Some(SpeedLoad::Down)));
        for (phase, turn) in [(5, 3), (5, 2), (4, 9)] {
            assert!(!ask(&mut serving, phase, turn, None), "{phase} {turn}");
        }
        assert!(serving.has_wish());
        assert!(ask(&mut serving, 6, 0, None) && !serving.has_wish(), "it is over");
    }

    #[test]
    fn time_is_used_while_a_test_is_granted_and_not_between_two() {
        let (mut serving, mut used) = (Serving::default(), Duration::ZERO);
        let mut turn = 0;
        for ms in (0..4000).step_by(200) {
            // For a second each: from 0 on, and from 3 s on.
            if !(1000..3000).contains(&ms) {
                ask(&mut serving, 1, turn, Some(SpeedLoad::Idle));
                used += serving.take_use(at(ms)).time;
                serving.decide(at(ms), granted(None));
                turn += 1;
            }
        }
        used += serving.take_use(at(9000)).time;
        // Until the last grant is over: 800 ms after 0.8 s, and after 3.8 s.
        assert_eq!(used, Duration::from_millis(1600 + 1600));
        assert_eq!(serving.take_use(at(9000)), SpeedUse::default());
        // One that its client ends at once has used what it had.
        ask(&mut serving, 2, 0, Some(SpeedLoad::Idle));
        serving.decide(at(10_000), granted(None));
        serving.end(at(10_300));
        assert_eq!(serving.take_use(at(11_000)).time, Duration::from_millis(300));
    }

    #[test]
    fn a_refusal_or_the_end_stops_it_and_gives_the_place_back() {
        let places = SpeedPlaces::default();
        let mut serving = Serving::default();
        ask(&mut serving, 1, 0, Some(SpeedLoad::Down));
        serving.decide(at(0), granted(places.take(1)));
        assert!(serving.has_place() && places.take(1).is_none());
        ask(&mut serving, 1, 1, Some(SpeedLoad::Down));
        serving.decide(at(100), granted(None));
        assert!(serving.has_place(), "it keeps its place");
        ask(&mut serving, 1, 2, Some(SpeedLoad::Down));
        let (why, wait) = (SpeedRefusal::UsedUp, Duration::from_millis(59_500));
        serving.decide(at(200), SpeedDecision::Refused { why, wait });
        let (_, answer) = serving.answer().unwrap();
        assert_eq!((answer.turn, answer.refusal, answer.wait_s), (2, Some(why), 60));
        assert!(!is_sending(&serving, at(200)) && places.take(1).is_some());
    }

    #[test]
    fn a_place_costs_a_second_however_soon_it_is_given_back() {
        let places = SpeedPlaces::default();
        let mut serving = Serving::default();
        for phase in 0..5 {
            let ms = 10 * u64::from(phase);
            ask(&mut serving, phase, 0, Some(SpeedLoad::Idle));
            serving.decide(at(ms), granted(places.take(1)));
            serving.end(at(ms + 5));
        }
        assert_eq!(serving.take_use(at(100)).time, Duration::from_secs(5));
        // One that goes on for longer costs what it takes, and no more than that.
        let mut used = Duration::ZERO;
        for turn in 0..10 {
            let ms = 10_000 + 400 * u64::from(turn);
            ask(&mut serving, 9, turn, Some(SpeedLoad::Idle));
            used += serving.take_use(at(ms)).time;
            let place = if serving.has_place() { None } else { places.take(1) };
            serving.decide(at(ms), granted(place));
        }
        serving.end(at(14_000));
        used += serving.take_use(at(14_000)).time;
        assert_eq!(used, Duration::from_secs(4));
    }

    #[test]
    fn a_grant_holds_for_a_fifth_of_a_second_at_least() {
        let mut serving = Serving::default();
        let request = SpeedRequestFrame::new(1, 0, Some(SpeedLoad::Down), &[1; 9]);
        assert!(serving.on_request(LinkId(1), &request.allowing(0, u64::MAX)));
        serving.decide(at(0), granted(None));
        assert!(is_sending(&serving, at(199)) && !is_sending(&serving, at(200)));
    }

    #[test]
    fn no_grant_is_longer_than_a_second_or_larger_than_the_owner_says() {
        let mut serving = Serving::default();
        let request = SpeedRequestFrame::new(1, 0, Some(SpeedLoad::Down), &[1; 9]);
        assert!(serving.on_request(LinkId(1), &request.allowing(u16::MAX, u64::MAX)));
        serving.decide(
            at(0),
            SpeedDecision::Granted { time: Duration::from_secs(600), bytes: 5000, place: None },
        );
        assert!(is_sending(&serving, at(999)) && !is_sending(&serving, at(1000)));
        let fill = &serving.fill.as_ref().unwrap().1;
        assert!(fill.allows(0, 5000) && !fill.allows(0, 5001));
    }
}
