//! For how long the packets of a flow are held up by those that a link loses.
//!
//! What was lost is sent again, and what came behind it waits for it. A flow that keeps a link of 20 Mbit/s and 640 ms busy has a
//! thousand packets under way there: where one in two hundred is lost it always waits for one, a round trip long, and would
//! often be better off without the link. For who has one packet to send this is nothing.

use crate::link::loss::Fates;
use crate::link::rtt::MAX_REPORT_DELAY;
use crate::link::sensing::as_f64;
use crate::sched::Losses;
use crate::time::{Duration, Instant};
use ropewalk_settings::Bitrate;

/// Losses are forgotten with this time constant: a burst as when a window opens too far is no property of the link, and a link
/// that is used no more must be tried again.
const MEMORY: Duration = Duration::from_secs(3);

/// Datagrams that arrived are added to those that were seen: with few the share says nothing.
const PRIOR: f64 = 200.0;

/// Bytes of a full packet on the wire.
const FULL_PACKET: f64 = 1500.0;

/// The losses of a link, and what follows.
#[derive(Clone, Copy, Debug)]
pub(in crate::tunnel) struct HeldUp {
    at: Instant,
    before: Fates,
    lost: f64,
    all: f64,
    us: i64,
    /// The same of all that is lost, also of what may have been more than the link carries, unless it certainly was.
    all_lost: f64,
    losses: Losses,
    /// What is known to be lost until then may have been more than the link carries.
    overfull_until: Instant,
    /// The same where that is certain.
    surely_until: Instant,
}

impl HeldUp {
    pub(super) const fn new(now: Instant) -> Self {
        Self {
            at: now,
            before: Fates { confirmed: 0, lost: 0 },
            lost: 0.0,
            all: 0.0,
            us: 0,
            all_lost: 0.0,
            losses: Losses::NONE,
            overfull_until: now,
            surely_until: now,
        }
    }

    /// Datagrams wait in front of the link, which takes `trip` to tell what it loses: that is more than it carries, and no
    /// property of it. `is_certain`: it is not that delays vary by themselves.
    pub(in crate::tunnel) fn note_queue(&mut self, now: Instant, trip: Duration, is_certain: bool) {
        self.overfull_until = now + trip * 2;
        if is_certain {
            self.surely_until = self.overfull_until;
        }
    }

    /// So much was sent until now on a link that carries `rate`, and has this round-trip time. `lateness`: how much longer one that
    /// others overtook is waited for before it counts as lost.
    pub(in crate::tunnel) fn look(
        &mut self,
        now: Instant,
        fates: Fates,
        rate: Bitrate,
        trip: Duration,
        lateness: Duration,
    ) {
        let keep = (-now.since(self.at).as_secs_f64() / MEMORY.as_secs_f64()).exp();
        let new = |now: u64, before: u64| {
            f64::from(u32::try_from(now.saturating_sub(before)).unwrap_or(0))
        };
        let (lost, confirmed) =
            (new(fates.lost, self.before.lost), new(fates.confirmed, self.before.confirmed));
        // What is lost while more is sent than the link carries, or nothing comes through because it is away, is no property of it.
        let passes = confirmed > 0.0;
        let counts = now >= self.overfull_until && passes;
        self.lost = self.lost * keep + if counts { lost } else { 0.0 };
        let counts = now >= self.surely_until && passes;
        self.all_lost = self.all_lost * keep + if counts { lost } else { 0.0 };
        self.all = self.all * keep + lost + confirmed;
        (self.at, self.before) = (now, fates);
        let under_way = as_f64(rate) / 8.0 * trip.as_secs_f64() / FULL_PACKET;
        let repair = trip * 5 / 4 + lateness + MAX_REPORT_DELAY;
        let micros = |time: Duration| i64::try_from(time.as_micros()).unwrap_or(i64::MAX);
        let share = |lost: f64| lost / (self.all + PRIOR);
        let held_up = |lost: f64| {
            let any = 1.0 - (-share(lost) * under_way).exp();
            micros(repair.mul_f64(any.clamp(0.0, 1.0)))
        };
        self.us = held_up(self.lost);
        self.losses = Losses {
            share: share(self.all_lost),
            repair_us: micros(repair),
            held_up_us: held_up(self.all_lost),
        };
    }

