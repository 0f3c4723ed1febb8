//! What follows from an acknowledgement for losses and the window: the state machine of Linux, with RACK
//! to find losses (RFC 8985), proportional rate reduction to repair them (RFC 6937), and F-RTO to judge
//! timeouts (RFC 5682).

use ropewalk_proto::time::Instant;

use super::ack::{Before, News};
use super::timers::Timer;
use super::{NO_THRESHOLD, Sender, State};
use crate::tcp::rack::Reordering;
use crate::tcp::{TIMEOUT_MARGIN, after};

/// What is to be sent before anything else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Repair {
    /// Nothing.
    Nothing,
    /// What is lost.
    Lost,
    /// New data, to see whether a timeout was needless.
    New,
}

impl Sender {
    /// Judges what an acknowledgement told. `repeated`: it told nothing at all, for the second time.
    pub(super) fn judge(
        &mut self,
        now: Instant,
        before: &Before,
        repeated: bool,
        news: &mut News,
    ) -> Repair {
        if self.state == State::Open {
            self.repair_began = None;
        } else if self.una >= self.high {
            self.end_state();
        }
        match self.state {
            State::Recovery => {
                if news.advanced && self.undo_partly(before.una) == Partly::Wait {
                    return Repair::Nothing;
                }
                if self.undo_by_duplicates() {
                    self.settle();
                }
                self.find_losses(now, news);
                if self.state != State::Recovery {
                    if self.board.lost() == 0 {
                        return Repair::Nothing;
                    }
                    self.begin_recovery();
                }
                Repair::Lost
            }
            State::Loss => {
                let repair = self.judge_timeout(repeated, news);
                self.find_losses(now, news);
                if self.state == State::Open || news.repair_lost {
                    return self.judge_open(now, news);
                }
                repair
            }
            State::Open | State::Disorder | State::Reducing => self.judge_open(now, news),
        }
    }

    /// What the present state was about is acknowledged.
    fn end_state(&mut self) {
        match self.state {
            State::Reducing if self.una > self.high => {
                self.end_reduction();
                self.state = State::Open;
            }
            State::Recovery => {
                self.undo_at_end();
                self.end_reduction();
            }
            _ => {}
        }
    }

    fn judge_open(&mut self, now: Instant, news: &mut News) -> Repair {
        if self.state <= State::Disorder {
            self.undo_by_duplicates();
        }
        self.find_losses(now, news);
        if self.board.lost() == 0 {
            self.settle();
            return Repair::Nothing;
        }
        self.begin_recovery();
        Repair::Lost
    }

    /// After a timeout: all is repaired, or the timeout was needless, or there is more to repair.
    fn judge_timeout(&mut self, repeated: bool, news: &News) -> Repair {
        let recovered = self.una >= self.high;
        if news.advanced && self.undo_timeout(false) {
            return Repair::Nothing;
        }
        if self.frto {
            if news.original_came && self.undo_timeout(true) {
                return Repair::Nothing;
            }
            if self.nxt > self.high {
                self.frto &= !(news.sacked || repeated);
            } else if news.advanced && !recovered {
                self.high = self.nxt;
                if self.nxt < self.end && self.nxt < self.una + self.window {
                    return Repair::New;
                }
                self.frto = false;
            }
        }
        if recovered {
            self.undo_at_end();
            return Repair::Nothing;
        }
        Repair::Lost
    }

    /// Looks for losses if something came that may show one.
    fn find_losses(&mut self, now: Instant, news: &mut News) {
        if self.board.is_empty() || !self.rack.advanced {
            return;
        }
        self.rack.advanced = false;
        let repairs = self.board.again();
        let tolerance = self.tolerance();
        let (lost, later) = self.rack.find_losses(now, &mut self.board, tolerance);
        self.lost += u64::from(lost);
        if let Some(later) = later {
            self.timer = Some((Timer::Reordering, after(now, later + TIMEOUT_MARGIN)));
            news.rearm = false;
        }
        news.repair_lost = self.board.again() < repairs;
    }

    /// How much later than what was sent after it a segment may come.
    pub(super) fn tolerance(&self) -> std::time::Duration {
        let reordering = Reordering {
            seen: self.reordering_seen,
            recovering: self.state >= State::Recovery,
            over_threshold: self.board.sacked() >= self.reordering,
        };
        self.rack.tolerance(reordering, &self.rtt)
    }

