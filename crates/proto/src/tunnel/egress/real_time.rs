//! Packets that are of use for a moment only: those of a call, of a game, of a picture that is watched as it is taken. The other end
//! plays on without one that is late. So it goes no more when it is too old, neither again ([`resend`](super::resend)) nor after a
//! time in which no link answered.
//!
//! Which ones: [`Label::is_real_time`](crate::queue::Label::is_real_time). How old: [`most_age`].
//!
//! The last link is waited for, as long as any packet is: a handover costs a call its pause and nothing else. So their time stands
//! still while that one is silent ([`Silence`]). Where several links fall silent at once nothing is handed over, and it goes on.

use super::Egress;
use crate::queue::Waiting;
use crate::time::{Duration, Instant};
use crate::tunnel::link::Link;
use crate::tunnel::links::LinkSet;

/// For so long beyond a round trip a packet may still go. That it is missing is known after a round trip, so every link has that;
/// beyond it the receivers of calls wait for 20 to 200 ms before they play, and with more than 400 ms one way people cannot
/// talk (ITU-T G.114). Over a near link a packet is sent again twice in that time.
const OF_USE: Duration = Duration::from_millis(250);

/// When a link answers again, what waited is gone after so long: it opens within some round trips.
const FELT_FOR: Duration = Duration::from_secs(1);

/// How old a packet that is of use for a moment may be when it leaves on `link`: twice the way there is taken to be the round trip.
pub(super) fn most_age(link: &Link) -> Duration {
    OF_USE + link.sender.rtt().srtt().unwrap_or_default()
}

/// The times in which no link answered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Silence {
    /// Since when none does.
    since: Option<Instant>,
    /// It is the last link's.
    is_of_last: bool,
    /// When one did again after several had been silent for so long that packets became old.
    ended: Option<Instant>,
    /// From when until when the last link was waited for before.
    waited: (Instant, Instant),
}

impl Silence {
    /// Whether any link answers; `up`: how many there are that may.
    pub(super) fn note(&mut self, now: Instant, answers: bool, up: impl FnOnce() -> usize) {
        match (self.since, answers) {
            (None, false) => {
                self.since = Some(now);
                self.is_of_last = up() <= 1;
            }
            (Some(since), true) => {
                self.since = None;
                if self.is_of_last {
                    self.waited = (since, now);
                } else if now.since(since) >= OF_USE {
                    self.ended = Some(now);
                }
            }
            (None, true) | (Some(_), false) => {}
        }
    }

    /// Whether no link answers.
    pub(super) const fn lasts(&self) -> bool {
        self.since.is_some()
    }

    /// Whether what waits may have become too old because none did. Over the last link it does not.
    fn is_felt(&self, now: Instant) -> bool {
        let is_long = |since: Instant| !self.is_of_last && now.since(since) >= OF_USE;
        let is_recent = |ended: Instant| now.since(ended) < FELT_FOR;
        self.since.is_some_and(is_long) || self.ended.is_some_and(is_recent)
    }

    /// Whether a packet that came then is older than this. `None`: its age is of no account.
    pub(super) fn outdates(&self, now: Instant, came: Option<Instant>, most: Duration) -> bool {
        came.is_some_and(|came| self.age(now, came) > most)
    }

    /// The time since a packet came, without that in which the last link was waited for.
    fn age(&self, now: Instant, came: Instant) -> Duration {
        let (from, until) = match self.since.filter(|_| self.is_of_last) {
            Some(since) => (since, now),
            None => self.waited,
        };
        now.since(came).saturating_sub(until.since(from.max(came)))
    }
}

impl Egress {
    /// What waits since no link answered, and is too old to be of use, is given up. Returns how many packets.
    pub(super) fn drop_outdated(&mut self, now: Instant, links: &LinkSet) -> u64 {
        let silence = self.silence;
        if !silence.is_felt(now) {
            return 0;
        }
        // Nobody knows yet which of them it would take.
        let longest = links.iter().filter(|link| link.carries(now)).map(most_age).max();
        let Some(most) = longest else { return 0 };
        let is_outdated =
            |waiting: &Waiting| silence.outdates(now, waiting.real_time_since(), most);
        self.queue.drop_outdated(is_outdated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_millis(ms)
    }

    /// No link answers from 100 to 700 ms; so many were up when that began.
    fn silence(up: usize) -> Silence {
        let mut silence = Silence::default();
        for (ms, answers) in [(50, true), (100, false), (300, false), (700, true), (720, true)] {
            // Later on one may count as down.
            silence.note(at(ms), answers, || if ms == 100 { up } else { 0 });
        }
        silence
    }

    #[test]
    fn while_the_last_link_is_silent_time_stands_still() {
        for up in [0, 1] {
            let silence = silence(up);
            // Came before, meanwhile, and afterwards.
            for (came, age) in [(60, 90), (400, 50), (720, 30)] {
                assert_eq!(silence.age(at(750), at(came)), Duration::from_millis(age), "{came}");
            }
        }
        let mut lasting = Silence::default();
        lasting.note(at(100), false, || 1);
        assert_eq!(lasting.age(at(1_600), at(60)), Duration::from_millis(40));
        assert_eq!(lasting.age(at(1_600), at(600)), Duration::ZERO);
    }

    #[test]
    fn where_several_are_silent_at_once_it_goes_on() {
        let silence = silence(2);
        assert_eq!(silence.age(at(750), at(60)), Duration::from_millis(690));
        let most = Duration::from_millis(300);
        let outdated = [None, Some(at(449)), Some(at(450)), Some(at(740))];
        let outdated = outdated.map(|came| silence.outdates(at(750), came, most));
        assert_eq!(outdated, [false, true, false, false]);
    }

    #[test]
    fn a_silence_is_felt_until_what_waited_has_left_unless_it_was_short_or_the_last_links() {
        let felt = |silence: Silence| [700, 1_699, 1_700].map(|ms| silence.is_felt(at(ms)));
        assert_eq!(felt(silence(2)), [true, true, false]);
        assert_eq!(felt(silence(1)), [false; 3]);
        assert_eq!(felt(Silence::default()), [false; 3]);
        let mut short = Silence::default();
        short.note(at(500), false, || 2);
        assert!(short.lasts());
        assert_eq!([749, 750].map(|ms| short.is_felt(at(ms))), [false, true]);
        short.note(at(740), true, || 2);
        assert_eq!(felt(short), [false; 3]);
    }
}
