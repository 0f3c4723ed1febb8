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
//! | a rate that varies | where it fell again and again, more is tried sooner | [`variation`] |
//! | bursts of a fresh path | leave as fast as trains arrive | [`train`] |
//! | a link that left and is back | half of what it had, once a burst shows that this may still be so | [`returned`] |
//! | fairness | a higher rate aims at a shorter queue, so that models that share a path come to have the same | `Model::target_share` |
//! | losses | alone are nothing; more than usual without a queue are tried; those of a time in which nothing came through are an outage | [`loss`] |
//! | marks | count as a queue that is too long, for a round | [`Controller::on_ecn`] |
//! | company | if a queue stays though less is sent, somebody else keeps it, or the path became longer: then a CUBIC window, held to half of what the path carries | [`company`], [`rival`] |
//!
//! **Phases.** *Startup*: the window grows by two for each place confirmed, until something waits, too much is lost, or three rounds brought no
//! more. *Drain*: half the rate, until nothing waits. *Cruise*: the rate, a little more or less as the queue is below or above its target; each
//! round without a queue doubles that little. *Refresh*: after four seconds without an empty queue less is sent for a moment, to see the
//! path's own delay again; in earnest, where the queue is far too long or does not go.
//!
//! The numbers were found in virtual time, over links of 1 to 300 Mbit/s, 1 to 640 ms, with and without loss and jitter.

mod company;
mod delay;
mod least;
mod loss;
mod output;
mod phases;
mod rate;
mod returned;
mod rival;
mod round;
mod train;
mod variation;
mod view;

use ropewalk_settings::Bitrate;

use self::company::Company;
use self::delay::Delays;
use self::least::Least;
use self::loss::Losses;
use self::output::Output;
use self::rate::Rates;
use self::returned::Returned;
use self::rival::Rival;
use self::round::Round;
use self::train::Trains;
use self::variation::Variation;
use self::view::duration;
use super::{AGAIN, AckSample, ArrivalSample, Controller, KnownPath, LossSample, PathModel};
use crate::number::{real, seconds};
use crate::time::{Duration, Instant};

/// Places that a path of which nothing is known is given: more than an inner TCP's first window of ten (RFC 6928), and no more than a
/// queue of 100 ms holds at 2 Mbit/s. With 32 a first burst over such a link lost half, and a flow waited for a round trip for it.
const INITIAL_WINDOW: f64 = 16.0;
/// Nothing arrives for so long, and for the time that so many datagrams take: the link was away, seconds.
const OUTAGE: (f64, f64) = (0.05, 10.0);
/// The smallest window: with fewer in flight nothing could be overtaken.
const LEAST_WINDOW: f64 = 4.0;
/// A full datagram at IP level, bytes, before any was seen.
const FULL: f64 = 1500.0;
/// A UDP and an IPv4 header, bytes.
const HEADERS: f64 = 28.0;

/// The queue that is aimed at, and the one that is too long, seconds, without what jitter and transmission add.
const TARGET: f64 = 0.004;
const LIMIT: f64 = 0.010;
/// The rate for which that is the target, bytes a second; a higher one aims at less, a lower one at more, by its square root.
const AT_TARGET: f64 = 2.5e6;
/// By how much the target differs, at least and at most.
const TARGET_SHARE: (f64, f64) = (0.33, 2.0);
/// Noise that is allowed for, in its deviations, and at most, seconds.
const NOISE: (f64, f64) = (3.0, 0.06);
/// The part of what overtaken datagrams are waited for that counts as deviation. Only the newest datagrams tell of delays, and those
/// that overtake are the fast ones: how fast depends on how many there are to choose from, and so on the rate itself.
const REORDERING: f64 = 1.0 / 8.0;
/// A path of so long a round trip is far, seconds: it holds more than its queue does, is overfilled before anybody hears of that, and a round trip
/// is long beside its jitter. On shorter ones a queue may be somebody else's, and an outage be taken for jitter. None is longer than the second:
/// what was measured then was an outage.
const FAR: (f64, f64) = (0.3, 1.0);
/// A queue of this share of a round trip is little.
const LITTLE: f64 = 0.04;
/// What jitter adds to a rate that is measured over a round trip is little where that takes so many of its deviations.
const AVERAGED: f64 = 20.0;
/// The part of a higher rate that is believed at least where it may be jitter's.
const DOUBTED: f64 = 0.25;
/// A datagram's transmission that is allowed for at most, seconds.
const MOST_TRANSMISSION: f64 = 0.05;

