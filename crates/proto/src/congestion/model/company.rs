//! Who else sends over the path, and how much of it is a fair part.
//!
//! A queue that stays though less is sent is not ours. Either somebody else keeps it, or it is no queue: the path itself became
//! longer (a satellite's handover). Sending less, and then more, tells which:
//!
//! | sent on purpose | the queue | so |
//! | --- | --- | --- |
//! | less | goes | it was ours |
//! | less | gets shorter by a part | somebody else is there, and `what was withdrawn / how much shorter` is what the path carries for all |
//! | less | stays as it is | in doubt: the path became longer, or our share is too small to be seen |
//! | in doubt, then more each round | grows by all of it, or we have what we had alone | the path became longer: what was seen since is its delay |
//! | in doubt, then more each round | grows by a part of it | somebody else is there |
//!
//! Beside somebody else the window is CUBIC's ([`Rival`]), held to about half of what the path carries where that is known: from the time in
//! which nobody else was there, or else from what was withdrawn. As long as neither is known, half of what is in flight is withdrawn when it
//! is asked who is there: less shows little beside a queue that somebody else makes longer and shorter.

use arrayvec::ArrayVec;

use super::rival::Rival;
use super::{Model, Phase, RIVAL_MEMORY, RIVAL_PATIENCE};

/// The queue is kept short for so long, and stood so lately: the rate is what the path carries, seconds. Who begins beside a rival
/// does not see that for so long.
const OBEYS: (f64, f64) = (5.0, 2.0);
/// Of the largest rate lately: with less the rate falls, since somebody else takes what is given way with.
const STEADY: f64 = 0.9;
/// For so long what the path carried is what it carries, seconds. Later it may have become another path.
const KNOWN: f64 = 60.0;
/// Shares of that. Below the first more is sent than CUBIC would, above the second no more than now, above the third less.
const SHARES: (f64, f64, f64) = (0.45, 0.5, 0.55);
/// The first of these where only what was withdrawn shows what the path carries: it can be wrong by a third.
const LEAST_SHARE: f64 = 0.38;
/// By this share of what is confirmed the window then shrinks, or grows beyond CUBIC's: a tenth a round trip.
const CORRECTION: f64 = 0.1;
/// A share of what was seen alone with which nobody else can be there.
const ALL: f64 = 0.95;
/// A share of it with which somebody is there still.
const LACK: f64 = 0.85;
/// What is withdrawn shows what the path carries if the queue becomes shorter by this share: less may be somebody else's doing.
const TELLING: f64 = 0.15;
/// This share of what is in flight remains when it is asked who is there, while it is not known what the path carries.
const WITHDRAWN: f64 = 0.5;
/// Of what the first withdrawal shows: while the other still answers our arrival the queue becomes shorter by less than is withdrawn.
const FIRST: f64 = 0.85;
/// So many times what is delivered of ours the path carries at least, if somebody else is there.
const MORE: f64 = 1.1;
/// The queue became shorter by less than this share of what it would if it were ours: nothing changed.
const UNCHANGED: f64 = 0.2;
/// More is sent, and the queue grows as if the path carried no more than so many times what is delivered: nobody else is there. With half of it
/// ours that is two.
const ALONE: f64 = 1.7;
/// So many rounds are enough to see that: the window grows by a quarter in each.
const DOUBTFUL_ROUNDS: u32 = 12;
/// What is sent in a round shows in the queue of the next one; a round's difference alone is too small.
const STEPS: usize = 4;
/// Who else is there is asked no sooner than this after the last time, seconds.
const SOONEST_QUESTION: f64 = 1.0;
/// A queue of less than this share of its mean is none that a CUBIC sender's answer to a loss leaves (0.7).
const QUESTION: f64 = 0.6;
/// A change of the queue that means something, seconds, beside noise.
const CHANGE: f64 = 0.004;

/// What there was before less was sent.
#[derive(Clone, Copy, Debug, Default)]
struct Withdrawal {
    /// Bytes.
    in_flight: f64,
    /// Seconds.
    queue: f64,
    /// Bytes a second.
    delivered: f64,
}

/// What is known of others on the path.
#[derive(Clone, Debug)]
pub(super) struct Company {
    /// Bytes a second while nobody else was there, and when that was last so.
    alone: (f64, f64),
    /// What withdrawing showed, and when: the lesser of the last two times.
    withdrawn: (f64, f64),
    /// What the last withdrawal showed, bytes a second; infinite: nothing that counts.
    shown: f64,
    /// Since when the queue is as short as it is asked to be.
    obeys_since: f64,
    /// When less was sent on purpose last.
    before: Withdrawal,
    /// Since when the queue is not believed to be ours.
    suspected: f64,
    /// Rounds that are left to see whether the path became longer; 0: there is no doubt.
    doubtful: u32,
    /// What waits beside somebody else, in the mean.
    usual_queue: f64,
    /// The window beside somebody who seems to have left.
    left: Option<Rival>,
    /// Bytes in the window, and the least queue, of the last rounds of doubt, the oldest first.
    steps: ArrayVec<(f64, f64), STEPS>,
    /// The least queue of this round.
    low: f64,
}

