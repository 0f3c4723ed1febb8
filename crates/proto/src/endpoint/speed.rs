//! How much clients may test (PROTOCOL §4.3): so many at a time, over all parts of the proxy; each for so long, and with so much
//! data, in an hour. What a client used stays with its key over its sessions.

use super::Endpoint;
use crate::event::Event;
use crate::time::{Duration, Instant};
use crate::tunnel::{SpeedDecision, SpeedPlaces, SpeedUse};
use crate::units::SessionIndex;
use crate::wire::frame::SpeedRefusal;
use ropewalk_settings::SpeedTests;

/// The time in which a client may use what it has.
const HOUR: Duration = Duration::from_secs(3600);

/// Bytes that are as good as none: no more than the longest datagram. A proxy that was left them would grant a test and send nothing.
/// No owner can allow so little (the least that a config takes is 1 MB).
const LEAST: u64 = 64 << 10;

/// The owner is told of a client's tests once in so long: one that begins test after test fills neither the log nor the way there.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// What clients may test, and what all parts of a proxy share of that.
#[derive(Clone, Debug, Default)]
pub struct SpeedRules {
    limits: SpeedTests,
    places: SpeedPlaces,
}

impl SpeedRules {
    /// So much, of which nothing is taken. Clones share the places.
    #[must_use]
    pub fn new(limits: SpeedTests) -> Self {
        Self { limits, places: SpeedPlaces::default() }
    }
}

/// What a client used of its hour, which begins with its first test.
#[derive(Debug)]
pub(super) struct SpeedAccount {
    since: Instant,
    used: SpeedUse,
    /// When the owner was last told that it tests.
    told: Option<Instant>,
}

impl SpeedAccount {
    /// Nothing yet.
    pub(super) const fn new(now: Instant) -> Self {
        Self { since: now, used: SpeedUse { time: Duration::ZERO, bytes: 0 }, told: None }
    }

    fn renew(&mut self, now: Instant) {
        if now.since(self.since) >= HOUR {
            *self = Self { told: self.told, ..Self::new(now) };
        }
    }

    /// Whether the owner is to be told of a test that begins.
    fn tells(&mut self, now: Instant) -> bool {
        let tells = self.told.is_none_or(|told| now.since(told) >= TELL_EVERY);
        if tells {
            self.told = Some(now);
        }
        tells
    }

    /// So much more.
    pub(super) fn add(&mut self, now: Instant, used: SpeedUse) {
        self.renew(now);
        self.used.time = self.used.time.saturating_add(used.time);
        self.used.bytes = self.used.bytes.saturating_add(used.bytes);
    }

    /// What is left of the hour.
    ///
    /// # Errors
    /// Nothing, for so long.
    fn left(&mut self, now: Instant, limits: &SpeedTests) -> Result<SpeedUse, Duration> {
        self.renew(now);
        let time = limits.time.saturating_sub(self.used.time);
        let bytes = limits.data.saturating_sub(self.used.bytes);
        if time.is_zero() || bytes < LEAST {
            return Err(HOUR.saturating_sub(now.since(self.since)));
        }
        Ok(SpeedUse { time, bytes })
    }
}

impl Endpoint {
    /// Clients may test so much from now on; tests that go on are judged by it when they are renewed.
    pub fn set_speed_tests(&mut self, limits: SpeedTests) {
        if let Some(rules) = &mut self.speed {
            rules.limits = limits;
        }
    }

    /// A client of this session asked for a test, for more of it, or is through.
    pub(super) fn judge_speed_wish(&mut self, now: Instant, index: SessionIndex) {
        let Some(session) = self.sessions.get_mut(index) else { return };
        let (key, tunnel) = (session.peer, &mut session.tunnel);
        let Some(peer) = self.peers.get_mut(&key) else { return };
        peer.note_speed_use(now, tunnel.take_speed_use(now));
        let Some(has_place) = tunnel.speed_wish() else { return };
        let Some(SpeedRules { limits, places }) = &self.speed else { return };
        let refuse = |why, wait| SpeedDecision::Refused { why, wait };
        let mut is_new = false;
        let decision = if !limits.enabled {
            refuse(SpeedRefusal::Forbidden, Duration::ZERO)
        } else {
            match peer.speed_account(now).left(now, limits) {
                Err(wait) => refuse(SpeedRefusal::UsedUp, wait),
                Ok(SpeedUse { time, bytes }) if has_place => {
                    SpeedDecision::Granted { time, bytes, place: None }
                }
                Ok(SpeedUse { time, bytes }) => match places.take(limits.at_once) {
                    None => refuse(SpeedRefusal::Busy, Duration::ZERO),
                    place @ Some(_) => {
                        is_new = true;
                        SpeedDecision::Granted { time, bytes, place }
                    }
                },
            }
        };
        tunnel.decide_speed_test(now, decision);
        if is_new && peer.speed_account(now).tells(now) {
            self.tell(key, Event::SpeedTest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_has_its_hour_and_then_another() {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let at = |n| Instant::ZERO + minutes(n);
        let limits = SpeedTests { time: minutes(10), data: 1_000_000, ..SpeedTests::default() };
        let mut account = SpeedAccount::new(at(5));
        let all = SpeedUse { time: minutes(10), bytes: 1_000_000 };
        assert_eq!(account.left(at(5), &limits), Ok(all));
        account.add(at(6), SpeedUse { time: minutes(4), bytes: 100_000 });
        let some = SpeedUse { time: minutes(6), bytes: 900_000 };
        assert_eq!(account.left(at(7), &limits), Ok(some));
        account.add(at(20), SpeedUse { time: minutes(7), bytes: 0 });
        assert_eq!(account.left(at(20), &limits), Err(minutes(45)), "the time is used up");
        assert_eq!(account.left(at(64), &limits), Err(minutes(1)));
        assert_eq!(account.left(at(65), &limits), Ok(all));
        account.add(at(66), SpeedUse { time: Duration::ZERO, bytes: u64::MAX });
        assert_eq!(account.left(at(66), &limits), Err(minutes(59)), "the data is");
        account.add(at(125), SpeedUse { time: Duration::ZERO, bytes: 1_000_000 - LEAST });
        let rest = SpeedUse { time: minutes(10), bytes: LEAST };
        assert_eq!(account.left(at(125), &limits), Ok(rest));
        account.add(at(125), SpeedUse { time: Duration::ZERO, bytes: 1 });
        assert_eq!(account.left(at(125), &limits), Err(minutes(60)), "the rest is too little");
    }

    #[test]
    fn its_owner_hears_of_its_tests_once_a_minute_also_when_its_hour_begins_again() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut account = SpeedAccount::new(at(0));
        assert!(account.tells(at(3590)) && !account.tells(at(3591)));
        account.add(at(3601), SpeedUse::default());
        assert!(!account.tells(at(3649)) && account.tells(at(3650)));
    }
}
