//! When no acknowledgement comes: a probe of the tail, the end of the tolerance for reordering, and the
//! retransmission timeout. Only one of them runs at a time.

use std::time::Duration;

use ropewalk_proto::time::Instant;

use super::recovery::Repair;
use super::{REORDERING, Sender, State};
use crate::tcp::rtt::MAX_TIMEOUT;
use crate::tcp::{TIMEOUT_MARGIN, after};

/// Added to a probe's time while one segment is under way, whose acknowledgement may be delayed.
const DELAYED_ACK: Duration = Duration::from_millis(200);

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Timer {
    /// When nothing was heard for long.
    Retransmission,
    /// When what is missing is overdue.
    Reordering,
    /// When the end of a flight may be lost.
    Probe,
}

impl Sender {
    /// The time that [`Self::poll_timeout`] named has come.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        let Some((timer, _)) = self.timer.filter(|(_, at)| *at <= now) else { return };
        match timer {
            Timer::Retransmission => self.time_out(now),
            Timer::Reordering => self.end_tolerance(now),
            Timer::Probe => self.probe(now),
        }
    }

    /// Something was acknowledged: the timer begins again.
    pub(super) fn arm(&mut self, now: Instant) {
        if !self.arm_probe(now, true) {
            self.arm_retransmission(now);
        }
    }

    pub(super) fn arm_retransmission(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timer = None;
            return;
        }
        let is_other = matches!(self.timer, Some((Timer::Reordering | Timer::Probe, _)));
        let time = if is_other { self.left_of_timeout(now) } else { self.timeout };
        self.timer = Some((Timer::Retransmission, after(now, time)));
    }

    /// Arms the probe of the tail (RFC 8985 §7); `false` if none is due.
    pub(super) fn arm_probe(&mut self, now: Instant, again: bool) -> bool {
        let is_calm = matches!(self.state, State::Open | State::Reducing);
        if self.board.is_empty() || !is_calm {
            return false;
        }
        let margin = if self.board.len() == 1 { DELAYED_ACK } else { TIMEOUT_MARGIN };
        let time = self.rtt.smoothed().map_or(Duration::from_secs(1), |rtt| 2 * rtt + margin);
        let timeout = if again { self.timeout } else { self.left_of_timeout(now) };
        let time = if timeout.is_zero() { time } else { time.min(timeout) };
        self.timer = Some((Timer::Probe, after(now, time)));
        true
    }

    /// What is left of the timeout of the first segment under way.
    fn left_of_timeout(&self, now: Instant) -> Duration {
        let sent = self.board.head().map_or(now, |head| head.at);
        self.timeout.saturating_sub(now.since(sent))
    }

    /// What is missing for longer than reordering explains is lost.
    fn end_tolerance(&mut self, now: Instant) {
        self.timer = None;
        let in_flight = self.board.in_flight();
        let tolerance = self.tolerance();
        let (lost, _) = self.rack.find_losses(now, &mut self.board, tolerance);
        self.lost += u64::from(lost);
        if self.board.in_flight() != in_flight {
            if self.state != State::Recovery {
                self.begin_recovery();
                self.reduce(1, lost > 0, false);
            }
            self.repair(now, Repair::Lost);
        }
        if !matches!(self.timer, Some((Timer::Retransmission, _))) {
            self.arm_retransmission(now);
        }
    }

    /// Sends one more segment, or the last one again, so that a loss at the end shows.
    fn probe(&mut self, now: Instant) {
        if self.probe_end.is_none() {
            let sent_new = self.nxt < self.end && self.send_new(now, true);
            if !sent_new && let Some(last) = self.board.places().next_back() {
                self.repeat(now, last, false);
            }
            self.probe_again = !sent_new;
            self.probe_end = Some(self.nxt);
            self.stats.probes += 1;
            self.timer = None;
        }
        self.arm_retransmission(now);
    }

    fn time_out(&mut self, now: Instant) {
        if self.board.is_empty() {
            self.timer = None;
            return;
        }
        self.stats.timeouts += 1;
        self.enter_loss(now);
        self.timeouts_in_a_row += 1;
        self.send_again(now, 0);
        self.timeout = (2 * self.timeout).min(MAX_TIMEOUT);
        self.timer = Some((Timer::Retransmission, after(now, self.timeout)));
    }

    /// All that was not sent just now is lost.
    fn enter_loss(&mut self, now: Instant) {
        let is_new = self.state < State::Recovery;
        for place in self.board.places() {
            let recent = |at| self.rack.remaining(now, at, Duration::ZERO).is_some();
            if place > 0 && self.board.get(place).is_some_and(|sent| recent(sent.at)) {
                continue;
            }
            self.lost += u64::from(self.board.lose(place));
        }
        let begins = self.state <= State::Disorder
            || self.una >= self.high
            || (self.state == State::Loss && self.timeouts_in_a_row == 0);
        if begins {
            self.prior_ssthresh = Some(self.threshold_now());
            self.prior_cwnd = self.cwnd;
            self.ssthresh = self.cubic.lost(self.cwnd);
            self.begin_undo();
        }
        self.cwnd = self.board.in_flight() + 1;
        self.cubic.forget_count();
        if self.state <= State::Disorder && self.board.sacked() >= REORDERING {
            self.reordering = self.reordering.min(REORDERING);
        }
        self.state = State::Loss;
        self.cubic.timed_out(now, self.nxt);
        self.high = self.nxt;
        self.probe_end = None;
        self.frto = is_new || self.timeouts_in_a_row > 0;
    }
}
