//! What an acknowledgement says of each segment.

use std::ops::Range;
use std::time::Duration;

use ropewalk_proto::time::Instant;

use super::{Ack, REORDERING, Sender, State};
use crate::tcp::clock;
use crate::tcp::scoreboard::{Sent, is_after};

/// How far out of order, in segments, something may come at most.
const MAX_REORDERING: u64 = 300;

/// What an acknowledgement told.
#[derive(Clone, Debug, Default)]
pub(super) struct News {
    /// The first unacknowledged byte moved.
    pub(super) advanced: bool,
    /// The peer's window moved.
    window_moved: bool,
    with_data: bool,
    /// Whole segments were acknowledged, or sacked.
    pub(super) acked: bool,
    pub(super) sacked: bool,
    /// Something that was sent once came, of before the present state.
    pub(super) original_came: bool,
    /// Something that was sent again came.
    repeated_came: bool,
    /// Something came twice, and it was a tail loss probe.
    duplicate: bool,
    pub(super) duplicate_probe: bool,
    /// A repetition was lost.
    pub(super) repair_lost: bool,
    /// The timer begins again.
    pub(super) rearm: bool,
    /// When the first and the last of what was sacked was sent, of what was sent once.
    first_sacked: Option<Instant>,
    last_sacked: Option<Instant>,
    /// The segment sent last of those that came, and how many had been delivered then.
    newest: Option<(Instant, u64)>,
    newest_delivered: Option<u64>,
}

impl News {
    /// It says nothing but what was said before.
    pub(super) const fn is_repetition(&self) -> bool {
        !(self.window_moved || self.with_data || self.acked)
    }

    fn came(&mut self, sent: &Sent) {
        let this = (sent.at, sent.bytes.end);
        if self.newest.is_none_or(|newest| is_after(this, newest)) {
            (self.newest, self.newest_delivered) = (Some(this), Some(sent.delivered));
        }
    }
}

/// How things stood before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) una: u64,
    forward_ack: u64,
    pub(super) delivered: u64,
    pub(super) lost: u64,
}

impl Sender {
    pub(super) fn take_ack(&mut self, now: Instant, ack: &Ack) {
        let mut news = News { with_data: ack.with_data, ..News::default() };
        let before = Before {
            una: self.una,
            forward_ack: self.board.forward_ack(self.una),
            delivered: self.delivered,
            lost: self.lost,
        };
        if ack.number < self.una {
            // An old one; what it says of single segments may be news.
            if !ack.sacks.is_empty() && ack.number + self.max_window >= self.una {
                self.take_sacks(now, ack, &before, &mut news);
                let repair = self.judge(now, &before, false, &mut news);
                self.repair(now, repair);
            }
            return;
        }
        news.advanced = ack.number > self.una;
        if news.advanced {
            self.timeouts_in_a_row = 0;
        }
        news.window_moved = news.advanced || ack.window > self.window;
        if news.window_moved {
            self.window = ack.window;
            self.max_window = self.max_window.max(ack.window);
        }
        self.una = ack.number;
        let idle = self.board.is_empty();
        self.take_sacks(now, ack, &before, &mut news);
        if !idle {
            self.take_acknowledged(now, &before, &mut news);
            self.rack.adapt(self.delivered, news.newest_delivered);
        }
        self.end_probe(ack.number, &news);
        if idle && !news.duplicate {
            return;
        }
        let is_dubious =
            news.is_repetition() || news.sacked || news.duplicate || self.state != State::Open;
        let repair = if is_dubious {
            let nothing = !news.advanced && news.is_repetition() && !news.duplicate;
            Some(self.judge(now, &before, nothing, &mut news))
        } else {
            None
        };
        if idle {
            return;
        }
        if news.rearm {
            self.arm(now);
        }
        self.control(now, &before, &news);
        if let Some(repair) = repair {
            self.repair(now, repair);
        }
    }

    /// Whether the window may grow by what this acknowledgement says. Where much comes out of order, by
    /// whatever came.
    pub(super) const fn may_grow(&self, news: &News) -> bool {
        news.acked || (self.reordering > REORDERING && news.sacked)
    }

    fn take_sacks(&mut self, now: Instant, ack: &Ack, before: &Before, news: &mut News) {
        let Some(first) = ack.sacks.first() else { return };
        let twice = self.is_duplicate(ack);
        let twice = twice && self.take_duplicate(first.clone(), before, news);
        let mut lowest = self.nxt;
        let mut ranges: Vec<(Range<u64>, bool)> =
            (0..).zip(&ack.sacks).map(|(n, range)| (range.clone(), twice && n == 0)).collect();
        ranges.sort_by_key(|(range, _)| range.start);
        for (range, twice) in ranges {
            let is_valid = range.start < range.end && range.end <= self.nxt;
            if !is_valid || range.start <= self.una || range.end <= before.una {
                continue;
            }
            for place in self.board.within(&range) {
                lowest = lowest.min(self.take_sacked(now, place, twice, news));
            }
        }
        if self.state != State::Loss || self.undo_from.is_some() {
            self.note_reordering(lowest);
        }
    }

    /// Whether the first range tells of something that came twice (RFC 2883).
    fn is_duplicate(&self, ack: &Ack) -> bool {
        match ack.sacks.as_slice() {
            [first, ..] if first.start < ack.number => true,
            [first, second, ..] => first.end <= second.end && first.start >= second.start,
            _ => false,
        }
    }