    /// By how much later a packet is of use that goes among many, µs.
    pub(in crate::tunnel) const fn us(&self) -> i64 {
        self.us
    }

    /// All that is lost, but for what was certainly too much: a receiver whose window is full does not ask why.
    pub(in crate::tunnel) const fn losses(&self) -> Losses {
        self.losses
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_packets_under_way_on_a_link_that_loses_some_always_wait_for_one_and_few_hardly_ever() {
        let ms = Duration::from_millis;
        for (mbit, trip, sent, lost, expected) in [
            (20, 640, 10_000, 50, 815..825),
            (20, 640, 0, 0, 0..1),
            // One in 40 ms is lost, and a round trip takes as long: the half and a little more.
            (50, 40, 10_000, 50, 40..44),
            (10, 25, 10_000, 100, 9..11),
            // Two lost of ten may be chance.
            (10, 25, 10, 2, 8..12),
        ] {
            let mut held_up = HeldUp::new(Instant::ZERO);
            let fates = Fates { confirmed: sent - lost, lost };
            held_up.look(
                Instant::from_millis(100),
                fates,
                Bitrate::from_mbps(mbit),
                ms(trip),
                Duration::ZERO,
            );
            let found = held_up.us() / 1000;
            assert!(expected.contains(&found), "{mbit} Mbit/s, {trip} ms: {found} ms");
        }
    }

    #[test]
    fn what_is_lost_while_nothing_comes_through_does_not_count() {
        let (rate, trip) = (Bitrate::from_mbps(20), Duration::from_millis(40));
        let mut held_up = HeldUp::new(Instant::ZERO);
        let at = |ms| Instant::from_millis(ms);
        held_up.look(at(100), Fates { confirmed: 5000, lost: 0 }, rate, trip, Duration::ZERO);
        held_up.look(at(200), Fates { confirmed: 5000, lost: 117 }, rate, trip, Duration::ZERO);
        assert_eq!(held_up.us(), 0);
        held_up.look(at(300), Fates { confirmed: 5100, lost: 134 }, rate, trip, Duration::ZERO);
        assert!(held_up.us() > 0);
    }

    #[test]
    fn what_is_lost_behind_a_queue_is_no_property_of_the_link() {
        let ms = Duration::from_millis;
        let (rate, trip) = (Bitrate::from_mbps(50), ms(240));
        let mut held_up = HeldUp::new(Instant::ZERO);
        held_up.note_queue(Instant::from_millis(100), trip, true);
        held_up.look(
            Instant::from_millis(400),
            Fates { confirmed: 900, lost: 100 },
            rate,
            trip,
            Duration::ZERO,
        );
        assert_eq!(held_up.us(), 0);
        held_up.look(
            Instant::from_millis(700),
            Fates { confirmed: 1800, lost: 110 },
            rate,
            trip,
            Duration::ZERO,
        );
        assert!(held_up.us() > 200_000, "{}", held_up.us());
    }

    #[test]
    fn a_burst_of_losses_is_forgotten_also_on_a_link_that_is_not_used() {
        let mut held_up = HeldUp::new(Instant::ZERO);
        let fates = Fates { confirmed: 900, lost: 100 };
        let (rate, trip) = (Bitrate::from_mbps(50), Duration::from_millis(140));
        held_up.look(Instant::from_millis(100), fates, rate, trip, Duration::ZERO);
        assert!(held_up.us() > 190_000, "{}", held_up.us());
        for second in 1..30 {
            held_up.look(Instant::from_millis(1000 * second), fates, rate, trip, Duration::ZERO);
        }
        assert!(held_up.us() < 10_000, "{}", held_up.us());
    }
}
