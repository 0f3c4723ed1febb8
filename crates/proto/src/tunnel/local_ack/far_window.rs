//! How much may be under way to a far end that lies behind a narrow place.
//!
//! Whoever acknowledges for a receiver has to control congestion on the way to it, too (RFC 3135 §2.1.2: the sender's own control ends
//! here). Inside the tunnel the links' windows do that. Behind it there may be a server's access link, a slow Wi-Fi, or a limit of
//! the household: what the tunnel delivers faster waits there, for seconds, and then is lost. Neither shows at the links; both show
//! in the far end's acknowledgements: they come much later than the tunnel explains, for more than is in the tunnel, or tell of a hole.
//!
//! From then on at most this is under way, as BBR has it (Cardwell et al., ACM Queue 14(5), 2016):
//!
//! ```text
//! rate     the best of the last rounds: what was confirmed in one, by how long it took
//! trip     the round trip of the tunnel, or the connection's own least where that is longer
//! window = rate * (gain * (trip + 2 * the near end's trip) + pause) + what the schedule needs
//! gain     2; less with each round in which something was lost, 1.25 at least; more with each other
//! ```
//!
//! A gain above 1 finds more room within few rounds where there is some, and where nothing waits in spite of it there is no narrow place
//! any more. Random losses take nothing of the rate.

use arrayvec::ArrayVec;

use super::segment::beyond;
use crate::time::{Duration, Instant};

/// Rounds whose rates are remembered: as many round trips as BBR remembers, but for two.
const ROUNDS: usize = 8;

/// A confirmation that takes twice the trip and this longer has waited behind the tunnel: more than the tunnel's own queue and
/// repairs explain.
const SUSPECT: Duration = Duration::from_millis(200);

/// A pause of either end that must not leave the narrow place idle.
const PAUSE: Duration = Duration::from_millis(50);

/// The gain in hundredths: what it is at first, and least; by what share it falls, and how much it rises.
const MOST_GAIN: u32 = 200;
const LEAST_GAIN: u32 = 125;
const GAIN_FALL: u32 = 85;
const GAIN_RISE: u32 = 5;

/// What may be under way at least, bytes: the first window of a sender (RFC 6928).
const LEAST: u64 = 10 * 1460;

/// What is confirmed of what was taken over by a moment.
#[derive(Clone, Copy, Debug)]
struct Round {
    at: Instant,
    /// The far end had all below.
    confirmed: u32,
    /// All below was taken over.
    next: u32,
    /// Half of what may be under way was: the round tells what the way carries.
    is_full: bool,
}

/// What the tunnel explains of how long a far end takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Explained {
    /// The round trip of its links.
    pub(super) round_trip: Duration,
    /// Bytes that have to wait in it.
    pub(super) needed: u64,
    /// Bytes that are in it: they wait for its links, or are on their way over them.
    pub(super) within: u64,
}

/// What is known of the way to one far end.
#[derive(Clone, Debug, Default)]
pub(super) struct FarWindow {
    round: Option<Round>,
    /// Bytes a second, the newest last.
    rates: ArrayVec<u64, ROUNDS>,
    /// The least trip of all times: what waits behind the tunnel is in each one, and never in the least.
    least_trip: Option<Duration>,
    /// In hundredths; `None`: nothing waits or is lost behind the tunnel.
    gain: Option<u32>,
    /// Something was lost in this round.
    has_lost: bool,
    round_trip: Duration,
    /// Bytes that are neither in the tunnel nor confirmed.
    behind: u64,
    /// What may be under way, as it was last asked for.
    most: Option<u32>,
}

impl FarWindow {
    /// All below `next` is taken over, and the far end has all below `confirmed`.
    pub(super) fn on_sent(&mut self, now: Instant, confirmed: u32, next: u32) {
        if self.round.is_none() {
            let under_way = next.wrapping_sub(confirmed);
            let is_full = self.most.is_none_or(|most| under_way >= most / 2);
            self.round = Some(Round { at: now, confirmed, next, is_full });
        }
    }

    /// The far end has all below `confirmed` now, and `next` is what was taken over.
    pub(super) fn on_confirmed(&mut self, now: Instant, confirmed: u32, next: u32) {
        let Some(round) = self.round else { return };
        let took = now.since(round.at);
        let bytes = u64::from(confirmed.wrapping_sub(round.confirmed));
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let rate = bytes.saturating_mul(1_000_000_000) / nanos;
        let is_over = beyond(confirmed, round.next) >= 0;
        let is_late = took > self.trip() * 2 + SUSPECT && self.behind > bytes_within(rate, SUSPECT);
        // What a round lasts that is late already says too much: it ends with what is known.
        if !is_over && !is_late {
            return;
        }
        self.round = None;
        if is_over {
            self.least_trip = Some(self.least_trip.map_or(took, |least| least.min(took)));
        }
        self.note_rate(rate, round.is_full);
        if is_late {
            self.gain.get_or_insert(MOST_GAIN);
        } else if self.has_room(round, took) {
            self.gain = None;
        }
        let lost = std::mem::take(&mut self.has_lost);
        self.gain = self.gain.map(|gain| match lost {
            true => (gain * GAIN_FALL / 100).max(LEAST_GAIN),
            false => (gain + GAIN_RISE).min(MOST_GAIN),
        });
        if next != confirmed {
            self.on_sent(now, confirmed, next);
        }
    }

