//! The sending side of one link: numbers, window, round-trip time and timeout in one place.
//!
//! 1. The caller asks for [`room`](LinkSender::room), seals a datagram under
//!    [`next_number`](LinkSender::next_number) and says so with [`on_sent`](LinkSender::on_sent).
//! 2. [`on_report`](LinkSender::on_report) applies a report: what arrived is confirmed, what was overtaken
//!    is lost, and the controller hears of both, of the loss first.
//! 3. When nothing is confirmed for a timeout (RFC 6298), [`handle_timeout`](LinkSender::handle_timeout)
//!    takes everything in flight for lost and backs off. Nothing is sent again.
//!
//! The timeout runs while datagrams in the window are in flight, and restarts with every confirmation.

use super::delivery::Delivery;
use super::loss::{LossThreshold, RecentLoss};
use super::received::Report;
use super::rtt::Rtt;
use super::sent::{Confirmed, Fate, MAX_UNCONFIRMED, ReportError, Sent, SentDatagrams, Settled};
use crate::congestion::{
    AckSample, AnyController, Controller, ControllerKind, DeliverySample, LossSample,
};
use crate::time::{Duration, Instant};
use crate::units::Bitrate;

/// The window in time beyond which an overtaken datagram is lost, before a round trip was measured.
const UNKNOWN_RTT: Duration = Duration::from_secs(1);

/// On which link a report came back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Via {
    /// On the link it reports on: its round-trip time is the link's.
    Own,
    /// A copy on another link: no round-trip sample, for the way back was another.
    Other,
}

/// What a report changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// Datagrams newly confirmed, whether in the window or not, including the late.
    pub confirmed: u32,
    /// Of these, datagrams that had counted as lost.
    pub late: u32,
    /// Datagrams in the window newly declared lost.
    pub lost: u32,
    /// New congestion marks.
    pub marks: u32,
    /// The round-trip sample.
    pub rtt: Option<Duration>,
    /// The sample of the rate of delivery.
    pub delivery: Option<DeliverySample>,
}

/// A snapshot of the sending side.
#[derive(Clone, Copy, Debug, Default)]
pub struct SenderStats {
    /// Datagrams sent.
    pub sent: u64,
    /// Their bytes (outer UDP payload).
    pub sent_bytes: u64,
    /// Datagrams confirmed.
    pub confirmed: u64,
    /// Their bytes.
    pub confirmed_bytes: u64,
    /// Datagrams that count as lost now (those confirmed late do not).
    pub lost: u64,
    /// Losses that were taken back.
    pub spurious: u64,
    /// Congestion marks the peer saw.
    pub marks: u64,
    /// Timeouts.
    pub timeouts: u64,
    /// Reports applied.
    pub reports: u64,
    /// Share of losses among the last 512 to 1,024 datagrams resolved, from 0 to 1.
    pub loss_ratio: f64,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Its mean deviation.
    pub rttvar: Option<Duration>,
    /// The smallest sample.
    pub min_rtt: Option<Duration>,
    /// The timeout, backed off.
    pub rto: Duration,
    /// The congestion window in datagrams.
    pub window: u32,
    /// The slow-start threshold in datagrams.
    pub threshold: Option<u32>,
    /// Datagrams in flight.
    pub in_flight: u32,
    /// Later datagrams that must be confirmed before one counts as lost.
    pub loss_threshold: u32,
    /// The newest sample of the rate of delivery.
    pub delivery_rate: Option<Bitrate>,
}

/// Sends on one link.
#[derive(Clone, Debug)]
pub struct LinkSender {
    kind: ControllerKind,
    controller: AnyController,
    sent: SentDatagrams,
    rtt: Rtt,
    delivery: Delivery,
    threshold: LossThreshold,
    recent: RecentLoss,
    deadline: Option<Instant>,
    /// When a datagram in the window was last sent.
    last_in_window: Option<Instant>,
    last_confirmed: Option<Instant>,
    ce_count: u32,
    totals: SenderStats,
}

