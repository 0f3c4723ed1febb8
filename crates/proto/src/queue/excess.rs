//! When a queue in front of several links is too long.
//!
//! A schedule by arrival needs packets to wait: a link that takes 100 ms longer is worth a packet when the others deliver
//! 100 ms' worth before it. What waits beyond that is *excess*: it only makes everybody's round trip longer. Excess that
//! never went away during an interval is a standing queue, and one packet of it is given up; then another after a shorter
//! time, until it goes away (CoDel's control law, RFC 8289 §3.3). So a TCP flow that fills the queue once in a round trip
//! loses nothing, and one that keeps it full loses one packet, not a window's worth.

use crate::time::{Duration, Instant};

/// Shortest interval: RFC 8289 §4.2.
const LEAST_INTERVAL: Duration = Duration::from_millis(100);

/// Excess that stands for less than a round trip, and than this, is no standing queue: a TCP flow that halves its window would
/// leave links empty, and what it needs more delays nobody but itself, since flows take turns. (With 20 ms and 0.43 round trips
/// one flow over two links, of which one loses 1 %, has 81 % instead of 91, and over four unequal links 74 instead of 86.)
const LEAST_TARGET: Duration = Duration::from_millis(50);

/// A packet that is sent again holds up what came behind it for about so many round trips.
const REPAIRS_COUNT: f64 = 2.0;

/// Excess beyond which packets are given up at once.
const MOST_EXCESS: Duration = Duration::from_millis(250);

/// Bytes that may wait whatever the links carry: a link of which little is known yet seems slow.
const LEAST_MOST: u64 = 64 * 1024;

/// Bytes that are no standing queue whatever the links carry.
const LEAST_STANDING: u64 = 4 * 1514;

/// Where the queue stood lately, the law goes on where it was (RFC 8289 §5.5).
const RECENT_INTERVALS: u32 = 16;

/// What a schedule needs of the queue in front of it.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Demand {
    /// What all links carry, bytes a second; 0: unknown.
    pub rate: u64,
    /// Bytes that must wait, so that links with a long delay have their share.
    pub bytes: u64,
    /// The same where what waits lengthens the round trip of no sender, so that links of which little is known may be tried.
    pub bytes_at_no_cost: u64,
    /// From a packet's leaving over the longest link to an answer over the shortest.
    pub round_trip: Duration,
    /// How many packets are being sent again at any time: each holds its flow up for about a round trip.
    pub repairs: f64,
    /// Most of `rate` is of links that are still finding out theirs: a flow that doubles has more under way than they are known
    /// to carry.
    pub opening: bool,
}

impl Demand {
    /// Excess that is no standing queue.
    fn standing(&self) -> Duration {
        let usual = self.round_trip.max(LEAST_TARGET);
        usual + self.round_trip.mul_f64(REPAIRS_COUNT * self.repairs.clamp(0.0, 1.0))
    }

    /// For how much longer a packet may wait than in a queue that bounds its age alone.
    #[must_use]
    pub fn patience(&self) -> Duration {
        if self.rate == 0 { Duration::ZERO } else { self.standing() }
    }
}

/// Says when to give up a packet of a queue that stands.
#[derive(Clone, Debug)]
pub(super) struct ExcessLaw {
    /// Bytes waiting above which there is a standing queue.
    target: u64,
    /// Most bytes waiting.
    most: u64,
    interval: Duration,
    /// Since when more than the target has waited.
    above_since: Option<Instant>,
    /// When the next packet is to be given up.
    next: Option<Instant>,
    /// Packets given up since the queue began to stand.
    count: u32,
    /// The same when it began: by how much the law was ahead.
    count_before: u32,
    /// When the last was given up.
    last: Option<Instant>,
}

impl Default for ExcessLaw {
    fn default() -> Self {
        Self {
            target: u64::MAX,
            most: u64::MAX,
            interval: LEAST_INTERVAL,
            above_since: None,
            next: None,
            count: 0,
            count_before: 0,
            last: None,
        }
    }
}

impl ExcessLaw {
    /// The schedule needs this from now on.
    pub(super) fn set_demand(&mut self, demand: Demand) {
        if demand.rate == 0 || demand.opening {
            (self.target, self.most) = (u64::MAX, u64::MAX);
            return;
        }
        let target = demand.standing();
        let beyond = |time| demand.bytes.saturating_add(bytes_in(demand.rate, time));
        self.target = beyond(target).max(LEAST_STANDING);
        self.most = beyond(MOST_EXCESS.max(target)).max(LEAST_MOST);
        self.interval = demand.round_trip.max(LEAST_INTERVAL);
    }

    /// Most bytes that may wait.
    pub(super) const fn most(&self) -> u64 {
        self.most
    }