    /// Something did not arrive that the tunnel had delivered, or that nobody will repair.
    pub(super) fn on_loss(&mut self) {
        self.has_lost = true;
        self.gain.get_or_insert(MOST_GAIN);
    }

    /// Most bytes that may be acknowledged here and not by the far end, while so many are under way. `None`: nothing but the tunnel is
    /// in the way.
    pub(super) fn most(
        &mut self,
        explained: Explained,
        near_rtt: Option<Duration>,
        under_way: u32,
    ) -> Option<u32> {
        self.round_trip = explained.round_trip;
        self.behind = u64::from(under_way).saturating_sub(explained.within);
        self.most = self.bound(explained.needed, near_rtt.unwrap_or_default());
        self.most
    }

    fn bound(&self, needed: u64, near_rtt: Duration) -> Option<u32> {
        let gain = self.gain?;
        let rate = self.rates.iter().copied().max()?;
        let trips =
            bytes_within(rate, self.trip() + near_rtt * 2).saturating_mul(gain.into()) / 100;
        let above_least = u64::from(gain - LEAST_GAIN);
        let pause = bytes_within(rate, PAUSE).saturating_mul(above_least)
            / u64::from(MOST_GAIN - LEAST_GAIN);
        let bytes = trips.saturating_add(pause).saturating_add(needed);
        Some(u32::try_from(bytes.max(LEAST)).unwrap_or(u32::MAX))
    }

    /// Whether a round shows that nothing waits behind the tunnel although twice of what that could carry is under way: what was
    /// late before was the tunnel's, or the narrow place is gone.
    fn has_room(&self, round: Round, took: Duration) -> bool {
        let trip = self.trip();
        round.is_full && !self.has_lost && self.gain == Some(MOST_GAIN) && took <= trip + trip / 4
    }

    /// How long the far end takes when nothing waits behind the tunnel.
    fn trip(&self) -> Duration {
        self.least_trip.unwrap_or_default().max(self.round_trip)
    }

    /// A round that was not full shows what was sent, not what could be.
    fn note_rate(&mut self, rate: u64, is_full: bool) {
        if !is_full && self.rates.iter().any(|known| *known >= rate) {
            return;
        }
        if self.rates.is_full() {
            self.rates.remove(0);
        }
        self.rates.push(rate);
    }
}

