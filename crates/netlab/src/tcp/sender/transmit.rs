//! What may be sent now: first what is lost, then new data.

use ropewalk_proto::time::Instant;

use super::recovery::Repair;
use super::timers::Timer;
use super::{Sender, State};
use crate::tcp::{after, clock};

/// What a socket holds at most of data that are not acknowledged: the default of `tcp_wmem`, of which full
/// segments use two thirds for their own bytes.
const SEND_BUFFER: u64 = 4 << 20;
const BUFFER_SHARE: (u64, u64) = (2, 3);

impl Sender {
    pub(super) fn repair(&mut self, now: Instant, repair: Repair) {
        match repair {
            Repair::Nothing => {}
            Repair::Lost => self.send_lost(now),
            Repair::New => {
                self.send_new(now, false);
                if self.nxt <= self.high {
                    self.frto = false;
                    self.send_lost(now);
                }
            }
        }
    }

    /// Sends again what is lost, as the window allows.
    pub(super) fn send_lost(&mut self, now: Instant) {
        let mut place = 0;
        while self.board.in_flight() < self.cwnd && self.board.again() < self.board.lost() {
            let Some(sent) = self.board.get(place) else { break };
            if sent.lost && !sent.sacked && !sent.again {
                self.send_again(now, place);
                if self.is_reducing() {
                    self.prr_out += 1;
                }
                let is_for_reordering = matches!(self.timer, Some((Timer::Reordering, _)));
                if place == 0 && !is_for_reordering {
                    self.timer = Some((Timer::Retransmission, after(now, self.timeout)));
                }
            }
            place += 1;
        }
    }

    /// Sends one segment again, as the repair of a loss.
    pub(super) fn send_again(&mut self, now: Instant, place: usize) {
        self.repeat(now, place, true);
        self.repair_began.get_or_insert(clock(now));
        self.undo_left = Some(self.undo_left.unwrap_or(0) + 1);
    }

    /// Sends one segment again; `counts`: as under way a second time.
    pub(super) fn repeat(&mut self, now: Instant, place: usize, counts: bool) {
        self.board.split(place, self.mss);
        let Some(sent) = self.board.get(place) else { return };
        self.out.push_back(sent.bytes.clone());
        self.board.sent_again(place, now, self.delivered, counts);
        self.stats.segments += 1;
        self.stats.retransmissions += 1;
    }

    /// Sends new data, as the windows allow; as a `probe` one segment whatever the own window says. Returns
    /// whether anything was sent.
    pub(super) fn send_new(&mut self, now: Instant, probe: bool) -> bool {
        let mut sent = 0;
        while self.board.in_flight() < self.cwnd || (probe && sent == 0) {
            let len = (self.end - self.nxt).min(self.mss);
            let limit = self.window.min(SEND_BUFFER * BUFFER_SHARE.0 / BUFFER_SHARE.1);
            if len == 0 || self.nxt + len > self.una + limit {
                break;
            }
            self.send_next(now, len);
            sent += 1;
            if probe {
                break;
            }
        }
        let is_full = self.board.in_flight() >= self.cwnd;
        if sent > 0 || is_full {
            self.note_use(is_full);
        }
        if sent > 0 && self.is_reducing() {
            self.prr_out += sent;
        }
        if sent > 0 && !probe {
            self.arm_probe(now, false);
        }
        sent > 0
    }

    fn send_next(&mut self, now: Instant, len: u64) {
        let bytes = self.nxt..self.nxt + len;
        let was_idle = self.board.is_empty();
        self.nxt = bytes.end;
        self.board.push(bytes.clone(), now, self.delivered);
        self.out.push_back(bytes);
        self.stats.segments += 1;
        if was_idle || matches!(self.timer, Some((Timer::Probe, _))) {
            self.arm_retransmission(now);
        }
    }

    /// Notes whether the window limits (RFC 7661): the strongest sign of a flight counts.
    fn note_use(&mut self, is_full: bool) {
        let flight = self.board.len();
        let is_new = self.una >= self.flight_end;
        if is_new || is_full || (!self.window_limits && flight > self.flight) {
            self.window_limits = is_full;
            self.flight = flight;
            self.flight_end = self.nxt;
        }
    }

    /// Whether the window is used, so that a larger one would be.
    pub(super) fn window_is_used(&self) -> bool {
        self.window_limits || (self.in_slow_start() && self.cwnd < 2 * self.flight)
    }

    /// All segments larger than fits now are lost, which is nobody's congestion.
    pub(super) fn lose_too_large(&mut self, now: Instant) {
        for place in self.board.places() {
            let too_large = |bytes: &std::ops::Range<u64>| bytes.end - bytes.start > self.mss;
            if self.board.get(place).is_some_and(|sent| too_large(&sent.bytes)) {
                self.lost += u64::from(self.board.lose(place));
            }
        }
        if self.board.lost() == 0 {
            return;
        }
        if self.state != State::Loss {
            self.high = self.nxt;
            self.ssthresh = self.threshold_now();
            (self.prior_ssthresh, self.undo_from) = (None, None);
            self.state = State::Loss;
        }
        self.send_lost(now);
    }
}
