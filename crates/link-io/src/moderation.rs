//! Whether the loop had better rest before it looks again, as network cards moderate their interrupts: who is woken for
//! each packet or train carries one at a time.
//!
//! It rests
//!
//! * for a moment, after much that came without a pause;
//! * for longer, where much comes one by one: where a wait is over before a rest would be, and brings little. Bursts with
//!   pauses between cost one waking each, and a rest another; and TCP, which comes in trains, would be slowed.

use ropewalk_proto::time::Instant;
use std::time::Duration;

/// Packets and datagrams without a pause, or in one [`PERIOD`], that are much. A whole super packet of TCP is 46; a call
/// has one in 20 periods, a link of 300 Mbit/s 27 in one.
const MUCH: usize = 64;

/// How long what comes is counted.
const PERIOD: Duration = Duration::from_millis(1);

/// A rest after much without a pause; the kernel may add 50 µs (`timerslack_ns`). With 100 or 150 at each pause one TCP had
/// 0.91 to 0.98 of what it has.
const MOMENT: Duration = Duration::from_micros(50);

/// A rest where much comes one by one: at 92,000 packets a second it gathers 14 to 18, which share a datagram or two on each
/// of two links.
const LONGER: Duration = Duration::from_micros(150);

/// What a wait brings of packets that come one by one: less than this.
const FEW: usize = 8;

/// After so many rests one wait shows whether they still come so.
const RESTS: u32 = 15;

/// Counts what comes, and how long it was waited for.
#[derive(Debug, Default)]
pub(crate) struct Moderation {
    /// What came since the loop last had nothing to do.
    fresh: usize,
    /// When the period began.
    since: Instant,
    /// What came in it.
    carried: usize,
    /// Much came in the period before.
    was_busy: bool,
    /// How long the wait was that has just ended.
    waited: Option<Duration>,
    /// Packets came one by one when the loop last waited.
    one_by_one: bool,
    /// Rests since then.
    rests: u32,
}

impl Moderation {
    /// A packet or datagram came.
    pub(crate) fn on_carried(&mut self) {
        self.fresh += 1;
    }

    /// The loop waited for so long.
    pub(crate) fn on_waited(&mut self, waited: Duration) {
        (self.waited, self.rests) = (Some(waited), 0);
    }

    /// Nothing is left to do: how long to rest before another look; `None`: wait. Never twice without that something came
    /// between.
    pub(crate) fn rest(&mut self, now: Instant) -> Option<Duration> {
        let fresh = std::mem::take(&mut self.fresh);
        self.carried += fresh;
        let is_busy = self.was_busy || self.carried >= MUCH;
        if now.since(self.since) >= PERIOD {
            (self.since, self.was_busy) = (now, self.carried >= MUCH);
            self.carried = 0;
        }
        if let Some(waited) = self.waited.take() {
            self.one_by_one = waited < MOMENT && fresh < FEW;
        }
        if is_busy && self.one_by_one && fresh > 0 && self.rests < RESTS {
            self.rests += 1;
            return Some(LONGER);
        }
        (fresh >= MUCH).then_some(MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a loop does for 20 ms that finds `packets` every `every` µs, each of which takes it a microsecond: its rests.
    fn rests(every: u64, packets: usize) -> Vec<Duration> {
        let mut moderation = Moderation::default();
        let mut rests = Vec::new();
        let (mut now, mut came) = (0, 0);
        while now < 20_000 {
            let due = usize::try_from(now / every).unwrap() * packets;
            (came..due).for_each(|_| moderation.on_carried());
            now += (due - came) as u64;
            came = due;
            match moderation.rest(Instant::from_micros(now)) {
                Some(rest) => {
                    rests.push(rest);
                    now += u64::try_from(rest.as_micros()).unwrap();
                }
                None => {
                    let until = (now / every + 1) * every;
                    moderation.on_waited(Duration::from_micros(until - now));
                    now = until;
                }
            }
        }
        rests
    }

    #[test]
    fn it_rests_where_much_comes_one_by_one_or_without_a_pause() {
        for (every, packets, times, rest) in [
            (10, 1, 100..=140, LONGER),    // 100,000 a second
            (20, 1, 0..=0, LONGER),        // 50,000
            (250, 25, 0..=0, LONGER),      // 100,000, with pauses
            (1_000, 100, 19..=19, MOMENT), // the same in trains
            (1_000, 46, 0..=0, MOMENT),    // a super packet of TCP now and then
            (20_000, 1, 0..=0, MOMENT),    // a call
        ] {
            let rests = rests(every, packets);
            assert!(times.contains(&rests.len()), "{packets} every {every} us: {}", rests.len());
            assert!(
                rests.iter().all(|some| *some == rest),
                "{packets} every {every} us: {rests:?}"
            );
        }
    }

    #[test]
    fn a_wait_in_between_shows_that_it_is_over() {
        let mut moderation = Moderation::default();
        let mut now = Instant::from_millis(5);
        let mut turn = |moderation: &mut Moderation, packets, waited| {
            (0..packets).for_each(|_| moderation.on_carried());
            moderation.on_waited(Duration::from_micros(waited));
            now += Duration::from_micros(10);
            moderation.rest(now)
        };
        for _ in 0..MUCH {
            let _ = turn(&mut moderation, 1, 8);
        }
        assert_eq!(turn(&mut moderation, 1, 8), Some(LONGER));
        assert_eq!(turn(&mut moderation, 1, 500), None, "it was waited for long");
        assert_eq!(turn(&mut moderation, FEW, 8), None, "it came together");
        assert_eq!(moderation.rest(Instant::from_millis(6)), None, "nothing came");
    }
}
