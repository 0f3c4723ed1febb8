//! Keeping the NATs on a link open (PROTOCOL §9).
//!
//! `Every`: a ping after that much silence. `Auto` finds how long the NAT holds an idle mapping: it asks
//! the peer to answer after a silence in which the client sends nothing (`EchoAfter`). An echo that
//! comes proves that silence; one that does not come bounds it from above. The interval in use never
//! exceeds four fifths of the longest proven silence, and an attempt is made only on an idle link. Traffic
//! in the middle of an attempt voids it, because it refreshes the mapping; so does a link that goes down, which
//! says nothing of a NAT. A failed attempt closes the mapping for the time that is left to wait for the echo: the price of
//! looking, paid a few times, then never again unless the path changes. A lost datagram looks the same, and its
//! mistake would stay: so a silence counts as too long only when it failed twice in a row.

use ropewalk_settings::Keepalive;

use crate::time::{Duration, Instant};

/// The first silence tried, and the least interval: below it a NAT is broken rather than strict.
const SHORTEST: Duration = Duration::from_secs(5);
/// The longest silence tried: RFC 4787 REQ-5 asks NATs for 120 s or more.
const LONGEST: Duration = Duration::from_secs(120);
/// How long after its time an echo may come.
const GRACE: Duration = Duration::from_secs(2);
/// The question and its confirmation pass within this time; the silence counts from its end.
const OPENING: Duration = Duration::from_secs(1);
/// Failures in a row from which a silence counts as too long: where one datagram in fifty is lost, one search in
/// 250 is misled, instead of one in nine.
const FAILURES: u8 = 2;
/// The search ends when the proven and the failed silence are this near to each other, as a ratio of
/// five to four: finer steps gain nothing, as one fifth is kept as a margin.
const CLOSE_ENOUGH: (u32, u32) = (5, 4);

/// The part of an interval by which a ping may go sooner, with another link's of the same interval. With half of it two
/// links meet in the first round, whenever each began, and wake the tunnel once from then on.
const SLACK: u32 = 2;

/// When to send what on an idle link.
#[derive(Clone, Debug)]
pub(in crate::tunnel) struct KeepaliveTimer {
    mode: Keepalive,
    /// Longest silence that an echo has proven.
    proven: Duration,
    /// Shortest silence that failed.
    failed: Option<Duration>,
    attempt: Option<Attempt>,
    /// Failures in a row of the silence that is tried next.
    failures: u8,
    next_token: u32,
}

#[derive(Clone, Copy, Debug)]
struct Attempt {
    token: u32,
    silence: Duration,
    since: Instant,
}

impl Attempt {
    /// Whether the echo is under way: it is the traffic.
    fn is_due(&self, now: Instant) -> bool {
        now >= self.since + self.silence
    }
}

/// What is due.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::tunnel) enum Due {
    Ping,
    EchoAfter { token: u32, delay: Duration },
}

impl KeepaliveTimer {
    pub(in crate::tunnel) const fn new(mode: Keepalive) -> Self {
        let proven = Duration::ZERO;
        Self { mode, proven, failed: None, attempt: None, failures: 0, next_token: 0 }
    }

    /// The interval in force; `None`: off.
    pub(in crate::tunnel) fn interval(&self) -> Option<Duration> {
        match self.mode {
            Keepalive::Off => None,
            Keepalive::Every(interval) => Some(interval),
            Keepalive::Auto => Some((self.proven * 4 / 5).max(SHORTEST * 4 / 5)),
        }
    }

    /// Whether `Auto` has not found the longest interval yet.
    pub(in crate::tunnel) fn is_searching(&self) -> bool {
        self.mode == Keepalive::Auto && self.candidate().is_some()
    }

    /// The next silence worth trying, if the search is not over.
    fn candidate(&self) -> Option<Duration> {
        let next = match self.failed {
            None if self.proven + OPENING >= LONGEST => return None,
            None => (self.proven * 2).clamp(SHORTEST, LONGEST),
            Some(failed) if self.proven.is_zero() => {
                return (failed > SHORTEST).then_some(SHORTEST);
            }
            // What was tried is compared with what was tried: of the proven one the opening was taken off.
            Some(failed) if self.is_close_to(failed) => return None,
            Some(failed) => (self.proven + failed) / 2,
        };
        Some(next)
    }

