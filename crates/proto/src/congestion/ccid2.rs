//! TCP-like congestion control for datagrams that are not sent again (RFC 4341, the main paper's).
//!
//! The window is counted in datagrams. It moves as follows:
//!
//! | event | window | threshold | source |
//! | --- | --- | --- | --- |
//! | start | 10 | none | RFC 6928 |
//! | confirmed, window < threshold | + 1 for every 2 confirmed, at most 32 a report | | RFC 4341 §5 |
//! | confirmed, window >= threshold | + 1 for every window confirmed | | RFC 4341 §5 |
//! | confirmed, window not full, or sent before the last reaction | as it is | | RFC 7661 §4.2 |
//! | loss or mark, first of a window of data | half of what was used, at least 2 | = window | RFC 4341 §5, RFC 5681 eq. 4 |
//! | timeout, first in a row | 1 | half of what was used, at least 2 | RFC 5681 §3.1 |
//! | further timeout, nothing confirmed between | 1 | as it is | RFC 5681 §3.1 |
//! | idle for n timeouts | halved n times, not below 10 | >= 3/4 of the old window | RFC 2861 §3.1 |
//! | answers again after an outage | half of what was used before it, at least 10 | as it is | RFC 9959 |
//! | never full for five minutes | half, not below 10 | >= 3/4 of the old window | RFC 7661 §4.3 |
//!
//! *After an outage* the loss window says nothing: datagrams were lost because nothing passed. The link is
//! proven to carry again and nothing is in flight. It resumes with half of what it had in flight before, which is the
//! threshold that the timeout left, if its window was full within the last five minutes; else as at its start. With less
//! room than others have, the scheduler would not choose the link, and the window could not grow: a download whose own
//! window fits the other links would leave a returned link idle for seconds.
//!
//! *One reaction per window of data*: at a reaction the next number to be sent is remembered; the loss
//! or mark of a datagram below it belongs to the same congestion and changes nothing more.
//!
//! *What was used*: the most datagrams in flight within the last one or two windows of data, not the
//! window itself: a window that was not filled was not tested (RFC 7661 §4.4).

use super::{AckSample, Controller, LossSample, MAX_WINDOW};
use crate::time::{Duration, Instant};

/// RFC 6928. RFC 4341 takes TCP's initial window, which was RFC 3390's 3 or 4 segments when it was
/// written and is 10 now; TCP inside the tunnel starts with 10 as well, so that a smaller window here
/// would only queue its first flight.
const INITIAL_WINDOW: u32 = 10;

/// The smallest window after a loss: with one datagram in flight nothing could ever be overtaken, so
/// that every further loss would cost a timeout (RFC 5681 equation 4: two segments).
const MIN_WINDOW: u32 = 2;

/// The window after a timeout: the "loss window" of RFC 5681 §3.1.
const LOSS_WINDOW: u32 = 1;

/// RFC 4341 §5 limits growth in slow start to half the Ack Ratio for each report. Our receiver reports
/// on whole batches; a batch has at most 64 datagrams (the kernel's limit for one GRO train).
const MAX_GROWTH_PER_REPORT: u32 = 64 / 2;

/// How long a window that was never full is believed (RFC 7661 §4.3: non-validated period).
const UNVALIDATED: Duration = Duration::from_secs(5 * 60);

/// The state of RFC 4341 that is not the number of datagrams in flight.
#[derive(Clone, Debug)]
pub struct Ccid2 {
    window: u32,
    /// `u32::MAX`: arbitrarily high.
    threshold: u32,
    /// Datagrams confirmed but not yet turned into growth.
    credit: u32,
    /// Numbers below this were sent before the last reaction, or on another path.
    reacted_at: u64,
    /// A timeout came and nothing has been confirmed since.
    timed_out: bool,
    usage: Usage,
    /// When the window was last seen full (or the last doubt about it was acted upon).
    validated: Option<Instant>,
}

impl Default for Ccid2 {
    fn default() -> Self {
        Self::new()
    }
}