impl LinkSender {
    /// A link on which nothing was sent; its first datagram gets the number `first`.
    #[must_use]
    pub fn new(kind: ControllerKind, first: u64) -> Self {
        Self {
            kind,
            controller: AnyController::new(kind),
            sent: SentDatagrams::new(first),
            rtt: Rtt::default(),
            delivery: Delivery::default(),
            threshold: LossThreshold::default(),
            recent: RecentLoss::default(),
            deadline: None,
            last_in_window: None,
            last_confirmed: None,
            ce_count: 0,
            totals: SenderStats::default(),
        }
    }

    /// Datagrams that the window has room for. A window that shrank below what is in flight has none.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.window().saturating_sub(self.in_flight())
    }

    /// The congestion window in datagrams.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.controller.window()
    }

    /// Datagrams in the window of which nothing is known yet.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.sent.in_flight()
    }

    /// How fast datagrams may leave, if the controller says.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<Bitrate> {
        self.controller.pacing_rate()
    }

    /// The number of the next datagram.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.sent.next()
    }

    /// Whether a quarter of the number space is unconfirmed: only probes may be sent, or the receiver could
    /// expand a number wrongly.
    #[must_use]
    pub fn must_stop(&self) -> bool {
        self.sent.unconfirmed() >= MAX_UNCONFIRMED
    }

    /// The round-trip time.
    #[must_use]
    pub fn rtt(&self) -> &Rtt {
        &self.rtt
    }

    /// When the oldest eliciting datagram was sent to which, and to all after it, there was no answer. What
    /// makes a link suspect.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Instant> {
        self.sent.unanswered_since()
    }

    /// When a report last confirmed something.
    #[must_use]
    pub fn last_confirmed(&self) -> Option<Instant> {
        self.last_confirmed
    }

    /// A datagram left. Returns its number, which is what [`next_number`](Self::next_number) said before.
    pub fn on_sent(&mut self, now: Instant, sent: Sent) -> u64 {
        let idle = sent.in_window && self.in_flight() == 0;
        if idle && let Some(last) = self.last_in_window {
            let (idle, rto) = (now.since(last), self.rtt.base_rto());
            if idle > rto {
                self.controller.on_idle(now, idle, rto);
            }
        }
        // Its fate is not told: so many open datagrams are a peer that confirms next to nothing, and the
        // timeout or a late report still tells the fate of the others.
        if self.sent.make_place(now).is_some() {
            self.totals.lost += 1;
            self.recent.on_resolved(true);
        }
        let stamp = self.delivery.on_sent(now, self.in_flight());
        let number = self.sent.push(now, sent, stamp);
        self.totals.sent += 1;
        self.totals.sent_bytes += u64::from(sent.size);
        if sent.in_window {
            self.last_in_window = Some(now);
            self.controller.on_sent(now, number, self.in_flight());
            self.deadline.get_or_insert(now + self.rtt.rto());
        }
        number
    }

    /// A report on this link came in. `settle` is called once for each datagram whose fate it decided.
    ///
    /// Old, repeated and overtaken reports change nothing that a newer one said.
    ///
    /// # Errors
    /// [`ReportError`]: the peer misbehaves; nothing was applied.
    pub fn on_report(
        &mut self,
        now: Instant,
        report: &Report,
        via: Via,
        mut settle: impl FnMut(Settled),
    ) -> Result<Outcome, ReportError> {
        self.sent.check(&report.ranges)?;
        self.totals.reports += 1;
        self.sent.forget_old(now);
        self.threshold.decay(now);
        let prior_in_flight = self.in_flight();

        let news = self.confirm(now, report, via, &mut settle);
        let losses = self.detect_lost(now, &mut settle);
        let marks = self.new_marks(report.ce_count);
        let delivery = self.delivery.take_sample(self.rtt.min());
        if let Some(sample) = delivery {
            self.totals.delivery_rate = Some(sample.rate());
        }

        let next = self.sent.next();
        if let Some(largest) = losses.largest {
            let sample = LossSample { datagrams: losses.datagrams, largest, next, prior_in_flight };
            self.controller.on_loss(now, &sample);
        }
        if marks > 0 {
            let largest = news.largest.unwrap_or_else(|| report.ranges[0].last);
            let sample = LossSample { datagrams: marks, largest, next, prior_in_flight };
            self.controller.on_ecn(now, &sample);
        }
        if let Some(largest) = news.largest {
            let sample = AckSample {
                datagrams: news.datagrams,
                bytes: news.bytes,
                largest,
                prior_in_flight,
                window_limited: news.window_limited,
                rtt: news.rtt,
                delivery,
            };
            self.controller.on_ack(now, &sample);
        }
        self.restart_timer(now, news.confirmed > 0);
        Ok(Outcome {
            confirmed: news.confirmed,
            late: news.late,
            lost: losses.datagrams,
            marks,
            rtt: news.rtt,
            delivery,
        })
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// If the timeout passed: takes all that is open for lost, closes the window and backs off. `settle` is
    /// called for each datagram. Returns whether it had passed.
    pub fn handle_timeout(&mut self, now: Instant, mut settle: impl FnMut(Settled)) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        let prior_in_flight = self.in_flight();
        let next = self.sent.next();
        let (totals, recent) = (&mut self.totals, &mut self.recent);
        self.sent.time_out(now, |settled| {
            totals.lost += 1;
            recent.on_resolved(true);
            settle(settled);
        });
        self.totals.timeouts += 1;
        let sample = LossSample {
            datagrams: prior_in_flight,
            largest: next.saturating_sub(1),
            next,
            prior_in_flight,
        };
        self.controller.on_timeout(now, &sample);
        self.rtt.back_off();
        self.deadline = None;
        true
    }

    /// The link's path is another one (another address, not only another port): what was learnt of the old
    /// one says nothing (RFC 9000 §9.4). Numbers and what is in flight go on.
    pub fn on_new_path(&mut self, now: Instant) {
        self.rtt = Rtt::default();
        self.threshold = LossThreshold::default();
        self.set_controller(now, self.kind);
    }

    /// Starts again with a controller of this kind.
    pub fn set_controller(&mut self, now: Instant, kind: ControllerKind) {
        self.kind = kind;
        self.controller = AnyController::new(kind);
        if self.in_flight() > 0 {
            self.deadline = Some(now + self.rtt.rto());
        }
    }

    /// Totals and the present state.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        SenderStats {
            loss_ratio: self.recent.ratio(),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.rtt.min(),
            rto: self.rtt.rto(),
            window: self.window(),
            threshold: self.controller.slow_start_threshold(),
            in_flight: self.in_flight(),
            loss_threshold: self.threshold.packets(),
            ..self.totals
        }
    }

    fn confirm(
        &mut self,
        now: Instant,
        report: &Report,
        via: Via,
        settle: &mut impl FnMut(Settled),
    ) -> News {
        let mut news = News::default();
        let reported = report.ranges[0].last;
        let delay = Duration::from_micros(u64::from(report.delay_us));
        let Self { sent, delivery, threshold, recent, totals, .. } = self;
        sent.confirm(&report.ranges, |confirmed| {
            let Confirmed { settled, stamp, was_overtaken } = confirmed;
            news.confirmed += 1;
            totals.confirmed += 1;
            totals.confirmed_bytes += u64::from(settled.sent.size);
            if settled.number == reported && via == Via::Own {
                // A delay longer than the whole trip is a broken peer's; it gives no sample.
                news.rtt = now.since(settled.sent_at).checked_sub(delay);
            }
            if settled.fate == Fate::ConfirmedLate {
                news.late += 1;
                totals.lost -= 1;
                totals.spurious += 1;
                recent.on_spurious();
                if was_overtaken {
                    threshold.on_spurious(now, reported - settled.number);
                }
            } else {
                recent.on_resolved(false);
            }
            // What had counted as lost left the window then; its late arrival lets nothing grow.
            if let Some(stamp) = stamp.filter(|_| settled.sent.in_window) {
                let Settled { number, sent_at, sent, .. } = settled;
                delivery.on_confirmed(now, number, sent_at, sent.size, stamp, sent.window_limited);
                news.datagrams += 1;
                news.bytes += u64::from(sent.size);
                news.largest = Some(number);
                news.window_limited = sent.window_limited;
            }
            settle(settled);
        });
        if let Some(sample) = news.rtt {
            self.rtt.on_sample(sample);
        }
        news
    }

    fn detect_lost(&mut self, now: Instant, settle: &mut impl FnMut(Settled)) -> Losses {
        let mut losses = Losses::default();
        let window = self.rtt.srtt().unwrap_or(UNKNOWN_RTT);
        let Self { sent, threshold, recent, totals, .. } = self;
        sent.detect_lost(now, threshold.packets(), window, |settled| {
            totals.lost += 1;
            recent.on_resolved(true);
            if settled.sent.in_window {
                losses.datagrams += 1;
                losses.largest = Some(settled.number);
            }
            settle(settled);
        });
        losses
    }

    /// Marks beyond those already known; an overtaken report knows fewer.
    fn new_marks(&mut self, ce_count: u32) -> u32 {
        let new = ce_count.wrapping_sub(self.ce_count);
        if new >= 1 << 31 {
            return 0;
        }
        self.ce_count = ce_count;
        self.totals.marks += u64::from(new);
        new
    }

    /// RFC 6298 §5.2 and §5.3.
    fn restart_timer(&mut self, now: Instant, confirmed: bool) {
        if confirmed {
            self.last_confirmed = Some(now);
            self.rtt.end_backoff();
        }
        if self.in_flight() == 0 {
            self.deadline = None;
        } else if confirmed {
            self.deadline = Some(now + self.rtt.rto());
        }
    }
}

