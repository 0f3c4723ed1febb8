//! A model of one path: how fast it delivers, its delay without a queue, and how long datagrams wait in that queue now.
//!
//! Losses do not say what a path carries: radio links lose at random, and deep queues lose nothing for seconds. Both ends of a tunnel are
//! ours, so more is known: when each datagram arrived by the receiver's clock (a report says how long before it was sealed that was, and
//! its header says when it was sealed), and where each loss fell. The model is paced, and aims at a queue of a few milliseconds.
//!
//! | what | rule | in |
//! | --- | --- | --- |
//! | queue | the one-way delay now over the least of ten seconds; what jitter adds is measured, and allowed for | [`delay`] |
//! | rate | follows what is delivered upwards at once; downwards only under a standing queue. So a time with little to send changes nothing | [`rate`] |
//! | bursts of a fresh path | leave as fast as trains arrive | [`train`] |
//! | losses | alone are nothing; more than usual without a queue are tried; those of a time in which nothing came through are an outage | [`loss`] |
//! | marks | count as a queue that is too long, for a round | [`Controller::on_ecn`] |
//! | company | where a queue stays though less is sent, somebody else keeps it: then a CUBIC window | [`rival`] |
//!
//! **Phases.** *Startup*: the window grows by two for each place confirmed, until something waits, too much is lost, or three rounds brought no
//! more. *Drain*: half the rate, until nothing waits. *Cruise*: the rate, a little more or less as the queue is below or above its target; each
//! round without a queue doubles that little. *Refresh*: after four seconds without an empty queue less is sent for a moment, to see the
//! path's own delay again; in earnest, where the queue is far too long or does not go.
//!
//! The numbers were found in virtual time, over links of 1 to 300 Mbit/s, 1 to 640 ms, with and without loss and jitter.

mod delay;
mod least;
mod loss;
mod number;
mod rate;
mod rival;
mod round;
mod train;
mod view;

use ropewalk_settings::Bitrate;

use self::delay::Delays;
use self::least::Least;
use self::loss::Losses;
use self::number::{count, real, seconds};
use self::rate::Rates;
use self::rival::Rival;
use self::round::Round;
use self::train::Trains;
use super::{AckSample, ArrivalSample, Controller, LossSample, MAX_WINDOW, PathModel};
use crate::time::Instant;

/// Places that a path of which nothing is known is given: what QUIC implementations send first, so that an inner TCP's first
/// window of ten (RFC 6928) and its doubling pass without waiting for a report.
const INITIAL_WINDOW: f64 = 32.0;
/// Full datagrams that may leave within a round trip while nothing waits.
const INITIAL_FLIGHT: f64 = 10.0;
/// After so long without a queue its last one says nothing of the rate, seconds.
const UNQUEUED: f64 = 10.0;
/// Nothing arrives for so long, and for the time that so many datagrams take: the link was away, seconds.
const OUTAGE: (f64, f64) = (0.05, 10.0);
/// The smallest window: with fewer in flight nothing could be overtaken.
const LEAST_WINDOW: f64 = 4.0;
/// Places beyond what the path holds: what joined packets and reports hold up.
const SLACK: f64 = 12.0;
/// A full datagram at IP level, bytes, before any was seen.
const FULL: f64 = 1500.0;
/// A UDP and an IPv4 header, bytes.
const HEADERS: f64 = 28.0;

/// The queue that is aimed at, and the one that is too long, seconds, without what jitter and transmission add.
const TARGET: f64 = 0.004;
const LIMIT: f64 = 0.010;
/// Noise that is allowed for, in its deviations, and at most, seconds.
const NOISE: (f64, f64) = (3.0, 0.06);
/// A datagram's transmission that is allowed for at most, seconds.
const MOST_TRANSMISSION: f64 = 0.05;