    /// So many bytes wait, fewer than before.
    #[inline]
    pub(super) const fn on_fewer(&mut self, bytes: u64) {
        if bytes <= self.target {
            self.above_since = None;
            self.next = None;
        }
    }

    /// So many bytes wait, more than before. Whether to give one packet up.
    #[inline]
    pub(super) fn on_more(&mut self, now: Instant, bytes: u64) -> bool {
        if bytes <= self.target {
            return false;
        }
        let since = *self.above_since.get_or_insert(now);
        match self.next {
            Some(next) if now >= next => {
                self.count = self.count.saturating_add(1);
                self.give_up(now, next);
                true
            }
            None if now >= since + self.interval => {
                self.begin(now);
                self.give_up(now, now);
                true
            }
            _ => false,
        }
    }

    fn begin(&mut self, now: Instant) {
        let recent = self.interval * RECENT_INTERVALS;
        let is_recent = self.last.is_some_and(|last| now.since(last) < recent);
        let ahead = self.count - self.count_before;
        self.count = if is_recent && ahead > 1 { ahead } else { 1 };
        self.count_before = self.count;
    }

    fn give_up(&mut self, now: Instant, due: Instant) {
        self.last = Some(now);
        self.next = Some(due + self.interval.div_f64(f64::from(self.count.max(1)).sqrt()));
    }
}

/// What a rate of so many bytes a second makes in a time.
fn bytes_in(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 1 MB/s; 50 kB must wait; so 100 kB are the most that may stand.
    const DEMAND: Demand = Demand {
        rate: 1_000_000,
        bytes: 50_000,
        bytes_at_no_cost: 50_000,
        round_trip: ms(40),
        repairs: 0.0,
        opening: false,
    };

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn law(demand: Demand) -> ExcessLaw {
        let mut law = ExcessLaw::default();
        law.set_demand(demand);
        law
    }

    /// When packets are given up, ms, while so many bytes wait at each millisecond.
    fn given_up(law: &mut ExcessLaw, waiting: impl Fn(u64) -> u64, until: u64) -> Vec<u64> {
        let mut times = Vec::new();
        for ms in 0..until {
            law.on_fewer(waiting(ms));
            if law.on_more(Instant::from_millis(ms), waiting(ms)) {
                times.push(ms);
            }
        }
        times
    }

    #[test]
    fn a_queue_that_stands_loses_one_packet_after_an_interval_and_then_more_and_more_often() {
        let times = given_up(&mut law(DEMAND), |_| 100_001, 500);
        assert_eq!(times, [100, 200, 271, 329, 379, 424, 464]);
    }

    #[test]
    fn a_queue_that_goes_away_now_and_then_loses_nothing() {
        let waiting = |ms| if ms % 99 == 0 { 100_000 } else { 200_000 };
        assert!(given_up(&mut law(DEMAND), waiting, 5000).is_empty());
    }

    #[test]
    fn a_queue_that_stands_again_soon_is_cut_back_as_often_as_before() {
        let waiting = |ms| if (500..600).contains(&ms) { 0 } else { 120_000 };
        let times = given_up(&mut law(DEMAND), waiting, 800);
        let again: Vec<_> = times.into_iter().filter(|ms| *ms >= 500).collect();
        assert_eq!(again, [700, 741, 779], "not one in 100 ms as in the beginning");
    }

    #[test]
    fn what_the_schedule_needs_and_a_part_of_the_round_trip_may_stand() {
        for (demand, most) in [
            (DEMAND, 100_000),
            (Demand { bytes: 0, ..DEMAND }, 50_000),
            (Demand { round_trip: ms(1000), ..DEMAND }, 50_000 + 1_000_000),
            (Demand { repairs: 0.5, ..DEMAND }, 140_000),
            (Demand { repairs: 7.0, ..DEMAND }, 180_000),
            (Demand { rate: 10_000, bytes: 0, ..DEMAND }, LEAST_STANDING),
            (Demand { rate: 0, ..DEMAND }, u64::MAX - 1),
            (Demand { opening: true, ..DEMAND }, u64::MAX - 1),
        ] {
            assert!(given_up(&mut law(demand), |_| most, 3000).is_empty(), "{demand:?}");
            let more = given_up(&mut law(demand), |_| most + 1, 3000);
            let unbounded = demand.rate == 0 || demand.opening;
            assert_eq!(more.is_empty(), unbounded, "{demand:?}");
        }
    }

    #[test]
    fn more_than_a_quarter_of_a_second_is_given_up_at_once() {
        assert_eq!(law(DEMAND).most(), 300_000);
        assert_eq!(law(Demand { rate: 1000, ..DEMAND }).most(), LEAST_MOST);
        assert_eq!(law(Demand { rate: 0, ..DEMAND }).most(), u64::MAX);
    }
}