/// What a report confirmed.
#[derive(Default)]
struct News {
    confirmed: u32,
    late: u32,
    rtt: Option<Duration>,
    /// The rest is of the datagrams in the window that had not counted as lost.
    datagrams: u32,
    bytes: u64,
    largest: Option<u64>,
    window_limited: bool,
}

/// What a report showed to be lost, in the window.
#[derive(Default)]
struct Losses {
    datagrams: u32,
    largest: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::received::{Range, Ranges};
    use crate::link::rtt::MAX_REPORT_DELAY;
    use crate::units::LinkId;

    const MS: Duration = Duration::from_millis(1);
    const DATA: Sent =
        Sent { size: 1000, in_window: true, eliciting: true, window_limited: true, tag: 0 };
    const REPORT_ONLY: Sent =
        Sent { size: 60, in_window: false, eliciting: false, window_limited: false, tag: 0 };

    fn at(millis: u64) -> Instant {
        Instant::from_millis(1_000 + millis)
    }

    fn sender() -> LinkSender {
        LinkSender::new(ControllerKind::Ccid2, 0)
    }

    fn send(sender: &mut LinkSender, now: Instant, count: u64) {
        for _ in 0..count {
            let tag = sender.next_number();
            sender.on_sent(now, Sent { tag, ..DATA });
        }
    }