/// Pace and window over the rate while starting: 2 / ln 2, the least with which a rate can double each round (draft-cardwell-iccrg-bbr).
const STARTUP_GAIN: f64 = 2.885;
/// What the window grows by for each place that is confirmed while starting.
const STARTUP_GROWTH: f64 = 2.0;
/// Pace over what trains arrive at: enough to see whether the path carries more.
const TRAIN_GAIN: f64 = 1.06;
/// So many lossy rounds are left to a sender that is not held back: a TCP answers within two.
const PATIENT_ROUNDS: u32 = 6;
/// A rate of this much less than trains show is no sign that the path is full.
const TRAIN_DOUBT: f64 = 0.8;
/// Pace over the rate while little is sent and nothing waits: an inner TCP that starts doubles.
const UNLIMITED_GAIN: f64 = 2.0;
/// By how much pace differs from the rate: for each second of queue below or above the target, a round trip, seconds.
const SLOPE: f64 = 0.4;
/// How often a refresh is due, seconds.
const REFRESH: f64 = 4.0;
/// How long a path that is asked whether a rival left is left alone, at first and at most, seconds.
const RIVAL_PATIENCE: (f64, f64) = (15.0, 45.0);
/// For so long after a rival left, another one is believed at once, seconds.
const RIVAL_MEMORY: f64 = 15.0;
/// The queue stands for so long, seconds and round trips, while so much less is sent than lately: somebody else keeps it.
const YIELDED: (f64, f64, f64) = (0.1, 4.0, 0.85);

/// What is done at present.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Startup,
    Drain,
    Cruise,
    /// In earnest, or for a moment.
    Refresh {
        deep: bool,
    },
}

/// The model. Seconds, bytes at IP level, and bytes a second.
#[derive(Clone, Debug)]
pub struct Model {
    phase: Phase,
    /// Since when, and since which round.
    since: f64,
    since_round: u64,
    /// Bytes of a place in the window, in the mean.
    place: f64,
    /// Smoothed round trip; 0: not known.
    srtt: f64,
    /// The next number to be sent, and what is in flight.
    next: u64,
    in_flight: f64,
    round: Round,
    delays: Delays,
    rates: Rates,
    trains: Trains,
    losses: Losses,
    /// Losses of lower numbers belong to what was answered already.
    answered: u64,
    rival: Option<Rival>,
    rival_ended: f64,
    rival_patience: f64,
    /// The rate that is believed.
    rate: f64,
    /// The largest of ten rounds; of fifteen seconds.
    recent_rates: Least,
    late_rates: Least,
    lately: f64,
    /// The largest number that is confirmed. Until this one is, a congestion mark counts.
    confirmed: u64,
    marked_to: u64,
    /// When the queue last did not stand.
    stands_since: f64,
    /// The rate that a startup reached, and since how many rounds.
    full_rate: f64,
    full_rounds: u32,
    /// Rounds in a row that lost too much.
    lossy_rounds: u32,
    /// Rounds in a row that were held back and saw no queue.
    free_rounds: u32,
    gain: f64,
    pace: f64,
    /// The pace when this round began, and the one before.
    round_pace: f64,
    pace_before: f64,
    window: f64,
    /// When the queue was last empty, or asked to be.
    refreshed: f64,
    refresh_for: f64,
    /// The least queue of this refresh.
    low: f64,
    /// Refreshes in a row that did not empty the queue.
    failed: u32,
    timed_out: bool,
    /// Losses that were told since the last confirmation.
    told_lost: Option<LossSample>,
    /// When the newest datagram arrived, µs of the receiver's clock.
    arrived_us: Option<i64>,
    /// When so much had waited last that the queue told something of the rate.
    queued_at: f64,
}

