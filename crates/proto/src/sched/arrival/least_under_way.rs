//! What a connection needs under way for a later link to be worth something to it.
//!
//! What a receiver of TCP lets be under way is bounded. With `w` bytes, and `t` until what went over a link is confirmed, a connection has
//! at most `w / t` of all links. The sooner ones carry `R` alone. So a link of the rate `r` that is confirmed after `t` is worth something
//! only from `w = R t` on.
//!
//! What the link loses makes all behind it wait until it has come again, `h = t + repair`. The window covers `w / (R + r)` of that; for the
//! rest all links stand still. One that loses the share `p` carries `1500 / p` bytes from one loss to the next, which the others carry
//! in `1500 / (p R)`: if they stand still for longer each time, it costs more than it carries. So it is worth something from
//! `w = (R + r) (h - 1500 / (p R))` on, or from `w = R h` on, where the window lets that much through although something is always missing.

use arrayvec::ArrayVec;

use super::FULL_PACKET;
use crate::config::MAX_LINKS;
use crate::number::real;
use crate::sched::LinkFacts;
use crate::time::Duration;
use crate::units::LinkId;

/// As much as with which the link gains nothing is no reason to use it: how long packets wait varies, and the longer waits are felt. So many
/// quarters of it are asked.
const GAIN_QUARTERS: f64 = 5.0;

/// By link, bytes of all connections together.
#[derive(Clone, Default, Debug)]
pub(super) struct LeastUnderWay(ArrayVec<(LinkId, f64), MAX_LINKS>);

impl LeastUnderWay {
    /// What these links need, of which the shortest round trip is `shortest`.
    pub(super) fn of<'a>(
        links: impl Iterator<Item = &'a LinkFacts> + Clone,
        shortest: Duration,
    ) -> Self {
        let known = links.filter_map(|link| Some((link, confirmed_us(link)?)));
        let soonest = known.clone().map(|(_, at)| at).min().unwrap_or(0);
        let least = |(link, at): (&LinkFacts, i64)| {
            let sooner = known.clone().filter(|(_, other)| *other < at);
            let sooner: f64 = sooner.map(|(link, _)| real(link.rate)).sum();
            let in_order = at.saturating_sub(link.losses.held_up_us);
            let trip = seconds(in_order.saturating_sub(soonest)) + shortest.as_secs_f64();
            (link.id, least(link, sooner, trip))
        };
        Self(known.clone().map(least).collect())
    }

    /// Whether a link is worth nothing to connections that have so many bytes under way at most.
    pub(super) fn is_worth_nothing(&self, link: LinkId, under_way: u64) -> bool {
        self.0.iter().any(|(id, least)| *id == link && *least > real(under_way))
    }
}

/// The bytes for a link that is confirmed after `trip` seconds, beside sooner ones that carry so many bytes a second.
fn least(link: &LinkFacts, sooner: f64, trip: f64) -> f64 {
    let without_losses = GAIN_QUARTERS / 4.0 * sooner * trip;
    let held_up = trip + seconds(link.losses.repair_us);
    let always_held_up = GAIN_QUARTERS / 4.0 * sooner * held_up;
    let may_stand_still = FULL_PACKET / (link.losses.share * sooner);
    let now_and_then = (sooner + real(link.rate)) * (held_up - may_stand_still);
    without_losses.max(now_and_then.min(always_held_up))
}

/// When what goes over a link is confirmed, µs, from an epoch that all links share: of a flow that keeps it busy, in the mean.
fn confirmed_us(link: &LinkFacts) -> Option<i64> {
    Some(link.one_way_us?.saturating_add(link.varies_us).saturating_add(link.losses.held_up_us))
}

/// Microseconds as seconds, not less than none.
fn seconds(us: i64) -> f64 {
    Duration::from_micros(u64::try_from(us).unwrap_or(0)).as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sched::Losses;

    const NEAR: LinkId = LinkId(0);
    const FAR: LinkId = LinkId(1);

    /// A link of so many kB/s and ms one way, that loses the share and takes so many ms to repair.
    fn link(id: LinkId, kilobytes: u64, ms: i64, share: f64, repair_ms: i64) -> LinkFacts {
        let losses = Losses { share, repair_us: repair_ms * 1000, held_up_us: 0 };
        LinkFacts {
            one_way_us: Some(ms * 1000),
            rate: kilobytes * 1000,
            losses,
            ..LinkFacts::unknown(id)
        }
    }

    /// From how many kB on the far one of two links is used; the near one has a round trip of 20 ms.
    fn from(near: LinkFacts, far: LinkFacts) -> u64 {
        let least = LeastUnderWay::of([near, far].iter(), Duration::from_millis(20));
        let worth_nothing = |kilobytes: &u64| least.is_worth_nothing(FAR, kilobytes * 1000);
        assert!(!least.is_worth_nothing(NEAR, 0), "the soonest");
        (0..100_000).find(|kilobytes| !worth_nothing(kilobytes)).unwrap_or(u64::MAX)
    }

    #[test]
    fn a_later_link_is_worth_something_once_the_sooner_ones_do_not_fill_the_window_until_it_is_confirmed()
     {
        let near = || link(NEAR, 10_000, 10, 0.0, 0);
        // 10 MB/s carry 200 kB within 20 ms, and a quarter more is asked.
        assert_eq!(from(near(), link(FAR, 1000, 10, 0.0, 0)), 0, "no later than the other");
        assert_eq!(from(near(), link(FAR, 1000, 90, 0.0, 0)), 1250);
        assert_eq!(from(near(), link(FAR, 9000, 90, 0.0, 0)), 1250);
    }

    #[test]
    fn a_link_that_loses_is_worth_something_where_others_stand_still_for_less_than_it_carries() {
        let near = || link(NEAR, 10_000, 10, 0.0, 0);
        for (what, share, kilobytes, expected) in [
            // From one loss to the next it carries 150 kB: 15 ms of the other's.
            ("one in a hundred", 0.01, 1000, 11_000 * (300 - 15) / 1000),
            (
                "and as much as the other: the window is always enough that much is let through",
                0.01,
                10_000,
                3750,
            ),
            // 1.5 MB, 150 ms.
            ("one in a thousand", 0.001, 1000, 11_000 * (300 - 150) / 1000),
            // Less than the delay alone asks for.
            ("one in ten thousand", 0.0001, 1000, 1250),
        ] {
            let found = from(near(), link(FAR, kilobytes, 90, share, 200));
            assert!(found.abs_diff(expected) <= 1, "{what}: {found} for {expected}");
        }
    }

    #[test]
    fn a_link_that_varies_is_as_late_as_its_latest() {
        let near = link(NEAR, 10_000, 10, 0.0, 0);
        let far = LinkFacts { varies_us: 50_000, ..link(FAR, 1000, 40, 0.0, 0) };
        assert_eq!(from(near, far), 1250);
    }
}