/// So many lossy rounds are left to a sender that is not held back: a TCP answers within two.
const PATIENT_ROUNDS: u32 = 6;

/// How long a path that is asked whether a rival left is left alone, at first and at most, seconds. Until it is asked, the queue may be
/// long for nobody.
const RIVAL_PATIENCE: (f64, f64) = (5.0, 10.0);
/// For so long after a rival left, another one is believed at once, seconds.
const RIVAL_MEMORY: f64 = 15.0;

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
    /// How long what others overtook stays in flight.
    lateness: f64,
    /// The next number to be sent, and what is in flight.
    next: u64,
    in_flight: f64,
    round: Round,
    /// Places that were lost or confirmed so far.
    settled: f64,
    delays: Delays,
    rates: Rates,
    trains: Trains,
    returned: Returned,
    losses: Losses,
    /// Losses of lower numbers belong to what was answered already.
    answered: u64,
    rival: Option<Rival>,
    rival_ended: f64,
    rival_patience: f64,
    company: Company,
    /// The rate that is believed.
    rate: f64,
    /// The largest of ten rounds; of the last seconds.
    recent_rates: Least,
    late_rates: Least,
    lately: f64,
    variation: Variation,
    /// What was delivered while a queue was too long, the largest of two rounds; 0: none was.
    full_rates: Least,
    delivered_full: f64,
    /// The largest number that is confirmed. Until this one is, a congestion mark counts.
    confirmed: u64,
    marked_to: u64,
    /// When the queue last did not stand.
    stands_since: f64,
    /// The rate that a startup reached, and since how many rounds.
    full_rate: f64,
    full_rounds: u32,
    /// Rounds in a row that lost too much, and how many are left to a sender that is not held back.
    lossy_rounds: u32,
    patient_rounds: u32,
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
    /// The most that was delivered in this refresh while the queue stood.
    queued_rate: f64,
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
    output: Output,
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
            lateness: 0.0,
            next: first,
            in_flight: 0.0,
            round: Round::default(),
            settled: 0.0,
            delays: Delays::default(),
            rates: Rates::default(),
            trains: Trains::default(),
            returned: Returned::default(),
            losses: Losses::default(),
            answered: first,
            rival: None,
            rival_ended: f64::NEG_INFINITY,
            rival_patience: RIVAL_PATIENCE.0,
            company: Company::default(),
            rate: 0.0,
            recent_rates: Least::default(),
            late_rates: Least::default(),
            lately: 0.0,
            variation: Variation::default(),
            full_rates: Least::default(),
            delivered_full: 0.0,
            confirmed: first,
            marked_to: first,
            stands_since: 0.0,
            full_rate: 0.0,
            full_rounds: 0,
            lossy_rounds: 0,
            patient_rounds: PATIENT_ROUNDS,
            free_rounds: 0,
            gain: 1.0,
            pace: 0.0,
            round_pace: 0.0,
            pace_before: 0.0,
            window: INITIAL_WINDOW * FULL,
            refreshed: 0.0,
            refresh_for: 0.0,
            queued_rate: 0.0,
            low: f64::INFINITY,
            failed: 0,
            timed_out: false,
            told_lost: None,
            arrived_us: None,
            queued_at: f64::NEG_INFINITY,
            output: Output::default(),
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
        (NOISE.0 * self.delays.noise().max(REORDERING * self.lateness)).min(NOISE.1)
    }

    /// What one full datagram takes: small ones arrive sooner, and show a shorter delay.
    fn transmission(&self) -> f64 {
        if self.rate > 0.0 { (FULL / self.rate).min(MOST_TRANSMISSION) } else { 0.0 }
    }

    fn target(&self) -> f64 {
        TARGET * target_share(self.rate) + self.noise() + self.transmission()
    }

    fn limit(&self) -> f64 {
        let share = target_share(self.rate).clamp(1.0, 1.5);
        LIMIT * share + 1.5 * self.noise() + 2.0 * self.transmission()
    }

    /// Whether the path's own round trip is as long as a satellite's.
    fn is_far(&self) -> bool {
        self.delays.floor().is_some_and(|floor| floor > FAR.0)
    }

    /// A queue that is none: half of the target, or where delays vary little beside the round trip. The least of ten seconds, over which a
    /// queue is measured, is as far below the mean as jitter makes it.
    fn free_queue(&self) -> f64 {
        let may_vary = self.delays.is_noisy() && self.is_far();
        let little = if may_vary { LITTLE * self.srtt } else { 0.0 };
        (self.target() / 2.0).max(little)
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
        self.queued_rate = 0.0;
        self.low = f64::INFINITY;
        self.begin_withdrawal();
        if deep {
            self.company.restart(t);
        }
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
        // With little to send, what is believed is not what came.
        let came = if self.rates.held_back { self.rate } else { self.rate.min(self.rates.of_trip) };
        self.delays.on_delay(t, delay, came, self.rate, self.srtt, keep_from);
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
        self.settled += f64::from(told.datagrams);
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
                let averaged = self.srtt / (AVERAGED * self.delays.noise()).max(1e-6);
                let share = match noisy {
                    true if self.is_far() => averaged.clamp(DOUBTED, 1.0) * of_round,
                    true => DOUBTED * of_round,
                    false => 1.0,
                };
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
}