    fn is_close_to(&self, failed: Duration) -> bool {
        failed * CLOSE_ENOUGH.1 <= (self.proven + OPENING) * CLOSE_ENOUGH.0
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due, given when the link last sent and last
    /// carried anything.
    pub(in crate::tunnel) fn poll_timeout(
        &self,
        last_sent: Instant,
        last_used: Instant,
    ) -> Option<Instant> {
        let interval = self.interval()?;
        if let Some(attempt) = &self.attempt {
            return Some(attempt.since + attempt.silence + GRACE);
        }
        if self.mode == Keepalive::Auto && self.candidate().is_some() {
            return Some(last_used + SHORTEST.min(interval));
        }
        Some(last_sent + interval)
    }

    /// How much sooner a ping may go than it must, when one of another link goes that is sent after each `rhythm` of
    /// silence. While the longest silence is looked for, each is as long as it is.
    pub(in crate::tunnel) fn slack(&self, rhythm: Option<Duration>) -> Duration {
        match self.interval() {
            interval @ Some(alike) if interval == rhythm && !self.is_trying() => alike / SLACK,
            _ => Duration::ZERO,
        }
    }

    fn is_trying(&self) -> bool {
        self.attempt.is_some() || self.is_searching()
    }

    /// The silence is over.
    pub(in crate::tunnel) fn handle_timeout(&mut self, now: Instant) -> Option<Due> {
        if let Some(attempt) = self.attempt.take() {
            self.failures += 1;
            if self.failures >= FAILURES {
                (self.failed, self.failures) = (Some(attempt.silence), 0);
            }
            return Some(Due::Ping);
        }
        if self.mode != Keepalive::Auto {
            return Some(Due::Ping);
        }
        let Some(silence) = self.candidate() else { return Some(Due::Ping) };
        let token = self.next_token;
        self.next_token = token.wrapping_add(1);
        self.attempt = Some(Attempt { token, silence, since: now });
        Some(Due::EchoAfter { token, delay: silence })
    }

    /// Something was sent or came on the link: an attempt in progress says nothing, unless that belongs to
    /// its first moment (the question itself, and the report that confirms it).
    #[inline]
    pub(in crate::tunnel) fn on_traffic(&mut self, now: Instant) {
        self.attempt.take_if(|attempt| now > attempt.since + OPENING && !attempt.is_due(now));
    }

    /// An echo came.
    pub(in crate::tunnel) fn on_echo(&mut self, token: u32) {
        if let Some(attempt) = self.attempt.take_if(|attempt| attempt.token == token) {
            self.proven = self.proven.max(attempt.silence.saturating_sub(OPENING));
            self.failures = 0;
        }
    }

    /// The link is down: what failed lately failed for that.
    pub(in crate::tunnel) fn on_down(&mut self) {
        (self.attempt, self.failures) = (None, 0);
    }

    /// The path is another: nothing is known of its NATs.
    pub(in crate::tunnel) fn on_path_changed(&mut self) {
        *self = Self { next_token: self.next_token, ..Self::new(self.mode) };
    }
}

#[cfg(test)]
mod tests {
    use rand::rngs::SmallRng;
    use rand::{Rng, SeedableRng};

    use super::*;

    /// Runs the search against a NAT that forgets a mapping after `timeout` of silence, on a link that loses
    /// this share of datagrams; returns the interval found and how long it took.
    fn search(timeout: Duration, loss: f64, seed: u64) -> (Duration, Duration) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut timer = KeepaliveTimer::new(Keepalive::Auto);
        let mut now = Instant::ZERO;
        let mut last = now;
        for step in 0.. {
            if timer.attempt.is_none() && timer.candidate().is_none() {
                break;
            }
            assert!(step < 60, "the search does not end: {timer:?}");
            now = now.max(timer.poll_timeout(last, last).unwrap());
            match timer.handle_timeout(now) {
                // The question and the echo.
                Some(Due::EchoAfter { token, delay })
                    if delay < timeout && !rng.random_bool(loss) && !rng.random_bool(loss) =>
                {
                    now += delay;
                    timer.on_echo(token);
                }
                _ => {}
            }
            last = now;
        }
        (timer.interval().unwrap(), now.since(Instant::ZERO))
    }

