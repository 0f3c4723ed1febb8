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

use ropewalk_settings::{Bitrate, ControllerKind};

use super::delivery::{Delivery, HeldBack};
use super::loss::{Fates, LossThreshold, RecentLoss};
use super::one_way::OneWay;
use super::received::Report;
use super::rtt::Rtt;
use super::sent::{Confirmed, Fate, MAX_UNCONFIRMED, ReportError, Sent, SentDatagrams, Settled};
use crate::congestion::{
    AckSample, AnyController, Controller, DeliverySample, KnownPath, LossSample, PathModel,
};
use crate::time::{Duration, Instant};

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
    /// The window is opening, and nobody knows yet how far.
    pub opening: bool,
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
    /// The newest sample.
    pub newest_rtt: Option<Duration>,
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
    /// The first number on the present path.
    path_from: u64,
    rtt: Rtt,
    delivery: Delivery,
    threshold: LossThreshold,
    one_way: OneWay,
    recent: RecentLoss,
    deadline: Option<Instant>,
    /// When a datagram in the window was last sent.
    last_in_window: Option<Instant>,
    ce_count: u32,
    /// Packets sent beyond one a datagram.
    extra: u64,
    /// What the link carries, if that was told.
    rate: Option<Bitrate>,
    is_repaired: bool,
    /// Somebody said that nothing passes; until a datagram from this number on is confirmed.
    doubted_from: Option<u64>,
    totals: SenderStats,
}

impl LinkSender {
    /// A link on which nothing was sent; its first datagram gets the number `first`.
    #[must_use]
    pub fn new(kind: ControllerKind, first: u64) -> Self {
        Self {
            kind,
            controller: AnyController::new(kind, first),
            sent: SentDatagrams::new(first),
            path_from: first,
            rtt: Rtt::default(),
            delivery: Delivery::default(),
            threshold: LossThreshold::new(kind),
            one_way: OneWay::default(),
            recent: RecentLoss::default(),
            deadline: None,
            last_in_window: None,
            ce_count: 0,
            extra: 0,
            rate: None,
            is_repaired: false,
            doubted_from: None,
            totals: SenderStats::default(),
        }
    }

    /// What is lost here is sent again.
    #[must_use]
    pub fn repaired(mut self) -> Self {
        self.set_repaired(true);
        self
    }

    /// What is lost here is sent again from now on, or is not any more.
    pub fn set_repaired(&mut self, is_repaired: bool) {
        self.is_repaired = is_repaired;
        if is_repaired {
            self.controller.on_repaired();
        }
    }

    /// The window is kept by a controller of this kind from now on. It knows nothing of the path yet, and begins with what
    /// is under way.
    pub fn set_controller(&mut self, kind: ControllerKind) {
        self.kind = kind;
        self.controller = AnyController::new(kind, self.next_number());
        self.threshold = LossThreshold::new(kind);
        self.controller.on_rate_told(self.rate);
        if self.is_repaired {
            self.controller.on_repaired();
        }
    }

    /// Somebody said what the link carries, at IP level, or takes it back.
    pub fn on_rate_told(&mut self, rate: Option<Bitrate>) {
        self.rate = rate;
        self.controller.on_rate_told(rate);
    }