impl Model {
    /// A path of which nothing is known, on which `first` is the first number.
    #[must_use]
    pub fn from_number(first: u64) -> Self {
        Self {
            phase: Phase::Startup,
            since: 0.0,
            since_round: 0,
            place: FULL,
            srtt: 0.0,
            next: first,
            in_flight: 0.0,
            round: Round::default(),
            delays: Delays::default(),
            rates: Rates::default(),
            trains: Trains::default(),
            losses: Losses::default(),
            answered: first,
            rival: None,
            rival_ended: f64::NEG_INFINITY,
            rival_patience: RIVAL_PATIENCE.0,
            rate: 0.0,
            recent_rates: Least::default(),
            late_rates: Least::default(),
            lately: 0.0,
            confirmed: first,
            marked_to: first,
            stands_since: 0.0,
            full_rate: 0.0,
            full_rounds: 0,
            lossy_rounds: 0,
            free_rounds: 0,
            gain: 1.0,
            pace: 0.0,
            round_pace: 0.0,
            pace_before: 0.0,
            window: INITIAL_WINDOW * FULL,
            refreshed: 0.0,
            refresh_for: 0.0,
            low: f64::INFINITY,
            failed: 0,
            timed_out: false,
            told_lost: None,
            arrived_us: None,
            queued_at: f64::NEG_INFINITY,
        }
    }

    /// How long a datagram waits now. What a mark tells of is too long, however short it is here (RFC 3168 §5).
    fn queue(&self) -> f64 {
        let seen = self.delays.queue();
        if self.is_marked() { seen.max(2.0 * self.limit()) } else { seen }
    }

    /// The least of it over the last round trips.
    fn standing(&self) -> f64 {
        if self.is_marked() { self.queue() } else { self.delays.standing() }
    }

    fn is_marked(&self) -> bool {
        self.confirmed < self.marked_to
    }

    /// What jitter adds to a queue.
    fn noise(&self) -> f64 {
        (NOISE.0 * self.delays.noise()).min(NOISE.1)
    }

    /// What one full datagram takes: small ones arrive sooner, and show a shorter delay.
    fn transmission(&self) -> f64 {
        if self.rate > 0.0 { (FULL / self.rate).min(MOST_TRANSMISSION) } else { 0.0 }
    }

    fn target(&self) -> f64 {
        TARGET + self.noise() + self.transmission()
    }

    fn limit(&self) -> f64 {
        LIMIT + 1.5 * self.noise() + 2.0 * self.transmission()
    }

    fn enter(&mut self, t: f64, phase: Phase) {
        self.phase = phase;
        self.since = t;
        self.since_round = self.round.number;
        self.round.restart(self.next);
    }

    /// Asks for an empty queue.
    fn begin_refresh(&mut self, t: f64, deep: bool, length: f64) {
        self.refresh_for = length;
        self.low = f64::INFINITY;
        self.enter(t, Phase::Refresh { deep });
    }

    fn rounds_in_phase(&self) -> u64 {
        self.round.number - self.since_round
    }

    fn on_arrival(&mut self, t: f64, arrival: &ArrivalSample) {
        self.rates.on_arrival(arrival, self.srtt, self.delays.noise());
        self.trains.on_arrival(arrival, self.place);
        // While somebody else keeps the queue, only what was seen before says what it is over.
        let keep_from = self.rival.as_ref().map_or(t, |rival| rival.since - RIVAL_MEMORY);
        let delay = real(arrival.one_way_us().unsigned_abs()) * 1e-6;
        let delay = if arrival.one_way_us() < 0 { -delay } else { delay };
        self.delays.on_delay(t, delay, self.rate, self.srtt, keep_from);
    }

    /// Counts the losses that were told. What was lost while nothing at all came through says nothing of how much may be sent: the
    /// link was away (a handover, a tunnel).
    fn count_losses(&mut self, t: f64, arrival: Option<&ArrivalSample>) {
        let before = self.arrived_us;
        self.arrived_us = arrival.map(|arrival| arrival.at_us).or(before);
        let Some(told) = self.told_lost.take() else { return };
        let silent = arrival.zip(before).map_or(0.0, |(arrival, before)| {
            real(u64::try_from(arrival.at_us.saturating_sub(before)).unwrap_or(0)) * 1e-6
        });
        if self.rate > 0.0 && silent > OUTAGE.0.max(OUTAGE.1 * self.place / self.rate) {
            return;
        }
        self.round.present.lost += f64::from(told.datagrams);
        let usual = self.losses.usual() * self.round.present.settled();
        let exceeds = self.round.present.lost > usual + 2.0 * usual.sqrt() + 0.5;
        let answers = self.must_answer();
        if let Some(rival) = self.rival.as_mut().filter(|_| exceeds && answers) {
            rival.on_loss(t, told.largest, told.next);
        }
    }