/// The share of the target that this rate is content with. All who share a path see one queue: with one target for all, who has
/// more would keep it; with a shorter one for a higher rate, they come to have the same.
fn target_share(rate: f64) -> f64 {
    let (least, most) = TARGET_SHARE;
    if rate > 0.0 { (AT_TARGET / rate).sqrt().clamp(least, most) } else { 1.0 }
}

impl Controller for Model {
    fn window(&self) -> u32 {
        self.output.window
    }

    fn pacing_rate(&self) -> Option<Bitrate> {
        self.output.pace
    }

    fn believed_rate(&self) -> Option<Bitrate> {
        self.output.rate
    }

    fn known_path(&self, now: Instant) -> Option<KnownPath> {
        self.worth_keeping(now)
    }

    fn on_known_path(&mut self, known: KnownPath) {
        self.returned = Returned::with(known);
    }

    fn on_repaired(&mut self) {
        self.patient_rounds = 0;
    }

    fn release_memory(&mut self) {
        self.rates.release_memory();
        self.delays.release_memory();
    }

    fn is_opening(&self) -> bool {
        self.phase == Phase::Startup
    }

    fn path_model(&self) -> Option<PathModel> {
        Some(self.view())
    }

    fn delay_noise(&self) -> Option<Duration> {
        Some(duration(self.delays.noise()))
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
        self.lateness = sample.lateness.as_secs_f64();
        self.round.on_confirmed(places, sample.largest, sample.next);
        self.settled += places;
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
            if self.delays.queue() > self.limit() {
                self.variation.on_queue(t);
            }
            let is_full = self.is_far() && self.queue() > self.limit();
            let full = if is_full { self.rates.short } else { 0.0 };
            self.delivered_full = self.full_rates.note_for_most(real(self.round.number), full, 2.0);
            self.update_rate(confirmed);
        }
        if self.phase == Phase::Cruise {
            let held_back = sample.arrival.is_none_or(|arrival| arrival.held_back);
            self.compete(t, if held_back { places } else { 0.0 }, sample.largest);
        }
        if self.phase == Phase::Startup {
            self.try_known(t, sample);
        }
        match self.phase {
            Phase::Startup => self.startup(t),
            Phase::Drain => self.drain(t),
            Phase::Cruise => self.cruise(t),
            Phase::Refresh { deep } => self.refresh(t, deep),
        }
        self.set_gain(t);
        self.set_pace(t);
        self.set_window(t, confirmed);
        self.set_output();
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
        self.give_up_known();
        self.round.restart(sample.next);
        self.set_output();
    }

    fn on_return(&mut self, _now: Instant) {
        self.timed_out = false;
        self.rate *= AGAIN;
        self.window = (self.window * AGAIN).max(INITIAL_WINDOW * self.place);
        self.pace *= AGAIN;
        self.returned.halve();
        self.set_output();
    }
}

#[cfg(test)]
mod tests;
