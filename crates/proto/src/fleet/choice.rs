//! Which proxy is used: the one with the lowest round-trip time, where a loaded or draining one counts as farther away.
//!
//! | the present proxy | another one is used |
//! | --- | --- |
//! | does not answer, and another does | at once |
//! | drains, or is none of those that may be used | as soon as another answers |
//! | is farther away than another by [`MARGIN`] | when that was so for [`HYSTERESIS`]; for [`ROAMED`] where the client came into another network |
//!
//! The last rule is slow on purpose: a client that wanders gains milliseconds, and its connections through the proxy's
//! NAT pay for it. In another network it may be on another continent.

use std::fmt;

use ropewalk_settings::PublicKey;

use super::ProxyState;
use crate::time::{Duration, Instant};

/// A proxy of less load than this is as good as an idle one, in percent.
const FREE_LOAD: u8 = 50;
/// What each percent of load above that counts as: a full proxy is 100 ms farther away, so that a near one that is busy
/// loses against a free one in the next country, and not against one on another continent.
const LOAD_PENALTY: Duration = Duration::from_millis(2);
/// A draining proxy is farther away than any that serves.
const DRAIN_PENALTY: Duration = Duration::from_secs(60);

/// Another proxy is better when it is nearer than this share of the present one's distance.
pub const MARGIN: f64 = 0.7;
/// It has to be better for this long without a break.
pub const HYSTERESIS: Duration = Duration::from_secs(600);

/// In another network for this long: three answers say so.
pub const ROAMED: Duration = Duration::from_secs(20);

/// What is known of a proxy when one is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Which.
    pub key: PublicKey,
    /// How far away it is, as its last answers say; `None`: it does not answer.
    pub rtt: Option<Duration>,
    /// Percent.
    pub load: u8,
    /// Whether it takes sessions.
    pub state: ProxyState,
}

impl Candidate {
    /// How far away it counts as being; `None`: it does not answer.
    #[must_use]
    pub fn distance(&self) -> Option<Duration> {
        let above = u32::from(self.load.min(100).saturating_sub(FREE_LOAD));
        let drain = match self.state {
            ProxyState::Serving => Duration::ZERO,
            ProxyState::Draining => DRAIN_PENALTY,
        };
        Some(self.rtt? + LOAD_PENALTY * above + drain)
    }
}

/// Why a proxy is the one in use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Why {
    /// No other was known.
    #[default]
    Only,
    /// It was the nearest when the client began.
    Nearest,
    /// None answered when the client began: it is the first that is known.
    First,
    /// It was nearer than the one before for ten minutes.
    Better,
    /// The one before drains.
    Drained,
    /// The one before did not answer.
    Silent,
    /// The one before refused, or stopped.
    Refused,
    /// The one before may not be used: another is asked for, or it is in the fleet no more.
    Asked,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Only => "no other was known at the start",
            Self::Nearest => "it was the nearest at the start",
            Self::First => "none answered at the start, and it is the first that is known",
            Self::Better => "it was 30 % nearer than the one before for 10 minutes, or in another network for 20 s",
            Self::Drained => "the one before drains",
            Self::Silent => "the one before did not answer",
            Self::Refused => "the one before refused or ended the session",
            Self::Asked => "it was asked for, or the one before is in the fleet no more",
        })
    }
}

/// The nearest of those that answer.
#[must_use]
pub fn nearest(candidates: &[Candidate]) -> Option<PublicKey> {
    let distances = candidates.iter().filter_map(|one| Some((one.distance()?, one.key)));
    distances.min_by_key(|(distance, _)| *distance).map(|(_, key)| key)
}

/// Watches for a proxy that is better than the present one.
#[derive(Debug, Default)]
pub struct Watch {
    /// Which was better, and since when.
    better: Option<(PublicKey, Instant)>,
}

impl Watch {
    /// Where to move from `present`, which is among the `candidates` unless it may not be used. A better one has to be better for
    /// `patience`.
    pub fn look(
        &mut self,
        now: Instant,
        present: PublicKey,
        candidates: &[Candidate],
        patience: Duration,
    ) -> Option<(PublicKey, Why)> {
        let others: Vec<_> = candidates.iter().filter(|one| one.key != present).copied().collect();
        let serving: Vec<_> =
            others.iter().filter(|one| one.state == ProxyState::Serving).copied().collect();
        let Some(own) = candidates.iter().find(|one| one.key == present) else {
            self.better = None;
            return nearest(&others).map(|key| (key, Why::Asked));
        };
        if own.state == ProxyState::Draining {
            self.better = None;
            return nearest(&serving).map(|key| (key, Why::Drained));
        }
        let distance =
            |key| serving.iter().find(|one| one.key == key).and_then(Candidate::distance);
        let best = nearest(&serving);
        let is_better = match (own.distance(), best.and_then(distance)) {
            (Some(own), Some(best)) => best < own.mul_f64(MARGIN),
            _ => false,
        };
        let Some(best) = best.filter(|_| is_better) else {
            self.better = None;
            return None;
        };
        let since = match self.better {
            Some((known, since)) if known == best => since,
            // Another one that is better is no reason to begin again: the present one stays the worse.
            Some((_, since)) => since,
            None => now,
        };
        self.better = Some((best, since));
        (now >= since + patience).then_some((best, Why::Better))
    }