    /// The rate goes up to what is delivered, and down towards it only under a standing queue. So much was confirmed.
    fn update_rate(&mut self, confirmed: f64) {
        let (noisy, queue) = (self.delays.is_noisy(), self.queue());
        let Rates { of_trip, short, held_back, .. } = self.rates;
        let of_round = (confirmed / (self.rate * self.srtt).max(1.0)).min(1.0);
        let stands = self.standing() >= self.target() / 2.0;
        if self.phase == Phase::Startup || self.rival.is_some() {
            if held_back || of_trip > self.rate {
                let round = real(self.round.number);
                self.rate = self.recent_rates.note_for_most(round, of_trip, 10.0);
            }
        } else if of_trip > self.rate {
            if !self.losses.on_trial() {
                // What jitter adds to a measurement must not stay.
                let share = if noisy { 0.25 * of_round } else { 1.0 };
                let share = if held_back { share } else { share / 2.0 };
                // It at most doubles within a round.
                self.rate += (share * (of_trip - self.rate)).min(of_round * self.rate);
            }
        } else if stands
            && self.phase == Phase::Cruise
            && self.rounds_in_phase() >= 2
            && short > 0.0
            && short < self.rate
        {
            let haste = match () {
                () if queue > 3.0 * self.limit() => 3.0,
                () if queue > self.limit() => 1.0,
                () => 0.5,
            };
            self.rate += (haste * of_round).min(1.0) * (short - self.rate);
        }
    }

    fn startup(&mut self, t: f64) {
        let held_back = self.rates.held_back;
        if self.round.begins && held_back {
            if self.rate >= self.full_rate * 1.25 {
                (self.full_rate, self.full_rounds) = (self.rate, 0);
            } else {
                self.full_rounds += 1;
            }
        }
        let limit = self.limit();
        let noisy = self.delays.is_noisy();
        let stands = self.standing() > limit;
        let is_full = self.full_rounds >= 3;
        let loses =
            self.must_answer() && (self.losses.exceeds(self.round.present) || self.losses.lasts());
        let waits = self.queue() > limit
            && self.delays.is_known()
            && (!noisy || self.full_rounds >= 1 || stands);
        // A burst of its own waits for itself.
        let is_burst = !noisy
            && !stands
            && self.trains.rate().is_some_and(|most| self.rates.of_trip < TRAIN_DOUBT * most);
        if is_full || loses || waits && !is_burst {
            let now = self.rates.short.max(self.rates.of_trip);
            if held_back && (!is_full || now < self.rate) {
                self.rate = now;
            }
            self.recent_rates.clear();
            self.answered = self.next;
            self.enter(t, Phase::Drain);
        }
    }

    fn drain(&mut self, t: f64) {
        let floor = self.delays.floor().unwrap_or(self.srtt).min(self.srtt);
        let drained = self.queue() < 0.5 * self.limit()
            && (self.rounds_in_phase() >= 1 || self.in_flight <= self.rate * floor);
        if drained || t - self.since > 3.0 * self.srtt + 0.2 {
            self.refreshed = t;
            self.enter(t, Phase::Cruise);
        }
    }

    fn cruise(&mut self, t: f64) {
        if self.round.begins {
            self.cruise_round(t);
        }
        let (queue, limit) = (self.queue(), self.limit());
        if queue < self.target() / 4.0 {
            self.refreshed = t;
        }
        let deep_length = 2.0 * self.srtt + 2.0 * queue;
        let since_refresh = t - self.refreshed;
        if self.rival.is_some() {
            if t - self.since > self.rival_patience {
                self.rival_patience = (self.rival_patience * 1.5).min(RIVAL_PATIENCE.1);
                self.begin_refresh(t, false, 0.0);
            }
        } else if self.has_yielded(t) {
            self.begin_refresh(t, true, deep_length);
        } else if t - self.rival_ended < RIVAL_MEMORY && self.delays.standing() > limit {
            self.meet_rival(t);
            self.enter(t, Phase::Cruise);
        } else if queue > 3.0 * limit && since_refresh > 0.5 && self.rounds_in_phase() >= 3 {
            self.begin_refresh(t, true, deep_length);
        } else if since_refresh > REFRESH {
            let deep = self.failed >= 1;
            // At three quarters of the rate.
            let shallow = ((queue + TARGET) / 0.25).clamp(0.02, 0.5);
            self.begin_refresh(t, deep, if deep { deep_length } else { shallow });
        }
    }