    fn report(ranges: &[(u64, u64)]) -> Report {
        let ranges: Ranges = ranges.iter().map(|&(first, last)| Range { first, last }).collect();
        Report { link: LinkId(0), delay_us: 0, ce_count: 0, ranges }
    }

    /// Applies a report and returns the outcome and, per number, its fate.
    fn apply(
        sender: &mut LinkSender,
        now: Instant,
        report: &Report,
    ) -> (Outcome, Vec<(u64, Fate)>) {
        let mut fates = vec![];
        let outcome = sender
            .on_report(now, report, Via::Own, |settled| {
                assert!(
                    settled.sent == Sent { tag: settled.number, ..DATA } || !settled.sent.in_window
                );
                fates.push((settled.number, settled.fate));
            })
            .unwrap();
        (outcome, fates)
    }

    #[test]
    fn the_window_gives_room_and_reports_give_it_back() {
        let mut sender = sender();
        send(&mut sender, at(0), 10);
        assert_eq!((sender.room(), sender.in_flight(), sender.next_number()), (0, 10, 10));
        let (outcome, fates) = apply(&mut sender, at(50), &report(&[(0, 3)]));
        assert_eq!(fates, [0, 1, 2, 3].map(|number| (number, Fate::Confirmed)));
        assert_eq!((outcome.confirmed, outcome.rtt), (4, Some(MS * 50)));
        assert_eq!((sender.window(), sender.in_flight(), sender.room()), (12, 6, 6));
    }