impl Ccid2 {
    /// A link about which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::from_number(0)
    }

    /// A path about which nothing is known, on which `first` is the first number.
    #[must_use]
    pub fn from_number(first: u64) -> Self {
        Self {
            window: INITIAL_WINDOW,
            threshold: u32::MAX,
            credit: 0,
            reacted_at: first,
            timed_out: false,
            usage: Usage::default(),
            validated: None,
        }
    }

    /// Half of the window as far as it was used.
    fn halved(&self, prior_in_flight: u32) -> u32 {
        let used = self.usage.most().max(prior_in_flight).min(self.window);
        (used / 2).max(MIN_WINDOW)
    }

    fn react(&mut self, sample: &LossSample) {
        if sample.largest < self.reacted_at {
            return;
        }
        self.threshold = self.halved(sample.prior_in_flight);
        self.window = self.window.min(self.threshold);
        self.credit = 0;
        self.reacted_at = sample.next;
    }

    fn grow(&mut self, datagrams: u32) {
        self.credit = self.credit.saturating_add(datagrams);
        for _ in 0..MAX_GROWTH_PER_REPORT {
            let price = if self.window < self.threshold { 2 } else { self.window };
            if self.credit < price {
                return;
            }
            self.credit -= price;
            self.window = (self.window + 1).min(MAX_WINDOW);
        }
        // What exceeds the limit of one report is not saved up for the next.
        self.credit = 0;
    }

    /// Lets the window decay but remembers where it was (RFC 2861 §3.1).
    fn decay(&mut self, halvings: u32) {
        self.threshold = self.threshold.max(self.window * 3 / 4);
        let decayed = self.window.checked_shr(halvings).unwrap_or(0);
        self.window = decayed.max(INITIAL_WINDOW.min(self.window));
        self.credit = 0;
    }
}

impl Controller for Ccid2 {
    fn window(&self) -> u32 {
        self.window
    }

    fn slow_start_threshold(&self) -> Option<u32> {
        (self.threshold != u32::MAX).then_some(self.threshold)
    }

    fn is_opening(&self) -> bool {
        self.window < self.threshold
    }

    fn on_sent(&mut self, now: Instant, number: u64, in_flight: u32) {
        self.usage.on_sent(number, in_flight);
        let validated = *self.validated.get_or_insert(now);
        if in_flight >= self.window {
            self.validated = Some(now);
        } else if now >= validated + UNVALIDATED {
            self.decay(1);
            self.validated = Some(now);
        }
    }

    fn on_ack(&mut self, _now: Instant, sample: &AckSample) {
        self.timed_out = false;
        let left = sample.prior_in_flight.saturating_sub(sample.datagrams);
        self.usage.on_confirmed(sample.largest, left);
        let full = sample.window_limited || sample.prior_in_flight >= self.window;
        if full && sample.largest >= self.reacted_at {
            self.grow(sample.datagrams);
        }
    }

    fn on_loss(&mut self, _now: Instant, sample: &LossSample) {
        self.react(sample);
    }

    /// A mark is congestion like a loss (RFC 3168 §6.1.2, RFC 4341 §5).
    fn on_ecn(&mut self, _now: Instant, sample: &LossSample) {
        self.react(sample);
    }

    fn on_timeout(&mut self, _now: Instant, sample: &LossSample) {
        if !self.timed_out {
            self.threshold = self.halved(sample.prior_in_flight);
        }
        self.timed_out = true;
        self.window = LOSS_WINDOW;
        self.credit = 0;
        self.reacted_at = sample.next;
        self.usage = Usage { until: sample.next, next: sample.next, ..Usage::default() };
    }

    fn on_idle(&mut self, now: Instant, idle: Duration, rto: Duration) {
        let periods = idle.as_nanos() / rto.as_nanos().max(1);
        self.decay(u32::try_from(periods).unwrap_or(u32::MAX));
        self.validated = Some(now);
    }

    fn on_return(&mut self, now: Instant) {
        let fresh = self.validated.is_some_and(|at| now.since(at) < UNVALIDATED);
        let known = if self.timed_out && fresh { self.threshold } else { INITIAL_WINDOW };
        self.window = self.window.max(known).max(INITIAL_WINDOW);
        self.credit = 0;
    }
}