    /// A sender that is not held back answers losses itself, if it ever does.
    fn must_answer(&self) -> bool {
        self.rates.held_back || self.lossy_rounds >= PATIENT_ROUNDS
    }

    /// A round of cruising ended.
    fn cruise_round(&mut self, t: f64) {
        let (queue, target, limit) = (self.queue(), self.target(), self.limit());
        let Rates { of_trip, short, held_back, .. } = self.rates;
        let before = self.round.before;
        let queued = queue >= limit;
        let suspect = self.losses.is_suspect(t, self.srtt, before, queued)
            && (self.must_answer() || self.losses.on_trial());
        if suspect && self.rounds_in_phase() >= 1 && self.rival.is_none() {
            let now = of_trip.min(short.max(0.7 * of_trip));
            let now = if queued { now } else { 0.95 * short.min(now) };
            let least = 0.5 * self.rate;
            self.rate = self.rate.min(now.max(least));
            self.recent_rates.clear();
            self.free_rounds = 0;
            self.losses.begin_trial(
                t,
                self.srtt,
                before,
                if queued { 0.0 } else { short.max(least) },
            );
        } else if held_back && queue < target / 2.0 && !self.losses.is_held(t) {
            let usual = self.losses.usual();
            let paced = self.pace_before.min(self.round_pace);
            let follows = of_trip * (1.0 + usual) >= 0.93 * paced;
            let loses = before.lost > (usual + 0.02) * before.settled() + 1.0;
            if self.gain > 1.04 && !follows && loses {
                self.free_rounds = 0;
                self.losses.lose_patience();
            } else {
                self.free_rounds += 1;
                if follows && self.free_rounds > 3 && self.rate > 1.3 * self.losses.last_cap() {
                    self.losses.regain_patience();
                }
            }
        } else {
            self.free_rounds = 0;
            if queue >= target / 2.0 {
                self.losses.regain_patience();
            }
        }
    }

    /// Less is sent than lately, and the queue stands all the same.
    fn has_yielded(&mut self, t: f64) -> bool {
        let (seconds, trips, share) = YIELDED;
        self.lately = self.late_rates.note_for_most(t, self.rate, RIVAL_MEMORY);
        if self.delays.standing() < self.target() {
            self.stands_since = t;
        }
        t - self.stands_since > seconds + trips * self.srtt && self.rate < share * self.lately
    }

    fn meet_rival(&mut self, t: f64) {
        // What was given way with before it was known is taken back.
        let half = 0.75 * self.lately * self.srtt / self.place;
        let window = (self.in_flight / self.place).max(half).max(10.0);
        self.rival = Some(Rival::new(t, window, self.next));
        self.rival_patience = RIVAL_PATIENCE.0;
        self.recent_rates.clear();
    }

    fn refresh(&mut self, t: f64, deep: bool) {
        let (queue, limit) = (self.delays.queue(), self.limit());
        self.low = self.low.min(queue);
        if let Some(rival) = &mut self.rival {
            if self.round.number - self.since_round >= 2 {
                if queue < 0.7 * limit {
                    self.rival = None;
                    (self.rival_ended, self.failed) = (t, 0);
                } else {
                    rival.pause(t - self.since);
                }
                self.enter(t, Phase::Cruise);
            }
            return;
        }
        let over = t - self.since > self.refresh_for + 1.25 * self.srtt + 0.01;
        if over || deep && self.low < 0.5 * limit {
            // With hardly anything of ours under way only somebody else's datagrams can wait.
            if self.low < if deep { 0.5 * limit } else { limit } {
                self.failed = 0;
            } else {
                self.failed += 1;
                if deep {
                    self.meet_rival(t);
                }
            }
            self.refreshed = t;
            self.free_rounds = 0;
            self.enter(t, Phase::Cruise);
        }
    }