    #[test]
    fn the_report_delay_is_not_in_the_sample() {
        let mut sender = sender();
        send(&mut sender, at(0), 2);
        let late = Report { delay_us: 20_000, ..report(&[(0, 0)]) };
        assert_eq!(apply(&mut sender, at(50), &late).0.rtt, Some(MS * 30));
        let absurd = Report { delay_us: 60_000, ..report(&[(0, 1)]) };
        assert_eq!(apply(&mut sender, at(51), &absurd).0.rtt, None);
    }

    #[test]
    fn only_the_newest_and_newly_confirmed_gives_a_sample() {
        let mut sender = sender();
        send(&mut sender, at(0), 4);
        let copy = report(&[(1, 1)]);
        let outcome = sender.on_report(at(30), &copy, Via::Other, |_| {}).unwrap();
        assert_eq!((outcome.confirmed, outcome.rtt), (1, None), "it came by another way");
        let (outcome, _) = apply(&mut sender, at(40), &report(&[(0, 1)]));
        assert_eq!((outcome.confirmed, outcome.rtt), (1, None), "1 was known");
        assert_eq!(apply(&mut sender, at(50), &report(&[(0, 2)])).0.rtt, Some(MS * 50));
    }

    #[test]
    fn three_later_confirmations_prove_a_loss() {
        let mut sender = sender();
        send(&mut sender, at(0), 10);
        assert_eq!(apply(&mut sender, at(50), &report(&[(2, 3), (0, 0)])).0.lost, 0);
        let (outcome, fates) = apply(&mut sender, at(51), &report(&[(2, 4), (0, 0)]));
        assert_eq!(fates, [(4, Fate::Confirmed), (1, Fate::Lost)]);
        assert_eq!(outcome.lost, 1);
        assert_eq!((sender.window(), sender.in_flight()), (5, 5));
        assert_eq!(sender.stats().lost, 1);
    }

    #[test]
    fn a_loss_confirmed_later_is_taken_back_and_raises_the_threshold() {
        let mut sender = sender();
        send(&mut sender, at(0), 10);
        apply(&mut sender, at(50), &report(&[(1, 6)]));
        let (outcome, fates) = apply(&mut sender, at(51), &report(&[(0, 7)]));
        assert_eq!(fates, [(0, Fate::ConfirmedLate), (7, Fate::Confirmed)]);
        assert_eq!((outcome.confirmed, outcome.late), (2, 1));
        let stats = sender.stats();
        assert_eq!((stats.lost, stats.spurious, stats.confirmed), (0, 1, 8));
        assert_eq!(stats.loss_threshold, 8);
        assert!(stats.loss_ratio.abs() < f64::EPSILON);

        // Six later ones are no loss any more, eight are.
        send(&mut sender, at(60), 12);
        assert_eq!(apply(&mut sender, at(90), &report(&[(11, 16), (0, 9)])).0.lost, 0);
        assert_eq!(apply(&mut sender, at(90), &report(&[(11, 18), (0, 9)])).0.lost, 1);
    }

    #[test]
    fn a_raised_threshold_waits_no_longer_than_a_round_trip() {
        let mut sender = sender();
        sender.threshold.on_spurious(at(0), 60);
        send(&mut sender, at(0), 1);
        apply(&mut sender, at(100), &report(&[(0, 0)]));
        send(&mut sender, at(100), 4);
        assert_eq!(apply(&mut sender, at(200), &report(&[(2, 4), (0, 0)])).0.lost, 0);
        send(&mut sender, at(199), 1);
        assert_eq!(apply(&mut sender, at(299), &report(&[(2, 5), (0, 0)])).0.lost, 0);
        send(&mut sender, at(200), 1);
        assert_eq!(apply(&mut sender, at(300), &report(&[(2, 6), (0, 0)])).0.lost, 1);
    }

