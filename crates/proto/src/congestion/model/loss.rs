//! Which losses are the path's own, and which are congestion without a queue.
//!
//! A loss alone says nothing: radio links lose at random. When more is lost than usual and nothing waits, less is sent on trial. If
//! the losses cease, something on the way drops what exceeds a rate (a policer, a queue that is too short to be seen), and for a while no more is
//! sent than came through. If they stay, they are the path's own, and become usual.

use super::round::{Round, Tally};

/// Places of which a share means something.
const ENOUGH: f64 = 150.0;
/// A trial is judged by so many.
const TRIAL_PLACES: f64 = 100.0;
/// Older rounds count less by this.
const FADE: f64 = 0.9;
/// A path that loses more by itself is of no use.
const MOST_USUAL: f64 = 0.3;
/// For how long the rate that came through bounds what is sent, at first and at most, seconds.
const PATIENCE: (f64, f64) = (1.0, 16.0);
/// A trial that could not be judged for lack of traffic ends after so long, seconds.
const TRIAL_TIME: f64 = 2.0;

/// What is known of a path's losses.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    /// The share that is the path's own.
    usual: f64,
    /// Of the last rounds.
    recent: Tally,
    trial: Option<Trial>,
    /// Bytes a second that came through when too much was lost; 0: unknown.
    cap: f64,
    cap_until: f64,
    patience: f64,
}

/// Less is sent.
#[derive(Clone, Copy, Debug)]
struct Trial {
    until: f64,
    /// The share that raised the suspicion.
    suspect: f64,
    cuts: u32,
    cut_at: f64,
}

impl Default for Losses {
    fn default() -> Self {
        Self {
            usual: 0.0,
            recent: Tally::default(),
            trial: None,
            cap: 0.0,
            cap_until: 0.0,
            patience: PATIENCE.0,
        }
    }
}

impl Losses {
    /// The share that is the path's own.
    pub(super) fn usual(&self) -> f64 {
        self.usual
    }

    /// Whether less is sent on trial.
    pub(super) fn on_trial(&self) -> bool {
        self.trial.is_some()
    }

    /// Whether the trial still measures: nothing may grow.
    pub(super) fn is_held(&self, t: f64) -> bool {
        self.trial.is_some_and(|trial| t < trial.until)
    }

    /// What may be sent at most now, bytes a second.
    pub(super) fn cap(&self, t: f64) -> Option<f64> {
        (t < self.cap_until).then_some(self.cap)
    }

    /// The rate at which losses came last, bytes a second; 0: never.
    pub(super) fn last_cap(&self) -> f64 {
        self.cap
    }

    /// More was lost than the path's own share and chance explain.
    pub(super) fn exceeds(&self, round: Tally) -> bool {
        round.lost >= 4.0 && round.lost > (self.usual + 0.05) * round.settled() + 2.0
    }

    /// A round ended.
    pub(super) fn on_round(&mut self, t: f64, round: &Round) {
        self.recent.lost = self.recent.lost * FADE + round.before.lost;
        self.recent.confirmed = self.recent.confirmed * FADE + round.before.confirmed;
        match self.trial {
            Some(trial) if t >= trial.until && self.recent.settled() >= TRIAL_PLACES => {
                self.judge(t, trial);
            }
            Some(trial) if t >= trial.until + TRIAL_TIME => self.trial = None,
            None if self.recent.settled() >= ENOUGH => {
                self.usual = self.usual.min(self.share() + 0.01);
            }
            _ => {}
        }
    }

    /// So many that were lost were only late.
    pub(super) fn take_back(&mut self, found: f64) {
        self.recent.lost = (self.recent.lost - found).max(0.0);
    }

    fn judge(&mut self, t: f64, trial: Trial) {
        let share = self.share();
        self.usual = share.min(MOST_USUAL);
        if share < 0.5 * trial.suspect && self.cap > 0.0 {
            self.cap_until = t + self.patience;
            self.lose_patience();
        } else {
            self.patience = PATIENCE.0;
        }
        self.trial = None;
        self.recent = Tally::default();
    }

    /// Whether there is reason to send less on trial, or still less.
    pub(super) fn is_suspect(&self, t: f64, srtt: f64, round: Tally, queued: bool) -> bool {
        match self.trial {
            None => self.exceeds(round) || self.lasts(),
            Some(trial) => {
                !queued
                    && trial.cuts < 4
                    && t > trial.cut_at + 1.5 * srtt
                    && round.confirmed > 0.0
                    && round.lost > 2.0
                    && round.lost > (self.usual + 0.025) * round.settled()
            }
        }
    }

    /// More than usual is lost for long.
    pub(super) fn lasts(&self) -> bool {
        let (share, settled) = (self.share(), self.recent.settled());
        // Two and a half standard deviations of chance.
        let chance = 2.5 * (share.min(0.05) / settled.max(1.0)).sqrt();
        settled >= ENOUGH && self.recent.lost > 6.0 && share > self.usual + 0.02 + chance
    }

    /// Less is sent from now on than `rate`, which came through; 0 where a queue explains the losses.
    pub(super) fn begin_trial(&mut self, t: f64, srtt: f64, round: Tally, rate: f64) {
        let of_round = round.lost / round.settled().max(1.0);
        let suspect = if self.exceeds(round) { of_round } else { self.share() };
        let cuts = self.trial.map_or(0, |trial| trial.cuts + 1);
        let until = t + (0.25 * self.patience).max(3.0 * srtt);
        self.trial = Some(Trial { until, suspect, cuts, cut_at: t });
        self.cap = rate;
        self.recent = Tally::default();
    }

    /// The path does not follow: it is asked less often.
    pub(super) fn lose_patience(&mut self) {
        self.patience = (self.patience * 2.0).min(PATIENCE.1);
    }

    /// The path follows.
    pub(super) fn regain_patience(&mut self) {
        self.patience = PATIENCE.0;
    }

    fn share(&self) -> f64 {
        self.recent.lost / self.recent.settled().max(1.0)
    }
}