    fn set_gain(&mut self, t: f64) {
        self.gain = match (self.phase, self.rival.is_some()) {
            (Phase::Startup, _) => STARTUP_GAIN,
            (Phase::Drain, _) => 0.5,
            (Phase::Refresh { .. }, true) => 0.9,
            (Phase::Refresh { deep: true }, false) => {
                0.9 * (self.rates.short.max(0.05 * self.rate) / self.rate.max(1.0)).min(1.0)
            }
            (Phase::Refresh { deep: false }, false) if t - self.since < self.refresh_for => 0.75,
            (Phase::Refresh { deep: false }, false) | (Phase::Cruise, true) => 1.0,
            (Phase::Cruise, false) => self.cruise_gain(t),
        };
    }

    fn cruise_gain(&self, t: f64) -> f64 {
        let (queue, target) = (self.queue(), self.target());
        let error = SLOPE * (target - queue) / self.srtt.max(0.01);
        if error < 0.0 {
            let least = if queue > 3.0 * self.limit() { -0.5 } else { -0.25 };
            return 1.0 + error.max(least);
        }
        if self.losses.is_held(t) {
            return 1.0;
        }
        if !self.rates.held_back {
            return UNLIMITED_GAIN;
        }
        let most = match self.free_rounds {
            5.. => 1.0,
            3.. => 0.5,
            _ => 0.25,
        };
        1.0 + (error * f64::from(1 << self.free_rounds.min(8))).min(most)
    }

    fn set_pace(&mut self, t: f64) {
        let cap = self.losses.cap(t).unwrap_or(f64::INFINITY);
        let pace = match (self.phase, &self.rival) {
            (Phase::Startup, _) => {
                let trains = self.trains.rate().filter(|_| !self.delays.is_noisy());
                trains.map_or(f64::INFINITY, |rate| TRAIN_GAIN * rate)
            }
            (Phase::Cruise, Some(rival)) => 1.2 * rival.window * self.place / self.srtt.max(0.001),
            (_, Some(_)) => self.gain * self.rate,
            (_, None) => (self.gain * self.rate).min(0.98 * cap),
        };
        self.pace = pace.max(self.least_pace(t));
    }

    /// While nothing ever waits, little is known of the rate: what a connection may send at first (RFC 6928) may always leave within a round
    /// trip. Else a link on which hardly anything was sent could keep to a rate that starves who begins.
    fn least_pace(&self, t: f64) -> f64 {
        let is_unknown = t - self.queued_at > UNQUEUED && self.srtt > 0.0 && self.rival.is_none();
        if is_unknown { INITIAL_FLIGHT * FULL / self.srtt } else { 0.0 }
    }

    /// The window is for safety; the pace does the work. So much was confirmed.
    fn set_window(&mut self, confirmed: f64) {
        let floor = self.delays.floor().unwrap_or(self.srtt);
        let slack = SLACK * self.place;
        self.window = match (self.phase, &self.rival) {
            (Phase::Cruise, Some(rival)) => rival.window * self.place,
            (_, Some(_)) => 0.9 * self.rate * floor,
            (Phase::Startup, None) => {
                let target = STARTUP_GAIN * self.rate * self.srtt + slack;
                let grows = self.window < target || self.rate <= 0.0;
                self.window + if grows { STARTUP_GROWTH * confirmed } else { 0.0 }
            }
            (Phase::Refresh { deep: true }, None) => {
                0.9 * self.rate.min(self.rates.short) * floor.min(self.srtt) + 2.0 * self.place
            }
            (_, None) => {
                // Not the least round trip alone: jitter would starve the path.
                let spare = (0.03 + self.limit() + 2.0 * self.noise()).max(floor / 4.0);
                self.rate * self.gain.max(1.0) * (floor + spare) + slack
            }
        };
        let most = f64::from(MAX_WINDOW) * self.place;
        self.window = self.window.clamp(LEAST_WINDOW * self.place, most);
    }
}