    #[test]
    fn old_and_repeated_reports_are_harmless() {
        let mut sender = sender();
        send(&mut sender, at(0), 10);
        let old = report(&[(0, 1)]);
        let new = Report { ce_count: 1, ..report(&[(4, 6), (0, 2)]) };
        apply(&mut sender, at(50), &new);
        let before = (sender.window(), sender.in_flight(), sender.stats().marks);
        for report in [&old, &new, &old] {
            let (outcome, fates) = apply(&mut sender, at(60), report);
            assert_eq!((outcome, fates), (Outcome::default(), vec![]));
        }
        assert_eq!((sender.window(), sender.in_flight(), sender.stats().marks), before);
    }

    #[test]
    fn a_report_that_cannot_be_is_refused_whole() {
        let mut sender = sender();
        send(&mut sender, at(0), 10);
        let table = [
            (vec![], ReportError::Empty),
            (vec![(3, 2)], ReportError::Disordered),
            (vec![(5, 6), (4, 4)], ReportError::Disordered),
            (vec![(0, 1), (4, 5)], ReportError::Disordered),
            (vec![(5, 6), (5, 6)], ReportError::Disordered),
            (vec![(0, 0), (0, 0)], ReportError::Disordered),
            (vec![(9, 10), (0, 1)], ReportError::NeverSent { number: 10, next: 10 }),
            (vec![(0, u64::MAX)], ReportError::NeverSent { number: u64::MAX, next: 10 }),
        ];
        for (ranges, error) in table {
            let result = sender.on_report(at(1), &report(&ranges), Via::Own, |_| panic!("settled"));
            assert_eq!(result, Err(error), "{ranges:?}");
        }
        assert_eq!((sender.in_flight(), sender.stats().reports), (10, 0));
    }

    #[test]
    fn marks_halve_once_and_are_counted_by_difference() {
        let mut sender = sender();
        send(&mut sender, at(0), 10);
        let (outcome, _) = apply(&mut sender, at(50), &Report { ce_count: 2, ..report(&[(0, 1)]) });
        assert_eq!((outcome.marks, sender.window()), (2, 5));
        let (outcome, _) = apply(&mut sender, at(51), &Report { ce_count: 3, ..report(&[(0, 3)]) });
        assert_eq!((outcome.marks, sender.window()), (1, 5), "of the same window of data");
        sender.ce_count = u32::MAX;
        let (outcome, _) = apply(&mut sender, at(52), &Report { ce_count: 1, ..report(&[(0, 4)]) });
        assert_eq!(outcome.marks, 2, "the counter wraps");
    }

    #[test]
    fn a_timeout_gives_everything_up_and_backs_off() {
        let mut sender = sender();
        send(&mut sender, at(0), 8);
        assert_eq!(sender.poll_timeout(), Some(at(1000)));
        assert!(!sender.handle_timeout(at(999), |_| panic!("too early")));
        let mut fates = vec![];
        assert!(
            sender.handle_timeout(at(1000), |settled| fates.push((settled.number, settled.fate)))
        );
        assert_eq!(fates, (0..8).map(|number| (number, Fate::TimedOut)).collect::<Vec<_>>());
        assert_eq!((sender.window(), sender.in_flight(), sender.poll_timeout()), (1, 0, None));
        send(&mut sender, at(1000), 1);
        assert_eq!(sender.poll_timeout(), Some(at(3000)), "the second waits twice as long");
        assert_eq!(sender.unanswered_since(), Some(at(0)));

        // The link only slept: what was given up arrives, and nothing of it makes the window grow.
        let (outcome, fates) = apply(&mut sender, at(1100), &report(&[(0, 7)]));
        assert_eq!((outcome.late, fates[7]), (8, (7, Fate::ConfirmedLate)));
        assert_eq!((sender.window(), sender.in_flight()), (1, 1));
        assert_eq!((sender.stats().lost, sender.stats().loss_threshold), (0, 3));
        assert_eq!(sender.unanswered_since(), Some(at(1000)));
        let rto = MS * 1100 + MS * 550 * 4 + MAX_REPORT_DELAY;
        assert_eq!(sender.poll_timeout(), Some(at(1100) + rto), "the back-off is over");
    }

