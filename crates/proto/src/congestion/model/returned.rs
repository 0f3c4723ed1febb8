//! A link that left and is back: it is a new one for both ends, but its name tells what its path carried before.
//!
//! That is not believed before something agrees with it (RFC 9959: reconnaissance). The link begins as any other; when the first burst took a
//! round trip as long as before, and no longer than it takes at half the rate, with nothing lost, then half of what the path held before is
//! let out, over a round trip. A path that carries less than that half is found out by those few datagrams. From then on it is a startup like any other: the
//! first queue or loss ends it, and what was measured counts alone. If nothing at all is confirmed, it begins as a path of which nothing is known.
//!
//! Where the peer is where it was, the half counts as the rate at once, so that packets are shared out by it; else only the window is opened.

use ropewalk_settings::Bitrate;

use super::output::SLACK;
use super::train::LEAST;
use super::view::duration;
use super::{FULL, INITIAL_WINDOW, Model};
use crate::congestion::{AGAIN, AckSample, KNOWN_FOR, KnownPath};
use crate::number::{count, real, seconds};
use crate::time::Instant;

/// The first burst may take longer than it should by this, seconds, and by the deviation of the delays: a scheduler's tick on a busy machine is less.
const TOLERANCE: f64 = 0.002;

/// A round trip of less than this share of the former one is that of another path (RFC 9959).
const SHORTER: f64 = 0.5;

/// What is known from before, and what came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Returned {
    /// What was known, until it is tried.
    untried: Option<KnownPath>,
    /// The rate at which it was tried, bytes a second, while the startup lasts; 0: it was not.
    rate: f64,
}

impl Returned {
    /// A link of the same name had this.
    pub(super) fn with(known: KnownPath) -> Self {
        Self { untried: Some(known), rate: 0.0 }
    }

    /// Whether the present startup began with what was known.
    pub(super) fn is_under_way(&self) -> bool {
        self.rate > 0.0
    }

    /// The link was away once more.
    pub(super) fn halve(&mut self) {
        self.rate *= AGAIN;
    }
}

impl Model {
    /// What a link of the same name may begin with if this one leaves now.
    pub(super) fn worth_keeping(&self, now: Instant) -> Option<KnownPath> {
        // What was not tried yet is as true as it was.
        let untried = self.returned.untried.filter(|known| now < known.until);
        let own = (self.rate > 0.0).then(|| KnownPath {
            rate: Bitrate::from_bps(count(self.rate * 8.0).max(1)),
            trip: duration(self.delays.floor().unwrap_or(self.srtt)),
            noise: duration(self.delays.noise()),
            until: now + KNOWN_FOR,
            is_same_way: true,
        });
        untried.or(own)
    }

    /// A report came during the startup: if it agrees with what was known before, half of that is tried.
    pub(super) fn try_known(&mut self, t: f64, sample: &AckSample) {
        let Some(known) = self.returned.untried else { return };
        let (Some(trip), Some(arrival)) = (sample.rtt, sample.arrival) else { return };
        let (trip, before) = (trip.as_secs_f64(), known.trip.as_secs_f64());
        if t >= seconds(known.until) || trip < SHORTER * before {
            self.returned.untried = None;
            return;
        }
        let half = AGAIN * real(known.rate.as_bps()) / 8.0;
        let burst = real(arrival.bytes) / half.max(1.0);
        let is_late = trip > before + burst + TOLERANCE + known.noise.as_secs_f64();
        let loses = self.round.present.lost + self.round.before.lost > 0.0;
        if real(arrival.total) < LEAST * FULL || is_late || loses {
            return;
        }
        self.returned.untried = None;
        let window = half * before.min(trip) + SLACK * self.place;
        if window <= self.window {
            // It is beyond that already.
            return;
        }
        self.window = window;
        self.returned.rate = half;
        if known.is_same_way {
            self.rate = self.recent_rates.note_for_most(real(self.round.number), half, 10.0);
        }
    }