    /// Datagrams that the window has room for. A window that shrank below what is in flight has none.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.window().saturating_sub(self.in_flight())
    }

    /// The congestion window in datagrams; one with several packets takes a place for each.
    #[must_use]
    pub fn window(&self) -> u32 {
        self.controller.window()
    }

    /// Places in the window of datagrams of which nothing is known yet.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.sent.in_flight()
    }

    /// How fast datagrams may leave, if the controller says.
    #[must_use]
    pub fn pacing_rate(&self) -> Option<Bitrate> {
        self.controller.pacing_rate()
    }

    /// How much the controller believes that the path carries, if it models it.
    #[must_use]
    pub fn believed_rate(&self) -> Option<Bitrate> {
        self.controller.believed_rate()
    }

    /// What the controller believes of the path, if it models it.
    #[must_use]
    pub fn path_model(&self) -> Option<PathModel> {
        self.controller.path_model()
    }

    /// By how much the controller believes that delays vary by themselves, if it models the path.
    #[must_use]
    pub fn delay_noise(&self) -> Option<Duration> {
        self.controller.delay_noise()
    }

    /// Whether nobody knows yet how much the path carries.
    #[must_use]
    pub fn is_opening(&self) -> bool {
        self.controller.is_opening()
    }

    /// The number of the next datagram.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.sent.next()
    }

    /// How much was sent: the number of the next datagram, if all packets had gone one by one.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.next_number() + self.extra
    }

    /// The first number on the present path: lower ones went over another.
    #[must_use]
    pub fn path_from(&self) -> u64 {
        self.path_from
    }

    /// Whether a quarter of the number space is unconfirmed: only probes may be sent, or the receiver could
    /// expand a number wrongly.
    #[must_use]
    pub fn must_stop(&self) -> bool {
        self.sent.unconfirmed() >= MAX_UNCONFIRMED
    }

    /// Datagrams beyond the largest confirmed one.
    #[must_use]
    pub fn unconfirmed(&self) -> u64 {
        self.sent.unconfirmed()
    }

    /// Share of losses among the last 512 to 1,024 datagrams resolved, from 0 to 1.
    #[must_use]
    pub fn loss_ratio(&self) -> f64 {
        self.recent.ratio()
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

    /// When the datagram with this number left; `None`: it is not remembered any more.
    #[must_use]
    pub fn sent_at(&self, number: u64) -> Option<Instant> {
        self.sent.sent_at(number)
    }

    /// A datagram left. Returns its number, which is what [`next_number`](Self::next_number) said before.
    pub fn on_sent(&mut self, now: Instant, sent: Sent) -> u64 {
        let idle = sent.in_window() && self.in_flight() == 0;
        if idle && let Some(last) = self.last_in_window {
            let (idle, rto) = (now.since(last), self.rtt.base_rto());
            if idle > rto {
                self.controller.on_idle(now, idle, rto);
            }
        }
        // Its fate is not told: so many open datagrams are a peer that confirms next to nothing, and the
        // timeout or a late report still tells the fate of the others.
        let Self { sent: open, totals, recent, .. } = &mut *self;
        open.make_place(now, |_| {
            totals.lost += 1;
            recent.on_resolved(true);
        });
        let stamp = self.delivery.on_sent(now, self.in_flight());
        let number = self.sent.push(now, sent, stamp);
        self.extra += u64::from(sent.places.saturating_sub(1));
        self.totals.sent += 1;
        self.totals.sent_bytes += u64::from(sent.size);
        if sent.in_window() {
            self.last_in_window = Some(now);
            self.controller.on_sent(now, number, self.in_flight());
            if self.deadline.is_none() {
                self.deadline = Some(now + self.rtt.rto());
            }
        }
        number
    }

    /// A report on this link came in. `settle` is called once for each datagram whose fate it decided.
    ///
    /// The report was sealed at `sealed_us` of the peer's clock.
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
        sealed_us: i64,
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
        let arrived_us = sealed_us.saturating_sub(i64::from(report.delay_us));
        let arrival = news.is_newest.then(|| self.delivery.on_arrival(arrived_us)).flatten();
        if let Some(sent_at) = news.newest_sent_at {
            let sent_us = i64::try_from(sent_at.as_micros()).unwrap_or(i64::MAX);
            self.one_way.on_delay(now, arrived_us.saturating_sub(sent_us));
        }
        let delivery = self.delivery.take_sample(self.rtt.min());
        if let Some(sample) = delivery {
            self.totals.delivery_rate = Some(sample.rate());
        }

        let next = self.sent.next();
        if news.found > 0 {
            self.controller.on_late(now, news.found);
        }
        if let Some(largest) = losses.largest {
            let sample = LossSample { datagrams: losses.places, largest, next, prior_in_flight };
            self.controller.on_loss(now, &sample);
        }
        if marks > 0 {
            // Which ones were marked is not said. The largest may be beyond the last reaction, and the mark
            // on one before it: that congestion has been answered.
            let largest = news.lowest.unwrap_or(report.ranges[0].last);
            let sample = LossSample { datagrams: marks, largest, next, prior_in_flight };
            self.controller.on_ecn(now, &sample);
        }
        if let Some(largest) = news.largest {
            let sample = AckSample {
                datagrams: news.places,
                bytes: news.bytes,
                largest,
                prior_in_flight,
                window_limited: news.window_limited,
                rtt: news.rtt,
                delivery,
                arrival,
                next,
                in_flight: self.sent.in_flight(),
                lateness: self.threshold.lateness(),
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
            opening: self.controller.is_opening(),
        })
    }

    /// Somebody says that nothing passes here any more: until something that is sent from now on is confirmed, the link is
    /// suspect. Returns whether nobody had said so.
    pub fn doubt(&mut self) -> bool {
        self.doubted_from.replace(self.next_number()).is_none()
    }

    /// How much longer a datagram that others overtook is waited for, because the link reorders, before it counts as lost.
    #[must_use]
    pub fn lateness(&self) -> Duration {
        self.threshold.lateness()
    }

    /// Whether an answer is overdue, or somebody said that none will come: the link may be silent.
    #[inline]
    #[must_use]
    pub fn is_suspect(&self, now: Instant) -> bool {
        if self.doubted_from.is_some() {
            return true;
        }
        let Some(since) = self.unanswered_since() else { return false };
        // At the very moment: what is under way goes over the others then.
        self.rtt.patience().is_some_and(|patience| now.since(since) >= patience)
    }

    /// How long a datagram takes one way without a queue, µs, from an epoch that all links of the tunnel share.
    #[must_use]
    pub fn one_way_us(&self) -> Option<i64> {
        self.one_way.delay_us()
    }

    /// The kind of its controller.
    #[must_use]
    pub fn controller_kind(&self) -> ControllerKind {
        self.kind
    }

    /// For how many datagrams a window limits the sender that was full when it had so many places: the present one, but a
    /// model opens wide at once after an outage, and what was sent before says nothing then.
    #[must_use]
    pub fn limited_for(&self, window: u32) -> u32 {
        match self.kind {
            ControllerKind::Model => window.min(self.window()),
            ControllerKind::Ccid2 | ControllerKind::Fixed(_) => self.window(),
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// If the timeout passed: takes all that is open for lost, closes the window and backs off. `settle` is
    /// called for each datagram. Returns whether it had passed.
    pub fn handle_timeout(&mut self, now: Instant, settle: impl FnMut(Settled)) -> bool {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return false;
        }
        let prior_in_flight = self.in_flight();
        let next = self.sent.next();
        self.give_up(now, settle);
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

    /// The link answers again after an outage. It was not idle meanwhile: its window is that of this moment.
    pub fn on_return(&mut self, now: Instant) {
        self.controller.on_return(now);
        self.last_in_window = self.last_in_window.map(|_| now);
    }

    /// What a link of the same name may begin with if this one leaves now, if its controller knows anything.
    #[must_use]
    pub fn known_path(&self, now: Instant) -> Option<KnownPath> {
        self.controller.known_path(now)
    }

    /// The link is a new one, and one of its name had this when it left.
    pub fn on_known_path(&mut self, known: KnownPath) {
        self.controller.on_known_path(known);
    }

    /// The link's path is another one (another address, not only another port): what was learnt of the old
    /// one says nothing, and what is open on it takes no room and speaks for nothing but itself (RFC 9000
    /// §9.4). It counts as lost until it is confirmed late. Numbers go on.
    pub fn on_new_path(&mut self, now: Instant, settle: impl FnMut(Settled)) {
        self.give_up(now, settle);
        self.path_from = self.sent.next();
        self.rtt = Rtt::default();
        self.threshold = LossThreshold::new(self.kind);
        self.one_way = OneWay::default();
        self.doubted_from = None;
        self.controller = AnyController::new(self.kind, self.path_from);
        self.controller.on_rate_told(self.rate);
        if self.is_repaired {
            self.controller.on_repaired();
        }
        self.deadline = None;
    }

    /// Nothing was sent for long: gives back memory that only matters while something is.
    pub fn release_memory(&mut self, now: Instant) {
        self.controller.release_memory();
        self.sent.release_memory(now);
    }

    /// Takes all that is open for lost.
    fn give_up(&mut self, now: Instant, mut settle: impl FnMut(Settled)) {
        let Self { sent, totals, recent, .. } = self;
        sent.time_out(now, |settled| {
            totals.lost += 1;
            recent.on_resolved(true);
            settle(settled);
        });
    }

    /// How many datagrams had which fate so far.
    #[must_use]
    pub fn fates(&self) -> Fates {
        Fates { confirmed: self.totals.confirmed, lost: self.totals.lost }
    }

    /// Totals and the present state.
    #[must_use]
    pub fn stats(&self) -> SenderStats {
        SenderStats {
            loss_ratio: self.recent.ratio(),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            newest_rtt: self.rtt.newest(),
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
        let largest_sent_at = self.sent.largest_sent_at();
        let overtaken_below = self.sent.confirmed_below();
        self.doubted_from.take_if(|from| reported >= *from);
        let Self { sent, path_from, delivery, threshold, recent, totals, .. } = self;
        sent.confirm(&report.ranges, |confirmed| {
            let Confirmed { settled, stamp, was_overtaken } = confirmed;
            news.confirmed += 1;
            news.lowest = Some(news.lowest.unwrap_or(u64::MAX).min(settled.number));
            totals.confirmed += 1;
            totals.confirmed_bytes += u64::from(settled.sent.size);
            let is_newest = settled.number == reported && settled.number >= *path_from;
            news.is_newest |= is_newest;
            if is_newest {
                news.newest_sent_at = Some(settled.sent_at);
            }
            if is_newest && via == Via::Own {
                // A delay longer than the whole trip is a broken peer's; it gives no sample.
                news.rtt = now.since(settled.sent_at).checked_sub(delay);
            }
            let lateness = largest_sent_at.since(settled.sent_at);
            if settled.number < overtaken_below {
                threshold.on_overtaken(lateness);
            }
            if settled.fate == Fate::ConfirmedLate {
                news.late += 1;
                delivery.on_late(settled.sent.size + u32::from(settled.sent.header));
                totals.lost -= 1;
                totals.spurious += 1;
                recent.on_spurious();
                if was_overtaken {
                    threshold.on_spurious(now, reported - settled.number, lateness);
                    news.found += u32::from(settled.sent.places);
                }
            } else {
                recent.on_resolved(false);
            }
            // What had counted as lost left the window then; its late arrival lets nothing grow.
            if let Some(stamp) = stamp.filter(|_| settled.sent.in_window()) {
                let Settled { number, sent_at, sent, .. } = settled;
                let size = sent.size + u32::from(sent.header);
                let held_back = HeldBack {
                    in_window: sent.window_limited || sent.paced,
                    in_trip: sent.window_full || sent.paced,
                };
                delivery.on_confirmed(now, number, sent_at, size, stamp, held_back);
                news.places += u32::from(sent.places);
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
        let window = self.threshold.window(self.rtt.srtt().unwrap_or(UNKNOWN_RTT));
        let overdue = self.threshold.overdue(self.rtt.patience());
        let Self { sent, threshold, recent, totals, .. } = self;
        sent.detect_lost(now, threshold.packets(), (window, overdue), |settled| {
            totals.lost += 1;
            recent.on_resolved(true);
            if settled.sent.in_window() {
                losses.datagrams += 1;
                losses.places += u32::from(settled.sent.places);
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
    /// Places that had counted as lost because others overtook them.
    found: u32,
    /// The largest number is among them.
    is_newest: bool,
    newest_sent_at: Option<Instant>,
    rtt: Option<Duration>,
    /// The lowest number of them all.
    lowest: Option<u64>,
    /// The rest is of the datagrams in the window that had not counted as lost.
    places: u32,
    bytes: u64,
    largest: Option<u64>,
    window_limited: bool,
}

/// What a report showed to be lost, in the window.
#[derive(Default)]
struct Losses {
    datagrams: u32,
    places: u32,
    largest: Option<u64>,
}

#[cfg(test)]
mod tests;