    #[test]
    fn the_timeout_restarts_with_every_confirmation_and_ends_with_the_last() {
        let mut sender = sender();
        send(&mut sender, at(0), 4);
        apply(&mut sender, at(100), &report(&[(0, 1)]));
        assert_eq!(sender.poll_timeout(), Some(at(100) + MS * 325));
        apply(&mut sender, at(110), &report(&[(0, 1)]));
        assert_eq!(sender.poll_timeout(), Some(at(100) + MS * 325), "nothing new");
        apply(&mut sender, at(120), &report(&[(0, 3)]));
        assert_eq!(sender.poll_timeout(), None);
    }

    #[test]
    fn reports_alone_are_outside_the_window_and_never_time_out() {
        let mut sender = sender();
        for _ in 0..50 {
            sender.on_sent(at(0), REPORT_ONLY);
        }
        assert_eq!((sender.in_flight(), sender.room(), sender.poll_timeout()), (0, 10, None));
        assert_eq!(sender.unanswered_since(), None, "nothing asked for an answer");
        let tag = sender.next_number();
        sender.on_sent(at(1), Sent { tag, ..DATA });
        assert_eq!(sender.unanswered_since(), Some(at(1)));
        let (outcome, fates) = apply(&mut sender, at(50), &report(&[(40, 50), (0, 9)]));
        assert_eq!(outcome.lost, 0, "no congestion");
        assert_eq!(fates.iter().filter(|(_, fate)| *fate == Fate::Lost).count(), 30);
        assert_eq!(sender.window(), 10);
        assert_eq!((sender.unanswered_since(), sender.last_confirmed()), (None, Some(at(50))));
    }

    #[test]
    fn an_idle_window_decays_at_the_next_datagram() {
        let mut sender = sender();
        let mut now = at(0);
        while sender.window() < 60 {
            let (first, room) = (sender.next_number(), u64::from(sender.room()));
            send(&mut sender, now, room);
            now += MS * 100;
            apply(&mut sender, now, &report(&[(first, first + room - 1)]));
        }
        let (window, rto) = (sender.window(), sender.rtt().rto());
        send(&mut sender, now - MS * 100 + rto * 2, 1);
        assert_eq!(sender.window(), window / 4);
        assert_eq!(sender.stats().threshold, None);
    }

    #[test]
    fn a_quarter_of_the_number_space_unconfirmed_stops_the_sender() {
        let mut sender = sender();
        for _ in 0..MAX_UNCONFIRMED - 1 {
            sender.on_sent(at(0), REPORT_ONLY);
        }
        assert!(!sender.must_stop());
        sender.on_sent(at(0), REPORT_ONLY);
        assert!(sender.must_stop());
        apply(&mut sender, at(1), &report(&[(MAX_UNCONFIRMED - 1, MAX_UNCONFIRMED - 1)]));
        assert!(!sender.must_stop());
        let open = MAX_UNCONFIRMED - sender.stats().lost - sender.stats().confirmed;
        assert!(open < 1 << 16, "memory is bounded: {open}");
    }

    #[test]
    fn a_new_path_starts_from_scratch_but_numbers_go_on() {
        let mut sender = sender();
        send(&mut sender, at(0), 10);
        apply(&mut sender, at(50), &report(&[(0, 7)]));
        sender.on_new_path(at(60));
        assert_eq!((sender.window(), sender.in_flight(), sender.next_number()), (10, 2, 10));
        assert_eq!((sender.rtt().srtt(), sender.poll_timeout()), (None, Some(at(1060))));
    }
}