    /// The most that a startup sends that began with what was known: its window within a round trip, bytes a second.
    pub(super) fn returned_pace(&self) -> f64 {
        if !self.returned.is_under_way() || self.srtt <= 0.0 {
            return f64::INFINITY;
        }
        (self.window / self.srtt).max(self.returned.rate)
    }

    /// Nothing was confirmed of what was tried: the path begins as one of which nothing is known.
    pub(super) fn give_up_known(&mut self) {
        if !self.returned.is_under_way() {
            return;
        }
        self.returned = Returned::default();
        self.recent_rates.clear();
        (self.rate, self.pace) = (0.0, 0.0);
        (self.full_rate, self.full_rounds) = (0.0, 0);
        self.window = INITIAL_WINDOW * self.place;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::congestion::{ArrivalSample, Controller, LossSample};
    use crate::time::Duration;

    /// 40 Mbit/s and 100 ms.
    const KNOWN: KnownPath = KnownPath {
        rate: Bitrate::from_mbps(40),
        trip: Duration::from_millis(100),
        noise: Duration::ZERO,
        until: Instant::from_millis(300_000),
        is_same_way: true,
    };

    /// When the first burst is sent.
    const BURST_AT: Instant = Instant::from_millis(1000);

    fn with(known: KnownPath) -> Model {
        let mut model = Model::from_number(0);
        model.on_known_path(known);
        model
    }

    fn mbit(rate: Option<Bitrate>) -> f64 {
        rate.map_or(0.0, |rate| real(rate.as_bps()) / 1e6)
    }

    /// So many datagrams of 1,500 bytes are confirmed, up to the `last` one from 0 on, the newest of which was sent then and took so long
    /// there and back. Of `bytes` nothing was known when it was sent.
    fn confirm(
        model: &mut Model,
        datagrams: u32,
        last: u64,
        sent_at: Instant,
        trip: f64,
        bytes: u64,
    ) {
        let trip = Duration::from_secs_f64(trip);
        let arrived = sent_at + trip - Duration::from_millis(50);
        let arrival = ArrivalSample {
            at_us: i64::try_from(arrived.as_micros()).unwrap(),
            sent_at,
            bytes,
            interval: trip,
            total: (last + 1) * 1500,
            held_back: false,
        };
        let sample = AckSample {
            datagrams,
            bytes: u64::from(datagrams) * 1472,
            largest: last,
            prior_in_flight: datagrams,
            window_limited: false,
            rtt: Some(trip),
            delivery: None,
            arrival: Some(arrival),
            next: 300,
            in_flight: 100,
            lateness: Duration::ZERO,
        };
        model.on_ack(sent_at + trip, &sample);
    }

    /// A first burst of 16 datagrams, reported two at a time, over a path of so many Mbit/s and ms there and back.
    fn burst(model: &mut Model, mbit: f64, trip_ms: f64) {
        for pair in 1..=8 {
            let datagrams = 2 * pair;
            let trip = trip_ms / 1e3 + real(datagrams) * 12_000.0 / (mbit * 1e6);
            confirm(model, 2, datagrams - 1, BURST_AT, trip, 1500 * datagrams);
        }
    }

    #[test]
    fn a_path_that_is_as_it_was_begins_with_half_of_what_it_had() {
        let mut model = with(KNOWN);
        burst(&mut model, 40.0, 100.0);
        // 250 kB are 167 datagrams, over 100 ms.
        assert!((167..=220).contains(&model.window()), "{}", model.window());
        assert_eq!(model.believed_rate(), Some(Bitrate::from_mbps(20)));
        let pace = mbit(model.pacing_rate());
        assert!((20.0..=26.0).contains(&pace), "no burst, but {pace} Mbit/s");
        let mut fresh = Model::from_number(0);
        burst(&mut fresh, 40.0, 100.0);
        assert!(fresh.window() <= 48, "{}", fresh.window());
    }

    #[test]
    fn where_the_peer_is_elsewhere_the_window_opens_and_the_rate_is_not_believed() {
        let mut model = with(KnownPath { is_same_way: false, ..KNOWN });
        burst(&mut model, 40.0, 100.0);
        assert!((167..=220).contains(&model.window()), "{}", model.window());
        assert!(mbit(model.believed_rate()) < 4.0, "{:?}", model.believed_rate());
    }

    #[test]
    fn a_path_that_does_not_look_as_it_was_begins_as_a_fresh_one() {
        let expired = KnownPath { until: BURST_AT, ..KNOWN };
        let slow = KnownPath { rate: Bitrate::from_kbps(500), ..KNOWN };
        for (known, mbit_now, trip_ms) in [
            (KNOWN, 4.0, 100.0),
            (KNOWN, 10.0, 100.0),
            (KNOWN, 40.0, 40.0),
            (KNOWN, 40.0, 150.0),
            (expired, 40.0, 100.0),
            (slow, 40.0, 100.0),
        ] {
            let mut model = with(known);
            burst(&mut model, mbit_now, trip_ms);
            let case = format!("{known:?}: {mbit_now} Mbit/s and {trip_ms} ms");
            assert!(model.window() <= 48, "{case}: {}", model.window());
            assert!(mbit(model.believed_rate()) < 6.0, "{case}: {:?}", model.believed_rate());
            assert_eq!(model.returned_pace(), f64::INFINITY, "{case}");
        }
    }

    #[test]
    fn a_loss_in_the_first_burst_leaves_what_was_known_untried() {
        let mut model = with(KNOWN);
        let lost = LossSample { datagrams: 1, largest: 0, next: 16, prior_in_flight: 16 };
        model.on_loss(BURST_AT, &lost);
        burst(&mut model, 40.0, 100.0);
        assert!(model.window() <= 48, "{}", model.window());
    }

    #[test]
    fn a_queue_behind_what_was_tried_ends_it_and_leaves_what_came_out_of_it() {
        let mut model = with(KNOWN);
        burst(&mut model, 40.0, 100.0);
        assert!(model.is_opening());
        // What follows left at 21 Mbit/s, and comes out at 4.8: each 10 ms four datagrams, each time 7.7 ms later.
        let begin = Instant::from_millis(1103);
        for report in 1..=12_u32 {
            let sent_at = begin + Duration::from_micros(2260) * report;
            let trip = 0.1 + 0.00774 * f64::from(report);
            let last = 15 + 4 * u64::from(report);
            confirm(&mut model, 4, last, sent_at, trip, 6000 * u64::from(report));
        }
        assert!(!model.is_opening());
        assert!(mbit(model.believed_rate()) <= 6.0, "{:?}", model.believed_rate());
        assert!(mbit(model.pacing_rate()) <= 6.0, "{:?}", model.pacing_rate());
    }

    #[test]
    fn if_nothing_comes_of_what_was_tried_the_path_begins_as_a_fresh_one() {
        let mut model = with(KNOWN);
        burst(&mut model, 40.0, 100.0);
        let all = LossSample { datagrams: 180, largest: 195, next: 196, prior_in_flight: 180 };
        model.on_timeout(Instant::from_millis(1800), &all);
        assert_eq!((model.believed_rate(), model.pacing_rate()), (None, None));
        assert!(model.window() <= 16, "{}", model.window());
    }

    #[test]
    fn what_is_kept_for_the_next_time_is_what_was_found_or_was_not_tried_yet() {
        let now = Instant::from_millis(2000);
        assert_eq!(Model::from_number(0).known_path(now), None);
        let mut model = with(KNOWN);
        assert_eq!(model.known_path(now), Some(KNOWN));
        assert_eq!(model.known_path(KNOWN.until), None);
        burst(&mut model, 40.0, 100.0);
        let found = model.known_path(now).unwrap();
        assert_eq!((found.rate, found.until), (Bitrate::from_mbps(20), now + KNOWN_FOR));
        assert!(found.trip.abs_diff(KNOWN.trip) < Duration::from_millis(6), "{found:?}");
    }
}