    /// When one will have been better for `patience`.
    #[must_use]
    pub fn poll_timeout(&self, patience: Duration) -> Option<Instant> {
        self.better.map(|(_, since)| since + patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ropewalk_settings::KEY_LEN;

    fn key(number: u8) -> PublicKey {
        PublicKey::from_bytes([number; KEY_LEN])
    }

    fn one(number: u8, rtt: u64, load: u8, state: ProxyState) -> Candidate {
        let rtt = (rtt > 0).then(|| Duration::from_millis(rtt));
        Candidate { key: key(number), rtt, load, state }
    }

    use ProxyState::{Draining, Serving};

    #[test]
    fn the_nearest_is_used_unless_it_is_loaded_or_drains_or_is_silent() {
        let table = [
            (vec![one(1, 20, 0, Serving), one(2, 30, 0, Serving)], Some(1)),
            (vec![one(1, 20, 50, Serving), one(2, 30, 0, Serving)], Some(1)),
            (vec![one(1, 20, 56, Serving), one(2, 30, 0, Serving)], Some(2)),
            (vec![one(1, 20, 100, Serving), one(2, 130, 0, Serving)], Some(1)),
            (vec![one(1, 20, 0, Draining), one(2, 300, 99, Serving)], Some(2)),
            (vec![one(1, 20, 0, Draining)], Some(1)),
            (vec![one(1, 0, 0, Serving), one(2, 300, 0, Serving)], Some(2)),
            (vec![one(1, 0, 0, Serving)], None),
            (vec![], None),
        ];
        for (candidates, expected) in table {
            assert_eq!(nearest(&candidates), expected.map(key), "{candidates:?}");
        }
    }

    /// What the second proxy's round trip is, minute by minute, beside a present one of 100 ms; in which minute is moved.
    #[test]
    fn a_better_proxy_has_to_be_better_for_ten_minutes_without_a_break() {
        let table: [(&[u64], Option<usize>); 5] = [
            (&[69; 12], Some(10)),
            (&[71; 30], None),
            (&[69, 69, 69, 69, 69, 80, 69, 69, 69, 69, 69, 69, 69, 69, 69], None),
            (&[69, 69, 69, 0, 69, 69, 69, 69, 69, 69, 69, 69, 69], None),
            (&[10, 60, 10, 60, 10, 60, 10, 60, 10, 60, 10], Some(10)),
        ];
        for (trips, expected) in table {
            let mut watch = Watch::default();
            let moved = trips.iter().enumerate().find_map(|(minute, trip)| {
                let now = Instant::from_millis(minute as u64 * 60_000);
                let candidates = [one(1, 100, 0, Serving), one(2, *trip, 0, Serving)];
                watch.look(now, key(1), &candidates, HYSTERESIS).map(|found| (minute, found))
            });
            assert_eq!(moved, expected.map(|minute| (minute, (key(2), Why::Better))), "{trips:?}");
        }
    }

    #[test]
    fn a_draining_or_unwanted_proxy_is_left_at_once_where_another_answers() {
        let now = Instant::from_millis(1);
        let table = [
            (vec![one(1, 10, 0, Draining), one(2, 200, 0, Serving)], Some((2, Why::Drained))),
            (vec![one(1, 10, 0, Draining), one(2, 200, 0, Draining)], None),
            (vec![one(1, 10, 0, Draining), one(2, 0, 0, Serving)], None),
            (vec![one(2, 200, 0, Serving)], Some((2, Why::Asked))),
            (vec![one(2, 0, 0, Serving)], None),
            (vec![one(1, 0, 0, Serving), one(2, 10, 0, Serving)], None),
        ];
        for (candidates, expected) in table {
            let found = Watch::default().look(now, key(1), &candidates, HYSTERESIS);
            assert_eq!(found, expected.map(|(number, why)| (key(number), why)), "{candidates:?}");
        }
    }
}