/// Bytes in a time at this rate.
fn bytes_within(rate: u64, time: Duration) -> u64 {
    let bytes = u128::from(rate) * time.as_nanos() / 1_000_000_000;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;

    const NEAR: Option<Duration> = Some(Duration::from_millis(5));
    const TUNNEL: Duration = Duration::from_millis(30);
    const IDLE: Explained = Explained { round_trip: TUNNEL, needed: 0, within: 0 };

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    /// A sender that sends all it may, through a tunnel of 100 Mbit/s, to a far end behind a place that carries `rate` bytes a
    /// second and holds `room`; every `lossy`th segment is lost besides. How long the place's queue was at most in the second
    /// half, bytes a second that arrived then, and segments that were dropped in it, per thousand.
    fn story(rate: u64, room: u64, lossy: u64) -> (Duration, u64, u64) {
        const SEGMENT: u64 = 1000;
        const LENGTH: u64 = 60_000;
        let mut window = FarWindow::default();
        // What waits at the narrow place, and when what arrived is confirmed.
        let (mut next, mut confirmed, mut queue) = (0_u32, 0_u32, 0_u64);
        let [mut entering, mut again] = [const { VecDeque::new() }; 2];
        let mut acks = VecDeque::new();
        let (mut longest, mut arrived, mut sent, mut dropped) = (0, 0, 0, 0);
        let (mut credit, mut number) = (0, 0);
        for at in 0..LENGTH {
            let now = Instant::ZERO + ms(at);
            let second_half = at > LENGTH / 2;
            while acks.front().is_some_and(|(due, _)| *due <= at) {
                let (_, bytes): (u64, u32) = acks.pop_front().unwrap();
                confirmed = confirmed.wrapping_add(bytes);
                window.on_confirmed(now, confirmed, next);
            }
            let within = 1000 * (entering.len() + again.len()) as u64;
            let explained = Explained { within, ..IDLE };
            let under_way = next.wrapping_sub(confirmed);
            let most = window.most(explained, NEAR, under_way).unwrap_or(6 << 20);
            let mut of_tunnel = 12;
            while next.wrapping_sub(confirmed) < most && of_tunnel > 0 {
                next = next.wrapping_add(1000);
                window.on_sent(now, confirmed, next);
                entering.push_back(at + 15);
                of_tunnel -= 1;
            }
            let is_due = |due: &VecDeque<u64>| due.front().is_some_and(|due| *due <= at);
            while is_due(&entering) || is_due(&again) {
                let from = if is_due(&again) { &mut again } else { &mut entering };
                from.pop_front();
                number += 1;
                sent += u64::from(second_half);
                // What is lost goes again at once, and is confirmed later: of one round trip.
                if queue + SEGMENT > room || (lossy > 0 && number % lossy == 0) {
                    dropped += u64::from(second_half && queue + SEGMENT > room);
                    window.on_loss();
                    again.push_back(at + 45);
                } else {
                    queue += SEGMENT;
                }
            }
            credit += rate / 1000;
            while credit >= SEGMENT && queue >= SEGMENT {
                (credit, queue) = (credit - SEGMENT, queue - SEGMENT);
                arrived += if second_half { SEGMENT } else { 0 };
                acks.push_back((at + 15, 1000));
            }
            credit = credit.min(SEGMENT);
            if second_half {
                longest = longest.max(queue);
            }
        }
        let per_thousand = dropped * 1000 / sent.max(1);
        (ms(longest * 1000 / rate), arrived * 1000 / (LENGTH / 2), per_thousand)
    }

    #[test]
    fn behind_a_narrow_place_a_short_queue_is_left_and_all_of_its_rate_is_used() {
        for rate in [125_000, 625_000, 2_500_000] {
            let (longest, arrived, dropped) = story(rate, 4 << 20, 0);
            println!(
                "{rate} B/s: queue {longest:?}, {arrived} B/s arrived, {dropped} of 1000 dropped"
            );
            assert!(longest < ms(200) && arrived * 100 > rate * 97 && dropped == 0);
        }
    }

    #[test]
    fn a_narrow_place_with_little_room_loses_little() {
        let rate = 1_250_000;
        let (longest, arrived, dropped) = story(rate, 50_000, 0);
        println!("queue {longest:?}, {arrived} B/s arrived, {dropped} of 1000 dropped");
        assert!(arrived * 100 > rate * 95 && dropped < 50);
    }

    #[test]
    fn random_losses_take_nothing_of_the_rate() {
        let rate = 1_250_000;
        let (_, arrived, _) = story(rate, 4 << 20, 50);
        println!("{arrived} B/s arrived");
        assert!(arrived * 100 > rate * 95);
    }

    #[test]
    fn where_the_tunnel_explains_how_long_it_takes_nothing_is_bounded() {
        let mut window = FarWindow::default();
        let explained = Explained { round_trip: ms(300), ..IDLE };
        assert_eq!(window.most(explained, NEAR, 10_000), None);
        for round in 0..100_u32 {
            let sent = Instant::ZERO + ms(700) * round;
            let (confirmed, next) = (round * 10_000, (round + 1) * 10_000);
            window.on_sent(sent, confirmed, next);
            window.on_confirmed(sent + ms(650), next, next);
            assert_eq!(window.most(explained, NEAR, 10_000), None);
        }
    }

    #[test]
    fn what_is_in_the_tunnel_does_not_wait_behind_it_however_late_it_is_confirmed() {
        for (within, is_bounded) in [(300_000, false), (0, true)] {
            let mut window = FarWindow::default();
            window.most(Explained { within, ..IDLE }, NEAR, 300_000);
            window.on_sent(Instant::ZERO, 0, 300_000);
            window.on_confirmed(Instant::ZERO + ms(2000), 300_000, 300_000);
            assert_eq!(window.most(IDLE, NEAR, 0).is_some(), is_bounded, "{within}");
        }
    }

    #[test]
    fn after_an_outage_of_the_tunnel_nothing_is_bounded_again_within_a_few_rounds() {
        let mut window = FarWindow::default();
        let (mut now, mut next) = (Instant::ZERO, 0_u32);
        let mut bounds = Vec::new();
        for took in [TUNNEL, TUNNEL, ms(3000), TUNNEL, TUNNEL] {
            let before = next;
            next = next.wrapping_add(window.most(IDLE, NEAR, 300_000).unwrap_or(300_000));
            window.on_sent(now, before, next);
            now += took;
            window.on_confirmed(now, next, next);
            bounds.push(window.most(IDLE, NEAR, 300_000).is_some());
        }
        assert_eq!(bounds, [false, false, true, false, false]);
    }

    #[test]
    fn a_sender_that_had_little_to_say_has_its_rate_when_it_has_more() {
        let mut window = FarWindow::default();
        let mut now = Instant::ZERO;
        let mut next = 0_u32;
        let mut round = |window: &mut FarWindow, bytes: u32| {
            let before = next;
            next = next.wrapping_add(bytes);
            window.on_sent(now, before, next);
            now += TUNNEL;
            window.on_confirmed(now, next, next);
            window.most(IDLE, NEAR, 0)
        };
        round(&mut window, 300_000);
        window.on_loss();
        let full = round(&mut window, 300_000);
        for _ in 0..100 {
            round(&mut window, 1000);
        }
        assert!(round(&mut window, 1000) >= full, "{full:?}");
    }
}
