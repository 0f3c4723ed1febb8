//! What ends each phase, and what begins then.

use super::rate::Rates;
use super::returned::Returned;
use super::{FAR, Model, Phase, RIVAL_MEMORY, TARGET};

/// A rate of this much less than trains show is no sign that the path is full.
const TRAIN_DOUBT: f64 = 0.8;

/// Places of a far path before which losses do not end its startup: the first ones on a link that reorders were overtaken, and come later. On a
/// near one the rate is found again soon.
const FIRST_PLACES: f64 = 48.0;

/// Of what came out of a full queue this much is sent at least when it has lost something.
const OVERFLOWN: f64 = 0.85;

/// How often a refresh is due, seconds.
const REFRESH: f64 = 4.0;

/// The queue stands for so long, seconds and round trips, while so much less is sent than lately: somebody else keeps it.
pub(super) const YIELDED: (f64, f64, f64) = (0.1, 4.0, 0.85);

/// After somebody seemed to have left, a queue that is too long is theirs: at first one that is so many times too long, after
/// so many seconds any. Two of us that found each other gone need a moment to share.
const STILL: (f64, f64) = (2.0, 2.0);

/// "Lately", seconds: long enough that what is given way with shows, and short enough that a link whose rate varies is not taken for
/// one that somebody else uses.
const LATELY: f64 = 2.0;

/// So long after a refresh began, what arrives does so at the rate of the queue that stands, seconds.
const SETTLED: f64 = 0.04;

impl Model {
    pub(super) fn startup(&mut self, t: f64) {
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
        let may_end = self.srtt <= FAR.0 || self.settled >= FIRST_PLACES;
        let exceeds = may_end && self.losses.exceeds(self.round.present);
        let loses = self.must_answer() && (exceeds || self.losses.lasts());
        let waits = self.queue() > limit
            && self.delays.is_known()
            && (!noisy || self.full_rounds >= 1 || stands);
        // A burst of its own waits for itself. What a link that is back begins with is none: it is paced.
        let is_back = self.returned.is_under_way();
        let is_burst = !noisy
            && !stands
            && !is_back
            && self.trains.rate().is_some_and(|most| self.rates.of_trip < TRAIN_DOUBT * most);
        if is_full || loses || waits && !is_burst {
            let now = self.rates.short.max(self.rates.of_trip);
            // What it had before is no measurement, and its pace held that back.
            if (held_back || is_back) && (!is_full || now < self.rate) {
                self.rate = now;
            }
            self.returned = Returned::default();
            self.recent_rates.clear();
            // Its own losses are answered by this.
            self.answered = self.next;
            self.round.forget();
            self.enter(t, Phase::Drain);
        }
    }

    pub(super) fn drain(&mut self, t: f64) {
        let floor = self.delays.floor().unwrap_or(self.srtt).min(self.srtt);
        let drained = self.queue() < 0.5 * self.limit()
            && (self.rounds_in_phase() >= 1 || self.in_flight <= self.rate * floor);
        if drained || t - self.since > 3.0 * self.srtt + 0.2 {
            self.refreshed = t;
            self.company.restart(t);
            self.enter(t, Phase::Cruise);
        }
    }

    pub(super) fn cruise(&mut self, t: f64) {
        let (queue, limit) = (self.queue(), self.limit());
        self.note_low(queue);
        if self.round.begins {
            self.cruise_round(t);
            if self.is_longer(t) {
                self.accept_delay(t);
                return;
            }
        }
        if queue < self.target() / 4.0 {
            self.refreshed = t;
        }
        self.note_alone(t);
        let deep_length = 2.0 * self.srtt + 2.0 * queue;
        let since_refresh = t - self.refreshed;
        if self.rival.is_some() {
            if self.is_question_due(t) {
                self.begin_refresh(t, false, 0.0);
            }
        } else if self.has_yielded(t) {
            self.begin_refresh(t, true, deep_length);
        } else if self.is_still_there(t) {
            self.meet_again(t);
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

    /// A sender that is not held back answers losses itself, if it hears of them and ever does.
    pub(super) fn must_answer(&self) -> bool {
        self.rates.held_back || self.lossy_rounds >= self.patient_rounds
    }

    /// A round of cruising ended.
    pub(super) fn cruise_round(&mut self, t: f64) {
        let (queue, limit) = (self.queue(), self.limit());
        let free = self.free_queue();
        let Rates { of_trip, short, held_back, .. } = self.rates;
        let before = self.round.before;
        let queued = queue >= limit;
        let suspect = self.losses.is_suspect(t, self.srtt, before, queued)
            && (self.must_answer() || self.losses.on_trial());
        if suspect && self.rounds_in_phase() >= 1 && self.rival.is_none() {
            let now = of_trip.min(short.max(0.7 * of_trip));
            let now = if queued { now } else { 0.95 * short.min(now) };
            // If a queue was too long lately it lost them, and what came out of it is what the path carries.
            let now = now.max(OVERFLOWN * self.delivered_full);
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
        } else if held_back && queue < free && !self.losses.is_held(t) {
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
            if queue >= free {
                self.losses.regain_patience();
            }
        }
    }

    /// Somebody seemed to have left lately, and a queue stands; or, if the queue is too short to stand, datagrams are lost and we do not have
    /// what we had alone.
    fn is_still_there(&self, t: f64) -> bool {
        let (times, after) = STILL;
        let since = t - self.rival_ended;
        if since > RIVAL_MEMORY {
            return false;
        }
        let standing = self.delays.standing();
        if since < after {
            return standing > times * self.limit();
        }
        let loses = self.rates.held_back && self.round.before.lost > 0.0;
        standing > self.limit() || loses && self.lacks(t)
    }

    /// Less is sent than lately, and the queue stands all the same.
    pub(super) fn has_yielded(&mut self, t: f64) -> bool {
        let (seconds, trips, share) = YIELDED;
        self.lately = self.late_rates.note_for_most(t, self.rate, LATELY);
        if self.lately > 0.0 {
            self.variation.on_rate(t, self.rate / self.lately);
        }
        if self.delays.standing() < self.target() {
            self.stands_since = t;
        }
        t - self.stands_since > seconds + trips * self.srtt && self.rate < share * self.lately
    }

    pub(super) fn refresh(&mut self, t: f64, deep: bool) {
        let (queue, limit) = (self.delays.queue(), self.limit());
        self.low = self.low.min(queue);
        // What was under way when it began makes the queue longer still.
        if deep {
            self.refresh_for = self.refresh_for.max(2.0 * (self.srtt + queue));
        }
        // At first the measurement still holds what came before the queue.
        if queue > limit && t - self.since > SETTLED {
            self.queued_rate = self.queued_rate.max(self.rates.short);
        }
        if let Some(rival) = &mut self.rival {
            if self.round.number - self.since_round >= 2 {
                if queue < 0.7 * limit {
                    self.leave_company(t);
                } else {
                    rival.pause(t - self.since);
                    self.note_withdrawal(t);
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
                // The queue was ours alone: what was delivered beside it is what there is.
                if deep && self.queued_rate > 0.0 {
                    self.rate = self.rate.min(self.queued_rate);
                }
            } else {
                self.failed += 1;
                if deep {
                    self.meet_company(t, self.since, self.low);
                }
            }
            self.refreshed = t;
            self.free_rounds = 0;
            self.enter(t, Phase::Cruise);
        }
    }
}