/// The most datagrams in flight, over the present and the previous window of data.
#[derive(Clone, Debug, Default)]
struct Usage {
    current: u32,
    previous: u32,
    /// The present window of data ends when this number is confirmed.
    until: u64,
    /// The next number to be sent.
    next: u64,
}

impl Usage {
    fn on_sent(&mut self, number: u64, in_flight: u32) {
        self.current = self.current.max(in_flight);
        self.next = number + 1;
    }

    fn on_confirmed(&mut self, largest: u64, in_flight: u32) {
        if largest >= self.until {
            self.previous = std::mem::replace(&mut self.current, in_flight);
            self.until = self.next;
        }
    }

    fn most(&self) -> u32 {
        self.current.max(self.previous)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Instant = Instant::from_millis(1000);

    /// A controller that is full with `window` datagrams, all of them numbered from 0.
    fn full(window: u32) -> Ccid2 {
        let mut controller = Ccid2 { window, ..Ccid2::new() };
        send(&mut controller, 0, window);
        controller
    }

    fn send(controller: &mut Ccid2, first: u64, count: u32) {
        for i in 0..count {
            controller.on_sent(T, first + u64::from(i), i + 1);
        }
    }

    fn ack(largest: u64, datagrams: u32, prior_in_flight: u32) -> AckSample {
        AckSample {
            datagrams,
            bytes: u64::from(datagrams) * 1400,
            largest,
            prior_in_flight,
            window_limited: false,
            rtt: None,
            delivery: None,
            arrival: None,
            next: largest + 1,
            in_flight: prior_in_flight.saturating_sub(datagrams),
            lateness: Duration::ZERO,
        }
    }

    fn loss(largest: u64, next: u64, prior_in_flight: u32) -> LossSample {
        LossSample { datagrams: 1, largest, next, prior_in_flight }
    }

    #[test]
    fn slow_start_adds_one_for_every_two_confirmed() {
        let mut controller = full(10);
        for (report, window) in [11, 12, 13, 14, 15].into_iter().enumerate() {
            controller.on_ack(T, &ack(2 * report as u64 + 1, 2, controller.window()));
            assert_eq!(controller.window(), window);
        }
    }

    #[test]
    fn a_report_on_very_many_adds_at_most_half_a_batch_and_saves_nothing_up() {
        let mut controller = full(500);
        controller.on_ack(T, &ack(399, 400, 500));
        assert_eq!(controller.window(), 532);
        controller.on_ack(T, &ack(400, 1, 532));
        assert_eq!(controller.window(), 532);
    }

    #[test]
    fn congestion_avoidance_adds_one_for_a_window_confirmed() {
        let mut controller = full(20);
        controller.threshold = 20;
        for number in 0..19 {
            controller.on_ack(T, &ack(number, 1, 20));
        }
        assert_eq!(controller.window(), 20);
        controller.on_ack(T, &ack(19, 1, 20));
        assert_eq!(controller.window(), 21);
    }

    #[test]
    fn losses_and_marks_of_one_window_of_data_halve_once() {
        let mut controller = full(40);
        controller.on_loss(T, &loss(3, 40, 40));
        assert_eq!((controller.window(), controller.threshold), (20, 20));
        controller.on_loss(T, &loss(39, 50, 40));
        controller.on_ecn(T, &loss(20, 50, 40));
        assert_eq!(controller.window(), 20, "all were sent before the reaction");
        controller.on_ecn(T, &loss(40, 60, 20));
        assert_eq!(controller.window(), 10, "this one was sent after it");
    }

    #[test]
    fn what_was_sent_before_a_reaction_does_not_let_the_window_grow() {
        let mut controller = full(40);
        controller.on_loss(T, &loss(0, 40, 40));
        controller.on_ack(T, &ack(39, 39, 40));
        assert_eq!(controller.window(), 20);
        controller.on_ack(T, &ack(60, 20, 20));
        assert_eq!(controller.window(), 21);
    }

    #[test]
    fn a_window_that_is_not_full_does_not_grow() {
        let mut controller = full(10);
        controller.on_ack(T, &ack(5, 6, 9));
        assert_eq!(controller.window(), 10);
        controller.on_ack(T, &AckSample { window_limited: true, ..ack(9, 4, 4) });
        assert_eq!(controller.window(), 12);
    }

    #[test]
    fn an_unused_window_is_not_what_is_halved() {
        let mut controller = Ccid2 { window: 100, ..Ccid2::new() };
        send(&mut controller, 0, 12);
        controller.on_loss(T, &loss(2, 12, 12));
        assert_eq!((controller.window(), controller.threshold), (6, 6));
    }

    #[test]
    fn the_window_used_is_remembered_over_a_window_of_data() {
        let mut controller = Ccid2 { window: 100, ..Ccid2::new() };
        send(&mut controller, 0, 60);
        controller.on_ack(T, &ack(57, 58, 60));
        controller.on_loss(T, &loss(58, 60, 2));
        assert_eq!(controller.window(), 30);
    }

    #[test]
    fn a_window_of_two_is_not_halved_by_loss() {
        let mut controller = full(3);
        controller.on_loss(T, &loss(0, 3, 3));
        assert_eq!(controller.window(), 2);
        controller.on_loss(T, &loss(4, 5, 2));
        assert_eq!((controller.window(), controller.threshold), (2, 2));
    }

    #[test]
    fn a_second_timeout_in_a_row_keeps_the_threshold() {
        let mut controller = full(40);
        controller.on_timeout(T, &loss(39, 40, 40));
        assert_eq!((controller.window(), controller.threshold), (1, 20));
        controller.on_timeout(T, &loss(40, 41, 1));
        assert_eq!((controller.window(), controller.threshold), (1, 20));
        controller.on_ack(T, &ack(41, 1, 1));
        controller.on_timeout(T, &loss(42, 43, 1));
        assert_eq!((controller.window(), controller.threshold), (1, 2));
    }

    #[test]
    fn an_idle_window_decays_but_is_remembered() {
        let second = Duration::from_secs(1);
        for (periods, window) in [(1, 50), (2, 25), (3, 12), (4, 10), (40, 10)] {
            let mut controller = full(100);
            controller.threshold = 20;
            controller.on_idle(T, second * periods, second);
            assert_eq!((controller.window(), controller.threshold), (window, 75), "{periods}");
        }
        let mut small = full(4);
        small.on_idle(T, second, second);
        assert_eq!(small.window(), 4, "a small window has nothing to lose");
    }

    #[test]
    fn a_link_that_answers_again_resumes_with_half_of_what_it_had() {
        let after = |window, outage| {
            let mut controller = full(window);
            controller.on_timeout(T, &loss(window.into(), u64::from(window) + 1, window));
            assert_eq!((controller.window(), controller.threshold), (1, window / 2));
            controller.on_timeout(T, &loss(window.into(), u64::from(window) + 1, 1));
            controller.on_return(T + outage);
            assert_eq!(controller.threshold, window / 2);
            controller.window()
        };
        let soon = UNVALIDATED - Duration::from_nanos(1);
        assert_eq!(after(40, Duration::ZERO), 20);
        assert_eq!(after(40, soon), 20);
        assert_eq!(after(40, UNVALIDATED), INITIAL_WINDOW, "it was too long ago");
        assert_eq!(after(12, soon), INITIAL_WINDOW, "as at the start");
        let mut idle = Ccid2::new();
        idle.on_return(T);
        assert_eq!(idle.window(), INITIAL_WINDOW, "nothing was lost, and nothing learnt");
        let mut large = full(40);
        large.on_return(T);
        assert_eq!(large.window(), 40);
    }

    #[test]
    fn a_window_never_full_for_five_minutes_is_halved() {
        let mut controller = Ccid2 { window: 100, ..Ccid2::new() };
        controller.on_sent(T, 0, 1);
        controller.on_sent(T + UNVALIDATED - Duration::from_nanos(1), 1, 1);
        assert_eq!(controller.window(), 100);
        controller.on_sent(T + UNVALIDATED, 2, 1);
        assert_eq!((controller.window(), controller.threshold), (50, u32::MAX));
    }

    #[test]
    fn the_window_never_passes_its_bound() {
        let mut controller = full(MAX_WINDOW);
        controller.on_ack(T, &ack(63, 64, MAX_WINDOW));
        assert_eq!(controller.window(), MAX_WINDOW);
    }
}