    /// Notes what came twice; `false` if it cannot have been our doing.
    fn take_duplicate(&mut self, range: Range<u64>, before: &Before, news: &mut News) -> bool {
        let length = range.end.saturating_sub(range.start);
        if length == 0 || length > self.max_window {
            return false;
        }
        let segments = length.div_ceil(self.mss);
        if segments == 1 && self.probe_end == Some(range.end) {
            news.duplicate_probe = true;
        }
        self.duplicates += segments;
        if self.duplicates > self.stats.retransmissions {
            return false;
        }
        if self.reordering_seen && !news.duplicate_probe {
            self.rack.duplicate_seen = true;
        }
        news.duplicate = true;
        self.delivered += segments;
        self.stats.needless += segments;
        if range.end <= before.una && self.undo_from.is_some_and(|from| range.end > from) {
            self.less_to_undo(u32::try_from(segments).unwrap_or(u32::MAX));
        }
        true
    }

    pub(super) fn less_to_undo(&mut self, segments: u32) {
        self.undo_left = self.undo_left.map(|left| left.saturating_sub(segments));
    }

    /// A segment lies in a sacked range; returns where it began if that shows reordering.
    fn take_sacked(&mut self, now: Instant, place: usize, twice: bool, news: &mut News) -> u64 {
        let Some(sent) = self.board.get(place).cloned() else { return u64::MAX };
        let mut lowest = u64::MAX;
        if twice && sent.ever_again {
            if self.undo_from.is_some_and(|from| sent.bytes.end > from) {
                self.less_to_undo(1);
            }
            if sent.sacked {
                lowest = sent.bytes.start;
            }
        }
        if !sent.sacked {
            self.rack.came(now, (sent.at, sent.bytes.end), sent.ever_again, self.rtt.min());
            if !sent.ever_again {
                if sent.bytes.start < self.board.forward_ack(self.una) {
                    lowest = lowest.min(sent.bytes.start);
                }
                news.original_came |= sent.bytes.end <= self.high;
                news.first_sacked.get_or_insert(sent.at);
                news.last_sacked = Some(sent.at);
            }
            self.board.sack(place);
            news.sacked = true;
            news.came(&sent);
            self.delivered += 1;
        }
        if twice {
            self.board.came_twice(place);
        }
        lowest
    }

    /// Something below what came already was not sent again: it was overtaken.
    pub(super) fn note_reordering(&mut self, lowest: u64) {
        let highest = self.board.forward_ack(self.una);
        if lowest >= highest {
            return;
        }
        let distance = (highest - lowest).div_ceil(self.mss).min(MAX_REORDERING);
        self.reordering = self.reordering.max(u32::try_from(distance).unwrap_or(u32::MAX));
        self.reordering_seen = true;
    }

    /// Takes what is acknowledged off the scoreboard, and measures.
    fn take_acknowledged(&mut self, now: Instant, before: &Before, news: &mut News) {
        let (mut first, mut last, mut lowest) = (None, None, u64::MAX);
        while let Some(sent) = self.board.pop_below(self.una) {
            if sent.ever_again {
                news.repeated_came = true;
            } else if !sent.sacked {
                first.get_or_insert(sent.at);
                last = Some(sent.at);
                lowest = lowest.min(sent.bytes.start);
                news.original_came |= sent.bytes.end <= self.high;
            }
            if !sent.sacked {
                self.delivered += 1;
                let was_first = sent.ever_again && self.echo < clock(sent.at);
                if !was_first {
                    self.rack.came(now, (sent.at, sent.bytes.end), sent.ever_again, self.rtt.min());
                }
            }
            news.acked = true;
            news.came(&sent);
        }
        let since = |at: Option<Instant>| at.map(|at| now.since(at));
        let (mut oldest, mut newest) = (None, None);
        if !news.repeated_came {
            (oldest, newest) = (since(first), since(last));
        }
        let sacked = since(news.first_sacked);
        newest = since(news.last_sacked).or(newest);
        let measured = self.measure(now, oldest.or(sacked), newest, news);
        if news.acked {
            news.rearm = true;
            // A hole that was never sent again is filled.
            if lowest < before.forward_ack {
                self.note_reordering(lowest);
            }
        } else if measured && let (Some(sacked), Some(head)) = (sacked, self.board.head()) {
            // What came was sent after the head was: to wait longer for that one would have no end.
            news.rearm |= sacked > now.since(head.at);
        }
    }

    /// Measures with the oldest and the newest segment that came, or with the peer's echo of our clock where
    /// repetitions make these ambiguous; `false` if nothing can be measured.
    fn measure(
        &mut self,
        now: Instant,
        oldest: Option<Duration>,
        newest: Option<Duration>,
        news: &News,
    ) -> bool {
        let echoed = || {
            let elapsed = clock(now).saturating_sub(self.echo).max(1);
            let elapsed = Duration::from_millis(elapsed.into());
            news.acked.then_some((elapsed, Some(elapsed)))
        };
        let measured = oldest.map(|oldest| (oldest, newest)).or_else(echoed);
        let Some((oldest, newest)) = measured else { return false };
        self.rtt.measured(oldest, self.una, self.nxt);
        self.timeout = self.rtt.timeout();
        if let Some(newest) = newest {
            self.rtt.at_least(newest);
            self.watch_delay(now, newest);
        }
        true
    }

    /// Slow start ends when the delay says so.
    fn watch_delay(&mut self, now: Instant, rtt: Duration) {
        let slow_start = self.in_slow_start();
        if slow_start {
            self.cubic.hystart.acknowledged(now, self.una, self.nxt);
        }
        if self.cubic.measured(now, rtt, self.cwnd, slow_start) {
            self.ssthresh = self.cwnd;
        }
    }
}