impl Controller for Model {
    fn window(&self) -> u32 {
        let places = if self.timed_out { LEAST_WINDOW } else { self.window / self.place };
        u32::try_from(count(places.ceil())).unwrap_or(MAX_WINDOW).min(MAX_WINDOW)
    }

    fn pacing_rate(&self) -> Option<Bitrate> {
        (self.pace > 0.0 && self.pace.is_finite())
            .then(|| Bitrate::from_bps(count(self.pace * 8.0).max(1)))
    }

    fn is_opening(&self) -> bool {
        self.phase == Phase::Startup
    }

    fn path_model(&self) -> Option<PathModel> {
        Some(self.view())
    }

    fn on_sent(&mut self, _now: Instant, number: u64, _in_flight: u32) {
        self.next = number + 1;
    }

    fn on_ack(&mut self, now: Instant, sample: &AckSample) {
        let t = seconds(now);
        let places = f64::from(sample.datagrams);
        self.timed_out = false;
        if sample.datagrams > 0 {
            let size = real(sample.bytes) / places + HEADERS;
            self.place += (size - self.place) * (places / 50.0).min(0.5);
        }
        if let Some(trip) = sample.rtt.map(|trip| trip.as_secs_f64()) {
            self.srtt = if self.srtt > 0.0 { self.srtt + (trip - self.srtt) / 8.0 } else { trip };
            self.delays.on_trip(trip);
        }
        self.next = sample.next;
        self.confirmed = self.confirmed.max(sample.largest);
        self.in_flight = f64::from(sample.in_flight) * self.place;
        self.round.on_confirmed(places, sample.largest, sample.next);
        if self.round.begins {
            if matches!(self.phase, Phase::Startup | Phase::Cruise) {
                self.losses.on_round(t, &self.round);
                let loses = self.round.before.lost > 0.0 && self.losses.lasts();
                self.lossy_rounds = if loses { self.lossy_rounds + 1 } else { 0 };
            }
            (self.pace_before, self.round_pace) = (self.round_pace, self.pace);
        }
        self.count_losses(t, sample.arrival.as_ref());
        let confirmed = places * self.place;
        if self.standing() >= self.target() / 2.0 || self.losses.cap(t).is_some() {
            self.queued_at = t;
        }
        if let Some(arrival) = &sample.arrival {
            self.on_arrival(t, arrival);
            self.update_rate(confirmed);
        }
        if self.phase == Phase::Cruise
            && let Some(rival) = &mut self.rival
        {
            let held_back = sample.arrival.is_none_or(|arrival| arrival.held_back);
            rival.on_confirmed(t, self.srtt, if held_back { places } else { 0.0 }, sample.largest);
        }
        match self.phase {
            Phase::Startup => self.startup(t),
            Phase::Drain => self.drain(t),
            Phase::Cruise => self.cruise(t),
            Phase::Refresh { deep } => self.refresh(t, deep),
        }
        self.set_gain(t);
        self.set_pace(t);
        self.set_window(confirmed);
    }

    fn on_loss(&mut self, _now: Instant, sample: &LossSample) {
        if sample.largest < self.answered {
            return;
        }
        let before = self.told_lost.map_or(0, |before| before.datagrams);
        self.told_lost = Some(LossSample { datagrams: before + sample.datagrams, ..*sample });
    }

    fn on_late(&mut self, _now: Instant, datagrams: u32) {
        let found = f64::from(datagrams);
        let of_round = found.min(self.round.present.lost);
        self.round.present.lost -= of_round;
        self.losses.take_back(found - of_round);
    }

    fn on_ecn(&mut self, now: Instant, sample: &LossSample) {
        if sample.largest < self.marked_to.max(self.answered) {
            return;
        }
        self.marked_to = sample.next;
        if let Some(rival) = &mut self.rival {
            rival.on_loss(seconds(now), sample.largest, sample.next);
        }
    }

    fn on_timeout(&mut self, _now: Instant, sample: &LossSample) {
        self.timed_out = true;
        self.round.restart(sample.next);
    }