impl Default for Company {
    fn default() -> Self {
        Self {
            alone: (0.0, f64::NEG_INFINITY),
            withdrawn: (0.0, f64::NEG_INFINITY),
            shown: f64::INFINITY,
            obeys_since: 0.0,
            before: Withdrawal::default(),
            suspected: f64::NEG_INFINITY,
            doubtful: 0,
            usual_queue: 0.0,
            left: None,
            steps: ArrayVec::new(),
            low: f64::INFINITY,
        }
    }
}

/// A rate that was seen, if that is not too long ago.
fn known((rate, at): (f64, f64), t: f64) -> Option<f64> {
    (rate > 0.0 && t - at < KNOWN).then_some(rate)
}

impl Company {
    /// The queue does not do as it is asked, or there is reason to think so.
    pub(super) fn restart(&mut self, t: f64) {
        self.obeys_since = t;
    }

    /// What the path carries for all, if it is known.
    fn path_rate(&self, t: f64) -> Option<f64> {
        known(self.alone, t).or_else(|| known(self.withdrawn, t))
    }

    /// What may be in flight, in bytes, while it is asked who is there.
    pub(super) fn withdrawn_window(&self, t: f64) -> f64 {
        self.path_rate(t).map_or(WITHDRAWN * self.before.in_flight, |_| f64::INFINITY)
    }

    /// A withdrawal showed that the path carries so much.
    fn show(&mut self, t: f64, rate: f64) {
        self.withdrawn = (rate.min(self.shown), t);
        self.shown = rate;
    }

    /// What withdrawals showed was wrong.
    fn forget_shown(&mut self) {
        (self.withdrawn.0, self.shown) = (0.0, f64::INFINITY);
    }

    /// Whether so much is all that was delivered while nobody else was there.
    fn is_all(&self, t: f64, rate: f64) -> bool {
        known(self.alone, t).is_some_and(|alone| rate > ALL * alone)
    }
}

impl Model {
    /// Notes what the path carries while the queue is as short as it is asked to be, and stands.
    pub(super) fn note_alone(&mut self, t: f64) {
        let (long, lately) = OBEYS;
        let obeys = self.rival.is_none()
            && t - self.rival_ended > RIVAL_MEMORY
            && self.delays.standing() <= self.limit()
            && self.rate >= STEADY * self.lately;
        if !obeys || t - self.queued_at > lately {
            self.company.obeys_since = t;
        } else if t - self.company.obeys_since > long {
            self.company.alone = (self.lately, t);
        }
    }

    /// Less is sent on purpose from now on.
    pub(super) fn begin_withdrawal(&mut self) {
        let (in_flight, queue) = (self.in_flight, self.delays.queue());
        self.company.before = Withdrawal { in_flight, queue, delivered: self.rates.of_trip };
    }

    /// Less was sent for long enough to show in the queue. What all have in flight is what the path carries in its delay and the queue, and others
    /// keep what they have for a round trip.
    pub(super) fn note_withdrawal(&mut self, t: f64) {
        let Withdrawal { in_flight, queue, delivered } = self.company.before;
        let (less, shorter) = (in_flight - self.in_flight, queue - self.delays.queue());
        let shows = shorter > CHANGE + 2.0 * self.noise() && shorter >= TELLING * queue;
        if !shows || less <= 4.0 * self.place {
            return;
        }
        let rate = less / shorter;
        if rate <= MORE * delivered {
            // Beside somebody else the path carries more than what is delivered of ours: it became slower, or the other one sent less, too.
            self.company.forget_shown();
        } else if self.rival.is_none() {
            self.company.show(t, FIRST * rate);
        } else {
            self.company.show(t, rate);
        }
    }

    /// A queue stayed though less was sent, since the moment `since`. At its shortest it was `low`.
    pub(super) fn meet_company(&mut self, t: f64, since: f64, low: f64) {
        self.note_withdrawal(t);
        let Withdrawal { in_flight, queue, .. } = self.company.before;
        let ours = ((in_flight - self.in_flight) / self.lately.max(1.0)).min(queue);
        let sure = CHANGE + 2.0 * (self.noise() + self.transmission());
        let unchanged = ours > sure && queue - low < UNCHANGED * ours;
        self.company.doubtful = if unchanged { DOUBTFUL_ROUNDS } else { 0 };
        self.company.suspected = since;
        self.company.steps.clear();
        self.meet_rival(t);
    }