    #[test]
    fn auto_finds_an_interval_below_the_nats_timeout_and_not_far_below() {
        for timeout in [6, 7, 8, 9, 10, 30, 60, 120, 600].map(Duration::from_secs) {
            let (interval, took) = search(timeout, 0.0, 0);
            println!("NAT {timeout:?}: every {interval:?}, found in {took:?}");
            assert!(interval < timeout, "{interval:?} would lose a mapping of {timeout:?}");
            let reachable = timeout.min(LONGEST);
            assert!(interval * 2 >= reachable, "{interval:?} is wasteful for {timeout:?}");
        }
    }

    #[test]
    fn a_link_that_loses_now_and_then_is_seldom_misjudged() {
        for timeout in [6, 30, 120, 600].map(Duration::from_secs) {
            let good = |seed: &u64| {
                let (interval, _) = search(timeout, 0.02, *seed);
                assert!(interval < timeout, "seed {seed}: {interval:?} for {timeout:?}");
                interval * 2 >= timeout.min(LONGEST)
            };
            let good = (0..1000).filter(good).count();
            println!("NAT {timeout:?}: {good} of 1000 searches came near");
            assert!(good >= 980, "{good} of 1000 for {timeout:?}");
        }
    }

    #[test]
    fn a_link_that_goes_down_says_nothing_of_its_nat() {
        let mut timer = KeepaliveTimer::new(Keepalive::Auto);
        let mut now = Instant::ZERO;
        for _ in 0..10 {
            // One attempt fails because the link is dead, which shows in the next; then it is back.
            assert!(matches!(timer.handle_timeout(now), Some(Due::EchoAfter { .. })));
            now = timer.poll_timeout(now, now).unwrap();
            assert_eq!(timer.handle_timeout(now), Some(Due::Ping));
            assert!(matches!(timer.handle_timeout(now), Some(Due::EchoAfter { .. })));
            timer.on_down();
        }
        assert_eq!((timer.failed, timer.attempt.is_some()), (None, false));
    }

    #[test]
    fn traffic_in_the_middle_voids_an_attempt() {
        let mut timer = KeepaliveTimer::new(Keepalive::Auto);
        let Some(Due::EchoAfter { token, .. }) = timer.handle_timeout(Instant::ZERO) else {
            panic!("no attempt")
        };
        timer.on_traffic(Instant::from_millis(300));
        assert!(timer.attempt.is_some());
        timer.on_traffic(Instant::from_millis(1300));
        timer.on_echo(token);
        assert_eq!(timer.proven, Duration::ZERO);
        assert_eq!(timer.failed, None);
    }

    #[test]
    fn a_fixed_interval_pings_and_off_never_does() {
        let mut every = KeepaliveTimer::new(Keepalive::Every(Duration::from_secs(4)));
        let sent = Instant::from_millis(500);
        assert_eq!(every.poll_timeout(sent, sent), Some(Instant::from_millis(4500)));
        assert_eq!(every.handle_timeout(Instant::from_millis(4500)), Some(Due::Ping));
        assert_eq!(KeepaliveTimer::new(Keepalive::Off).poll_timeout(sent, sent), None);
    }

    #[test]
    fn a_ping_may_go_sooner_unless_a_silence_is_on_trial() {
        let (rhythm, other) = (Duration::from_secs(16), Duration::from_secs(20));
        let every = KeepaliveTimer::new(Keepalive::Every(rhythm));
        assert_eq!(every.slack(Some(rhythm)), Duration::from_secs(8));
        assert_eq!((every.slack(Some(other)), every.slack(None)), (Duration::ZERO, Duration::ZERO));
        let auto = KeepaliveTimer::new(Keepalive::Auto);
        assert_eq!((auto.is_searching(), auto.slack(auto.interval())), (true, Duration::ZERO));
        let off = KeepaliveTimer::new(Keepalive::Off);
        assert_eq!(off.slack(None), Duration::ZERO);
    }
}