    fn on_return(&mut self, _now: Instant) {
        self.timed_out = false;
        self.rate *= 0.5;
        self.window = (self.window * 0.5).max(INITIAL_WINDOW * self.place);
        self.pace *= 0.5;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::time::Duration;

    /// A path of 5 MB/s and 40 ms with a sender that always has something to send, a millisecond at a time.
    struct Path {
        model: Model,
        now: Instant,
        next: u64,
        /// Number, when it was sent, when it arrives.
        open: VecDeque<(u64, Instant, Instant)>,
        free_at: Instant,
        /// Datagrams that may leave by now.
        credit: f64,
        total: u64,
    }

    const RATE: f64 = 5e6;
    const ONE_WAY: Duration = Duration::from_millis(20);

    impl Path {
        fn new() -> Self {
            let (now, model) = (Instant::from_millis(1), Model::from_number(0));
            Self { model, now, next: 0, open: VecDeque::new(), free_at: now, credit: 0.0, total: 0 }
        }

        fn run(&mut self, millis: u64) {
            for _ in 0..millis {
                self.now += Duration::from_millis(1);
                self.credit += (self.pace() * 1e-3 / 1500.0).min(20.0);
                while self.credit >= 1.0 {
                    self.credit -= 1.0;
                    if self.open.len() as u32 >= self.model.window() {
                        break;
                    }
                    let begins = self.free_at.max(self.now);
                    self.free_at = begins + Duration::from_secs_f64(1500.0 / RATE);
                    self.open.push_back((self.next, self.now, self.free_at + ONE_WAY));
                    self.model.on_sent(self.now, self.next, self.open.len() as u32);
                    self.next += 1;
                }
                self.report();
            }
        }

        /// What arrived until a way back ago is confirmed.
        fn report(&mut self) {
            let mut newest = None;
            let mut count = 0;
            while let Some(&(number, sent, arrived)) = self.open.front()
                && arrived + ONE_WAY <= self.now
            {
                newest = Some((number, sent, arrived));
                self.open.pop_front();
                count += 1;
            }
            let Some((largest, sent_at, arrived)) = newest else { return };
            self.total += u64::from(count) * 1500;
            let in_flight = self.open.len() as u32;
            let arrival = ArrivalSample {
                at_us: arrived.as_micros() as i64,
                sent_at,
                bytes: (RATE * 0.04) as u64,
                interval: Duration::from_millis(40),
                total: self.total,
                held_back: true,
            };
            let sample = AckSample {
                datagrams: count,
                bytes: u64::from(count) * 1472,
                largest,
                prior_in_flight: in_flight + count,
                window_limited: false,
                rtt: Some(self.now.since(sent_at)),
                delivery: None,
                arrival: Some(arrival),
                next: self.next,
                in_flight,
            };
            self.model.on_ack(self.now, &sample);
        }

        fn pace(&self) -> f64 {
            self.model.pacing_rate().map_or(f64::INFINITY, |pace| real(pace.as_bps()) / 8.0)
        }

        fn mark(&mut self) {
            let largest = self.open.back().map_or(0, |open| open.0);
            let next = self.next;
            let sample = LossSample { datagrams: 1, largest, next, prior_in_flight: 9 };
            self.model.on_ecn(self.now, &sample);
        }
    }

    #[test]
    fn a_congestion_mark_slows_a_round_down_and_is_forgotten_after_it() {
        let mut path = Path::new();
        path.run(2000);
        let before = path.pace();
        assert!((0.8 * RATE..1.4 * RATE).contains(&before), "{before}");
        path.mark();
        path.run(20);
        assert!(path.pace() <= 0.9 * before, "{} of {before}", path.pace());
        path.run(400);
        assert!(path.pace() >= 0.9 * RATE, "{} half a second later", path.pace());
    }

    #[test]
    fn marks_without_end_leave_something() {
        let mut path = Path::new();
        path.run(2000);
        for _ in 0..500 {
            path.mark();
            path.run(10);
        }
        assert!(path.pace() > 0.0 && path.model.window() >= 4, "{}", path.pace());
    }
}