    /// A round beside somebody else ended, or beside nobody, if the path became longer. Returns whether that is so.
    pub(super) fn is_longer(&mut self, t: f64) -> bool {
        let low = std::mem::replace(&mut self.company.low, f64::INFINITY);
        let regains = self.rival.as_ref().filter(|rival| rival.regains());
        let Some(rival) = regains.filter(|_| self.company.doubtful > 0) else {
            self.company.doubtful = 0;
            return false;
        };
        let window = rival.window * self.place;
        let company = &mut self.company;
        company.doubtful -= 1;
        if company.steps.is_full() {
            company.steps.remove(0);
        }
        company.steps.push((window, low));
        let [(first, _), (_, then), (last, _), (_, now)] = company.steps[..] else { return false };
        let (more, longer) = (last - first, now - then);
        let delivered = self.rates.of_trip;
        let grows = longer > CHANGE + 2.0 * self.noise() + self.transmission().min(0.01);
        self.company.is_all(t, delivered)
            || grows && more > 0.0 && more / longer < ALONE * delivered
    }

    /// The path became longer: what was seen since is its delay.
    pub(super) fn accept_delay(&mut self, t: f64) {
        self.rival = None;
        (self.company.doubtful, self.failed) = (0, 0);
        self.rate = self.rates.of_trip;
        self.delays.restart(self.company.suspected);
        self.refreshed = t;
        self.enter(t, Phase::Drain);
    }

    /// Nothing waits any more while we have little under way: whoever was there left, as it seems.
    pub(super) fn leave_company(&mut self, t: f64) {
        self.company.left = self.rival.take();
        (self.rival_ended, self.failed) = (t, 0);
    }

    /// So much waits now, in a round that goes on.
    pub(super) fn note_low(&mut self, queue: f64) {
        self.company.low = self.company.low.min(queue);
    }

    /// Whether much less is delivered than while nobody else was there.
    pub(super) fn lacks(&self, t: f64) -> bool {
        known(self.company.alone, t).is_some_and(|alone| self.rates.of_trip < LACK * alone)
    }

    /// A round beside somebody else ended. Returns whether the queue is much shorter than it was: somebody else asks who is there. If
    /// we ask at once, too, and there are only such as we, all see that nobody keeps the queue.
    fn is_asked(&mut self) -> bool {
        let (queue, usual) = (self.delays.queue(), self.company.usual_queue);
        let first = usual <= 0.0;
        self.company.usual_queue += (queue - usual) / if first { 1.0 } else { 8.0 };
        !first && queue < QUESTION * usual
    }

    /// Whether it is time to see if somebody else is there still.
    pub(super) fn is_question_due(&mut self, t: f64) -> bool {
        let since = t - self.since;
        let is_asked = self.round.begins && self.is_asked();
        if since > self.rival_patience {
            self.rival_patience = (self.rival_patience * 1.5).min(RIVAL_PATIENCE.1);
            return true;
        }
        let settled = self.rounds_in_phase() > 2 && since > SOONEST_QUESTION;
        settled && self.has_all(t) || is_asked && since > RIVAL_PATIENCE.0 / 2.0
    }

    /// Whether what is delivered beside somebody else is all that was delivered without, and a queue stands.
    fn has_all(&self, t: f64) -> bool {
        self.company.doubtful == 0
            && self.company.is_all(t, self.rates.of_trip)
            && self.delays.queue() > self.limit()
    }

    /// The window beside somebody else: so many places were confirmed. If it is known what the path carries, half of that is ours.
    pub(super) fn compete(&mut self, t: f64, places: f64, largest: u64) {
        if self.rival.is_none() {
            return;
        }
        let (queue, limit, target) = (self.delays.queue(), self.limit(), self.target());
        let path_rate = self.company.path_rate(t).filter(|_| self.company.doubtful == 0);
        let share = path_rate.map(|rate| self.rates.of_trip / rate);
        let (below, half, above) = SHARES;
        let below = known(self.company.alone, t).map_or(LEAST_SHARE, |_| below);
        let Some(rival) = &mut self.rival else { return };
        match share {
            Some(share) if share > above && queue > limit => {
                rival.give_way(t, CORRECTION * places, largest);
            }
            Some(share) if share > half && queue > target => rival.hold(t),
            _ => {
                rival.on_confirmed(t, self.srtt, places, largest);
                if share.is_some_and(|share| share < below) {
                    rival.push(CORRECTION * places, largest);
                }
            }
        }
    }

    /// The one who seemed to have left is still there: it goes on as before.
    pub(super) fn meet_again(&mut self, t: f64) {
        if let Some(mut rival) = self.company.left.take() {
            rival.hold(t);
            self.rival = Some(rival);
            self.recent_rates.clear();
        } else {
            self.meet_rival(t);
        }
    }

    fn meet_rival(&mut self, t: f64) {
        // What was given way with before it was known is taken back.
        let half = 0.75 * self.lately * self.srtt / self.place;
        let window = (self.in_flight / self.place).max(half).max(10.0);
        self.rival = Some(Rival::new(t, window, self.next));
        self.rival_patience = RIVAL_PATIENCE.0;
        self.company.usual_queue = 0.0;
        self.recent_rates.clear();
    }
}