    pub(super) fn begin_recovery(&mut self) {
        self.stats.recoveries += 1;
        self.forget_repairs();
        self.prior_ssthresh = None;
        self.begin_undo();
        if !self.is_reducing() {
            self.prior_ssthresh = Some(self.threshold_now());
            self.begin_reduction();
        }
        self.state = State::Recovery;
    }

    pub(super) fn begin_reduction(&mut self) {
        self.high = self.nxt;
        self.probe_end = None;
        self.cubic.forget_count();
        self.prior_cwnd = self.cwnd;
        (self.prr_delivered, self.prr_out) = (0, 0);
        self.ssthresh = self.cubic.lost(self.cwnd);
    }

    pub(super) fn end_reduction(&mut self) {
        let is_due = self.state == State::Reducing || self.undo_from.is_some();
        if self.ssthresh < NO_THRESHOLD && is_due {
            self.cwnd = self.ssthresh;
        }
    }

    /// The threshold to return to: after slow start three quarters of the window.
    pub(super) fn threshold_now(&self) -> u32 {
        if self.is_reducing() {
            return self.ssthresh;
        }
        self.ssthresh.max(self.cwnd / 2 + self.cwnd / 4)
    }

    /// Goes to one of the states without a repair.
    pub(super) fn settle(&mut self) {
        self.forget_repairs();
        if self.state != State::Reducing {
            self.keep_open();
        }
    }

    pub(super) fn keep_open(&mut self) {
        let is_left = self.board.sacked() + self.board.lost() > 0 || self.was_repaired();
        let state = if is_left { State::Disorder } else { State::Open };
        if self.state != state {
            self.state = state;
            self.high = self.nxt;
        }
    }

    /// The window, at the end of an acknowledgement.
    pub(super) fn control(&mut self, now: Instant, before: &Before, news: &News) {
        let delivered = u32::try_from(self.delivered - before.delivered).unwrap_or(u32::MAX);
        if self.is_reducing() {
            self.reduce(delivered, self.lost > before.lost, news.advanced);
        } else if self.may_grow(news) {
            self.grow(now, delivered);
        }
    }

    /// Proportional rate reduction (RFC 6937): what is sent follows what came.
    pub(super) fn reduce(&mut self, delivered: u32, lost_more: bool, advanced: bool) {
        if delivered == 0 {
            return;
        }
        self.prr_delivered += delivered;
        let in_flight = self.board.in_flight();
        let allowed = if in_flight > self.ssthresh {
            let share = u64::from(self.ssthresh) * u64::from(self.prr_delivered);
            let share = share.div_ceil(u64::from(self.prior_cwnd.max(1)));
            u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(self.prr_out)
        } else {
            let conserved = self.prr_delivered.saturating_sub(self.prr_out).max(delivered);
            let faster = u32::from(advanced && !lost_more);
            (conserved + faster).min(self.ssthresh - in_flight)
        };
        // The first repetition always goes out.
        self.cwnd = in_flight + allowed.max(u32::from(self.prr_out == 0));
    }

    fn grow(&mut self, now: Instant, delivered: u32) {
        if !self.window_is_used() {
            return;
        }
        let mut acked = delivered;
        if self.in_slow_start() {
            let window = self.cwnd.saturating_add(acked).min(self.ssthresh);
            acked -= window - self.cwnd;
            self.cwnd = window;
        }
        if acked > 0 {
            self.cwnd = self.cubic.grow(now, self.cwnd, acked);
        }
    }

    /// A tail loss probe's flight is acknowledged: if the probe repeated something that came only once, that
    /// one was lost.
    pub(super) fn end_probe(&mut self, number: u64, news: &News) {
        let Some(end) = self.probe_end.filter(|end| number >= *end) else { return };
        if !self.probe_again || news.duplicate_probe {
            self.probe_end = None;
        } else if number > end {
            self.begin_reduction();
            self.state = State::Reducing;
            self.end_reduction();
            self.keep_open();
        } else if !news.advanced && news.is_repetition() && !news.sacked {
            self.probe_end = None;
        }
    }
}

/// What a partial acknowledgement showed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Partly {
    /// The first transmission came, but repetitions are under way: nothing more is to be sent again.
    Wait,
    /// All else.
    GoOn,
}
