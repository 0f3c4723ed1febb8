//! How many first messages are decrypted, and from when on only those with a cookie (PROTOCOL §6.7).
//!
//! ```text
//!  calm ── fewer than half of the decryptions are left ──> asking ── that was so for no moment of 5 s ──> calm
//! ```
//!
//! While cookies are asked for, messages that come with one have decryptions of their own, and the others a tenth of as many:
//! they go by luck, for clients that know no cookies.

use crate::crypto::limit::TokenBucket;
use crate::time::{Duration, Instant};

/// First messages decrypted a second that end without a session here: with some 0.15 ms each, at most a seventh of one
/// core for all strangers together. What a client's own home decrypts of it is given back, once a second for each client,
/// so that all may return at once after a restart; what is decrypted for another part is not, for its home may know of no
/// such client.
const READS: (u32, u32) = (1_000, 2_000);

/// Of those without a cookie, while cookies are asked for.
const READS_BY_LUCK: (u32, u32) = (100, 10);

/// Cookies given a second. With some 10 µs each (the kernel's way of one datagram, mostly), at most a quarter of one core. A
/// client's chance under a flood is the share that is answered: one half at 50,000 messages a second for each core, and it
/// asks over every link, three times within the first second.
const ANSWERS: (u32, u32) = (25_000, 5_000);

/// Cookies given between two times that the driver sends: half of the datagrams that it receives at once. One that comes
/// behind with its work so does three times as many messages, and the datagrams of sessions behind them are not lost.
const ANSWERS_AT_ONCE: u32 = 8;

/// Cookies are asked for until there was no reason to for this long, so that a flood does not get a full bucket of
/// decryptions again and again.
const CALM_AFTER: Duration = Duration::from_secs(5);

/// Who is decrypted now.
pub(super) struct Load {
    /// Less than half of it is left: there are too many first messages.
    reads: TokenBucket,
    by_luck: TokenBucket,
    with_cookie: TokenBucket,
    answers: TokenBucket,
    /// Cookies that wait to be sent.
    unsent: u32,
    asking_until: Option<Instant>,
}

impl Load {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            reads: TokenBucket::new(now, READS.0, READS.1),
            by_luck: TokenBucket::new(now, READS_BY_LUCK.0, READS_BY_LUCK.1),
            with_cookie: TokenBucket::new(now, READS.0, READS.1),
            answers: TokenBucket::new(now, ANSWERS.0, ANSWERS.1),
            unsent: 0,
            asking_until: None,
        }
    }

    /// One more that would have to be decrypted. Returns whether it needs a cookie for that.
    pub(super) fn note_first(&mut self, now: Instant) -> bool {
        self.reads.take(now);
        if self.reads.is_low() {
            self.asking_until = Some(now + CALM_AFTER);
        } else {
            self.handle_timeout(now);
        }
        self.is_asking()
    }

    /// Whether one without a cookie is decrypted all the same.
    pub(super) fn take_by_luck(&mut self, now: Instant) -> bool {
        self.by_luck.take(now)
    }

    /// Whether one with a cookie is decrypted.
    pub(super) fn take_with_cookie(&mut self, now: Instant) -> bool {
        self.with_cookie.take(now)
    }

    /// Whether one without a cookie gets one.
    pub(super) fn take_answer(&mut self, now: Instant) -> bool {
        let taken = self.unsent < ANSWERS_AT_ONCE && self.answers.take(now);
        self.unsent += u32::from(taken);
        taken
    }

    /// All cookies that were given are sent.
    pub(super) const fn note_sent(&mut self) {
        self.unsent = 0;
    }

    /// What was decrypted last brought a session: it does not count.
    pub(super) fn give_back(&mut self, with_cookie: bool) {
        self.reads.give_back();
        if with_cookie {
            self.with_cookie.give_back();
        }
    }

    /// Whether cookies are asked for.
    pub(super) const fn is_asking(&self) -> bool {
        self.asking_until.is_some()
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        self.asking_until
    }

    /// No cookies are asked for any more, if it is time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.asking_until = self.asking_until.filter(|until| *until > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Notes so many first messages a second, evenly, from one time to another; whether cookies were asked for at the end.
    fn flood(load: &mut Load, rate: u64, from: u64, to: u64) -> bool {
        let count = (to - from) * rate / 1000;
        let mut asking = load.is_asking();
        for number in 0..count {
            asking = load
                .note_first(Instant::from_nanos(from * 1_000_000 + number * 1_000_000_000 / rate));
        }
        asking
    }

    #[test]
    fn cookies_are_asked_for_while_there_are_too_many_and_some_seconds_longer() {
        let mut load = Load::new(Instant::ZERO);
        assert!(!flood(&mut load, 1_000, 0, 10_000), "what is decrypted anyway");
        assert!(flood(&mut load, 3_000, 10_000, 11_000));
        assert!(flood(&mut load, 900, 11_000, 12_000), "not for a moment only");
        let until = load.poll_timeout().unwrap();
        load.handle_timeout(until - Duration::from_nanos(1));
        assert!(load.is_asking());
        load.handle_timeout(until);
        assert!(!load.is_asking() && load.poll_timeout().is_none());
        assert!(until > Instant::from_millis(16_000) && until < Instant::from_millis(26_000));
    }

    #[test]
    fn cookies_are_few_between_two_sendings_and_bounded_in_a_second() {
        let mut load = Load::new(Instant::ZERO);
        let at_once = (0..100).filter(|_| load.take_answer(Instant::ZERO)).count();
        assert_eq!(at_once, 8);
        let mut given = 0;
        for number in 0..100_000 {
            load.note_sent();
            given += u32::from(load.take_answer(Instant::from_nanos(number * 10_000)));
        }
        assert!((29_900..30_000).contains(&given), "a burst and a second's: {given}");
    }

    #[test]
    fn as_long_as_a_flood_lasts_nothing_is_decrypted_without_a_cookie_but_by_luck() {
        let mut load = Load::new(Instant::ZERO);
        let (mut decrypted, seconds) = (0, 60);
        for number in 0..seconds * 20_000 {
            let now = Instant::from_nanos(number * 50_000);
            decrypted += u32::from(!load.note_first(now) || load.take_by_luck(now));
        }
        assert!(
            (7_000..7_200).contains(&decrypted),
            "a half bucket, then 100 a second: {decrypted}"
        );
    }
}
